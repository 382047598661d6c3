"""Eviction policies: how often a node is measured and what counts as available, the kubelet's policy and others.

The next measurement depends on the distance to each threshold and on how fast it shrinks. A forecast tells the evictions until
pressure is relieved, if nothing else changes on the node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

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
    SignalObservations,
    signal_observations,
    threshold_amount,
)
from nodewright.model.kubernetes.eviction_thresholds import (
    SIGNAL_CONDITIONS,
    NodeCondition,
    Signal,
    Threshold,
)
from nodewright.model.kubernetes.stats_summary import FsStats, MemoryStats, PodStats, StatsSummary, SwapStats
from nodewright.model.values.custom_policy import (
    CustomPolicy,
    CustomPolicyError,
    docstring_summary,
    failure_text,
)
from nodewright.model.values.quantity import Quantity

SECOND_NS = 10**9
MONITORING_PERIOD_S = 10
"""The kubelet's interval between two passes that evict no pod.

Follows: v1.36, pkg/kubelet/kubelet.go, evictionMonitoringPeriod.
"""
MONITORING_INTERVAL_NS = MONITORING_PERIOD_S * SECOND_NS
NEAR_INTERVAL_NS = 50_000_000
"""The longest interval between two measurements when a threshold is near."""
MIN_INTERVAL_NS = 5_000_000
"""The shortest interval between two measurements, when a threshold is about to be crossed."""
MIN_GROWTH_PERMILLE = 10
"""The least growth that is assumed, in thousandths of the capacity per second."""
MIN_MEMORY_GROWTH_BYTES = 1 << 30
"""The least growth of memory that is assumed, in bytes per second."""
SAFETY_FACTOR = 2
"""At the assumed growth, at most 1/SAFETY_FACTOR of the margin is used up by the next measurement."""

CLEANUP_POLL_S = 1
"""The least delay after an eviction: the manager checks each second whether the pod is cleaned up.

Follows: v1.36, eviction/eviction_manager.go, waitForPodsCleanup.
"""


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """The distance of a signal from its threshold, and how fast it shrinks.

    Units: bytes, or pieces; growth per second.
    """

    margin: int
    """What is available beyond the threshold; 0 or less: the threshold is met."""
    capacity: int
    growth_per_s: int = 0
    """Decrease of the available amount per second, as last measured; below 0: it increases."""
    min_growth_per_s: int = 0
    """The least growth that is assumed, whatever was measured."""


def interval_ns(headroom: Headroom) -> int:
    """The time until the next measurement: margin by growth, from 50 milliseconds to the kubelet's interval.

    The assumed growth is at least `min_growth_per_s` and a hundredth of the capacity per second. While the real
    growth does not exceed it, a crossed threshold is detected within 50 milliseconds; within 5 milliseconds if the
    measured growth continues.

    >>> [interval_ns(Headroom(margin=left, capacity=1000)) // 10**6 for left in (1000, 100, 10, 1, 0)]
    [10000, 5000, 500, 50, 50]
    >>> interval_ns(Headroom(margin=100, capacity=1000, growth_per_s=100)) // 10**6
    500
    """
    assumed_growth = max(
        headroom.growth_per_s, headroom.min_growth_per_s, headroom.capacity * MIN_GROWTH_PERMILLE // 1000, 1
    )
    wait_ns = min(
        max(headroom.margin * SECOND_NS // (SAFETY_FACTOR * assumed_growth), NEAR_INTERVAL_NS),
        MONITORING_INTERVAL_NS,
    )
    if headroom.margin <= 0 or headroom.growth_per_s <= 0:
        return wait_ns
    # With measured growth, the measurement is not later than the expected crossing.
    return min(wait_ns, max(headroom.margin * SECOND_NS // headroom.growth_per_s, MIN_INTERVAL_NS))


IntervalFunction: TypeAlias = Callable[[Sequence[Headroom], int | None], int]
"""The time until the next measurement in nanoseconds, from the headrooms of the thresholds that are not met and the
time until a grace period ends; None: none is running."""


class EvictionPolicy(CustomPolicy, frozen=True, kw_only=True):
    """When to measure, and what counts as available. The choice of pods is the same for all: see `synchronize`.

    >>> EvictionPolicy(name="lazy", interval_function=lambda headrooms, due_in_ns: 60 * SECOND_NS).interval_ns(())
    60000000000
    """

    interval_function: IntervalFunction
    counts_swap: bool = False
    """Whether free swap counts as available memory, and the pods' swap as used memory."""
    reads_fresh_pod_stats: bool = True
    """Whether the pods' stats are read at each measurement rather than cached for some seconds."""
    uses_memory_notifier: bool = False
    """Whether it uses the kernel's memory notifications, where available."""
    waits_for_cleanup: bool = False
    """Whether the next pass waits until an evicted pod is cleaned up."""
    fixed_interval_ns: int | None = None
    """What `interval_function` returns if it is always the same; None: it depends on its arguments."""

    kind: ClassVar[str] = "eviction policy"
    profile_field: ClassVar[str] = "eviction"

    def interval_ns(self, headrooms: Sequence[Headroom], due_in_ns: int | None = None) -> int:
        """The time until the next measurement.

        Errors: CustomPolicyError if the function fails, or returns no positive number of nanoseconds.
        """
        try:
            interval = self.interval_function(headrooms, due_in_ns)
        except Exception as error:
            raise CustomPolicyError(self, f"fails: {failure_text(error)}") from error
        if not isinstance(interval, int) or interval < 1:
            raise CustomPolicyError(self, f"returns {interval!r}, which is no number of nanoseconds above 0")
        return interval

    def adjusted_usage(self, usage: StatsSummary) -> StatsSummary:
        """The stats summary with swap counted as this policy does."""
        return with_swap(usage) if self.counts_swap else usage


def eviction_policy(
    name: str,
    *,
    counts_swap: bool = False,
    reads_pods_now: bool = True,
    is_notified: bool = False,
    waits_for_cleanup: bool = False,
) -> Callable[[IntervalFunction], EvictionPolicy]:
    """Decorator that makes a function an eviction policy; its docstring's first line is the description."""

    def decorated(interval_of: IntervalFunction) -> EvictionPolicy:
        return EvictionPolicy(
            name=name,
            description=docstring_summary(interval_of.__doc__),
            interval_function=interval_of,
            counts_swap=counts_swap,
            reads_fresh_pod_stats=reads_pods_now,
            uses_memory_notifier=is_notified,
            waits_for_cleanup=waits_for_cleanup,
        )

    return decorated


def _every_ten_seconds(headrooms: Sequence[Headroom], due_in_ns: int | None) -> int:
    del headrooms, due_in_ns
    return MONITORING_INTERVAL_NS


def with_swap(usage: StatsSummary) -> StatsSummary:
    """The stats summary with swap counted as memory: free swap as available, used swap as used."""
    node = usage.node
    systems = tuple(
        replace(container, memory=_memory_with_swap(container.memory, node.swap, 0))
        for container in node.system_containers
    )
    memory = _memory_with_swap(node.memory, node.swap, (node.swap.swap_usage_bytes or 0) if node.swap else 0)
    return replace(
        usage,
        node=replace(node, memory=memory, system_containers=systems),
        pods=tuple(map(_pod_with_swap, usage.pods)),
    )


def due_in_ns(state: EvictionState, now_ns: int) -> int | None:
    """The time until the first running grace period ends; None: none is running."""
    remaining_ns = [
        state.thresholds[index].grace_period.nanoseconds - (now_ns - since_ns)
        for index, since_ns in state.first_observed_at_ns.items()
        if index not in state.due_indices
    ]
    return min(remaining_ns, default=None)


def _memory_with_swap(memory: MemoryStats | None, swap: SwapStats | None, used: int) -> MemoryStats | None:
    if memory is None or swap is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return memory
    return replace(
        memory,
        available_bytes=memory.available_bytes + (swap.swap_available_bytes or 0),
        working_set_bytes=memory.working_set_bytes + used,
    )


def _pod_with_swap(pod: PodStats) -> PodStats:
    used = pod.swap.swap_usage_bytes if pod.swap is not None else None
    if not used or pod.memory is None or pod.memory.working_set_bytes is None:
        return pod
    return replace(pod, memory=replace(pod.memory, working_set_bytes=pod.memory.working_set_bytes + used))


KUBELET = EvictionPolicy(
    name="kubelet",
    description="Checks every 10 s; swap does not count.",
    interval_function=_every_ten_seconds,
    reads_fresh_pod_stats=False,
    uses_memory_notifier=True,
    waits_for_cleanup=True,
    fixed_interval_ns=MONITORING_INTERVAL_NS,
)


def _by_distance(headrooms: Sequence[Headroom], due_in_ns: int | None) -> int:
    nearest = min(map(interval_ns, headrooms), default=MONITORING_INTERVAL_NS)
    return nearest if due_in_ns is None else max(min(nearest, due_in_ns), NEAR_INTERVAL_NS)


ADAPTIVE = EvictionPolicy(
    name="adaptive",
    description="Checks after margin / growth, every 50 ms near a threshold.",
    interval_function=_by_distance,
)
SWAP_AWARE = EvictionPolicy(
    name="swap-aware",
    description="As adaptive; free swap counts as available memory, used swap as used memory.",
    interval_function=_by_distance,
    counts_swap=True,
)
POLICIES: Mapping[str, EvictionPolicy] = {policy.name: policy for policy in (KUBELET, ADAPTIVE, SWAP_AWARE)}
"""The built-in policies by name, the kubelet's first."""


class ThresholdDistances(msgspec.Struct, frozen=True, kw_only=True):
    """The headrooms of all thresholds whose signals were observed, at one measurement.

    Units: at_ns in nanoseconds on a clock that does not go backwards.
    """

    at_ns: int
    headrooms: Mapping[Threshold, Headroom] = {}

    @property
    def met(self) -> frozenset[Threshold]:
        """The thresholds that are met."""
        return frozenset(threshold for threshold, headroom in self.headrooms.items() if headroom.margin < 0)

    def wait_ns(self, policy: EvictionPolicy, due_in_ns: int | None = None) -> int:
        """The time until the policy's next measurement; thresholds that are already met do not count.

        ``due_in_ns``: the time until a grace period ends; None: none is running.
        """
        return policy.interval_ns(
            [headroom for headroom in self.headrooms.values() if headroom.margin >= 0], due_in_ns
        )


def threshold_distances(
    thresholds: Iterable[Threshold],
    observed: SignalObservations,
    now_ns: int,
    before: ThresholdDistances | None = None,
) -> ThresholdDistances:
    """The headrooms now; their growth is derived from the previous measurement."""
    headrooms = {}
    elapsed_ns = now_ns - before.at_ns if before is not None else 0
    for threshold in thresholds:
        observation = observed.get(threshold.signal)
        if observation is None:
            continue
        margin = observation.available.value() - threshold_amount(threshold, observation.capacity).value()
        last = before.headrooms.get(threshold) if before is not None else None
        growth = (
            (last.margin - margin) * SECOND_NS // elapsed_ns if last is not None and elapsed_ns > 0 else 0
        )
        is_memory = SIGNAL_CONDITIONS[threshold.signal] is NodeCondition.MEMORY_PRESSURE
        min_growth = MIN_MEMORY_GROWTH_BYTES if is_memory else 0
        headrooms[threshold] = Headroom(
            margin=margin,
            capacity=observation.capacity.value(),
            growth_per_s=growth,
            min_growth_per_s=min_growth,
        )
    return ThresholdDistances(at_ns=now_ns, headrooms=headrooms)


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
