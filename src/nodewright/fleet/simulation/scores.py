"""Node scores by resources, from 0 to 100.

Units: cpu in thousandths, memory in bytes, as `NodeSlot` and `PodShape` have them.
"""

from collections.abc import Callable, Hashable, Mapping

from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.pod_templates import PodShape

MAX_NODE_SCORE = 100
"""The highest score of one plugin.

Follows: v1.36, kube-scheduler/framework/interface.go, MaxNodeScore.
"""
_HALF = MAX_NODE_SCORE // 2
_NUMA_WEIGHT = 10


def least_allocated(shape: PodShape, slot: NodeSlot) -> int:
    """Higher the more CPU and memory is left, both with weight 1.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/least_allocated.go, leastResourceScorer.
    """
    total = resource_count = 0
    if slot.cpu:
        resource_count = 1
        left = slot.cpu - slot.nonzero_cpu - shape.nonzero_cpu
        if left > 0:
            total = left * MAX_NODE_SCORE // slot.cpu
    if slot.memory:
        resource_count += 1
        left = slot.memory - slot.nonzero_memory - shape.nonzero_memory
        if left > 0:
            total += left * MAX_NODE_SCORE // slot.memory
    return total // resource_count if resource_count else 0


def most_allocated(shape: PodShape, slot: NodeSlot) -> int:
    """Higher the less CPU and memory is left.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/most_allocated.go, mostResourceScorer.
    """
    total = resource_count = 0
    if slot.cpu:
        resource_count = 1
        total = min(slot.nonzero_cpu + shape.nonzero_cpu, slot.cpu) * MAX_NODE_SCORE // slot.cpu
    if slot.memory:
        resource_count += 1
        total += min(slot.nonzero_memory + shape.nonzero_memory, slot.memory) * MAX_NODE_SCORE // slot.memory
    return total // resource_count if resource_count else 0


def balanced_allocation(shape: PodShape, slot: NodeSlot) -> int:
    """Higher the more the pod balances the requested shares of CPU and memory; 0 for pods without requests.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go,
        balancedResourceScorer, in float64 as there.
    """
    if not shape.cpu and not shape.memory:
        return 0
    before = slot.imbalance
    if before is None:
        before = slot.imbalance = _balance(slot, 0, 0)
    return _HALF + (_HALF + _balance(slot, shape.cpu, shape.memory) - before) // 2


def _balance(slot: NodeSlot, cpu: int, memory: int) -> int:
    if not slot.cpu or not slot.memory:
        return MAX_NODE_SCORE
    cpu_share = (slot.cpu - slot.free_cpu + cpu) / slot.cpu
    memory_share = (slot.memory - slot.free_memory + memory) / slot.memory
    return int((1 - abs((min(cpu_share, 1.0) - min(memory_share, 1.0)) / 2)) * MAX_NODE_SCORE)


def best_fit(shape: PodShape, slot: NodeSlot) -> int:
    """Higher the less is left of the scarcer of CPU and memory, by requests only: nodes that are almost full first."""
    left = [
        (free - requested) * MAX_NODE_SCORE // allocatable
        for allocatable, free, requested in (
            (slot.cpu, slot.free_cpu, shape.cpu),
            (slot.memory, slot.free_memory, shape.memory),
        )
        if allocatable
    ]
    return MAX_NODE_SCORE - min(left, default=MAX_NODE_SCORE)


def few_numa_nodes(shape: PodShape, slot: NodeSlot) -> int:
    """Higher the fewer NUMA nodes the pod's exclusive CPUs need: each further one costs an eighth.

    0 if too few CPUs are free; the maximum for pods without exclusive CPUs.
    """
    missing = shape.exclusive_cpus
    if not missing:
        return MAX_NODE_SCORE
    numa_count = 0
    for free in sorted(slot.cpus_free_by_numa(), reverse=True):
        if missing <= 0:
            break
        numa_count += 1
        missing -= free
    return 0 if missing > 0 else max(MAX_NODE_SCORE - (numa_count - 1) * MAX_NODE_SCORE // 8, 0)


def default_score(shape: PodShape, slot: NodeSlot) -> int:
    """The default scheduler's score: `least_allocated` plus `balanced_allocation`.

    Both are inlined, because this is the most frequent score.
    """
    cpu, memory = slot.cpu, slot.memory
    if not cpu or not memory:
        return least_allocated(shape, slot) + balanced_allocation(shape, slot)
    left, total = cpu - slot.nonzero_cpu - shape.nonzero_cpu, 0
    if left > 0:
        total = left * MAX_NODE_SCORE // cpu
    left = memory - slot.nonzero_memory - shape.nonzero_memory
    if left > 0:
        total += left * MAX_NODE_SCORE // memory
    if not shape.cpu and not shape.memory:
        return total // 2
    before = slot.imbalance
    if before is None:
        before = slot.imbalance = _balance(slot, 0, 0)
    cpu_share = (cpu - slot.free_cpu + shape.cpu) / cpu
    memory_share = (memory - slot.free_memory + shape.memory) / memory
    difference = (cpu_share if cpu_share < 1 else 1.0) - (memory_share if memory_share < 1 else 1.0)
    balance = int((1 - (difference if difference > 0 else -difference) / 2) * MAX_NODE_SCORE)
    return total // 2 + _HALF + (_HALF + balance - before) // 2


def default_score_bound(slot: NodeSlot) -> int:
    """No pod has a higher default score on the node in its present state."""
    if not slot.cpu or not slot.memory:
        return 3 * MAX_NODE_SCORE
    before = slot.imbalance
    if before is None:
        before = slot.imbalance = _balance(slot, 0, 0)
    left_cpu, left_memory = slot.cpu - slot.nonzero_cpu, slot.memory - slot.nonzero_memory
    total = (
        max(left_cpu, 0) * MAX_NODE_SCORE // slot.cpu + max(left_memory, 0) * MAX_NODE_SCORE // slot.memory
    )
    return total // 2 + _HALF + (_HALF + MAX_NODE_SCORE - before) // 2


def most_allocated_score(shape: PodShape, slot: NodeSlot) -> int:
    """The score of a scheduler configured for bin packing: `most_allocated` plus `balanced_allocation`."""
    return most_allocated(shape, slot) + balanced_allocation(shape, slot)


def numa_aware_score(shape: PodShape, slot: NodeSlot) -> int:
    """`few_numa_nodes` with a high weight, plus the default score."""
    return _NUMA_WEIGHT * few_numa_nodes(shape, slot) + default_score(shape, slot)


def _amounts_and_numa_nodes(slot: NodeSlot) -> tuple[Hashable, ...]:
    return (*slot.amounts(), *sorted(slot.cpus_free_by_numa()))


SCORED_STATES: Mapping[Callable[[PodShape, NodeSlot], int], Callable[[NodeSlot], tuple[Hashable, ...]]] = {
    default_score: NodeSlot.amounts,
    most_allocated_score: NodeSlot.amounts,
    best_fit: NodeSlot.amounts,
    numa_aware_score: _amounts_and_numa_nodes,
}
"""By score, everything of a node besides its allocatable resources that it and resource filters depend on.

Of the pod these scores depend on `PodShape.scored_amounts` only.
"""

SCORE_BOUNDS: Mapping[Callable[[PodShape, NodeSlot], int], Callable[[NodeSlot], int]] = {
    default_score: default_score_bound
}
"""By score, the highest that any pod has on a node."""
