"""Agents killed at random moments, their records damaged and their disk filled in between: no pod runs twice, no start fails."""

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.cluster.client.agent_client import AgentStatusError
from nodewright.model.errors import HostError

pytestmark = [pytest.mark.live, pytest.mark.slow]

SEED = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000))
CYCLES = int(os.environ.get("DAMAGE_CYCLES") or 4)
SETTLES = 8
"""After so many cycles everything comes to rest, and all is counted."""
DISK_BYTES = 16 << 20
FIRST_NUMBER = 200_000
"""Each pod sleeps a number of seconds of its own, by which its process is found."""


class Machine:
    """A root directory on a disk of its own, a tree of cgroups, and the agents on them."""

    def __init__(self, directory: Path, cgroups: CgroupFS, choose: random.Random) -> None:
        self.root, self.cgroups, self.choose = directory / "root", cgroups, choose
        self.root.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0711", "nodewright-soak", self.root],
            check=True,
        )
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "evictionHard": {},
        }
        (directory / "kubelet.yaml").write_text(yaml.safe_dump(settings))
        self.pods = directory / "pods"
        self.pods.mkdir()
        self.copy = directory / "copy"
        options = ("--config", str(directory / "kubelet.yaml"), "--workload-dir", str(self.pods))
        self.agent = AgentCommand(directory, cgroups.root, *options, "--node-name", "here")
        self.numbers = iter(range(FIRST_NUMBER, FIRST_NUMBER + 100_000))
        self.listed: dict[str, int] = {}
        """The pods of the directory, with their numbers."""
        self.acknowledged: dict[str, int] = {}
        """The pods that a client was told of and that no damage has taken since."""
        self.kinds = Counter[str]()

    # ------------------------------------------------------------ what happens

    def change_pods(self) -> None:
        """Pods of the directory are added, replaced and removed; one of them has a CPU of its own."""
        for name in ("pinned", "a", "b", "c"):
            if self.choose.random() < 0.4:
                continue
            if name in self.listed and self.choose.random() < 0.5:
                del self.listed[name]
                (self.pods / f"{name}.yaml").unlink()
            elif name not in self.listed:
                self.listed[name] = next(self.numbers)
                place = self.pods / f"{name}.yaml"
                place.with_suffix(".part").write_text(yaml.safe_dump(_pod(name, self.listed[name])))
                place.with_suffix(".part").rename(place)

    def ask(self) -> None:
        """A client creates a pod, or deletes one."""
        if self.acknowledged and self.choose.random() < 0.5:
            name = self.choose.choice(sorted(self.acknowledged))
            del self.acknowledged[name]
            with suppress(AgentStatusError, HostError):
                self.agent.client.delete("api", "v1", "namespaces", "default", "pods", name)
            return
        number = next(self.numbers)
        name = f"asked{number}"
        with suppress(AgentStatusError, HostError):
            self.agent.client.post("api", "v1", "namespaces", "default", "pods", body=_pod(name, number))
            self.acknowledged[name] = number

    def live(self) -> None:
        """An agent runs for a moment, in which more may happen, and is killed."""
        self.agent.start()
        until_s = time.monotonic() + self.choose.choice((0.1, 0.3, 0.6, 1.0, 1.4))
        if self.choose.random() < 0.4:
            while not self.agent.is_ready() and time.monotonic() < until_s + 1:
                time.sleep(0.02)
            self.ask()
        if self.choose.random() < 0.3:
            self.damage()
        time.sleep(max(0.0, until_s - time.monotonic()))
        self.agent.kill()

    def damage(self) -> None:
        """Something happens to what the agent and its runtime have recorded."""
        kind = self.choose.choice(sorted(DAMAGES))
        self.kinds[kind] += 1
        with suppress(OSError):
            DAMAGES[kind](self)

    # ------------------------------------------------------------ what must hold

    def check_counts(self) -> None:
        """No pod has two processes."""
        running = self.sleepers()
        assert max(Counter(number for number, _ in running).values(), default=0) <= 1, (
            SEED,
            running,
            self.log(),
        )
        assert "Traceback" not in self.agent.log(), (SEED, self.log())

    def settle(self) -> None:
        """With room on the disk everything comes to rest: each pod has one process, and there are no others."""
        (self.root / "filler").unlink(missing_ok=True)
        self.agent.start()
        self.agent.wait_until(self._is_settled, limit_s=60)
        self.check_counts()
        # Containers that ran before the pinned one came lose its CPU at the next reconciliation, as with the kubelet.
        self.agent.wait_until(self._has_cpus_alone, limit_s=30)
        self.agent.kill()

    def _is_settled(self) -> bool:
        try:
            items = self.agent.client.get("api/v1/pods")["items"]
        except HostError:
            return False
        phases = {item["metadata"]["name"]: item["status"].get("phase") for item in items}
        wanted = {*self.listed, *self.acknowledged}
        # Pods that a client was not told of may exist, and run then.
        expected = {*self.listed.values(), *(_number(name) for name in phases if name.startswith("asked"))}
        are_there = wanted <= phases.keys() and set(phases.values()) <= {"Running"}
        return are_there and {number for number, _ in self.sleepers()} == expected

    def _has_cpus_alone(self) -> bool:
        """Whether the CPUs of the pinned pod are its alone."""
        cpus = dict(self.sleepers())
        pinned = cpus.pop(self.listed.get("pinned", 0), "")
        return not pinned or all(pinned not in _cpu_ids(shared) for shared in cpus.values())

    def sleepers(self) -> list[tuple[int, str]]:
        """The numbers of the processes that pods run, and the CPUs that they may use."""
        result = []
        for pid in self.cgroups.processes(self.cgroups.root):
            words = _content(Path(f"/proc/{pid}/cmdline")).split(b"\0")
            if words[0] == b"sleep" and words[1].isdigit():
                status = _content(Path(f"/proc/{pid}/status")).decode()
                lines = [line.split() for line in status.splitlines() if line.startswith("Cpus_allowed_list")]
                result += [(int(words[1]), cpus) for _, cpus in lines]
        return result

    def log(self) -> str:
        """The end of the log, for messages."""
        return self.agent.log_tail() + f"\nFAULT_SEED={SEED}"

    def end(self) -> None:
        """All pods are removed; nothing is left of them."""
        for place in self.pods.iterdir():
            place.unlink()
        self.listed.clear()
        (self.root / "filler").unlink(missing_ok=True)
        self.agent.start()
        self.agent.wait_until(self.agent.is_ready)
        for pod in self.agent.pods():
            if pod["metadata"]["name"].startswith("asked"):
                with suppress(AgentStatusError):
                    self.agent.client.delete(
                        "api", "v1", "namespaces", "default", "pods", pod["metadata"]["name"]
                    )
        # Logs of pods whose records were damaged are removed every ten seconds.
        self.agent.wait_until(
            lambda: self.agent.is_ready() and not self.agent.pods() and not list(self.root.glob("logs/*"))
        )
        self.agent.kill()
        levels = [*self.cgroups.children(self.cgroups.root)]
        paths = [path for level in levels for path in (level, *self.cgroups.children(level))]
        left = [child for path in paths for child in self.cgroups.children(path) if "/pod" in child]
        assert left == []
        assert self.cgroups.processes(self.cgroups.root) == ()
        for pattern in (
            "pods/*.json",
            "containers/[!.]*",
            "containers/.gone/*",
            "volumes/*",
            "logs/*",
            "**/.*.tmp",
        ):
            assert list(self.root.glob(pattern)) == [], pattern
        assert _processes_that_name(str(self.root)) == []


def _pod(name: str, number: int) -> dict[str, object]:
    amounts = {"cpu": "1", "memory": "16Mi"} if name == "pinned" else {}
    container = {
        "name": "main",
        "image": "none",
        "command": ["sleep", str(number)],
        "resources": {"requests": amounts, "limits": amounts} if amounts else {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def _number(name: str) -> int:
    return int(name.removeprefix("asked"))


def _cpu_ids(text: str) -> set[str]:
    ids = set[str]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        ids |= {str(cpu) for cpu in range(int(first), int(last or first) + 1)}
    return ids


def _content(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError:
        return b""


def _processes_that_name(text: str) -> list[int]:
    places = Path("/proc").glob("[0-9]*/cmdline")
    return [int(place.parent.name) for place in places if text.encode() in _content(place)]


# ---------------------------------------------------------------- damages


def _write_junk(pattern: str) -> Callable[[Machine], None]:
    def damage(machine: Machine) -> None:
        for file in machine.root.glob(pattern):
            if machine.choose.random() < 0.7:
                content = machine.choose.choice(
                    (b"", b"junk", b"\0" * 100, b"[" * 5000, file.read_bytes()[:30])
                )
                file.write_bytes(content)

    return damage


def _remove(pattern: str) -> Callable[[Machine], None]:
    def damage(machine: Machine) -> None:
        for place in machine.root.glob(pattern):
            shutil.rmtree(place) if place.is_dir() else place.unlink()

    return damage


def _remove_everything(machine: Machine) -> None:
    machine.acknowledged.clear()
    _remove("*")(machine)


def _damage_pods(machine: Machine) -> None:
    """Pods that only the agent knew of are lost with their files."""
    machine.acknowledged.clear()
    _write_junk("pods/*.json")(machine)


def _copy(machine: Machine) -> None:
    shutil.rmtree(machine.copy, ignore_errors=True)
    shutil.copytree(machine.root, machine.copy, ignore=shutil.ignore_patterns("ctl", "*.sock", "filler"))


def _put_copy_back(machine: Machine) -> None:
    if machine.copy.is_dir():
        _remove_everything(machine)
        shutil.copytree(machine.copy, machine.root, dirs_exist_ok=True)


def _fill_disk(machine: Machine) -> None:
    with (machine.root / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


DAMAGES: dict[str, Callable[[Machine], None]] = {
    "junk in created.json": _write_junk("containers/*/*/*/created.json"),
    "junk in started": _write_junk("containers/*/*/*/started"),
    "junk in exit.json": _write_junk("containers/*/*/*/exit.json"),
    "junk in pod.json": _write_junk("containers/*/pod.json"),
    "no started": _remove("containers/*/*/*/started"),
    "no lock": _remove("containers/*/*/*/lock"),
    "no ctl": _remove("containers/*/*/*/ctl"),
    "no containers": _remove("containers/*"),
    "junk in a pod": _damage_pods,
    "junk in agent.json": _write_junk("agent.json"),
    "junk in changes.log": _write_junk("changes.log"),
    "junk in cpu_manager_state": _write_junk("cpu_manager_state"),
    "no cpu_manager_state": _remove("cpu_manager_state"),
    "no agent.json": _remove("agent.json"),
    "no volumes": _remove("volumes/*"),
    "no logs": _remove("logs/*"),
    "no journal": _remove("journal*.json"),
    "junk in journal": _write_junk("journal.json"),
    "nothing left": _remove_everything,
    "copy": _copy,
    "older copy": _put_copy_back,
    "full disk": _fill_disk,
    "room again": lambda machine: (machine.root / "filler").unlink(missing_ok=True),
    "no damage": lambda _: None,
}


@pytest.fixture
def machine() -> Iterator[Machine]:
    with private_cgroups() as cgroups:
        directory = Path(tempfile.mkdtemp(prefix="nodewright-damage-"))
        directory.chmod(0o755)
        made = Machine(directory, cgroups, random.Random(SEED))
        try:
            yield made
        finally:
            made.agent.stop()
            cgroups.kill(cgroups.root)
            subprocess.run(["umount", "--lazy", made.root], check=True)
            shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a CPU of a pod's own takes two CPUs")
def test_no_pod_runs_twice_and_no_start_fails_whatever_is_damaged(machine: Machine) -> None:
    print(f"FAULT_SEED={SEED}")
    for cycle in range(CYCLES):
        machine.change_pods()
        machine.live()
        machine.check_counts()
        machine.damage()
        if cycle % SETTLES == SETTLES - 1:
            machine.settle()
        if figures := os.environ.get("DAMAGE_FIGURES"):
            counts = {"seed": SEED, "cycles": cycle + 1, "damages": dict(sorted(machine.kinds.items()))}
            Path(figures).write_text(json.dumps(counts, indent=2) + "\n", "utf-8")
    machine.settle()
    machine.end()
