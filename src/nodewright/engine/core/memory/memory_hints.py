"""Topology hints of the memory manager: sets of NUMA nodes with enough memory that may be used together."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from nodewright.engine.core.memory.memory_demand import UINT64_MODULUS, MemoryAmounts, PodMemoryDemand
from nodewright.engine.core.memory.memory_policy import MemoryPolicy, NoneMemoryPolicy
from nodewright.engine.core.memory.memory_state import Block, MemoryState, NUMAMemory, NUMANodeMap
from nodewright.model.kubernetes.objects import Container
from nodewright.model.reasons.memory import MemoryRequestInexact, MemoryTypeMissing
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import (
    Demand,
    MinimumSize,
    minimum_size,
    narrowest_set_meeting,
    nonempty_subsets,
    singletons,
)
from nodewright.model.values.topology_hints import (
    IMPOSSIBLE,
    Fitting,
    Hint,
    HintList,
    ProviderHints,
    hint_on,
)

ReusableAmounts = Mapping[tuple[int, str], int]
"""Reusable memory by exact set of nodes and kind of memory."""


def container_hints(
    policy: MemoryPolicy, state: MemoryState, demand: PodMemoryDemand, container: Container
) -> Verdict[ProviderHints | None]:
    """The hints for a container; None: no preference. Refused: the kubelet crashes.

    Follows: v1.36, memorymanager/policy_static.go, GetTopologyHints: no preference where nothing fits,
        either; then the allocation refuses.
    """
    if isinstance(policy, NoneMemoryPolicy) or not demand.is_guaranteed:
        return Granted(None)
    requested = demand.container(container)
    if isinstance(requested, MemoryRequestInexact) or demand.is_ignored:
        return Granted(None)
    held = state.blocks(demand.pod.metadata.uid, container.name)
    if held is not None:
        return Granted(_hints_of_held_blocks(held, requested))
    return _new_hints(state, demand, requested)


def pod_hints(
    policy: MemoryPolicy, state: MemoryState, demand: PodMemoryDemand
) -> Verdict[ProviderHints | None]:
    """The hints for a pod as a whole; None: no preference. Refused: the kubelet crashes.

    Follows: v1.36, memorymanager/policy_static.go, GetPodTopologyHints: for a placed pod, the blocks of
        the first container with memory are compared with the request of the whole pod.
    """
    if isinstance(policy, NoneMemoryPolicy) or not demand.is_guaranteed:
        return Granted(None)
    requested = demand.whole_pod()
    if isinstance(requested, MemoryRequestInexact) or demand.is_ignored:
        return Granted(None)
    if demand.is_pod_managed and demand.shared_memory_error(requested):
        return Granted(dict.fromkeys(requested, IMPOSSIBLE))
    if not requested and policy.gates.rules.pods_without_memory_have_no_hints:
        return Granted(None)
    spec = demand.pod.spec
    for container in (*spec.init_containers, *spec.containers):
        held = state.blocks(demand.pod.metadata.uid, container.name)
        if held is not None:
            return Granted(_hints_of_held_blocks(held, requested))
    return _new_hints(state, demand, requested)


def missing_memory_type(
    machine: NUMANodeMap, requested: MemoryAmounts, nodes: Sequence[int]
) -> MemoryTypeMissing | None:
    """The first kind of memory that one of the nodes does not list: there the kubelet crashes.

    Follows: v1.36, memorymanager/policy_static.go, calculateHints, isAffinitySatisfyRequest.
    """
    kinds = sorted(requested)
    for numa in nodes:
        tables = machine[numa].tables if numa in machine else {}
        for kind in kinds:
            if kind not in tables:
                return MemoryTypeMissing(numa=numa, resource=kind)
    return None


def memory_hints(machine: NUMANodeMap, requested: MemoryAmounts, reusable: ReusableAmounts) -> HintList:
    """All sets of NUMA nodes that have the memory and may be used together; the same for every kind.

    A node is used alone or in one group. So the hints are the single nodes and the groups in use, listed
    individually, and the sets of unused nodes, given as a rule.

    Follows: v1.36, memorymanager/policy_static.go, calculateHints.
    """
    if not requested:
        return IMPOSSIBLE
    nodes = sorted(machine.items(), key=itemgetter(0))
    totals, smallest = _totals_of_machine(
        tuple([n for n, _ in nodes]),
        tuple(
            [
                (size, tuple([node.tables[kind].allocatable for _, node in nodes]))
                for kind, size in requested.items()
            ]
        ),
    )
    if smallest is None:
        return _enumerated_hints(machine, requested, reusable)
    rule = _rule_of_unused_nodes(nodes, requested, totals, smallest)
    groups = {mask for _, node in nodes if node.assignments > 0 and (mask := node.cells.mask) & (mask - 1)}
    if reusable:
        groups |= {
            mask
            for mask, kind in reusable
            if kind in requested and mask & (mask - 1) and not (rule and rule.fits(mask))
        }
    single = [
        hint_on(mask, preferred=smallest.size == 1)
        for mask in _sufficient_single_nodes(nodes, requested, reusable)
    ]
    several = [
        hint_on(mask, preferred=mask.bit_count() == smallest.size)
        for mask in sorted(groups, key=_by_size)
        if all(total.met_by(mask) for total in totals)
        and is_allowed_node_set(machine, mask)
        and has_enough_memory(machine, mask, requested, reusable)
    ]
    return HintList((*single, *several), rule if rule and rule.fits(rule.nodes.mask) else None)


def _sufficient_single_nodes(
    nodes: Sequence[tuple[int, NUMAMemory]], requested: MemoryAmounts, reusable: ReusableAmounts
) -> Iterator[int]:
    """The nodes that may be used alone and have enough memory: what the checks of groups give for one node."""
    for n, node in nodes:
        mask, cells = 1 << n, node.cells.mask
        if cells & (cells - 1):
            continue
        for kind, size in requested.items():
            table = node.tables[kind]
            free = table.free + reusable.get((mask, kind), 0) if reusable else table.free
            if table.allocatable < size or free % UINT64_MODULUS < size:
                break
        else:
            yield mask


def _rule_of_unused_nodes(
    nodes: Sequence[tuple[int, NUMAMemory]],
    requested: MemoryAmounts,
    totals: tuple[Demand, ...],
    smallest: MinimumSize,
) -> Fitting | None:
    """The sets of several nodes that no block names; None: there are fewer than two such nodes."""
    unused = sum([1 << n for n, node in nodes if node.assignments <= 0])
    if unused & (unused - 1) == 0:
        return None
    free = [
        Demand(size, tuple([(1 << n, node.tables[kind].free) for n, node in nodes]))
        for kind, size in requested.items()
    ]
    demands = (*free, *[total for total in totals if total not in free])
    return Fitting(NUMASet(unused), demands, smallest.size, at_least=2, proved=smallest.proved)


@lru_cache(maxsize=1024)
def _totals_of_machine(
    nodes: tuple[int, ...], kinds: tuple[tuple[int, tuple[int, ...]], ...]
) -> tuple[tuple[Demand, ...], MinimumSize | None]:
    """The demands on a machine that is not in use, and the least number of NUMA nodes that meet them.

    ``kinds`` has what is requested of each kind of memory, and what is allocatable by node. None: sums may wrap
    around. Cached, as only the machine and the request decide it.
    """
    places = [1 << n for n in nodes]
    totals = tuple(Demand(size, tuple(zip(places, amounts, strict=True))) for size, amounts in kinds)
    if any(sum(amounts) >= UINT64_MODULUS // 2 for _, amounts in kinds):
        return totals, None
    return totals, minimum_size(sum(places), totals)


def _by_size(mask: int) -> tuple[int, int]:
    return mask.bit_count(), mask


def best_hint(hints: HintList, containing: int = 0) -> Hint | None:
    """The best of the hints that contain these nodes: preferred, then fewest nodes, then the smallest mask.

    Follows: v1.36, memorymanager/policy_static.go, findBestHint.
    """
    candidates = [
        hint for hint in hints.listed if hint.numa is not None and containing & ~hint.numa.mask == 0
    ]
    rule = hints.fitting
    if any(hint.preferred and len(hint.numa or ()) == 1 for hint in candidates):
        # The sets of the rule have two nodes or more.
        rule = None
    if rule is not None and containing & ~rule.nodes.mask == 0:
        demands = [*rule.demands, *(Demand(1, ((node, 1),)) for node in singletons(containing))]
        first = max(rule.preferred_size, rule.at_least)
        for minimum in dict.fromkeys((first, rule.at_least)):
            mask = narrowest_set_meeting(rule.nodes.mask, demands, minimum)
            if mask:
                candidates.append(Hint(NUMASet(mask), rule.prefers(mask)))
    return min(candidates, key=_rank, default=None)


def has_enough_memory(
    machine: NUMANodeMap, mask: int, requested: MemoryAmounts, reusable: ReusableAmounts
) -> bool:
    """Whether the nodes have enough free memory, reusable memory of exactly this set included."""
    nodes = _members(machine, mask)
    for kind, size in requested.items():
        free = sum([node.tables[kind].free for node in nodes]) % UINT64_MODULUS
        if (free + reusable.get((mask, kind), 0)) % UINT64_MODULUS < size:
            return False
    return True


def is_allowed_node_set(machine: NUMANodeMap, mask: int) -> bool:
    """Whether the nodes may be used together: none of several is used alone, and none in another group.

    Follows: v1.36, memorymanager/policy_static.go, calculateHints.
    """
    nodes = _members(machine, mask)
    if len(nodes) == 1:
        return len(nodes[0].cells) <= 1
    return all(node.assignments <= 0 or (len(node.cells) != 1 and node.cells.mask == mask) for node in nodes)


def _members(machine: NUMANodeMap, mask: int) -> list[NUMAMemory]:
    """The nodes of the mask, all of which the machine has."""
    if mask & (mask - 1) == 0:
        return [machine[mask.bit_length() - 1]] if mask else []
    return [machine[n] for n in NUMASet(mask)]


def _new_hints(
    state: MemoryState, demand: PodMemoryDemand, requested: MemoryAmounts
) -> Verdict[ProviderHints | None]:
    crash = missing_memory_type(state.machine, requested, sorted(state.machine))
    if crash:
        return Refused((crash,))
    hints = memory_hints(state.machine, requested, state.reusable.of(demand.pod.metadata.uid))
    return Granted(dict.fromkeys(requested, hints) if hints else {})


def _hints_of_held_blocks(held: Sequence[Block], requested: MemoryAmounts) -> ProviderHints | None:
    """The nodes of the held blocks; no preference if the blocks differ from the request.

    Follows: v1.36, memorymanager/policy_static.go, regenerateHints.
    """
    if len(held) != len(requested) or any(requested.get(block.resource) != block.size for block in held):
        return None
    return {
        kind: HintList(tuple(Hint(NUMASet(block.mask), True) for block in held if block.resource == kind))
        for kind in requested
    }


def _enumerated_hints(machine: NUMANodeMap, requested: MemoryAmounts, reusable: ReusableAmounts) -> HintList:
    all_nodes = NUMASet.from_ids(machine)
    large_enough = [
        mask
        for mask in nonempty_subsets(all_nodes.mask)
        if all(
            sum([machine[n].tables[kind].allocatable for n in NUMASet(mask)]) % UINT64_MODULUS >= size
            for kind, size in requested.items()
        )
    ]
    smallest = min((mask.bit_count() for mask in large_enough), default=len(all_nodes))
    return HintList(
        tuple(
            Hint(NUMASet(mask), mask.bit_count() == smallest)
            for mask in large_enough
            if is_allowed_node_set(machine, mask) and has_enough_memory(machine, mask, requested, reusable)
        )
    )


def _rank(hint: Hint) -> tuple[bool, int, int]:
    assert hint.numa is not None
    return not hint.preferred, len(hint.numa), hint.numa.mask
