"""The counters of the node, its pods and their containers, as cAdvisor exports them; read on request."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.decide.termination import LISTED_STAGES
from nodewright.agent.host.counters import (
    CgroupCounters,
    DiskCounters,
    InterfaceCounters,
    ProcessCounters,
    cgroup_counters,
    counters_of_processes,
    disk_counters,
    interface_counters,
)
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.pressure_monitor import PressureMonitor
from nodewright.agent.observe.summary import root_fs_stats
from nodewright.agent.state.agent_state import PodRecord
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.documents.files.file_store import boot_id
from nodewright.documents.profiles.machine.machine_usage import boot_time
from nodewright.engine.node.node_cgroups import cgroup_rules, cgroup_tree
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.kubernetes.stats_summary import FsStats

_CACHE_TTL_S = 1.0
_NODE = "/"


class CountedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A cgroup that is counted: its place in the node, and when it began.

    Units: nanoseconds since 1970.
    """

    path: str
    started_ns: int = 0
    namespace: str = ""
    pod: str = ""
    container: str = ""
    container_id: str = ""
    image: str = ""
    has_own_network: bool = False
    """Whether it is a pod with a network namespace of its own."""
    fs: FsStats | None = None
    """What a container uses of the file system of images, or the node's own; None: not measured."""


class GroupCounters(msgspec.Struct, frozen=True, kw_only=True):
    """A group with what the kernel counts of it."""

    group: CountedGroup
    cgroup: CgroupCounters
    processes: ProcessCounters
    interfaces: tuple[InterfaceCounters, ...] = ()
    disk: DiskCounters | None = None
    """Of the node: the device of its root file system."""


class MachineIds(msgspec.Struct, frozen=True):
    """The ids by which a machine is known; empty: it has none."""

    boot_id: str = ""
    machine_id: str = ""
    system_uuid: str = ""


class ContainerCounters:
    """Reads the counters; concurrent requests share a reading."""

    def __init__(self, loop: AgentLoop, pressure: PressureMonitor) -> None:
        self._loop, self._pressure = loop, pressure
        self._lock = asyncio.Lock()
        self._cached: tuple[float, tuple[GroupCounters, ...]] | None = None

    async def read(self) -> tuple[GroupCounters, ...]:
        """The counters of all groups that exist, the node first; at most a second old.

        Errors: HostError.
        """
        async with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] > _CACHE_TTL_S:
                groups = tuple(self._groups(await self._loop.effect_runner.runtime.usage()))
                self._cached = time.monotonic(), await asyncio.to_thread(self._counted, groups)
            return self._cached[1]

    def _groups(self, usage: Mapping[str, ContainerUsage]) -> Iterator[CountedGroup]:
        state, disks = self._loop.state, self._pressure.disks
        config = state.node.config
        booted = boot_time()
        started_ns = booted.nanoseconds if booted is not None else 0
        yield CountedGroup(path=_NODE, started_ns=started_ns, fs=disks.fs)
        all_pods = cgroup_tree(config).root.path(cgroup_rules(config).driver)
        yield CountedGroup(path=all_pods, started_ns=self._loop.constants.started_ns)
        for record in state.pods.values():
            if record.stage in LISTED_STAGES and record.runtime_status is not None:
                path = record.cgroup or pod_cgroup(record.pod, config)
                yield from self._pod_groups(record, path, usage)

    def _pod_groups(
        self, record: PodRecord, path: str, usage: Mapping[str, ContainerUsage]
    ) -> Iterator[CountedGroup]:
        meta, runtime_status = record.pod.metadata, record.runtime_status
        assert runtime_status is not None
        if not path:
            return
        namespace = meta.namespace or "default"
        sandboxes = runtime_status.sandboxes
        yield CountedGroup(
            path=path,
            started_ns=sandboxes[0].created_ns if sandboxes else 0,
            namespace=namespace,
            pod=meta.name,
            has_own_network=bool(sandboxes) and not record.pod.spec.host_network,
        )
        image_fs = self._pressure.disks.image_fs
        for container in runtime_status.containers:
            if container.phase is ContainerPhase.RUNNING and container.cgroup:
                yield CountedGroup(
                    path=container.cgroup,
                    started_ns=container.started_ns,
                    namespace=namespace,
                    pod=meta.name,
                    container=container.name,
                    container_id=container.id,
                    image=container.image,
                    fs=root_fs_stats(usage[container.id], image_fs) if container.id in usage else None,
                )

    def _counted(self, groups: Iterable[CountedGroup]) -> tuple[GroupCounters, ...]:
        cgroups, counted = self._loop.effect_runner.cgroups, []
        for group in groups:
            counters = cgroup_counters(cgroups, group.path)
            if counters is None:
                continue
            # The machine's processes are no container's.
            pids = () if group.path == _NODE or not group.pod else cgroups.processes(group.path)
            counted.append(
                GroupCounters(
                    group=group,
                    cgroup=counters,
                    processes=counters_of_processes(pids) if group.container else ProcessCounters(),
                    interfaces=interface_counters(pids[0]) if group.has_own_network and pids else (),
                    disk=disk_counters(Path("/")) if group.path == _NODE else None,
                )
            )
        return tuple(counted)


@cache
def machine_ids() -> MachineIds:
    """The ids of this machine, read once: they do not change while it runs.

    Follows: v1.36, kubelet/cadvisor, MachineInfo.
    """
    return MachineIds(
        boot_id(),
        _first_line("/etc/machine-id", "/var/lib/dbus/machine-id"),
        _first_line("/sys/class/dmi/id/product_uuid", "/etc/machine-id"),
    )


def _first_line(*paths: str) -> str:
    """The first line of the first of these files that has one; empty: none has."""
    for path in paths:
        try:
            line = Path(path).read_text("utf-8", "replace").strip()
        except OSError:
            continue
        if line:
            return line.splitlines()[0]
    return ""
