"""The report of an upgrade: what changes on each node, by groups of nodes with the same findings; struct, text and names."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.model.printable import printable_lines
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.upgrade.release_facts import NONE, Area, Aspect
from nodewright.predict.upgrade.upgrade_report import (
    Cause,
    Difference,
    Finding,
    NodeComparison,
    UpgradeImpact,
)

_SHOWN = 6
"""Values of a block that are shown without -o wide."""
_HEADERS = ("OBJECT", "VALUE", "BEFORE", "AFTER")
_LEADS = {
    UpgradeImpact.LOST: "lost",
    UpgradeImpact.WAY_BACK: "lost on the way back",
    UpgradeImpact.CHANGED: "changed",
    UpgradeImpact.NOTE: "note",
}
_OWNERS = {Area.NODE: "node"}
_UNEXPLAINED = "several changes together, or one that the release tables do not have"


class ReportedCause(Report, frozen=True, kw_only=True):
    """A change between the releases that makes a difference."""

    rule: str
    since: str
    """The first release that has the change."""
    reference: str | UnsetType = UNSET
    """KEPs and pull requests."""
    remedy: str


class ChangedValue(Report, frozen=True, kw_only=True):
    """A value that the releases do not share."""

    pod: str | UnsetType = UNSET
    """Namespace and name; absent: the value is the node's."""
    detail: str | UnsetType = UNSET
    """The container, resource, field or file."""
    before: str
    """`-`: there is none."""
    after: str


class UpgradeFinding(Report, frozen=True, kw_only=True):
    """Values of one kind that change for the same reason."""

    severity: UpgradeImpact
    area: Area
    aspect: Aspect
    causes: tuple[ReportedCause, ...]
    """Empty: no change of the release tables makes the difference by itself."""
    values: tuple[ChangedValue, ...]


class NodesUpgraded(Report, frozen=True, kw_only=True):
    """Nodes with the same findings."""

    nodes: tuple[str, ...]
    from_: str
    to: str
    is_downgrade: bool
    outcome: Literal["lost", "changed", "noChange"]
    findings: tuple[UpgradeFinding, ...]
    """The worst first."""
    compared: Mapping[str, int]
    """The number of values compared on the first node, by area."""
    pods_compared: bool
    """Whether pods and manifests were compared; false: one of the kubelets does not start."""
    without_refused_settings: bool
    """Whether they were compared without settings with which one of the kubelets does not start."""


class UpgradeReport(ReportDocument, frozen=True, kw_only=True):
    """What another release of the kubelet changes on nodes: `nodewright upgrade`."""

    kind: Literal["UpgradeReport"] = "UpgradeReport"
    groups: tuple[NodesUpgraded, ...]
    warnings: tuple[str, ...]


class ComparedNodes(msgspec.Struct, frozen=True):
    """The nodes with equal comparisons."""

    nodes: tuple[str, ...]
    comparison: NodeComparison


def grouped_comparisons(comparisons: Sequence[NodeComparison]) -> tuple[ComparedNodes, ...]:
    """The nodes with the same findings together; groups with losses first, then the larger ones."""
    groups: dict[tuple[object, ...], list[NodeComparison]] = {}
    for comparison in comparisons:
        key = (comparison.start, comparison.end, comparison.findings, comparison.is_complete)
        groups.setdefault(key, []).append(comparison)
    compared = [
        ComparedNodes(tuple(comparison.node for comparison in group), group[0]) for group in groups.values()
    ]
    return tuple(
        sorted(compared, key=lambda group: (not group.comparison.loses, -len(group.nodes), group.nodes))
    )


# ---------------------------------------------------------------- JSON


def upgrade_report(groups: Sequence[ComparedNodes], warnings: Sequence[str] = ()) -> UpgradeReport:
    """The report of comparisons."""
    return UpgradeReport(groups=tuple(map(_nodes_upgraded, groups)), warnings=tuple(warnings))


def _nodes_upgraded(group: ComparedNodes) -> NodesUpgraded:
    comparison = group.comparison
    return NodesUpgraded(
        nodes=group.nodes,
        from_=comparison.start,
        to=comparison.end,
        is_downgrade=_is_downgrade(comparison),
        outcome=_outcome(comparison),
        findings=tuple(map(_reported_finding, comparison.findings)),
        compared={str(area): count for area, count in comparison.compared.items()},
        pods_compared=comparison.is_complete,
        without_refused_settings=comparison.without_settings,
    )


def _outcome(comparison: NodeComparison) -> Literal["lost", "changed", "noChange"]:
    if comparison.loses:
        return "lost"
    return "changed" if comparison.changes else "noChange"


def _is_downgrade(comparison: NodeComparison) -> bool:
    names = list(RELEASE_TABLES)
    return names.index(comparison.start) > names.index(comparison.end)


def _reported_finding(finding: Finding) -> UpgradeFinding:
    return UpgradeFinding(
        severity=finding.severity,
        area=finding.area,
        aspect=finding.aspect,
        causes=tuple(
            ReportedCause(
                rule=cause.rule,
                since=cause.since,
                reference=cause.reference or UNSET,
                remedy=cause.remedy,
            )
            for cause in finding.causes
        ),
        values=tuple(
            ChangedValue(
                pod=difference.subject or UNSET,
                detail=difference.detail or UNSET,
                before=difference.before,
                after=difference.after,
            )
            for difference in finding.differences
        ),
    )


# ---------------------------------------------------------------- text


def upgrade_text(groups: Sequence[ComparedNodes], *, wide: bool = False) -> str:
    """For each group of nodes: what is lost, what changes and why, what to do, and what was compared."""
    return "\n".join(_group_text(group, wide=wide) for group in groups)


def upgrade_names(groups: Sequence[ComparedNodes]) -> str:
    """The nodes that lose something, one per line, in kubectl's notation."""
    return printable_lines(
        f"node/{name}" for group in groups if group.comparison.loses for name in group.nodes
    )


def _group_text(group: ComparedNodes, *, wide: bool) -> str:
    comparison = group.comparison
    parts = [printable_lines([_headline(group)])]
    parts += [_block(key, tuple(of), wide=wide) for key, of in _blocks(comparison)]
    parts.append(printable_lines(_compared_lines(comparison)))
    return "\n".join(parts)


def _headline(group: ComparedNodes) -> str:
    comparison = group.comparison
    names = ", ".join(group.nodes[:3]) + (f" and {len(group.nodes) - 3} more" if len(group.nodes) > 3 else "")
    way = "downgrade" if _is_downgrade(comparison) else "upgrade"
    counts = dict.fromkeys(UpgradeImpact, 0)
    for finding in comparison.findings:
        counts[finding.severity] += len(finding.differences)
    if not any(counts[severity] for severity in UpgradeImpact if severity is not UpgradeImpact.NOTE):
        outcome = "no change"
    else:
        outcome = ", ".join(
            f"{counts[severity]} {lead}" for severity, lead in _LEADS.items() if counts[severity]
        )
    return f"{names}: {way} from {comparison.start} to {comparison.end}: {outcome}"


def _blocks(
    comparison: NodeComparison,
) -> Iterator[tuple[tuple[UpgradeImpact, tuple[Cause, ...]], Iterator[Finding]]]:
    """The findings of a severity with the same causes, in the order of the worst of them."""
    first: dict[tuple[UpgradeImpact, tuple[Cause, ...]], int] = {}
    for index, finding in enumerate(comparison.findings):
        first.setdefault((finding.severity, finding.causes), index)
    ordered = sorted(comparison.findings, key=lambda finding: first[finding.severity, finding.causes])
    yield from groupby(ordered, key=lambda finding: (finding.severity, finding.causes))


def _block(
    key: tuple[UpgradeImpact, tuple[Cause, ...]],
    findings: Sequence[Finding],
    *,
    wide: bool,
) -> str:
    severity, causes = key
    rules = [_rule(cause) for cause in causes] or [_UNEXPLAINED]
    lines = [f"{_LEADS[severity]}: {rules[0]}", *(f"  and {rule}" for rule in rules[1:])]
    differences = [(finding.aspect, value) for finding in findings for value in finding.differences]
    lines += [_start_line(value) for aspect, value in differences if aspect is Aspect.START_ERROR]
    if severity is UpgradeImpact.NOTE:
        changes = (f"  {value.detail}: {value.before} -> {value.after}" for _, value in differences)
        return printable_lines([*lines, *changes])
    rows = [_row(value) for aspect, value in differences if aspect is not Aspect.START_ERROR]
    shown = rows if wide or len(rows) <= _SHOWN + 1 else rows[:_SHOWN]
    indented = "".join(f"  {line}\n" for line in table(_HEADERS, shown).splitlines()) if rows else ""
    rest = [f"  and {len(rows) - len(shown)} more values: -o wide"] if len(shown) < len(rows) else []
    remedies = [f"  do: {remedy}" for remedy in dict.fromkeys(cause.remedy for cause in causes)]
    return printable_lines(lines) + indented + printable_lines([*rest, *remedies])


def _rule(cause: Cause) -> str:
    source = "; ".join(filter(None, (f"changed in {cause.since}", cause.reference)))
    return f"{cause.rule} ({source})"


def _start_line(difference: Difference) -> str:
    if difference.after == NONE:
        return f"  the kubelet starts; before: {difference.before}"
    return f"  the kubelet does not start: {difference.after}"


def _row(difference: Difference) -> tuple[str, str, str, str]:
    owner = difference.subject or _OWNERS.get(difference.area, "kubelet")
    name = f"{difference.aspect}: {difference.detail}" if difference.detail else str(difference.aspect)
    return owner, name, difference.before, difference.after


def _compared_lines(comparison: NodeComparison) -> Iterator[str]:
    counts = ", ".join(f"{area} {count}" for area, count in comparison.compared.items())
    yield f"values compared: {counts}"
    if not comparison.is_complete:
        yield "pods and manifests are not compared: one of the kubelets does not start, and no remedy is known"
    elif comparison.without_settings:
        yield "pods and manifests are compared without the settings with which a kubelet does not start"
