"""Which sets of NUMA nodes have the memory that is asked for, and may be used together?"""

from collections.abc import Mapping, Sequence

from nodewright.core.memory.policy import MemoryPolicy, NonePolicy
from nodewright.core.memory.state import Block, Machine, MemoryState
from nodewright.core.memory.wants import WORD, Amounts, MemoryWants
from nodewright.model.hints import IMPOSSIBLE, Fitting, Hint, HintList, ProviderHints, by_node
from nodewright.model.memory_reasons import MemoryRequestInexact, MemoryTypeMissing
from nodewright.model.objects import Container
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet
from nodewright.values.search import narrowest_meeting
from nodewright.values.subsets import Demand, bits, fewest, masks

Reuse = Mapping[tuple[int, str], int]
"""What can be used again, by exact set of nodes and kind of memory."""


def container_hints(
    policy: MemoryPolicy, state: MemoryState, wants: MemoryWants, container: Container
) -> Verdict[ProviderHints | None]:
    """The NUMA nodes for a container; None: no opinion. Refused: the kubelet crashes.

    Follows: v1.36, memorymanager/policy_static.go, GetTopologyHints: where nothing fits it has no opinion,
        either; allocation refuses then.
    """
    if isinstance(policy, NonePolicy) or not wants.is_guaranteed:
        return Granted(None)
    requested = wants.container(container)
    if isinstance(requested, MemoryRequestInexact) or wants.is_skipped:
        return Granted(None)
    held = state.blocks(wants.pod.uid, container.name)
    if held is not None:
        return Granted(_as_held(held, requested))
    return _new_hints(state, wants, requested)


def pod_hints(policy: MemoryPolicy, state: MemoryState, wants: MemoryWants) -> Verdict[ProviderHints | None]:
    """The NUMA nodes for a pod as a whole; None: no opinion. Refused: the kubelet crashes.

    Follows: v1.36, memorymanager/policy_static.go, GetPodTopologyHints: of a pod that is placed, the first
        container with memory is compared with what the whole pod asks for.
    """
    if isinstance(policy, NonePolicy) or not wants.is_guaranteed:
        return Granted(None)
    requested = wants.whole_pod()
    if isinstance(requested, MemoryRequestInexact) or wants.is_skipped:
        return Granted(None)
    if wants.is_pod_managed and wants.shared_memory_fault(requested):
        return Granted(dict.fromkeys(requested, IMPOSSIBLE))
    if not requested:
        return Granted(None)
    spec = wants.pod.spec
    for container in (*spec.init_containers, *spec.containers):
        held = state.blocks(wants.pod.uid, container.name)
        if held is not None:
            return Granted(_as_held(held, requested))
    return _new_hints(state, wants, requested)


def missing_type(machine: Machine, requested: Amounts, nodes: Sequence[int]) -> MemoryTypeMissing | None:
    """The first kind of memory that one of the nodes does not list: the kubelet looks there and crashes.

    Follows: v1.36, memorymanager/policy_static.go, calculateHints, isAffinitySatisfyRequest.
    """
    kinds = sorted(requested)
    for numa in nodes:
        for kind in kinds:
            if numa not in machine or kind not in machine[numa].tables:
                return MemoryTypeMissing(numa=numa, resource=kind)
    return None


def memory_hints(machine: Machine, requested: Amounts, reuse: Reuse) -> HintList:
    """All sets of NUMA nodes that have the memory and may be used together; the same for every kind.

    A node is used alone, or in one group. So there are the single nodes and the groups in use, listed one
    by one, and the sets of nodes that nothing is placed on, as a rule.

    Follows: v1.36, memorymanager/policy_static.go, calculateHints.
    """
    if not requested:
        return IMPOSSIBLE
    if _wraps(machine, requested):
        return _one_by_one(machine, requested, reuse)
    everything = NUMASet.from_ids(machine)
    in_all = [
        by_node(size, {n: node.tables[kind].allocatable for n, node in machine.items()})
        for kind, size in requested.items()
    ]
    free = [
        by_node(size, {n: node.tables[kind].free for n, node in machine.items()})
        for kind, size in requested.items()
    ]
    smallest = fewest(everything.mask, in_all)
    unused = NUMASet.from_ids(n for n, node in machine.items() if node.assignments <= 0)
    rule = Fitting(
        unused, tuple(dict.fromkeys([*free, *in_all])), smallest.size, at_least=2, proved=smallest.proved
    )
    candidates = {1 << n for n, node in machine.items() if len(node.cells) <= 1}
    candidates |= {
        node.cells.mask for node in machine.values() if len(node.cells) > 1 and node.assignments > 0
    }
    candidates |= {
        mask for mask, kind in reuse if kind in requested and mask.bit_count() > 1 and not rule.fits(mask)
    }
    listed = [
        Hint(NUMASet(mask), mask.bit_count() == smallest.size)
        for mask in sorted(candidates, key=lambda mask: (mask.bit_count(), mask))
        if all(demand.met_by(mask) for demand in in_all)
        and may_be_used(machine, mask)
        and enough(machine, mask, requested, reuse)
    ]
    return HintList(tuple(listed), rule if len(unused) > 1 and rule.fits(unused.mask) else None)


def best_hint(hints: HintList, containing: int = 0) -> Hint | None:
    """The best of the hints that contain these nodes: preferred, then fewest nodes, then the smallest mask.

    Follows: v1.36, memorymanager/policy_static.go, findBestHint.
    """
    found = [hint for hint in hints.listed if hint.numa is not None and containing & ~hint.numa.mask == 0]
    rule = hints.fitting
    if any(hint.preferred and len(hint.numa or ()) == 1 for hint in found):
        # The rule's sets have two nodes or more.
        rule = None
    if rule is not None and containing & ~rule.nodes.mask == 0:
        demands = [*rule.demands, *(Demand(1, ((node, 1),)) for node in bits(containing))]
        first = max(rule.preferred_size, rule.at_least)
        for least in dict.fromkeys((first, rule.at_least)):
            mask = narrowest_meeting(rule.nodes.mask, demands, least)
            if mask:
                found.append(Hint(NUMASet(mask), rule.prefers(mask)))
    return min(found, key=_rank, default=None)


def enough(machine: Machine, mask: int, requested: Amounts, reuse: Reuse) -> bool:
    """Whether the nodes have the memory free, what can be used again on exactly these nodes included."""
    nodes = [machine[n] for n in NUMASet(mask)]
    return all(
        (sum([node.tables[kind].free for node in nodes]) % WORD + reuse.get((mask, kind), 0)) % WORD >= size
        for kind, size in requested.items()
    )


def may_be_used(machine: Machine, mask: int) -> bool:
    """Whether the nodes are neither used alone (for several) nor together with others.

    Follows: v1.36, memorymanager/policy_static.go, calculateHints.
    """
    nodes = [machine[n] for n in NUMASet(mask)]
    if len(nodes) == 1:
        return len(nodes[0].cells) <= 1
    return all(node.assignments <= 0 or (len(node.cells) != 1 and node.cells.mask == mask) for node in nodes)


def _new_hints(state: MemoryState, wants: MemoryWants, requested: Amounts) -> Verdict[ProviderHints | None]:
    crash = missing_type(state.machine, requested, sorted(state.machine))
    if crash:
        return Refused((crash,))
    found = memory_hints(state.machine, requested, state.reusable.of(wants.pod.uid))
    return Granted(dict.fromkeys(requested, found) if found else {})


def _as_held(held: Sequence[Block], requested: Amounts) -> ProviderHints | None:
    """The nodes that the blocks are on; no opinion if they are not what is asked for.

    Follows: v1.36, memorymanager/policy_static.go, regenerateHints.
    """
    if len(held) != len(requested) or any(requested.get(block.resource) != block.size for block in held):
        return None
    return {
        kind: HintList(tuple(Hint(NUMASet(block.mask), True) for block in held if block.resource == kind))
        for kind in requested
    }


def _wraps(machine: Machine, requested: Amounts) -> bool:
    """Whether sums of what the nodes have may exceed 64 bits: then more nodes can have less."""
    return any(
        sum([node.tables[kind].allocatable for node in machine.values()]) >= WORD // 2 for kind in requested
    )


def _one_by_one(machine: Machine, requested: Amounts, reuse: Reuse) -> HintList:
    everything = NUMASet.from_ids(machine)
    sized = [
        mask
        for mask in masks(everything.mask)
        if all(
            sum([machine[n].tables[kind].allocatable for n in NUMASet(mask)]) % WORD >= size
            for kind, size in requested.items()
        )
    ]
    smallest = min((mask.bit_count() for mask in sized), default=len(everything))
    return HintList(
        tuple(
            Hint(NUMASet(mask), mask.bit_count() == smallest)
            for mask in sized
            if may_be_used(machine, mask) and enough(machine, mask, requested, reuse)
        )
    )


def _rank(hint: Hint) -> tuple[bool, int, int]:
    assert hint.numa is not None
    return not hint.preferred, len(hint.numa), hint.numa.mask
