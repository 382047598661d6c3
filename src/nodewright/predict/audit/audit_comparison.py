"""Compares all evidence about a node and reports each discrepancy once."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_names import uid_on_node
from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel
from nodewright.engine.node.pod_resources_view import allocatable_cpus_and_memory
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import CPUSet
from nodewright.predict.audit.audit_evidence import (
    AuditEvidence,
    AuditGap,
    AuditResult,
    CgroupsToRead,
    DeviceIdSet,
    Discrepancy,
    DiscrepancyKind,
    EvidenceSource,
    EvidenceValue,
    Presence,
    SourceText,
    UncomparedReason,
    allocatable_discrepancy,
    pod_presence,
)
from nodewright.predict.audit.container_check import (
    ComparisonRules,
    ContainerEvidence,
    cgroups_to_read,
    compare_cgroup_files,
    cpus_agree,
    cpus_by_source,
    device_resources,
    devices_agree,
    devices_by_source,
    discrepancy,
    divides_pod_allocation,
    memory_agree,
    memory_by_source,
    orphaned_cgroups,
    sorted_blocks,
)

PodAllocation: TypeAlias = Mapping[tuple[str, str], CPUSet | frozenset[str]]
"""A pod's exclusive CPUs and devices by container and resource."""
_CPUS = "cpu"


def audit_of(evidence: AuditEvidence) -> AuditResult:
    """The discrepancies, each fact once; the transient ones; and what could not be compared.

    Without pods only node-level facts are compared: state files have pods by uid, sockets by name.
    """
    findings, transient, gaps, counted = _PodDiscrepancies([], [], [], 0)
    if evidence.pods is not None:
        findings, transient, gaps, counted = _compare_pods(evidence, evidence.pods)
    elif evidence.state_files is not None and evidence.pod_resources is not None:
        gaps.append(AuditGap(reason=UncomparedReason.NAMES_UNKNOWN))
    findings, transient = merged_by_uid(findings, transient, evidence)
    node_level = [*_compare_node(evidence, findings), *_compare_parts(evidence)]
    findings = [*findings, *(finding for _, finding in node_level if finding is not None)]
    return AuditResult(
        discrepancies=tuple(sorted(findings, key=_order)),
        transient=tuple(sorted(transient, key=_order)),
        uncompared=tuple(gaps),
        compared_count=counted + len(node_level),
    )


def _compare_parts(evidence: AuditEvidence) -> Iterator[tuple[str, Discrepancy]]:
    for parts in evidence.state_files.parts if evidence.state_files else ():
        values = {
            EvidenceSource.DATA: SourceText(parts.data),
            EvidenceSource.OLDER_MEMBERS: SourceText(parts.older),
        }
        yield (
            parts.file,
            Discrepancy(kind=DiscrepancyKind.STATE_FILE_PARTS, pod="", field=str(parts.file), values=values),
        )


class _PodDiscrepancies(NamedTuple):
    discrepancies: list[Discrepancy]
    transient: list[Discrepancy]
    gaps: list[AuditGap]
    compared: int


def _compare_pods(evidence: AuditEvidence, pods: tuple[Pod, ...]) -> _PodDiscrepancies:
    result = _PodDiscrepancies([], [], [], 0)
    expected = cgroups_to_read(evidence.config, pods, evidence.cgroups.rules) if evidence.cgroups else None
    if expected is not None and expected.unresolved:
        result.gaps.append(AuditGap(reason=UncomparedReason.CGROUP_UNKNOWN, names=expected.unresolved))
    containers = [*_container_evidence(evidence, pods, expected)]
    rules = ComparisonRules.of(evidence.config, _pools(evidence))
    if rules.cpu is None and rules.memory is None:
        result.gaps.append(AuditGap(reason=UncomparedReason.NO_EXCLUSIVE_RESOURCES))
    counted = 0
    for place in containers:
        for finding, is_compared in _compare_container(place, evidence, rules):
            counted += is_compared
            if finding is not None:
                result.discrepancies.append(finding)
    for resource, place in product(device_resources(evidence, containers), containers):
        devices = devices_by_source(place, evidence, resource)
        counted += len(devices) > 1
        finding = discrepancy(DiscrepancyKind.DEVICES, place, resource, devices, devices_agree, rules)
        if finding is not None:
            result.discrepancies.append(finding)
    result.discrepancies.extend(_pod_presence(evidence, pods))
    result.transient.extend(_stale_allocations(evidence, pods))
    if expected is not None and evidence.cgroups is not None:
        files = compare_cgroup_files(expected, evidence.cgroups)
        result.discrepancies.extend(files.discrepancies)
        result.discrepancies.extend(orphaned_cgroups(evidence, map(uid_on_node, pods)))
        counted += files.compared
        if evidence.cgroups.uncopied:
            result.gaps.append(AuditGap(reason=UncomparedReason.NOT_COPIED, names=evidence.cgroups.uncopied))
        if files.missing_files:
            result.gaps.append(AuditGap(reason=UncomparedReason.FILES_MISSING, names=files.missing_files))
    return result._replace(compared=counted)


def _compare_container(
    place: ContainerEvidence, evidence: AuditEvidence, rules: ComparisonRules
) -> Iterator[tuple[Discrepancy | None, bool]]:
    cpus = cpus_by_source(place, evidence, rules)
    yield discrepancy(DiscrepancyKind.CPUS, place, "cpus", cpus, cpus_agree, rules), len(cpus) > 1
    memory = memory_by_source(place, evidence, rules)
    yield (
        discrepancy(DiscrepancyKind.MEMORY, place, "memory", memory, memory_agree, rules),
        len(memory) > 1,
    )


def _container_evidence(
    evidence: AuditEvidence, pods: Iterable[Pod], expected: CgroupsToRead | None
) -> Iterator[ContainerEvidence]:
    """The evidence of each container of active pods that the kubelet has started to process."""
    resources_by_pod = {resource.full_name: resource for resource in evidence.pod_resources or ()}
    groups = {
        (group.pod, group.container): group
        for group in (expected.groups if expected else ())
        if group.level is CgroupLevel.CONTAINER
    }
    for pod in pods:
        pod_resources = resources_by_pod.get(pod.full_name)
        if not (_is_started(pod) or pod_resources):
            continue
        by_name = (
            {container.name: container for container in pod_resources.containers} if pod_resources else {}
        )
        short_lived = _short_lived_containers(pod)
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            group = groups.get((pod.full_name, container.name))
            texts = evidence.cgroups.texts.get(group.path) if group and evidence.cgroups else None
            yield ContainerEvidence(
                pod,
                container,
                container.name in short_lived,
                by_name.get(container.name),
                group,
                # A container that shares pod-level CPUs runs on those that the pod's other containers leave.
                {} if texts is None or divides_pod_allocation(pod, evidence.config) else texts,
            )


def _is_started(pod: Pod) -> bool:
    return pod.status.phase == "Running" or bool(
        pod.status.container_statuses or pod.status.init_container_statuses
    )


def _pod_presence(evidence: AuditEvidence, pods: Iterable[Pod]) -> Iterator[Discrepancy]:
    """Pods that only the API or only PodResources has."""
    if evidence.pod_resources is None:
        return
    kubelet_pods = {resource.full_name for resource in evidence.pod_resources}
    api_pods = {pod.full_name: pod for pod in pods}
    for name in sorted(kubelet_pods - {*api_pods}):
        yield pod_presence(name, EvidenceSource.RESOURCES, Presence.PRESENT, Presence.MISSING)
    for name, pod in sorted(api_pods.items()):
        if name not in kubelet_pods and pod.status.phase == "Running":
            yield pod_presence(name, EvidenceSource.RESOURCES, Presence.MISSING, Presence.RUNNING)


def _stale_allocations(evidence: AuditEvidence, pods: Iterable[Pod]) -> Iterator[Discrepancy]:
    """Allocations in state files to removed pods; they are released when the next pod is admitted."""
    known, state = {uid_on_node(pod) for pod in pods}, evidence.state_files
    if state is None:
        return
    holders: dict[str, list[tuple[str, EvidenceValue]]] = {}
    if state.cpu is not None:
        for holder in state.cpu.holders():
            holders.setdefault(holder.pod, []).append(("cpus", holder.cpus))
    if state.memory is not None:
        for uid, held in state.memory.assignments.items():
            for blocks in held.values():
                for block in blocks:
                    memory_block = MemoryBlock(block.numa, block.resource, block.size)
                    holders.setdefault(uid, []).append(("memory", sorted_blocks([memory_block])))
    for uid, containers in (state.devices or {}).items():
        for resources in containers.values():
            for resource, ids in resources.items():
                holders.setdefault(uid, []).append((resource, DeviceIdSet(ids)))
    for uid in sorted({*holders} - known):
        standing = Presence.ENDED if uid in evidence.ended_uids else Presence.MISSING
        for field, value in holders[uid]:
            yield Discrepancy(
                kind=DiscrepancyKind.STALE_ALLOCATION,
                pod=uid,
                field=field,
                values={EvidenceSource.STATE: value, EvidenceSource.PODS: standing},
            )


# ---------------------------------------------------------------- the node


def _compare_node(
    evidence: AuditEvidence, findings: list[Discrepancy]
) -> Iterator[tuple[str, Discrepancy | None]]:
    """The node-level comparisons, each with its discrepancy or None."""
    disputed = [finding for finding in findings if finding.kind is DiscrepancyKind.CPUS]
    state = evidence.state_files.cpu if evidence.state_files else None
    computed = _computed_pool(evidence)
    if state is not None and computed is not None:
        involved = CPUSet()
        for finding in disputed:
            for value in finding.values.values():
                involved |= value if isinstance(value, CPUSet) else CPUSet()
        is_off = ((state.default - computed) | (computed - state.default)) - involved
        pool = Discrepancy(
            kind=DiscrepancyKind.SHARED_POOL,
            pod="",
            field="shared cpus",
            values={EvidenceSource.STATE: state.default, EvidenceSource.CONFIGURATION: computed},
            outlier=EvidenceSource.STATE,
        )
        yield "pool", pool if is_off else None
    for source, holders in _owners(evidence):
        disputed_containers = {(finding.pod, finding.container) for finding in disputed}
        for twice in _double_allocations(
            source, {holder: cpus for holder, cpus in holders.items() if holder not in disputed_containers}
        ):
            yield "twice", twice
    if evidence.allocatable is not None:
        ours = allocatable_cpus_and_memory(evidence.config)
        for field, reported, computed_value in (
            ("allocatable cpus", evidence.allocatable.cpus, ours.cpus),
            ("allocatable memory", sorted_blocks(evidence.allocatable.memory), sorted_blocks(ours.memory)),
        ):
            values = {EvidenceSource.RESOURCES: reported, EvidenceSource.CONFIGURATION: computed_value}
            yield field, None if reported == computed_value else allocatable_discrepancy(field, values)


def _pools(evidence: AuditEvidence) -> Iterator[CPUSet]:
    """The valid values of the shared pool."""
    state = evidence.state_files.cpu if evidence.state_files else None
    if state is not None:
        yield state.default
    computed = _computed_pool(evidence)
    if computed is not None:
        yield computed


def _computed_pool(evidence: AuditEvidence) -> CPUSet | None:
    """The shared pool that the allocations leave; None: allocations are unknown, or the policy is none."""
    policy = ComparisonRules.of(evidence.config, ()).cpu
    if policy is None:
        return None
    all_cpus = policy.topology.cpus
    if policy.options.strict_reservation:
        all_cpus -= policy.reserved
    state = evidence.state_files.cpu if evidence.state_files else None
    if state is not None:
        for holder in state.holders():
            all_cpus -= holder.cpus
        return all_cpus
    if evidence.pod_resources is None:
        return None
    for pod in evidence.pod_resources:
        for container in pod.containers:
            all_cpus -= container.cpus
    return all_cpus


def _owners(evidence: AuditEvidence) -> Iterator[tuple[EvidenceSource, Mapping[tuple[str, str], CPUSet]]]:
    """The holders of exclusive CPUs: by the state files or, without them, by PodResources.

    Pod-level allocations are not included, nor those of init containers, whose CPUs later containers reuse.
    """
    pods = {pod.uid: pod for pod in evidence.pods or ()}
    state = evidence.state_files.cpu if evidence.state_files else None
    if state is not None:
        yield (
            EvidenceSource.STATE,
            {
                (pods[uid].full_name if uid in pods else uid, container): cpus
                for uid, containers in state.assignments.items()
                if uid not in state.pods
                for container, cpus in containers.items()
                if container not in _short_lived_containers(pods.get(uid))
            },
        )
    elif evidence.pod_resources is not None:
        divided = {pod.full_name for pod in pods.values() if divides_pod_allocation(pod, evidence.config)}
        yield (
            EvidenceSource.RESOURCES,
            {
                (pod.full_name, container.name): container.cpus
                for pod in evidence.pod_resources
                if pod.full_name not in divided
                for container in pod.containers
                if container.cpus
            },
        )


def _short_lived_containers(pod: Pod | None) -> frozenset[str]:
    """The init containers that terminate."""
    return frozenset(
        container.name for container in (pod.spec.init_containers if pod else ()) if not container.is_sidecar
    )


def _double_allocations(
    source: EvidenceSource, owners: Mapping[tuple[str, str], CPUSet]
) -> Iterator[Discrepancy]:
    """Exclusive CPUs that an earlier container already holds."""
    taken = CPUSet()
    for (pod, container), cpus in sorted(owners.items()):
        both = cpus & taken
        taken |= cpus
        if both:
            yield Discrepancy(
                kind=DiscrepancyKind.DOUBLE_ALLOCATION,
                pod=pod,
                container=container,
                field="cpus",
                values={source: both},
            )


def _order(finding: Discrepancy) -> tuple[str, str, str, str]:
    return finding.pod, finding.container, finding.kind, finding.field


def merged_by_uid(
    findings: Iterable[Discrepancy], transient: Iterable[Discrepancy], evidence: AuditEvidence
) -> tuple[list[Discrepancy], list[Discrepancy]]:
    """The findings and the transient ones, with the discrepancies of a uid merged into those of the pod's name.

    A name and a uid are the same pod if the CPUs and devices are equal: these are exclusive.
    """
    findings, transient = [*findings], [*transient]
    uids = _uids(evidence, {finding.pod for finding in findings if _is_unknown(finding)})
    if not uids:
        return findings, transient
    known = {*uids.values()}
    grouped = {finding.pod for finding in findings if finding.kind is DiscrepancyKind.CGROUP_PRESENCE}
    merged = [
        _with_other_sources(finding, has_group=uids[finding.pod] in grouped)
        if _is_unknown(finding) and finding.pod in uids
        else finding
        for finding in findings
        if not (finding.kind is DiscrepancyKind.CGROUP_PRESENCE and finding.pod in known)
    ]
    return merged, [finding for finding in transient if finding.pod not in known]


def _is_unknown(finding: Discrepancy) -> bool:
    return (
        finding.kind is DiscrepancyKind.POD_PRESENCE
        and finding.values.get(EvidenceSource.RESOURCES) is Presence.PRESENT
    )


def _with_other_sources(finding: Discrepancy, *, has_group: bool) -> Discrepancy:
    values: dict[EvidenceSource, Presence] = {EvidenceSource.STATE: Presence.PRESENT}
    if has_group:
        values[EvidenceSource.CGROUPS] = Presence.PRESENT
    return replace(finding, values={**values, **finding.values})


def _uids(evidence: AuditEvidence, names: Iterable[str]) -> dict[str, str]:
    """The uids by name of pods that only PodResources and state files have."""
    by_uid = _by_uid(evidence)
    uids = {}
    for pod in evidence.pod_resources or ():
        if pod.full_name not in names:
            continue
        allocation: dict[tuple[str, str], CPUSet | frozenset[str]] = {}
        for container in pod.containers:
            allocation.update(
                {(container.name, resource): ids for resource, ids in container.device_ids.items() if ids}
            )
            if container.cpus:
                allocation[container.name, _CPUS] = container.cpus
        matching = [uid for uid, held in by_uid.items() if held == allocation]
        if allocation and len(matching) == 1:
            uids[pod.full_name] = matching[0]
    return uids


def _by_uid(evidence: AuditEvidence) -> dict[str, PodAllocation]:
    allocations: dict[str, dict[tuple[str, str], CPUSet | frozenset[str]]] = {}
    state = evidence.state_files
    if state is not None and state.cpu is not None:
        for uid, containers in state.cpu.assignments.items():
            allocations.setdefault(uid, {}).update(
                {(name, _CPUS): cpus for name, cpus in containers.items() if cpus}
            )
    if state is not None and state.devices is not None:
        for uid, held in state.devices.items():
            for name, resources in held.items():
                allocations.setdefault(uid, {}).update(
                    {(name, resource): ids for resource, ids in resources.items() if ids}
                )
    return dict(allocations)
