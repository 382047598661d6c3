"""Forecasts the evictions until pressure is relieved, if nothing else changes on the node."""

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_manager import synchronize
from nodewright.engine.core.eviction.eviction_ranking import (
    ActivePod,
    FsStatsType,
    disk_usage,
    fs_stats_to_measure,
)
from nodewright.engine.core.eviction.eviction_state import (
    Eviction,
    EvictionObservation,
    EvictionPass,
    EvictionState,
)
from nodewright.engine.core.eviction.eviction_thresholds import (
    PODS_CGROUP,
    EvictionConfig,
    NodeFilesystems,
    signal_observations,
)
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.stats_summary import FsStats, MemoryStats, PodStats, StatsSummary
from nodewright.model.values.quantity import Quantity

MONITORING_PERIOD_S = 10
"""The interval between passes that evict no pod.

Follows: v1.36, pkg/kubelet/kubelet.go, evictionMonitoringPeriod.
"""

CLEANUP_POLL_S = 1
"""The least delay after an eviction: the manager checks each second whether the pod is cleaned up.

Follows: v1.36, eviction/eviction_manager.go, waitForPodsCleanup.
"""


class ForecastEviction(msgspec.Struct, frozen=True, kw_only=True):
    """An eviction, and the resources that it frees.

    Units: at_s in seconds from now, at the earliest: without termination time; freed in bytes, or pieces of inodes and processes.
    """

    eviction: Eviction
    at_s: int
    signal: Signal | None
    """The signal that causes the eviction; None: the pod exceeds a limit."""
    freed: int | None
    """The increase of the available amount; None: no signal."""
    available_after: Quantity | None
    """The available amount afterwards."""


class EvictionForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The evictions if usage stays constant and an evicted pod frees all that was measured for it."""

    first_pass: EvictionPass
    """The first pass, now."""
    first_acting_pass: EvictionPass
    """The first pass that reclaims or evicts; else the first pass."""
    evictions: tuple[ForecastEviction, ...] = ()
    last_pass: EvictionPass
    """The pass after which nothing changes."""
    final_observation: EvictionObservation
    """The observation after the last pass."""

    @property
    def is_relieved(self) -> bool:
        """Whether no threshold is met at the end, minimum reclaim included."""
        return (
            not self.last_pass.met and self.last_pass.stopped is None
        ) or self.last_pass.relieved_by_reclaim


def eviction_forecast(
    rules: EvictionConfig,
    observation: EvictionObservation,
    state: EvictionState,
    after: StatsSummary | None = None,
) -> EvictionForecast:
    """The passes from now until one evicts no pod and no grace period is running.

    ``after`` is the stats summary after node-level reclaim; None: reclaim has no effect. An evicted pod frees its
    working set, files and processes as measured; a real one may share some of them.

    Follows: v1.36, eviction/eviction_manager.go, Start, synchronize.
    Departs: the kubelet waits up to 30 seconds for an evicted pod's cleanup; here it is immediate.
    """
    at_s, evictions = 0, list[ForecastEviction]()
    first = current = synchronize(rules, state, observation, at_s, after)
    deciding = None
    while True:
        if deciding is None and (current.evictions or current.target is not None):
            deciding = current
        if current.reclaimed and after is not None:
            observation = replace(observation, usage=after)
        for eviction in current.evictions:
            observation, forecast = _evicted(observation, current, eviction, at_s)
            evictions.append(forecast)
        wait_s = CLEANUP_POLL_S if current.evictions else _until_due_s(current)
        if wait_s is None:
            break
        at_s += wait_s
        # Later stats count as new, whatever the time of the first summary.
        current = synchronize(rules, replace(current.state, last_measured_at={}), observation, at_s, after)
    return EvictionForecast(
        first_pass=first,
        first_acting_pass=deciding or first,
        evictions=tuple(evictions),
        last_pass=current,
        final_observation=observation,
    )


def _until_due_s(current: EvictionPass) -> int | None:
    """The time of the pass at which the next grace period ends; None: none is running, or the manager has stopped."""
    if current.stopped is not None:
        return None
    waits = [
        (entry.threshold.grace_period.nanoseconds - entry.met_for.nanoseconds) / 10**9
        for entry in current.met
        if not entry.is_due
    ]
    return -int(-min(waits) // MONITORING_PERIOD_S) * MONITORING_PERIOD_S if waits else None


def _evicted(
    observation: EvictionObservation, current: EvictionPass, eviction: Eviction, at_s: int
) -> tuple[EvictionObservation, ForecastEviction]:
    """The observation after the eviction, and its forecast."""
    assert observation.usage is not None
    disks = current.state.filesystems or observation.filesystems
    usage = usage_without_pod(observation.usage, eviction.active_pod, disks)
    remaining = replace(
        observation,
        usage=usage,
        active_pods=tuple(pod for pod in observation.active_pods if pod.uid != eviction.active_pod.uid),
    )
    signal = current.target.signal if current.target is not None else None
    freed, available = None, None
    if signal is not None:
        available = signal_observations(usage)[signal].available
        freed = available.value() - signal_observations(observation.usage)[signal].available.value()
    return remaining, ForecastEviction(
        eviction=eviction, at_s=at_s, signal=signal, freed=freed, available_after=available
    )


def usage_without_pod(
    usage: StatsSummary, active_pod: ActivePod, filesystems: NodeFilesystems
) -> StatsSummary:
    """The stats summary without the pod: all that was measured for it becomes available."""
    pod_stats = next((pod for pod in reversed(usage.pods) if pod.pod_ref.uid == active_pod.uid), None)
    if pod_stats is None:
        return usage
    node, memory = usage.node, (pod_stats.memory.working_set_bytes or 0) if pod_stats.memory else 0
    limit, processes = node.rlimit, (pod_stats.processes.process_count or 0) if pod_stats.processes else 0
    if limit is not None and limit.running is not None:
        limit = replace(limit, running=max(limit.running - processes, 0))
    runtime = node.runtime
    if runtime is not None:
        images = fs_stats_to_measure(Signal.IMAGEFS_AVAILABLE, filesystems)
        layers = fs_stats_to_measure(Signal.CONTAINERFS_AVAILABLE, filesystems)
        runtime = replace(
            runtime,
            image_fs=_fs_without_pod(runtime.image_fs, pod_stats, active_pod, images),
            container_fs=_fs_without_pod(runtime.container_fs, pod_stats, active_pod, layers),
        )
    return replace(
        usage,
        node=replace(
            node,
            memory=_with_memory(node.memory, memory),
            system_containers=tuple(
                replace(container, memory=_with_memory(container.memory, memory))
                if container.name == PODS_CGROUP
                else container
                for container in node.system_containers
            ),
            fs=_fs_without_pod(
                node.fs, pod_stats, active_pod, fs_stats_to_measure(Signal.NODEFS_AVAILABLE, filesystems)
            ),
            runtime=runtime,
            rlimit=limit,
        ),
        pods=tuple(pod for pod in usage.pods if pod.pod_ref.uid != active_pod.uid),
    )


def _with_memory(memory: MemoryStats | None, freed: int) -> MemoryStats | None:
    if memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return memory
    freed = min(freed, memory.working_set_bytes)
    return replace(
        memory,
        available_bytes=memory.available_bytes + freed,
        working_set_bytes=memory.working_set_bytes - freed,
    )


def _fs_without_pod(
    fs: FsStats | None, pod_stats: PodStats, active_pod: ActivePod, parts: frozenset[FsStatsType]
) -> FsStats | None:
    if fs is None:
        return None
    return replace(
        fs,
        available_bytes=_increased(
            fs.available_bytes, disk_usage(active_pod, pod_stats, parts, inodes=False), fs.capacity_bytes
        ),
        inodes_free=_increased(
            fs.inodes_free, disk_usage(active_pod, pod_stats, parts, inodes=True), fs.inodes
        ),
    )


def _increased(available: int | None, freed: int, capacity: int | None) -> int | None:
    if available is None:
        return None
    return available + freed if capacity is None else max(available, min(available + freed, capacity))
