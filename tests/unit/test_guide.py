"""The documents are true: examples in Python run, commands print what is shown below them."""

import contextlib
import difflib
import doctest
import re
from pathlib import Path

import pytest

from nodewright.agent.serving.pod_routes import STAGE_TEXTS
from nodewright.agent.state.agent_state import PodStage
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.testing.conformance.vectors import ALL_FAMILIES, is_answered
from tools.consoles import blocks, console_commands, documents, is_as_shown, is_run, outputs
from tools.reference import CLI
from tools.source import ROOT

PAGES = [page.relative_to(ROOT).as_posix() for page in documents()]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_is_shown(page: str) -> None:
    wrong: list[str] = []
    for block in blocks((ROOT / page).read_text("utf-8"), "console"):
        for each, printed in outputs(block):
            if not is_as_shown(each.output, printed):
                difference = difflib.unified_diff(
                    each.output.splitlines(), printed.splitlines(), "shown", "printed", lineterm=""
                )
                wrong += [f"{page}:{each.line}: $ {each.command}", *difference, ""]
    assert not wrong, "\n".join(["refresh with `python -m tools regenerate`", *wrong])


@pytest.mark.parametrize("page", PAGES)
def test_an_error_that_is_shown_is_announced(page: str) -> None:
    """A page that shows an error by mistake teaches it; the paragraph above says that an error follows.

    That the page shows what is printed is the test above.
    """
    text = (ROOT / page).read_text("utf-8")
    silent = [
        f"{page}:{each.line}: $ {each.command}"
        for block in blocks(text, "console")
        for each in console_commands(block)
        if is_run(each.command)
        and re.search(r"^(Error|error|Usage): ", each.output, re.MULTILINE)
        and not re.search(
            r"error|fails|refuse", text[: text.rindex("```", 0, block.start)].strip().rpartition("\n\n")[2]
        )
    ]
    assert not silent, "\n".join(silent)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_examples_in_python_run(page: str) -> None:
    names: dict[str, object] = {"__name__": page}
    parser, runner = (
        doctest.DocTestParser(),
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False),
    )
    report: list[str] = []
    with contextlib.chdir(ROOT):
        for block in blocks((ROOT / page).read_text("utf-8"), "python"):
            if ">>>" not in block.body:
                code = compile("\n" * (block.line - 1) + block.body, page, "exec")
                exec(code, names)  # noqa: S102 - the example is ours
                continue
            test = parser.get_doctest(block.body, names, page, page, block.line - 1)
            runner.run(test, out=report.append, clear_globs=False)
            names = test.globs
    assert not report, "".join(report)


def test_the_readme_names_what_is_not_answered() -> None:
    missing = ", ".join(f"`{family}`" for family in ALL_FAMILIES if not is_answered(family))
    assert not missing or f"Not answered yet: {missing}." in " ".join(
        (ROOT / "README.md").read_text().split()
    )


def links(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    targets = [part.split(")", 1)[0].split("#", 1)[0] for part in text.split("](")[1:]]
    return [target for target in targets if target and "://" not in target]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Pages of commands are not kept in the checkout: `python -m tools regenerate` writes them."""
    targets = {target: (ROOT / page).parent.joinpath(target).resolve() for target in links(ROOT / page)}
    assert not [target for target, path in targets.items() if CLI not in path.parents and not path.exists()]


SHORT_OF_CPUS = InsufficientResource(resource="cpu", requested=500_000, used=1_100, capacity=1_500)
REFUSED = ("OutOfcpu", f"{SHORT_OF_CPUS.kubelet().reason}: {SHORT_OF_CPUS.kubelet().message}")
SHOWN = (
    ("agent.md", "pod/too-big refused: ", REFUSED[1]),
    ("agent.md", "  kubelet:  ", REFUSED[1]),
    ("agent.md", "  because:  ", SHORT_OF_CPUS.sentence()),
    ("agent.md", "  decision: ", STAGE_TEXTS[PodStage.REJECTED]),
)
PRINTED = {
    "node worker-3 is ready; API socket /run": ("run_agent.py", "is ready; API socket "),
    "kubelet API at 0.0.0.0:10250": ("run_agent.py", 'f"kubelet API at '),
    "dashboard at: http": ("browser_pages.py", '"dashboard at"'),
    "results at: http": ("browser_pages.py", '"results at"'),
    "press Ctrl-C to stop": ("browser_pages.py", '"press Ctrl-C to stop"'),
    "    What would let it in (": (
        "suggestion_text.py",
        "What would let it in (each tried on this node, the smallest that works):",
    ),
}
"""What lines of blocks that no test runs begin with, and where the program prints it."""


@pytest.mark.parametrize(("page", "start", "end"), SHOWN)
def test_what_an_agent_decides_is_shown_in_the_words_that_it_prints(page: str, start: str, end: str) -> None:
    assert f"{start}{end}" in (ROOT / "docs" / "guide" / page).read_text("utf-8").splitlines()


@pytest.mark.parametrize("start", PRINTED)
def test_what_an_agent_prints_is_shown_in_its_words(start: str) -> None:
    module, text = PRINTED[start]
    (path,) = (ROOT / "src").rglob(module)
    assert text in path.read_text("utf-8")
    shown = [line for page in documents() for line in page.read_text("utf-8").splitlines()]
    assert any(line.startswith(start) for line in shown)
