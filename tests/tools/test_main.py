import importlib

import pytest

from tools.__main__ import TOOLS, argument_fault, listing, main
from tools.source import ROOT


@pytest.mark.parametrize("name", [name for name, tool in TOOLS.items() if ":" in tool.place])
def test_a_tool_is_a_function_of_a_module(name: str) -> None:
    module, _, function = TOOLS[name].place.partition(":")
    assert callable(getattr(importlib.import_module(f"tools.{module}"), function))


def test_every_tool_is_used() -> None:
    """A module that neither a name runs nor anything imports is left over."""
    modules = {path.stem for path in (ROOT / "tools").glob("[a-z]*.py")}
    run = {tool.place.partition(":")[0] for tool in TOOLS.values()}
    files = [path for folder in ("tools", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text("utf-8") for path in (*files, ROOT / "pyproject.toml")]
    assert not [
        name
        for name in modules - run
        if not any(f"tools.{name}" in text or f"tools/{name}.py" in text for text in texts)
    ]


def test_the_list_names_each_tool_and_who_may_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == f"{listing()}\n"
    assert [line.split()[0] for line in listing().splitlines()] == [*TOOLS]
    assert main(["nothing"]) == 2


def test_a_tool_gets_the_arguments_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guide", "docs/index.md"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("pyz", "WHEEL is missing"),
        ("deb", "WHEEL is missing"),
        ("image", "WHEEL is missing"),
        ("image /nowhere.whl", "WHEEL: no such file: /nowhere.whl"),
        ("pyz README.md", "WHEEL: not the name of a wheel: README.md"),
        ("krew", "URL is missing"),
        ("release-diff 1.35", "NEW is missing"),
        ("node-conformance", "OURS is missing"),
        ("node-conformance /nowhere", "OURS: no such file: /nowhere"),
        ("guide /nowhere", "FILE: no such file: /nowhere"),
        ("bench-fleet nothing", "unknown: nothing"),
        ("containers nothing", "unknown: nothing"),
    ],
)
def test_arguments_that_a_tool_cannot_use_are_named(
    line: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {line.split(maxsplit=1)[0]}: {fault}; it takes: ")
    assert captured.out == ""


def test_no_argument_is_refused_where_none_is_needed() -> None:
    assert [name for name, tool in TOOLS.items() if argument_fault(tool.takes, tool.arguments)] == [
        "release-diff",
        "pyz",
        "deb",
        "image",
        "krew",
        "node-conformance",
    ]
    assert argument_fault(TOOLS["release-diff"].takes, ["-h"]) == ""
