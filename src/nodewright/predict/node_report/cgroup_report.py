"""Expected cgroups and their files as text, as names and as a report, and differences from an actual tree."""

from collections.abc import Iterable, Mapping
from typing import Literal, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.documents.output.request_sentences import score_sentence
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.cgroups.cgroup_comparison import CgroupComparison, FileDifference
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import CeilingMissing, CgroupFact
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, CgroupLevel, PlannedCgroup
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.reasons.fact import KubeletText
from nodewright.predict.node_report.cgroup_report import (
    difference_reason,
    file_value_reason,
    missing_limit_sentence,
)
from nodewright.predict.node_report.report_parts import NodeOfReport, node_of_report


class RejectedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A refused pod with the kubelet's reason and message."""

    pod: Pod
    kubelet: KubeletText


class CgroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the report."""

    groups: tuple[PlannedCgroup, ...]
    rules: CgroupConfig
    config: NodeConfig
    refusals: tuple[RejectedPod, ...] = ()
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
            f"pod {refusal.pod.full_name} is refused by the node and has no cgroups: {refusal.kubelet.reason}"
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
    return CgroupFilesReport(
        node=node_of_report(report.config),
        cgroup_version=rules.version,
        cgroup_driver=rules.driver,
        groups=tuple(reported_cgroup(group, rules.version) for group in report.groups),
        refused=tuple(map(_refused_pod, report.refusals)),
        comparison=UNSET if comparison is None else _reported_comparison(comparison, rules.version),
        skipped=report.skipped,
        warnings=report.warnings,
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
    match group.level:
        case CgroupLevel.DAEMONS:
            return "daemons"
        case CgroupLevel.NODE:
            return "all pods"
        case CgroupLevel.QOS_CLASS:
            return f"{group.qos_class} pods"
        case CgroupLevel.POD:
            return f"pod {group.pod} ({group.qos_class})"
        case CgroupLevel.CONTAINER:
            return f"container {group.container} of {group.pod}"
        case _:
            assert_never(group.level)


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
    return ReportedCgroup(
        level=group.level,
        path=group.path,
        qos_class=group.qos_class or UNSET,
        pod=group.pod or UNSET,
        container=group.container or UNSET,
        container_id=group.container_id or UNSET,
        files=tuple(
            ReportedCgroupFile(
                path=_file_path(group.path, file.name, version),
                file=file.name,
                value=file.value,
                why=file_value_reason(file),
                because=file.because,
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
            ReportedDifference(
                path=_file_path(difference.path, difference.file, version),
                file=difference.file,
                expected=difference.expected,
                found=difference.actual,
                why=difference_reason(difference),
                pod=(difference.group and difference.group.pod) or UNSET,
                container=(difference.group and difference.group.container) or UNSET,
            )
            for difference in comparison.differences
        ),
        not_compared=tuple(
            UncomparedCgroup(pod=group.pod, container=group.container) for group in comparison.not_compared
        ),
    )


def _refused_pod(refusal: RejectedPod) -> RefusedPod:
    meta, kubelet = refusal.pod.metadata, refusal.kubelet
    return RefusedPod(
        name=meta.name, namespace=meta.namespace or "default", reason=kubelet.reason, message=kubelet.message
    )
