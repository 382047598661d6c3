"""Setting memory aside for containers and pods, and giving it back."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.core.memory.hints import best_hint, enough, memory_hints, missing_type
from nodewright.core.memory.policy import MemoryPolicy, NonePolicy
from nodewright.core.memory.state import (
    EMPTY,
    Block,
    Machine,
    MemoryState,
    Reusable,
    left_over,
    with_block,
    without_block,
)
from nodewright.core.memory.wants import WORD, Amounts, MemoryWants
from nodewright.model.hints import Hint
from nodewright.model.memory_reasons import (
    AffinityCannotGrow,
    DefaultNotPreferred,
    ExtensionNotPreferred,
    GroupViolated,
    MemoryPlaced,
    MemoryRequestInexact,
    NoNUMAFits,
)
from nodewright.model.objects import Container, Pod
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet

NOWHERE = Hint(None, preferred=False)


class Allocation(msgspec.Struct, frozen=True):
    """The verdict, and the state after it; a refusal leaves the state as it was.

    Granted None: the container gets no memory of its own.
    """

    verdict: Verdict[tuple[Block, ...] | None]
    state: MemoryState


def allocate(
    policy: MemoryPolicy,
    state: MemoryState,
    wants: MemoryWants,
    container: Container,
    affinity: Hint = NOWHERE,
) -> Allocation:
    """The container with memory of its own, if it gets any, on the NUMA nodes of the affinity or more.

    Follows: v1.36, memorymanager/policy_static.go, Allocate.
    """
    if isinstance(policy, NonePolicy) or not wants.is_guaranteed or wants.is_skipped:
        return Allocation(Granted(None), state)
    uid, name = wants.pod.uid, container.name
    held = state.blocks(uid, name)
    if held is not None:
        return Allocation(Granted(held), _with_reusable(state, wants.pod, container, held))
    requested = wants.container(container)
    if isinstance(requested, MemoryRequestInexact):
        return Allocation(Refused((requested,)), state)
    reuse = state.reusable.of(uid)
    chosen = _choose(state.machine, requested, reuse, affinity)
    if isinstance(chosen, Refused):
        return Allocation(chosen, state)
    mask, nodes = chosen.value.mask, tuple(chosen.value)
    blocks = tuple(Block(nodes, kind, size) for kind, size in sorted(requested.items()))
    machine, reused = state.machine, {}
    for block in blocks:
        again = min(reuse.get((mask, block.resource), 0), block.size)
        machine = with_block(machine, replace(block, size=block.size - again))
        if again:
            reused[block.resource] = again
    after = _with_reusable(replace(state, machine=machine), wants.pod, container, blocks)
    after = _init_blocks_shrunk(after.with_blocks(uid, name, blocks), wants.pod, container, blocks)
    placed = MemoryPlaced(
        numa=chosen.value,
        affinity=affinity.numa,
        requested=tuple(sorted(requested.items())),
        reused=tuple(sorted(reused.items())),
    )
    return Allocation(Granted(blocks, (placed,)), after)


def allocate_pod(
    policy: MemoryPolicy, state: MemoryState, wants: MemoryWants, affinity: Hint = NOWHERE
) -> Allocation:
    """The pod with memory as a whole, divided among its containers.

    Follows: v1.36, memorymanager/policy_static.go, AllocatePod.
    """
    if isinstance(policy, NonePolicy) or not wants.is_guaranteed:
        return Allocation(Granted(None), state)
    total = wants.whole_pod()
    if isinstance(total, MemoryRequestInexact):
        # The kubelet only logs this one.
        return Allocation(Granted(None), state)
    fault = wants.shared_memory_fault(total)
    if fault:
        return Allocation(Refused((fault,)), state)
    chosen = _choose(state.machine, total, state.reusable.of(wants.pod.uid), affinity)
    if isinstance(chosen, Refused):
        return Allocation(chosen, state)
    nodes = tuple(chosen.value)
    blocks = _blocks(nodes, total)
    machine = state.machine
    for block in blocks:
        machine = with_block(machine, block)
    held = {name: _blocks(nodes, amounts) for name, amounts in _divided(wants, total).items()}
    uid = wants.pod.uid
    after = replace(
        state,
        machine=machine,
        pods={**state.pods, uid: blocks},
        assignments={**state.assignments, uid: {**state.assignments.get(uid, EMPTY), **held}},
    )
    placed = MemoryPlaced(
        numa=chosen.value, affinity=affinity.numa, requested=tuple(sorted(total.items())), reused=()
    )
    return Allocation(Granted(blocks, (placed,)), after)


def remove(policy: MemoryPolicy, state: MemoryState, pod: str, container: str) -> MemoryState:
    """The state without the container; memory that a pod holds as a whole is freed with its last container.

    Follows: v1.36, memorymanager/policy_static.go, RemoveContainer.
    """
    if isinstance(policy, NonePolicy):
        return state
    whole = state.pods.get(pod) if policy.gates.pod_level_managers else None
    if whole is not None:
        left = state.without(pod, container)
        if pod in left.assignments:
            return left
        pods = {uid: blocks for uid, blocks in left.pods.items() if uid != pod}
        return replace(left, machine=_without_blocks(left.machine, whole), pods=pods)
    blocks = state.blocks(pod, container)
    if blocks is None:
        return state
    left = state.without(pod, container)
    return replace(left, machine=_without_blocks(left.machine, blocks))


def without_stale(
    policy: MemoryPolicy, state: MemoryState, active: Mapping[str, Collection[str]]
) -> MemoryState:
    """The state without containers that are not among the active ones (names by pod uid).

    Follows: v1.36, memorymanager/memory_manager.go, removeStaleState.
    Departs: by pod and container name, where the kubelet walks maps in random order.
    """
    for pod, containers in sorted(state.assignments.items()):
        for container in sorted(containers):
            if container not in active.get(pod, ()):
                state = remove(policy, state, pod, container)
    return state


def _choose(
    machine: Machine, requested: Amounts, reuse: Mapping[tuple[int, str], int], affinity: Hint
) -> Verdict[NUMASet]:
    """The NUMA nodes to place on: the affinity, the default where it leaves that open, or a larger set.

    Follows: v1.36, memorymanager/policy_static.go, Allocate, getDefaultHint, extendTopologyManagerHint,
        isAffinityViolatingNUMAAllocations.
    """
    everywhere = sorted(machine)
    shown = tuple(sorted(requested.items()))
    hint, numa = affinity, affinity.numa
    if numa is None:
        crash = missing_type(machine, requested, everywhere)
        if crash:
            return Refused((crash,))
        best = best_hint(memory_hints(machine, requested, reuse))
        if best is None or best.numa is None:
            return Refused((NoNUMAFits(requested=shown, left=left_over(machine, requested)),))
        if affinity.preferred and not best.preferred:
            return Refused((DefaultNotPreferred(found=best.numa),))
        hint, numa = best, best.numa
    crash = missing_type(machine, requested, list(numa))
    if crash:
        return Refused((crash,))
    if not enough(machine, numa.mask, requested, {}):
        crash = missing_type(machine, requested, everywhere)
        if crash:
            return Refused((crash,))
        larger = best_hint(memory_hints(machine, requested, reuse), containing=numa.mask)
        if larger is None or larger.numa is None:
            left = left_over(machine, requested)
            return Refused((AffinityCannotGrow(affinity=numa, requested=shown, left=left),))
        if hint.preferred and not larger.preferred:
            return Refused((ExtensionNotPreferred(affinity=numa, found=larger.numa),))
        numa = larger.numa
    if _violates_groups(machine, numa):
        return Refused((GroupViolated(affinity=numa, left=left_over(machine, requested)),))
    return Granted(numa)


def _violates_groups(machine: Machine, numa: NUMASet) -> bool:
    """Whether several nodes include one that is used alone or together with others.

    Follows: v1.36, memorymanager/policy_static.go, isAffinityViolatingNUMAAllocations.
    """
    return len(numa) != 1 and any(
        machine[n].assignments != 0 and (len(machine[n].cells) == 1 or machine[n].cells != numa) for n in numa
    )


def _blocks(nodes: tuple[int, ...], amounts: Amounts) -> tuple[Block, ...]:
    return tuple(Block(nodes, kind, size) for kind, size in sorted(amounts.items()))


def _without_blocks(machine: Machine, blocks: Collection[Block]) -> Machine:
    for block in blocks:
        machine = without_block(machine, block)
    return machine


def _with_reusable(
    state: MemoryState, pod: Pod, container: Container, blocks: Collection[Block]
) -> MemoryState:
    """What init containers leave, after this one: more if it is one of them, less if it takes some over.

    Follows: v1.36, memorymanager/policy_static.go, updatePodReusableMemory. Other pods' leavings are forgotten.
    """
    sizes = dict(state.reusable.of(pod.uid))
    is_init = any(one.name == container.name and not one.is_sidecar for one in pod.spec.init_containers)
    for block in blocks:
        place, had = (block.mask, block.resource), sizes.get((block.mask, block.resource), 0)
        if is_init:
            sizes[place] = max(had, block.size)
        elif had:
            sizes[place] = max(had - block.size, 0)
    return replace(state, reusable=Reusable(pod.uid, {place: size for place, size in sizes.items() if size}))


def _init_blocks_shrunk(
    state: MemoryState, pod: Pod, container: Container, blocks: Collection[Block]
) -> MemoryState:
    """The state in which earlier init containers hold so much less as this container took over from them.

    Follows: v1.36, memorymanager/policy_static.go, updateInitContainersMemoryBlocks.
    """
    for block in blocks:
        size = block.size
        for earlier in pod.spec.init_containers:
            if earlier.name == container.name or size == 0:
                break
            held = state.blocks(pod.uid, earlier.name)
            if earlier.is_sidecar or not held:
                continue
            shrunk = []
            for one in held:
                same = one.resource == block.resource and one.mask == block.mask
                given = min(one.size, size) if same else 0
                size -= given
                shrunk.append(replace(one, size=one.size - given))
            state = state.with_blocks(pod.uid, earlier.name, tuple(shrunk))
    return state


def _divided(wants: MemoryWants, total: Amounts) -> Mapping[str, Amounts]:
    """Each container's part of the pod's memory; who asks for none shares what is left.

    An init container without a part of its own has the whole, but for what earlier sidecars hold.
    What exceeds the whole wraps around, as unsigned 64-bit numbers do.
    """
    parts: dict[str, Amounts] = {}
    pool = dict(total)
    for container in wants.pod.spec.init_containers:
        wanted = wants.container(container)
        assert not isinstance(wanted, MemoryRequestInexact)  # the shared pool was checked with every request
        if wanted:
            parts[container.name] = _positive(wanted)
            if container.is_sidecar:
                pool = _taken(pool, wanted)
        elif not container.is_sidecar:
            parts[container.name] = _positive(pool)
    for container in wants.pod.spec.containers:
        wanted = wants.container(container)
        assert not isinstance(wanted, MemoryRequestInexact)  # the shared pool was checked with every request
        if wanted:
            parts[container.name] = _positive(wanted)
            pool = _taken(pool, wanted)
    containers = (*wants.pod.spec.init_containers, *wants.pod.spec.containers)
    return {one.name: parts.get(one.name, _positive(pool)) for one in containers}


def _taken(pool: Amounts, wanted: Amounts) -> dict[str, int]:
    left = dict(pool)
    for kind, size in wanted.items():
        if size:
            left[kind] = (left.get(kind, 0) - size) % WORD
    return left


def _positive(amounts: Amounts) -> dict[str, int]:
    return {kind: size for kind, size in amounts.items() if size}
