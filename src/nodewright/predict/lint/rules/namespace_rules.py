"""Rules about LimitRanges and ResourceQuotas among the files, and the pods in their namespaces."""

from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from nodewright.engine.admission.limit_ranger import BeyondLimits, LimitsVerdict, limit_ranger_verdict
from nodewright.engine.admission.quota.object_usage import pod_evaluator
from nodewright.engine.admission.quota.quota_admission import BeyondQuota, quota_verdict
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.model.kubernetes.api_request import create_request
from nodewright.model.kubernetes.cluster_objects import ResourceQuota, ResourceQuotaStatus
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.api_server import terminating_error
from nodewright.model.reasons.quota import MustSpecify, QuotaExceeded, QuotaReason
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import ZERO
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LimitRangeSubject,
    LintContext,
    LintRule,
    PodSubject,
    QuotaSubject,
    Severity,
)

TYPES = ("Container", "Pod", "PersistentVolumeClaim")
COUNT_PODS = "count/pods"
_ANY_TIME = Instant.parse("2026-01-01T00:00:00Z")
"""New pods have no deletion grace period, so any time will do."""


def _out_of_bounds(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods that a LimitRange of their namespace forbids."""
    verdict = _limited(pod, context)
    if isinstance(verdict, BeyondLimits):
        facts = {"kind": pod.kind, "limitRange": verdict.limit_range, "because": verdict.because}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


def _default_below_request(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods with requests above the default limits of a LimitRange."""
    verdict = _limited(pod, context)
    if verdict is None or isinstance(verdict, BeyondLimits) or not verdict.defaulted:
        return
    before = {violation.path for violation in pod_violations(pod.as_submitted, is_template=True)}
    for violation in pod_violations(verdict.pod, is_template=True):
        if violation.path not in before:
            facts = {
                "kind": pod.kind,
                "limitRange": ", ".join(
                    applied.limit_range for applied in verdict.defaulted if applied.defaults
                ),
                "value": violation.value,
                "rule": violation.rule,
            }
            yield FieldViolation(path=pod.prefix + violation.path, facts=facts)


def _must_specify(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods without the requests or limits that a quota of their namespace requires of every container."""
    reason = _quota_reason(pod, context)
    if isinstance(reason, MustSpecify):
        facts = {"kind": pod.kind, "quota": reason.quota, "reason": reason}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


def _beyond_quota(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods that exceed a quota of their namespace even alone."""
    reason = _quota_reason(pod, context)
    if isinstance(reason, QuotaExceeded):
        facts = {"kind": pod.kind, "quota": reason.quota, "reason": reason}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


@lru_cache(maxsize=4)  # several rules check the same pod in a row
def _limited(pod: PodSubject, context: LintContext) -> LimitsVerdict | None:
    ranges = context.limit_ranges.get(pod.namespace, ())
    return (
        limit_ranger_verdict(create_request(_in_namespace(pod)), ranges)
        if ranges and not pod.is_static
        else None
    )


@lru_cache(maxsize=4)
def _quota_reason(pod: PodSubject, context: LintContext) -> QuotaReason | None:
    quotas = context.quotas.get(pod.namespace, ())
    verdict = _limited(pod, context)
    if not quotas or pod.is_static or isinstance(verdict, BeyondLimits):
        return None
    filled = _in_namespace(pod) if verdict is None else verdict.pod
    quota_result = quota_verdict(
        create_request(filled), pod_evaluator(_ANY_TIME), tuple(map(_unused, quotas))
    )
    return quota_result.because if isinstance(quota_result, BeyondQuota) else None


def _in_namespace(pod: PodSubject) -> Pod:
    return replace(pod.as_submitted, metadata=replace(pod.as_submitted.metadata, namespace=pod.namespace))


def _unused(quota: ResourceQuota) -> ResourceQuota:
    """The quota with nothing in use."""
    hard = quota.spec.hard
    return replace(quota, status=ResourceQuotaStatus(hard=hard, used=dict.fromkeys(hard, ZERO)))


def _counts_finished(quota: QuotaSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """count/pods also counts pods that have finished."""
    if COUNT_PODS in quota.quota.spec.hard:
        facts = {"hard": str(quota.quota.spec.hard[COUNT_PODS])}
        yield FieldViolation(path=f"spec.hard[{COUNT_PODS}]", facts=facts)


def _bounds_nothing(limits: LimitRangeSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Items of types without effect."""
    for index, item in enumerate(limits.limit_range.spec.limits):
        if item.type not in TYPES:
            yield FieldViolation(path=f"spec.limits[{index}].type", facts={"type": item.type})


def _demands_limits(limits: LimitRangeSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A maximum for pods requires a limit; no item sets a default for pods without one."""
    ranges = context.limit_ranges.get(limits.namespace, ())
    defaults = {
        name
        for limit_range in ranges
        for item in limit_range.spec.limits
        if item.type == "Container"
        for name in item.default
    }
    for index, item in enumerate(limits.limit_range.spec.limits):
        for name in item.max if item.type == "Pod" else ():
            if name not in defaults:
                yield FieldViolation(path=f"spec.limits[{index}].max[{name}]", facts={"resource": name})


def _namespace_ends(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """New objects in a namespace that is being terminated."""
    is_new = not (pod.document.get("metadata") or {}).get("uid")
    if pod.namespace in context.terminating and is_new and not pod.is_static:
        yield FieldViolation(path="metadata.namespace", facts={"error": terminating_error(pod.namespace)})


NAMESPACE_RULES = (
    LintRule("NW401", Severity.ERROR, (PodSubject,), _out_of_bounds),
    LintRule("NW402", Severity.ERROR, (PodSubject,), _default_below_request),
    LintRule("NW403", Severity.ERROR, (PodSubject,), _must_specify),
    LintRule("NW404", Severity.ERROR, (PodSubject,), _beyond_quota),
    LintRule("NW405", Severity.INFO, (QuotaSubject,), _counts_finished),
    LintRule("NW406", Severity.WARNING, (LimitRangeSubject,), _bounds_nothing),
    LintRule("NW407", Severity.INFO, (LimitRangeSubject,), _demands_limits),
    LintRule("NW408", Severity.ERROR, (PodSubject,), _namespace_ends),
)
