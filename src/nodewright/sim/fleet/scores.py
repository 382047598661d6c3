"""How well a node suits a pod by what both have and take, from 0 to 100.

Units: cpu in thousandths, memory in bytes, as `Seat` and `PodShape` have them.
"""

from nodewright.sim.fleet.board import Seat
from nodewright.sim.fleet.shapes import PodShape

MOST = 100
"""The best score of one plugin.

Follows: v1.36, kube-scheduler/framework/interface.go, MaxNodeScore.
"""
_HALF = MOST // 2
_NUMA_WEIGHT = 10


def least_allocated(shape: PodShape, seat: Seat) -> int:
    """Better the more of cpu and memory is left, both with weight 1.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/least_allocated.go, leastResourceScorer.
    """
    total = kinds = 0
    if seat.cpu:
        kinds = 1
        left = seat.cpu - seat.scored_cpu - shape.scored_cpu
        if left > 0:
            total = left * MOST // seat.cpu
    if seat.memory:
        kinds += 1
        left = seat.memory - seat.scored_memory - shape.scored_memory
        if left > 0:
            total += left * MOST // seat.memory
    return total // kinds if kinds else 0


def most_allocated(shape: PodShape, seat: Seat) -> int:
    """Better the less of cpu and memory is left.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/most_allocated.go, mostResourceScorer.
    """
    total = kinds = 0
    if seat.cpu:
        kinds = 1
        total = min(seat.scored_cpu + shape.scored_cpu, seat.cpu) * MOST // seat.cpu
    if seat.memory:
        kinds += 1
        total += min(seat.scored_memory + shape.scored_memory, seat.memory) * MOST // seat.memory
    return total // kinds if kinds else 0


def balanced(shape: PodShape, seat: Seat) -> int:
    """Better the more the pod brings the use of cpu and memory together. Pods that request nothing get 0.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go,
        balancedResourceScorer, in float64 as there.
    """
    if not shape.cpu and not shape.memory:
        return 0
    without = seat.imbalance
    if without is None:
        without = seat.imbalance = _evenness(seat, 0, 0)
    return _HALF + (_HALF + _evenness(seat, shape.cpu, shape.memory) - without) // 2


def _evenness(seat: Seat, cpu: int, memory: int) -> int:
    if not seat.cpu or not seat.memory:
        return MOST
    one = (seat.cpu - seat.free_cpu + cpu) / seat.cpu
    other = (seat.memory - seat.free_memory + memory) / seat.memory
    return int((1 - abs((min(one, 1.0) - min(other, 1.0)) / 2)) * MOST)


def best_fit(shape: PodShape, seat: Seat) -> int:
    """Better the less is left of what the pod takes most of: small pods fill what is nearly full.

    Of the scarcer of cpu and memory on that node, counted by requests alone.
    """
    left = [
        (free - asked) * MOST // has
        for has, free, asked in (
            (seat.cpu, seat.free_cpu, shape.cpu),
            (seat.memory, seat.free_memory, shape.memory),
        )
        if has
    ]
    return MOST - min(left, default=MOST)


def few_numa_nodes(shape: PodShape, seat: Seat) -> int:
    """Better the fewer NUMA nodes the pod's own CPUs need: each one more costs an eighth.

    0 for a pod whose CPUs are not free at all; pods without CPUs of their own find all nodes equally good.
    """
    wanted = shape.own_cpus
    if not wanted:
        return MOST
    needed = 0
    for free in sorted(seat.cpus_free_by_numa(), reverse=True):
        if wanted <= 0:
            break
        needed += 1
        wanted -= free
    return 0 if wanted > 0 else max(MOST - (needed - 1) * MOST // 8, 0)


def by_default(shape: PodShape, seat: Seat) -> int:
    """The default scheduler's own: spread by `least_allocated`, and `balanced`.

    It is asked for most: the sum of the two is worked out in one go.
    """
    cpu, memory = seat.cpu, seat.memory
    if not cpu or not memory:
        return least_allocated(shape, seat) + balanced(shape, seat)
    left, total = cpu - seat.scored_cpu - shape.scored_cpu, 0
    if left > 0:
        total = left * MOST // cpu
    left = memory - seat.scored_memory - shape.scored_memory
    if left > 0:
        total += left * MOST // memory
    if not shape.cpu and not shape.memory:
        return total // 2
    without = seat.imbalance
    if without is None:
        without = seat.imbalance = _evenness(seat, 0, 0)
    one = (cpu - seat.free_cpu + shape.cpu) / cpu
    other = (memory - seat.free_memory + shape.memory) / memory
    apart = (one if one < 1 else 1.0) - (other if other < 1 else 1.0)
    even = int((1 - (apart if apart > 0 else -apart) / 2) * MOST)
    return total // 2 + _HALF + (_HALF + even - without) // 2


def by_most_allocated(shape: PodShape, seat: Seat) -> int:
    """A default scheduler that is configured to pack: `most_allocated`, and `balanced`."""
    return most_allocated(shape, seat) + balanced(shape, seat)


def by_numa(shape: PodShape, seat: Seat) -> int:
    """First of all `few_numa_nodes`, then as the default scheduler."""
    return _NUMA_WEIGHT * few_numa_nodes(shape, seat) + by_default(shape, seat)


BY_AMOUNTS = frozenset({by_default, by_most_allocated, best_fit, by_numa})
"""Scores that look at nothing in a pod but its amounts: pods that ask for the same find the same nodes good."""
