"""Allocates exclusive CPUs to containers and pods, and releases them.

Also the topology hints of the static policy, as a rule instead of a list of masks.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_policy import CPUPolicy, NoneCPUPolicy, StaticCPUPolicy
from nodewright.engine.core.cpu.cpu_state import NO_CPUS, CPUState, PodCPURequests
from nodewright.engine.core.cpu.cpu_topology import Mask
from nodewright.model.kubernetes.objects import Container
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.reasons.cpu import (
    CPUHolder,
    CPUsOfNUMA,
    CPUsStranded,
    KubeletCrashes,
    NotEnoughCPUs,
    NotEnoughWholeCores,
    NotWholeCores,
)
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.subsets import Demand
from nodewright.model.values.topology_hints import IMPOSSIBLE, Fitting, HintList, ProviderHints

ReasonT = TypeVar("ReasonT")


def with_holders(reason: ReasonT, policy: StaticCPUPolicy, state: CPUState) -> ReasonT:
    """The reason; a shortage of CPUs with the free CPUs and the holders on each NUMA node."""
    if isinstance(reason, NotEnoughCPUs | NotEnoughWholeCores):
        return replace(reason, where=cpu_stock(policy, state))
    return reason


def cpu_stock(policy: StaticCPUPolicy, state: CPUState) -> tuple[CPUsOfNUMA, ...]:
    """The free CPUs, the reserved ones and the holders of the others, by NUMA node."""
    holders = tuple(state.holders())
    free = policy.free(state)
    stock = []
    for numa, mask in policy.topology.in_numa.items():
        cpus = CPUSet(mask)
        held = tuple(
            CPUHolder(pod=holder.pod, container=holder.container, cpus=holder.cpus & cpus)
            for holder in holders
            if not holder.cpus.isdisjoint(cpus)
        )
        stock.append(CPUsOfNUMA(numa=numa, free=free & cpus, reserved=policy.reserved & cpus, holders=held))
    return tuple(stock)


class CPUAllocation(msgspec.Struct, frozen=True):
    """The verdict, and the state after it.

    Granted None: the container runs in a shared pool. After a refusal the state is unchanged, except for a
    defect of the kubelet: a pod keeps its CPUs if they cannot be divided among its containers.
    """

    state: CPUState
    verdict: Verdict[CPUSet | None]


def allocate(
    policy: CPUPolicy,
    state: CPUState,
    requests: PodCPURequests,
    container: Container,
    affinity: NUMASet | None,
) -> CPUAllocation:
    """Allocates a container's exclusive CPUs, if it gets any; CPUs on the affinity's NUMA nodes are preferred.

    Follows: v1.36, cpumanager/policy_static.go, Allocate.
    """
    requested = 0 if isinstance(policy, NoneCPUPolicy) else requests.container_cpus(container)
    if isinstance(policy, NoneCPUPolicy) or requested == 0 or requests.is_ignored:
        return CPUAllocation(state, Granted(None))
    misaligned = _misaligned(policy, state, requested)
    if misaligned is not None:
        return CPUAllocation(state, Refused((misaligned,)))
    pod = requests.pod.metadata.uid
    assigned = state.exclusive(pod, container.name)
    if assigned is not None:
        return CPUAllocation(_with_reuse(state, requests, container, assigned), Granted(assigned))
    taken = _take(policy, state, requested, affinity, state.reusable_by(pod))
    if isinstance(taken, Refused):
        return CPUAllocation(state, taken)
    after = state.with_taken(pod, container.name, taken.value)
    return CPUAllocation(_with_reuse(after, requests, container, taken.value), taken)


def allocate_pod(
    policy: CPUPolicy, state: CPUState, requests: PodCPURequests, affinity: NUMASet | None
) -> CPUAllocation:
    """Allocates a pod's CPUs at pod level and divides them among its containers.

    Follows: v1.36, cpumanager/policy_static.go, AllocatePod.
    Departs: with `kubelet_defects: avoid` a refused pod holds nothing, and an allocated pod keeps its CPUs.
    """
    total = 0 if isinstance(policy, NoneCPUPolicy) else requests.pod_cpus()
    if isinstance(policy, NoneCPUPolicy) or total == 0:
        return CPUAllocation(state, Granted(None))
    pod = requests.pod.metadata.uid
    if pod in state.pods and not policy.follows_defects:
        return CPUAllocation(state, Granted(state.pods[pod]))
    refusal = requests.shared_pool_fault() or _misaligned(policy, state, total)
    if refusal is not None:
        return CPUAllocation(state, Refused((refusal,)))
    taken = _take(policy, state, total, affinity, NO_CPUS)
    if isinstance(taken, Refused):
        return CPUAllocation(state, taken)
    after = replace(state, default=state.default - taken.value, pods={**state.pods, pod: taken.value})
    divided = _divided(policy, requests, taken.value)
    if isinstance(divided, Refused):
        if not policy.follows_defects:
            return CPUAllocation(state, divided)
        return CPUAllocation(after, Refused((*divided.because, CPUsStranded(cpus=taken.value))))
    for container, cpus in divided.value.items():
        after = after.with_assignment(pod, container, cpus)
    return CPUAllocation(after, Granted(taken.value, (*taken.because, *divided.because)))


def remove_container(policy: CPUPolicy, state: CPUState, pod: str, container: str) -> CPUState:
    """The state without the container; its CPUs return to the shared pool, except those that siblings hold.

    Follows: v1.36, cpumanager/policy_static.go, RemoveContainer.
    """
    released = None if isinstance(policy, NoneCPUPolicy) else state.exclusive(pod, container)
    if isinstance(policy, NoneCPUPolicy) or released is None:
        return state
    after = state.without_assignment(pod, container)
    siblings = after.assignments.get(pod, {})
    if policy.gates.pod_level_managers and pod in state.pods:
        if siblings:
            return after  # the pod's CPUs are released with its last container
        pods = {uid: cpus for uid, cpus in state.pods.items() if uid != pod}
        return replace(after, default=state.default | state.pods[pod], pods=pods)
    for cpus in siblings.values():
        released -= cpus
    return after.with_default(state.default | released)


def without_stale_containers(
    policy: CPUPolicy, state: CPUState, active: Mapping[str, Collection[str]]
) -> CPUState:
    """The state without containers that are not among the active ones (names by pod uid).

    The kubelet does this before hints and before each allocation.

    Follows: v1.36, cpumanager/cpu_manager.go, removeStaleState.
    """
    stale = [
        (pod, container)
        for pod, containers in state.assignments.items()
        for container in containers
        if container not in active.get(pod, ())
    ]
    for pod, container in stale:
        state = remove_container(policy, state, pod, container)
    return state


def container_hints(
    policy: CPUPolicy, state: CPUState, requests: PodCPURequests, container: Container
) -> ProviderHints | None:
    """The hints for a container; None: no preference, because it gets no exclusive CPUs.

    Follows: v1.36, cpumanager/policy_static.go, GetTopologyHints.
    """
    if isinstance(policy, NoneCPUPolicy):
        return None
    requested = requests.container_cpus(container)
    if requested == 0 or requests.is_ignored:
        return None
    pod = requests.pod.metadata.uid
    allocated = state.exclusive(pod, container.name)
    if allocated is None:
        return {CPU: cpu_hints(policy, policy.free(state), state.reusable_by(pod), requested)}
    if len(allocated) != requested:
        return {CPU: IMPOSSIBLE}
    return {CPU: cpu_hints(policy, allocated, NO_CPUS, requested)}


def pod_hints(policy: CPUPolicy, state: CPUState, requests: PodCPURequests) -> ProviderHints | None:
    """The hints for a pod at pod level; None: no preference, because it gets no exclusive CPUs.

    Follows: v1.36, cpumanager/policy_static.go, GetPodTopologyHints.
    """
    if isinstance(policy, NoneCPUPolicy):
        return None
    requested = requests.pod_cpus()
    if requested == 0 or requests.is_ignored:
        return None
    if requests.is_pod_managed and requests.shared_pool_fault() is not None:
        return {CPU: IMPOSSIBLE}
    pod = requests.pod.metadata.uid
    assigned = NO_CPUS
    for container in (*requests.pod.spec.init_containers, *requests.pod.spec.containers):
        allocated = state.exclusive(pod, container.name)
        if allocated is not None:
            if len(allocated) != requests.container_cpus(container):
                return {CPU: IMPOSSIBLE}
            assigned |= allocated
    if len(assigned) == requested:
        return {CPU: cpu_hints(policy, assigned, NO_CPUS, requested)}
    return {CPU: cpu_hints(policy, policy.free(state), state.reusable_by(pod) | assigned, requested)}


def cpu_hints(policy: StaticCPUPolicy, free: CPUSet, reusable: CPUSet, requested: int) -> HintList:
    """The sets of NUMA nodes that contain the reusable CPUs and enough free ones.

    Follows: v1.36, cpumanager/policy_static.go, generateCPUTopologyHints, isHintSocketAligned.
    Departs: a rule instead of a list of up to 2**n masks; expanded, it is the same list.
    """
    topology = policy.topology
    free_mask, reusable_mask, unknown = free.mask, reusable.mask, ~topology.cpus.mask
    shares = [(numa, (mask & free_mask).bit_count()) for numa, mask in topology.cpus_by_numa]
    touching = [numa for numa, mask in topology.cpus_by_numa if mask & reusable_mask] if reusable_mask else []
    # The kubelet places a CPU that the machine does not have (from an old state) on NUMA node 0, if that exists.
    if reusable_mask & unknown:
        touching.append(1)
    if free_mask & unknown and 0 in topology.in_numa:
        shares[0] = (1, shares[0][1] + (free_mask & unknown).bit_count())
    smallest = min_affinity_size(policy, requested)
    sockets, preferred_sockets = _socket_rule(policy, smallest)
    return HintList(
        fitting=Fitting(
            nodes=topology.numa_ids,
            demands=(Demand(requested - reusable_mask.bit_count(), tuple(shares)),),
            preferred_size=smallest,
            touching=tuple(touching),
            sockets=sockets,
            preferred_sockets=preferred_sockets,
        )
    )


def min_affinity_size(policy: StaticCPUPolicy, requested: int) -> int:
    """The least number of NUMA nodes whose CPUs, free or not, cover the request."""
    sizes = policy.topology.numa_sizes
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        if total >= requested:
            return count
    return len(sizes)


def _misaligned(
    policy: StaticCPUPolicy, state: CPUState, requested: int
) -> NotWholeCores | NotEnoughWholeCores | KubeletCrashes | None:
    """Why this many CPUs cannot be allocated in whole cores; None without full-pcpus-only.

    Follows: v1.36, cpumanager/policy_static.go, enforceSMTAlignment.
    """
    if not policy.options.full_pcpus_only:
        return None
    per_core = policy.topology.cpus_per_core
    if per_core == 0:
        return KubeletCrashes(divisor="CPUs per core")
    if requested % per_core != 0:
        return NotWholeCores(requested=requested, cpus_per_core=per_core)
    available = (state.default.mask & ~policy.reserved_cores.mask).bit_count()
    if requested <= available:
        return None
    return with_holders(
        NotEnoughWholeCores(requested=requested, cpus_per_core=per_core, available=available), policy, state
    )


def _take(
    policy: StaticCPUPolicy, state: CPUState, count: int, affinity: NUMASet | None, reusable: CPUSet
) -> Verdict[CPUSet]:
    """As many CPUs as possible from the affinity's NUMA nodes, the rest from anywhere.

    Follows: v1.36, cpumanager/policy_static.go, allocateCPUs.
    """
    allocatable = state.default.mask & ~policy.reserved.mask | reusable.mask
    taken = NO_CPUS
    because: tuple[Reason, ...] = ()
    if affinity is not None:
        aligned = CPUSet(allocatable & _aligned(policy, affinity))
        local = policy.assign(aligned, min(count, aligned.mask.bit_count()))
        if isinstance(local, Refused):
            return _refused_with_holders(local, policy, state)
        taken, because = local.value, local.because
        if taken.mask.bit_count() == count:
            return local
    remainder = policy.assign(CPUSet(allocatable & ~taken.mask), count - len(taken))
    if isinstance(remainder, Refused):
        return _refused_with_holders(remainder, policy, state)
    return Granted(taken | remainder.value, (*because, *remainder.because))


def _refused_with_holders(refused: Refused, policy: StaticCPUPolicy, state: CPUState) -> Refused:
    return Refused(tuple(with_holders(reason, policy, state) for reason in refused.because))


def _aligned(policy: StaticCPUPolicy, affinity: NUMASet) -> Mask:
    """The CPUs of these NUMA nodes, or of all their sockets with align-by-socket.

    Follows: v1.36, cpumanager/policy_static.go, getAlignedCPUs.
    """
    topology, mask = policy.topology, 0
    if policy.options.align_by_socket:
        for numa in affinity:
            for socket in topology.sockets_in_numa.get(numa, ()):
                mask |= socket.whole
    else:
        for numa_mask, cpus in topology.cpus_by_numa:
            if numa_mask & affinity.mask:
                mask |= cpus
    return mask


def _divided(policy: StaticCPUPolicy, requests: PodCPURequests, cpus: CPUSet) -> Verdict[dict[str, CPUSet]]:
    """The CPUs of a pod by container, including the containers that share the remainder.

    Init containers are assigned from all CPUs but those of earlier sidecars. App containers are assigned from
    what the sidecars leave; the remainder is shared by all other containers.
    """
    shares: dict[str, CPUSet] = {}
    because: tuple[Reason, ...] = ()
    rest = cpus
    for container in requests.pod.spec.init_containers:
        requested = requests.container_cpus(container)
        if requested > 0:
            assigned = policy.assign(rest, requested)
            if isinstance(assigned, Refused):
                return assigned
            shares[container.name], because = assigned.value, because + assigned.because
            if container.is_sidecar:
                rest -= assigned.value
        elif not container.is_sidecar:
            shares[container.name] = rest
    for container in requests.pod.spec.containers:
        requested = requests.container_cpus(container)
        if requested > 0:
            assigned = policy.assign(rest, requested)
            if isinstance(assigned, Refused):
                return assigned
            shares[container.name], because = assigned.value, because + assigned.because
            rest -= assigned.value
    containers = (*requests.pod.spec.init_containers, *requests.pod.spec.containers)
    return Granted({container.name: shares.get(container.name, rest) for container in containers}, because)


def _with_reuse(state: CPUState, requests: PodCPURequests, container: Container, cpus: CPUSet) -> CPUState:
    """The state with the CPUs that the pod's later containers may reuse.

    An init container's CPUs are reusable, those of a sidecar or an app container are not.

    Follows: v1.36, cpumanager/policy_static.go, updateCPUsToReuse.
    """
    pod = requests.pod.metadata.uid
    before = state.reusable_by(pod)
    init_containers = requests.pod.spec.init_containers
    if not before and not init_containers:
        return state if state.reusable is None else state.with_reusable(pod, before)
    init = next((init for init in init_containers if init.name == container.name), None)
    return state.with_reusable(
        pod, before | cpus if init is not None and not init.is_sidecar else before - cpus
    )


def _socket_rule(policy: StaticCPUPolicy, smallest: int) -> tuple[tuple[int, ...], int]:
    """The NUMA nodes of each socket, and the number of sockets that a preferred set spans."""
    topology = policy.topology
    numa_per_socket = topology.num_numa_nodes // topology.num_sockets if topology.num_sockets else 0
    if not policy.options.align_by_socket or numa_per_socket == 0:
        return (), 0
    sockets = tuple(
        NUMASet.from_ids(part.id for part in parts).mask for parts in topology.numa_in_socket.values()
    )
    return sockets, -(-smallest // numa_per_socket)
