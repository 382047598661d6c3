"""`nodewright agent` as a process of its own: needs root and cgroups that can be written."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO, YES
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


def until(holds: Callable[[], bool], limit_s: float = 60) -> None:
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
            item["metadata"]["name"]: item["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
            for item in items
            if item["status"].get("phase") == "Running"
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
        # It runs before it has written.
        until(lambda: "\n" in says("logs", "pinned"))
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
    _nothing_left(tmp_path)


def _too_big(tmp_path: Path) -> str:
    place = tmp_path / "big.yaml"
    place.write_text(PINNED.replace("pinned", "big").replace("cpu: 1", "cpu: 999"), "utf-8")
    return str(place)


BY_PRIORITY = """
shutdownGracePeriodByPodPriority:
- {priority: 0, shutdownGracePeriodSeconds: 20}
- {priority: 1000, shutdownGracePeriodSeconds: 2}
"""
SAYS_WHEN = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  priority: {priority}
  terminationGracePeriodSeconds: 60
  containers:
    - name: main
      image: none
      command: [sh, -c, "trap 'date +%s.%N >> {place}; {then}' TERM; echo ready; while :; do sleep 0.05; done"]
"""


def test_a_drain_ends_pods_by_priority_and_the_next_agent_starts_the_static_ones_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(*words: str) -> str:
        assert run(words) == YES, capsys.readouterr().err
        return capsys.readouterr().out

    def pods() -> dict[str, dict[str, Any]]:
        items = json.loads(says("get", "pods", "-A", "-o", "json"))["items"]
        return {item["metadata"]["name"]: item["status"] for item in items}

    def phases() -> dict[str, str]:
        return {name: status.get("phase", "") for name, status in pods().items()}

    def restarts(name: str) -> int:
        # The agent answers before its sources have said which pods they have.
        return sum(
            container_status["restartCount"]
            for container_status in pods().get(name, {}).get("containerStatuses", ())
        )

    monkeypatch.setenv("NODEWRIGHT_SOCKET", str(tmp_path / "agent.sock"))
    (tmp_path / "static").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "kubelet.yaml").write_text(CONFIGURATION + BY_PRIORITY, "utf-8")
    (tmp_path / "static" / "web.yaml").write_text(STATIC, "utf-8")
    for name, priority, then in (("low", 0, "sleep 1; exit 0"), ("high", 1000, ":")):
        text = SAYS_WHEN.format(name=name, priority=priority, place=tmp_path / name, then=then)
        (tmp_path / "work" / f"{name}.yaml").write_text(text, "utf-8")
    options = ["--config", str(tmp_path / "kubelet.yaml"), "--pod-manifest-path", str(tmp_path / "static")]
    options += ["--workload-dir", str(tmp_path / "work"), "--node-name", "here"]
    with running(tmp_path, *options):
        until(lambda: phases() == {"web-here": "Running", "low": "Running", "high": "Running"})
        until(lambda: all("ready" in says("logs", name) for name in ("low", "high")))
        began = time.time()
    took_s = time.time() - began
    low, high = (float((tmp_path / name).read_text().split()[0]) for name in ("low", "high"))
    # The higher one has its turn when the lower one has ended, and then as long as its group, not as it says itself.
    assert high - low >= 1
    assert 3 <= took_s < 60
    with running(tmp_path, *options):
        # It is the second attempt at the same container.
        until(lambda: restarts("web-here") == 1)
        result = pods()
        assert (result["low"]["phase"], result["low"]["reason"]) == ("Failed", "Terminated")
        assert result["high"]["phase"] == "Failed"
        assert "running" in result["web-here"]["containerStatuses"][0]["state"]
    _nothing_left(tmp_path)


def test_what_others_change_in_groups_is_set_back_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(*words: str) -> str:
        assert run(words) == YES, capsys.readouterr().err
        return capsys.readouterr().out

    monkeypatch.setenv("NODEWRIGHT_SOCKET", str(tmp_path / "agent.sock"))
    for name, text in (("kubelet.yaml", CONFIGURATION), ("pinned.yaml", PINNED), ("web.yaml", STATIC)):
        (tmp_path / name).write_text(text, "utf-8")
    with running(tmp_path, "--config", str(tmp_path / "kubelet.yaml")):
        says("run", "-f", str(tmp_path / "pinned.yaml"), "-f", str(tmp_path / "web.yaml"))
        until(lambda: says("get", "pods").count("1/1") == 2)
        root = f"nodewright-idle-{os.getpid()}"
        cgroups = CgroupFS(f"/{root}")
        names = (
            "cpuset.cpus",
            "cpu.shares" if cgroups.version == 1 else "cpu.weight",
            LIMIT[cgroups.version],
        )
        groups = [path for path in _groups(cgroups, f"/{root}") if path.endswith("/main-0")]
        assert len(groups) == 2
        before = {path: cgroups.read_files(path, names) for path in groups}
        others = {names[0]: "0", names[1]: "77", names[2]: str(64 << 20)}
        for path in groups:
            document = before[path] or {}
            for name in names:
                if document[name] != others[name]:
                    place = Path("/sys/fs/cgroup") / ("" if cgroups.version == 2 else name.split(".")[0])
                    # As root on the machine would: the kernel wants both bounds of version 1 in order.
                    with suppress(OSError):
                        (place / path[1:] / name).write_text(others[name])
        changed = {path: cgroups.read_files(path, names) for path in groups}
        assert all(changed[path] != before[path] for path in groups)
        until(lambda: {path: cgroups.read_files(path, names) for path in groups} == before)
        result = says("get", "events")
        assert "CgroupChanged" in result
        assert "and has been restored" in result
        # What the machine does not allow is said once, however many containers there are.
        log = (tmp_path / "agent.log").read_text()
        assert log.count("oom_score_adj") <= 1
    _nothing_left(tmp_path)


LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}


def _groups(cgroups: CgroupFS, path: str) -> list[str]:
    return [path, *(group for below in cgroups.children(path) for group in _groups(cgroups, below))]


def _nothing_left(tmp_path: Path) -> None:
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""
    assert not list(Path("/sys/fs/cgroup").glob(f"*/nodewright-idle-{os.getpid()}"))
