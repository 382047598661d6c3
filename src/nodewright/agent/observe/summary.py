"""The stats summary of the node, its pods and containers: the Summary API's document, and `/metrics/resource`; read on request."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.decide.termination import LISTED_STAGES
from nodewright.agent.host.counters import MemoryCounters, memory_counters
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.pressure_monitor import PressureMonitor
from nodewright.agent.state.agent_state import PodRecord
from nodewright.documents.files.cgroup_files import CgroupManager, ContainerUsage, cgroup_usage
from nodewright.documents.output.exposition import MetricFamily, MetricSample, MetricType, family_text
from nodewright.documents.profiles.machine.machine_usage import (
    boot_time,
    cpu_time_ns,
    io_pressure_stalls,
    network_use,
    parsed_pressure,
    pressure_stalls,
)
from nodewright.engine.node.node_cgroups import cgroup_rules, cgroup_tree
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    CPUStats,
    FsStats,
    IOStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    ProcessStats,
    PSIStats,
    RuntimeStats,
    StatsSummary,
    SwapStats,
)
from nodewright.model.values.instant import Instant

CACHE_TTL_S = 1.0
"""Requests within this time get the same answer."""
MIN_CPU_WINDOW_NS = 10**9 // 2
"""The shortest interval for which CPU usage is computed."""
_OF_THE_NODE, _OF_ALL_PODS, _OF_THE_AGENT = "node", "pods", "kubelet"
_PRESSURES = ("cpu.pressure", "memory.pressure", "io.pressure")


class CgroupUsage(NamedTuple):
    """The usage and pressure stalls of a cgroup; without stalls where the kernel does not report them."""

    usage: ContainerUsage
    stalls: Mapping[str, PSIStats | None]
    memory: MemoryCounters


class SummaryProvider:
    """Builds the stats summary; concurrent requests share one."""

    def __init__(self, loop: AgentLoop, pressure: PressureMonitor) -> None:
        self._loop, self._pressure = loop, pressure
        self._cgroups = loop.effect_runner.cgroups
        config = loop.state.node.config
        self._pods_cgroup = cgroup_tree(config).root.path(cgroup_rules(config).driver)
        self._has_psi = config.gates["KubeletPSI"]
        self._lock = asyncio.Lock()
        self._cached: tuple[float, StatsSummary] | None = None
        self._cpu_readings: dict[str, tuple[int, int, int | None]] = {}
        """By object: when it was read, its CPU time, and its usage rate."""
        self._requested_keys: set[str] = set()

    async def usage(self) -> StatsSummary:
        """The stats summary, at most `CACHE_TTL_S` old.

        Errors: HostError.
        """
        async with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] > CACHE_TTL_S:
                self._cached = time.monotonic(), await self._read()
            return self._cached[1]

    async def _read(self) -> StatsSummary:
        state = self._loop.state
        records = [
            pod
            for pod in state.pods.values()
            if pod.stage in LISTED_STAGES and pod.runtime_status is not None
        ]
        cgroup_paths = {
            record.pod.uid: record.cgroup or pod_cgroup(record.pod, state.node.config) for record in records
        }
        cgroup_paths[_OF_ALL_PODS] = self._pods_cgroup
        containers = await self._loop.effect_runner.runtime.usage()
        for record in records:
            cgroup_paths.update(
                {container.id: container.cgroup for container in _running(record) if container.cgroup}
            )
        cgroups = await asyncio.to_thread(self._read_cgroups, cgroup_paths)
        self._requested_keys = set()
        pods = tuple(self._pod_stats(record, containers, cgroups) for record in records)
        usage = StatsSummary(node=self._node_stats(cgroups[_OF_ALL_PODS]), pods=pods)
        self._cpu_readings = {
            key: reading for key, reading in self._cpu_readings.items() if key in self._requested_keys
        }
        return usage

    def _read_cgroups(self, paths: Mapping[str, str]) -> dict[str, CgroupUsage]:
        return {
            key: _read_cgroup(self._cgroups, path, has_psi=self._has_psi)
            for key, path in paths.items()
            if path
        }

    # ------------------------------------------------------------ the node

    def _node_stats(self, pods_cgroup: CgroupUsage) -> NodeStats:
        at = Instant(time.time_ns())
        stats, disks = self._pressure.gauges.node_stats(), self._pressure.disks
        fs = _with_time(disks.fs, at)
        image_fs = _with_time(disks.image_fs, at)
        memory, swap = stats.memory, stats.swap
        if memory is not None:
            memory = replace(memory, time=at, psi=self._pressure_stalls("memory"))
        pods_stats = next(
            (container for container in stats.system_containers if container.name == _OF_ALL_PODS), None
        )
        return NodeStats(
            node_name=self._loop.state.node.config.facts.name,
            system_containers=(self._all_pods_stats(pods_stats, pods_cgroup, at), self._agent_stats(at)),
            memory=memory,
            fs=fs,
            runtime=RuntimeStats(image_fs=image_fs, container_fs=image_fs),
            rlimit=None if stats.rlimit is None else replace(stats.rlimit, time=at),
            swap=None if swap is None else replace(swap, time=at),
            io=io_pressure_stalls() if self._has_psi else None,
            start_time=boot_time(),
            cpu=self._cpu_stats(_OF_THE_NODE, at.nanoseconds, cpu_time_ns(), self._pressure_stalls("cpu")),
            network=network_use(),
        )

    def _pressure_stalls(self, name: str) -> PSIStats | None:
        return pressure_stalls(name) if self._has_psi else None

    def _all_pods_stats(
        self, stats: ContainerStats | None, cgroup: CgroupUsage, at: Instant
    ) -> ContainerStats:
        memory = stats.memory if stats is not None else None
        if memory is not None:
            counters = cgroup.memory
            memory = replace(
                memory,
                time=at,
                rss_bytes=counters.rss_bytes,
                page_faults=counters.page_faults,
                major_page_faults=counters.major_page_faults,
            )
        return ContainerStats(
            name=_OF_ALL_PODS,
            memory=memory,
            cpu=self._cpu_stats(_OF_ALL_PODS, at.nanoseconds, cgroup.usage.cpu_ns, cgroup.stalls.get("cpu")),
            start_time=boot_time(),
        )

    def _agent_stats(self, at: Instant) -> ContainerStats:
        """The agent's own usage, under the name of the kubelet."""
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - three times as fast, for a kernel file
            pages = file.read().split()
        resident = int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
        return ContainerStats(
            name=_OF_THE_AGENT,
            memory=MemoryStats(time=at, usage_bytes=resident, working_set_bytes=resident, rss_bytes=resident),
            cpu=self._cpu_stats(_OF_THE_AGENT, at.nanoseconds, time.process_time_ns()),
            start_time=Instant(self._loop.constants.started_ns),
        )

    # ------------------------------------------------------------ pods

    def _pod_stats(
        self,
        record: PodRecord,
        containers: Mapping[str, ContainerUsage],
        cgroups: Mapping[str, CgroupUsage],
    ) -> PodStats:
        meta, storage = record.pod.metadata, self._pressure.storage.get(record.pod.uid, PodStats())
        container_storage = {container.name: container for container in storage.containers}
        container_stats = tuple(
            self._container_stats(
                container,
                containers[container.id],
                cgroups.get(container.id),
                container_storage.get(container.name),
            )
            for container in _running(record)
            if container.id in containers
        )
        cgroup = cgroups.get(record.pod.uid)
        pod = replace(
            storage,
            pod_ref=PodReference(name=meta.name, namespace=meta.namespace or "default", uid=meta.uid),
            containers=container_stats,
            start_time=Instant.parse(record.status.start_time) if record.status.start_time else None,
        )
        if cgroup is None:
            return pod
        at = Instant(cgroup.usage.at_ns)
        return replace(
            pod,
            cpu=self._cpu_stats(meta.uid, at.nanoseconds, cgroup.usage.cpu_ns, cgroup.stalls.get("cpu")),
            memory=_memory_stats(cgroup.usage, cgroup),
            swap=_swap_stats(cgroup.usage),
            io=_io_stats(cgroup, at),
            processes=ProcessStats(cgroup.usage.processes) if cgroup.usage.processes is not None else None,
        )

    def _container_stats(
        self,
        container: RuntimeContainerStatus,
        usage: ContainerUsage,
        cgroup: CgroupUsage | None,
        storage: ContainerStats | None,
    ) -> ContainerStats:
        stalls, disks = cgroup.stalls if cgroup is not None else {}, self._pressure.disks
        at, storage = Instant(usage.at_ns), storage or ContainerStats()
        return ContainerStats(
            name=container.name,
            memory=_memory_stats(usage, cgroup),
            rootfs=_with_time(storage.rootfs or root_fs_stats(usage, disks.image_fs), at),
            logs=_with_time(_log_stats(storage.logs, disks.fs), at),
            start_time=Instant(container.started_ns),
            cpu=self._cpu_stats(container.id, usage.at_ns, usage.cpu_ns, stalls.get("cpu")),
            swap=_swap_stats(usage),
            io=_io_stats(cgroup, at),
        )

    def _cpu_stats(
        self, key: str, at_ns: int, used_ns: int | None, psi: PSIStats | None = None
    ) -> CPUStats | None:
        """CPU time, and its rate since the previous reading."""
        if used_ns is None:
            return None
        self._requested_keys.add(key)
        previous = self._cpu_readings.get(key)
        nano_cores = previous[2] if previous is not None else None
        if previous is not None and at_ns - previous[0] >= MIN_CPU_WINDOW_NS and used_ns >= previous[1]:
            nano_cores = (used_ns - previous[1]) * 10**9 // (at_ns - previous[0])
        if previous is None or at_ns - previous[0] >= MIN_CPU_WINDOW_NS or used_ns < previous[1]:
            self._cpu_readings[key] = (at_ns, used_ns, nano_cores)
        return CPUStats(
            time=Instant(at_ns), usage_nano_cores=nano_cores, usage_core_nano_seconds=used_ns, psi=psi
        )


def _running(record: PodRecord) -> list[RuntimeContainerStatus]:
    return [container for container in record.containers if container.phase is ContainerPhase.RUNNING]


def _read_cgroup(cgroups: CgroupManager, path: str, *, has_psi: bool) -> CgroupUsage:
    texts = (cgroups.read_files(path, _PRESSURES) or {}) if has_psi and cgroups.version == 2 else {}
    stats = {name.partition(".")[0]: parsed_pressure(text) for name, text in texts.items()}
    memory = memory_counters(cgroups, path) or MemoryCounters()
    return CgroupUsage(cgroup_usage(cgroups, path), stats, memory)


def _memory_stats(usage: ContainerUsage, cgroup: CgroupUsage | None) -> MemoryStats | None:
    """The memory of a pod or container; what is available is known where it has a limit.

    Follows: v1.36, kubelet/stats/helper.go, cadvisorInfoToCPUandMemoryStats.
    """
    if usage.working_set_bytes is None:
        return None
    counters = cgroup.memory if cgroup is not None else MemoryCounters()
    available = max(counters.limit_bytes - usage.working_set_bytes, 0) if counters.limit_bytes else None
    return MemoryStats(
        time=Instant(usage.at_ns),
        available_bytes=available,
        usage_bytes=usage.memory_bytes,
        working_set_bytes=usage.working_set_bytes,
        rss_bytes=usage.rss_bytes if usage.rss_bytes is not None else counters.rss_bytes or None,
        page_faults=counters.page_faults if cgroup is not None else None,
        major_page_faults=counters.major_page_faults if cgroup is not None else None,
        psi=cgroup.stalls.get("memory") if cgroup is not None else None,
    )


def root_fs_stats(usage: ContainerUsage, image_fs: FsStats | None) -> FsStats | None:
    """What a container's writable layer uses of the file system of images; None: the runtime does not report it."""
    if usage.rootfs_bytes is None:
        return None
    used, inodes = usage.rootfs_bytes, usage.rootfs_inodes
    return replace(image_fs or FsStats(), used_bytes=used, inodes_used=inodes)


def _log_stats(logs: FsStats | None, fs: FsStats | None) -> FsStats | None:
    """What a container's logs use of the node's file system."""
    if logs is None or fs is None:
        return logs
    return replace(fs, used_bytes=logs.used_bytes, inodes_used=logs.inodes_used)


def _swap_stats(usage: ContainerUsage) -> SwapStats | None:
    if usage.swap_bytes is None:
        return None
    return SwapStats(time=Instant(usage.at_ns), swap_usage_bytes=usage.swap_bytes)


def _io_stats(cgroup: CgroupUsage | None, at: Instant) -> IOStats | None:
    stats = cgroup.stalls.get("io") if cgroup is not None else None
    return None if stats is None else IOStats(time=at, psi=stats)


def _with_time(stats: FsStats | None, at: Instant) -> FsStats | None:
    return None if stats is None else replace(stats, time=at)


Stats = TypeVar("Stats", NodeStats, PodStats)
_OF_CONTAINER, _OF_POD = ("container", "pod", "namespace"), ("pod", "namespace")


def summary_document(usage: StatsSummary) -> dict[str, Any]:
    """The Summary API's document, without fields that were not observed and pods without containers.

    Follows: v1.36, staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go, Summary: `containers` is always there;
        kubelet/stats/cri_stats_provider.go, listPodStatsPartiallyFromCRI: a pod is listed from its first container on.
    """
    return {
        "node": _document(usage.node),
        "pods": [_document(pod) for pod in usage.pods if pod.containers],
    }


def cpu_and_memory(usage: StatsSummary) -> StatsSummary:
    """The usage of CPU, memory and swap only.

    Follows: v1.36, kubelet/server/stats/summary.go, GetCPUAndMemoryStats.
    """
    pods = (
        replace(
            _only(pod, "pod_ref"),
            containers=tuple(replace(each, rootfs=None, logs=None, io=None) for each in pod.containers),
        )
        for pod in usage.pods
    )
    return StatsSummary(node=_only(usage.node, "node_name", "system_containers"), pods=tuple(pods))


def _only(stats: Stats, *names: str) -> Stats:
    """The stats with CPU, memory, swap, the start, and these fields."""
    kept = ("start_time", "cpu", "memory", "swap", *names)
    return type(stats)(**{name: getattr(stats, name) for name in kept})


def resource_metrics(usage: StatsSummary | None) -> str:
    """`/metrics/resource`, which metrics-server and autoscalers read; None: the reading failed.

    Follows: v1.36, kubelet/metrics/collectors/resource_metrics.go: names, labels, timestamps and omissions.
    """
    parts = []
    if usage is not None:
        parts = [family_text(family, samples) for family, samples in _resource_samples(usage)]
    failed = [MetricSample((), usage is None)]
    help_text = "1 if the reading failed, 0 otherwise."
    for name, prefix in (
        ("resource_scrape_error", ""),
        ("scrape_error", "Deprecated name of resource_scrape_error: "),
    ):
        parts.append(family_text(MetricFamily(name, MetricType.GAUGE, f"{prefix}{help_text}"), failed))
    return "".join(parts)


_FamilySamples: TypeAlias = tuple[MetricFamily, list[MetricSample]]
_Parts: TypeAlias = Sequence[tuple[tuple[str, ...], Any]]
"""Labels, and a NodeStats, PodStats or ContainerStats."""
_Measured: TypeAlias = tuple[float, Instant | None] | None
"""A value and its time; None: not measured."""


def _resource_samples(usage: StatsSummary) -> Iterator[_FamilySamples]:
    node: _Parts = [((), usage.node)]
    pods: _Parts = [((pod.pod_ref.name, pod.pod_ref.namespace), pod) for pod in usage.pods]
    containers: _Parts = [
        ((container.name, *labels), container) for labels, pod in pods for container in pod.containers
    ]
    yield _samples("container_cpu_usage_seconds_total", _OF_CONTAINER, containers)
    yield _samples("container_memory_working_set_bytes", _OF_CONTAINER, containers)
    yield _start_times(containers)
    yield _samples("container_swap_limit_bytes", _OF_CONTAINER, containers)
    yield _samples("container_swap_usage_bytes", _OF_CONTAINER, containers)
    for subject, labels, parts in (("node", (), node), ("pod", _OF_POD, pods)):
        for quantity in ("cpu_usage_seconds_total", "memory_working_set_bytes", "swap_usage_bytes"):
            yield _samples(f"{subject}_{quantity}", labels, parts)


def _samples(name: str, labels: tuple[str, ...], parts: _Parts) -> _FamilySamples:
    subject, _, quantity = name.partition("_")
    about, measured = _QUANTITIES[quantity]
    kind = MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE
    return MetricFamily(name, kind, about.format(subject), labels), [
        MetricSample(values, amount[0], _ms(amount[1]))
        for values, stats in parts
        if (amount := measured(stats)) is not None
    ]


def _start_times(containers: _Parts) -> _FamilySamples:
    about = "Start time of containers since 1970."
    return MetricFamily("container_start_time_seconds", MetricType.GAUGE, about, _OF_CONTAINER), [
        MetricSample(labels, container.start_time.nanoseconds / 10**9)
        for labels, container in containers
        if container.start_time is not None and container.start_time.nanoseconds >= 10**9
    ]


def _cpu_time(stats: NodeStats | PodStats | ContainerStats) -> _Measured:
    if stats.cpu is None or stats.cpu.usage_core_nano_seconds is None:
        return None
    return stats.cpu.usage_core_nano_seconds / 10**9, stats.cpu.time


def _working_set(stats: NodeStats | PodStats | ContainerStats) -> _Measured:
    if stats.memory is None or stats.memory.working_set_bytes is None:
        return None
    return stats.memory.working_set_bytes, stats.memory.time


def _swap_usage(stats: NodeStats | PodStats | ContainerStats) -> _Measured:
    if stats.swap is None or stats.swap.swap_usage_bytes is None:
        return None
    return stats.swap.swap_usage_bytes, stats.swap.time


def _swap_limit(stats: NodeStats | PodStats | ContainerStats) -> _Measured:
    if stats.swap is None or stats.swap.swap_available_bytes is None:
        return None
    return stats.swap.swap_available_bytes + (stats.swap.swap_usage_bytes or 0), stats.swap.time


_QUANTITIES: Mapping[str, tuple[str, Callable[[Any], _Measured]]] = {
    "cpu_usage_seconds_total": ("CPU time used by the {}, in seconds of one CPU.", _cpu_time),
    "memory_working_set_bytes": ("Working set of the {}.", _working_set),
    "swap_usage_bytes": ("Swap usage of the {}.", _swap_usage),
    "swap_limit_bytes": ("Swap limit of the {}.", _swap_limit),
}


def _ms(instant: Instant | None) -> int | None:
    return None if instant is None else instant.nanoseconds // 10**6


def _document(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _document(field_value)
            for field in msgspec.structs.fields(type(value))
            if (field_value := getattr(value, field.name)) is not None and field_value != ()
        }
    if isinstance(value, tuple):
        return [_document(item) for item in value]
    return str(value.whole_second) if isinstance(value, Instant) else value
