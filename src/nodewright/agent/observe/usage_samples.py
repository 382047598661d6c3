"""Samples what pods use on a node that lends, and keeps a history for `nodewright lend --usage`."""

import asyncio
import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nodewright.agent.decide.lending import is_borrower
from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.decide.termination import COUNTED_STAGES
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.pressure_monitor import class_memory
from nodewright.agent.state.agent_state import AgentState, PodRecord
from nodewright.agent.state.observations import PodUsage, PodUsageSampled
from nodewright.cluster.tasks.supervision import error_text
from nodewright.cluster.tasks.timing import ThreadRunner, monotonic_ns
from nodewright.documents.files.cgroup_files import STAT, flat_keyed_values, memory_file_names
from nodewright.model.kubernetes.recorded_events import RecordEvent

SAMPLE_PERIOD_S = 10.0
HISTORY_PERIOD_S = 60
HISTORY, OLD_HISTORY = "usage.csv", "usage.1.csv"
MAX_HISTORY_BYTES = 64 << 20
"""Of each of both files: together more than a week of 110 pods."""
_CPU_FILES = {1: "cpuacct.usage", 2: "cpu.stat"}


class UsageSampler:
    """Has the loop decide on what every pod uses, at regular intervals.

    ``directory`` is that of the history, which has the greatest usage of each pod that lends, a line a minute.
    """

    def __init__(self, loop: AgentLoop, directory: Path, period_s: float = SAMPLE_PERIOD_S) -> None:
        self._loop, self._directory, self._period_s = loop, directory, period_s
        self.run_in_thread: ThreadRunner = asyncio.to_thread
        self._cpu: dict[str, tuple[int, int]] = {}
        """By uid the CPU time at the last sample, and when: both in nanoseconds."""
        self._cgroups: dict[str, tuple[PodRecord, str]] = {}
        self._peaks: dict[str, PodUsage] = {}
        """By full name the greatest usage in the current minute."""
        self._minute: int | None = None

    async def run(self) -> None:
        """Samples until it is cancelled."""
        while True:
            await self._loop.clock.sleep(self._period_s)
            if self._loop.has_observed_runtime:
                await self.sample()

    async def sample(self) -> None:
        """Takes one sample."""
        state, now_ns = self._loop.state, monotonic_ns(self._loop.clock)
        memory = class_memory(self._loop.effect_runner.cgroups, state.node.config, now_ns)
        if memory is None:
            return
        pods = dict(self._usage(state, now_ns))
        self._cpu = {uid: counter for uid, counter in self._cpu.items() if uid in pods}
        self._cgroups = {uid: entry for uid, entry in self._cgroups.items() if uid in pods}
        self._loop.observe(PodUsageSampled(at_ns=now_ns, pods=pods, memory=memory))
        await self._keep(state, pods)

    def _usage(self, state: AgentState, now_ns: int) -> Iterator[tuple[str, PodUsage]]:
        for uid, record in state.pods.items():
            if record.stage in COUNTED_STAGES and record.runtime_status is not None:
                entry = self._cgroups.get(uid)
                if entry is None or entry[0].pod is not record.pod:
                    path = record.cgroup or pod_cgroup(record.pod, state.node.config)
                    entry = self._cgroups[uid] = (record, path)
                yield uid, self._pod_usage(uid, entry[1], now_ns)

    def _pod_usage(self, uid: str, path: str, now_ns: int) -> PodUsage:
        """The CPU usage since the last sample, and the working set."""
        cgroups = self._loop.effect_runner.cgroups
        names, cpu_file = memory_file_names(cgroups.version), _CPU_FILES[cgroups.version]
        texts = cgroups.read_files(path, (cpu_file, names.usage, STAT)) or {}
        used, cpu = texts.get(names.usage, ""), texts.get(cpu_file, "")
        memory_bytes = cpu_ns = cpu_milli = None
        if used.isdecimal():
            inactive = flat_keyed_values(texts.get(STAT, "")).get(names.inactive_file, 0)
            memory_bytes = max(int(used) - inactive, 0)
        if cgroups.version == 1:
            cpu_ns = int(cpu) if cpu.isdecimal() else None
        elif (used_us := flat_keyed_values(cpu).get("usage_usec")) is not None:
            cpu_ns = used_us * 1000
        before = self._cpu.pop(uid, None)
        if cpu_ns is not None:
            self._cpu[uid] = (cpu_ns, now_ns)
            if before is not None and now_ns > before[1] and cpu_ns >= before[0]:
                cpu_milli = -(-(cpu_ns - before[0]) * 1000 // (now_ns - before[1]))
        return PodUsage(cpu_milli, memory_bytes)

    async def _keep(self, state: AgentState, pods: dict[str, PodUsage]) -> None:
        """Adds the sample to the history, once a minute to its file."""
        minute = self._loop.clock.now_ns() // 10**9 // HISTORY_PERIOD_S
        if self._minute is not None and minute != self._minute and self._peaks:
            lines = list(_lines(self._minute * HISTORY_PERIOD_S, self._peaks))
            self._peaks = {}
            try:
                await self.run_in_thread(partial(append_history, self._directory, lines))
            except OSError as error:
                event = RecordEvent.warning(
                    "UsageNotKept", f"{self._directory / HISTORY}: {error_text(error)}"
                )
                self._loop.subscriber.record(event)
        self._minute = minute
        for uid, usage in pods.items():
            pod = state.pods[uid].pod
            if not is_borrower(pod, state.node):
                peak = self._peaks.get(pod.full_name, usage)
                self._peaks[pod.full_name] = PodUsage(*map(_greatest, peak, usage))


def _greatest(before: int | None, now: int | None) -> int | None:
    return before if now is None else now if before is None else max(before, now)


def _lines(at_s: int, peaks: dict[str, PodUsage]) -> Iterator[str]:
    for name, (cpu_milli, memory_bytes) in sorted(peaks.items()):
        cpu = "" if cpu_milli is None else f"{cpu_milli}m"
        memory = "" if memory_bytes is None else f"{memory_bytes >> 10}Ki"
        yield f"{at_s},{name},{cpu},{memory}\n"


def append_history(directory: Path, lines: list[str]) -> None:
    """Appends to the history, which begins with a line of names; a full file becomes the old one.

    Errors: OSError, after which there is no half line.
    """
    path = directory / HISTORY
    if path.exists() and path.stat().st_size > MAX_HISTORY_BYTES:
        path.replace(directory / OLD_HISTORY)
    head = [] if path.exists() else ["time,pod,cpu,memory\n"]
    content = "".join((*head, *lines)).encode("ascii")
    with open(path, "ab", buffering=0, opener=partial(os.open, mode=0o600)) as file:
        size = file.tell()
        if file.write(content) < len(content):
            os.ftruncate(file.fileno(), size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
