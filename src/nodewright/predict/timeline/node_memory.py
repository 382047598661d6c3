"""Memory of a node over time: usage of containers, pods, all pods and the node, their limits and swap.

Also the back-off after which the kubelet restarts containers that the kernel killed.
"""

from collections.abc import Iterable, Iterator

from nodewright.engine.core.eviction.eviction_policy import MIN_MEMORY_GROWTH_BYTES, EvictionPolicy, Headroom
from nodewright.engine.core.eviction.eviction_state import MetThreshold
from nodewright.engine.core.eviction.eviction_thresholds import threshold_amount
from nodewright.engine.core.requests.oom_adjust import OOMCandidate, min_free_bytes
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
from nodewright.predict.timeline.timeline_model import (
    NANO,
    ContainerKey,
    ContainerMemory,
    EventOrder,
    LimitReached,
    LimitScope,
    LimitWatch,
    LinearAmount,
    MemoryEmptied,
    PodMemory,
    TimelineQueue,
    TimelineSetup,
)
from nodewright.predict.timeline.usage_forecast import SECOND_NS, Growth

SYSTEM_KEY: ContainerKey = ("", "")


class NodeMemory:
    """Memory usage on a node; schedules an event for each limit that will be reached."""

    def __init__(self, setup: TimelineSetup, events: TimelineQueue) -> None:
        self.setup = setup
        self._events = events
        self.containers: dict[ContainerKey, ContainerMemory] = {}
        self.pods: dict[str, PodMemory] = {pod.uid: pod for pod in setup.pods}
        self.container_amounts: dict[ContainerKey, LinearAmount] = {
            SYSTEM_KEY: LinearAmount(setup.system_bytes)
        }
        self.pod_amounts: dict[str, LinearAmount] = {}
        self.rates: dict[ContainerKey, int] = {}
        """Growth of each container while it runs, in bytes per second."""
        self._watches: dict[LinearAmount, list[LimitWatch]] = {}
        for pod in setup.pods:
            for container in pod.containers:
                key = (pod.uid, container.name)
                self.containers[key] = container
                self.container_amounts[key] = LinearAmount(container.used_bytes)
            self.pod_amounts[pod.uid] = LinearAmount(
                sum(container.used_bytes for container in pod.containers)
            )
        self.running: set[ContainerKey] = set(self.container_amounts)
        in_pods = setup.pods_other_bytes + sum(container.used_bytes for container in self.containers.values())
        self.pods_amount = LinearAmount(in_pods)
        self.node_amount = LinearAmount(in_pods + setup.system_bytes)
        kept_free = setup.assumptions.kept_free_bytes
        usable_bytes = max(setup.memory_bytes - setup.huge_page_bytes, 0)
        self.ram_bytes = usable_bytes - (min_free_bytes(usable_bytes) if kept_free is None else kept_free)
        """Memory of the node that processes can use."""
        self._set_limits()

    # ------------------------------------------------------------ usage

    @property
    def usable_swap_bytes(self) -> int:
        """Swap that the running containers can use together."""
        if not self.setup.swap_bytes:
            return 0
        allowed = sum(
            container.swap_bytes for key, container in self.containers.items() if key in self.running
        )
        return min(allowed, self.setup.swap_bytes)

    def in_swap_bytes(self, now_ns: int) -> int:
        """Swap in use: usage excess the node's memory or excess the limit of all pods, up to what pods may swap."""
        if not self.setup.swap_bytes:
            return 0
        excess = self.node_amount.bytes_at(now_ns) - self.ram_bytes
        if self.setup.pods_limit_bytes is not None:
            excess = max(excess, self.pods_amount.bytes_at(now_ns) - self.setup.pods_limit_bytes)
        return min(max(excess, 0), self.usable_swap_bytes)

    def pods_capacity_bytes(self) -> int:
        """Memory that all pods together can use."""
        limit = self.setup.pods_limit_bytes
        return self.setup.memory_bytes if limit is None else limit

    # ------------------------------------------------------------ changes

    def grow(self, now_ns: int, growth: Growth) -> None:
        """Sets the growth of a container; if it does not run, from its next restart on."""
        key = (growth.pod, growth.container)
        self.rates[key] = growth.rate
        if key in self.running:
            self._set(now_ns, key, rate=growth.rate, to_bytes=growth.to_bytes)

    def empty_container(self, now_ns: int, event: MemoryEmptied) -> None:
        """Sets the container's usage to 0, unless its growth has changed since the event was scheduled."""
        if self.container_amounts[event.key].version == event.version:
            self._set(now_ns, event.key, rate=0, to_bytes=0)

    def end_container(self, now_ns: int, key: ContainerKey) -> int:
        """Ends the container; the memory that this frees.

        Units: bytes.
        """
        if key not in self.running:
            return 0
        remaining = self.setup.system_bytes if key == SYSTEM_KEY else 0
        freed = self.container_amounts[key].bytes_at(now_ns) - remaining
        self._set(now_ns, key, rate=0, to_bytes=remaining)
        if key == SYSTEM_KEY:
            # The growth was one process; the others continue.
            return freed
        self.running.discard(key)
        if self.setup.swap_bytes:
            self._update_swap_limits(now_ns)
        return freed

    def restart_container(self, now_ns: int, key: ContainerKey) -> None:
        """Restarts the container with no usage and its previous growth."""
        self.running.add(key)
        self._set(now_ns, key, rate=self.rates.get(key, 0), to_bytes=0)
        if self.setup.swap_bytes:
            self._update_swap_limits(now_ns)

    def _set(self, now_ns: int, key: ContainerKey, *, rate: int, to_bytes: int | None) -> None:
        amount = self.container_amounts[key]
        by_rate = rate - amount.rate
        by_nanobytes = 0 if to_bytes is None else to_bytes * NANO - amount.nanobytes_at(now_ns)
        for changed in self._amounts_of(key):
            changed.change(now_ns, by_nanobytes=by_nanobytes, by_rate=by_rate)
            for watch in self._watches.get(changed, ()):
                self._schedule_reaching(now_ns, watch)
        empty_ns = amount.empties_ns()
        if empty_ns is not None:
            self._events.schedule(empty_ns, MemoryEmptied(key, amount.version), EventOrder.EMPTY)

    def _amounts_of(self, key: ContainerKey) -> tuple[LinearAmount, ...]:
        amount = self.container_amounts[key]
        if key == SYSTEM_KEY:
            return amount, self.node_amount
        return amount, self.pod_amounts[key[0]], self.pods_amount, self.node_amount

    # ------------------------------------------------------------ limits

    def watch_limit(self, watch: LimitWatch) -> None:
        """Schedules an event for when the limit is reached."""
        self._watches.setdefault(watch.amount, []).append(watch)
        watch.swap_bytes = self.usable_swap_bytes if watch.counts_swap else 0
        self._schedule_reaching(0, watch)

    def is_due(self, now_ns: int, event: LimitReached) -> bool:
        """Whether the limit is reached now and was not before; marks the watch."""
        watch = event.watch
        if event.version != watch.amount.version or watch.is_above:
            return False
        watch.is_above = self.is_at_limit(now_ns, watch)
        return watch.is_above

    @staticmethod
    def is_at_limit(now_ns: int, watch: LimitWatch) -> bool:
        """Whether the amount is at its limit or above."""
        return watch.amount.nanobytes_at(now_ns) >= watch.limit_bytes * NANO

    def _schedule_reaching(self, now_ns: int, watch: LimitWatch) -> None:
        if watch.is_above and not self.is_at_limit(now_ns, watch):
            watch.is_above = False
        at_ns = None if watch.is_above else watch.amount.reaches_ns(watch.limit_bytes)
        if at_ns is not None:
            event = LimitReached(watch, watch.amount.version)
            self._events.schedule(max(at_ns, now_ns), event, EventOrder.LIMIT)

    def _set_limits(self) -> None:
        setup = self.setup
        for key, container in self.containers.items():
            if container.limit_bytes is not None:
                limit = container.limit_bytes + container.swap_bytes
                self.watch_limit(
                    LimitWatch(self.container_amounts[key], limit, LimitScope.CONTAINER, key[1], key)
                )
        for pod in setup.pods:
            if pod.limit_bytes is not None:
                limit = pod.limit_bytes + sum(container.swap_bytes for container in pod.containers)
                name = pod.claim.pod.full_name
                self.watch_limit(
                    LimitWatch(self.pod_amounts[pod.uid], limit, LimitScope.POD, name, (pod.uid, ""))
                )
        if setup.pods_limit_bytes is not None:
            limit = setup.pods_limit_bytes
            self.watch_limit(
                LimitWatch(self.pods_amount, limit, LimitScope.PODS, "all pods", counts_swap=True)
            )
        self.watch_limit(
            LimitWatch(self.node_amount, self.ram_bytes, LimitScope.NODE, "the node", counts_swap=True)
        )

    def _update_swap_limits(self, now_ns: int) -> None:
        """Updates limits that include swap: usable swap depends on which containers run."""
        for watch in (*self._watches[self.node_amount], *self._watches.get(self.pods_amount, ())):
            if watch.counts_swap:
                watch.swap_bytes = self.usable_swap_bytes
                self._schedule_reaching(now_ns, watch)

    # ------------------------------------------------------------ OOM candidates

    def processes(self, now_ns: int, watch: LimitWatch) -> list[OOMCandidate]:
        """The processes that the kernel chooses from at this limit, in order of pods and containers."""
        candidates = [
            self._process(now_ns, key) for key in self._containers_under(watch) if key in self.running
        ]
        grown = self.container_amounts[SYSTEM_KEY].bytes_at(now_ns) - self.setup.system_bytes
        if watch.scope is LimitScope.NODE and grown > 0 and SYSTEM_KEY in self.running:
            # Outside pods, only the growth is known to be one process.
            candidates.append(OOMCandidate(pod="", used_bytes=grown))
        return candidates

    def _process(self, now_ns: int, key: ContainerKey) -> OOMCandidate:
        container = self.containers[key]
        used = max(self.container_amounts[key].bytes_at(now_ns) - container.file_bytes, 0)
        return OOMCandidate(
            pod=key[0], container=key[1], oom_score_adj=container.oom_score_adj, used_bytes=used
        )

    def _containers_under(self, watch: LimitWatch) -> Iterator[ContainerKey]:
        if watch.key is None:
            return iter(self.containers)
        uid, name = watch.key
        return (key for key in self.containers if key[0] == uid and name in ("", key[1]))


BACK_OFF_S = (0, 10, 20, 40, 80, 160, 300)
"""Delays before the first restart of a container, the second, and so on.

Follows: v1.36, pkg/kubelet/kubelet.go, initialCrashLoopBackOff and MaxCrashLoopBackOff.
"""
BACK_OFF_RESET_NS = 600 * SECOND_NS
"""Running time after which the back-off starts from the beginning."""


class RestartBackOff:
    """Restart back-off of containers: when each last started and how often it was restarted."""

    def __init__(self) -> None:
        self.started_at_ns: dict[ContainerKey, int] = {}
        self._restart_counts: dict[ContainerKey, int] = {}

    def note_start(self, now_ns: int, key: ContainerKey) -> None:
        """Records a restart."""
        self.started_at_ns[key] = now_ns

    def next_start_ns(self, now_ns: int, key: ContainerKey) -> int:
        """When a container that ends now is restarted; counts the restart."""
        if now_ns - self.started_at_ns.get(key, -BACK_OFF_RESET_NS) >= BACK_OFF_RESET_NS:
            self._restart_counts[key] = 0
        restart_count = self._restart_counts.get(key, 0)
        self._restart_counts[key] = restart_count + 1
        return now_ns + BACK_OFF_S[min(restart_count, len(BACK_OFF_S) - 1)] * SECOND_NS


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
