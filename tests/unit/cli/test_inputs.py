"""What commands make of manifests that are wrong: a message a fault, exit code 1, never a traceback."""

import io
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, USAGE, YES

GOLDEN = "tests/golden/errors"
POD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: b%s}]}\n"
BOMB = b"l0: &l0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"l%d: &l%d [%s]\n" % (level, level, b", ".join([b"*l%d" % (level - 1)] * 9)) for level in range(1, 10)
)


def errors(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(["requests", *arguments]) == ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


BAD = [
    (b"[" * 200 + b"]" * 200, ":1:129: nested more than 128 levels deep"),
    (b"[" * 200_000, ": nested more than 128 levels deep"),
    (b'{"a":' * 200_000, ": nested more than 128 levels deep"),
    (BOMB, ": document contains excessive aliasing"),
    (POD % b"" + b"kind: Pod\n", ':5:1: Invalid value: "kind": the key "kind" is given twice'),
    (POD % b", resorces: {}", 'spec.containers[0].resorces: unknown field; did you mean "resources"?'),
    (POD % b", tty: maybe", 'spec.containers[0].tty: Invalid value: "maybe": must be true or false, not a string'),
    (POD % b", resources: {requests: {cpu: 1GB2}}", 'requests[cpu]: Invalid value: "1GB2": quantities must match'),
    (POD % b", resources: {requests: {cpu: -1}}", 'requests[cpu]: Invalid value: "-1": must be greater than'),
    (b"\x00", ": the character U+0000 at offset 0 is not allowed in YAML"),
    (b"\xff\xff", ": not valid UTF-8: invalid start byte at byte 0"),
    (b"a:\n\t- b", ": while scanning for the next token, found character that cannot start any token: indent with spaces, YAML forbids tabs"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), BAD)
def test_bad_input_is_an_error_in_one_line(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    (line,) = errors(capsys, "-f", str(path))
    assert line.startswith(f"error: {path}")
    assert message in line


def test_all_faults_of_all_files_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    lines = errors(capsys, "-f", GOLDEN, "-f", f"{GOLDEN}/amounts.yaml")
    texts = [*sorted(Path(GOLDEN).glob("*.txt")), Path(GOLDEN, "amounts.txt")]
    result = [line for text in texts for line in text.read_text("utf-8").splitlines()]
    assert lines[:50] == [f"error: {GOLDEN}/{line}" for line in result[:50]]
    assert lines[50:] == [f"error: {len(result) - 50} more faults"]


@pytest.mark.parametrize("command", ["requests", "admit", "explain", "preempt", "cgroups", "lint", "quota"])
def test_nothing_to_judge_is_an_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.yaml"
    path.touch()
    assert run([command, "-f", str(path)]) == ERROR
    assert capsys.readouterr().err == f"error: no objects passed to {command}\n"


FOREIGN = {
    "kustomization.yaml": "resources: [web.yaml]\n",
    "package.json": '{"name": "web", "version": "1.0.0"}',
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
    "template.yaml": "metadata:\n  name: {{ .Values.name }}\n{{- if .Values.x }}\n{{- end }}\n",
}
SKIPPED = "skipped: 3 documents without apiVersion and kind, 1 template file\n"


@pytest.mark.parametrize(
    "command", ["requests", "admit", "explain", "preempt", "cgroups", "lint", "quota", "fleet"]
)
def test_files_in_a_directory_that_are_no_objects_are_skipped_and_counted(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FOREIGN.items():
        tmp_path.joinpath(name).write_text(text)
    tmp_path.joinpath("web.yaml").write_bytes(POD % b"")
    nodes = ["--nodes", "examples/fleet/nodes.yaml"] if command == "fleet" else []
    assert run([command, "-f", str(tmp_path), *nodes]) == YES
    assert SKIPPED in capsys.readouterr().err


def test_a_template_that_is_named_is_an_error_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(FOREIGN["template.yaml"])
    assert errors(capsys, "-f", str(path))[-1] == (
        f"error: {path}: the file contains template actions ({{{{ }}}}): render it first, e.g. with `helm template`"
    )


def test_manifests_are_read_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POD % b", x: 1")))
    (line,) = errors(capsys, "-f", "-")
    assert line == "error: stdin:4:31, Pod default/a: spec.containers[0].x: unknown field"


def test_directories_with_other_kinds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "-f", "examples/manifests/crds"]) == YES
    message = "skipped: 1 CustomResourceDefinition, 1 Job.batch.volcano.example, 2 Widget\n"
    assert capsys.readouterr().err == message


def test_subdirectories_are_read_with_recursive(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "-f", "examples/manifests"]) == YES
    assert "widget-operator" not in capsys.readouterr().out
    assert run(["requests", "-R", "-f", "examples/manifests"]) == YES
    assert "widget-operator" in capsys.readouterr().out


def test_the_maximum_size_of_yaml_is_configurable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(POD % b"" + b"# " + b"x" * 4_000_000 + b"\n")
    (line,) = errors(capsys, "-f", str(path))
    assert (
        line
        == f"error: {path}: {path.stat().st_size} bytes of YAML exceed the limit of 3145728 (JSON may be larger)"
    )
    assert run(["requests", "-f", str(path), "--max-document-size", "5Mi"]) == YES
    assert run(["requests", "-f", str(path), "--max-document-size", "much"]) == USAGE


def test_the_status_of_a_stored_claim_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "claim.json"
    head = '{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "uid": "a"}'
    path.write_text(head + ', "status": 0}', "utf-8")
    assert run(["quota", "-f", str(path)]) == ERROR
    assert "status: Invalid value: 0: must be a mapping, not a number" in capsys.readouterr().err


def test_a_large_limit_of_files_reserves_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    class Recording(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.append(size or 0)
            return super().read(size)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Recording(POD % b"")))
    assert run(["requests", "-f", "-", "--max-document-size=1000000000000000000Gi"]) == YES
    assert max(asked) <= 1 << 20


def test_a_template_of_claims_may_have_no_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "template.json"
    path.write_text('{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}', "utf-8")
    assert run(["lint", "-f", str(path)]) in (YES, ERROR, USAGE, 3)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("lease", ["a", "a/b/c", "../a", "a/", "\udc8b/a", "https://a"])
def test_a_lease_is_a_namespace_and_a_name(lease: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extender", "--leader-elect", f"--lease={lease}"]) == USAGE
    assert "NAMESPACE/NAME" in capsys.readouterr().err


def test_a_vector_may_expect_what_is_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vectors.jsonl"
    vector = '"family": "quantity", "input": {"op": "parse", "text": "00"}, "expect": {"float": "9999-12-31"}'
    path.write_text(f'{{"id": "quantity-1", {vector}}}\n', "utf-8")
    assert run(["verify", "--show", "1", str(path)]) == 1
    assert "Traceback" not in capsys.readouterr().err
