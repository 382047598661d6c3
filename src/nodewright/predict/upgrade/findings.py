"""Compares what two releases decide about a node, and explains each difference by the changes that make it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.state_files.checkpoints import state_as_written, written_state_files
from nodewright.model.releases.change_rows import ReleaseChange
from nodewright.model.releases.release_changes import (
    changes_between,
    gate_history,
    unknown_flags,
    with_change,
)
from nodewright.model.releases.release_table import NEWEST, RELEASE_TABLES, ReleaseTable
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


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A change between the releases that makes a difference."""

    rule: str
    since: str
    reference: str = ""
    remedy: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of one kind with the same causes."""

    severity: UpgradeImpact
    area: Area
    aspect: Aspect
    causes: tuple[Cause, ...]
    """Empty: no change of the release tables makes the differences by itself."""
    differences: tuple[Difference, ...]


class NodeComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two releases on a node."""

    node: str
    start: str
    end: str
    findings: tuple[Finding, ...]
    compared: Mapping[Area, int]
    """The number of values compared, by area."""
    is_complete: bool
    """Whether pods and manifests were compared: both kubelets start, if need be after a remedy."""
    without_settings: bool
    """Whether they were compared without settings with which a kubelet does not start."""

    @property
    def loses(self) -> bool:
        """Whether the upgrade loses anything."""
        return any(finding.severity is UpgradeImpact.LOST for finding in self.findings)

    @property
    def changes(self) -> bool:
        """Whether it changes more than defaults without an effect on this node."""
        return any(finding.severity is not UpgradeImpact.NOTE for finding in self.findings)


Evaluate = Callable[[ReleaseTable], Decided]


def compared_releases(case: UpgradeCase, start: ReleaseTable, end: ReleaseTable) -> NodeComparison:
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
    return NodeComparison(
        node=case.profile.metadata.name,
        start=start.name,
        end=end.name,
        findings=_findings(explained),
        compared=counts,
        is_complete=before.state is not None and after.state is not None,
        without_settings=before.has_changed_settings or after.has_changed_settings,
    )


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
        conflicts=(),
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
) -> dict[Difference, tuple[Cause, ...]]:
    """The causes of each difference."""
    start, end = releases
    gates = case.profile.spec.kubelet_configuration.get("featureGates") or {}
    explained: dict[Difference, tuple[Cause, ...]] = {}
    for difference in differences:
        gate = gate_of(difference.detail.removeprefix("featureGates[").removesuffix("]"), gates)
        if difference.aspect is not Aspect.START_ERROR:
            continue
        if gate:
            explained[difference] = (
                _gate_cause(gate, start.name, end.name, is_refused=difference.after != NONE),
            )
        for flag in unknown_flags([difference.detail.removeprefix("--")], NEWEST.name):
            explained[difference] = (
                Cause(
                    rule=f"the kubelet has no flag --{flag.name}",
                    since=flag.since,
                    reference=flag.reference,
                    remedy=flag.remedy,
                ),
            )
    unexplained = [difference for difference in differences if difference not in explained]
    settings = [difference for difference in unexplained if difference.aspect in _OF_THE_CONFIGURATION]
    decided = [difference for difference in unexplained if difference.aspect not in _OF_THE_CONFIGURATION]
    explained |= changes_that_make(settings, start, end, lambda table: decide_settings(case, table))
    explained |= changes_that_make(decided, start, end, evaluate)
    return {difference: explained[difference] for difference in differences}


def _gate_cause(gate: str, start: str, end: str, *, is_refused: bool) -> Cause:
    """The history of a gate that the kubelet refuses, with the last release between the two that changed it."""
    history, (low, high) = gate_history(gate), sorted((start, end), key=list(RELEASE_TABLES).index)
    between = list(RELEASE_TABLES)[list(RELEASE_TABLES).index(low) + 1 : list(RELEASE_TABLES).index(high) + 1]
    since = [release for release, _ in history.states if release in between]
    return Cause(
        rule=f"feature gate {history.text()}",
        since=since[-1] if since else end,
        remedy=f"remove `featureGates.{gate}`"
        if is_refused
        else f"set `featureGates.{gate}` with this release, not before",
    )


def changes_that_make(
    differences: Sequence[Difference], start: ReleaseTable, end: ReleaseTable, evaluate: Evaluate
) -> dict[Difference, tuple[Cause, ...]]:
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


def _cause(change: ReleaseChange, *, is_upgrade: bool) -> Cause:
    return Cause(
        rule=change.now if is_upgrade else change.before,
        since=change.since,
        reference=change.reference,
        remedy=change.remedy if is_upgrade else change.back or f"do not rely on it any more: {change.now}",
    )


# ---------------------------------------------------------------- findings


def _findings(explained: Mapping[Difference, tuple[Cause, ...]]) -> tuple[Finding, ...]:
    """The differences of one kind with the same causes together, the worst first."""
    groups: dict[tuple[UpgradeImpact, Area, Aspect, tuple[Cause, ...]], list[Difference]] = {}
    for difference, causes in explained.items():
        key = (difference.severity, difference.area, difference.aspect, causes)
        groups.setdefault(key, []).append(difference)
    findings = (
        Finding(severity=severity, area=area, aspect=aspect, causes=causes, differences=tuple(differences))
        for (severity, area, aspect, causes), differences in groups.items()
    )
    return tuple(sorted(findings, key=_order))


def _order(finding: Finding) -> tuple[int, int, int, tuple[str, ...]]:
    return (
        list(UpgradeImpact).index(finding.severity),
        list(Area).index(finding.area),
        list(Aspect).index(finding.aspect),
        tuple(cause.rule for cause in finding.causes),
    )
