"""How far a policy's thresholds are, how fast that shrinks, and so how long its next look can wait."""

from collections.abc import Iterable

from nodewright.core.eviction import MEMORY_SURGE, EvictionPolicy, Met, Room, target
from nodewright.model.thresholds import Signal, Threshold
from nodewright.sim.timeline.agenda import Watch
from nodewright.sim.timeline.memory import Memory
from nodewright.sim.timeline.setting import SECOND_NS, Scope
from nodewright.values.quantity import Format, Quantity


class Distances:
    """The thresholds on a node's memory, as a policy sees them."""

    def __init__(self, memory: Memory, policy: EvictionPolicy) -> None:
        self._memory, self._policy = memory, policy
        self._watches: dict[Threshold, Watch] = {}
        self._last: tuple[int, tuple[int, ...]] | None = None
        """When it looked last, and how far the thresholds were."""

    @property
    def is_any_crossed(self) -> bool:
        """Whether less is available than one of the thresholds says, seen or not."""
        return any(watch.is_above for watch in self._watches.values())

    def watch(self, threshold: Threshold) -> None:
        """Keep an eye on the threshold."""
        memory, is_node = self._memory, threshold.signal is Signal.MEMORY_AVAILABLE
        capacity = memory.setting.memory_bytes if is_node else memory.pods_capacity_bytes()
        swap = memory.usable_swap_bytes if self._policy.counts_swap else 0
        amount = target(threshold, Quantity.of(capacity + swap, Format.BINARY_SI)).value()
        watch = Watch(
            line=memory.node if is_node else memory.all_pods,
            base_bytes=capacity - amount + 1,
            scope=Scope.NODE if is_node else Scope.PODS,
            of=threshold.signal.value,
            threshold=threshold,
            counts_swap=self._policy.counts_swap,
            capacity_bytes=capacity,
        )
        self._watches[threshold] = watch
        memory.watch(watch)

    def wait_ns(self, now_ns: int, met: Iterable[Met]) -> int:
        """How long the policy waits now; ``met`` are the thresholds that its look found met."""
        met_now = {one.threshold: one for one in met}
        swapped = self._memory.in_swap_bytes(now_ns)
        found = [(one, *self._room(now_ns, watch, swapped)) for one, watch in self._watches.items()]
        before, self._last = self._last, (now_ns, tuple(left for _, left, _ in found))
        rooms = []
        for place, (threshold, left, capacity) in enumerate(found):
            growth = 0
            if before is not None and now_ns > before[0]:
                growth = (before[1][place] - left) * SECOND_NS // (now_ns - before[0])
            if threshold not in met_now:
                rooms.append(Room(left=left, capacity=capacity, growth=growth, surge=MEMORY_SURGE))
        waits = [
            one.threshold.grace_period.nanoseconds - one.waited.nanoseconds
            for one in met_now.values()
            if not one.is_due
        ]
        return self._policy.interval_ns(rooms, min(waits, default=None))

    @staticmethod
    def _room(now_ns: int, watch: Watch, swapped: int) -> tuple[int, int]:
        """What is left beyond the threshold, and what there is in all."""
        used = watch.line.bytes_at(now_ns) - (0 if watch.counts_swap else swapped)
        return watch.limit_bytes - 1 - used, watch.capacity_bytes + watch.swap_bytes
