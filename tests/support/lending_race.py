"""A Guaranteed pod that doubles its memory beside pods that have borrowed what it does not use: real processes and cgroups.

Without a return all of them together need more than the cgroup of all pods may have, so that the kernel would end one.
`python -m tests.support.lending_race ROUNDS` runs as the agent does and prints the rounds as JSON.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace
from tests.support.eviction_race import total_bytes
from tests.support.live_agent import LiveAgent, live_agent

from nodewright.agent.assembly.run_agent import NICE_VALUE
from nodewright.agent.host.eviction_readings import PodDirectories
from nodewright.agent.observe.pressure_monitor import MonitoredParts, PressureMonitor
from nodewright.agent.observe.usage_samples import UsageSampler
from nodewright.documents.files.process_tuning import ShortCollections
from nodewright.engine.core.lending.predictors import State, UsageSamples, predictor
from nodewright.model.kubernetes.objects import Pod
from nodewright.testing.objects import a_guaranteed_pod, a_pod

MIB = 1 << 20
PODS_LIMIT, THRESHOLD, REQUEST, USED = 417 * MIB, 76 * MIB, 300 * MIB, 128 * MIB
BORROWERS, BORROWED = 4, 36 * MIB
DOUBLES_IN_S = 0.2
PATIENCE_S = 300
SAMPLE_PERIOD_S = 0.25
"""Instead of ten seconds, so that a loan grows within a test."""
_OWNER = """
import mmap, os, sys, time
place, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
page, count = b"x" * (1 << 20), size >> 20
def fill(memory, seconds):
    began = time.monotonic()
    for number in range(count):
        if number % 8 == 0:
            time.sleep(max(began + seconds * number / count - time.monotonic(), 0))
        memory[number << 20:(number + 1) << 20] = page
    return time.monotonic() - began
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.002)
first = mmap.mmap(-1, size)
fill(first, 0)
open(f"{place}-ready", "w").close()
turn = 0
while True:
    wait_for(f"{place}-{turn}-go")
    second = mmap.mmap(-1, size)
    second.madvise(mmap.MADV_HUGEPAGE)
    took = fill(second, seconds)
    with open(f"{place}-{turn}-writing", "w") as file:
        file.write(str(took))
    os.rename(f"{place}-{turn}-writing", f"{place}-{turn}-done")
    wait_for(f"{place}-{turn}-back")
    second.close()
    turn += 1
"""
_PRESSURE = [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]
"""The node has the condition for minutes after a round; borrowers of the next one start all the same."""
_BORROWER = "import sys, time; held = b'x' * int(sys.argv[1]); time.sleep(10000)"


@predictor("usage", margin_percent=10)
def usage(state: State, samples: UsageSamples) -> tuple[State, list[int]]:
    """What is used, and a tenth."""
    return state, [used or 0 for used in samples.usage]


class LendingRound(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one doubling.

    Units: seconds; milliseconds.
    """

    doubled_in_s: float
    evicted: int
    is_same_process: bool
    throttled: int
    """How often the owner's memory met a limit, its own or that of all pods."""
    oom_kills: int
    returned_ms: float
    """From the first sight of the need until all pods fit beside the eviction threshold again, the owner's doubling included."""


class LendingRace:
    """An agent that lends, with one owner, for rounds of it."""

    def __init__(self, agent: LiveAgent, directory: Path) -> None:
        self._agent, self._place = agent, directory / "owner"
        self._turn, self._number, self._pid = 0, 0, 0

    async def start(self) -> None:
        """Starts the owner."""
        command = (sys.executable, "-I", "-S", "-c", _OWNER, str(self._place), str(USED), str(DOUBLES_IN_S))
        owner = await self._agent.run_pod(_running(a_guaranteed_pod("owner", f"1/{REQUEST}"), command))
        await self._agent.wait_until(Path(f"{self._place}-ready").exists)
        (self._pid,) = self._agent.cgroups.processes(owner.cgroup)
        self._group = owner.cgroup

    async def run_round(self) -> LendingRound:
        """Lets borrowers take what is lent, has the owner double its memory, and lets it shrink again."""
        await self._agent.wait_until(lambda: self._ceiling() >= BORROWERS * (BORROWED + 10 * MIB))
        for _ in range(BORROWERS - len(self._borrowers())):
            self._number += 1
            command = (sys.executable, "-I", "-S", "-c", _BORROWER, str(BORROWED))
            await self._agent.run_pod(
                _running(a_pod(f"borrower{self._number}", tolerations=_PRESSURE), command)
            )
        await self._agent.wait_until(lambda: self._used("/besteffort") >= BORROWERS * BORROWED)
        before = self._counts()
        self._signal("go")
        done, began_s = Path(f"{self._place}-{self._turn}-done"), time.monotonic()
        while not done.exists() and self._is_alive() and time.monotonic() < began_s + PATIENCE_S:  # noqa: ASYNC110, ASYNC240 - another process
            await asyncio.sleep(0.05)
        await self._agent.wait_until(lambda: self._used("") <= PODS_LIMIT - THRESHOLD)
        result = self._result(done, before)
        self._signal("back")
        self._turn += 1
        for uid in self._evicted():
            await self._agent.delete_pod(uid)
        return result

    def _signal(self, what: str) -> None:
        """Tells the owner."""
        Path(f"{self._place}-{self._turn}-{what}").touch()

    def _result(self, done: Path, before: tuple[int, int]) -> LendingRound:
        throttled, kills = self._counts()
        last = self._agent.loop.state.lending.last_return
        assert last is not None
        return LendingRound(
            doubled_in_s=round(float(done.read_text()) if done.exists() else float("inf"), 3),
            evicted=len(self._evicted()),
            is_same_process=self._is_alive(),
            throttled=throttled - before[0],
            oom_kills=kills - before[1],
            returned_ms=round(time.monotonic() * 1000 - last.since_ns / 10**6, 1),
        )

    def _is_alive(self) -> bool:
        return self._agent.cgroups.processes(self._group) == (self._pid,)

    def _ceiling(self) -> int:
        loans = self._agent.loop.state.node.loans
        return loans.memory_bytes if loans is not None else 0

    def _borrowers(self) -> list[str]:
        pods = self._agent.loop.state.pods.items()
        return [uid for uid, record in pods if uid != "owner" and record.status.phase == "Running"]

    def _evicted(self) -> list[str]:
        pods = self._agent.loop.state.pods.items()
        return [uid for uid, record in pods if record.status.reason == "Evicted"]

    def _used(self, class_name: str) -> int:
        """The memory of all pods, or of those of a class."""
        name = "memory.current" if self._agent.cgroups.version == 2 else "memory.usage_in_bytes"
        return int(self._agent.cgroup_file_text(f"{self._agent.cgroups.root}/kubepods{class_name}", name))

    def _counts(self) -> tuple[int, int]:
        """How often a limit was met on the way from the owner to the root, and how often the kernel has ended a process."""
        pods = f"{self._agent.cgroups.root}/kubepods"
        groups = (self._group, self._group.rpartition("/")[0], pods)
        if self._agent.cgroups.version == 1:
            met = sum(int(self._agent.cgroup_file_text(group, "memory.failcnt")) for group in groups)
            text = self._agent.cgroup_file_text(pods, "memory.oom_control")
            return met, _values(text).get("oom_kill", 0)
        # The events of a group include those below it: only its own count.
        events = [_values(self._agent.cgroup_file_text(group, "memory.events.local")) for group in groups]
        kills = _values(self._agent.cgroup_file_text(pods, "memory.events"))["oom_kill"]
        return sum(each["high"] + each["max"] for each in events), kills


def _values(text: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, text.splitlines())}


def _running(pod: Pod, command: Sequence[str]) -> Pod:
    (main,) = pod.spec.containers
    spec = replace(
        pod.spec, containers=(replace(main, command=tuple(command)),), termination_grace_period_seconds=1
    )
    return replace(pod, spec=spec)


@asynccontextmanager
async def lending_race() -> AsyncIterator[LendingRace]:
    """A node on which all pods may have `PODS_LIMIT`; nothing is left of it."""
    configuration = {
        "evictionHard": {"memory.available": str(THRESHOLD)},
        "systemReserved": {"memory": str(total_bytes() - PODS_LIMIT)},
    }
    with tempfile.TemporaryDirectory() as directory:
        async with live_agent(configuration) as agent:
            agent.loop.constants = replace(agent.loop.constants, predictor=usage)
            config = agent.loop.state.node.config
            parts = MonitoredParts.of_this_host(config, Path(directory), lambda _: PodDirectories())
            pressure = PressureMonitor(agent.loop, parts)
            agent.ears.on_reclaim = pressure.reclaim
            sampler = UsageSampler(agent.loop, Path(directory), SAMPLE_PERIOD_S)
            tasks = [asyncio.create_task(each) for each in (pressure.run(), sampler.run())]
            try:
                race = LendingRace(agent, Path(directory))
                await race.start()
                yield race
                for task in tasks:
                    assert not task.done(), task.exception()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if parts.alarms is not None:
                    parts.alarms.close()


async def _run_rounds(rounds: int) -> tuple[LendingRound, ...]:
    async with lending_race() as race:
        return tuple([await race.run_round() for _ in range(rounds)])


def run_rounds(rounds: int) -> tuple[LendingRound, ...]:
    """So many of them, of one owner, with an agent that has a process of its own: pytest's garbage is not the agent's."""
    command = (sys.executable, "-m", __name__, str(rounds))
    done = subprocess.run(command, capture_output=True, check=False)
    assert not done.returncode, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=tuple[LendingRound, ...])


if __name__ == "__main__":
    # As the command: before any thread is made.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE_VALUE)
    ShortCollections().install()
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_run_rounds(int(sys.argv[1])))))
