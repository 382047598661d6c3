"""The allocations of a container in each source, and whether they agree."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_comparison import FileDifference, cgroup_comparison, files_to_read
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import CPUShares
from nodewright.engine.core.cgroups.cgroup_names import is_container_id
from nodewright.engine.core.cgroups.cgroup_plan import (
    CgroupLevel,
    PlannedCgroup,
    pod_cgroups,
    top_level_cgroups,
)
from nodewright.engine.core.cgroups.cgroup_settings import ContainerCpuset
from nodewright.engine.core.cgroups.cpu_weight import kubelet_weight, runtime_weight
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.devices.device_state import NO_DEVICES
from nodewright.engine.core.memory.memory_policy import StaticMemoryPolicy as StaticMemory
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.node.managers.hint_providers import CPUProvider, MemoryProvider
from nodewright.engine.node.node_cgroups import cgroup_tree
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import without_ungated_resources
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.objects import Container, ContainerState, ContainerStatus, Pod
from nodewright.model.kubernetes.pod_resources_api import ContainerResources
from nodewright.model.values.idset import CPUSet, IdSetError, NUMASet
from nodewright.predict.audit.audit_evidence import (
    AuditEvidence,
    CgroupEvidence,
    CgroupsToRead,
    DeviceIdSet,
    Discrepancy,
    DiscrepancyKind,
    EvidenceSource,
    EvidenceValue,
    MemoryBlockSet,
    MemorySizes,
    Presence,
    ResourceCount,
    SourceText,
)

SourceValues = dict[EvidenceSource, EvidenceValue]


class ContainerEvidence(NamedTuple):
    """A container of an active pod, with its evidence."""

    pod: Pod
    container: Container
    is_short_lived: bool
    """It is an init container that terminates: its allocation is reused by others."""
    pod_resources: ContainerResources | None
    """Its entry in PodResources."""
    group: PlannedCgroup | None
    """None: it does not run, or its cgroup is unknown."""
    texts: Mapping[str, str]


class ComparisonRules(NamedTuple):
    """The facts about the node that decide whether values agree."""

    config: NodeConfig
    cpu: StaticCPUPolicy | None
    """None: there are no exclusive CPUs."""
    memory: StaticMemory | None
    pools: frozenset[CPUSet]
    """The valid values of the shared pool: as recorded, and as left by the allocations."""
    numa: NUMASet

    @classmethod
    def of(cls, config: NodeConfig, pools: Iterable[CPUSet]) -> "ComparisonRules":
        """The rules of this node."""
        cpu = memory = None
        for provider in config.managers.providers:
            match provider:
                case CPUProvider(policy=StaticCPUPolicy() as policy):
                    cpu = policy
                case MemoryProvider(policy=StaticMemory() as blocks):
                    memory = blocks
                case _:
                    pass
        machine = config.parts.machine.topology
        return cls(
            config,
            cpu,
            memory,
            frozenset(pools),
            NUMASet.from_ids(numa_node.node_id for numa_node in machine),
        )


def cpus_by_source(place: ContainerEvidence, evidence: AuditEvidence, rules: ComparisonRules) -> SourceValues:
    """The CPUs of a container by source."""
    if rules.cpu is None:
        return {}
    values: SourceValues = {}
    state = evidence.state_files.cpu if evidence.state_files else None
    if state is not None:
        values[EvidenceSource.STATE] = state.exclusive(place.pod.uid, place.container.name) or CPUSet()
    if place.pod_resources is not None:
        values[EvidenceSource.RESOURCES] = place.pod_resources.cpus
    if (read := _cpus_read(place.texts)) is not None:
        values[EvidenceSource.CGROUPS] = read
    requests = rules.cpu.cpu_requests(place.pod)
    if not (place.is_short_lived or requests.is_pod_managed or requests.is_ignored):
        values[EvidenceSource.PODS] = ResourceCount(requests.container_cpus(place.container))
    return values


def cpus_agree(pair: SourceValues, rules: ComparisonRules) -> bool:
    """Whether two sources agree on the CPUs of a container."""
    runs_on, count, owned = _roles(pair)
    if isinstance(runs_on, SourceText):
        return False
    if isinstance(runs_on, CPUSet):
        if isinstance(owned, CPUSet) and owned:
            return runs_on == owned
        if isinstance(count, ResourceCount) and count.number:
            return len(runs_on) == count.number and runs_on not in rules.pools
        return not rules.pools or runs_on in rules.pools
    assert isinstance(owned, CPUSet)
    return len(owned) == count.number if isinstance(count, ResourceCount) else _are_equal(pair)


def _roles(pair: SourceValues) -> tuple[EvidenceValue | None, EvidenceValue | None, EvidenceValue | None]:
    """What the kernel enforces, what the spec requests, and what the kubelet has allocated."""
    cgroups, pods = EvidenceSource.CGROUPS, EvidenceSource.PODS
    allocated = next((value for source, value in pair.items() if source not in (cgroups, pods)), None)
    return pair.get(cgroups), pair.get(pods), allocated


def _are_equal(pair: SourceValues) -> bool:
    left, right = pair.values()
    return left == right


def memory_by_source(
    place: ContainerEvidence, evidence: AuditEvidence, rules: ComparisonRules
) -> SourceValues:
    """The memory of a container by source."""
    if rules.memory is None:
        return {}
    values: SourceValues = {}
    state = evidence.state_files.memory if evidence.state_files else None
    if state is not None:
        held = state.blocks(place.pod.uid, place.container.name) or ()
        values[EvidenceSource.STATE] = sorted_blocks(
            MemoryBlock(block.numa, block.resource, block.size) for block in held
        )
    if place.pod_resources is not None:
        values[EvidenceSource.RESOURCES] = sorted_blocks(place.pod_resources.memory)
    if (read := _numa_read(place.texts)) is not None:
        values[EvidenceSource.CGROUPS] = read
    requests = rules.memory.demand(place.pod)
    amounts = requests.container(place.container)
    if not (place.is_short_lived or requests.is_pod_managed or requests.is_ignored) and isinstance(
        amounts, Mapping
    ):
        values[EvidenceSource.PODS] = MemorySizes({kind: size for kind, size in amounts.items() if size})
    return values


def memory_agree(pair: SourceValues, rules: ComparisonRules) -> bool:
    """Whether two sources agree on the memory of a container; without an allocation any NUMA node is valid."""
    takes_from, sizes, owned = _roles(pair)
    if isinstance(takes_from, SourceText):
        return False
    if isinstance(takes_from, NUMASet):
        nodes = NUMASet()
        if isinstance(owned, MemoryBlockSet):
            nodes = NUMASet.from_ids(numa for block in owned.blocks for numa in block.numa_nodes)
        if nodes:
            return takes_from == nodes
        has_own = isinstance(sizes, MemorySizes) and bool(sizes.by_kind)
        return has_own or takes_from in (NUMASet(), rules.numa)
    assert isinstance(owned, MemoryBlockSet)
    return _sizes(owned) == dict(sizes.by_kind) if isinstance(sizes, MemorySizes) else _are_equal(pair)


def devices_by_source(place: ContainerEvidence, evidence: AuditEvidence, resource: str) -> SourceValues:
    """A container's devices of one resource by source."""
    values: SourceValues = {}
    held = evidence.state_files.devices if evidence.state_files else None
    uid, name = place.pod.uid, place.container.name
    if held is not None:
        values[EvidenceSource.STATE] = DeviceIdSet(held.get(uid, {}).get(name, {}).get(resource, NO_DEVICES))
    if place.pod_resources is not None:
        values[EvidenceSource.RESOURCES] = DeviceIdSet(
            place.pod_resources.device_ids.get(resource, frozenset())
        )
    if not place.is_short_lived and place.pod.status.extended_resource_claim_status is None:
        limit = place.container.resources.limits.get(resource)
        values[EvidenceSource.PODS] = ResourceCount(limit.value() if limit is not None else 0)
    return values


def devices_agree(pair: SourceValues, _rules: ComparisonRules) -> bool:
    """Whether two sources agree on devices."""
    left, right = (
        value.number if isinstance(value, ResourceCount) else len(value.ids)
        for value in pair.values()
        if isinstance(value, ResourceCount | DeviceIdSet)
    )
    return _are_equal(pair) or (EvidenceSource.PODS in pair and left == right)


def discrepancy(
    kind: DiscrepancyKind,
    place: ContainerEvidence,
    field: str,
    values: SourceValues,
    agree: Callable[[SourceValues, ComparisonRules], bool],
    rules: ComparisonRules,
) -> Discrepancy | None:
    """The discrepancy if two sources disagree; a source that alone disagrees with all others is the outlier."""
    sources = [source for source in EvidenceSource if source in values]
    pairs = combinations(sources, 2)
    disagreeing = [pair for pair in pairs if not agree({source: values[source] for source in pair}, rules)]
    if not disagreeing:
        return None
    outliers = [source for source in sources if all(source in pair for pair in disagreeing)]
    return Discrepancy(
        kind=kind,
        pod=place.pod.full_name,
        container=place.container.name,
        field=field,
        values={source: values[source] for source in sources},
        outlier=outliers[0] if len(outliers) == 1 and len(sources) > 2 else None,
        cgroup_path=place.group.path if place.group is not None and EvidenceSource.CGROUPS in values else "",
    )


def device_resources(evidence: AuditEvidence, places: Iterable[ContainerEvidence]) -> Iterator[str]:
    """The names of all resources of device plugins."""
    resource_names = (
        {device.resource for device in evidence.allocatable.devices} if evidence.allocatable else set()
    )
    held = evidence.state_files.devices if evidence.state_files else None
    for containers in (held or {}).values():
        for resources in containers.values():
            resource_names |= {*resources}
    for place in places:
        if place.pod_resources is not None:
            resource_names |= {device.resource for device in place.pod_resources.devices}
    yield from sorted(resource_names)


def sorted_blocks(blocks: Iterable[MemoryBlock]) -> MemoryBlockSet:
    """The blocks in a fixed order, without empty ones."""
    present = [
        MemoryBlock(tuple(sorted(block.numa_nodes)), block.type, block.size) for block in blocks if block.size
    ]
    return MemoryBlockSet(
        tuple(sorted(present, key=lambda block: (block.type, block.numa_nodes, block.size)))
    )


def divides_pod_allocation(pod: Pod, config: NodeConfig) -> bool:
    """Whether the pod's containers divide a pod-level allocation."""
    return config.gates["PodLevelResourceManagers"] and pod_level_resources_set(pod)


def _sizes(blocks: MemoryBlockSet) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for block in blocks.blocks:
        sizes[block.type] = sizes.get(block.type, 0) + block.size
    return sizes


def _cpus_read(texts: Mapping[str, str]) -> CPUSet | SourceText | None:
    """None: the file does not exist or is empty."""
    text = texts.get(CPUS, "")
    try:
        return CPUSet.parse(text) or None
    except IdSetError:
        return SourceText(text)


def _numa_read(texts: Mapping[str, str]) -> NUMASet | SourceText | None:
    try:
        return NUMASet.parse(texts[MEMS]) if MEMS in texts else None
    except IdSetError:
        return SourceText(texts[MEMS])


CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
_WEIGHT = "cpu.weight"


class CgroupFileComparison(NamedTuple):
    """The result of a comparison of cgroup files."""

    discrepancies: list[Discrepancy]
    compared: int
    missing_files: tuple[str, ...]
    """Files that do not exist on this machine."""


def cgroups_to_read(config: NodeConfig, pods: Iterable[Pod], rules: CgroupConfig) -> CgroupsToRead:
    """The cgroups of the node, its active pods and their running containers, with their expected files.

    The cpusets of containers are not included: they depend on other allocations.

    Errors: CgroupNameError for a uid that cannot be part of a cgroup name.
    """
    tree, groups, unresolved = cgroup_tree(config), list[PlannedCgroup](), list[str]()
    active_pods = [without_ungated_resources(pod, config) for pod in pods]
    groups += [
        cgroup
        for cgroup in top_level_cgroups(tree, rules, active_pods)
        if cgroup.level in (CgroupLevel.NODE, CgroupLevel.QOS_CLASS)
    ]
    for pod in active_pods:
        cpusets = _quota_exemptions(pod, config)
        pinned = [place.is_quota_disabled for place in cpusets.values()]
        is_pod_managed = config.gates["PodLevelResourceManagers"] and pod_level_resources_set(pod)
        running = _running(pod)
        for group in pod_cgroups(
            pod, tree, rules, cpusets, has_exclusive_cpus=all(pinned) if is_pod_managed else any(pinned)
        ):
            if group.level is CgroupLevel.POD:
                groups.append(replace(group, is_transient=not running or _ends(pod)))
            elif group.container in running:
                placed = _with_container_id(group, running[group.container], pod.uid)
                if placed is None:
                    unresolved.append(f"{pod.full_name}, container {group.container}")
                else:
                    groups.append(replace(placed, is_transient=group.is_transient or _ends(pod)))
    return CgroupsToRead(groups=tuple(groups), unresolved=tuple(unresolved))


def file_names_to_read(group: PlannedCgroup, version: int) -> tuple[str, ...]:
    """The files of a cgroup that an audit reads."""
    cpuset_files = (CPUS, MEMS) if group.level is CgroupLevel.CONTAINER else ()
    return tuple(dict.fromkeys((*files_to_read(group, version), *cpuset_files)))


def compare_cgroup_files(expected: CgroupsToRead, actual: CgroupEvidence) -> CgroupFileComparison:
    """Missing cgroups, and files with unexpected content."""
    texts: dict[str, Mapping[str, str] | None] = {
        path: None
        if files is None
        else {name: text for name, text in files.items() if name not in (CPUS, MEMS)}
        for path, files in actual.texts.items()
    }
    groups = [
        replace(group, files=tuple(file for file in group.files if file.name not in (CPUS, MEMS)))
        for group in expected.groups
        if not any(f"{group.path}/".startswith(f"{path}/") for path in actual.uncopied)
    ]
    # A missing pod cgroup is reported once, without the cgroups inside it.
    missing_pods = {
        group.pod for group in groups if group.level is CgroupLevel.POD and texts.get(group.path) is None
    }
    groups = [
        group for group in groups if group.level is not CgroupLevel.CONTAINER or group.pod not in missing_pods
    ]
    comparison = cgroup_comparison(groups, texts, actual.rules)
    missing_files = {
        difference.file
        for difference in comparison.differences
        if difference.file and difference.actual is None
    }
    findings = [
        _finding(difference)
        for difference in comparison.differences
        if not (difference.file and difference.actual is None) and not _is_other_weight(difference)
    ]
    return CgroupFileComparison(
        findings, comparison.matching_files + len(findings), tuple(sorted(missing_files))
    )


def orphaned_cgroups(evidence: AuditEvidence, uids: Iterable[str]) -> Iterator[Discrepancy]:
    """Cgroups of pods that are not among the known ones."""
    assert evidence.cgroups is not None
    for uid in sorted((evidence.cgroups.uids or frozenset()) - {*uids}):
        is_known = uid in evidence.ended_uids
        yield Discrepancy(
            kind=DiscrepancyKind.CGROUP_PRESENCE,
            pod=uid,
            field="cgroup",
            values={
                EvidenceSource.CGROUPS: Presence.PRESENT,
                EvidenceSource.PODS: Presence.ENDED if is_known else Presence.MISSING,
            },
        )


def _quota_exemptions(pod: Pod, config: NodeConfig) -> dict[str, ContainerCpuset]:
    """The containers whose CFS quota is disabled because their specs request exclusive CPUs."""
    policy = next(
        provider.policy for provider in config.managers.providers if isinstance(provider, CPUProvider)
    )
    if not isinstance(policy, StaticCPUPolicy) or not config.gates["DisableCPUQuotaWithExclusiveCPUs"]:
        return {}
    requests = policy.cpu_requests(pod)
    return {
        container.name: ContainerCpuset(
            is_quota_disabled=not requests.is_ignored and requests.container_cpus(container) > 0
        )
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    }


def _running(pod: Pod) -> dict[str, ContainerStatus]:
    """The running containers by the pod's status; without container states, those with a container id."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    no_state = ContainerState()
    return {
        status.name: status
        for status in statuses
        if status.state.running is not None or (status.state == no_state and status.container_id)
    }


def _ends(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _with_container_id(group: PlannedCgroup, status: ContainerStatus, uid: str) -> PlannedCgroup | None:
    """The cgroup with its actual path; None: the path is unknown.

    The agent names containers that are plain processes by pod, name and attempt, and their cgroups by name and attempt.
    """
    attempt = f"{status.name}-{status.restart_count}"
    if status.container_id.rpartition("://")[2] == f"{uid}_{status.name}_{status.restart_count}":
        path = f"{group.path.rpartition('/')[0]}/{attempt}"
        return replace(group, path=path, container_id=status.container_id)
    return group if is_container_id(status.container_id) else None


def _finding(difference: FileDifference) -> Discrepancy:
    group = difference.group
    assert group is not None
    values: dict[EvidenceSource, EvidenceValue] = {
        EvidenceSource.CGROUPS: Presence.MISSING,
        EvidenceSource.PODS: Presence.RUNNING,
    }
    if difference.file:
        expected = EvidenceSource.PODS if group.pod else EvidenceSource.CONFIGURATION
        values = {
            EvidenceSource.CGROUPS: SourceText(difference.actual or ""),
            expected: SourceText(difference.expected),
        }
    return Discrepancy(
        kind=DiscrepancyKind.CGROUP_FILE if difference.file else DiscrepancyKind.CGROUP_PRESENCE,
        pod=group.pod,
        container=group.container,
        field=difference.file or "cgroup",
        values=values,
        cgroup_path=difference.path,
    )


def _is_other_weight(difference: FileDifference) -> bool:
    """Whether a weight is what older or newer runtimes derive from shares; which runtime it is, is unknown."""
    if difference.file != _WEIGHT or not isinstance(difference.because, CPUShares):
        return False
    return difference.actual in {
        str(kubelet_weight(difference.because.shares)),
        str(runtime_weight(difference.because.shares)),
    }
