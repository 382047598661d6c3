"""What an upgrade of the kubelet changes on nodes: the values that differ, their causes, and the report."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.documents.profiles.state_files.checkpoints import state_as_written, written_state_files
from nodewright.model.kubernetes.resource_names import file_value_text
from nodewright.model.printable import counted, printable_lines
from nodewright.model.releases.release_changes import (
    changes_between,
    gate_history,
    unknown_flags,
    with_change,
)
from nodewright.model.releases.release_rules import ReleaseChange, ReleaseTable
from nodewright.model.releases.release_table import NEWEST, RELEASE_TABLES
from nodewright.predict.reported import reported
from nodewright.predict.upgrade.release_facts import (
    NONE,
    Area,
    Aspect,
    Decided,
    FactName,
    FactOwner,
    ReleaseFacts,
    UpgradeCase,
    decide,
    decide_settings,
    gate_of,
    gates_of,
)

_HELD = (Aspect.CPUS, Aspect.MEMORY, Aspect.DEVICES)
_OF_THE_CONFIGURATION = (Aspect.CONFIG_FIELD, Aspect.SETTING)
_OF_A_WAY_BACK = (Aspect.START_ERROR, Aspect.STATE_FILE, Aspect.VERDICT, *_HELD)


class UpgradeImpact(StrEnum):
    """What a finding means, the worst first."""

    LOST = "lost"
    """The kubelet does not start, or pods, allocations, state or admissions are lost."""
    WAY_BACK = "way back"
    """Something is lost if the upgrade is taken back."""
    CHANGED = "changed"
    NOTE = "note"


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
    outcome: Literal["lost", "neverStarts", "changed", "noChange"]
    start_errors: tuple[str, ...] = ()
    """Why the kubelet starts under neither release."""
    findings: tuple[UpgradeFinding, ...]
    """The worst first."""
    compared: Mapping[str, int]
    """The number of values compared on the first node, by area."""
    pods_compared: bool
    """Whether pods and manifests were compared; false: one of the kubelets does not start."""
    without_refused_settings: bool
    """Whether they were compared without settings with which one of the kubelets does not start."""

    @property
    def loses(self) -> bool:
        """Whether the upgrade loses anything, or there is nothing to lose: the kubelet starts under neither release."""
        return self.outcome in ("lost", "neverStarts")


class UpgradeReport(ReportDocument, frozen=True, kw_only=True):
    """What another release of the kubelet changes on nodes: `nodewright upgrade`."""

    kind: Literal["UpgradeReport"] = "UpgradeReport"
    groups: tuple[NodesUpgraded, ...]
    warnings: tuple[str, ...]


class Difference(msgspec.Struct, frozen=True, order=True):
    """A value that the two releases do not share."""

    area: Area
    subject: str
    """A pod as namespace/name; empty: the kubelet or the node."""
    aspect: Aspect
    detail: str
    before: str
    after: str

    @property
    def severity(self) -> UpgradeImpact:
        """Whether something is lost."""
        if self._is_loss:
            return UpgradeImpact.WAY_BACK if self.area is Area.WAY_BACK else UpgradeImpact.LOST
        return UpgradeImpact.NOTE if self.aspect is Aspect.SETTING else UpgradeImpact.CHANGED

    @property
    def _is_loss(self) -> bool:
        if self.aspect is Aspect.START_ERROR:
            return self.before == NONE
        if self.aspect in _HELD:
            return self.after == NONE
        # Files that are refused, and pods that are.
        return self.after.startswith(("lost", "refused")) and not self.before.startswith(("lost", "refused"))


def upgrade_report(comparisons: Sequence[NodesUpgraded], warnings: Sequence[str] = ()) -> UpgradeReport:
    """The nodes with the same findings together; groups with losses first, then the larger ones."""
    groups: dict[tuple[object, ...], list[NodesUpgraded]] = {}
    for comparison in comparisons:
        key = (comparison.from_, comparison.to, comparison.findings, comparison.pods_compared)
        groups.setdefault(key, []).append(comparison)
    nodes = [
        replace(group[0], nodes=tuple(name for comparison in group for name in comparison.nodes))
        for group in groups.values()
    ]
    nodes.sort(key=lambda group: (not group.loses, -len(group.nodes), group.nodes))
    return UpgradeReport(groups=tuple(nodes), warnings=tuple(warnings))


Evaluate = Callable[[ReleaseTable], Decided]


def compared_releases(case: UpgradeCase, start: ReleaseTable, end: ReleaseTable) -> NodesUpgraded:
    """What changes on the node when its kubelet of one release is replaced by that of the other, and back."""
    before, after = decide(case, start), decide(case, end)
    differences = tuple(differences_of(before.facts, after.facts))
    explained = _explained(case, differences, (start, end), lambda table: decide(case, table))
    counts = _counts(before.facts, after.facts)
    back = case_of_way_back(case, after)
    if back is not None:
        returned = decide(back, start)
        kept = decide(back, end)
        # With the same file contents the return loses what the new kubelet would keep.
        back_differences = tuple(
            replace(difference, area=Area.WAY_BACK)
            for difference in differences_of(kept.facts, returned.facts)
            if difference.aspect in _OF_A_WAY_BACK and difference.severity is UpgradeImpact.LOST
        )
        explained |= _explained(back, back_differences, (end, start), lambda table: decide(back, table))
        counts[Area.WAY_BACK] = _values_of_way_back(kept.facts, returned.facts)
    findings, start_errors = _findings(explained), tuple(_start_errors(before.facts, after.facts))
    return NodesUpgraded(
        nodes=(case.profile.metadata.name,),
        from_=start.name,
        to=end.name,
        is_downgrade=_position(start) > _position(end),
        outcome=_outcome(findings, start_errors),
        start_errors=start_errors,
        findings=findings,
        compared={str(area): count for area, count in counts.items()},
        pods_compared=before.state is not None and after.state is not None,
        without_refused_settings=before.has_changed_settings or after.has_changed_settings,
    )


def _start_errors(before: ReleaseFacts, after: ReleaseFacts) -> Iterator[str]:
    """The errors with which the kubelet of both releases ends."""
    owner = FactOwner(Area.START, "")
    for fact, error in after[owner].items():
        if fact.aspect == Aspect.START_ERROR and fact in before[owner]:
            yield f"{fact.detail}: {error}"


def _outcome(
    findings: Sequence[UpgradeFinding], start_errors: Sequence[str]
) -> Literal["lost", "neverStarts", "changed", "noChange"]:
    """The worst finding; defaults without an effect on the node are no change."""
    severities = {finding.severity for finding in findings}
    if UpgradeImpact.LOST in severities:
        return "lost"
    if start_errors:
        return "neverStarts"
    return "changed" if severities - {UpgradeImpact.NOTE} else "noChange"


def differences_of(before: ReleaseFacts, after: ReleaseFacts) -> Iterator[Difference]:
    """The values that differ, of the owners that both releases have."""
    for owner in sorted(before.keys() & after.keys()):
        values, new_values = before[owner], after[owner]
        for fact in sorted(values.keys() | new_values.keys()):
            value, new_value = values.get(fact, NONE), new_values.get(fact, NONE)
            if value != new_value:
                area, aspect = Area(owner.area), Aspect(fact.aspect)
                yield Difference(area, owner.name, aspect, fact.detail, value, new_value)


def case_of_way_back(case: UpgradeCase, after: Decided) -> UpgradeCase | None:
    """The node as the old kubelet finds it when the new one has run; None: the new one does not start."""
    if after.state is None:
        return None
    files = written_state_files(after.state)
    pods = tuple(after.state.pods.values())
    stored = {pod.uid: pod for pod in case.pods}
    return replace(
        case,
        files=files,
        pods=tuple(stored.get(pod.uid, pod) for pod in pods),
        held=state_as_written(files, after.state.config.parts),
        manifests=(),
    )


def _counts(before: ReleaseFacts, after: ReleaseFacts) -> dict[Area, int]:
    counts = dict.fromkeys(Area, 0)
    for owner in before.keys() & after.keys():
        counts[Area(owner.area)] += len(before[owner].keys() | after[owner].keys())
    return {area: count for area, count in counts.items() if count}


def _values_of_way_back(before: ReleaseFacts, after: ReleaseFacts) -> int:
    return sum(
        fact.aspect in _OF_A_WAY_BACK
        for owner in before.keys() & after.keys()
        for fact in before[owner].keys() | after[owner].keys()
    )


# ---------------------------------------------------------------- causes


def _explained(
    case: UpgradeCase,
    differences: Sequence[Difference],
    releases: tuple[ReleaseTable, ReleaseTable],
    evaluate: Evaluate,
) -> dict[Difference, tuple[ReportedCause, ...]]:
    """The causes of each difference."""
    start, end = releases
    gates = gates_of(case.profile)
    explained: dict[Difference, tuple[ReportedCause, ...]] = {}
    for difference in differences:
        gate = gate_of(difference.detail.removeprefix("featureGates[").removesuffix("]"), gates)
        if difference.aspect is not Aspect.START_ERROR:
            continue
        if gate:
            explained[difference] = (
                _gate_cause(gate, start.name, end.name, is_refused=difference.after != NONE),
            )
        for flag in unknown_flags([difference.detail.removeprefix("--")], NEWEST.name):
            cause = reported(ReportedCause, flag, rule=f"the kubelet has no flag --{flag.name}")
            explained[difference] = (cause,)
    unexplained = [difference for difference in differences if difference not in explained]
    settings = [difference for difference in unexplained if difference.aspect in _OF_THE_CONFIGURATION]
    decided = [difference for difference in unexplained if difference.aspect not in _OF_THE_CONFIGURATION]
    explained |= changes_that_make(settings, start, end, lambda table: decide_settings(case, table))
    explained |= changes_that_make(decided, start, end, evaluate)
    return {difference: explained[difference] for difference in differences}


def _gate_cause(gate: str, start: str, end: str, *, is_refused: bool) -> ReportedCause:
    """The history of a gate that the kubelet refuses, with the last release between the two that changed it."""
    history, (low, high) = gate_history(gate), sorted((start, end), key=list(RELEASE_TABLES).index)
    between = list(RELEASE_TABLES)[list(RELEASE_TABLES).index(low) + 1 : list(RELEASE_TABLES).index(high) + 1]
    since = [release for release, _ in history.states if release in between]
    return ReportedCause(
        rule=f"feature gate {history.text()}",
        since=since[-1] if since else end,
        remedy=f"remove `featureGates.{gate}`"
        if is_refused
        else f"set `featureGates.{gate}` with this release, not before",
    )


def changes_that_make(
    differences: Sequence[Difference], start: ReleaseTable, end: ReleaseTable, evaluate: Evaluate
) -> dict[Difference, tuple[ReportedCause, ...]]:
    """The changes between the releases that make each difference.

    A change makes a difference if the old release with this change alone has the new value. Where no change
    suffices alone: the changes that alter the value when the old release makes them, or the new one takes them back.
    """
    if not differences:
        return {}
    is_upgrade = _position(start) <= _position(end)
    changes = changes_between(start.name, end.name)
    values = {
        change: _values(differences, evaluate(with_change(start, change, applied=is_upgrade)))
        for change in changes
    }
    sufficient = {
        difference: [change for change in changes if values[change][difference] == difference.after]
        for difference in differences
    }
    rest = [difference for difference in differences if not sufficient[difference]]
    reverted = {
        change: _values(rest, evaluate(with_change(end, change, applied=not is_upgrade)))
        for change in (changes if rest else ())
    }
    for difference in rest:
        sufficient[difference] = [
            change
            for change in changes
            if values[change][difference] not in (None, difference.before)
            or reverted[change][difference] not in (None, difference.after)
        ]
    return {
        difference: tuple(
            _cause(change, is_upgrade=is_upgrade)
            for change in (_smallest(makers) if difference not in rest else _without_supersets(makers))
        )
        for difference, makers in sufficient.items()
    }


def _position(table: ReleaseTable) -> int:
    return list(RELEASE_TABLES).index(table.name)


def _smallest(changes: Sequence[ReleaseChange]) -> Sequence[ReleaseChange]:
    """The changes with the fewest parts: a row that includes another explains no more."""
    sizes = [len(change.rules) + len(change.gates) for change in changes]
    return [change for change, size in zip(changes, sizes, strict=True) if size == min(sizes)]


def _without_supersets(changes: Sequence[ReleaseChange]) -> Sequence[ReleaseChange]:
    """The changes of which no other is a part."""
    parts = {change: frozenset((*change.rules, *change.gates)) for change in changes}
    return [change for change in changes if not any(parts[other] < parts[change] for other in changes)]


def _values(differences: Iterable[Difference], decided: Decided) -> dict[Difference, str | None]:
    """The value of each difference in the decisions; None: its owner has no facts, e.g. a pod that is refused."""
    return {difference: _value(difference, decided.facts) for difference in differences}


def _value(difference: Difference, facts: ReleaseFacts) -> str | None:
    area = difference.area
    areas = (area,) if area is not Area.WAY_BACK else (Area.START, Area.STATE_FILES, Area.PODS)
    fact, is_outcome = FactName(difference.aspect, difference.detail), difference.aspect is Aspect.VERDICT
    owners = [FactOwner(name, difference.subject, is_outcome=is_outcome) for name in areas]
    known = [facts[owner] for owner in owners if owner in facts]
    return next((of[fact] for of in known if fact in of), NONE) if known else None


def _cause(change: ReleaseChange, *, is_upgrade: bool) -> ReportedCause:
    return reported(
        ReportedCause,
        change,
        rule=change.now if is_upgrade else change.before,
        remedy=change.remedy if is_upgrade else change.back or f"do not rely on it any more: {change.now}",
    )


# ---------------------------------------------------------------- findings


def _findings(explained: Mapping[Difference, tuple[ReportedCause, ...]]) -> tuple[UpgradeFinding, ...]:
    """The differences of one kind with the same causes together, the worst first."""
    groups: dict[tuple[UpgradeImpact, Area, Aspect, tuple[ReportedCause, ...]], list[Difference]] = {}
    for difference, causes in explained.items():
        key = (difference.severity, difference.area, difference.aspect, causes)
        groups.setdefault(key, []).append(difference)
    findings = (
        UpgradeFinding(
            severity=severity,
            area=area,
            aspect=aspect,
            causes=causes,
            values=tuple(
                reported(ChangedValue, difference, pod=difference.subject or UNSET)
                for difference in differences
            ),
        )
        for (severity, area, aspect, causes), differences in groups.items()
    )
    return tuple(sorted(findings, key=_order))


def _order(finding: UpgradeFinding) -> tuple[int, int, int, tuple[str, ...]]:
    return (
        list(UpgradeImpact).index(finding.severity),
        list(Area).index(finding.area),
        list(Aspect).index(finding.aspect),
        tuple(cause.rule for cause in finding.causes),
    )


# ---------------------------------------------------------------- text

_AREAS: dict[str, str] = {
    Area.START: "the start of the kubelet",
    Area.STATE_FILES: "its state files",
    Area.PODS: "running pods",
    Area.MANIFESTS: "manifests",
    Area.NODE: "the node",
    Area.WAY_BACK: "a return to the old release",
}
_SHOWN = 6
"""Values of a block that are shown without -o wide."""
_HEADERS = ("OBJECT", "VALUE", "BEFORE", "AFTER")
_LEADS = {
    UpgradeImpact.LOST: "lost",
    UpgradeImpact.WAY_BACK: "lost on the way back",
    UpgradeImpact.CHANGED: "changed",
    UpgradeImpact.NOTE: "note",
}
_UNEXPLAINED = "several changes together, or one that the release tables do not have"


def upgrade_text(report: UpgradeReport, *, wide: bool = False) -> str:
    """For each group of nodes: what is lost, what changes and why, what to do, and what was compared."""
    return "\n".join(_group_text(group, wide=wide) for group in report.groups)


def upgrade_names(report: UpgradeReport) -> str:
    """The nodes that lose something, one per line, in kubectl's notation."""
    return printable_lines(f"node/{name}" for group in report.groups if group.loses for name in group.nodes)


def _group_text(group: NodesUpgraded, *, wide: bool) -> str:
    errors = [f"  the kubelet does not start before or after: {error}" for error in group.start_errors]
    parts = [printable_lines([_headline(group), *errors])]
    parts += [_block(key, tuple(of), wide=wide) for key, of in _blocks(group)]
    parts.append(printable_lines(_compared_lines(group)))
    return "\n".join(parts)


def _headline(group: NodesUpgraded) -> str:
    names = ", ".join(group.nodes[:3]) + (f" and {len(group.nodes) - 3} more" if len(group.nodes) > 3 else "")
    way = "downgrade" if group.is_downgrade else "upgrade"
    counts = dict.fromkeys(UpgradeImpact, 0)
    for finding in group.findings:
        counts[finding.severity] += len(finding.values)
    if not any(counts[severity] for severity in UpgradeImpact if severity is not UpgradeImpact.NOTE):
        notes = counts[UpgradeImpact.NOTE]
        outcome = f"no value changes; {counted(notes, 'note')}" if notes else "no change"
    else:
        outcome = ", ".join(
            f"{counts[severity]} {lead}" for severity, lead in _LEADS.items() if counts[severity]
        )
    if group.start_errors:
        outcome = f"the kubelet starts under neither release; {outcome}"
    return f"{names}: {way} from {group.from_} to {group.to}: {outcome}"


def _blocks(
    group: NodesUpgraded,
) -> Iterator[tuple[tuple[UpgradeImpact, tuple[ReportedCause, ...]], Iterator[UpgradeFinding]]]:
    """The findings of a severity with the same causes, in the order of the worst of them."""
    first: dict[tuple[UpgradeImpact, tuple[ReportedCause, ...]], int] = {}
    for index, finding in enumerate(group.findings):
        first.setdefault((finding.severity, finding.causes), index)
    ordered = sorted(group.findings, key=lambda finding: first[finding.severity, finding.causes])
    yield from groupby(ordered, key=lambda finding: (finding.severity, finding.causes))


def _block(
    key: tuple[UpgradeImpact, tuple[ReportedCause, ...]],
    findings: Sequence[UpgradeFinding],
    *,
    wide: bool,
) -> str:
    severity, causes = key
    rules = [_rule(cause) for cause in causes] or [_UNEXPLAINED]
    lines = [f"{_LEADS[severity]}: {rules[0]}", *(f"  and {rule}" for rule in rules[1:])]
    values = [(finding, value) for finding in findings for value in finding.values]
    lines += [_start_line(value) for finding, value in values if finding.aspect is Aspect.START_ERROR]
    if severity is UpgradeImpact.NOTE:
        changes = (f"  {value.detail}: {value.before} -> {value.after}" for _, value in values)
        return printable_lines([*lines, *changes])
    rows = [_row(finding, value) for finding, value in values if finding.aspect is not Aspect.START_ERROR]
    shown = rows if wide or len(rows) <= _SHOWN + 1 else rows[:_SHOWN]
    indented = "".join(f"  {line}\n" for line in table(_HEADERS, shown).splitlines()) if rows else ""
    rest = (
        [f"  and {counted(len(rows) - len(shown), 'more value')}: -o wide"] if len(shown) < len(rows) else []
    )
    return printable_lines(lines) + indented + printable_lines([*rest, *_remedy_lines(causes)])


def _remedy_lines(causes: Sequence[ReportedCause]) -> list[str]:
    """What to do; for several causes, those that need something, each under the release of its change."""
    releases = {cause.remedy: cause.since for cause in causes}
    needed = {remedy: since for remedy, since in releases.items() if not remedy.startswith("nothing;")}
    if len(remedies := needed or releases) < 2:
        return [f"  do: {remedy}" for remedy in remedies]
    return [
        "  do, for the change in:",
        *(f"    {since}: {remedy}" for remedy, since in sorted(remedies.items(), key=itemgetter(1))),
    ]


def _rule(cause: ReportedCause) -> str:
    source = "; ".join(filter(None, (f"changed in {cause.since}", cause.reference or "")))
    return f"{cause.rule} ({source})"


def _start_line(value: ChangedValue) -> str:
    if value.after == NONE:
        return f"  the kubelet starts; before: {value.before}"
    return f"  the kubelet does not start: {value.after}"


def _row(finding: UpgradeFinding, value: ChangedValue) -> tuple[str, str, str, str]:
    owner = value.pod or ("node" if finding.area is Area.NODE else "kubelet")
    name = f"{finding.aspect}: {value.detail}" if value.detail else str(finding.aspect)
    before, after = (
        file_value_text(text) if " memory." in name else text for text in (value.before, value.after)
    )
    return owner, name, before, after


def _compared_lines(group: NodesUpgraded) -> Iterator[str]:
    counts = ", ".join(f"{count:,} of {_AREAS[area]}" for area, count in group.compared.items())
    yield f"compared values: {counts}"
    if not group.pods_compared:
        subject = (
            "the kubelet starts under neither release"
            if group.start_errors
            else "one of the kubelets does not start"
        )
        yield f"pods and manifests are not compared: {subject}, and no remedy is known"
    elif group.without_refused_settings:
        yield "pods and manifests are compared without the settings with which a kubelet does not start"
