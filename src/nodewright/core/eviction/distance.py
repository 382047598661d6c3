"""How far a node is from its thresholds, how fast that shrinks, and so when to look again."""

from collections.abc import Iterable, Mapping

import msgspec

from nodewright.core.eviction.policy import MEMORY_SURGE, SECOND_NS, EvictionPolicy, Room
from nodewright.core.eviction.signals import Observations, target
from nodewright.core.eviction.state import EvictionState
from nodewright.model.pressure import CONDITIONS, NodeCondition
from nodewright.model.thresholds import Threshold


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found of each threshold whose signal was observed.

    Units: at_ns in nanoseconds on a clock that does not go backwards.
    """

    at_ns: int
    rooms: Mapping[Threshold, Room] = {}

    @property
    def met(self) -> frozenset[Threshold]:
        """The thresholds of which less is available than they say."""
        return frozenset(one for one, room in self.rooms.items() if room.left < 0)

    def wait_ns(self, policy: EvictionPolicy, due_in_ns: int | None = None) -> int:
        """How long the policy can wait until the next look; what is met already is not waited for.

        ``due_in_ns``: until a grace period is over; None: none is running.
        """
        return policy.interval_ns([room for room in self.rooms.values() if room.left >= 0], due_in_ns)


def distance(
    thresholds: Iterable[Threshold], observed: Observations, now_ns: int, before: Distance | None = None
) -> Distance:
    """The distances now; with those of the look before, how fast they shrink."""
    rooms = {}
    elapsed_ns = now_ns - before.at_ns if before is not None else 0
    for threshold in thresholds:
        here = observed.get(threshold.signal)
        if here is None:
            continue
        left = here.available.value() - target(threshold, here.capacity).value()
        last = before.rooms.get(threshold) if before is not None else None
        growth = (last.left - left) * SECOND_NS // elapsed_ns if last is not None and elapsed_ns > 0 else 0
        is_memory = CONDITIONS[threshold.signal] is NodeCondition.MEMORY_PRESSURE
        surge = MEMORY_SURGE if is_memory else 0
        rooms[threshold] = Room(left=left, capacity=here.capacity.value(), growth=growth, surge=surge)
    return Distance(at_ns=now_ns, rooms=rooms)


def due_in_ns(state: EvictionState, now_ns: int) -> int | None:
    """How long until the first grace period that is running is over; None: none is."""
    waits = [
        state.thresholds[place].grace_period.nanoseconds - (now_ns - since_ns)
        for place, since_ns in state.first_met_ns.items()
        if place not in state.due
    ]
    return min(waits, default=None)
