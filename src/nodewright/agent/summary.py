"""What the node, its pods and their containers use now, as the kubelet's Summary API has it: read when somebody asks."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from nodewright.agent.loop import Loop
from nodewright.agent.pressure import Pressure
from nodewright.agent.turn import pod_cgroup
from nodewright.agent.values import PodRecord, Stage
from nodewright.model.running import ContainerFacts, ContainerPhase
from nodewright.model.usage import (
    ContainerUse,
    CPUUse,
    FilesystemUse,
    IOUse,
    MemoryUse,
    NodeUse,
    PodReference,
    PodUse,
    ProcessUse,
    RuntimeUse,
    Stalls,
    SwapUse,
    Usage,
)
from nodewright.node.cgroups import cgroup_rules, cgroup_tree
from nodewright.values.instant import Instant
from nodewright.world.machine.loads import cpu_time_ns, io_stalls, network, stalls, started_at
from nodewright.world.machine.usage import stalls_in
from nodewright.world.ports import Cgroups, ContainerUsage
from nodewright.world.processes.usage import group_usage

FRESH_S = 1.0
"""Whoever asks again within this time gets the same answer."""
LEAST_SPAN_NS = 10**9 // 2
"""CPU time is not compared over less."""
_OF_THE_NODE, _OF_ALL_PODS, _OF_THE_AGENT = "node", "pods", "kubelet"
_PRESSURES = ("cpu.pressure", "memory.pressure", "io.pressure")
_ACTIVE = (Stage.WAITING, Stage.ACTIVE, Stage.ENDING)


class Group(NamedTuple):
    """What a group uses, and what is waited for in it (none, where nobody measures it)."""

    usage: ContainerUsage
    stalls: Mapping[str, Stalls | None]


class Summaries:
    """Readings of everything; several who ask at once get one."""

    def __init__(self, loop: Loop, pressure: Pressure) -> None:
        self._loop, self._pressure = loop, pressure
        self._cgroups = loop.performer.cgroups
        config = loop.mind.node.config
        self._pods_group = cgroup_tree(config).root.path(cgroup_rules(config).driver)
        self._has_stalls = config.gates["KubeletPSI"]
        self._lock = asyncio.Lock()
        self._last: tuple[float, Usage] | None = None
        self._cpu: dict[str, tuple[int, int, int | None]] = {}
        """By what uses it: when it was read, the CPU time, and how fast it grew."""
        self._asked: set[str] = set()

    async def now(self) -> Usage:
        """What is used, read not more than a moment ago.

        Errors: WorldError.
        """
        async with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH_S:
                self._last = time.monotonic(), await self._read()
            return self._last[1]

    async def _read(self) -> Usage:
        mind = self._loop.mind
        records = [one for one in mind.pods.values() if one.stage in _ACTIVE and one.facts is not None]
        groups = {one.pod.uid: one.cgroup or pod_cgroup(one.pod, mind.node.config) for one in records}
        groups[_OF_ALL_PODS] = self._pods_group
        containers = await self._loop.performer.runtime.usage()
        for record in records:
            groups.update({f.id: f.cgroup for f in _running(record) if self._has_stalls and f.cgroup})
        found = await asyncio.to_thread(self._groups, groups)
        self._asked = set()
        pods = tuple(self._pod(record, containers, found) for record in records)
        usage = Usage(node=self._node(found[_OF_ALL_PODS]), pods=pods)
        self._cpu = {key: known for key, known in self._cpu.items() if key in self._asked}
        return usage

    def _groups(self, paths: Mapping[str, str]) -> dict[str, Group]:
        return {
            key: _group(self._cgroups, path, has_stalls=self._has_stalls)
            for key, path in paths.items()
            if path
        }

    # ------------------------------------------------------------ the node

    def _node(self, pods: Group) -> NodeUse:
        at = Instant(time.time_ns())
        found, disks = self._pressure.gauges.now(), self._pressure.disks
        fs = _at(disks.fs, at)
        image_fs = _at(disks.runtime.image_fs, at) if disks.runtime is not None else fs
        memory, swap = found.memory, found.swap
        if memory is not None:
            memory = replace(memory, time=at, psi=self._stalls("memory"))
        of_all_pods = next((one for one in found.system_containers if one.name == _OF_ALL_PODS), None)
        return NodeUse(
            node_name=self._loop.mind.node.config.facts.name,
            system_containers=(self._all_pods(of_all_pods, pods, at), self._agent(at)),
            memory=memory,
            fs=fs,
            runtime=RuntimeUse(image_fs=image_fs, container_fs=image_fs),
            rlimit=None if found.rlimit is None else replace(found.rlimit, time=at),
            swap=None if swap is None else replace(swap, time=at),
            io=io_stalls() if self._has_stalls else None,
            start_time=started_at(),
            cpu=self._cpu_use(_OF_THE_NODE, at.nanoseconds, cpu_time_ns(), self._stalls("cpu")),
            network=network(),
        )

    def _stalls(self, name: str) -> Stalls | None:
        return stalls(name) if self._has_stalls else None

    def _all_pods(self, found: ContainerUse | None, group: Group, at: Instant) -> ContainerUse:
        memory = found.memory if found is not None else None
        return ContainerUse(
            name=_OF_ALL_PODS,
            memory=None if memory is None else replace(memory, time=at),
            cpu=self._cpu_use(_OF_ALL_PODS, at.nanoseconds, group.usage.cpu_ns, group.stalls.get("cpu")),
            start_time=started_at(),
        )

    def _agent(self, at: Instant) -> ContainerUse:
        """Ourselves: a kubelet by what we do."""
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - three times as fast, and no file of anybody's
            pages = file.read().split()
        resident = int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
        return ContainerUse(
            name=_OF_THE_AGENT,
            memory=MemoryUse(time=at, usage_bytes=resident, working_set_bytes=resident, rss_bytes=resident),
            cpu=self._cpu_use(_OF_THE_AGENT, at.nanoseconds, time.process_time_ns()),
            start_time=Instant(self._loop.rules.started_ns),
        )

    # ------------------------------------------------------------ pods

    def _pod(
        self, record: PodRecord, containers: Mapping[str, ContainerUsage], groups: Mapping[str, Group]
    ) -> PodUse:
        meta, stored = record.pod.metadata, self._pressure.storage.get(record.pod.uid, PodUse())
        used = {one.name: one for one in stored.containers}
        shown = tuple(
            self._container(facts, containers[facts.id], groups.get(facts.id), used.get(facts.name))
            for facts in _running(record)
            if facts.id in containers
        )
        group = groups.get(record.pod.uid)
        pod = replace(
            stored,
            pod_ref=PodReference(name=meta.name, namespace=meta.namespace or "default", uid=meta.uid),
            containers=shown,
            start_time=Instant.parse(record.status.start_time) if record.status.start_time else None,
        )
        if group is None:
            return pod
        at = Instant(group.usage.at_ns)
        return replace(
            pod,
            cpu=self._cpu_use(meta.uid, at.nanoseconds, group.usage.cpu_ns, group.stalls.get("cpu")),
            memory=_memory(group.usage, group.stalls.get("memory")),
            swap=_swap(group.usage),
            io=_io(group, at),
            processes=ProcessUse(group.usage.processes) if group.usage.processes is not None else None,
        )

    def _container(
        self, facts: ContainerFacts, usage: ContainerUsage, group: Group | None, stored: ContainerUse | None
    ) -> ContainerUse:
        waited = group.stalls if group is not None else {}
        at = Instant(usage.at_ns)
        return ContainerUse(
            name=facts.name,
            memory=_memory(usage, waited.get("memory")),
            rootfs=_at(stored.rootfs if stored is not None else None, at),
            logs=_at(stored.logs if stored is not None else None, at),
            start_time=Instant(facts.started_ns),
            cpu=self._cpu_use(facts.id, usage.at_ns, usage.cpu_ns, waited.get("cpu")),
            swap=_swap(usage),
            io=_io(group, at),
        )

    def _cpu_use(self, key: str, at_ns: int, used_ns: int | None, psi: Stalls | None = None) -> CPUUse | None:
        """CPU time, and how fast it grew since somebody asked before."""
        if used_ns is None:
            return None
        self._asked.add(key)
        before = self._cpu.get(key)
        speed = before[2] if before is not None else None
        if before is not None and at_ns - before[0] >= LEAST_SPAN_NS and used_ns >= before[1]:
            speed = (used_ns - before[1]) * 10**9 // (at_ns - before[0])
        if before is None or at_ns - before[0] >= LEAST_SPAN_NS or used_ns < before[1]:
            self._cpu[key] = (at_ns, used_ns, speed)
        return CPUUse(time=Instant(at_ns), usage_nano_cores=speed, usage_core_nano_seconds=used_ns, psi=psi)


def _running(record: PodRecord) -> list[ContainerFacts]:
    facts = record.facts.containers if record.facts is not None else ()
    return [one for one in facts if one.phase is ContainerPhase.RUNNING]


def _group(cgroups: Cgroups, path: str, *, has_stalls: bool) -> Group:
    texts = (cgroups.texts(path, _PRESSURES) or {}) if has_stalls and cgroups.version == 2 else {}
    found = {name.partition(".")[0]: stalls_in(text) for name, text in texts.items()}
    return Group(group_usage(cgroups, path), found)


def _memory(usage: ContainerUsage, psi: Stalls | None) -> MemoryUse | None:
    if usage.working_set_bytes is None:
        return None
    return MemoryUse(
        time=Instant(usage.at_ns),
        usage_bytes=usage.memory_bytes,
        working_set_bytes=usage.working_set_bytes,
        rss_bytes=usage.rss_bytes,
        psi=psi,
    )


def _swap(usage: ContainerUsage) -> SwapUse | None:
    if usage.swap_bytes is None:
        return None
    return SwapUse(time=Instant(usage.at_ns), swap_usage_bytes=usage.swap_bytes)


def _io(group: Group | None, at: Instant) -> IOUse | None:
    found = group.stalls.get("io") if group is not None else None
    return None if found is None else IOUse(time=at, psi=found)


def _at(found: FilesystemUse | None, at: Instant) -> FilesystemUse | None:
    return None if found is None else replace(found, time=at)
