"""Compares the cgroups of a node with those that its pods and configuration require."""

from collections.abc import Iterable, Iterator, Mapping
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
from nodewright.engine.core.cgroups.container_settings import ContainerCpuset
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.node.managers.hint_providers import CPUProvider
from nodewright.engine.node.node_cgroups import cgroup_tree
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import without_ungated_resources
from nodewright.model.kubernetes.objects import ContainerState, ContainerStatus, Pod
from nodewright.model.values.cpu_time import kubelet_weight, runtime_weight
from nodewright.predict.audit.audit_evidence import (
    AuditEvidence,
    CgroupEvidence,
    CgroupsToRead,
    Discrepancy,
    DiscrepancyKind,
    EvidenceSource,
    EvidenceValue,
    Presence,
    SourceText,
)

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
            is_quota_disabled=not requests.is_skipped and requests.container_cpus(container) > 0
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
