"""At which sizes could the memory manager's answer change?"""

from itertools import combinations

from nodewright.core.memory.state import Machine
from nodewright.node.state import NodeState
from nodewright.values.idset import NUMASet
from nodewright.values.subsets import masks

ALL_SETS_UP_TO = 8
"""On machines with more NUMA nodes, single nodes, groups and the whole machine have to do."""
ALL_SUMS_UP_TO = 5
"""Of more other containers, each alone and all together have to do."""


def memory_steps(state: NodeState, resource: str, others: list[int], unit: int) -> list[int]:
    """The sizes, multiples of the unit, that are the largest to pass some comparison; largest first.

    A request is compared with what is free and what is allocatable on sets of NUMA nodes, and with what the node
    has left for pods; what the pod's other containers ask for may come on top, or off.

    Units: bytes.
    """
    machine = state.collected().held.memory.machine
    left = state.config.view.allocatable.get(resource, 0) - state.totals.requests.get(resource, 0)
    limits = {left}
    for nodes in _node_sets(machine):
        tables = [machine[n].tables[resource] for n in NUMASet(nodes) if resource in machine[n].tables]
        limits |= {sum(table.free for table in tables), sum(table.allocatable for table in tables)}
    found = set()
    for limit in limits:
        for besides in _sums(others):
            for edge in (limit - besides, besides - limit, besides, limit):
                # The largest that does not exceed it, and the largest below it.
                found |= {edge // unit * unit, (edge - 1) // unit * unit}
    return sorted((size for size in found if size > 0), reverse=True)


def _node_sets(machine: Machine) -> set[int]:
    everything = NUMASet.from_ids(machine).mask
    if len(machine) <= ALL_SETS_UP_TO:
        return set(masks(everything))
    return {everything, *(1 << n for n in machine), *(node.cells.mask for node in machine.values())}


def _sums(others: list[int]) -> set[int]:
    """What some of the other containers ask for together."""
    if len(others) > ALL_SUMS_UP_TO:
        return {0, sum(others), *others}
    return {sum(some) for count in range(len(others) + 1) for some in combinations(others, count)}
