"""The topology hints of the static policy, as a rule instead of a list of masks."""

from nodewright.engine.core.cpu.cpu_policy import CPUPolicy, NoneCPUPolicy, StaticCPUPolicy
from nodewright.engine.core.cpu.cpu_state import NO_CPUS, CPUState
from nodewright.engine.core.cpu.exclusive_cpus import PodCPURequests
from nodewright.model.kubernetes.objects import Container
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.subsets import Demand
from nodewright.model.values.topology_hints import IMPOSSIBLE, Fitting, HintList, ProviderHints


def container_hints(
    policy: CPUPolicy, state: CPUState, requests: PodCPURequests, container: Container
) -> ProviderHints | None:
    """The hints for a container; None: no preference, because it gets no exclusive CPUs.

    Follows: v1.36, cpumanager/policy_static.go, GetTopologyHints.
    """
    if isinstance(policy, NoneCPUPolicy):
        return None
    requested = requests.container_cpus(container)
    if requested == 0 or requests.is_skipped:
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
    if requested == 0 or requests.is_skipped:
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
