"""The counters of the node, its pods and their containers, read on request, and their text with cAdvisor's names.

Follows: v1.36, cadvisor/metrics/prometheus.go and prometheus_machine.go; kubelet/server/server.go,
    containerPrometheusLabels: names, types, labels, timestamps.
Departs: the counters of a pod's network have the cgroup of the pod, not that of its sandbox; a container without I/O so
    far has zeros for a device without a name; load averages, which cAdvisor reports as 0, are left out.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


class _Metric(NamedTuple):
    """A metric with one value for each group; its name without `container_`."""

    name: str
    type: MetricType
    help: str
    value: Callable[[CgroupCounters], float]


_CPU_AND_MEMORY = (
    _Metric(
        "cpu_user_seconds_total", _COUNTER, "CPU time used in user mode.", lambda of: of.cpu.user_ns / 10**9
    ),
    _Metric(
        "cpu_system_seconds_total",
        _COUNTER,
        "CPU time used in the kernel.",
        lambda of: of.cpu.system_ns / 10**9,
    ),
    _Metric("memory_cache", _GAUGE, "Page cache, in bytes.", lambda of: of.memory.cache_bytes),
    _Metric("memory_rss", _GAUGE, "Anonymous memory, in bytes.", lambda of: of.memory.rss_bytes),
    _Metric(
        "memory_kernel_usage", _GAUGE, "Memory of the kernel, in bytes.", lambda of: of.memory.kernel_bytes
    ),
    _Metric("memory_mapped_file", _GAUGE, "Mapped files, in bytes.", lambda of: of.memory.mapped_bytes),
    _Metric("memory_swap", _GAUGE, "Swap, in bytes.", lambda of: of.memory.swap_bytes),
    _Metric(
        "memory_failcnt",
        _COUNTER,
        "Number of times that the memory limit was reached.",
        lambda of: of.memory.limit_hits,
    ),
    _Metric("memory_usage_bytes", _GAUGE, "Memory including caches.", lambda of: of.memory.usage_bytes),
    _Metric(
        "memory_max_usage_bytes", _GAUGE, "The most memory used so far.", lambda of: of.memory.max_usage_bytes
    ),
    _Metric(
        "memory_working_set_bytes",
        _GAUGE,
        "Memory without inactive files.",
        lambda of: of.memory.working_set_bytes,
    ),
    _Metric(
        "memory_total_active_file_bytes", _GAUGE, "Active file pages.", lambda of: of.memory.active_file_bytes
    ),
    _Metric(
        "memory_total_inactive_file_bytes",
        _GAUGE,
        "Inactive file pages.",
        lambda of: of.memory.inactive_file_bytes,
    ),
    _Metric(
        "oom_events_total", _COUNTER, "Processes killed for lack of memory.", lambda of: of.memory.oom_kills
    ),
    _Metric("threads", _GAUGE, "Threads.", lambda of: of.threads),
    _Metric("threads_max", _GAUGE, "Most threads allowed; 0: no limit.", lambda of: of.max_threads),
)
_SPECS = (
    _Metric(
        "spec_cpu_period", _GAUGE, "Period of the CPU quota, in microseconds.", lambda of: of.cpu.period_us
    ),
    _Metric("spec_cpu_shares", _GAUGE, "CPU shares.", lambda of: of.cpu.shares),
    _Metric("spec_memory_limit_bytes", _GAUGE, "Memory limit; 0: none.", lambda of: of.memory.limit_bytes),
    _Metric(
        "spec_memory_swap_limit_bytes",
        _GAUGE,
        "Limit of memory and swap; 0: none.",
        lambda of: of.memory.swap_limit_bytes,
    ),
    _Metric(
        "spec_memory_reservation_limit_bytes",
        _GAUGE,
        "Memory reservation; 0: none.",
        lambda of: of.memory.reservation_bytes,
    ),
)
"""Limits, which have no time of measurement."""
_QUOTA_SPECS = (
    _Metric("spec_cpu_quota", _GAUGE, "CPU quota of a period, in microseconds.", lambda of: of.cpu.quota_us),
)
_OF_QUOTA = (
    _Metric("cpu_cfs_periods_total", _COUNTER, "Periods of the CPU quota.", lambda of: of.cpu.periods),
    _Metric(
        "cpu_cfs_throttled_periods_total",
        _COUNTER,
        "Periods in which the quota was used up.",
        lambda of: of.cpu.throttled_periods,
    ),
    _Metric(
        "cpu_cfs_throttled_seconds_total", _COUNTER, "Time throttled.", lambda of: of.cpu.throttled_ns / 10**9
    ),
)
"""Metrics of groups with a CPU quota only."""
_IO: tuple[tuple[str, str, Callable[[DeviceIO], float]], ...] = (
    ("reads_bytes", "Bytes read.", lambda io: io.read_bytes),
    ("reads", "Reads.", lambda io: io.reads),
    ("writes_bytes", "Bytes written.", lambda io: io.written_bytes),
    ("writes", "Writes.", lambda io: io.writes),
)
_DISK: tuple[tuple[str, MetricType, str, Callable[[DiskCounters], float]], ...] = (
    ("sector_reads_total", _COUNTER, "Sectors read.", lambda disk: disk.read_sectors),
    ("sector_writes_total", _COUNTER, "Sectors written.", lambda disk: disk.written_sectors),
    ("reads_merged_total", _COUNTER, "Merged reads.", lambda disk: disk.merged_reads),
    ("writes_merged_total", _COUNTER, "Merged writes.", lambda disk: disk.merged_writes),
    ("read_seconds_total", _COUNTER, "Time of reads.", lambda disk: disk.read_ms / 1000),
    ("write_seconds_total", _COUNTER, "Time of writes.", lambda disk: disk.write_ms / 1000),
    ("io_current", _GAUGE, "Requests in progress.", lambda disk: disk.in_flight),
    ("io_time_seconds_total", _COUNTER, "Time with requests.", lambda disk: disk.busy_ms / 1000),
    ("io_time_weighted_seconds_total", _COUNTER, "Time of requests.", lambda disk: disk.weighted_ms / 1000),
)
_NETWORK: tuple[tuple[str, str, Callable[[InterfaceCounters], float]], ...] = (
    ("receive_bytes", "Bytes received.", lambda of: of.received_bytes),
    ("receive_packets", "Packets received.", lambda of: of.received_packets),
    ("receive_packets_dropped", "Packets dropped on receipt.", lambda of: of.received_dropped),
    ("receive_errors", "Errors on receipt.", lambda of: of.receive_errors),
    ("transmit_bytes", "Bytes sent.", lambda of: of.sent_bytes),
    ("transmit_packets", "Packets sent.", lambda of: of.sent_packets),
    ("transmit_packets_dropped", "Packets dropped on sending.", lambda of: of.sent_dropped),
    ("transmit_errors", "Errors on sending.", lambda of: of.send_errors),
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


def _families(groups: tuple[GroupCounters, ...]) -> Iterator[_Family]:
    with_quota = tuple(each for each in groups if each.cgroup.cpu.quota_us)
    for metrics, chosen, has_time in (
        (_CPU_AND_MEMORY, groups, True),
        (_SPECS, groups, False),
        (_QUOTA_SPECS, with_quota, False),
        (_OF_QUOTA, with_quota, True),
    ):
        for metric in metrics:
            samples = [
                MetricSample(_labels(each), metric.value(each.cgroup), _at_ms(each) if has_time else None)
                for each in chosen
            ]
            yield MetricFamily(f"container_{metric.name}", metric.type, metric.help, _LABELS), samples
    cpu = [
        MetricSample((*_labels(each), "total"), each.cgroup.cpu.usage_ns / 10**9, _at_ms(each))
        for each in groups
    ]
    labels = (*_LABELS, "cpu")
    yield MetricFamily("container_cpu_usage_seconds_total", _COUNTER, "CPU time used.", labels), cpu
    yield from _times(groups)
    yield from _page_faults(groups)
    yield from _io(groups)
    yield from _file_systems(groups)
    yield from _disks(groups)
    yield from _network(groups)
    yield from _processes(groups)


def _times(groups: Iterable[GroupCounters]) -> Iterator[_Family]:
    starts = [MetricSample(_labels(each), each.group.started_ns // 10**9) for each in groups]
    yield MetricFamily("container_start_time_seconds", _GAUGE, "Start, since 1970.", _LABELS), starts
    seen = [MetricSample(_labels(each), each.cgroup.at_ns // 10**9, _at_ms(each)) for each in groups]
    yield MetricFamily("container_last_seen", _GAUGE, "The last measurement, since 1970.", _LABELS), seen


def _page_faults(groups: Iterable[GroupCounters]) -> Iterator[_Family]:
    labels = (*_LABELS, "failure_type", "scope")
    samples = [
        MetricSample((*_labels(each), kind, "hierarchy"), count, _at_ms(each))
        for each in groups
        for kind, count in (
            ("pgfault", each.cgroup.memory.page_faults),
            ("pgmajfault", each.cgroup.memory.major_page_faults),
        )
    ]
    yield MetricFamily("container_memory_failures_total", _COUNTER, "Page faults.", labels), samples


def _io(groups: tuple[GroupCounters, ...]) -> Iterator[_Family]:
    for name, help_text, value in _IO:
        family = MetricFamily(f"container_fs_{name}_total", _COUNTER, help_text, (*_LABELS, "device"))
        samples = [
            MetricSample((*_labels(each), io.device), value(io), _at_ms(each))
            for each in groups
            for io in each.cgroup.devices or (_NO_DEVICE,)
        ]
        yield family, samples
    labels = (*_LABELS, "device", "major", "minor", "operation")
    usage = [
        MetricSample(
            (*_labels(each), io.device, *_device_numbers(io.device), operation), amount, _at_ms(each)
        )
        for each in groups
        for io in each.cgroup.devices or (_NO_DEVICE,)
        for operation, amount in (("Read", io.read_bytes), ("Write", io.written_bytes))
    ]
    yield (
        MetricFamily("container_blkio_device_usage_total", _COUNTER, "Bytes read and written.", labels),
        usage,
    )


def _device_numbers(device: str) -> tuple[str, str]:
    """The numbers of a device such as `8:0`."""
    major, _, minor = device.partition(":")
    return major, minor


def _file_systems(groups: Iterable[GroupCounters]) -> Iterator[_Family]:
    """What containers use of the file system of images, and how large that is; inodes of the node's."""
    measured = [(each, fs) for each in groups if (fs := each.group.fs) is not None]
    of_node = [(each, fs) for each, fs in measured if not each.group.container]
    for name, help_text, chosen, field in (
        ("container_fs_usage_bytes", "Bytes used.", measured, "used_bytes"),
        ("container_fs_limit_bytes", "Size of the file system.", measured, "capacity_bytes"),
        ("container_fs_inodes_total", "Inodes of the file system.", of_node, "inodes"),
        ("container_fs_inodes_free", "Free inodes.", of_node, "inodes_free"),
    ):
        family = MetricFamily(name, _GAUGE, help_text, (*_LABELS, "device"))
        samples = [
            MetricSample((*_labels(each), ""), amount, _at_ms(each))
            for each, fs in chosen
            if (amount := getattr(fs, field)) is not None
        ]
        yield family, samples


def _disks(groups: Iterable[GroupCounters]) -> Iterator[_Family]:
    """The counters of the node's disk."""
    disks = [(each, each.disk) for each in groups if each.disk is not None]
    for name, kind, help_text, value in _DISK:
        samples = [
            MetricSample((*_labels(each), disk.device), value(disk), _at_ms(each)) for each, disk in disks
        ]
        yield MetricFamily(f"container_fs_{name}", kind, help_text, (*_LABELS, "device")), samples


def _network(groups: tuple[GroupCounters, ...]) -> Iterator[_Family]:
    for name, help_text, value in _NETWORK:
        family = MetricFamily(f"container_network_{name}_total", _COUNTER, help_text, (*_LABELS, "interface"))
        samples = [
            MetricSample((*_labels(each), interface.name), value(interface), _at_ms(each))
            for each in groups
            for interface in each.interfaces
        ]
        yield family, samples


def _processes(groups: Iterable[GroupCounters]) -> Iterator[_Family]:
    containers = [each for each in groups if each.group.container]
    for name, help_text, counts in (
        ("container_processes", "Processes.", [each.processes.processes for each in containers]),
        (
            "container_file_descriptors",
            "Open files.",
            [each.processes.file_descriptors for each in containers],
        ),
        ("container_sockets", "Open sockets.", [each.processes.sockets for each in containers]),
    ):
        family = MetricFamily(name, _GAUGE, help_text, _LABELS)
        samples = [
            MetricSample(_labels(each), count, _at_ms(each))
            for each, count in zip(containers, counts, strict=True)
        ]
        yield family, samples
    limits = [
        MetricSample((*_labels(each), "max_open_files"), each.processes.max_open_files, _at_ms(each))
        for each in containers
    ]
    yield MetricFamily("container_ulimits_soft", _GAUGE, "Soft limits.", (*_LABELS, "ulimit")), limits


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
