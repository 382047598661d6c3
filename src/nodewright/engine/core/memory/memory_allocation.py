"""Allocation and release of memory for containers and pods by the static policy.

Also topology hints of the memory manager: sets of NUMA nodes with enough memory that may be used together.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.memory.memory_policy import MemoryPolicy, NoneMemoryPolicy
from nodewright.engine.core.memory.memory_state import (
    NO_BLOCKS,
    NO_REUSABLE_MEMORY,
    UINT64_MODULUS,
    Block,
    MemoryAmounts,
    MemoryState,
    NUMAMemory,
    NUMANodeMap,
    PodMemoryDemand,
    ReusableMemory,
    free_memory,
    with_blocks,
    without_block,
)
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.memory import (
    AffinityCannotGrow,
    DefaultNotPreferred,
    ExtensionNotPreferred,
    GroupViolated,
    MemoryPlaced,
    MemoryRequestInexact,
    MemoryTypeMissing,
    NoNUMAFits,
)
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

NO_NUMA_NODES = Hint(None, preferred=False)

ReusableAmounts = Mapping[tuple[int, str], int]
"""Reusable memory by exact set of nodes and kind of memory."""


class MemoryAllocation(msgspec.Struct, frozen=True):
    """The verdict and the state after it, which a refusal leaves unchanged.

    Granted None: no memory is allocated exclusively.
    """

    verdict: Verdict[tuple[Block, ...] | None]
    state: MemoryState


def allocate_container_memory(
    policy: MemoryPolicy,
    state: MemoryState,
    demand: PodMemoryDemand,
    container: Container,
    affinity: Hint = NO_NUMA_NODES,
) -> MemoryAllocation:
    """Allocates exclusive memory to the container on the NUMA nodes of the affinity, or on a larger set.

    Follows: v1.36, memorymanager/policy_static.go, Allocate.
    Departs: blocks are in the order of their resources' names; the kubelet walks a map, in random order.
    """
    if isinstance(policy, NoneMemoryPolicy) or not demand.is_guaranteed or demand.is_ignored:
        return MemoryAllocation(Granted(None), state)
    uid, name = demand.pod.metadata.uid, container.name
    held = state.blocks(uid, name)
    if held is not None:
        return MemoryAllocation(Granted(held), _with_reusable(state, demand.pod, container, held))
    requested = demand.container(container)
    if isinstance(requested, MemoryRequestInexact):
        return MemoryAllocation(Refused((requested,)), state)
    reusable = state.reusable.of(uid)
    choice = _chosen_nodes(state.machine, requested, reusable, affinity)
    if isinstance(choice, Refused):
        return MemoryAllocation(choice, state)
    mask, nodes = choice.value.mask, tuple(choice.value)
    blocks = _blocks(nodes, requested)
    machine, reused = state.machine, {}
    for block in blocks:
        reused_size = min(reusable.get((mask, block.resource), 0), block.size)
        new = replace(block, size=block.size - reused_size) if reused_size else block
        machine = with_blocks(machine, new)
        if reused_size:
            reused[block.resource] = reused_size
    after = _with_reusable(state.with_blocks(uid, name, blocks, machine), demand.pod, container, blocks)
    after = _with_init_blocks_shrunk(after, demand.pod, container, blocks)
    placed = MemoryPlaced(
        numa=choice.value,
        affinity=affinity.numa,
        requested=tuple([(block.resource, block.size) for block in blocks]),
        reused=tuple(sorted(reused.items())),
    )
    return MemoryAllocation(Granted(blocks, (placed,)), after)


def allocate_pod_memory(
    policy: MemoryPolicy, state: MemoryState, demand: PodMemoryDemand, affinity: Hint = NO_NUMA_NODES
) -> MemoryAllocation:
    """Allocates memory to the pod as a whole and divides it among its containers.

    Follows: v1.36, memorymanager/policy_static.go, AllocatePod.
    """
    if isinstance(policy, NoneMemoryPolicy) or not demand.is_guaranteed:
        return MemoryAllocation(Granted(None), state)
    total = demand.whole_pod()
    if isinstance(total, MemoryRequestInexact):
        # The kubelet only logs this error.
        return MemoryAllocation(Granted(None), state)
    error = demand.shared_memory_error(total)
    if error:
        return MemoryAllocation(Refused((error,)), state)
    choice = _chosen_nodes(state.machine, total, state.reusable.of(demand.pod.metadata.uid), affinity)
    if isinstance(choice, Refused):
        return MemoryAllocation(choice, state)
    nodes = tuple(choice.value)
    blocks = _blocks(nodes, total)
    held = {name: _blocks(nodes, amounts) for name, amounts in _shares_of_containers(demand, total).items()}
    uid = demand.pod.metadata.uid
    after = replace(
        state,
        machine=with_blocks(state.machine, *blocks),
        pods={**state.pods, uid: blocks},
        assignments={**state.assignments, uid: {**state.assignments.get(uid, NO_BLOCKS), **held}},
    )
    placed = MemoryPlaced(
        numa=choice.value, affinity=affinity.numa, requested=tuple(sorted(total.items())), reused=()
    )
    return MemoryAllocation(Granted(blocks, (placed,)), after)


def release_memory(policy: MemoryPolicy, state: MemoryState, pod: str, container: str) -> MemoryState:
    """Releases the container's memory; the memory of a whole pod is freed with its last container.

    Follows: v1.36, memorymanager/policy_static.go, RemoveContainer.
    """
    if isinstance(policy, NoneMemoryPolicy):
        return state
    pod_blocks = state.pods.get(pod) if policy.gates.pod_level_managers else None
    if pod_blocks is not None:
        remaining = state.without(pod, container)
        if pod in remaining.assignments:
            return remaining
        pods = {uid: blocks for uid, blocks in remaining.pods.items() if uid != pod}
        return replace(remaining, machine=_without_blocks(remaining.machine, pod_blocks), pods=pods)
    blocks = state.blocks(pod, container)
    if blocks is None:
        return state
    remaining = state.without(pod, container)
    return replace(remaining, machine=_without_blocks(remaining.machine, blocks))


def without_stale_containers(
    policy: MemoryPolicy, state: MemoryState, active: Mapping[str, Collection[str]]
) -> MemoryState:
    """Releases the memory of all containers that are not active (names by pod uid).

    Follows: v1.36, memorymanager/memory_manager.go, removeStaleState.
    Departs: in the order of pod uid and container name, where the kubelet walks maps in random order.
    """
    stale = [
        (pod, container)
        for pod, containers in state.assignments.items()
        for container in containers
        if container not in active.get(pod, ())
    ]
    for pod, container in sorted(stale):
        state = release_memory(policy, state, pod, container)
    return state


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


def _chosen_nodes(
    machine: NUMANodeMap, requested: MemoryAmounts, reusable: Mapping[tuple[int, str], int], affinity: Hint
) -> Verdict[NUMASet]:
    """The NUMA nodes to allocate on: the affinity, the best hint without an affinity, or a larger set.

    Follows: v1.36, memorymanager/policy_static.go, Allocate, getDefaultHint, extendTopologyManagerHint,
        isAffinityViolatingNUMAAllocations.
    """
    hint, numa = affinity, affinity.numa
    if numa is None:
        crash = missing_memory_type(machine, requested, sorted(machine))
        if crash:
            return Refused((crash,))
        best = best_hint(memory_hints(machine, requested, reusable))
        if best is None or best.numa is None:
            amounts = tuple(sorted(requested.items()))
            return Refused((NoNUMAFits(requested=amounts, left=free_memory(machine, requested)),))
        if affinity.preferred and not best.preferred:
            return Refused((DefaultNotPreferred(found=best.numa),))
        hint, numa = best, best.numa
    crash = missing_memory_type(machine, requested, list(numa))
    if crash:
        return Refused((crash,))
    if not has_enough_memory(machine, numa.mask, requested, {}):
        crash = missing_memory_type(machine, requested, sorted(machine))
        if crash:
            return Refused((crash,))
        larger = best_hint(memory_hints(machine, requested, reusable), containing=numa.mask)
        if larger is None or larger.numa is None:
            amounts, free = tuple(sorted(requested.items())), free_memory(machine, requested)
            return Refused((AffinityCannotGrow(affinity=numa, requested=amounts, left=free),))
        if hint.preferred and not larger.preferred:
            return Refused((ExtensionNotPreferred(affinity=numa, found=larger.numa),))
        numa = larger.numa
    if _violates_groups(machine, numa):
        return Refused((GroupViolated(affinity=numa, left=free_memory(machine, requested)),))
    return Granted(numa)


def _violates_groups(machine: NUMANodeMap, numa: NUMASet) -> bool:
    """Whether one of several nodes is in use alone or in another group.

    Follows: v1.36, memorymanager/policy_static.go, isAffinityViolatingNUMAAllocations.
    """
    return numa.mask & (numa.mask - 1) != 0 and any(
        machine[n].assignments != 0 and (len(machine[n].cells) == 1 or machine[n].cells != numa) for n in numa
    )


def _blocks(nodes: tuple[int, ...], amounts: MemoryAmounts) -> tuple[Block, ...]:
    return tuple([Block(nodes, kind, size) for kind, size in sorted(amounts.items())])


def _without_blocks(machine: NUMANodeMap, blocks: Collection[Block]) -> NUMANodeMap:
    for block in blocks:
        machine = without_block(machine, block)
    return machine


def _with_reusable(
    state: MemoryState, pod: Pod, container: Container, blocks: Collection[Block]
) -> MemoryState:
    """Updates the reusable memory of init containers: an init container adds to it, another container uses it up.

    Follows: v1.36, memorymanager/policy_static.go, updatePodReusableMemory. Reusable memory of other pods is dropped.
    """
    before = state.reusable.of(pod.metadata.uid)
    if not before and not pod.spec.init_containers:
        return replace(state, reusable=NO_REUSABLE_MEMORY) if state.reusable.sizes else state
    sizes = dict(before)
    is_init = any(init.name == container.name and not init.is_sidecar for init in pod.spec.init_containers)
    for block in blocks:
        key, old_size = (block.mask, block.resource), sizes.get((block.mask, block.resource), 0)
        if is_init:
            sizes[key] = max(old_size, block.size)
        elif old_size:
            sizes[key] = max(old_size - block.size, 0)
    return replace(
        state, reusable=ReusableMemory(pod.metadata.uid, {key: size for key, size in sizes.items() if size})
    )


def _with_init_blocks_shrunk(
    state: MemoryState, pod: Pod, container: Container, blocks: Collection[Block]
) -> MemoryState:
    """Shrinks the blocks of earlier init containers by what this container reuses of them.

    Follows: v1.36, memorymanager/policy_static.go, updateInitContainersMemoryBlocks.
    """
    for block in blocks if pod.spec.init_containers else ():
        size = block.size
        for earlier in pod.spec.init_containers:
            if earlier.name == container.name or size == 0:
                break
            held = state.blocks(pod.metadata.uid, earlier.name)
            if earlier.is_sidecar or not held:
                continue
            shrunk = []
            for old in held:
                is_same_memory = old.resource == block.resource and old.mask == block.mask
                reused_size = min(old.size, size) if is_same_memory else 0
                size -= reused_size
                shrunk.append(replace(old, size=old.size - reused_size))
            state = state.with_blocks(pod.metadata.uid, earlier.name, tuple(shrunk))
    return state


def _shares_of_containers(demand: PodMemoryDemand, total: MemoryAmounts) -> Mapping[str, MemoryAmounts]:
    """The pod's memory by container; containers without exclusive memory share the rest.

    An init container without exclusive memory shares everything but the memory of earlier sidecars.
    Amounts beyond the total wrap around, as unsigned 64-bit numbers do.
    """
    shares: dict[str, MemoryAmounts] = {}
    shared = dict(total)
    for container in demand.pod.spec.init_containers:
        requested = demand.container(container)
        assert not isinstance(
            requested, MemoryRequestInexact
        )  # the shared pool was checked with every request
        if requested:
            shares[container.name] = _positive(requested)
            if container.is_sidecar:
                shared = _subtracted(shared, requested)
        elif not container.is_sidecar:
            shares[container.name] = _positive(shared)
    for container in demand.pod.spec.containers:
        requested = demand.container(container)
        assert not isinstance(
            requested, MemoryRequestInexact
        )  # the shared pool was checked with every request
        if requested:
            shares[container.name] = _positive(requested)
            shared = _subtracted(shared, requested)
    containers = (*demand.pod.spec.init_containers, *demand.pod.spec.containers)
    return {container.name: shares.get(container.name, _positive(shared)) for container in containers}


def _subtracted(shared: MemoryAmounts, requested: MemoryAmounts) -> dict[str, int]:
    left = dict(shared)
    for kind, size in requested.items():
        if size:
            left[kind] = (left.get(kind, 0) - size) % UINT64_MODULUS
    return left


def _positive(amounts: MemoryAmounts) -> dict[str, int]:
    return {kind: size for kind, size in amounts.items() if size}


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
