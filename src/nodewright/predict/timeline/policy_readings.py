"""Memory as an eviction policy observes it: node and all pods at present, each pod at its last measurement.

Also the margins to the policy's thresholds, and the time until its next check.
"""

from collections.abc import Iterable

from nodewright.engine.core.eviction.eviction_policy import MIN_MEMORY_GROWTH_BYTES, EvictionPolicy, Headroom
from nodewright.engine.core.eviction.eviction_state import MetThreshold
from nodewright.engine.core.eviction.eviction_thresholds import threshold_amount
from nodewright.model.kubernetes.eviction_thresholds import Signal, Threshold
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    StatsSummary,
    SwapStats,
)
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.predict.timeline.node_memory import NodeMemory
from nodewright.predict.timeline.timeline_model import SECOND_NS, LimitScope, LimitWatch, PodMemory

PODS = "pods"


class PolicyReadings:
    """Stats summaries of a timeline; ``always_fresh``: pod stats are measured at each check."""

    def __init__(self, memory: NodeMemory, *, always_fresh: bool) -> None:
        self._memory = memory
        self._age_ns = 0 if always_fresh else memory.setup.assumptions.stats_age_ns
        self._cached: dict[str, tuple[int, PodStats]] = {}

    def node(self, now_ns: int) -> StatsSummary:
        """Stats of the node and of all pods together, as of now."""
        memory = self._memory
        swapped, at = memory.in_swap_bytes(now_ns), Instant(now_ns)
        used = memory.node_amount.bytes_at(now_ns) - swapped
        in_pods = memory.pods_amount.bytes_at(now_ns) - swapped
        pods = _capacity_stats(in_pods, memory.pods_capacity_bytes(), at)
        swap = None
        if memory.setup.swap_bytes:
            # Swap that no pod may use does not count as available.
            free = max(memory.usable_swap_bytes - swapped, 0)
            swap = SwapStats(time=at, swap_available_bytes=free, swap_usage_bytes=swapped)
        return StatsSummary(
            node=NodeStats(
                memory=_capacity_stats(used, memory.setup.memory_bytes, at),
                system_containers=(ContainerStats(name=PODS, memory=pods),),
                swap=swap,
            )
        )

    def pods(self, now_ns: int) -> tuple[PodStats, ...]:
        """The last measured stats of each pod that has not terminated."""
        swapped = self._memory.in_swap_bytes(now_ns)
        count = len(self._memory.pods)
        return tuple(
            self._pod(pod, self.measured_ns(index, count, now_ns), swapped)
            for index, pod in enumerate(self._memory.setup.pods)
            if pod.has_stats and pod.uid in self._memory.pods
        )

    def measured_ns(self, index: int, count: int, now_ns: int) -> int:
        """When the pod at this index was last measured; measurements of all pods are spread evenly."""
        if not self._age_ns:
            return now_ns
        offset_ns = index * self._age_ns // max(count, 1)
        return max((now_ns - offset_ns) // self._age_ns * self._age_ns + offset_ns, 0)

    def _pod(self, pod: PodMemory, at_ns: int, swapped: int) -> PodStats:
        cached = self._cached.get(pod.uid)
        if cached is not None and cached[0] == at_ns and not swapped:
            return cached[1]
        at, pod_swap, containers = Instant(at_ns), 0, []
        for container in pod.containers:
            key = (pod.uid, container.name)
            swap_share = (
                swapped * container.swap_bytes // max(self._memory.usable_swap_bytes, 1)
                if key in self._memory.running
                else 0
            )
            used = self._memory.container_amounts[key].bytes_at(at_ns)
            swap_share = min(swap_share, used)
            pod_swap += swap_share
            containers.append(ContainerStats(name=container.name, memory=_usage_stats(used - swap_share, at)))
        pod_bytes = self._memory.pod_amounts[pod.uid].bytes_at(at_ns)
        meta = pod.claim.pod.metadata
        pod_stats = PodStats(
            pod_ref=PodReference(name=meta.name, namespace=meta.namespace, uid=pod.uid),
            containers=tuple(containers),
            memory=_usage_stats(pod_bytes - pod_swap, at),
            swap=SwapStats(time=at, swap_usage_bytes=pod_swap) if swapped else None,
        )
        self._cached[pod.uid] = at_ns, pod_stats
        return pod_stats


def _capacity_stats(used: int, capacity: int, at: Instant) -> MemoryStats:
    used = max(used, 0)
    available = max(capacity - used, 0)
    return MemoryStats(time=at, available_bytes=available, working_set_bytes=capacity - available)


def _usage_stats(used: int, at: Instant) -> MemoryStats:
    return MemoryStats(time=at, working_set_bytes=max(used, 0))


class PolicyDistances:
    """The margins to the thresholds on a node's memory, as a policy computes them."""

    def __init__(self, memory: NodeMemory, policy: EvictionPolicy) -> None:
        self._memory, self._policy = memory, policy
        self._watches: dict[Threshold, LimitWatch] = {}
        self._previous: tuple[int, tuple[int, ...]] | None = None
        """Time and margins of the last check."""

    @property
    def is_any_crossed(self) -> bool:
        """Whether a signal is below its threshold, observed or not."""
        return any(watch.is_above for watch in self._watches.values())

    def add_threshold(self, threshold: Threshold) -> None:
        """Watches the threshold."""
        memory, is_node = self._memory, threshold.signal is Signal.MEMORY_AVAILABLE
        capacity = memory.setup.memory_bytes if is_node else memory.pods_capacity_bytes()
        swap = memory.usable_swap_bytes if self._policy.counts_swap else 0
        amount = threshold_amount(threshold, Quantity.of(capacity + swap, QuantityFormat.BINARY_SI)).value()
        watch = LimitWatch(
            amount=memory.node_amount if is_node else memory.pods_amount,
            base_bytes=capacity - amount + 1,
            scope=LimitScope.NODE if is_node else LimitScope.PODS,
            subject=threshold.signal.value,
            threshold=threshold,
            counts_swap=self._policy.counts_swap,
            capacity_bytes=capacity,
        )
        self._watches[threshold] = watch
        memory.watch_limit(watch)

    def wait_ns(self, now_ns: int, met: Iterable[MetThreshold]) -> int:
        """Time until the policy's next check; ``met`` are the thresholds that the last check found met."""
        met_by_threshold = {met_threshold.threshold: met_threshold for met_threshold in met}
        swapped = self._memory.in_swap_bytes(now_ns)
        margins = [
            (threshold, *self._margin(now_ns, watch, swapped)) for threshold, watch in self._watches.items()
        ]
        before, self._previous = self._previous, (now_ns, tuple(margin for _, margin, _ in margins))
        headroom = []
        for index, (threshold, margin, capacity) in enumerate(margins):
            growth = 0
            if before is not None and now_ns > before[0]:
                growth = (before[1][index] - margin) * SECOND_NS // (now_ns - before[0])
            if threshold not in met_by_threshold:
                headroom.append(
                    Headroom(
                        margin=margin,
                        capacity=capacity,
                        growth_per_s=growth,
                        min_growth_per_s=MIN_MEMORY_GROWTH_BYTES,
                    )
                )
        waits = [
            met_threshold.threshold.grace_period.nanoseconds - met_threshold.met_for.nanoseconds
            for met_threshold in met_by_threshold.values()
            if not met_threshold.is_due
        ]
        return self._policy.interval_ns(headroom, min(waits, default=None))

    @staticmethod
    def _margin(now_ns: int, watch: LimitWatch, swapped: int) -> tuple[int, int]:
        """What is left above the threshold, and the capacity."""
        used = watch.amount.bytes_at(now_ns) - (0 if watch.counts_swap else swapped)
        return watch.limit_bytes - 1 - used, watch.capacity_bytes + watch.swap_bytes
