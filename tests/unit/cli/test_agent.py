"""`nodewright agent`, as far as it goes without root."""

import os
from pathlib import Path

import pytest

from nodewright.cli.app import ERROR, NO, YES, run

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: {name}}}
spec:
  containers:
    - {{name: main, image: i, resources: {{requests: {{cpu: {cpu}, memory: 1Mi}}}}}}
"""


def folder(tmp_path: Path, **cpus: str) -> str:
    for name, cpu in cpus.items():
        (tmp_path / f"{name}.yaml").write_text(POD.format(name=name, cpu=cpu), "utf-8")
    return str(tmp_path)


def test_a_dry_run_shows_every_action(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["agent", "--dry-run", "--node-name", "here", "--workload-dir", folder(tmp_path, web="1m")]
    assert run(asked) == YES
    lines = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines[-6:] == [
        "write /nodewright/kubepods",
        "write /nodewright/kubepods/burstable",
        "write /nodewright/kubepods/besteffort",
        "write /nodewright/kubepods/burstable/podweb",
        "make a sandbox for pod default/web, attempt 0",
        "start container main of pod default/web, attempt 0",
    ]


def test_a_dry_run_says_who_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["agent", "--dry-run=once", "--node-name", "here"]
    assert run([*asked, "--workload-dir", folder(tmp_path, big="9999")]) == NO
    assert "warning: pod default/big: OutOfcpu: Node didn't have" in capsys.readouterr().out
    # A static pod may push others out; that there are none is what it says then.
    assert run([*asked, "--pod-manifest-path", str(tmp_path)]) == NO
    assert "warning: pod default/big-here: UnexpectedAdmissionError" in capsys.readouterr().out


def test_without_root_it_says_what_is_needed_and_what_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(["agent"]) == ERROR
    said = capsys.readouterr().err
    assert "running pods takes root" in said
    assert "--dry-run" in said


@pytest.mark.parametrize("root", ["/", "//", "/a/../b"])
def test_it_never_takes_the_groups_of_the_machine(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agent", "--dry-run", "--cgroup-root", root]) == ERROR
    assert "a group of its own is wanted" in capsys.readouterr().err


def test_gates_are_read_as_the_kubelet_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agent", "--dry-run", "--feature-gates", "A=maybe,B=true"]) == ERROR
    assert 'Invalid value: "A=maybe": NAME=true or NAME=false is wanted' in capsys.readouterr().err
    assert run(["agent", "--dry-run", "--feature-gates", "CPUManagerPolicyBetaOptions=false"]) == YES
