"""A real agent, killed for real again and again: what runs goes on running, once, on the same CPUs; nothing is left in the end."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nodewright.testing import agent_process
from nodewright.testing.machine import own_cgroups
from nodewright.world.cgroupfs import CgroupFS

pytestmark = [pytest.mark.live, pytest.mark.slow]

SEED = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000))
KILLS = int(os.environ.get("KILL_POINTS") or 40)
LIMIT_S = 60.0 if KILLS <= 40 else 3600.0
"""Fewer kills than wanted will do where the machine is busy."""
STEADY, PINNED = "100001", "100002"
"""What these pods sleep, by which their processes are found."""
RSS_BOUND_KIB = 16 << 10


class Machine:
    """A directory and a tree of cgroups, and the agents on them."""

    def __init__(self, directory: Path, cgroups: CgroupFS) -> None:
        self.directory, self.cgroups = directory, cgroups
        (directory / "wanted").mkdir()
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", agent_process.__name__]
        errors = (self.directory / "errors").open("ab")
        with errors:
            self.agent = subprocess.Popen(
                [*command, str(self.directory), self.cgroups.root], stderr=errors, start_new_session=True
            )
        return self.agent

    def kill(self) -> None:
        assert self.agent is not None
        assert self.agent.poll() is None, (self.directory / "errors").read_text()
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()
        self.agent = None

    def wait(self, counts: str) -> None:
        """Until the agent says that so many pods are there, and so many of them run."""
        until = time.monotonic() + 60
        place = self.directory / "running"
        while not place.exists() or place.read_text().strip() != counts:
            assert self.agent is not None
            assert self.agent.poll() is None, (self.directory / "errors").read_text()
            assert time.monotonic() < until, place.read_text() if place.exists() else "nothing said"
            time.sleep(0.02)

    def want(self, name: str, *command: str, cpus: str = "", **spec: object) -> None:
        amounts = {"cpu": cpus, "memory": "32Mi"}
        resources = {"requests": amounts, "limits": amounts} if cpus else {}
        container = {"name": "main", "image": "none", "command": [*command], "resources": resources}
        metadata = {"name": name, "namespace": "default", "uid": name}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [container], **spec},
        }
        place = self.directory / "wanted" / f"{name}.yaml"
        place.with_suffix(".part").write_text(yaml.safe_dump(pod))
        place.with_suffix(".part").rename(place)

    def unwant(self, name: str) -> None:
        (self.directory / "wanted" / f"{name}.yaml").unlink(missing_ok=True)

    def sleepers(self, seconds: str) -> list[tuple[int, str]]:
        """The processes that sleep so long, and the CPUs that they may run on."""
        found = []
        for pid in self.cgroups.processes(self.cgroups.root):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if command == f"sleep\0{seconds}\0".encode():
                cpus = next(line for line in status.splitlines() if line.startswith("Cpus_allowed_list"))
                found.append((pid, cpus.split()[1]))
        return found

    def weight(self) -> tuple[int, int]:
        """Open files and resident KiB of the agent."""
        assert self.agent is not None
        status = Path(f"/proc/{self.agent.pid}/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return len(list(Path(f"/proc/{self.agent.pid}/fd").iterdir())), int(rss.split()[1])


@pytest.fixture
def machine() -> Iterator[Machine]:
    with own_cgroups() as cgroups:
        directory = Path(tempfile.mkdtemp(prefix="nodewright-kills-"))
        made = Machine(directory, cgroups)
        try:
            yield made
        finally:
            if made.agent is not None:
                made.agent.kill()
                made.agent.wait()
            cgroups.kill(cgroups.root)
            shutil.rmtree(directory, ignore_errors=True)


def test_what_runs_goes_on_however_often_the_agent_is_killed(machine: Machine) -> None:
    print(f"FAULT_SEED={SEED}")
    choose = random.Random(SEED)
    machine.start()
    machine.wait("0 0")
    before = machine.weight()
    machine.want("steady", "sleep", STEADY)
    machine.want("pinned", "sleep", PINNED, cpus="1")
    machine.wait("2 2")
    steady, pinned = machine.sleepers(STEADY), machine.sleepers(PINNED)
    assert len(steady) == len(pinned) == 1
    machine.kill()
    until, kills = time.monotonic() + LIMIT_S, 0
    while kills < KILLS and time.monotonic() < until:
        if kills % 2:
            machine.unwant(f"churn{kills - 1}")
        else:
            machine.want(
                f"churn{kills}", "sleep", choose.choice(("0.2", "1000")), terminationGracePeriodSeconds=1
            )
        machine.start()
        time.sleep(choose.uniform(0.2, 2.0))
        machine.kill()
        kills += 1
        assert machine.sleepers(STEADY) == steady, (kills, SEED)
        assert machine.sleepers(PINNED) == pinned, (kills, SEED)
    assert kills > 3
    for place in (machine.directory / "wanted").glob("*.yaml"):
        place.unlink()
    (machine.directory / "running").unlink(missing_ok=True)
    machine.start()
    machine.wait("0 0")
    after = machine.weight()
    _nothing_is_left(machine)
    machine.kill()
    assert after[0] == before[0]
    assert after[1] - before[1] < RSS_BOUND_KIB
    _keep_figures(kills, before, after)


def _nothing_is_left(machine: Machine) -> None:
    root = machine.cgroups.root
    groups = [path for level in machine.cgroups.below(root) for path in _all_below(machine.cgroups, level)]
    assert [path for path in groups if "/pod" in path.removeprefix(f"{root}/kubepods")] == []
    assert machine.cgroups.processes(root) == ()
    assert list((machine.directory / "kept/pods").glob("*")) == []
    assert machine.agent is not None
    mine = [pid for pid in _processes_that_name(str(machine.directory)) if pid != machine.agent.pid]
    assert mine == []


def _all_below(cgroups: CgroupFS, path: str) -> list[str]:
    return [path, *(one for below in cgroups.below(path) for one in _all_below(cgroups, below))]


def _processes_that_name(text: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes()
        except OSError:
            continue
        if text.encode() in command:
            found.append(int(place.parent.name))
    return found


def _keep_figures(kills: int, before: tuple[int, int], after: tuple[int, int]) -> None:
    kept = os.environ.get("KILL_FIGURES")
    if kept is None:
        return
    figures = {
        "seed": SEED,
        "kills": kills,
        "open_files": [before[0], after[0]],
        "rss_kib": [before[1], after[1]],
        "pod_cgroups_left": 0,
        "processes_left": 0,
    }
    place = Path(kept)
    place.with_name(f"live-{place.name}").write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
