"""On which NUMA nodes could these CPUs be? The hints of the static policy, as rules, not as lists."""

from dataclasses import dataclass

from nodewright.core.cpu.policy import CPUPolicy, NonePolicy, StaticPolicy
from nodewright.core.cpu.state import NO_CPUS, CPUState
from nodewright.core.cpu.wants import PodWants
from nodewright.model.hints import IMPOSSIBLE, Fitting, HintList, ProviderHints, by_node
from nodewright.model.objects import Container
from nodewright.model.resource_names import CPU
from nodewright.values.idset import CPUSet, NUMASet


def container_hints(
    policy: CPUPolicy, state: CPUState, wants: PodWants, container: Container
) -> ProviderHints | None:
    """The NUMA nodes for a container; None: no opinion, because it gets no CPUs of its own.

    Follows: v1.36, cpumanager/policy_static.go, GetTopologyHints.
    """
    if isinstance(policy, NonePolicy):
        return None
    requested = wants.container(container)
    if requested == 0 or wants.is_skipped:
        return None
    pod = wants.pod.uid
    allocated = state.exclusive(pod, container.name)
    if allocated is None:
        return {CPU: cpu_hints(policy, policy.free(state), state.reusable_by(pod), requested)}
    if len(allocated) != requested:
        return {CPU: IMPOSSIBLE}
    return {CPU: cpu_hints(policy, allocated, NO_CPUS, requested)}


def pod_hints(policy: CPUPolicy, state: CPUState, wants: PodWants) -> ProviderHints | None:
    """The NUMA nodes for a pod as a whole; None: no opinion, because it gets no CPUs of its own.

    Follows: v1.36, cpumanager/policy_static.go, GetPodTopologyHints.
    """
    if isinstance(policy, NonePolicy):
        return None
    requested = wants.whole_pod()
    if requested == 0 or wants.is_skipped:
        return None
    if wants.is_pod_managed and wants.shared_pool_fault() is not None:
        return {CPU: IMPOSSIBLE}
    pod = wants.pod.uid
    assigned = NO_CPUS
    for container in (*wants.pod.spec.init_containers, *wants.pod.spec.containers):
        allocated = state.exclusive(pod, container.name)
        if allocated is not None:
            if len(allocated) != wants.container(container):
                return {CPU: IMPOSSIBLE}
            assigned |= allocated
    if len(assigned) == requested:
        return {CPU: cpu_hints(policy, assigned, NO_CPUS, requested)}
    return {CPU: cpu_hints(policy, policy.free(state), state.reusable_by(pod) | assigned, requested)}


def cpu_hints(policy: StaticPolicy, free: CPUSet, reusable: CPUSet, requested: int) -> HintList:
    """All sets of NUMA nodes that hold the reusable CPUs and enough free ones beside them.

    Follows: v1.36, cpumanager/policy_static.go, generateCPUTopologyHints, isHintSocketAligned.
    Departs: a rule instead of a list of up to 2**n masks; expanded, it is the same list.
    """
    topology = policy.topology
    room = {numa: (mask & free.mask).bit_count() for numa, mask in topology.in_numa.items()}
    touching = [1 << numa for numa, mask in topology.in_numa.items() if mask & reusable.mask]
    # A CPU that the machine lacks (from an old state) is taken to be on node 0, where there is one.
    if not reusable <= topology.cpus:
        touching.append(1)
    if 0 in room:
        room[0] += len(free - topology.cpus)
    smallest = smallest_size(policy, requested)
    sockets, spanned = _socket_rule(policy, smallest)
    return HintList(
        fitting=Fitting(
            nodes=topology.numa_ids,
            demands=(by_node(requested - len(reusable), room),),
            preferred_size=smallest,
            touching=tuple(touching),
            sockets=sockets,
            preferred_sockets=spanned,
        )
    )


def smallest_size(policy: StaticPolicy, requested: int) -> int:
    """The number of NUMA nodes that would do if all their CPUs were free, also the reserved ones."""
    sizes = sorted((mask.bit_count() for mask in policy.topology.in_numa.values()), reverse=True)
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        if total >= requested:
            return count
    return len(sizes)


def _socket_rule(policy: StaticPolicy, smallest: int) -> tuple[tuple[int, ...], int]:
    """The NUMA nodes of each socket, and on how many sockets a preferred set lies."""
    topology = policy.topology
    a_socket = topology.num_numa_nodes // topology.num_sockets if topology.num_sockets else 0
    if not policy.options.align_by_socket or a_socket == 0:
        return (), 0
    sockets = tuple(
        NUMASet.from_ids(part.id for part in parts).mask for parts in topology.numa_in_socket.values()
    )
    return sockets, -(-smallest // a_socket)


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUHintFacts:
    """Why a set of NUMA nodes is a hint for CPUs or not, and preferred or not.

    Units: CPUs.
    """

    numa: NUMASet
    requested: int
    reusable: int
    free: int
    reusable_outside: NUMASet
    """NUMA nodes with reusable CPUs that are not in the set; with any, it is no hint."""
    size_preferred: int
    sockets: int
    """How many it lies on; 0 where sockets do not count."""
    sockets_preferred: int
    is_hint: bool
    is_preferred: bool


def hint_facts(hints: Fitting, reusable: CPUSet, numa: NUMASet) -> CPUHintFacts:
    """The facts about one set of NUMA nodes, under the rule that `cpu_hints` made with these reusable CPUs."""
    (demand,) = hints.demands
    outside = NUMASet()
    for node in hints.touching:
        if not node & numa.mask:
            outside |= NUMASet(node)
    is_hint = hints.fits(numa.mask)
    return CPUHintFacts(
        numa=numa,
        requested=demand.needed + len(reusable),
        reusable=len(reusable),
        free=demand.total(numa.mask),
        reusable_outside=outside,
        size_preferred=hints.preferred_size,
        sockets=sum(1 for socket in hints.sockets if socket & numa.mask),
        sockets_preferred=hints.preferred_sockets,
        is_hint=is_hint,
        is_preferred=is_hint and hints.prefers(numa.mask),
    )
