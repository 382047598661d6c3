"""Rules about what namespaces allow: LimitRanges and ResourceQuotas among the files, and the pods under them."""

from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from nodewright.core.limits import BeyondLimits, LimitsVerdict, limited
from nodewright.core.quota.admission import BeyondQuota, charged
from nodewright.core.quota.pods import pods
from nodewright.core.validation import violations
from nodewright.lint.findings import Found, Rule, Severity
from nodewright.lint.subjects import Around, LimitsSubject, PodSubject, QuotaSubject
from nodewright.model.api_request import creation
from nodewright.model.objects import Pod
from nodewright.model.quota_objects import ResourceQuota, ResourceQuotaStatus
from nodewright.model.quota_reasons import MustSpecify, QuotaExceeded, QuotaReason
from nodewright.values.instant import Instant
from nodewright.values.quantity import ZERO

TYPES = ("Container", "Pod", "PersistentVolumeClaim")
COUNT_PODS = "count/pods"
_ANY_TIME = Instant.parse("2026-01-01T00:00:00Z")
"""Pods that have not begun have no time that could run out."""


def _out_of_bounds(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods that a LimitRange of their namespace forbids."""
    verdict = _limited(pod, around)
    if isinstance(verdict, BeyondLimits):
        facts = {"kind": pod.kind, "limitRange": verdict.limit_range, "because": verdict.because}
        yield Found(path=f"{pod.prefix}spec", facts=facts)


def _default_below_request(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods whose requests are above the limits that a LimitRange gives them."""
    verdict = _limited(pod, around)
    if verdict is None or isinstance(verdict, BeyondLimits) or not verdict.filled:
        return
    before = {one.path for one in violations(pod.sent, is_template=True)}
    for one in violations(verdict.pod, is_template=True):
        if one.path not in before:
            facts = {
                "kind": pod.kind,
                "limitRange": ", ".join(each.limit_range for each in verdict.filled if each.given),
                "value": one.value,
                "rule": one.rule,
            }
            yield Found(path=pod.prefix + one.path, facts=facts)


def _must_specify(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods that do not say what a quota of their namespace wants to know of every container."""
    reason = _quota_reason(pod, around)
    if isinstance(reason, MustSpecify):
        facts = {"kind": pod.kind, "quota": reason.quota, "reason": reason}
        yield Found(path=f"{pod.prefix}spec", facts=facts)


def _beyond_quota(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods of which not even one fits into a quota of their namespace."""
    reason = _quota_reason(pod, around)
    if isinstance(reason, QuotaExceeded):
        facts = {"kind": pod.kind, "quota": reason.quota, "reason": reason}
        yield Found(path=f"{pod.prefix}spec", facts=facts)


@lru_cache(maxsize=4)  # several rules look at one pod after the other
def _limited(pod: PodSubject, around: Around) -> LimitsVerdict | None:
    ranges = around.limit_ranges.get(pod.namespace, ())
    return limited(creation(_in_namespace(pod)), ranges) if ranges and not pod.is_static else None


@lru_cache(maxsize=4)
def _quota_reason(pod: PodSubject, around: Around) -> QuotaReason | None:
    quotas = around.quotas.get(pod.namespace, ())
    verdict = _limited(pod, around)
    if not quotas or pod.is_static or isinstance(verdict, BeyondLimits):
        return None
    filled = _in_namespace(pod) if verdict is None else verdict.pod
    bill = charged(creation(filled), pods(_ANY_TIME), tuple(map(_unused, quotas)))
    return bill.because if isinstance(bill, BeyondQuota) else None


def _in_namespace(pod: PodSubject) -> Pod:
    return replace(pod.sent, metadata=replace(pod.sent.metadata, namespace=pod.namespace))


def _unused(quota: ResourceQuota) -> ResourceQuota:
    """The quota as it is when nothing of it is in use."""
    hard = quota.spec.hard
    return replace(quota, status=ResourceQuotaStatus(hard=hard, used=dict.fromkeys(hard, ZERO)))


def _counts_finished(quota: QuotaSubject, _around: Around) -> Iterator[Found]:
    """count/pods goes on counting pods that have finished."""
    if COUNT_PODS in quota.quota.spec.hard:
        facts = {"hard": str(quota.quota.spec.hard[COUNT_PODS])}
        yield Found(path=f"spec.hard[{COUNT_PODS}]", facts=facts)


def _bounds_nothing(limits: LimitsSubject, _around: Around) -> Iterator[Found]:
    """Items of types that nobody looks at."""
    for index, item in enumerate(limits.limit_range.spec.limits):
        if item.type not in TYPES:
            yield Found(path=f"spec.limits[{index}].type", facts={"type": item.type})


def _demands_limits(limits: LimitsSubject, around: Around) -> Iterator[Found]:
    """A maximum for pods demands that there is a limit; nobody gives one to pods without."""
    ranges = around.limit_ranges.get(limits.namespace, ())
    given = {
        name
        for each in ranges
        for item in each.spec.limits
        if item.type == "Container"
        for name in item.default
    }
    for index, item in enumerate(limits.limit_range.spec.limits):
        for name in item.max if item.type == "Pod" else ():
            if name not in given:
                yield Found(path=f"spec.limits[{index}].max[{name}]", facts={"resource": name})


NAMESPACE_RULES = (
    Rule("NW401", Severity.ERROR, (PodSubject,), _out_of_bounds),
    Rule("NW402", Severity.ERROR, (PodSubject,), _default_below_request),
    Rule("NW403", Severity.ERROR, (PodSubject,), _must_specify),
    Rule("NW404", Severity.ERROR, (PodSubject,), _beyond_quota),
    Rule("NW405", Severity.INFO, (QuotaSubject,), _counts_finished),
    Rule("NW406", Severity.WARNING, (LimitsSubject,), _bounds_nothing),
    Rule("NW407", Severity.INFO, (LimitsSubject,), _demands_limits),
)
