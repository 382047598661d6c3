"""A race between the real agent and a growing pod: whether it evicts in time, and the latency of the signal.

A round makes an agent with plain processes below a group of its own, gives it one pod, and ends when the pod has. It
takes root and leaves nothing behind.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec.structs import replace
from tests.support.agent_bench import FakeEventRecorder, FakeProber, FakeStore

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.eviction_readings import HostStatsProvider, PodDirectories
from nodewright.agent.host.ports import ContainerConfig, ContainerRuntime, PodSandboxConfig
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.pressure_monitor import MonitoredParts, PressureMonitor
from nodewright.agent.pods.container_lifecycle import ConfigBuilder
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.rules.pod_actions import spec_hash
from nodewright.agent.runtimes.processes.process_runtime import ProcessRuntime
from nodewright.agent.state.agent_state import (
    AgentConstants,
    AgentState,
    PodRecord,
    PodSource,
    PodStage,
)
from nodewright.agent.state.observations import PodApplied
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.files.cgroup_files import memory_file_names
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.engine.core.eviction.eviction_policy import ADAPTIVE, EvictionPolicy
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Container, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import OOM_KILLED, RuntimePodStatus
from nodewright.predict.node import Node
from nodewright.testing.machines import regular_machine
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

GIB, MIB = 1 << 30, 1 << 20
GROWTH_RATE_BYTES_PER_S = 512 * MIB
THRESHOLD_BYTES = GIB
"""Above what the pod may never reach."""
GROWTH_BYTES = 512 * MIB
"""How much it grows before the threshold is crossed."""
PODS_LIMIT_BYTES = 2 * GIB
"""What all pods may have, where they have a limit."""
ROUND_LIMIT_S = 60.0
_GROWER = str(Path(__file__).with_name("grower.py"))


MAX_ATTEMPTS = 3


class DisturbedError(Exception):
    """Other processes used so much memory that the threshold was not crossed by the growing pod."""


class ThresholdScope(StrEnum):
    """Which threshold the pod runs into."""

    NODE = "node"
    PODS = "kubepods"


class RaceResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one race.

    Units: milliseconds from the last moment at which the growing process itself saw more than the threshold, which is
        just before the crossing; bytes.
    """

    scope: ThresholdScope
    ignores_sigterm: bool
    """It did not end when it was asked to."""
    rate: int
    """How fast it grew, in bytes a second, as far as the machine gave it memory and CPU."""
    signalled_ms: float
    dead_ms: float
    final_bytes: int
    """What it had at the end."""
    reason: str
    """What the pod's status says."""
    oom_kills: int
    readings: int = 0
    """How often the agent looked, and how often it had pods judged; not where the command is raced."""
    passes: int = 0


class GrowerConfigBuilder:
    """Configs of a pod whose only container is the growing process."""

    def __init__(self, directory: Path) -> None:
        self._at = directory

    async def prepare_pod(self, pod: Pod) -> None:
        """Does nothing: there are no volumes."""

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """Nothing but a place for logs."""
        return PodSandboxConfig(
            pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory=str(self._at / "logs")
        )

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[CgroupFile, ...]],
        facts: RuntimePodStatus,  # noqa: ARG002 - the port has it
    ) -> ContainerConfig:
        """Its command, and nothing around it."""
        return ContainerConfig(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=spec_hash(container),
            command=container.command,
            working_dir="/",
            log_path=f"{container.name}/{attempt}.log",
            settings=settings[0],
            cgroup_files=settings[1],
        )

    async def remove_pod_files(self, pod: Pod) -> None:
        """Its logs go with the directory."""


class RaceBench:
    """Where a race is run: a group of its own below which all is done, a threshold, and a process that grows."""

    def __init__(self, directory: Path, where: ThresholdScope) -> None:
        self.root = f"/nodewright-race-{os.getpid()}"
        self.where = where
        self.cgroups = CgroupFS(self.root)
        self.threshold_bytes = THRESHOLD_BYTES
        if where is ThresholdScope.NODE:
            self.threshold_bytes = _available_now(f"{self.root}/kubepods", directory) - GROWTH_BYTES

    def command(self, log: Path, *, is_stubborn: bool) -> tuple[str, ...]:
        """The growing process."""
        document = {
            "rate": GROWTH_RATE_BYTES_PER_S,
            "already_bytes": self._already_bytes(),
            "most_bytes": self._already_bytes() + GROWTH_BYTES + THRESHOLD_BYTES + GIB // 4,
            "log": str(log),
            "is_stubborn": is_stubborn,
            "threshold_bytes": self.threshold_bytes,
            "files": self._files(),
            "inactive": f"{memory_file_names(self.cgroups.version).inactive_file} ",
        }
        return (sys.executable, "-I", "-S", _GROWER, json.dumps(document))

    def _already_bytes(self) -> int:
        """What the process has before it grows."""
        return PODS_LIMIT_BYTES - THRESHOLD_BYTES - GROWTH_BYTES if self.where is ThresholdScope.PODS else 0

    def _files(self) -> dict[str, str]:
        """What the growing process itself looks at."""
        is_v2 = self.cgroups.version == 2
        memory = "/sys/fs/cgroup" if is_v2 else "/sys/fs/cgroup/memory"
        group = f"{memory}{self.root}/kubepods"
        if self.where is ThresholdScope.NODE:
            used = {} if is_v2 else {"used": f"{memory}/memory.usage_in_bytes"}
            return {"meminfo": "/proc/meminfo", **used}
        names = (
            ("memory.max", "memory.current") if is_v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        return {"limit": f"{group}/{names[0]}", "used": f"{group}/{names[1]}", "stat": f"{group}/memory.stat"}

    def oom_kills(self) -> int:
        """How many processes the kernel has ended in our group."""
        name = "memory.events" if self.cgroups.version == 2 else "memory.oom_control"
        texts = self.cgroups.read_files(f"{self.root}/kubepods", (name,)) or {}
        lines = (line.split() for line in texts.get(name, "").splitlines())
        return next((int(words[1]) for words in lines if words[0] == "oom_kill"), 0)


class AgentRaceBench(RaceBench):
    """An agent on this machine, in a directory and below a group of its own; what it keeps is forgotten."""

    def __init__(
        self,
        directory: Path,
        where: ThresholdScope,
        policy: EvictionPolicy = ADAPTIVE,
        runtime: ContainerRuntime | None = None,
    ) -> None:
        super().__init__(directory, where)
        self._at = directory
        self.clock, self.ears = HostClock(), FakeEventRecorder()
        self.runtime = runtime or ProcessRuntime(directory / "pods", self.cgroups)
        config = Node.from_profile(self._profile()).state
        composer = self.config_builder(directory)
        performer = EffectRunner(self.runtime, self.cgroups, composer, FakeProber(), self.clock)
        rules = AgentConstants.of(config.config, self.clock.now_ns())
        self.loop = AgentLoop(AgentState(node=config), performer, FakeStore(), self.ears, self.clock, rules)
        parts = MonitoredParts.of_this_host(config.config, directory, lambda _: PodDirectories())
        self._alarms = parts.alarms
        self.pressure = PressureMonitor(self.loop, parts, policy)
        self.ears.on_reclaim = self.pressure.reclaim

    def config_builder(self, directory: Path) -> ConfigBuilder:
        """Puts together what the runtime is asked for."""
        return GrowerConfigBuilder(directory)

    async def run_race(self, *, is_stubborn: bool = False) -> RaceResult:
        """One pod from its start to its end."""
        log = self._at / "grown"
        pod = replace(a_pod("grower", restartPolicy="Never"), spec=self._spec(log, is_stubborn=is_stubborn))
        tasks = [asyncio.create_task(self.loop.run()), asyncio.create_task(self.pressure.run())]
        try:
            self.loop.observe(PodApplied(PodSource.API, pod))
            record = await asyncio.wait_for(self._ended(pod.uid, tasks), ROUND_LIMIT_S)
            oom_kills = self.oom_kills()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._cleared(pod.uid)
        return self._round(record, last_log_lines(log), oom_kills, is_stubborn=is_stubborn)

    def _round(
        self, record: PodRecord, said: dict[str, tuple[float, int]], oom_kills: int, *, is_stubborn: bool
    ) -> RaceResult:
        assert record.runtime_status is not None
        if not {"START", "TERM", "ENOUGH"} <= said.keys():
            raise DisturbedError
        (container,) = record.runtime_status.containers
        (started_s, had), (crossed_s, has) = said["START"], said["ENOUGH"]
        ended_s = time.monotonic() - (time.time_ns() - container.finished_ns) / 10**9
        return RaceResult(
            scope=self.where,
            ignores_sigterm=is_stubborn,
            rate=round((has - had) / (crossed_s - started_s)),
            signalled_ms=round((said["TERM"][0] - crossed_s) * 1000, 1),
            dead_ms=round((ended_s - crossed_s) * 1000, 1),
            final_bytes=max(has for what, (_, has) in said.items() if what != "PID"),
            reason=record.status.reason,
            oom_kills=oom_kills + (container.reason == OOM_KILLED),
            readings=self.pressure.reads,
            passes=self.pressure.passes,
        )

    async def _ended(self, uid: str, tasks: list[asyncio.Task[None]]) -> PodRecord:
        while True:
            for task in tasks:
                if task.done():
                    task.result()
            record = self.loop.state.pods.get(uid)
            if record is not None and record.stage in (PodStage.TERMINATED, PodStage.REJECTED):
                return record
            await asyncio.sleep(0.02)

    async def _cleared(self, uid: str) -> None:
        """Nothing is left, whatever has happened."""
        facts = await self.runtime.pod(uid)
        for sandbox in facts.sandboxes if facts is not None else ():
            await self.runtime.stop_sandbox(sandbox.id)
            await self.runtime.remove_sandbox(sandbox.id)
        await self.runtime.close()
        if self._alarms is not None:
            self._alarms.close()
        self.cgroups.kill(self.root)
        self.cgroups.remove(self.root)

    def _profile(self) -> NodeProfile:
        """A node of this machine's size; at the level of all pods, they may have 2 GiB together."""
        total = total_bytes()
        is_of_pods = self.where is ThresholdScope.PODS
        profile = a_profile(
            1,
            max(os.cpu_count() or 1, 1),
            cgroupRoot=self.root,
            failCgroupV1=False,
            evictionHard={"memory.available": str(self.threshold_bytes)},
            enforceNodeAllocatable=["pods"] if is_of_pods else ["none"],
            systemReserved={"memory": str(total - PODS_LIMIT_BYTES)} if is_of_pods else {},
        )
        machine = regular_machine(1, max(os.cpu_count() or 1, 1), memory_bytes=total)
        return replace(
            profile, spec=replace(profile.spec, machine_info=machine, cgroup_version=self.cgroups.version)
        )

    def _spec(self, log: Path, *, is_stubborn: bool) -> PodSpec:
        command = self.command(log, is_stubborn=is_stubborn)
        spec = a_pod("grower", restartPolicy="Never").spec
        (main,) = spec.containers
        return self.runtime_spec(replace(spec, containers=(replace(main, command=command),)))

    def runtime_spec(self, spec: PodSpec) -> PodSpec:
        """The pod's spec with what its runtime needs."""
        return spec


def reading_cost(directory: Path, number: int = 1000) -> float:
    """How long it takes to read what is left of this machine.

    Units: microseconds of CPU.
    """
    gauges = HostStatsProvider("/", nodefs=directory)
    gauges.node_stats()
    began_ns = time.process_time_ns()
    for _ in range(number):
        gauges.node_stats()
    gauges.close()
    return round((time.process_time_ns() - began_ns) / number / 1000, 1)


def unavailable_reason() -> str:
    """Why there can be no race here; empty: there can."""
    if os.geteuid() != 0:
        return "needs root, to make cgroups"
    with contextlib.suppress(OSError):
        free = next(
            int(line.split()[1]) * 1024
            for line in Path("/proc/meminfo").read_text("ascii").splitlines()
            if line.startswith("MemAvailable:")
        )
        if free < 3 * PODS_LIMIT_BYTES:
            return f"needs {3 * PODS_LIMIT_BYTES // GIB} GiB of available memory, so that nobody else suffers"
    return ""


def last_log_lines(log: Path) -> dict[str, tuple[float, int]]:
    """What the growing process wrote: of each kind of line the last one."""
    lines = (line.split() for line in log.read_text("ascii").splitlines())
    return {words[0]: (float(words[1]), int(words[2])) for words in lines}


def _available_now(group: str, directory: Path) -> int:
    gauges = HostStatsProvider(group, nodefs=directory)
    memory = gauges.node_stats().memory
    gauges.close()
    assert memory is not None
    assert memory.available_bytes is not None
    return memory.available_bytes


def total_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
