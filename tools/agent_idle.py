"""What an agent takes while nothing happens: `python -m tools idle`, as root.

It runs pods that sleep and measures the agent's own process for a while. The figures go into docs/figures/agent-idle.json
and the guide.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.model.errors import HostError
from tools.cpu_timer import process_cpu_s
from tools.source import ROOT

FIGURES = ROOT / "docs" / "figures" / "agent-idle.json"
GUIDE = ROOT / "docs" / "guide" / "agent.md"
LENDING_GUIDE = ROOT / "docs" / "guide" / "lend.md"
TARGETS = {"rssMiB": 60, "cpuPercent": 0.5, "cpuPercentOfLending": 0.2}
SETTLED_S = 15.0
_PATIENCE_S = 120.0


def main() -> int:
    """Measure, print, write; 1 where a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.stderr.write("measuring an agent takes root: its pods get cgroups of their own\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="nodewright-idle.") as folder:
        result = idle_figures(Path(folder), arguments.pods, arguments.seconds)
    with tempfile.TemporaryDirectory(prefix="nodewright-idle.") as folder:
        lending = idle_figures(Path(folder), arguments.pods, arguments.seconds, "--lend", "koordinator")
    result["cpuPercentOfLending"] = max(round(lending["cpuPercent"] - result["cpuPercent"], 3), 0)
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    for guide in (GUIDE, LENDING_GUIDE):
        guide.write_text(told_in(guide.read_text("utf-8"), result), "utf-8")
    return 0 if all(result[name] < most for name, most in TARGETS.items()) else 1


def told_in(page: str, found: dict[str, Any]) -> str:
    """The guide with these figures in its table."""
    page = re.sub(
        r"(?m)^(\| CPU of lending \|)[^|]*", rf"\1 {found['cpuPercentOfLending']} % of a core ", page
    )
    page = re.sub(r"(?m)^(\| memory \(RSS\) \|)[^|]*", rf"\1 {found['rssMiB']} MiB ", page)
    return re.sub(r"(?m)^(\| CPU \|)[^|]*", rf"\1 {found['cpuPercent']} % of a core ", page)


def idle_figures(folder: Path, pods: int, seconds: float, *options: str) -> dict[str, Any]:
    """An agent with so many pods and these options, looked at for so long once it has settled.

    Units: seconds.
    """
    workload = folder / "pods"
    workload.mkdir()
    for number in range(pods):
        (workload / f"p{number}.json").write_text(json.dumps(sleeping_pod(number)), "utf-8")
    with running(folder, "--workload-dir", str(workload), *options) as (agent, client):
        _until(lambda: count_running(client) == pods)
        time.sleep(SETTLED_S)
        before, wakes, began = process_cpu_s(agent), _wakes(agent), time.monotonic()
        time.sleep(seconds)
        took, used, woken = time.monotonic() - began, process_cpu_s(agent) - before, _wakes(agent) - wakes
        status = Path(f"/proc/{agent}/status").read_text("ascii")
        rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "pods": pods,
        "seconds": round(took),
        "rssMiB": round(rss / 1024, 1),
        "cpuPercent": round(used / took * 100, 3),
        "wakesPerMinute": round(woken / took * 60),
        "targets": TARGETS,
        "commit": _commit(),
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "loadAverage": round(os.getloadavg()[0], 1),
    }


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[int, AgentClient]]:
    """An agent with a directory, a socket and a cgroup of its own; nothing of it is left afterwards."""
    group, socket = f"/nodewright-idle-{os.getpid()}", folder / "agent.sock"
    command = [sys.executable, "-m", "nodewright", "agent", "--root-dir", str(folder / "root")]
    command += ["--socket", str(socket), "--cgroup-root", group, "--drain-on-exit", *options]
    log = folder / "agent.log"
    # The stacks of all threads are in the log after SIGABRT.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    with log.open("wb") as out, subprocess.Popen(command, stderr=out, env=environment) as agent:
        client = AgentClient(socket)
        try:
            _wait_for_answer(client, agent, log)
            yield agent.pid, client
        finally:
            with contextlib.suppress(ProcessLookupError):
                agent.terminate()
            agent.wait(_PATIENCE_S)
            groups = CgroupFS(group)
            groups.kill(group)
            groups.remove(group)


def _until(holds: Any) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "the agent takes too long"
        time.sleep(0.2)


def _wait_for_answer(client: AgentClient, agent: "subprocess.Popen[bytes]", log: Path) -> None:
    """Waits until the agent answers.

    Raises: AssertionError, with the agent's log and the stacks of its threads, if it ends or does not answer in time.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while unanswered := _error_of(client):
        exit_code = agent.poll()
        if exit_code is not None or time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                agent.send_signal(signal.SIGABRT)
            agent.wait(_PATIENCE_S)
            text = log.read_text("utf-8", "replace")
            raise AssertionError(f"{unanswered}; exit code {exit_code}\n{text}")
        time.sleep(0.2)


def _error_of(client: AgentClient) -> str:
    """Why the agent does not answer; empty if it does."""
    try:
        client.get("api/v1/nodes")
    except HostError as error:
        return str(error)
    return ""


def count_running(client: AgentClient) -> int:
    """Number of the agent's pods that run."""
    return sum(each["status"].get("phase") == "Running" for each in client.get("api/v1/pods")["items"])


def _wakes(pid: int) -> int:
    """How often the process has waited, all its threads together."""
    statuses = [path.read_text("ascii") for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(
        int(count)
        for status in statuses
        for count in re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)
    )


def _commit() -> str:
    process = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return process.stdout.strip()


def sleeping_pod(number: int) -> dict[str, Any]:
    """The manifest of a pod that sleeps."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sleep", "100000"],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number}", "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
