"""`nodewright agent` as a process of its own: needs root and cgroups that can be written."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodewright.cli.app import NO, YES, run
from tools.agent_idle import running

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
]

PINNED = """
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: none
      command: [sh, -c, "grep Cpus_allowed_list /proc/self/status; exec sleep 1000"]
      resources: {limits: {cpu: 1, memory: 32Mi}}
"""
STATIC = PINNED.replace("pinned", "web").replace("limits: {cpu: 1, memory: 32Mi}", "")
CONFIGURATION = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
systemReserved: {cpu: 500m}
"""


def until(holds: Callable[[], bool], limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a CPU of a pod's own takes two CPUs")
def test_pods_outlive_a_killed_agent_and_end_with_one_that_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(*words: str, code: int = YES) -> str:
        assert run(words) == code, capsys.readouterr().err
        return capsys.readouterr().out

    def pod_ids() -> dict[str, str]:
        items = json.loads(says("get", "pods", "-o", "json"))["items"]
        return {
            one["metadata"]["name"]: one["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
            for one in items
            if one["status"].get("phase") == "Running"
        }

    monkeypatch.setenv("NODEWRIGHT_SOCKET", str(tmp_path / "agent.sock"))
    (tmp_path / "static").mkdir()
    for name, text in (("kubelet.yaml", CONFIGURATION), ("pinned.yaml", PINNED), ("static/web.yaml", STATIC)):
        (tmp_path / name).write_text(text, "utf-8")
    options = ["--config", str(tmp_path / "kubelet.yaml"), "--pod-manifest-path", str(tmp_path / "static")]
    with running(tmp_path, *options, "--node-name", "here") as (first, _):
        says("run", "-f", str(tmp_path / "pinned.yaml"))
        until(lambda: set(pod_ids()) == {"pinned", "web-here"})
        before = pod_ids()
        (cpu,) = [line.split()[-1] for line in says("logs", "pinned").splitlines()]
        assert cpu.isdigit()
        assert f" {cpu} " in says("get", "pods", "-o", "wide")
        says("run", "-f", _too_big(tmp_path), code=NO)
        os.kill(first, signal.SIGKILL)
        with running(tmp_path, *options, "--node-name", "here"):
            assert pod_ids() == before
            assert "default/pinned   main        " + cpu in says("describe", "pod", "pinned")
            says("delete", "pinned")
            assert set(pod_ids()) == {"web-here"}
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""
    assert not list(Path("/sys/fs/cgroup").glob(f"*/nodewright-idle-{os.getpid()}"))


def _too_big(tmp_path: Path) -> str:
    place = tmp_path / "big.yaml"
    place.write_text(PINNED.replace("pinned", "big").replace("cpu: 1", "cpu: 999"), "utf-8")
    return str(place)
