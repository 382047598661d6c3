"""Whatever the names in a file are, no output line holds anything raw, and their number does not depend on the names."""

import csv
import io
import json
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from textwrap import wrap
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodewright.cli.app import run
from nodewright.documents.output.text_layout import wrapped
from nodewright.model.printable import printable_text

EXAMPLES = Path(__file__).parents[2] / "examples"
PODS = str(EXAMPLES / "fleet" / "pods.csv")
PROFILE = yaml.safe_load((EXAMPLES / "nodes" / "worker.yaml").read_text("utf-8"))

PIECES = (
    "\x1b[2J", "\x1b]0;t\x07", "\n::error::x", "\n", "\r", "\t", "\x7f", "\x9b", "\x85", "\u2028", "\u202e", "\u2066",
    "##[error]", "::set-output name=a::b", "x", "é",
)  # fmt: skip
HOSTILE = st.lists(st.one_of(st.sampled_from(PIECES), st.characters(exclude_categories=["Cs"])), max_size=6)


def pod(text: str, **metadata: Any) -> dict[str, Any]:
    """A pod that requests a resource of that name."""
    container = {"name": "a", "image": "a", "resources": {"requests": {text: "1"}}}
    meta = {"name": "web", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


ENDED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "status": {"phase": "Succeeded"},
    "spec": {"nodeName": "n", "containers": []},
}


def node_csv(text: str) -> str:
    """Nodes as a table with this name."""
    table = io.StringIO()
    csv.writer(table).writerows([("name", "cpu", "memory"), (text, "16", "64Gi")])
    return table.getvalue()


# Place of the text -> the file with it, and the arguments; `FILE` is the file's path.
SLOTS: dict[str, tuple[Callable[[str], str], tuple[str, ...]]] = {
    "kind": (lambda text: json.dumps({"apiVersion": "v1", "kind": f"X{text}"}), ("requests", "-f", "FILE")),
    "kind in lint": (lambda text: json.dumps({"apiVersion": "v1", "kind": f"X{text}"}), ("lint", "-f", "FILE")),
    "apiVersion": (lambda text: json.dumps({**pod("cpu"), "apiVersion": f"a/b/{text}"}), ("quota", "-f", "FILE")),
    "name": (lambda text: json.dumps(pod("cpu", name=f"A {text}")), ("lint", "-f", "FILE")),
    "namespace": (lambda text: json.dumps(pod("cpu", namespace=f"A {text}")), ("requests", "-f", "FILE")),
    "label": (lambda text: json.dumps(pod("cpu", labels={f"A {text}": 1})), ("requests", "-f", "FILE")),
    "resource": (lambda text: json.dumps(pod(f"A {text}")), ("admit", "--node", "uma-4c", "-f", "FILE")),
    "field": (lambda text: json.dumps({**pod("cpu"), f"A {text}": 1}), ("lint", "--strict", "-f", "FILE")),
    "key given twice": (lambda text: f"{{{json.dumps(text)}: 1, {json.dumps(text)}: 2}}", ("explain", "-f", "FILE")),
    "field of a profile": (
        lambda text: json.dumps({**PROFILE, f"A {text}": 1}), ("node", "show", "--node", "FILE")
    ),
    "node": (
        lambda text: json.dumps({**PROFILE, "metadata": {"name": f"A {text}"}}), ("node", "show", "--node", "FILE")
    ),
    "node as name": (
        lambda text: json.dumps({**PROFILE, "metadata": {"name": f"A {text}"}}),
        ("cgroups", "--node", "FILE", "-f", str(EXAMPLES / "worker-3" / "new-pods.yaml")),
    ),
    "node in a table": (
        lambda text: node_csv(f"A {text}"), ("fleet", "run", "--nodes", "FILE", "--pods", PODS, "-o", "wide")
    ),
    "kubelet field": (
        lambda text: json.dumps({"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", f"A {text}": 1}),
        ("lint", "--kubelet-config", "FILE", "-f", str(EXAMPLES / "worker-3" / "new-pods.yaml")),
    ),
    "policy": (
        lambda text: json.dumps({"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "topologyManagerPolicy": f"A {text}"}),
        ("admit", "--node", "uma-4c", "--kubelet-config", "FILE", "-f", str(EXAMPLES / "worker-3" / "new-pods.yaml")),
    ),
    "pod that has ended": (
        lambda text: json.dumps({"kind": "List", "apiVersion": "v1", "items": [
            ENDED | {"metadata": {"name": f"A {text}"}}
        ]}),
        ("node", "capture", "--catalogue", "uma-4c", "--pods", "FILE"),
    ),
    "event": (
        lambda text: json.dumps({"kind": "Scenario", "apiVersion": "nodewright.dev/v1alpha1", "spec": {"events": [{f"A {text}": {}}]}}),
        ("replay", "--node", "uma-4c", "FILE"),
    ),
}  # fmt: skip


def outcome(arguments: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and all output of a command line."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = run(arguments)
    return code, out.getvalue()


def assert_safe(text: str) -> None:
    """The text has nothing raw."""
    assert text.replace("\n", "").isprintable(), ascii(text)
    assert printable_text(text) == text, ascii(text)


@pytest.mark.parametrize("place", SLOTS)
def test_names_in_files_add_no_lines_and_nothing_raw(place: str, tmp_path: Path) -> None:
    content, arguments = SLOTS[place]
    file = tmp_path / ("file.csv" if place == "node in a table" else "file")
    arguments = tuple(str(file) if word == "FILE" else word for word in arguments)
    file.write_text(content("A!"), "utf-8")
    code, plain = outcome(arguments)

    @given(HOSTILE)
    def law(pieces: list[str]) -> None:
        file.write_text(content("A!" + "".join(pieces)), "utf-8")
        hostile_code, text = outcome(arguments)
        assert_safe(text)
        assert (hostile_code, other_lines(text)) == (code, other_lines(plain)), ascii(text)

    def other_lines(text: str) -> int:
        """The lines that are no fault of the file: a name may break more rules than another one."""
        return sum(not line.startswith(f"error: {file}") for line in text.splitlines())

    law()


@given(HOSTILE)
def test_words_of_the_command_line_add_no_lines_and_nothing_raw(pieces: list[str]) -> None:
    text = "A!" + "".join(pieces).replace("\x00", "")
    for arguments in (
        (text,),
        ("--" + text,),
        ("admit", "--node", text),
        ("get", text),
        ("fleet", "run", "--nodes", text),
    ):
        code, shown = outcome(arguments)
        plain_code, plain = outcome(
            tuple("--A!" if word == "--" + text else "A!" if word == text else word for word in arguments)
        )
        assert_safe(shown)
        assert (code, shown.count("\n")) == (plain_code, plain.count("\n")), ascii(shown)


@pytest.mark.parametrize("output", [None, "json", "sarif", "junit"])
def test_names_of_files_add_no_lines_and_nothing_raw(output: str | None, tmp_path: Path) -> None:
    manifest = (EXAMPLES / "lint" / "shop.yaml").read_text("utf-8")
    for number, name in enumerate((b"a\n::error::x\x1b[31m.yaml", b"\xff.yaml", "\u202e.yaml".encode())):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / os.fsdecode(name)).write_text(manifest)
        arguments = ["lint", "-f", str(directory), *(("-o", output) if output else ())]
        code, text = outcome(tuple(arguments))
        assert code == 0, text
        assert "checkout" in text
        assert_safe(text)
        text.encode()


@pytest.mark.parametrize("name", ["a\x00b", "A", "a b", "-a", "a\u202eb"])
@pytest.mark.parametrize("place", ["node", "node in a table"])
def test_a_node_has_a_name_that_the_api_server_takes(name: str, place: str, tmp_path: Path) -> None:
    content, arguments = SLOTS[place]
    file = tmp_path / "file.csv"
    file.write_text(
        content("x").replace("A x", name.encode("unicode_escape").decode() if place == "node" else name)
    )
    code, text = outcome(tuple(str(file) if word == "FILE" else word for word in arguments))
    assert code == 1
    assert "RFC 1123 subdomain" in text or "not allowed in YAML" in text


@given(st.lists(st.text("ab-,", min_size=1, max_size=12), min_size=1, max_size=12), st.integers(8, 40))
def test_words_are_wrapped_as_the_standard_library_wraps_them(words: list[str], width: int) -> None:
    first, *others = words
    assert wrapped(["  " + first, *others], width, joint=" ", indent=4) == wrap(
        " ".join(words),
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
