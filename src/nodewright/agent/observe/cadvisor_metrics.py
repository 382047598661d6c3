"""The counters of the node, its pods and their containers, read on request, and their text with cAdvisor's names.

Follows: v1.36, cadvisor/metrics/prometheus.go and prometheus_machine.go; kubelet/server/server.go,
    containerPrometheusLabels: names, types, labels, timestamps.
Departs: the counters of a pod's network have the cgroup of the pod, not that of its sandbox; a container without I/O so
    far has zeros for a device without a name; load averages, which cAdvisor reports as 0, are left out.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.decide.termination import LISTED_STAGES
from nodewright.agent.host.counters import (
    CgroupCounters,
    DeviceIO,
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
from nodewright.documents.output.exposition import MetricFamily, MetricSample, MetricType, family_text
from nodewright.documents.profiles.machine.machine_usage import boot_time
from nodewright.engine.node.node_cgroups import cgroup_rules, cgroup_tree
from nodewright.model.hardware import MachineInfo
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


# ---------------------------------------------------------------- text


_LABELS = ("container", "id", "image", "name", "namespace", "pod")
_COUNTER, _GAUGE = MetricType.COUNTER, MetricType.GAUGE
_NO_DEVICE = DeviceIO(device="")
T = TypeVar("T")


class _Metric(NamedTuple, Generic[T]):
    """A metric with one value for each part, such as a group or an interface; its name without `container_`."""

    name: str
    help: str
    value: Callable[[T], float | None]
    """None: the part has no such value."""

    @property
    def type(self) -> MetricType:
        """Its type, which its name tells, but for the number of inodes."""
        is_counter = self.name.endswith(("_total", "_failcnt")) and self.name != "fs_inodes_total"
        return _COUNTER if is_counter else _GAUGE


_CPU_AND_MEMORY: tuple[_Metric[CgroupCounters], ...] = (
    _Metric("cpu_user_seconds_total", "CPU time used in user mode.", lambda of: of.cpu.user_ns / 10**9),
    _Metric("cpu_system_seconds_total", "CPU time used in the kernel.", lambda of: of.cpu.system_ns / 10**9),
    _Metric("memory_cache", "Page cache, in bytes.", lambda of: of.memory.cache_bytes),
    _Metric("memory_rss", "Anonymous memory, in bytes.", lambda of: of.memory.rss_bytes),
    _Metric("memory_kernel_usage", "Memory of the kernel, in bytes.", lambda of: of.memory.kernel_bytes),
    _Metric("memory_mapped_file", "Mapped files, in bytes.", lambda of: of.memory.mapped_bytes),
    _Metric("memory_swap", "Swap, in bytes.", lambda of: of.memory.swap_bytes),
    _Metric(
        "memory_failcnt",
        "Number of times that the memory limit was reached.",
        lambda of: of.memory.limit_hits,
    ),
    _Metric("memory_usage_bytes", "Memory including caches.", lambda of: of.memory.usage_bytes),
    _Metric("memory_max_usage_bytes", "The most memory used so far.", lambda of: of.memory.max_usage_bytes),
    _Metric(
        "memory_working_set_bytes", "Memory without inactive files.", lambda of: of.memory.working_set_bytes
    ),
    _Metric("memory_total_active_file_bytes", "Active file pages.", lambda of: of.memory.active_file_bytes),
    _Metric(
        "memory_total_inactive_file_bytes", "Inactive file pages.", lambda of: of.memory.inactive_file_bytes
    ),
    _Metric("oom_events_total", "Processes killed for lack of memory.", lambda of: of.memory.oom_kills),
    _Metric("threads", "Threads.", lambda of: of.threads),
    _Metric("threads_max", "Most threads allowed; 0: no limit.", lambda of: of.max_threads),
)
_SPECS: tuple[_Metric[CgroupCounters], ...] = (
    _Metric("spec_cpu_period", "Period of the CPU quota, in microseconds.", lambda of: of.cpu.period_us),
    _Metric("spec_cpu_shares", "CPU shares.", lambda of: of.cpu.shares),
    _Metric("spec_memory_limit_bytes", "Memory limit; 0: none.", lambda of: of.memory.limit_bytes),
    _Metric(
        "spec_memory_swap_limit_bytes",
        "Limit of memory and swap; 0: none.",
        lambda of: of.memory.swap_limit_bytes,
    ),
    _Metric(
        "spec_memory_reservation_limit_bytes",
        "Memory reservation; 0: none.",
        lambda of: of.memory.reservation_bytes,
    ),
)
"""Limits, which have no time of measurement."""
_QUOTA_SPECS: tuple[_Metric[CgroupCounters], ...] = (
    _Metric("spec_cpu_quota", "CPU quota of a period, in microseconds.", lambda of: of.cpu.quota_us),
)
_OF_QUOTA: tuple[_Metric[CgroupCounters], ...] = (
    _Metric("cpu_cfs_periods_total", "Periods of the CPU quota.", lambda of: of.cpu.periods),
    _Metric(
        "cpu_cfs_throttled_periods_total",
        "Periods in which the quota was used up.",
        lambda of: of.cpu.throttled_periods,
    ),
    _Metric("cpu_cfs_throttled_seconds_total", "Time throttled.", lambda of: of.cpu.throttled_ns / 10**9),
)
"""Metrics of groups with a CPU quota only."""
_IO: tuple[_Metric[DeviceIO], ...] = (
    _Metric("fs_reads_bytes_total", "Bytes read.", lambda io: io.read_bytes),
    _Metric("fs_reads_total", "Reads.", lambda io: io.reads),
    _Metric("fs_writes_bytes_total", "Bytes written.", lambda io: io.written_bytes),
    _Metric("fs_writes_total", "Writes.", lambda io: io.writes),
)
_FILE_SYSTEM: tuple[_Metric[FsStats], ...] = (
    _Metric("fs_usage_bytes", "Bytes used.", lambda fs: fs.used_bytes),
    _Metric("fs_limit_bytes", "Size of the file system.", lambda fs: fs.capacity_bytes),
)
_INODES: tuple[_Metric[FsStats], ...] = (
    _Metric("fs_inodes_total", "Inodes of the file system.", lambda fs: fs.inodes),
    _Metric("fs_inodes_free", "Free inodes.", lambda fs: fs.inodes_free),
)
_DISK: tuple[_Metric[DiskCounters], ...] = (
    _Metric("fs_sector_reads_total", "Sectors read.", lambda disk: disk.read_sectors),
    _Metric("fs_sector_writes_total", "Sectors written.", lambda disk: disk.written_sectors),
    _Metric("fs_reads_merged_total", "Merged reads.", lambda disk: disk.merged_reads),
    _Metric("fs_writes_merged_total", "Merged writes.", lambda disk: disk.merged_writes),
    _Metric("fs_read_seconds_total", "Time of reads.", lambda disk: disk.read_ms / 1000),
    _Metric("fs_write_seconds_total", "Time of writes.", lambda disk: disk.write_ms / 1000),
    _Metric("fs_io_current", "Requests in progress.", lambda disk: disk.in_flight),
    _Metric("fs_io_time_seconds_total", "Time with requests.", lambda disk: disk.busy_ms / 1000),
    _Metric("fs_io_time_weighted_seconds_total", "Time of requests.", lambda disk: disk.weighted_ms / 1000),
)
_NETWORK: tuple[_Metric[InterfaceCounters], ...] = (
    _Metric("network_receive_bytes_total", "Bytes received.", lambda of: of.received_bytes),
    _Metric("network_receive_packets_total", "Packets received.", lambda of: of.received_packets),
    _Metric(
        "network_receive_packets_dropped_total", "Packets dropped on receipt.", lambda of: of.received_dropped
    ),
    _Metric("network_receive_errors_total", "Errors on receipt.", lambda of: of.receive_errors),
    _Metric("network_transmit_bytes_total", "Bytes sent.", lambda of: of.sent_bytes),
    _Metric("network_transmit_packets_total", "Packets sent.", lambda of: of.sent_packets),
    _Metric(
        "network_transmit_packets_dropped_total", "Packets dropped on sending.", lambda of: of.sent_dropped
    ),
    _Metric("network_transmit_errors_total", "Errors on sending.", lambda of: of.send_errors),
)
_PROCESSES: tuple[_Metric[ProcessCounters], ...] = (
    _Metric("processes", "Processes.", lambda of: of.processes),
    _Metric("file_descriptors", "Open files.", lambda of: of.file_descriptors),
    _Metric("sockets", "Open sockets.", lambda of: of.sockets),
)


def cadvisor_metrics(groups: tuple[GroupCounters, ...], machine: MachineInfo, ids: MachineIds) -> str:
    """The page.

    Units: counters as in their names, times of measurement in milliseconds since 1970.
    """
    parts = [family_text(family, samples) for family, samples in _families(groups)]
    parts += [family_text(family, samples) for family, samples in _machine(machine, ids)]
    parts.append(_scrape_error(0))
    return "".join(parts)


def failed_cadvisor_metrics() -> str:
    """The page after a reading that has failed."""
    return _scrape_error(1)


def _scrape_error(value: int) -> str:
    family = MetricFamily("container_scrape_error", _GAUGE, "1 if the reading failed, 0 otherwise.")
    return family_text(family, [MetricSample((), value)])


_Family = tuple[MetricFamily, list[MetricSample]]


class _Part(NamedTuple, Generic[T]):
    """What is counted of a group, with the values of the labels that it adds to those of the group."""

    group: GroupCounters
    counted: T
    labels: tuple[str, ...] = ()


def _families(groups: tuple[GroupCounters, ...]) -> Iterator[_Family]:
    cgroups = [_Part(each, each.cgroup) for each in groups]
    with_quota = [part for part in cgroups if part.counted.cpu.quota_us]
    yield from _of_parts(_CPU_AND_MEMORY, cgroups)
    yield from _of_parts(_SPECS, cgroups, has_time=False)
    yield from _of_parts(_QUOTA_SPECS, with_quota, has_time=False)
    yield from _of_parts(_OF_QUOTA, with_quota)
    total = [_Part(each, each.cgroup.cpu.usage_ns / 10**9, ("total",)) for each in groups]
    yield _family("cpu_usage_seconds_total", "CPU time used.", total, "cpu")
    starts = [MetricSample(_labels(each), each.group.started_ns // 10**9) for each in groups]
    yield MetricFamily("container_start_time_seconds", _GAUGE, "Start, since 1970.", _LABELS), starts
    seen = [_Part(each, each.cgroup.at_ns // 10**9) for each in groups]
    yield _family("last_seen", "The last measurement, since 1970.", seen)
    faults = [
        _Part(each, count, (kind, "hierarchy"))
        for each in groups
        for kind, count in (
            ("pgfault", each.cgroup.memory.page_faults),
            ("pgmajfault", each.cgroup.memory.major_page_faults),
        )
    ]
    yield _family("memory_failures_total", "Page faults.", faults, "failure_type", "scope")
    yield from _io(groups)
    measured = [_Part(each, fs, ("",)) for each in groups if (fs := each.group.fs) is not None]
    yield from _of_parts(_FILE_SYSTEM, measured, "device")
    yield from _of_parts(_INODES, [part for part in measured if not part.group.group.container], "device")
    disks = [_Part(each, each.disk, (each.disk.device,)) for each in groups if each.disk is not None]
    yield from _of_parts(_DISK, disks, "device")
    interfaces = [_Part(each, counted, (counted.name,)) for each in groups for counted in each.interfaces]
    yield from _of_parts(_NETWORK, interfaces, "interface")
    processes = [_Part(each, each.processes) for each in groups if each.group.container]
    yield from _of_parts(_PROCESSES, processes)
    limits = [_Part(part.group, part.counted.max_open_files, ("max_open_files",)) for part in processes]
    yield _family("ulimits_soft", "Soft limits.", limits, "ulimit")


def _of_parts(
    metrics: Iterable[_Metric[T]], parts: Sequence[_Part[T]], *labels: str, has_time: bool = True
) -> Iterator[_Family]:
    """A family for each metric, with a sample for each part that has its value."""
    for metric in metrics:
        samples = [
            MetricSample(
                (*_labels(part.group), *part.labels), amount, _at_ms(part.group) if has_time else None
            )
            for part in parts
            if (amount := metric.value(part.counted)) is not None
        ]
        yield MetricFamily(f"container_{metric.name}", metric.type, metric.help, (*_LABELS, *labels)), samples


def _family(name: str, help_text: str, parts: Sequence[_Part[Any]], *labels: str) -> _Family:
    """The family of one metric whose parts are its values."""
    return next(_of_parts([_Metric[Any](name, help_text, lambda value: value)], parts, *labels))


def _io(groups: tuple[GroupCounters, ...]) -> Iterator[_Family]:
    devices = [
        _Part(each, io, (io.device,)) for each in groups for io in each.cgroup.devices or (_NO_DEVICE,)
    ]
    yield from _of_parts(_IO, devices, "device")
    usage = [
        _Part(group, amount, (io.device, *_device_numbers(io.device), operation))
        for group, io, _ in devices
        for operation, amount in (("Read", io.read_bytes), ("Write", io.written_bytes))
    ]
    labels = ("device", "major", "minor", "operation")
    yield _family("blkio_device_usage_total", "Bytes read and written.", usage, *labels)


def _device_numbers(device: str) -> tuple[str, str]:
    """The numbers of a device such as `8:0`."""
    major, _, minor = device.partition(":")
    return major, minor


def _machine(machine: MachineInfo, ids: MachineIds) -> Iterator[_Family]:
    labels, values = ("boot_id", "machine_id", "system_uuid"), (ids.boot_id, ids.machine_id, ids.system_uuid)
    for name, help_text, amount in (
        ("machine_cpu_cores", "CPUs.", machine.num_cores),
        ("machine_cpu_physical_cores", "Physical cores.", machine.num_physical_cores),
        ("machine_cpu_sockets", "Sockets.", machine.num_sockets),
        ("machine_memory_bytes", "Memory of the machine.", machine.memory_capacity),
    ):
        yield MetricFamily(name, _GAUGE, help_text, labels), [MetricSample(values, amount)]


def _labels(counters: GroupCounters) -> tuple[str, ...]:
    group = counters.group
    return (group.container, group.path, group.image, group.container_id, group.namespace, group.pod)


def _at_ms(counters: GroupCounters) -> int:
    return counters.cgroup.at_ns // 10**6
