"""`nodewright agent`, as far as it goes without root."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

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
    texts = ["agent", "--dry-run", "--node", "uma-4c", "--workload-dir", folder(tmp_path, web="1m")]
    assert run(texts) == YES
    lines = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines[-8:] == [
        "write /nodewright/kubepods",
        "write /nodewright/kubepods/burstable",
        "write /nodewright/kubepods/besteffort",
        "write /nodewright/kubepods/burstable/podweb",
        "create a sandbox for pod default/web, attempt 0",
        "start container main of pod default/web, attempt 0",
        "event",
        "event",
    ]


def test_a_dry_run_reports_refused_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["agent", "--dry-run=once", "--node", "uma-4c"]
    assert run([*texts, "--workload-dir", folder(tmp_path, big="9999")]) == NO
    assert "warning: pod default/big: OutOfcpu: Node didn't have" in capsys.readouterr().out
    # A static pod may push others out; that there are none is what it says then.
    assert run([*texts, "--pod-manifest-path", str(tmp_path)]) == NO
    assert "warning: pod default/big-uma-4c: UnexpectedAdmissionError" in capsys.readouterr().out


def test_without_root_the_error_names_the_alternatives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(["agent"]) == ERROR
    err = capsys.readouterr().err
    assert "running pods needs root" in err
    assert "--dry-run" in err


@pytest.mark.parametrize("root", ["/", "//", "/a/../b"])
def test_it_never_uses_the_cgroups_of_the_machine(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agent", "--dry-run", "--cgroup-root", root]) == ERROR
    assert "must be a cgroup below the root" in capsys.readouterr().err


def test_gates_are_read_as_the_kubelet_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agent", "--dry-run", "--feature-gates", "A=maybe,B=true"]) == ERROR
    assert 'Invalid value: "A=maybe": must be NAME=true or NAME=false' in capsys.readouterr().err
    assert run(["agent", "--dry-run", "--feature-gates", "CPUManagerPolicyBetaOptions=false"]) == YES


def test_pods_run_on_this_machine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agent", "--node", "uma-4c"]) == USAGE
    assert "--node requires --dry-run" in capsys.readouterr().err


def test_headers_of_the_url_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["agent", "--dry-run", "--manifest-url", "http://127.0.0.1:9/", "--manifest-url-header", "none"]
    assert run(texts) == ERROR
    assert "must be NAME:VALUE" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_run_that_serves_is_an_agent_to_talk_to(tmp_path: Path) -> None:
    socket = tmp_path / "agent.sock"
    texts = [sys.executable, "-m", "nodewright", "agent", "--dry-run=serve", "--node", "uma-4c"]
    with subprocess.Popen(
        [*texts, "--socket", str(socket)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as agent:
        try:
            assert agent.stderr is not None
            assert b"dry run: nothing is carried out" in agent.stderr.readline()
            assert run(["run", "-f", folder(tmp_path, web="1m"), "--socket", str(socket)]) == YES
            assert run(["delete", "web", "--socket", str(socket)]) == YES
        finally:
            agent.terminate()
            assert agent.wait(10) == 0
    assert not socket.exists()
