"""Expected cgroups and their files as text, as names and as a report, and differences from an actual tree."""

from collections.abc import Iterable, Mapping
from typing import Literal, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.documents.output.request_sentences import joined, score_sentence
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.cgroups.cgroup_comparison import CgroupComparison, FileDifference
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig, huge_page_size_name
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    BorrowerCeiling,
    CeilingMissing,
    CgroupFact,
    CPUPool,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    KilledTogether,
    MemoryAndSwap,
    MemoryCeiling,
    MemoryFrom,
    MemoryProtection,
    MemoryThrottle,
    NoQuotaReason,
    NoSwapReason,
    NotThrottled,
    ProcessCeiling,
    RunsIdle,
    RunsOn,
    SwapForbidden,
    SwapShare,
)
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, CgroupLevel, PlannedCgroup
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, amount_text
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.reasons.fact import KubeletText
from nodewright.predict.node_report.report_parts import NodeOfReport, node_of_report
from nodewright.predict.reported import reported


class CgroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the report."""

    groups: tuple[PlannedCgroup, ...]
    rules: CgroupConfig
    config: NodeConfig
    refusals: "tuple[RefusedPod, ...]" = ()
    comparison: CgroupComparison | None = None
    """The comparison with an actual cgroup tree; None: no tree is given."""
    warnings: tuple[str, ...] = ()
    skipped: Mapping[str, int]


def cgroups_text(report: CgroupReport) -> str:
    """Each cgroup with its files, values and reasons; with a comparison, the differences."""
    if report.comparison is None:
        parts = [group_text(group) for group in report.groups]
    else:
        parts = _difference_texts(report.comparison, report.rules.version)
    parts += [
        printable_line(
            f"pod {refusal.namespace}/{refusal.name} is refused by the node and has no cgroups: {refusal.reason}"
        )
        for refusal in report.refusals
    ]
    return "\n".join(parts)


def cgroup_names(report: CgroupReport) -> str:
    """A line for each file: `path/file = value`, or the path of each difference; version 1 starts with the controller."""
    version = report.rules.version
    if report.comparison is not None:
        return printable_lines(
            _file_path(difference.path, difference.file, version)
            for difference in report.comparison.differences
        )
    return printable_lines(
        f"{_file_path(group.path, file.name, version)} = {file.value}"
        for group in report.groups
        for file in group.files
    )


class ReportedCgroupFile(Report, frozen=True, kw_only=True):
    """A file of a cgroup, the text that is written to it, and why."""

    path: str
    file: str
    value: str
    why: str
    because: CgroupFact


class UnsetLimit(Report, frozen=True, kw_only=True):
    """A limit that a pod's cgroup does not have."""

    why: str
    because: CeilingMissing


class ReportedOOMScore(Report, frozen=True, kw_only=True):
    """The oom_score_adj of a container."""

    value: int
    why: str


class ReportedCgroup(Report, frozen=True, kw_only=True):
    """A cgroup with its files."""

    level: CgroupLevel
    path: str
    """From the root of the cgroup tree, as the driver names it."""
    qos_class: QOSClass | UnsetType = UNSET
    pod: str | UnsetType = UNSET
    """Namespace and name."""
    container: str | UnsetType = UNSET
    container_id: str | UnsetType = UNSET
    files: tuple[ReportedCgroupFile, ...]
    not_set: tuple[UnsetLimit, ...] | UnsetType = UNSET
    """Of a pod."""
    oom_score_adj: ReportedOOMScore | UnsetType = UNSET


class RefusedPod(Report, frozen=True, kw_only=True):
    """A pod that the node refuses, so that it has no cgroups."""

    name: str
    namespace: str
    reason: str
    message: str


class ReportedDifference(Report, frozen=True, kw_only=True):
    """A file or cgroup that differs from the expected one."""

    path: str
    file: str
    """Empty, as is the expected value: the difference concerns the whole cgroup."""
    expected: str
    found: str | None
    """null: the file or cgroup does not exist."""
    why: str
    pod: str | UnsetType = UNSET
    container: str | UnsetType = UNSET


class UncomparedCgroup(Report, frozen=True, kw_only=True):
    """A container whose cgroup is unknown."""

    pod: str
    container: str


class ReportedComparison(Inlined, frozen=True, kw_only=True):
    """The comparison with an actual cgroup tree."""

    agreeing: int
    """Number of files with the expected value."""
    differences: tuple[ReportedDifference, ...]
    not_compared: tuple[UncomparedCgroup, ...]


class CgroupFilesReport(ReportDocument, frozen=True, kw_only=True):
    """The value of each cgroup file and its source: `nodewright cgroups`.

    Units: in `because` cpu in thousandths, memory in bytes, CPU time in microseconds.
    """

    kind: Literal["CgroupReport"] = "CgroupReport"
    node: NodeOfReport
    cgroup_version: int
    cgroup_driver: str
    groups: tuple[ReportedCgroup, ...]
    refused: tuple[RefusedPod, ...]
    comparison: ReportedComparison | UnsetType = UNSET
    """Absent: no tree is given."""
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def cgroup_files_report(report: CgroupReport) -> CgroupFilesReport:
    """The content of the report as it is encoded."""
    rules, comparison = report.rules, report.comparison
    return reported(
        CgroupFilesReport,
        report,
        node=node_of_report(report.config),
        cgroup_version=rules.version,
        cgroup_driver=rules.driver,
        groups=tuple(reported_cgroup(group, rules.version) for group in report.groups),
        refused=report.refusals,
        comparison=UNSET if comparison is None else _reported_comparison(comparison, rules.version),
    )


# ---------------------------------------------------------------- groups


def group_text(group: PlannedCgroup) -> str:
    """A cgroup with its path, files, values and reasons."""
    lines = [printable_line(_title(group)), printable_line(f"  {group.path}")]
    rows = [(f"  {file.name}", file.value, file_value_reason(file)) for file in _shown(group.files)]
    if group.oom_score is not None:
        rows.append(("  oom_score_adj", str(group.oom_score.adj), score_sentence(group.oom_score)))
    lines.append(table(("  FILE", "VALUE", "REASON"), rows))
    lines += [printable_line(f"  {missing_limit_sentence(fact)}") for fact in group.unset_limits]
    return "".join(lines)


def _shown(files: Iterable[CgroupFile]) -> list[CgroupFile]:
    """The files without the `.rsvd.` duplicates for huge page reservations."""
    return [file for file in files if ".rsvd." not in file.name]


def _title(group: PlannedCgroup) -> str:
    titles = {
        CgroupLevel.DAEMONS: "daemons",
        CgroupLevel.NODE: "all pods",
        CgroupLevel.QOS_CLASS: f"{group.qos_class} pods",
        CgroupLevel.POD: f"pod {group.pod} ({group.qos_class})",
        CgroupLevel.CONTAINER: f"container {group.container} of {group.pod}",
    }
    return titles[group.level]


def _file_path(path: str, file: str, version: int) -> str:
    if not file:
        return path
    return f"/{file.partition('.')[0]}{path}/{file}" if version == 1 else f"{path}/{file}"


def _sides(difference: FileDifference) -> tuple[str, str]:
    if difference.file:
        return difference.expected, "-" if difference.actual is None else difference.actual or '""'
    return ("present", "-") if difference.actual is None else ("-", "present")


def _difference_texts(comparison: CgroupComparison, version: int) -> list[str]:
    parts = []
    if comparison.differences:
        rows = [
            (
                _file_path(difference.path, difference.file, version),
                *_sides(difference),
                difference_reason(difference),
            )
            for difference in comparison.differences
        ]
        parts.append(table(("FILE", "EXPECTED", "ACTUAL", "REASON"), rows))
    parts += [
        printable_line(f"{_title(group)} is not compared: its cgroup is unknown")
        for group in comparison.not_compared
    ]
    parts.append(
        printable_line(f"differing: {len(comparison.differences)}, matching: {comparison.matching_files}")
    )
    return parts


# ---------------------------------------------------------------- parts of the report


def reported_cgroup(group: PlannedCgroup, version: int) -> ReportedCgroup:
    """A cgroup with its files; ``version`` is the cgroup version."""
    return reported(
        ReportedCgroup,
        group,
        files=tuple(
            reported(
                ReportedCgroupFile,
                file,
                path=_file_path(group.path, file.name, version),
                file=file.name,
                why=file_value_reason(file),
            )
            for file in group.files
        ),
        not_set=tuple(
            UnsetLimit(why=missing_limit_sentence(fact), because=fact) for fact in group.unset_limits
        )
        if group.level is CgroupLevel.POD
        else UNSET,
        oom_score_adj=UNSET
        if group.oom_score is None
        else ReportedOOMScore(value=group.oom_score.adj, why=score_sentence(group.oom_score)),
    )


def _reported_comparison(comparison: CgroupComparison, version: int) -> ReportedComparison:
    return ReportedComparison(
        agreeing=comparison.matching_files,
        differences=tuple(
            reported(
                ReportedDifference,
                difference,
                path=_file_path(difference.path, difference.file, version),
                found=difference.actual,
                why=difference_reason(difference),
                pod=(difference.group and difference.group.pod) or UNSET,
                container=(difference.group and difference.group.container) or UNSET,
            )
            for difference in comparison.differences
        ),
        not_compared=tuple(reported(UncomparedCgroup, group) for group in comparison.not_compared),
    )


def refused_pod(pod: Pod, kubelet: KubeletText) -> RefusedPod:
    """A refused pod with the kubelet's reason and message."""
    meta = pod.metadata
    return reported(RefusedPod, kubelet, name=meta.name, namespace=meta.namespace or "default")


def file_value_reason(file: CgroupFile) -> str:
    """The reason for the value of a file.

    >>> from nodewright.engine.core.cgroups.cgroup_facts import CPUShares, AmountOrigin
    >>> file_value_reason(CgroupFile("cpu.weight", "10", CPUShares(256, 250, AmountOrigin.REQUEST)))
    'requests.cpu 250m: 256 shares'
    """
    text = fact_sentence(file.because)
    return f"{text}; rounded up to whole per cent, as systemd does" if file.kubelet_value else text


def difference_reason(difference: FileDifference) -> str:
    """The reason for the expected value of a file, or for an unexpected cgroup or file."""
    if difference.group is None:
        return "the cgroup of a pod that is not in the input"
    if not difference.file:
        return "the cgroup does not exist"
    if difference.because is None:
        return "the kubelet does not write this file"
    return fact_sentence(difference.because)


def fact_sentence(fact: CgroupFact) -> str:
    """The reason for a value."""
    match fact:
        case CPUShares():
            return _shares(fact)
        case CPUQuota():
            return _quota(fact)
        case MemoryCeiling(memory_bytes=amount, origin=origin):
            return _amount(origin, MEMORY, amount)
        case MemoryAndSwap(because=because):
            return f"memory and swap limit equals the memory limit: {_NO_SWAP[because]}"
        case ProcessCeiling(processes=count, origin=origin):
            return _SETTINGS.get(origin) or f"{_ORIGINS[origin]} {count} processes"
        case HugePageCeiling():
            return _huge_pages(fact)
        case MemoryProtection(memory_bytes=amount, origin=origin):
            return _SETTINGS.get(origin) or _amount(origin, MEMORY, amount)
        case MemoryThrottle():
            return _throttle(fact)
        case BorrowerCeiling(memory_bytes=amount):
            return _amount(AmountOrigin.LENT, MEMORY, amount)
        case RunsIdle():
            return "a borrower: it runs only while no other pod has work"
        case NotThrottled():
            return "MemoryQoS is off: an earlier limit is taken back"
        case SwapShare(request=request, capacity=capacity, swap=swap):
            return (
                f"requests.memory {_bytes(request)} / the node's memory {_bytes(capacity)} "
                f"x its swap {_bytes(swap)}"
            )
        case SwapForbidden(because=because):
            return f"no swap: {_NO_SWAP[because]}"
        case KilledTogether():
            return "singleProcessOOMKill: false"
        case RunsOn(pool=pool):
            return _POOLS[pool]
        case MemoryFrom():
            return "memory allocated to the container by the memory manager"
        case _:
            assert_never(fact)


def missing_limit_sentence(fact: CeilingMissing) -> str:
    """Why a pod cgroup has no limit."""
    text = f"no {fact.resource} limit on the pod"
    if not fact.containers:
        return f"{text}: the pod is BestEffort"
    verb = "has" if len(fact.containers) == 1 else "have"
    return f"{text}: {joined(fact.containers)} {verb} no limit"


def _shares(fact: CPUShares) -> str:
    if fact.origin is AmountOrigin.BEST_EFFORT:
        return f"BestEffort: {fact.shares} shares, the minimum"
    if fact.origin is AmountOrigin.UNSET:
        return f"neither requests.cpu nor limits.cpu: {fact.shares} shares, the minimum"
    return f"{_amount(fact.origin, CPU, fact.milli_cpu)}: {fact.shares} shares"


def _quota(fact: CPUQuota) -> str:
    if fact.unlimited is not None:
        return _NO_QUOTA[fact.unlimited]
    return f"{_amount(fact.origin, CPU, fact.milli_cpu)}: {fact.quota_us} of {fact.period_us} µs"


def _huge_pages(fact: HugePageCeiling) -> str:
    size = huge_page_size_name(fact.page_bytes)
    if fact.origin is AmountOrigin.UNBOUNDED:
        return "no limit at this level: each pod's cgroup has its own"
    if fact.origin is AmountOrigin.UNSET:
        return f"no requests for huge pages of {size}"
    return f"{_ORIGINS[fact.origin]} {_bytes(fact.total_bytes)} in huge pages of {size}"


def _throttle(fact: MemoryThrottle) -> str:
    name = "limits.memory" if fact.origin is AmountOrigin.LIMIT else "the node's memory for pods"
    request = _bytes(fact.request)
    return (
        f"requests.memory {request} + {fact.factor:g} x ({name} {_bytes(fact.ceiling)} - {request}), "
        f"in whole pages of {_bytes(fact.page_bytes)}"
    )


def _amount(origin: AmountOrigin, resource: str, amount: int) -> str:
    return f"{_FIELDS.get(origin) or f'{_ORIGINS[origin]} '}{resource} {amount_text(resource, amount)}"


def _bytes(amount: int) -> str:
    return amount_text(MEMORY, amount)


_ORIGINS = {
    AmountOrigin.REQUEST: "requests:",
    AmountOrigin.LIMIT: "limits:",
    AmountOrigin.POD_LEVEL: "the pod level's limits:",
    AmountOrigin.POD_REQUESTS: "the pod requests",
    AmountOrigin.POD_LIMITS: "the pod is limited to",
    AmountOrigin.OVERHEAD: "the pod's overhead is",
    AmountOrigin.BEST_EFFORT: "BestEffort pods request",
    AmountOrigin.BURSTABLE_PODS: "Burstable pods request together",
    AmountOrigin.PROTECTED_PODS: "Guaranteed and Burstable pods request together",
    AmountOrigin.QOS_RESERVED: "qosReserved leaves",
    AmountOrigin.LENT: "BestEffort pods are lent",
    AmountOrigin.NODE: "allocatable for all pods:",
    AmountOrigin.KUBE_RESERVED: "kubeReserved:",
    AmountOrigin.SYSTEM_RESERVED: "systemReserved:",
    AmountOrigin.POD_PIDS_LIMIT: "podPidsLimit:",
    AmountOrigin.POLICY: "memoryReservationPolicy:",
    AmountOrigin.UNBOUNDED: "unbounded:",
    AmountOrigin.UNSET: "no requests for",
}
_SETTINGS = {
    AmountOrigin.POLICY: "memoryReservationPolicy: None",
    AmountOrigin.UNSET: "no memory is requested",
}
_FIELDS = {
    AmountOrigin.REQUEST: "requests.",
    AmountOrigin.LIMIT: "limits.",
    AmountOrigin.POD_LEVEL: "the pod level's limits.",
}
_NO_QUOTA = {
    NoQuotaReason.NO_LIMIT: "no cpu limit",
    NoQuotaReason.EXCLUSIVE_CPUS: "exclusive CPUs: no quota",
    NoQuotaReason.NOT_ENFORCED: "cpuCFSQuota: false",
}
_POOLS = {
    CPUPool.EXCLUSIVE: "exclusive CPUs",
    CPUPool.POD: "CPUs shared within the pod",
    CPUPool.SHARED: "the current shared pool",
    CPUPool.ALL: "all CPUs: the CPU manager allocates none exclusively",
}
_NO_SWAP = {
    NoSwapReason.BEHAVIOR: "swapBehavior is not LimitedSwap",
    NoSwapReason.CGROUP_V1: "LimitedSwap needs cgroup v2",
    NoSwapReason.CRITICAL: "the pod is critical",
    NoSwapReason.NOT_BURSTABLE: "the pod is not Burstable",
    NoSwapReason.NO_MEMORY: "the container has no memory request or limit",
    NoSwapReason.REQUEST_IS_LIMIT: "the container's memory request equals its limit",
    NoSwapReason.BEYOND_CAPACITY: "the container requests more memory than the node has",
}
