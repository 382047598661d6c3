"""Reports an audit: a table of discrepancies with their meaning and remedy, and a struct."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import amount_text, file_value_text
from nodewright.model.printable import counted, printable_line, printable_lines
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.predict.audit.audit_evidence import (
    AuditGap,
    AuditResult,
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
    UncomparedReason,
    allocatable_discrepancy,
    pod_presence,
)
from nodewright.predict.explain.suggestion_text import requests_text
from nodewright.predict.node_report.report_parts import AllocatedMemory
from nodewright.predict.reported import reported


class _SourceTexts(NamedTuple):
    header: str
    name: str
    option: str


_SOURCES = {
    EvidenceSource.STATE: _SourceTexts("STATE FILES", "state files", "--kubelet-root"),
    EvidenceSource.RESOURCES: _SourceTexts("PODRESOURCES", "PodResources", "--pod-resources"),
    EvidenceSource.CGROUPS: _SourceTexts("CGROUPS", "cgroups", "--cgroups"),
    EvidenceSource.PODS: _SourceTexts("PODS", "pods", "--pods, --socket"),
    EvidenceSource.KUBELET: _SourceTexts("KUBELET", "pods of the kubelet", "node/NAME"),
    EvidenceSource.NODE: _SourceTexts("NODE OBJECT", "Node object", "node/NAME"),
    EvidenceSource.CONFIGURATION: _SourceTexts("CONFIGURATION", "configuration", "--kubelet-config"),
    EvidenceSource.DATA: _SourceTexts("DATA", "`data` of state files", "--kubelet-root"),
    EvidenceSource.OLDER_MEMBERS: _SourceTexts("OLDER MEMBERS", "other members", "--kubelet-root"),
}
_WRITER = (
    "find the process that writes to it; nodewright's agent restores the value within 10 s, "
    "a kubelet only when the container is recreated"
)


def audit_text(audit: AuditResult) -> str:
    """The discrepancies as a table, each with its meaning below, and the number of compared facts."""
    parts = []
    if audit.discrepancies:
        parts += [_table(audit.discrepancies), "".join(map(_explanation, audit.discrepancies))]
    if audit.transient:
        parts.append("released when the next pod is admitted:\n" + _table(audit.transient))
    count = len(audit.discrepancies)
    what = f"{counted(count, 'fact')} disagree{'s' if count == 1 else ''}"
    parts.append(printable_line(f"{what} of {audit.compared_count} compared"))
    return "\n".join(parts)


def uncompared_sentence(gap: AuditGap) -> str:
    """The sentence that states what was not compared, and why."""
    names = ", ".join(gap.names or ())
    source = _SOURCES[gap.source].name if gap.source else ""
    match gap.reason:
        case UncomparedReason.NOT_GIVEN:
            assert gap.source
            return f"not compared: {source}: no source specified ({_SOURCES[gap.source].option})"
        case UncomparedReason.NOT_READ:
            return f"not compared: {source}: {gap.because}"
        case UncomparedReason.NAMES_UNKNOWN:
            return "not compared: state files with PodResources: uids cannot be matched with names without pods (--pods)"
        case UncomparedReason.CGROUP_UNKNOWN:
            return f"not compared: cgroups of containers without a container id in their status: {names}"
        case UncomparedReason.FILES_MISSING:
            return f"not compared: files that are not there: {names}"
        case UncomparedReason.NOT_COPIED:
            return f"not compared: cgroups that the copy does not have: {names}"
        case UncomparedReason.NO_EXCLUSIVE_RESOURCES:
            return "not compared: exclusive CPUs and memory: these policies allocate none"
        case _:
            assert_never(gap.reason)


def meaning(finding: Discrepancy) -> str:
    """What the discrepancy means."""
    match finding.kind:
        case DiscrepancyKind.CPUS | DiscrepancyKind.MEMORY | DiscrepancyKind.DEVICES:
            return _allocation_meaning(finding)
        case DiscrepancyKind.DOUBLE_ALLOCATION:
            return "several containers hold these as exclusive"
        case DiscrepancyKind.SHARED_POOL:
            return "the shared pool is not what the exclusive CPUs leave: CPUs are lost or allocated twice"
        case DiscrepancyKind.ALLOCATABLE:
            return "the kubelet was started with another configuration, or on another machine"
        case DiscrepancyKind.STALE_ALLOCATION:
            return "it is allocated to a pod that no longer exists"
        case DiscrepancyKind.REQUESTS:
            return "the kubelet has allocated other amounts than the spec requests: a resize is pending"
        case DiscrepancyKind.POD_PRESENCE if Presence.PRESENT in (
            finding.values.get(EvidenceSource.RESOURCES),
            finding.values.get(EvidenceSource.KUBELET),
        ):
            return "the kubelet runs a pod that is not in the list of pods: it is new, or was force-deleted"
        case DiscrepancyKind.POD_PRESENCE:
            return "the pod is Running in the API, but the kubelet does not have it"
        case DiscrepancyKind.CGROUP_PRESENCE if (
            finding.values.get(EvidenceSource.CGROUPS) is Presence.PRESENT
        ):
            return "the cgroup of a removed pod still exists; processes may still run in it"
        case DiscrepancyKind.CGROUP_PRESENCE:
            return "it is reported as running but has no cgroup: no limits apply, or it has just ended"
        case DiscrepancyKind.CGROUP_FILE if not finding.pod:
            return "the value of the cgroup above these pods differs from the configuration"
        case DiscrepancyKind.CGROUP_FILE:
            return "the cgroup value differs from the pod spec"
        case DiscrepancyKind.STATE_FILE_PARTS:
            return (
                "kubelets since 1.37 read `data`, older ones the other members: with the next upgrade or downgrade, "
                "allocations change or the kubelet does not start"
            )
        case _:
            assert_never(finding.kind)


def advice(finding: Discrepancy) -> str:
    """The remedy."""
    match finding.kind:
        case DiscrepancyKind.CPUS | DiscrepancyKind.MEMORY if finding.outlier is EvidenceSource.CGROUPS:
            return _WRITER
        case DiscrepancyKind.CPUS | DiscrepancyKind.MEMORY | DiscrepancyKind.DEVICES if (
            finding.outlier is EvidenceSource.PODS
        ):
            return "recreate the pod: its resources were allocated for another spec or under another policy"
        case DiscrepancyKind.CPUS | DiscrepancyKind.MEMORY | DiscrepancyKind.DEVICES:
            return "drain the node, and restart the kubelet without the state file before pods are scheduled again"
        case DiscrepancyKind.DOUBLE_ALLOCATION:
            return "recreate all but one of these pods"
        case DiscrepancyKind.SHARED_POOL:
            return "drain the node and delete cpu_manager_state: the kubelet does not start on it again"
        case DiscrepancyKind.ALLOCATABLE:
            return "restart the kubelet, or specify its configuration (--kubelet-config)"
        case DiscrepancyKind.STALE_ALLOCATION:
            return "nothing"
        case DiscrepancyKind.REQUESTS:
            return "ask why: `nodewright explain pod/NAME`"
        case DiscrepancyKind.POD_PRESENCE:
            return "run the audit again with a fresh list of pods; if it persists, restart the kubelet"
        case DiscrepancyKind.CGROUP_PRESENCE if (
            finding.values.get(EvidenceSource.CGROUPS) is Presence.PRESENT
        ):
            return "run the audit again; if it persists, kill its processes and remove it: normally the kubelet does so"
        case DiscrepancyKind.CGROUP_PRESENCE:
            return "run the audit again with a fresh list of pods; if it persists, recreate the pod"
        case DiscrepancyKind.CGROUP_FILE if not finding.pod:
            return "run the audit again in a minute; if it persists, restart the kubelet and find the process that writes to it"
        case DiscrepancyKind.CGROUP_FILE:
            return _WRITER
        case DiscrepancyKind.STATE_FILE_PARTS:
            return "drain the node, stop the kubelet and delete the file before its release changes"
        case _:
            assert_never(finding.kind)


EncodedValue: TypeAlias = str | int | Mapping[str, int] | tuple[AllocatedMemory, ...] | tuple[str, ...]


class AuditFinding(Report, frozen=True, kw_only=True):
    """A fact that sources disagree about."""

    kind: DiscrepancyKind
    pod: str
    """Namespace and name, or the uid if these are unknown; empty: it concerns the node."""
    container: str
    """Empty: it concerns the pod as a whole."""
    field: str
    """`cpus`, `memory`, a resource, or the name of a cgroup file."""
    said: Mapping[EvidenceSource, EncodedValue]
    """The value in each source that has one."""
    odd: EvidenceSource | UnsetType = UNSET
    """The only source that disagrees with all others."""
    cgroup: str | UnsetType = UNSET
    means: str
    do: str


class AuditReport(ReportDocument, frozen=True, kw_only=True):
    """What a live node's state files, sockets and cgroups disagree about: `nodewright audit`."""

    kind: Literal["AuditReport"] = "AuditReport"
    findings: tuple[AuditFinding, ...]
    passing: tuple[AuditFinding, ...]
    """Allocations to removed pods, which the kubelet releases when it admits the next pod."""
    compared: int
    """The number of facts that at least two sources have."""
    not_compared: tuple[AuditGap, ...]


def audit_report(audit: AuditResult) -> AuditReport:
    """The report of an audit."""
    return AuditReport(
        findings=tuple(map(_finding, audit.discrepancies)),
        passing=tuple(map(_finding, audit.transient)),
        compared=audit.compared_count,
        not_compared=audit.uncompared,
    )


def _finding(finding: Discrepancy) -> AuditFinding:
    return reported(
        AuditFinding,
        finding,
        said={source: _encoded(value) for source, value in finding.values.items()},
        odd=finding.outlier or UNSET,
        cgroup=finding.cgroup_path or UNSET,
        means=meaning(finding),
        do=advice(finding),
    )


def _encoded(value: EvidenceValue) -> EncodedValue:
    match value:
        case ResourceCount(number=number):
            return number
        case MemorySizes(by_kind=sizes):
            return dict(sizes)
        case MemoryBlockSet(blocks=blocks):
            return tuple(
                AllocatedMemory(numa_nodes=tuple(block.numa_nodes), type=block.type, size=block.size)
                for block in blocks
            )
        case DeviceIdSet(ids=ids):
            return tuple(sorted(ids))
        case SourceText(text=text):
            return text
        case CPUSet() | NUMASet() | Presence():
            return str(value)
        case _:
            assert_never(value)


def _table(findings: Sequence[Discrepancy]) -> str:
    sources = [source for source in EvidenceSource if any(source in finding.values for finding in findings)]
    headers = ("POD", "CONTAINER", "FIELD", *(_SOURCES[source].header for source in sources))
    return table(headers, (_row(finding, sources) for finding in findings))


def _row(finding: Discrepancy, sources: Sequence[EvidenceSource]) -> tuple[str, ...]:
    cells = (_cell(finding.values.get(source), finding.kind) for source in sources)
    if finding.field.startswith("memory."):
        cells = (file_value_text(cell) for cell in cells)
    return _subject(finding), finding.container or "-", finding.field, *cells


def _subject(finding: Discrepancy) -> str:
    return finding.pod or finding.cgroup_path or "(node)"


def _cell(value: EvidenceValue | None, kind: DiscrepancyKind) -> str:
    match value:
        case None:
            return "-"
        case CPUSet():
            return str(value) or "shared"
        case NUMASet():
            return f"on {value}" if value else "anywhere"
        case ResourceCount(number=number) if kind is DiscrepancyKind.CPUS:
            return f"{number} exclusive" if number else "shared"
        case ResourceCount(number=number):
            return str(number)
        case MemorySizes(by_kind=sizes):
            return ", ".join(f"{amount_text(name, sizes[name])} {name}" for name in sorted(sizes)) or "none"
        case MemoryBlockSet(blocks=blocks):
            return ", ".join(map(_block, blocks)) or "none"
        case DeviceIdSet(ids=ids):
            return ",".join(sorted(ids)) or "none"
        case SourceText(text=text):
            return text or "(empty)"
        case Presence():
            return str(value)
        case _:
            assert_never(value)


def _block(block: MemoryBlock) -> str:
    numa = ",".join(map(str, block.numa_nodes))
    return f"{amount_text(block.type, block.size)} {block.type} on {numa}"


def _explanation(finding: Discrepancy) -> str:
    subject = ", ".join(filter(None, (_subject(finding), finding.container, finding.field)))
    cgroup_line = (
        printable_line(f"  cgroup:  {finding.cgroup_path}") if finding.cgroup_path and finding.pod else ""
    )
    return printable_lines([f"{subject}: {meaning(finding)}", f"  do: {advice(finding)}"]) + cgroup_line


def _allocation_meaning(finding: Discrepancy) -> str:
    match finding.outlier:
        case EvidenceSource.CGROUPS if finding.kind is DiscrepancyKind.CPUS:
            return "it runs on other CPUs than were allocated"
        case EvidenceSource.CGROUPS:
            return "its memory is from other NUMA nodes than were allocated"
        case EvidenceSource.STATE:
            return "the kubelet would use this value after its next restart"
        case EvidenceSource.RESOURCES:
            return "the kubelet's view differs from its state file and the kernel"
        case EvidenceSource.PODS:
            return "the allocation differs from the pod spec"
        case _:
            return "it is unknown which source is right"


class ClusterEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources of a cluster have about a node. None: the source could not be read."""

    pods: tuple[Pod, ...] | None
    """The API server's pods, by the uids that the kubelet uses."""
    kubelet_pods: tuple[Pod, ...] | None
    reported_allocatable: Mapping[str, int]
    """Allocatable amounts of the Node object.

    Units: cpu in thousandths, memory and storage in bytes, everything else in units.
    """
    computed_allocatable: Mapping[str, int]
    """What machine and configuration give."""
    errors: Mapping[EvidenceSource, str] = {}
    """Why sources could not be read."""


def cluster_audit(evidence: ClusterEvidence) -> AuditResult:
    """The discrepancies between the sources, each fact once."""
    compared = [*_pod_facts(evidence), *_node_facts(evidence)]
    return AuditResult(
        discrepancies=tuple(finding for finding in compared if finding is not None),
        transient=(),
        uncompared=tuple(
            AuditGap(reason=UncomparedReason.NOT_READ, source=source, because=error)
            for source, error in evidence.errors.items()
        ),
        compared_count=len(compared),
    )


def _pod_facts(evidence: ClusterEvidence) -> Iterator[Discrepancy | None]:
    """The presence and the requests of each pod; None where the sources agree."""
    if evidence.pods is None or evidence.kubelet_pods is None:
        return
    api, kubelet = _active(evidence.pods), _active(evidence.kubelet_pods)
    for uid in sorted(api.keys() | kubelet.keys(), key=lambda uid: (api.get(uid) or kubelet[uid]).full_name):
        if uid in api and uid in kubelet:
            yield _requests_differ(api[uid], kubelet[uid])
        elif uid in kubelet:
            name = kubelet[uid].full_name
            yield pod_presence(name, EvidenceSource.KUBELET, Presence.PRESENT, Presence.MISSING)
        elif api[uid].status.phase == "Running":
            name = api[uid].full_name
            yield pod_presence(name, EvidenceSource.KUBELET, Presence.MISSING, Presence.RUNNING)


def _active(pods: Iterable[Pod]) -> dict[str, Pod]:
    return {pod.uid: pod for pod in pods if not pod.is_terminal}


def _requests_differ(api: Pod, kubelet: Pod) -> Discrepancy | None:
    """The difference between what the spec requests and what the kubelet has allocated, as of a pending resize."""
    specified, allocated = scheduler_requests(api), scheduler_requests(kubelet)
    if {**specified} == {**allocated}:
        return None
    values = {
        EvidenceSource.KUBELET: SourceText(requests_text(allocated)),
        EvidenceSource.PODS: SourceText(requests_text(specified)),
    }
    return Discrepancy(kind=DiscrepancyKind.REQUESTS, pod=api.full_name, field="requests", values=values)


def _node_facts(evidence: ClusterEvidence) -> Iterator[Discrepancy | None]:
    """Each allocatable amount; None where the Node object has what machine and configuration give."""
    if EvidenceSource.CONFIGURATION in evidence.errors:
        return  # What is assumed instead follows from the Node object itself.
    for name, amount in sorted(evidence.reported_allocatable.items()):
        computed = evidence.computed_allocatable.get(name, 0)
        values = {
            EvidenceSource.NODE: SourceText(amount_text(name, amount)),
            EvidenceSource.CONFIGURATION: SourceText(amount_text(name, computed)),
        }
        yield None if amount == computed else allocatable_discrepancy(f"allocatable {name}", values)
