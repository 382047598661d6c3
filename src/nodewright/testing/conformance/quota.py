"""Family quota: arithmetic on resource lists, what objects are charged, what is in use and what is refused."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodewright.core.quota import (
    SERVICES,
    VOLUME_CLAIMS,
    BeyondQuota,
    Kind,
    Surroundings,
    amounts,
    charged,
    counted,
    device_claims,
    pods,
    usage_of,
)
from nodewright.model.api_request import APIRequest, GroupResource, Operation
from nodewright.model.objects import ObjectMeta, Pod, ResourceList
from nodewright.model.quota_objects import (
    CountedObject,
    LimitedResource,
    PersistentVolumeClaim,
    ResourceClaim,
    ResourceQuota,
    ScopeSelector,
    ScopeTerm,
    Service,
)
from nodewright.render.quota_messages import must_specify, quota_error, scope_error, selector_error
from nodewright.testing.conformance.amounts import texts
from nodewright.values.instant import ZERO_TIME, Instant
from nodewright.world.decode import decode

Question = dict[str, Any]


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What Kubernetes would answer for the function in `function`."""
    del machines
    return _FUNCTIONS[question["function"]](question)


# ---------------------------------------------------------------- lists


def _two(function: Callable[[ResourceList, ResourceList], ResourceList]) -> Callable[[Question], Any]:
    return lambda question: {"resources": texts(function(_list(question, "a"), _list(question, "b")))}


def _names(function: Callable[[Iterable[str], Iterable[str]], tuple[str, ...]]) -> Callable[[Question], Any]:
    return lambda question: {"names": list(function(question.get("a") or (), question.get("b") or ()))}


def _equals(question: Question) -> Any:
    return {"result": amounts.are_equal(_list(question, "a"), _list(question, "b"))}


def _less_than_or_equal(question: Question) -> Any:
    exceeded = amounts.exceeding(_list(question, "a"), _list(question, "b"))
    return {"result": not exceeded, "exceeded": list(exceeded)}


def _mask(question: Question) -> Any:
    return {"resources": texts(amounts.only(_list(question, "a"), question.get("names") or ()))}


def _is_zero(question: Question) -> Any:
    return {"result": amounts.is_nothing(_list(question, "a"))}


def _remove_zeros(question: Question) -> Any:
    return {"resources": texts(amounts.without_zeros(_list(question, "a")))}


def _is_negative(question: Question) -> Any:
    return {"names": list(amounts.negative(_list(question, "a")))}


def _list(question: Question, name: str) -> ResourceList:
    return decode(question.get(name) or {}, ResourceList)


# ---------------------------------------------------------------- objects


def _evaluate(question: Question) -> Any:
    kind, shape = _kind_of(question)
    item = decode(question["object"], shape)
    found: dict[str, Any] = {"usage": texts(kind.usage(item))}
    if question.get("quota") is not None:
        quota = decode(question["quota"], ResourceQuota)
        own = kind.own(quota.status.hard)
        unreadable = kind.first_unreadable(quota.spec.terms)
        if unreadable is not None:
            found["matchError"] = selector_error(unreadable)
        else:
            found["matches"] = kind.is_bound_by(quota, item)
        found["matchingResources"] = list(own)
        unspecified = kind.unspecified(own, item) if kind.unspecified is not None else ()
        if unspecified:
            found["constraintsError"] = must_specify(unspecified)
    return {**found, **_scopes(question, kind, item)}


def _scopes(question: Question, kind: Kind[Any], item: Any) -> dict[str, Any]:
    if question.get("scopes") is None:
        return {}
    terms = decode(question["scopes"], tuple[ScopeTerm, ...])
    unreadable = kind.first_unreadable(terms)
    if unreadable is not None:
        return {"matchingScopesError": scope_error(unreadable)}
    matching = kind.matching(terms, item)
    uncovered = kind.uncovered(terms, matching[: len(matching) // 2])
    return {"matchingScopes": list(map(_term, matching)), "uncoveredScopes": list(map(_term, uncovered))}


def _usage_stats(question: Question) -> Any:
    kind, shape = _kind_of(question)
    names = question.get("resources") or ()
    terms = [ScopeTerm(scope_name=name, operator="Exists") for name in question.get("scopes") or ()]
    terms.extend(decode(question.get("scopeSelector") or {}, ScopeSelector).match_expressions)
    used = usage_of(kind, (decode(each, shape) for each in question.get("objects") or ()), names, terms)
    return {"used": texts(used), "maskedUsed": texts(amounts.only(used, names))}


def _admit(question: Question) -> Any:
    kind, shape = _kind_of(question)
    old = question.get("oldObject")
    request = APIRequest(
        operation=Operation(question["operation"]),
        object=decode(question["object"], shape),
        old=decode(old, shape) if old is not None else None,
        subresource=question.get("subresource") or "",
    )
    quotas = decode(question.get("quotas") or [], tuple[ResourceQuota, ...])
    limited = decode(question.get("limitedResources") or [], tuple[LimitedResource, ...])
    verdict = charged(request, kind, quotas, limited)
    if isinstance(verdict, BeyondQuota):
        name = question.get("name")
        named = ObjectMeta(name=name) if name else request.object.metadata
        error = quota_error(kind.resource, named, verdict.because)
        return {"handled": True, "allowed": False, "error": error}
    used = {quota.name: texts(quota.status.used) for quota in verdict.quotas}
    return {"handled": verdict.handled, "allowed": True, "used": used}


_FUNCTIONS: dict[str, Callable[[Question], Any]] = {
    "equals": _equals,
    "lessThanOrEqual": _less_than_or_equal,
    "max": _two(amounts.greatest),
    "add": _two(amounts.total),
    "subtract": _two(amounts.difference),
    "subtractNonNegative": _two(amounts.increase),
    "mask": _mask,
    "intersection": _names(amounts.in_both),
    "difference": _names(amounts.in_first),
    "isZero": _is_zero,
    "removeZeros": _remove_zeros,
    "isNegative": _is_negative,
    "evaluate": _evaluate,
    "usage": _evaluate,
    "usageStats": _usage_stats,
    "admit": _admit,
}


def _kind_of(question: Question) -> tuple[Kind[Any], type[Any]]:
    """What quotas know of the kind in question, and its fields."""
    now = Instant.parse(question["now"]) if question.get("now") else ZERO_TIME
    match question["kind"]:
        case "Pod":
            return pods(now), Pod
        case "Service":
            return SERVICES, Service
        case "PersistentVolumeClaim":
            return VOLUME_CLAIMS, PersistentVolumeClaim
        case "ResourceClaim":
            classes = question.get("deviceClasses") or {}
            return device_claims(Surroundings(now=now, device_classes=classes)), ResourceClaim
        case "ConfigMap":
            return counted(GroupResource("configmaps")), CountedObject
        case "Deployment":
            return counted(GroupResource("deployments", "apps")), CountedObject
        case kind:
            raise ValueError(f"no objects of kind {kind} are recorded")


def _term(term: ScopeTerm) -> dict[str, Any]:
    written: dict[str, Any] = {"scopeName": term.scope_name, "operator": term.operator}
    return {**written, "values": list(term.values)} if term.values else written
