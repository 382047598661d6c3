"""Allocation and release of memory for containers and pods by the static policy."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.memory.memory_demand import UINT64_MODULUS, MemoryAmounts, PodMemoryDemand
from nodewright.engine.core.memory.memory_hints import (
    best_hint,
    has_enough_memory,
    memory_hints,
    missing_memory_type,
)
from nodewright.engine.core.memory.memory_policy import MemoryPolicy, NoneMemoryPolicy
from nodewright.engine.core.memory.memory_state import (
    NO_BLOCKS,
    NO_REUSABLE_MEMORY,
    Block,
    MemoryState,
    NUMANodeMap,
    ReusableMemory,
    free_memory,
    with_block,
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
    NoNUMAFits,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import Hint

NO_NUMA_NODES = Hint(None, preferred=False)


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
        machine = with_block(machine, new)
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
    machine = state.machine
    for block in blocks:
        machine = with_block(machine, block)
    held = {name: _blocks(nodes, amounts) for name, amounts in _shares_of_containers(demand, total).items()}
    uid = demand.pod.metadata.uid
    after = replace(
        state,
        machine=machine,
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
