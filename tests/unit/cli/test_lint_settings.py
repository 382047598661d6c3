"""Settings of lint: files of the project, variables of the environment, baselines, and formats for people and CI."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES

SHOP = Path("examples/lint/shop.yaml").read_text("utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "shop.yaml").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = YES) -> str:
    assert run(["lint", "-f", "manifests", *arguments]) == code
    return capsys.readouterr().out


SETTINGS = {
    ".nodewright.yaml": "fail-on: warning\nonly: [NW102, NW110]\nper-path-ignores: {manifests: [NW110]}\n",
    "pyproject.toml": '[tool.nodewright]\nfail-on = "warning"\nonly = ["NW102", "NW110"]\n'
    '[tool.nodewright.per-path-ignores]\n"manifests/*.yaml" = ["NW110"]\n',
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_project_are_defaults(
    name: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / name).write_text(SETTINGS[name])
    output = lint(capsys, code=NO)
    assert "NW102" in output
    assert "NW110" not in output
    assert "NW101" not in output
    assert "NW101" in lint(capsys, "--only", "NW101", "--fail-on", "never"), "options come first"


def test_settings_above_the_directory_are_read_with_their_own_paths(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "kubelet.conf").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPod: 3\n"
    )
    (project / ".nodewright.yaml").write_text("kubelet-config: kubelet.conf\nonly: [NW302]\n")
    monkeypatch.chdir(project / "manifests")
    assert run(["lint", "-f", "shop.yaml"]) == YES
    assert "../kubelet.conf:3:1" in capsys.readouterr().out


def test_settings_outside_the_repository_are_not_read(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".nodewright.yaml").write_text("only: [NW102]\n")
    (project / "manifests" / ".git").mkdir()
    monkeypatch.chdir(project / "manifests")
    assert run(["lint", "-f", "shop.yaml"]) == YES
    assert "NW101" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("fail: never\n", "unknown field `fail`; settings are node,"),
        ("only: [NW999]\n", '"NW999": is not a rule'),
        ("only: 3\n", "Expected `array`, got `int` - at `only`"),
        ("only: [\n", ".nodewright.yaml"),
    ],
)
def test_wrong_settings_are_errors(
    text: str, rule: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".nodewright.yaml").write_text(text)
    assert run(["lint", "-f", "manifests"]) == ERROR
    assert rule in capsys.readouterr().err


def test_variables_come_between_options_and_settings(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".nodewright.yaml").write_text("only: [NW102]\n")
    monkeypatch.setenv("NODEWRIGHT_ONLY", "NW101")
    monkeypatch.setenv("NODEWRIGHT_FAIL_ON", "warning")
    output = lint(capsys, code=NO)
    assert "NW101" in output
    assert "NW102" not in output
    assert "NW110" in lint(capsys, "--only", "NW110", code=NO)


def test_a_node_is_named_by_a_variable(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del project
    monkeypatch.setenv("NODEWRIGHT_NODE", "vm-4 epyc-7742-2s-nps1")
    assert run(["lint", "-f", "manifests", "-o", "json"]) == YES
    assert '"NW204"' in capsys.readouterr().out


def test_a_baseline_accepts_what_is_there_and_reports_what_is_new(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lint(capsys, "--write-baseline", "lint-baseline.json")
    assert "no findings" in lint(capsys, "--baseline", "lint-baseline.json", "--fail-on", "info")
    manifest = project / "manifests" / "shop.yaml"
    manifest.write_text("# moved by a line\n" + SHOP.replace("memory: 400m", "memory: 300m"))
    assert run(["lint", "-f", "manifests", "--baseline", "lint-baseline.json"]) == YES
    captured = capsys.readouterr()
    assert "NW102" not in captured.out
    assert "300m is in thousandths of a byte" in captured.out
    assert "baseline: matched by no finding: 1 entry" in captured.err


def test_a_file_that_is_no_baseline_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "b.json").write_text("[]")
    assert run(["lint", "-f", "manifests", "--baseline", "b.json"]) == ERROR
    assert "b.json: is not a baseline" in capsys.readouterr().err


def test_quiet_output_has_findings_only(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "manifests" / "kustomization.yaml").write_text("resources: [shop.yaml]\n")
    assert run(["lint", "-f", "manifests", "-q"]) == YES
    captured = capsys.readouterr()
    assert captured.err == ""
    assert len(captured.out.splitlines()) == 6


def test_findings_are_counted_by_namespace(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "manifests" / "other.yaml").write_text(SHOP.replace("namespace: shop", "namespace: alpha"))
    lines = [line.split() for line in lint(capsys, "--summary").splitlines()[-3:]]
    assert lines == [
        ["NAMESPACE", "ERRORS", "WARNINGS", "INFO"],
        ["alpha", "0", "3", "0"],
        ["shop", "0", "3", "0"],
    ]


def test_findings_are_workflow_commands_that_no_text_can_leave(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = project / "manifests" / "a,b:100%.yaml"
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
        '  - {name: "x\\n::error::owned ##[error]", image: i, resources: {requests: {memory: 400m}}}\n'
    )
    manifest.write_text(pod.replace("x\\n::error::owned ##[error]", "x"))
    output = lint(capsys, "--output-format", "github")
    assert "::warning title=NW110,file=manifests/a%2Cb%3A100%25.yaml,line=6,col=" in output
    assert all(line.startswith(("::warning ", "::notice ", "::error ")) for line in output.splitlines())
