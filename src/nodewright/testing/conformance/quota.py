"""Family quota: arithmetic on resource lists, charges of objects, usage and refusals."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota import evaluator
from nodewright.engine.admission.quota.evaluator import (
    SERVICE_EVALUATOR,
    QuotaEvaluator,
    object_count_evaluator,
    usage_of,
)
from nodewright.engine.admission.quota.object_usage import (
    ClaimContext,
    pod_evaluator,
    resource_claim_evaluator,
    volume_claim_evaluator,
)
from nodewright.engine.admission.quota.quota_admission import BeyondQuota, quota_verdict
from nodewright.model.kubernetes.api_request import APIRequest, GroupResource, Operation
from nodewright.model.kubernetes.cluster_objects import (
    LimitedResource,
    PartialObjectMetadata,
    PersistentVolumeClaim,
    ResourceClaim,
    ResourceQuota,
    ScopeSelector,
    ScopeTerm,
    Service,
)
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, ResourceList
from nodewright.model.reasons.quota import must_specify_message, quota_error
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.instant import ZERO_TIME, Instant
from nodewright.testing.conformance.vectors import amount_texts, question_gates

Question = dict[str, Any]
_Function = Callable[[Question, FeatureGates], Any]


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """Kubernetes' result of the function in `function`."""
    return _FUNCTIONS[question["function"]](question, question_gates(question, release))


# ---------------------------------------------------------------- lists


def _two(function: Callable[[ResourceList, ResourceList], ResourceList]) -> _Function:
    return lambda question, _: {
        "resources": amount_texts(function(_list(question, "a"), _list(question, "b")))
    }


def _names(function: Callable[[Iterable[str], Iterable[str]], tuple[str, ...]]) -> _Function:
    return lambda question, _: {"names": list(function(question.get("a") or (), question.get("b") or ()))}


def _less_than_or_equal(question: Question, _: FeatureGates) -> Any:
    exceeded = evaluator.exceeding(_list(question, "a"), _list(question, "b"))
    return {"result": not exceeded, "exceeded": list(exceeded)}


def _mask(question: Question, _: FeatureGates) -> Any:
    return {"resources": amount_texts(evaluator.masked(_list(question, "a"), question.get("names") or ()))}


def _list(question: Question, name: str) -> ResourceList:
    return decode(question.get(name) or {}, ResourceList)


# ---------------------------------------------------------------- objects


def _evaluate(question: Question, gates: FeatureGates) -> Any:
    kind, shape = _kind_of(question, gates)
    item = decode(question["object"], shape)
    result: dict[str, Any] = {"usage": amount_texts(kind.usage(item))}
    if question.get("quota") is not None:
        quota = decode(question["quota"], ResourceQuota)
        own = kind.matching_resources(quota.status.hard)
        unreadable = kind.first_invalid_term(quota.spec.terms)
        if unreadable is not None:
            result["matchError"] = unreadable.selector_error()
        else:
            result["matches"] = kind.matches_quota(quota, item)
        result["matchingResources"] = list(own)
        unspecified = kind.unspecified_resources(own, item) if kind.unspecified_resources is not None else ()
        if unspecified:
            result["constraintsError"] = must_specify_message(unspecified)
    return {**result, **_scopes(question, kind, item)}


def _scopes(question: Question, kind: QuotaEvaluator[Any], item: Any) -> dict[str, Any]:
    if question.get("scopes") is None:
        return {}
    terms = decode(question["scopes"], tuple[ScopeTerm, ...])
    unreadable = kind.first_invalid_term(terms)
    if unreadable is not None:
        return {"matchingScopesError": unreadable.match_error()}
    matching = kind.matching_scopes(terms, item)
    uncovered = kind.uncovered_scopes(terms, matching[: len(matching) // 2])
    return {"matchingScopes": list(map(_term, matching)), "uncoveredScopes": list(map(_term, uncovered))}


def _usage_stats(question: Question, gates: FeatureGates) -> Any:
    kind, shape = _kind_of(question, gates)
    names = question.get("resources") or ()
    terms = [ScopeTerm(scope_name=name, operator="Exists") for name in question.get("scopes") or ()]
    terms.extend(decode(question.get("scopeSelector") or {}, ScopeSelector).match_expressions)
    used = usage_of(kind, (decode(each, shape) for each in question.get("objects") or ()), names, terms)
    return {"used": amount_texts(used), "maskedUsed": amount_texts(evaluator.masked(used, names))}


def _admit(question: Question, gates: FeatureGates) -> Any:
    kind, shape = _kind_of(question, gates)
    old = question.get("oldObject")
    request = APIRequest(
        operation=Operation(question["operation"]),
        object=decode(question["object"], shape),
        old=decode(old, shape) if old is not None else None,
        subresource=question.get("subresource") or "",
    )
    quotas = decode(question.get("quotas") or [], tuple[ResourceQuota, ...])
    limited = decode(question.get("limitedResources") or [], tuple[LimitedResource, ...])
    verdict = quota_verdict(request, kind, quotas, limited, gates.rules)
    if isinstance(verdict, BeyondQuota):
        name = question.get("name")
        named = ObjectMeta(name=name) if name else request.object.metadata
        error = quota_error(kind.resource, named, verdict.because)
        return {"handled": True, "allowed": False, "error": error}
    used = {quota.name: amount_texts(quota.status.used) for quota in verdict.quotas}
    return {"handled": verdict.handled, "allowed": True, "used": used}


_FUNCTIONS: dict[str, _Function] = {
    "equals": lambda question, _: {"result": evaluator.are_equal(_list(question, "a"), _list(question, "b"))},
    "lessThanOrEqual": _less_than_or_equal,
    "max": _two(evaluator.maximum),
    "add": _two(evaluator.total),
    "subtract": _two(evaluator.difference),
    "subtractNonNegative": _two(evaluator.positive_difference),
    "mask": _mask,
    "intersection": _names(evaluator.common_names),
    "difference": _names(evaluator.names_only_in_first),
    "isZero": lambda question, _: {"result": evaluator.is_zero(_list(question, "a"))},
    "removeZeros": lambda question, _: {
        "resources": amount_texts(evaluator.without_zeros(_list(question, "a")))
    },
    "isNegative": lambda question, _: {"names": list(evaluator.negative(_list(question, "a")))},
    "evaluate": _evaluate,
    "usage": _evaluate,
    "usageStats": _usage_stats,
    "admit": _admit,
}


def _kind_of(question: Question, gates: FeatureGates) -> tuple[QuotaEvaluator[Any], type[Any]]:
    """The quota rules of the object's kind, and its fields."""
    now = Instant.parse(question["now"]) if question.get("now") else ZERO_TIME
    match question["kind"]:
        case "Pod":
            return pod_evaluator(now, gates), Pod
        case "Service":
            return SERVICE_EVALUATOR, Service
        case "PersistentVolumeClaim":
            return volume_claim_evaluator(gates), PersistentVolumeClaim
        case "ResourceClaim":
            classes = question.get("deviceClasses") or {}
            context = ClaimContext(now=now, device_classes=classes, gates=gates)
            return resource_claim_evaluator(context), ResourceClaim
        case "ConfigMap":
            return object_count_evaluator(GroupResource("configmaps")), PartialObjectMetadata
        case "Deployment":
            return object_count_evaluator(GroupResource("deployments", "apps")), PartialObjectMetadata
        case kind:
            raise ValueError(f"no objects of kind {kind} are recorded")


def _term(term: ScopeTerm) -> dict[str, Any]:
    written: dict[str, Any] = {"scopeName": term.scope_name, "operator": term.operator}
    return {**written, "values": list(term.values)} if term.values else written
