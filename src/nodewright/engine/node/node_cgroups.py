"""The cgroups of a node: the kubelet's settings, the containers' cpusets, and all cgroups with their files."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.allocatable import enforcement_limits, machine_capacity
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, CPUPool, MemoryFrom, RunsOn
from nodewright.engine.core.cgroups.cgroup_names import node_allocatable_root
from nodewright.engine.core.cgroups.cgroup_plan import (
    Borrowers,
    CgroupLayout,
    DaemonCgroup,
    PlannedCgroup,
    pod_cgroups,
    top_level_cgroups,
)
from nodewright.engine.core.cgroups.cgroup_settings import ContainerCpuset
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, without_ungated_resources
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU


class AllocatedPod(msgspec.Struct, frozen=True):
    """A pod of the node, and the memory allocations right after its admission.

    Finished init containers release their memory, but their cgroups were created with it.
    """

    pod: Pod
    memory: MemoryState


class CgroupOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that replace those of the node profile; None: as in the profile."""

    version: int | None = None
    driver: str | None = None
    has_linear_runtime: bool = False


NO_OVERRIDES = CgroupOverrides()


def cgroup_rules(config: NodeConfig, overrides: CgroupOverrides = NO_OVERRIDES) -> CgroupConfig:
    """The node's settings that determine cgroup values.

    Departs: assumes kernel swap accounting, which the kubelet detects at startup.
    """
    kubelet, machine, facts, gates = config.parts.kubelet, config.parts.machine, config.facts, config.gates
    version = overrides.version or facts.cgroup_version
    return CgroupConfig(
        version=version,
        driver=overrides.driver or kubelet.cgroup_driver,
        runtime_uses_linear_weights=overrides.has_linear_runtime,
        cpu_cfs_quota=kubelet.cpu_cfs_quota,
        configured_period_us=Microseconds(kubelet.cpu_cfs_quota_period.nanoseconds // 1000),
        has_custom_period=gates["CustomCPUCFSQuotaPeriod"],
        has_memory_qos=gates["MemoryQoS"] and version == 2,
        reservation_policy=kubelet.memory_reservation_policy,
        throttling_factor=kubelet.memory_throttling_factor,
        swap_behavior=kubelet.memory_swap.swap_behavior if gates["NodeSwap"] else "",
        # NewMainKubelet: by default an OOM kill ends all processes of a container (version 2).
        single_process_oom_kill=version == 1 or kubelet.single_process_oom_kill is True,
        pod_pids_limit=kubelet.pod_pids_limit,
        memory_capacity=Bytes(machine.memory_capacity),
        swap_capacity=Bytes(facts.swap_bytes),
        allocatable_memory=_allocatable_memory(config),
        huge_page_sizes=tuple(Bytes(pages.page_size * 1024) for pages in machine.hugepages),
        page_bytes=Bytes(facts.page_size_bytes),
        gates=gates,
    )


def cgroup_tree(config: NodeConfig) -> CgroupLayout:
    """The kubelet's cgroup hierarchy on this node."""
    kubelet = config.parts.kubelet
    percent = kubelet.qos_reserved.get(MEMORY)
    return CgroupLayout(
        root=node_allocatable_root(kubelet.cgroup_root, per_qos=kubelet.cgroups_per_qos),
        cgroups_per_qos=kubelet.cgroups_per_qos,
        limits=config.resources.kubepods,
        allocatable_memory=_allocatable_memory(config),
        qos_reserved_percent=int(percent.rstrip("%")) if percent and config.gates["QOSReserved"] else None,
        daemons=tuple(_daemons(config)),
        all_cpus=_all_cpus(config),
    )


def lent_amounts(state: NodeState) -> dict[str, int]:
    """What BestEffort pods may use of what other pods request.

    Units: cpu in thousandths, memory in bytes.
    """
    if state.loans is None:
        return {CPU: 0, MEMORY: 0}
    allocatable, requested = state.config.resources.allocatable, state.usage.requests
    free_milli = allocatable[CPU].milli_value() - requested.get(CPU, 0)
    free_bytes = allocatable[MEMORY].value() - requested.get(MEMORY, 0)
    return {
        CPU: max(state.loans.cpu_milli - max(free_milli, 0), 0),
        MEMORY: max(state.loans.memory_bytes - max(free_bytes, 0), 0),
    }


_HELD_SLACK_BYTES = 16 << 20
"""What borrowers that hold too much may take until the limit is written."""


def with_borrowers(tree: CgroupLayout, state: NodeState) -> CgroupLayout:
    """The hierarchy with the limits of a node that lends."""
    loans = state.loans
    if loans is None:
        return tree
    memory = Bytes(loans.memory_bytes)
    held = Bytes(memory + loans.owed_bytes + _HELD_SLACK_BYTES) if loans.owed_bytes else memory
    borrowers = Borrowers(cpu=MilliCPU(loans.cpu_milli), memory=memory, held=held)
    return replace(tree, borrowers=borrowers)


def node_and_pod_cgroups(
    state: NodeState, allocated_pods: Iterable[AllocatedPod], rules: CgroupConfig
) -> tuple[PlannedCgroup, ...]:
    """The node-level cgroups, for which all pods count, and those of the given pods.

    Errors: CgroupNameError for a uid that is not valid in a cgroup name.
    """
    tree = with_borrowers(cgroup_tree(state.config), state)
    cgroups = [*top_level_cgroups(tree, rules, tuple(state.pods.values()))]
    for allocated in allocated_pods:
        cgroups += cgroups_of_pod(state, allocated, tree, rules)
    return tuple(cgroups)


def cgroups_of_pod(
    state: NodeState, allocated: AllocatedPod, tree: CgroupLayout, rules: CgroupConfig
) -> Iterator[PlannedCgroup]:
    """The cgroups of one pod; errors as in `node_and_pod_cgroups`."""
    pod = without_ungated_resources(allocated.pod, state.config)
    cpusets = container_cpusets(pod, state, allocated.memory)
    pinned = _pod_has_exclusive_cpus(pod, state, cpusets)
    return pod_cgroups(pod, tree, rules, cpusets, has_exclusive_cpus=pinned)


def container_cpusets(pod: Pod, state: NodeState, memory: MemoryState) -> dict[str, ContainerCpuset]:
    """The cpuset of each container by name; the shared pool is the current one.

    Follows: v1.36, kubelet/cm/internal_container_lifecycle_linux.go, PreCreateContainer.
    Departs: ephemeral containers follow the shared pool; a kubelet leaves them on CPUs that have become exclusive.
    """
    cpusets = {}
    policy = state.config.managers.static_cpu_policy
    for container in (*pod.spec.containers, *pod.spec.init_containers, *pod.spec.ephemeral_containers):
        cpus = state.held.cpu.usable(pod.uid, container.name)
        exclusive_cpus = state.held.cpu.exclusive(pod.uid, container.name)
        is_exclusive = exclusive_cpus is not None and _is_exclusive(
            pod, container, policy, state.config.gates
        )
        pool = (
            CPUPool.SHARED if exclusive_cpus is None else CPUPool.EXCLUSIVE if is_exclusive else CPUPool.POD
        )
        numa = NUMASet.from_ids(
            node for block in memory.blocks(pod.uid, container.name) or () for node in block.numa
        )
        cpusets[container.name] = ContainerCpuset(
            cpus=RunsOn(cpus, pool) if cpus else None,
            mems=MemoryFrom(numa) if numa else None,
            is_quota_disabled=is_exclusive and state.config.gates["DisableCPUQuotaWithExclusiveCPUs"],
        )
    return cpusets


def _is_exclusive(
    pod: Pod, container: Container, policy: StaticCPUPolicy | None, gates: FeatureGates
) -> bool:
    """Whether the container's assigned CPUs are exclusive, and not shared within the pod.

    Follows: v1.36, kubelet/cm/cpumanager/cpu_manager.go, GetResourceIsolationLevel.
    """
    if not gates["PodLevelResourceManagers"] or not pod_level_resources_set(pod):
        return True
    return policy is not None and policy.cpu_requests(pod).container_cpus(container) > 0


def _pod_has_exclusive_cpus(pod: Pod, state: NodeState, cpusets: Mapping[str, ContainerCpuset]) -> bool:
    """Whether the pod cgroup has no quota: one container with exclusive CPUs suffices, except with pod-level resources.

    Follows: v1.36, kubelet/cm/container_manager_linux.go, PodHasExclusiveCPUs.
    """
    unquoted = [cpuset.is_quota_disabled for cpuset in cpusets.values()]
    if state.config.gates["PodLevelResourceManagers"] and pod_level_resources_set(pod):
        return all(unquoted)
    return any(unquoted)


def _all_cpus(config: NodeConfig) -> CPUSet | None:
    """All CPUs if there are no exclusive CPUs; else None.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, getCgroupConfig.
    """
    if config.managers.static_cpu_policy is not None:
        return None
    cores = (core for numa in config.parts.machine.topology for core in numa.cores)
    return CPUSet.from_ids(cpu for core in cores for cpu in core.thread_ids)


def _allocatable_memory(config: NodeConfig) -> Bytes | None:
    """The memory capacity minus reservations; thresholds and huge pages are not subtracted.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, GetNodeAllocatableAbsolute.
    """
    limits = enforcement_limits(machine_capacity(config.parts.machine), config.resources.reservations)
    return Bytes(limits[MEMORY].value())


def _daemons(config: NodeConfig) -> Iterator[DaemonCgroup]:
    """The daemon cgroups with enforced reservations; full enforcement overrides compressible-only enforcement."""
    kubelet, reserved = config.parts.kubelet, config.resources.reservations
    kinds = (
        ("system-reserved", kubelet.system_reserved_cgroup, reserved.system, AmountOrigin.SYSTEM_RESERVED),
        ("kube-reserved", kubelet.kube_reserved_cgroup, reserved.kube, AmountOrigin.KUBE_RESERVED),
    )
    enforced = kubelet.enforce_node_allocatable
    for key, path, amounts, origin in kinds:
        if amounts is not None and (key in enforced or f"{key}-compressible" in enforced):
            yield DaemonCgroup(
                path=path, limits=amounts, origin=origin, compressible_only=key not in enforced
            )
