"""`lint -f` with kubelet configurations as distributions write them."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES

FORMS = sorted(Path("examples/kubelet/forms").iterdir())


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_is_judged_and_counted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_rendered = path.name == "performance-profile.yaml"
    assert run(["lint", "-f", str(path)]) == (YES if is_rendered else NO)
    printed = capsys.readouterr()
    assert ("NW309" if is_rendered else "NW301") in printed.out
    assert "read as" in printed.err or path.name == "kubeadm.yaml"


@pytest.mark.parametrize(
    "content",
    [
        "foo: {kubelet: {maxPods: 5}}",
        "{apiVersion: example.com/v1, kind: KubeletTuning, metadata: {name: a}, spec: {kubelet: {}}}",
        "kubelet-arg: [max-pods=x]",
        "kubeletConfig: 5",
        "{apiVersion: machineconfiguration.openshift.io/v1, kind: KubeletConfig, metadata: {name: a}, spec: {kubeletConfig: {failSwapOn: true}}}",
    ],
)  # fmt: skip
def test_a_form_that_is_unknown_or_wrong_is_an_error(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    assert run(["lint", "-f", str(path)]) == ERROR
    printed = capsys.readouterr().err
    assert any(text in printed for text in ("the nearest is", "must be", "is not allowed to be set"))


def test_the_other_documents_of_a_talos_configuration_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talos.yaml"
    other = "---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n"
    path.write_text(Path("examples/kubelet/forms/talos.yaml").read_text() + other)
    assert run(["lint", "-f", str(path)]) == NO
    assert "not judged: 1 other document" in capsys.readouterr().err


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_in_a_folder_is_judged_as_alone_or_named(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["lint", "-f", str(path)])
    alone = {line.partition(": ")[2] for line in capsys.readouterr().out.splitlines() if "[NW" in line}
    for source in (path, Path("examples/admission/pods.yaml")):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    code = run(["lint", "-f", str(tmp_path)])
    printed = capsys.readouterr()
    assert code in (YES, NO), printed.err
    found = {line.partition(": ")[2] for line in printed.out.splitlines() if f"/{path.name}:" in line}
    has_no_kind = "skipped: 1 document without apiVersion and kind" in printed.err
    assert found == alone or has_no_kind or path.suffix in (".toml", ".conf")
    assert run(["admit", "--node", "vm-4", "-f", str(tmp_path)]) in (YES, NO)
