"""The machine-readable output of `quota`: the report, JUnit and SARIF."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from msgspec import UNSET, UnsetType, field

from nodewright.documents.output.ci_formats import (
    JUnitCase,
    JUnitSuite,
    SARIFLevel,
    SARIFResult,
    SARIFRule,
    WorkflowCommand,
    junit_text,
    sarif_document,
)
from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.engine.admission.api_server.apply import ApplyOutcome
from nodewright.engine.admission.api_server.pod_creation import LimitRangeViolation, ObjectRejection
from nodewright.engine.admission.limit_ranger import FilledIn
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import printable
from nodewright.model.reasons.api_server import LimitReason
from nodewright.model.reasons.quota import MustSpecify, QuotaExceeded
from nodewright.model.releases.release_table import RELEASES_WITH_RULES
from nodewright.model.values.quantity import Quantity
from nodewright.predict.quota.applied_inventory import (
    AppliedInventory,
    AppliedObject,
    derivation_texts,
    fix_lines,
    full_derivation,
    reason_text,
    refusal_text,
)
from nodewright.predict.quota.fixes import RaisedQuota, ReplicaReduction
from nodewright.predict.reported import reported


class ReportedSubject(Inlined, frozen=True, kw_only=True):
    """An object of a manifest."""

    kind: str
    namespace: str
    name: str
    source: str
    """File and document."""


class QuotaUse(Report, frozen=True, kw_only=True):
    """A quota and what is charged to it; the used amounts do not have resources whose usage is unknown."""

    name: str
    hard: Mapping[str, Quantity]
    used_before: Mapping[str, Quantity]
    used: Mapping[str, Quantity]
    wanted: Mapping[str, Quantity]
    """What would be used if everything were admitted."""


class QuotaNamespace(Report, frozen=True, kw_only=True):
    """The quotas and limit ranges of a namespace."""

    name: str
    quotas: tuple[QuotaUse, ...]
    limit_ranges: tuple[str, ...]


class QuotaAmounts(Report, frozen=True, kw_only=True):
    """Amounts of a quota."""

    quota: str
    amounts: Mapping[str, Quantity]


class LimitRangeDefault(Report, frozen=True, kw_only=True):
    """A value that a limit range fills in."""

    merged: ClassVar = frozenset({"default"})
    limit_range: str
    default: FilledIn


class QuotaOutcome(Report, frozen=True, kw_only=True):
    """The outcome of equal objects that a manifest makes."""

    resource: str
    name: str
    """Of the first."""
    wanted: int
    admitted: int
    refused: int
    """Objects that are neither admitted nor refused are not tried, because of an earlier failure."""
    during_update: bool
    """Whether they exist only while the object is updated."""
    charge_each: tuple[QuotaAmounts, ...]
    in_use_then: tuple[QuotaAmounts, ...]
    because: Mapping[str, str] | UnsetType = UNSET
    """How the amounts that a pod is charged are derived."""
    filled_in: tuple[LimitRangeDefault, ...] | UnsetType = UNSET
    message: str | UnsetType = UNSET
    """The API server's message for a refusal."""


class QuotaObject(Report, frozen=True, kw_only=True):
    """An object of a manifest and what it makes."""

    subject: ReportedSubject
    fits: bool
    makes: tuple[QuotaOutcome, ...]


class QuotaRefusal(Report, frozen=True, kw_only=True):
    """The first refused object."""

    subject: ReportedSubject
    resource: str
    refused_object: str | UnsetType = field(default=UNSET, name="object")
    message: str | UnsetType = UNSET
    reasons: tuple[ObjectRejection | LimitReason, ...] | UnsetType = UNSET


class ReportedHeadroom(Report, frozen=True, kw_only=True):
    """How many more pods of an object fit."""

    subject: ReportedSubject
    more_pods: int | None
    """null: the quotas set no limit."""
    because: str | UnsetType = UNSET
    update_hangs: bool
    """Whether a rolling update never ends, because it must create a pod before it deletes one, and none more fits."""


class LoweredReplicas(Report, frozen=True, kw_only=True):
    """The maximum number of pods of an object."""

    subject: ReportedSubject
    field_name: str = field(name="field")
    replicas: int = field(name="from")
    maximum: int = field(name="to")


class ReportedFixes(Report, frozen=True, kw_only=True):
    """Alternatives that make everything fit: all increases, one single reduction, or all combined reductions."""

    increases: tuple[RaisedQuota, ...] = field(name="raise")
    lower_one: tuple[LoweredReplicas, ...]
    lower_all: tuple[LoweredReplicas, ...]
    no_surge: tuple[tuple[ReportedSubject, ...], ...]
    """The objects for which `maxSurge: 0` is sufficient: each list is an alternative."""
    sentences: tuple[str, ...]


class AppliedQuotasReport(ReportDocument, frozen=True, kw_only=True):
    """What quotas and limit ranges charge and refuse: `nodewright quota`."""

    kind: Literal["QuotaReport"] = "QuotaReport"
    rules_of: str = RELEASES_WITH_RULES[-1]
    """The Kubernetes release whose rules were applied."""
    fits: bool
    namespaces: tuple[QuotaNamespace, ...]
    objects: tuple[QuotaObject, ...]
    first_refused: QuotaRefusal | None
    still_fits: tuple[ReportedHeadroom, ...]
    fixes: ReportedFixes
    warnings: tuple[str, ...]
    what_if: "AppliedQuotasReport | UnsetType" = UNSET
    """With --set or --add: the same with the changes."""


def quota_report(report: AppliedInventory, other: AppliedInventory | None = None) -> AppliedQuotasReport:
    """The results as they are encoded; ``other`` is a what-if report to compare with."""
    refusals = report.applied.refusals
    return reported(
        AppliedQuotasReport,
        report,
        rules_of=report.rules_of,
        namespaces=tuple(_namespaces(report)),
        objects=tuple(_objects(report)),
        first_refused=_refused(report, refusals[0]) if refusals else None,
        still_fits=tuple(
            ReportedHeadroom(
                subject=_subject(report.subjects[headroom.manifest]),
                more_pods=headroom.additional_pods,
                because=UNSET if headroom.because is None else reason_text(headroom.because),
                update_hangs=headroom.update_hangs,
            )
            for headroom in report.headroom
        ),
        fixes=_fixes(report),
        what_if=UNSET if other is None else quota_report(other),
    )


def _namespaces(report: AppliedInventory) -> Iterator[QuotaNamespace]:
    for name, after in report.applied.after.items():
        before, required = report.applied.before[name], report.fixes.required[name]
        quotas = zip(before.quotas, after.quotas, required.quotas, strict=True)
        yield QuotaNamespace(
            name=name,
            quotas=tuple(
                QuotaUse(
                    name=quota.name,
                    hard=quota.spec.hard,
                    used_before=quota_before.status.used,
                    used=quota.status.used,
                    wanted=full.status.used,
                )
                for quota_before, quota, full in quotas
            ),
            limit_ranges=tuple(range_.metadata.name for range_ in after.limit_ranges),
        )


def _objects(report: AppliedInventory) -> Iterator[QuotaObject]:
    outcomes: dict[int, list[ApplyOutcome]] = {}
    for outcome in report.applied.outcomes:
        outcomes.setdefault(outcome.manifest, []).append(outcome)
    for index, group in outcomes.items():
        yield QuotaObject(
            subject=_subject(report.subjects[index]),
            fits=all(outcome.admitted == outcome.requested for outcome in group),
            makes=tuple(map(_outcome, group)),
        )


def _subject(subject: AppliedObject) -> ReportedSubject:
    return reported(ReportedSubject, subject)


def _outcome(outcome: ApplyOutcome) -> QuotaOutcome:
    charged = {name for _, amounts in outcome.charge for name in amounts}
    because: Mapping[str, str] | UnsetType = UNSET
    if isinstance(outcome.object, Pod) and outcome.charge:
        texts = derivation_texts(outcome, full_derivation)
        because = {name: text for name, text in texts.items() if name in charged}
    return reported(
        QuotaOutcome,
        outcome,
        resource=str(outcome.resource),
        wanted=outcome.requested,
        during_update=outcome.is_surge,
        charge_each=tuple(QuotaAmounts(quota=quota, amounts=amounts) for quota, amounts in outcome.charge),
        in_use_then=tuple(QuotaAmounts(quota=quota, amounts=amounts) for quota, amounts in outcome.totals),
        because=because,
        filled_in=tuple(
            LimitRangeDefault(limit_range=filled.limit_range, default=default)
            for filled in outcome.filled
            for default in filled.defaults
        )
        if outcome.filled
        else UNSET,
        message=UNSET if outcome.refusal is None else refusal_text(outcome.resource, outcome.refusal),
    )


def _refused(report: AppliedInventory, outcome: ApplyOutcome) -> QuotaRefusal:
    subject, resource = _subject(report.subjects[outcome.manifest]), str(outcome.resource)
    if outcome.refusal is None:
        return QuotaRefusal(subject=subject, resource=resource)
    meta, because = outcome.refusal.metadata, outcome.refusal.because
    return QuotaRefusal(
        subject=subject,
        resource=resource,
        refused_object=meta.name or meta.generate_name,
        message=refusal_text(outcome.resource, outcome.refusal),
        reasons=because.because if isinstance(because, LimitRangeViolation) else (because,),
    )


def _fixes(report: AppliedInventory) -> ReportedFixes:
    fixes = report.fixes

    def lowered(reduction: ReplicaReduction) -> LoweredReplicas:
        subject = report.subjects[reduction.manifest]
        return reported(LoweredReplicas, reduction, subject=_subject(subject), field_name=subject.field)

    return ReportedFixes(
        increases=fixes.quota_increases,
        lower_one=tuple(map(lowered, fixes.single_reductions)),
        lower_all=tuple(map(lowered, fixes.combined_reductions)),
        no_surge=tuple(tuple(_subject(report.subjects[at]) for at in group) for group in fixes.without_surge),
        sentences=tuple(fix_lines(report)),
    )


_EXCEEDED = SARIFRule(
    id="quota-exceeded",
    summary="Every object fits into the quotas of its namespace.",
    rationale="The API server rejects objects that would exceed `spec.hard` of a quota. Raise it, or request less.",
)
_UNSPECIFIED = SARIFRule(
    id="quota-must-specify",
    summary="Where a quota counts CPU or memory, every container specifies requests or limits for them.",
    rationale="Give the container requests and limits, or the namespace a LimitRange with defaults.",
)
_BEYOND_LIMITS = SARIFRule(
    id="limit-range",
    summary="Every object satisfies the limit ranges of its namespace.",
    rationale="The API server rejects requests and limits below `min`, above `max` or with too large a ratio.",
)
_FORBIDDEN = SARIFRule(
    id="quota-forbidden", summary="Quotas can be applied to every object.", rationale="See the message."
)
RULES = (_EXCEEDED, _UNSPECIFIED, _BEYOND_LIMITS, _FORBIDDEN)


def quota_junit(report: AppliedInventory) -> str:
    """JUnit XML with a suite per namespace and a case per object, which passes if everything is admitted."""
    suites: dict[str, list[JUnitCase]] = {}
    failed: dict[int, list[ApplyOutcome]] = {}
    for refusal in report.applied.refusals:
        failed.setdefault(refusal.manifest, []).append(refusal)
    for index in dict.fromkeys(outcome.manifest for outcome in report.applied.outcomes):
        subject = report.subjects[index]
        suites.setdefault(subject.namespace, []).append(_case(subject, failed.get(index, []), report))
    return junit_text(
        [JUnitSuite(name=f"quota.{name}", cases=tuple(cases)) for name, cases in suites.items()]
    )


def quota_commands(report: AppliedInventory) -> Iterator[WorkflowCommand]:
    """What is rejected as workflow commands of GitHub Actions."""
    for refusal in report.applied.refusals:
        if refusal.refusal is not None:
            subject = report.subjects[refusal.manifest]
            yield WorkflowCommand(
                command="error",
                title=_rule(refusal).id,
                position=subject.position,
                text=f"{subject}: {_message(refusal)}",
            )


def quota_sarif(report: AppliedInventory, version: str) -> dict[str, Any]:
    """SARIF with a result for each kind of rejected objects, at the manifest from which they result."""
    findings = [
        SARIFResult(
            rule=_rule(refusal).id,
            level=SARIFLevel.ERROR,
            message=_message(refusal),
            position=report.subjects[refusal.manifest].position,
            subject=str(report.subjects[refusal.manifest]),
        )
        for refusal in report.applied.refusals
        if refusal.refusal is not None
    ]
    return sarif_document(findings, RULES, version)


def _case(subject: AppliedObject, failed: list[ApplyOutcome], report: AppliedInventory) -> JUnitCase:
    texts = [_message(outcome) for outcome in failed if outcome.refusal is not None]
    return JUnitCase(
        name=f"{subject.kind}/{subject.name}",
        failure=texts[0] if texts else "not tried" if failed else "",
        details="\n".join(map(printable, [*texts, *fix_lines(report)])) if texts else "",
        file=subject.position.file,
        line=subject.position.line,
    )


def _message(outcome: ApplyOutcome) -> str:
    assert outcome.refusal is not None, "objects that were not tried have no message"
    text = refusal_text(outcome.resource, outcome.refusal)
    return (
        text if outcome.requested == 1 else f"{outcome.admitted} of {outcome.requested} are admitted: {text}"
    )


def _rule(outcome: ApplyOutcome) -> SARIFRule:
    assert outcome.refusal is not None, "as above"
    rules = {QuotaExceeded: _EXCEEDED, MustSpecify: _UNSPECIFIED, LimitRangeViolation: _BEYOND_LIMITS}
    return rules.get(type(outcome.refusal.because), _FORBIDDEN)
