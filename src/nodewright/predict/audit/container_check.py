"""The allocations of a container in each source, and whether they agree."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from nodewright.engine.core.cgroups.cgroup_plan import PlannedCgroup
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.devices.device_state import NO_DEVICES
from nodewright.engine.core.memory.memory_policy import StaticMemoryPolicy as StaticMemory
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.node.managers.hint_providers import CPUProvider, MemoryProvider
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_resources_api import ContainerResources
from nodewright.model.values.idset import CPUSet, IdSetError, NUMASet
from nodewright.predict.audit.audit_evidence import (
    AuditEvidence,
    DeviceIdSet,
    Discrepancy,
    DiscrepancyKind,
    EvidenceSource,
    EvidenceValue,
    MemoryBlockSet,
    MemorySizes,
    ResourceCount,
    SourceText,
)
from nodewright.predict.audit.container_check import CPUS, MEMS

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
    if not (place.is_short_lived or requests.is_pod_managed or requests.is_skipped):
        values[EvidenceSource.PODS] = ResourceCount(requests.container_cpus(place.container))
    return values


def cpus_agree(
    values: SourceValues, rules: ComparisonRules
) -> Callable[[EvidenceSource, EvidenceSource], bool]:
    """A check whether two sources agree on the CPUs of a container."""

    def agree(one: EvidenceSource, other: EvidenceSource) -> bool:
        pair = {one: values[one], other: values[other]}
        runs_on = pair.pop(EvidenceSource.CGROUPS, None)
        count = pair.pop(EvidenceSource.PODS, None)
        owned = next(iter(pair.values()), None)
        if len(pair) == 2:
            return values[one] == values[other]
        if isinstance(runs_on, SourceText):
            return False
        if isinstance(runs_on, CPUSet):
            if isinstance(owned, CPUSet) and owned:
                return runs_on == owned
            if isinstance(count, ResourceCount) and count.number:
                return len(runs_on) == count.number and runs_on not in rules.pools
            return not rules.pools or runs_on in rules.pools
        assert isinstance(owned, CPUSet)
        assert isinstance(count, ResourceCount)
        return len(owned) == count.number

    return agree


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


def memory_agree(
    values: SourceValues, rules: ComparisonRules
) -> Callable[[EvidenceSource, EvidenceSource], bool]:
    """A check whether two sources agree on the memory of a container; without an allocation any NUMA node is valid."""

    def agree(one: EvidenceSource, other: EvidenceSource) -> bool:
        pair = {one: values[one], other: values[other]}
        takes_from = pair.pop(EvidenceSource.CGROUPS, None)
        sizes = pair.pop(EvidenceSource.PODS, None)
        owned = next(iter(pair.values()), None)
        if len(pair) == 2:
            return values[one] == values[other]
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
        assert isinstance(sizes, MemorySizes)
        return _sizes(owned) == dict(sizes.by_kind)

    return agree


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


def devices_agree(values: SourceValues) -> Callable[[EvidenceSource, EvidenceSource], bool]:
    """A check whether two sources agree on devices."""

    def agree(one: EvidenceSource, other: EvidenceSource) -> bool:
        numbers = [
            value.number if isinstance(value, ResourceCount) else len(value.ids)
            for value in (values[one], values[other])
            if isinstance(value, ResourceCount | DeviceIdSet)
        ]
        return values[one] == values[other] or (
            EvidenceSource.PODS in (one, other) and numbers[0] == numbers[1]
        )

    return agree


def discrepancy(
    kind: DiscrepancyKind,
    place: ContainerEvidence,
    field: str,
    values: SourceValues,
    agree: Callable[[EvidenceSource, EvidenceSource], bool],
) -> Discrepancy | None:
    """The discrepancy if two sources disagree; a source that alone disagrees with all others is the outlier."""
    sources = [source for source in EvidenceSource if source in values]
    pairs = list(combinations(sources, 2))
    disagreeing = [pair for pair in pairs if not agree(*pair)]
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
