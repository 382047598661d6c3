"""Applies the objects of manifests under the quotas and limit ranges of their namespaces."""

import textwrap
from collections.abc import Callable, Iterator, Sequence

import msgspec

from nodewright.documents.formats.inventory import Inventory, InventoryObject
from nodewright.documents.formats.workloads import release_warnings
from nodewright.documents.output.ci_formats import SourcePosition
from nodewright.documents.output.request_sentences import deciding_text, derivation_lines, derivation_summary
from nodewright.documents.output.text_layout import table
from nodewright.engine.admission.api_server.apply import (
    ApplyOutcome,
    ApplyResult,
    RefusedObject,
    apply,
    unknown_usage,
)
from nodewright.engine.admission.api_server.charges import NamespacePolicy
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.engine.admission.api_server.pod_creation import ObjectRejection, rejection_error
from nodewright.engine.admission.limit_ranger import FilledIn
from nodewright.engine.admission.validation.quotas_and_limit_ranges import unknown_scopes
from nodewright.engine.admission.validation.violation import violation_fault
from nodewright.engine.core.requests.effective_resources import ResourceField
from nodewright.engine.core.requests.resource_breakdown import ResourceDerivation, resource_derivations
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.api_request import GroupResource, Manifest
from nodewright.model.kubernetes.cluster_objects import ResourceQuota
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, ResourceList
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.releases.release_table import RELEASES_WITH_RULES, AppliedRules
from nodewright.model.values.quantity import Quantity
from nodewright.predict.quota.fixes import (
    PodHeadroom,
    QuotaFixes,
    RaisedQuota,
    ReplicaReduction,
    pod_headroom,
    smallest_fixes,
)

INDENT_STEP = "  "
_MAX_LISTED = 5
"""Number of objects that are listed by name."""
_MAX_REFUSALS = 50
"""Number of refused objects that are listed with their messages, besides the first."""


class AppliedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An applied object, as users identify it."""

    kind: str
    namespace: str
    name: str
    source: str
    """Where it is defined, e.g. `web.yaml, document 2`."""
    position: SourcePosition
    field: str = "replicas"
    """Name of the field with its number of pods."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class AppliedInventory(msgspec.Struct, frozen=True, kw_only=True):
    """All results for output."""

    subjects: tuple[AppliedObject, ...]
    applied: ApplyResult
    fixes: QuotaFixes
    headroom: tuple[PodHeadroom, ...] = ()
    rules_of: str = RELEASES_WITH_RULES[-1]
    """The Kubernetes release whose rules were applied."""
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether everything is admitted."""
        return not self.applied.refusals


def applied_inventory(
    inventory: Inventory, expansion: ExpansionOptions, rules: AppliedRules, *, needs_position: bool
) -> AppliedInventory:
    """The objects of the manifests under the quotas and limit ranges of their namespaces, with what still fits and fixes.

    Errors: InputError for what an API server of the release refuses, where that of the newest one does not.
    """
    faults = [
        entry.location.locate(violation_fault(violation))
        for entry in inventory.objects
        if isinstance(quota := entry.manifest.object, ResourceQuota)
        for violation in unknown_scopes(quota, rules.table.rules)
    ]
    if faults:
        raise InputError(faults)
    manifests = [entry.manifest for entry in inventory.objects]
    applied = apply(manifests, expansion)
    return AppliedInventory(
        subjects=tuple(_subject(entry, needs_position=needs_position) for entry in inventory.objects),
        applied=applied,
        headroom=pod_headroom(manifests, applied, expansion),
        fixes=smallest_fixes(manifests, applied, expansion),
        rules_of=rules.rules_of,
        warnings=(
            *inventory.warnings,
            *(_unknown_usage(manifests) if expansion.from_status else ()),
            *release_warnings(rules, (entry.workload for entry in inventory.objects if entry.workload)),
        ),
    )


def _unknown_usage(manifests: Sequence[Manifest]) -> Iterator[str]:
    quotas = (manifest.object for manifest in manifests)
    for text in filter(None, (unknown_usage(quota) for quota in quotas if isinstance(quota, ResourceQuota))):
        yield f"{text}; the API server enforces them only when the quota controller has set it"


def _subject(entry: InventoryObject, *, needs_position: bool) -> AppliedObject:
    """The name and the source of the object; its position only if needed, because that parses the file again."""
    manifest = entry.manifest
    line, column = (entry.location.position() if needs_position else None) or (0, 0)
    return AppliedObject(
        kind=manifest.kind,
        namespace=manifest.namespace,
        name=manifest.name,
        source=entry.location.name,
        position=SourcePosition(file=entry.location.source, line=line, column=column),
        field="parallelism" if manifest.kind in ("Job", "CronJob") else "replicas",
    )


def quota_text(report: AppliedInventory) -> str:
    """The quotas, each object with its charge and the used amounts, the first refusal, headroom and fixes."""
    parts = [_quotas(report), *_objects(report)]
    parts += [first_refusal_text(report), _headroom(report), _fixes(report)]
    return "\n".join(part for part in parts if part)


def refused_object_names(report: AppliedInventory) -> str:
    """The objects that are not completely admitted, in kubectl's notation."""
    refused = dict.fromkeys(refusal.manifest for refusal in report.applied.refusals)
    return printable_lines(f"{report.subjects[at].kind.lower()}/{report.subjects[at].name}" for at in refused)


def refusal_text(resource: GroupResource, refused: RefusedObject) -> str:
    """The API server's error for the object."""
    return rejection_error(resource, refused.metadata, refused.because)


def reason_text(reason: ObjectRejection) -> str:
    """The API server's error for one more pod, without a name."""
    text = refusal_text(GroupResource("pods"), RefusedObject(metadata=ObjectMeta(), because=reason))
    return text.removeprefix('pods "Unknown" is forbidden: ').removeprefix('Pod "" is invalid: ')


def derivation_texts(
    outcome: ApplyOutcome, describe: Callable[[ResourceDerivation], str] = derivation_summary
) -> dict[str, str]:
    """For each charged resource of a pod: how the amount is derived."""
    if not isinstance(outcome.object, Pod):
        return {}
    texts = {}
    for side, names in (
        (ResourceField.REQUESTS, ("{}", "requests.{}")),
        (ResourceField.LIMITS, ("limits.{}",)),
    ):
        for each in resource_derivations(outcome.object, side):
            for name in names:
                texts[name.format(each.resource)] = describe(each)
    return texts


def full_derivation(derivation: ResourceDerivation) -> str:
    """How the amount is derived, with the alternatives that it exceeds."""
    lines, moment = derivation_lines(derivation), derivation.deciding
    # The line for the sum of all running containers is self-explanatory.
    says_itself = derivation.pod_level is None and moment is not None and moment.role is None
    if says_itself and moment is not None and len(moment.addends) > 1:
        return "; ".join(lines)
    return "; ".join([deciding_text(derivation), *lines])


# ---------------------------------------------------------------- quotas


def _quotas(report: AppliedInventory) -> str:
    applied = report.applied
    if not any(namespace.quotas for namespace in applied.after.values()):
        return "no quotas\n"
    rows = [
        (name, quota.name, *map(str, row))
        for name, namespace in applied.after.items()
        for quota_before, quota in zip(applied.before[name].quotas, namespace.quotas, strict=True)
        for row in _quota_rows(quota_before, quota)
    ]
    return table(("NAMESPACE", "QUOTA", "RESOURCE", "HARD", "BEFORE", "USED", "LEFT"), rows)


def _quota_rows(quota_before: ResourceQuota, quota: ResourceQuota) -> Iterator[tuple[object, ...]]:
    for resource, hard in sorted(quota.spec.hard.items()):
        used = quota.status.used.get(resource)
        if used is None:
            yield resource, hard, "unknown", "unknown", "unknown"
        else:
            yield resource, hard, quota_before.status.used[resource], used, hard - used


# ---------------------------------------------------------------- objects


def _objects(report: AppliedInventory) -> Iterator[str]:
    by_manifest: dict[int, list[ApplyOutcome]] = {}
    for outcome in report.applied.outcomes:
        if report.subjects[outcome.manifest].namespace in report.applied.after:
            by_manifest.setdefault(outcome.manifest, []).append(outcome)
    uncharged = []
    for index, outcomes in by_manifest.items():
        subject = report.subjects[index]
        shown = [outcome for outcome in outcomes if outcome.charge or outcome.admitted < outcome.requested]
        if not shown:
            uncharged.append(str(subject))
            continue
        lines = "".join(_outcome(outcome, report.applied.after[subject.namespace]) for outcome in shown)
        yield printable_line(f"{subject} ({subject.source})") + textwrap.indent(lines, INDENT_STEP)
    if uncharged:
        yield printable_line(f"not charged: {', '.join(uncharged)}")


def _outcome(outcome: ApplyOutcome, namespace: NamespacePolicy) -> str:
    lines = [printable_line(_count(outcome))]
    lines += [
        printable_line(f"{INDENT_STEP}{_filled(filled.limit_range, given)}")
        for filled in outcome.filled
        for given in filled.defaults
    ]
    if outcome.charge:
        lines.append(textwrap.indent(_charges(outcome, namespace), INDENT_STEP))
    return "".join(lines)


def _count(outcome: ApplyOutcome) -> str:
    """How many of the objects are admitted; several equal pods are not named."""
    surge = " more during the update" if outcome.is_surge else ""
    text = f"{outcome.admitted} of {outcome.requested} {outcome.resource.resource}{surge}"
    if outcome.requested == 1:
        text = f"{outcome.resource.resource} {outcome.name}{surge}{'' if outcome.admitted else ': refused'}"
    untried = outcome.requested - outcome.admitted - outcome.refused
    return f"{text}, {untried} not tried" if untried else text


def _filled(limit_range: str, given: FilledIn) -> str:
    what = [
        f"{field} {name}={amount}"
        for field, amounts in (("request", given.requests), ("limit", given.limits))
        for name, amount in sorted(amounts.items())
    ]
    role = "init container" if given.init else "container"
    return f"LimitRange {limit_range} sets defaults of {role} {given.container}: {', '.join(what)}"


def _charges(outcome: ApplyOutcome, namespace: NamespacePolicy) -> str:
    derivations, totals = derivation_texts(outcome), dict(outcome.totals)
    hard = {quota.name: quota.status.hard for quota in namespace.quotas}
    rows = [
        (
            quota,
            resource,
            str(amounts[resource]),
            str(totals[quota][resource]) if quota in totals else "-",
            str(hard[quota][resource]),
            derivations.get(resource, ""),
        )
        for quota, amounts in outcome.charge
        for resource in sorted(amounts)
    ]
    return _without_empty_last(("QUOTA", "RESOURCE", "EACH", "USED AFTER", "HARD", "DERIVATION"), rows)


def _without_empty_last(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table, without its last column if that is empty."""
    width = len(headers) if any(row[-1] for row in rows) else len(headers) - 1
    return table(headers[:width], (row[:width] for row in rows))


# ---------------------------------------------------------------- refusals, headroom, fixes


def first_refusal_text(report: AppliedInventory) -> str:
    """The first refused object and the others, each with its message; or that everything fits."""
    refusals = report.applied.refusals
    if not refusals:
        return "everything fits\n"
    first = refusals[0]
    subject = report.subjects[first.manifest]
    lines = [f"first refused: {subject} ({subject.source})"]
    lines += _messages(first)
    # Of the pods of an object, the first refusal; the others have the same reason.
    others = {
        refusal.manifest: refusal for refusal in reversed(refusals[1:]) if refusal.manifest != first.manifest
    }
    for manifest, refusal in sorted(others.items())[:_MAX_REFUSALS]:
        lines.append(f"also refused: {report.subjects[manifest]} ({report.subjects[manifest].source})")
        lines += _messages(refusal)
    if len(others) > _MAX_REFUSALS:
        lines.append(f"also refused: {len(others) - _MAX_REFUSALS} more (-o json has them all)")
    return printable_lines(lines)


def _messages(outcome: ApplyOutcome) -> Iterator[str]:
    """The API server's message for a refused object, indented."""
    if outcome.refusal is not None:
        yield f"{INDENT_STEP}{refusal_text(outcome.resource, outcome.refusal)}"


def _headroom_reason(because: ObjectRejection | None, *, is_refused: bool) -> str:
    if because is None:
        return ""
    return "as refused above" if is_refused else reason_text(because)


def _headroom(report: AppliedInventory) -> str:
    refused = {refusal.manifest for refusal in report.applied.refusals if refusal.refusal is not None}
    rows = [
        (
            str(report.subjects[headroom.manifest]),
            "unlimited" if headroom.additional_pods is None else str(headroom.additional_pods),
            _headroom_reason(headroom.because, is_refused=headroom.manifest in refused),
        )
        for headroom in report.headroom
    ]
    if not rows:
        return ""
    hanging = [str(report.subjects[each.manifest]) for each in report.headroom if each.update_hangs]
    note = printable_lines(
        f"a rolling update of {name} hangs: `maxUnavailable` amounts to 0, and no pod more fits beside the old ones; "
        "raise the quota, or use `maxSurge: 0` and `maxUnavailable: 1`"
        for name in hanging
    )
    return _without_empty_last(("HEADROOM", "MORE PODS", "REASON"), rows) + (f"\n{note}" if note else "")


def _fixes(report: AppliedInventory) -> str:
    lines = fix_lines(report)
    if not lines:
        return ""
    return printable_lines(["to make everything fit", *(f"{INDENT_STEP}{fix}" for fix in lines)])


def fix_lines(report: AppliedInventory) -> list[str]:
    """The fixes, one line per alternative."""
    fixes = report.fixes
    alternatives = []
    if fixes.quota_increases:
        alternatives.append("; ".join(map(_increase_text, fixes.quota_increases)))
    alternatives += [
        _reduction_text(reduction, report.subjects) for reduction in fixes.single_reductions[:_MAX_LISTED]
    ]
    if len(fixes.single_reductions) > _MAX_LISTED:
        alternatives.append(f"{len(fixes.single_reductions) - _MAX_LISTED} more (-o json names them)")
    if fixes.combined_reductions:
        alternatives.append(
            truncated_list(
                [_reduction_text(reduction, report.subjects) for reduction in fixes.combined_reductions], "; "
            )
        )
    alternatives += [
        f"set `maxSurge: 0` (and `maxUnavailable` to at least 1) in {truncated_list(names, ', ')}"
        for group in fixes.without_surge[:_MAX_LISTED]
        if (names := [str(report.subjects[at]) for at in group])
    ]
    lines = [
        alternative if not number else f"or {alternative}" for number, alternative in enumerate(alternatives)
    ]
    refused = dict.fromkeys(outcome.manifest for outcome in fixes.unfixable if outcome.refusal is not None)
    lines += [f"{report.subjects[at]}: {text}" for at in refused if (text := fixes.remedies.get(at))]
    helpless = [str(report.subjects[at]) for at in refused if not fixes.remedies.get(at)]
    if helpless:
        lines.append(f"larger quotas do not help {truncated_list(helpless, ', ')}")
    return lines


def truncated_list(texts: Sequence[str], by: str) -> str:
    """The texts, or the first of them and the number of the others.

    >>> truncated_list(["a", "b"], ", "), truncated_list([str(number) for number in range(9)], ", ")
    ('a, b', '0, 1, 2, 3, 4 and 4 more')
    """
    hidden = len(texts) - _MAX_LISTED
    return by.join(texts) if hidden <= 0 else f"{by.join(texts[:_MAX_LISTED])} and {hidden} more"


def _increase_text(increase: RaisedQuota) -> str:
    return f"raise ResourceQuota {increase.namespace}/{increase.quota} {increase.resource} from {increase.hard} to {increase.minimum}"


def _reduction_text(outcome: ReplicaReduction, subjects: Sequence[AppliedObject]) -> str:
    subject = subjects[outcome.manifest]
    return f"reduce {subject} from {outcome.replicas} to {outcome.maximum} {subject.field}"


_NONE = "-"


def what_if_text(report: AppliedInventory, other: AppliedInventory) -> str:
    """Required amounts, changes per object, and the first refusal, of a report and a what-if report."""
    amounts = [list(row) for row in required_rows(report, other)]
    rows = [list(row) for row in changed_rows(report, other)]
    parts = [
        table(("NAMESPACE", "QUOTA", "RESOURCE", "REQUIRED", "WHAT IF", "CHANGE", "HARD"), amounts)
        if amounts
        else "",
        table(("OBJECT", "", "NOW", "WHAT IF"), rows) if rows else "nothing changes\n",
        f"now: {first_refusal_text(report)}what if: {first_refusal_text(other)}",
    ]
    return "\n".join(part for part in parts if part)


def required_rows(report: AppliedInventory, other: AppliedInventory) -> Iterator[tuple[str, ...]]:
    """For each resource of each quota: the required amount in both reports, and the hard limit."""
    left, right = _required_amounts(report), _required_amounts(other)
    for key in dict.fromkeys((*left, *right)):
        (before, hard), (after, new_hard) = left.get(key, _NOTHING), right.get(key, _NOTHING)
        bound = str(new_hard or _NONE) if hard == new_hard else f"{hard or _NONE} -> {new_hard or _NONE}"
        yield (*key, str(before or _NONE), str(after or _NONE), _difference(before, after), bound)


def changed_rows(report: AppliedInventory, other: AppliedInventory) -> Iterator[tuple[str, ...]]:
    """For each object with a different charge or number of admitted objects: the values in both reports."""
    left, right = _by_object(report), _by_object(other)
    for key in dict.fromkeys((*left, *right)):
        before, after = left.get(key), right.get(key)
        subject, resource = key
        counts = [
            _NONE if outcome is None else f"{outcome.admitted} of {outcome.requested}"
            for outcome in (before, after)
        ]
        if counts[0] != counts[1]:
            yield subject, f"{resource} admitted", *counts
        charges = [_charge(outcome) for outcome in (before, after)]
        for name in dict.fromkeys((*charges[0], *charges[1])):
            amounts = [str(charge.get(name, _NONE)) for charge in charges]
            if amounts[0] != amounts[1]:
                yield subject, f"{name} each", *amounts


_NOTHING: tuple[Quantity | None, Quantity | None] = (None, None)


def _required_amounts(
    report: AppliedInventory,
) -> dict[tuple[str, str, str], tuple[Quantity | None, Quantity | None]]:
    """Used amounts if everything were admitted, and the hard limits."""
    return {
        (name, quota.name, resource): (quota.status.used[resource], quota.status.hard[resource])
        for name, namespace in report.fixes.required.items()
        for quota in namespace.quotas
        for resource in sorted(quota.status.hard)
    }


def _by_object(report: AppliedInventory) -> dict[tuple[str, str], ApplyOutcome]:
    outcomes: dict[tuple[str, str], ApplyOutcome] = {}
    for outcome in report.applied.outcomes:
        what = f"{outcome.resource.resource}{' hidden during an update' if outcome.is_surge else ''}"
        outcomes.setdefault((str(report.subjects[outcome.manifest]), what), outcome)
    return outcomes


def _charge(outcome: ApplyOutcome | None) -> ResourceList:
    charge: ResourceList = {}
    for _, amounts in outcome.charge if outcome is not None else ():
        charge.update(amounts)
    return charge


def _difference(before: Quantity | None, after: Quantity | None) -> str:
    if before is None or after is None:
        return _NONE
    change = after - before
    return f"+{change}" if change.sign() > 0 else str(change)
