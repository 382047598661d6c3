"""Giving CPUs to containers and pods, and taking them back."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.core.cpu.evidence import with_holders
from nodewright.core.cpu.policy import CPUPolicy, NonePolicy, StaticPolicy
from nodewright.core.cpu.state import NO_CPUS, CPUState, Reusable
from nodewright.core.cpu.wants import PodWants
from nodewright.model.cpu_reasons import CPUsStranded, KubeletCrashes, NotEnoughWholeCores, NotWholeCores
from nodewright.model.objects import Container
from nodewright.model.reasons import Reason
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import CPUSet, NUMASet


class Allocation(msgspec.Struct, frozen=True):
    """The verdict, and the state after it.

    Granted None: the container runs in a shared pool. After a refusal the state is as before, but for one
    thing that the kubelet forgets: a pod whose CPUs could not be divided among its containers keeps them.
    """

    state: CPUState
    verdict: Verdict[CPUSet | None]


def allocate(
    policy: CPUPolicy, state: CPUState, wants: PodWants, container: Container, affinity: NUMASet | None
) -> Allocation:
    """The container with CPUs of its own, if it gets any, from the NUMA nodes of the affinity where possible.

    Follows: v1.36, cpumanager/policy_static.go, Allocate.
    """
    requested = 0 if isinstance(policy, NonePolicy) else wants.container(container)
    if isinstance(policy, NonePolicy) or requested == 0 or wants.is_skipped:
        return Allocation(state, Granted(None))
    misaligned = _misaligned(policy, state, requested)
    if misaligned is not None:
        return Allocation(state, Refused((misaligned,)))
    pod = wants.pod.uid
    present = state.exclusive(pod, container.name)
    if present is not None:
        return Allocation(_with_reuse(state, wants, container, present), Granted(present))
    found = _take(policy, state, requested, affinity, state.reusable_by(pod))
    if isinstance(found, Refused):
        return Allocation(state, found)
    after = state.with_default(state.default - found.value).with_assignment(pod, container.name, found.value)
    return Allocation(_with_reuse(after, wants, container, found.value), Granted(found.value, found.because))


def allocate_pod(policy: CPUPolicy, state: CPUState, wants: PodWants, affinity: NUMASet | None) -> Allocation:
    """The pod with CPUs as a whole, divided among its containers.

    Follows: v1.36, cpumanager/policy_static.go, AllocatePod.
    Departs: with `kubelet_defects: avoid` a refused pod holds nothing, and one that has its CPUs keeps them.
    """
    total = 0 if isinstance(policy, NonePolicy) else wants.whole_pod()
    if isinstance(policy, NonePolicy) or total == 0:
        return Allocation(state, Granted(None))
    pod = wants.pod.uid
    if pod in state.pods and not policy.follows_defects:
        return Allocation(state, Granted(state.pods[pod]))
    refusal = wants.shared_pool_fault() or _misaligned(policy, state, total)
    if refusal is not None:
        return Allocation(state, Refused((refusal,)))
    found = _take(policy, state, total, affinity, NO_CPUS)
    if isinstance(found, Refused):
        return Allocation(state, found)
    after = replace(state, default=state.default - found.value, pods={**state.pods, pod: found.value})
    divided = _divided(policy, wants, found.value)
    if isinstance(divided, Refused):
        if not policy.follows_defects:
            return Allocation(state, divided)
        return Allocation(after, Refused((*divided.because, CPUsStranded(cpus=found.value))))
    for container, cpus in divided.value.items():
        after = after.with_assignment(pod, container, cpus)
    return Allocation(after, Granted(found.value, (*found.because, *divided.because)))


def remove(policy: CPUPolicy, state: CPUState, pod: str, container: str) -> CPUState:
    """The state without the container; its CPUs are shared again, but for those that siblings hold.

    Follows: v1.36, cpumanager/policy_static.go, RemoveContainer.
    """
    released = None if isinstance(policy, NonePolicy) else state.exclusive(pod, container)
    if isinstance(policy, NonePolicy) or released is None:
        return state
    after = state.without_assignment(pod, container)
    siblings = after.assignments.get(pod, {})
    if policy.gates.pod_level_managers and pod in state.pods:
        if siblings:
            return after  # what the pod has as a whole is released with its last container
        pods = {uid: cpus for uid, cpus in state.pods.items() if uid != pod}
        return replace(after, default=state.default | state.pods[pod], pods=pods)
    for cpus in siblings.values():
        released -= cpus
    return after.with_default(state.default | released)


def without_stale(policy: CPUPolicy, state: CPUState, active: Mapping[str, Collection[str]]) -> CPUState:
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
        state = remove(policy, state, pod, container)
    return state


def _misaligned(
    policy: StaticPolicy, state: CPUState, requested: int
) -> NotWholeCores | NotEnoughWholeCores | KubeletCrashes | None:
    """Why so many CPUs cannot be had in whole cores, where that is demanded.

    Follows: v1.36, cpumanager/policy_static.go, enforceSMTAlignment.
    """
    if not policy.options.full_pcpus_only:
        return None
    per_core = policy.topology.cpus_per_core
    if per_core == 0:
        return KubeletCrashes(divisor="CPUs per core")
    if requested % per_core != 0:
        return NotWholeCores(requested=requested, cpus_per_core=per_core)
    available = len(state.default - policy.reserved_cores)
    if requested <= available:
        return None
    return with_holders(
        NotEnoughWholeCores(requested=requested, cpus_per_core=per_core, available=available), policy, state
    )


def _take(
    policy: StaticPolicy, state: CPUState, count: int, affinity: NUMASet | None, reusable: CPUSet
) -> Verdict[CPUSet]:
    """As many CPUs as possible from the affinity's NUMA nodes, the rest from anywhere.

    Follows: v1.36, cpumanager/policy_static.go, allocateCPUs.
    """
    allocatable = policy.free(state) | reusable
    taken = NO_CPUS
    because: tuple[Reason, ...] = ()
    if affinity is not None:
        aligned = allocatable & _aligned(policy, affinity)
        found = policy.pick(aligned, min(count, len(aligned)))
        if isinstance(found, Refused):
            return _explained(found, policy, state)
        taken, because = found.value, found.because
    found = policy.pick(allocatable - taken, count - len(taken))
    if isinstance(found, Refused):
        return _explained(found, policy, state)
    return Granted(taken | found.value, (*because, *found.because))


def _explained(refused: Refused, policy: StaticPolicy, state: CPUState) -> Refused:
    return Refused(tuple(with_holders(reason, policy, state) for reason in refused.because))


def _aligned(policy: StaticPolicy, affinity: NUMASet) -> CPUSet:
    """The CPUs of these NUMA nodes, or of all their sockets where alignment is by socket.

    Follows: v1.36, cpumanager/policy_static.go, getAlignedCPUs.
    """
    topology = policy.topology
    mask = 0
    for numa in affinity:
        if policy.options.align_by_socket:
            for socket in topology.sockets_in_numa.get(numa, ()):
                mask |= socket.whole
        else:
            mask |= topology.in_numa.get(numa, 0)
    return CPUSet(mask)


def _divided(policy: StaticPolicy, wants: PodWants, cpus: CPUSet) -> Verdict[dict[str, CPUSet]]:
    """The CPUs of a pod by container, for those that share the rest as well.

    Init containers choose from all but what sidecars before them have; the app containers share out what the
    sidecars leave, and what is left of that is everybody else's.
    """
    shares: dict[str, CPUSet] = {}
    because: tuple[Reason, ...] = ()
    rest = cpus
    for container in wants.pod.spec.init_containers:
        wanted = wants.container(container)
        if wanted > 0:
            found = policy.pick(rest, wanted)
            if isinstance(found, Refused):
                return found
            shares[container.name], because = found.value, because + found.because
            if container.is_sidecar:
                rest -= found.value
        elif not container.is_sidecar:
            shares[container.name] = rest
    for container in wants.pod.spec.containers:
        wanted = wants.container(container)
        if wanted > 0:
            found = policy.pick(rest, wanted)
            if isinstance(found, Refused):
                return found
            shares[container.name], because = found.value, because + found.because
            rest -= found.value
    everyone = (*wants.pod.spec.init_containers, *wants.pod.spec.containers)
    return Granted({one.name: shares.get(one.name, rest) for one in everyone}, because)


def _with_reuse(state: CPUState, wants: PodWants, container: Container, cpus: CPUSet) -> CPUState:
    """The state with what the pod's next containers may use again.

    An init container's CPUs are there for the next ones, a sidecar's or an app container's are not.

    Follows: v1.36, cpumanager/policy_static.go, updateCPUsToReuse.
    """
    pod = wants.pod.uid
    before = state.reusable_by(pod)
    init = next((one for one in wants.pod.spec.init_containers if one.name == container.name), None)
    reusable = before | cpus if init is not None and not init.is_sidecar else before - cpus
    return replace(state, reusable=Reusable(pod, reusable))
