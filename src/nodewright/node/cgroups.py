"""The cgroups of a node in a state: its kubelet's rules, where its pods may run, and all groups with their files."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nodewright.core.allocatable import enforcement_limits, machine_capacity
from nodewright.core.cgroups.container import Place
from nodewright.core.cgroups.facts import MemoryFrom, Origin, Pool, RunsOn
from nodewright.core.cgroups.names import pods_root
from nodewright.core.cgroups.plan import Daemons, Group, Tree, level_groups, pod_groups
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.cpu.policy import CPUPolicy, NonePolicy, StaticPolicy
from nodewright.core.memory.state import MemoryState
from nodewright.core.requests import pod_level_resources_set
from nodewright.model.gates import FeatureGates
from nodewright.model.objects import Container, Pod
from nodewright.model.resource_names import MEMORY
from nodewright.node.config import NodeConfig
from nodewright.node.providers import CPUs
from nodewright.node.state import NodeState, as_counted
from nodewright.values.idset import CPUSet, NUMASet
from nodewright.values.units import Bytes, Microseconds


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod that the node has, and who held which memory when it had just been decided on.

    Once init containers have ended their memory is free, but their groups were told of it.
    """

    pod: Pod
    memory: MemoryState


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What to assume otherwise than the node's description says. None: as it says."""

    version: int | None = None
    driver: str | None = None
    has_linear_runtime: bool = False


AS_DESCRIBED = Wish()


def cgroup_rules(config: NodeConfig, wish: Wish = AS_DESCRIBED) -> CgroupRules:
    """What values in cgroups depend on at this node.

    Departs: the kernel is taken to account for swap, which the kubelet finds out when it starts.
    """
    kubelet, machine, facts, gates = config.parts.kubelet, config.parts.machine, config.facts, config.gates
    version = wish.version or facts.cgroup_version
    return CgroupRules(
        version=version,
        driver=wish.driver or kubelet.cgroup_driver,
        has_linear_runtime=wish.has_linear_runtime,
        enforces_quota=kubelet.cpu_cfs_quota,
        period=Microseconds(kubelet.cpu_cfs_quota_period.nanoseconds // 1000),
        has_custom_period=gates["CustomCPUCFSQuotaPeriod"],
        has_memory_qos=gates["MemoryQoS"] and version == 2,
        reservation_policy=kubelet.memory_reservation_policy,
        throttling_factor=kubelet.memory_throttling_factor,
        swap_behavior=kubelet.memory_swap.swap_behavior if gates["NodeSwap"] else "",
        # Follows NewMainKubelet: without a word of it, all processes of a container end together (version 2).
        single_process_oom_kill=version == 1 or kubelet.single_process_oom_kill is True,
        pod_pids_limit=kubelet.pod_pids_limit,
        memory_capacity=Bytes(machine.memory_capacity),
        swap_capacity=Bytes(facts.swap_bytes),
        allocatable_memory=_allocatable_memory(config),
        huge_pages=tuple(Bytes(pages.page_size * 1024) for pages in machine.hugepages),
        page_bytes=Bytes(facts.page_size_bytes),
    )


def cgroup_tree(config: NodeConfig) -> Tree:
    """How the node's kubelet arranges its groups."""
    kubelet = config.parts.kubelet
    percent = kubelet.qos_reserved.get(MEMORY)
    return Tree(
        root=pods_root(kubelet.cgroup_root, per_qos=kubelet.cgroups_per_qos),
        per_qos=kubelet.cgroups_per_qos,
        amounts=config.resources.kubepods,
        allocatable_memory=_allocatable_memory(config),
        reserve_percent=int(percent.rstrip("%")) if percent and config.gates["QOSReserved"] else None,
        daemons=tuple(_daemons(config)),
        all_cpus=_all_cpus(config),
    )


def node_groups(state: NodeState, placed: Iterable[PlacedPod], rules: CgroupRules) -> tuple[Group, ...]:
    """The groups at the top of the node, which all its pods count for, and those of the pods given.

    Errors: CgroupNameError for a uid that no group can have in its name.
    """
    tree = cgroup_tree(state.config)
    found = [*level_groups(tree, rules, tuple(state.pods.values()))]
    for one in placed:
        found += groups_of_pod(state, one, tree, rules)
    return tuple(found)


def groups_of_pod(state: NodeState, placed: PlacedPod, tree: Tree, rules: CgroupRules) -> Iterator[Group]:
    """The groups of one pod; else as `node_groups`."""
    pod = as_counted(placed.pod, state.config)
    places = places_of(pod, state, placed.memory)
    pinned = _pod_has_exclusive_cpus(pod, state, places)
    return pod_groups(pod, tree, rules, places, has_exclusive_cpus=pinned)


def places_of(pod: Pod, state: NodeState, memory: MemoryState) -> dict[str, Place]:
    """Where each container of the pod may run, by its name; shared CPUs are those that are shared now.

    Follows: v1.36, kubelet/cm/internal_container_lifecycle_linux.go, PreCreateContainer.
    """
    found = {}
    policy = _cpu_policy(state.config)
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        cpus = state.held.cpu.usable(pod.uid, container.name)
        own = state.held.cpu.exclusive(pod.uid, container.name)
        is_own = own is not None and _is_own(pod, container, policy, state.config.gates)
        pool = Pool.SHARED if own is None else Pool.OWN if is_own else Pool.POD
        numa = NUMASet.from_ids(
            node for block in memory.blocks(pod.uid, container.name) or () for node in block.numa
        )
        found[container.name] = Place(
            cpus=RunsOn(cpus, pool) if cpus else None,
            mems=MemoryFrom(numa) if numa else None,
            is_unquoted=is_own and state.config.gates["DisableCPUQuotaWithExclusiveCPUs"],
        )
    return found


def _is_own(pod: Pod, container: Container, policy: CPUPolicy, gates: FeatureGates) -> bool:
    """Whether CPUs assigned to the container are its alone, and not those that the pod's others run on.

    Follows: v1.36, kubelet/cm/cpumanager/cpu_manager.go, GetResourceIsolationLevel.
    """
    if not gates["PodLevelResourceManagers"] or not pod_level_resources_set(pod):
        return True
    return isinstance(policy, StaticPolicy) and policy.wants(pod).container(container) > 0


def _pod_has_exclusive_cpus(pod: Pod, state: NodeState, places: Mapping[str, Place]) -> bool:
    """Whether the pod's group has no quota: one container with CPUs of its own is enough, but not at the pod level.

    Follows: v1.36, kubelet/cm/container_manager_linux.go, PodHasExclusiveCPUs.
    """
    unquoted = [place.is_unquoted for place in places.values()]
    if state.config.gates["PodLevelResourceManagers"] and pod_level_resources_set(pod):
        return all(unquoted)
    return any(unquoted)


def _cpu_policy(config: NodeConfig) -> CPUPolicy:
    return next(one.policy for one in config.managers.providers if isinstance(one, CPUs))


def _all_cpus(config: NodeConfig) -> CPUSet | None:
    """All CPUs where none can be had exclusively.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, getCgroupConfig.
    """
    if not isinstance(_cpu_policy(config), NonePolicy):
        return None
    cores = (core for numa in config.parts.machine.topology for core in numa.cores)
    return CPUSet.from_ids(cpu for core in cores for cpu in core.thread_ids)


def _allocatable_memory(config: NodeConfig) -> Bytes | None:
    """What is left of memory without reservations, thresholds and huge pages not taken off.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, GetNodeAllocatableAbsolute.
    """
    limits = enforcement_limits(machine_capacity(config.parts.machine), config.resources.reservations)
    return Bytes(limits[MEMORY].value())


def _daemons(config: NodeConfig) -> Iterator[Daemons]:
    """The groups of daemons that are held to what is kept for them; the whole amounts outdo the compressible ones."""
    kubelet, reserved = config.parts.kubelet, config.resources.reservations
    kinds = (
        ("system-reserved", kubelet.system_reserved_cgroup, reserved.system, Origin.SYSTEM_RESERVED),
        ("kube-reserved", kubelet.kube_reserved_cgroup, reserved.kube, Origin.KUBE_RESERVED),
    )
    enforced = kubelet.enforce_node_allocatable
    for key, path, amounts, origin in kinds:
        if amounts is not None and (key in enforced or f"{key}-compressible" in enforced):
            yield Daemons(path=path, amounts=amounts, origin=origin, compressible_only=key not in enforced)
