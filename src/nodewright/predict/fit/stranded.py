"""What of a node is free and cannot be used, which pods hold its NUMA nodes open, and the fewest pods to move."""

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate, combinations
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.requests.effective_resources import scheduler_requests, scheduler_usage
from nodewright.engine.core.requests.qos_and_priority import is_critical, is_mirror, is_static
from nodewright.engine.node.events import PodAdded, PodStarted
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.placement_cost import NUMALayout
from nodewright.engine.node.pod_admission import placement_of, unallocated_resources
from nodewright.engine.node.resource_holders import FullNames, with_pod_names
from nodewright.engine.node.step import Decision, step
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, PODS
from nodewright.model.reasons.reason import Reason
from nodewright.model.values.idset import NUMASet
from nodewright.predict.fit.shapes import NUMAPlacement, regions_of
from nodewright.predict.pod_claims import claims_on

if TYPE_CHECKING:
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster

MOVE_BUDGET = 2_000
"""Decisions of the search for the fewest pods to move."""
MAX_COPIES = 1_000


def copies(
    state: NodeState, pod: Pod, claims: "ClaimCluster | None" = None, *, most: int = sys.maxsize
) -> tuple[int, tuple[Reason | str, ...]]:
    """How many copies of a pod the node admits beside its pods, one after the other, and why not one more.

    ``pod`` is as stored. At most ``most``, for no reason; those that would preempt pods do not count. ``claims``: what
    devices are allocated from, a text is why they suffice no longer; None: they are not asked about.
    """
    for number in range(most):
        name = f"{pod.metadata.name}-{number}"
        copy = replace(pod, metadata=replace(pod.metadata, name=name, uid=f"{pod.uid}-copy-{number}"))
        result = step(state, PodAdded(copy))
        if claims is not None:
            of_claims = claims_on(state.config, claims, copy)
            if of_claims.obstacle is not None:
                return number, (of_claims.obstacle.why,)
            claims = of_claims.after
        if result.decision is not Decision.ADMITTED or result.victims is not None:
            names = FullNames({**state.pods, copy.uid: copy}, lambda pod: pod)
            return number, tuple(with_pod_names(reason, names) for reason in result.because)
        state = step(result.state, PodStarted(copy.uid)).state
    return most, ()


def copies_by_amounts(state: NodeState, pod: Pod, allocatable: Mapping[str, int]) -> int:
    """The copies for which the allocatable amounts suffice, wherever they are: what a scheduler counts.

    ``pod`` is as stored.
    """
    used = {**state.usage.requests, PODS: state.usage.pods}
    rooms = [
        (allocatable[name] - used.get(name, 0)) // amount
        for name, amount in {**scheduler_requests(pod), PODS: 1}.items()
        if amount > 0 and name in allocatable
    ]
    return max(min(rooms, default=0), 0)


def room_key(state: NodeState) -> Hashable:
    """What the admission of further pods depends on: nodes without conditions that have equal keys have the same room.

    Preemption, and pods that name nodes, depend on more.
    """
    unallocated = unallocated_resources(state)
    return (
        id(state.config.parts.machine),
        id(state.config.parts.kubelet),
        state.usage.pods,
        frozenset(state.usage.requests.items()),
        state.usage.ports,
        unallocated.shared_cpus,
        tuple(
            (table.numa, table.group, table.assignments, frozenset(table.free.items()))
            for table in unallocated.memory
        ),
        tuple((name, frozenset(ids)) for name, ids in sorted(unallocated.devices.items())),
    )


class HeldNUMANode(Report, frozen=True, kw_only=True):
    """A NUMA node, and the pods that hold exclusive CPUs, memory or devices of it."""

    numa_node: int
    free: Mapping[str, int]
    """What is free of it: whole CPUs that are not reserved, bytes of memory, devices; without what is never exclusive."""
    pods: tuple[Pod, ...]
    is_held_open: bool
    """Whether pods hold a part of it although devices, or without devices anything, are free: no pod gets all of it."""


class PodsToMove(Report, frozen=True, kw_only=True):
    """The fewest pods without which a NUMA node or a socket is free, or a pod is admitted."""

    frees: str
    """E.g. `NUMA node 0`, or `room for ml/train`."""
    pods: tuple[Pod, ...]
    """Empty: it is free."""
    cannot_move: tuple[Pod, ...] = ()
    """Those of them that are static or of a DaemonSet, which come back to the node."""
    is_smallest: bool = True
    """Whether no smaller set does; False: the search was ended by its budget."""


def held_numa_nodes(state: NodeState, resource: str) -> tuple[HeldNUMANode, ...]:
    """The NUMA nodes with what is free of them, and the pods that hold the rest.

    ``resource``: the one whose pieces have to be free for a NUMA node with such devices to be held open.
    """
    state = state.without_stale()
    layout, unused = NUMALayout.of(state), unallocated_resources(state)
    memory = {each.numa: each.free for each in unused.memory}
    nodes = []
    for numa, cpus in layout.cpus.items():
        free = dict(memory.get(numa, {}))
        if unused.shared_cpus is not None:
            free[CPU] = (unused.shared_cpus.mask & cpus & ~layout.reserved).bit_count()
        for name, devices in state.config.facts.devices.items():
            local = {device.id for device in devices if numa in (device.numa_nodes or ())}
            if local:
                free[name] = len(local.intersection(unused.devices.get(name, ())))
        pods = _holders(state, layout, NUMASet.of(numa))
        is_open = bool(pods) and any([free[resource]] if resource in free else free.values())
        nodes.append(HeldNUMANode(numa_node=numa, free=free, pods=pods, is_held_open=is_open))
    return tuple(nodes)


def _holders(state: NodeState, layout: NUMALayout, numa: NUMASet) -> tuple[Pod, ...]:
    """The pods with exclusive CPUs, memory or devices on one of the NUMA nodes."""
    return tuple(
        pod for pod in state.pods.values() if layout.numa_nodes(state, placement_of(state, pod)) & numa
    )


def can_move(pod: Pod) -> bool:
    """Whether the pod stays away from the node once it is deleted: it is not static, and not of a DaemonSet."""
    owners = {owner.kind for owner in pod.metadata.owner_references}
    return not (is_static(pod) or is_mirror(pod) or owners & {"DaemonSet", "Node"})


def pods_to_move(state: NodeState) -> tuple[PodsToMove, ...]:
    """The fewest pods that free a NUMA node with CPUs and, on machines with several in each, a socket.

    A region is free without all pods that hold something there, and only then; of the regions, the one with the fewest
    pods that cannot move is chosen, then the one with the fewest pods, then the one with the smallest ones.
    """
    state = state.without_stale()
    layout = NUMALayout.of(state)
    moves: dict[NUMAPlacement, list[tuple[tuple[int, int, float, int], PodsToMove]]] = {}
    for place, region in enumerate(regions_of(state)):
        if region.placement is NUMAPlacement.NODE or not any(layout.cpus[numa] for numa in region.numa):
            continue
        pods = _holders(state, layout, region.numa)
        fixed = tuple(pod for pod in pods if not can_move(pod))
        move = PodsToMove(frees=region.name, pods=pods, cannot_move=fixed)
        key = (len(fixed), len(pods), sum(_share(state, pod) for pod in pods), place)
        moves.setdefault(region.placement, []).append((key, move))
    return tuple(min(entries, key=lambda entry: entry[0])[1] for entries in moves.values())


def _share(state: NodeState, pod: Pod) -> float:
    allocatable = state.config.view.allocatable
    requests = scheduler_requests(pod)
    return sum(amount / allocatable[name] for name, amount in requests.items() if allocatable.get(name))


def pods_to_admit(state: NodeState, pod: Pod, budget: int = MOVE_BUDGET) -> PodsToMove | None:
    """The fewest pods of the node that have to move so that it admits the pod; None: none, or all do not suffice.

    Sets of the number of pods that amounts require are tried, then of one more, and so on, small pods first, at most
    ``budget``. Where there are more sets and the node refuses the pod even without any of the pods, none is tried.
    """
    stored = pod_as_stored(pod, state.config.gates)
    state = state.without_pod(pod.uid)

    def admits(others: Sequence[Pod]) -> bool:
        without = state.without_active([other.uid for other in others])
        return step(without, PodAdded(stored)).decision is Decision.ADMITTED

    movable = sorted(
        filter(can_move, state.pods.values()), key=lambda each: (_share(state, each), each.full_name)
    )
    least = _fewest_by_amounts(state, stored, movable)
    if least > len(movable) or admits(()) or (2 ** len(movable) > budget and not admits(movable)):
        return None
    tried, frees = 0, f"room for {pod.full_name}"
    for size in range(least, len(movable) + 1):
        for others in combinations(movable, size):
            if tried == budget:
                pods = _enough(state, movable, admits)
                return PodsToMove(frees=frees, pods=pods, is_smallest=len(pods) <= size)
            tried += 1
            if admits(others):
                return PodsToMove(frees=frees, pods=others)
    return None


def _fewest_by_amounts(state: NodeState, stored: Pod, movable: Sequence[Pod]) -> int:
    """How many of the pods have to move at least, as the free amounts do not suffice before; more than all: they never do."""
    if is_critical(stored):
        return 1  # It may preempt more of them.
    rules, allocatable = state.usage.rules, state.config.view.allocatable
    usages = [{**scheduler_usage(each, rules), PODS: 1} for each in movable]
    fewest = 1
    for name, amount in {**scheduler_usage(stored, rules), PODS: 1}.items():
        used = state.usage.pods if name == PODS else state.usage.requests.get(name, 0)
        missing = used + amount - allocatable.get(name, used + amount)
        held = sorted((usage.get(name, 0) for usage in usages), reverse=True)
        enough = (count for count, freed in enumerate(accumulate(held), 1) if freed >= missing)
        fewest = max(fewest, next(enough, len(movable) + 1)) if missing > 0 else fewest
    return fewest


def _enough(
    state: NodeState, pods: Sequence[Pod], admits: Callable[[Sequence[Pod]], bool]
) -> tuple[Pod, ...]:
    """A set of which each pod is needed: what holds a NUMA node or a socket, otherwise all, without those that can stay.

    Large pods are considered first.
    """
    state = state.without_stale()
    layout, sets = NUMALayout.of(state), list[list[Pod]]()
    for region in regions_of(state):
        if region.placement is not NUMAPlacement.NODE:
            uids = {pod.uid for pod in _holders(state, layout, region.numa)}
            sets.append([pod for pod in pods if pod.uid in uids])
    smallest = list(pods)
    for pods_of_set in [each for each in sets if admits(each)] or [smallest]:
        needed = pods_of_set
        for pod in reversed(pods_of_set):
            fewer = [each for each in needed if each is not pod]
            needed = fewer if admits(fewer) else needed
        smallest = min(smallest, needed, key=len)
    return tuple(smallest)
