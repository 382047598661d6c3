"""Quotas: what the API server has against a ResourceQuota."""

from collections.abc import Iterator, Sequence
from typing import Any

from nodewright.core.validation.metadata import metadata_violations
from nodewright.core.validation.resources import COUNTED, is_standard, name_violations
from nodewright.core.validation.violation import (
    Violation,
    invalid,
    required,
)
from nodewright.model.objects import ResourceList
from nodewright.model.quota_objects import ResourceQuota, ResourceQuotaSpec, ScopeSelector, ScopeTerm
from nodewright.model.resource_names import CPU, MEMORY, PODS, in_order, is_extended

_OF_PODS = frozenset(
    {PODS, *(prefix + name for prefix in ("", "requests.", "limits.") for name in (CPU, MEMORY))}
)
_OF_CLAIMS = frozenset({"persistentvolumeclaims", "requests.storage"})
_FOR_SCOPE = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "BestEffort": frozenset({PODS}),
    "VolumeAttributesClass": _OF_CLAIMS,
}
"""Each scope, with the resources that a quota in it may name besides those that are nobody's in particular."""
_EXISTS_ONLY = frozenset(
    {"BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"}
)
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_EXISTS_RULE = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def quota_violations(quota: ResourceQuota) -> tuple[Violation, ...]:
    """What the API server has against the quota; empty if it takes it.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateResourceQuota.
    Departs: resources in a fixed order, where the API server walks maps.

    >>> from nodewright.model.objects import ObjectMeta
    >>> spec = ResourceQuotaSpec(scopes=("BestEffort", "NotBestEffort"))
    >>> quota = ResourceQuota(metadata=ObjectMeta(name="team"), spec=spec)
    >>> [(one.path, one.value, one.rule) for one in quota_violations(quota)]
    [('spec.scopes', ('BestEffort', 'NotBestEffort'), 'conflicting scopes')]
    """
    found = list(metadata_violations(quota.metadata))
    found.extend(_amounts(quota.spec.hard, "spec.hard"))
    found.extend(_scopes(quota.spec))
    if quota.spec.scope_selector is not None:
        found.extend(_selector(quota.spec, quota.spec.scope_selector))
    found.extend(_amounts(quota.status.hard, "status.hard"))
    found.extend(_amounts(quota.status.used, "status.used"))
    return tuple(found)


def _amounts(amounts: ResourceList, path: str) -> Iterator[Violation]:
    """What is wrong with amounts and with what they are amounts of.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateResourceQuotaResourceName,
        ValidateResourceQuantityValue.
    """
    for name in sorted(amounts, key=in_order):
        here, amount = f"{path}[{name}]", amounts[name]
        yield from name_violations(name, here)
        if "/" not in name and not _is_for_quotas(name):
            yield invalid(here, name, "must be a standard resource for quota")
        if amount.sign() < 0:
            yield invalid(here, str(amount), "must be greater than or equal to 0")
        if (name in COUNTED or is_extended(name)) and amount.milli_value() % 1000:
            yield invalid(here, str(amount), "must be an integer")


def _is_for_quotas(name: str) -> bool:
    return is_standard(name) and name != "storage"


def _scopes(spec: ResourceQuotaSpec) -> Iterator[Violation]:
    """What is wrong with plain scopes.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResourceQuotaScopes.
    """
    path, written = "spec.scopes", spec.scopes
    for scope in spec.scopes:
        if scope not in _FOR_SCOPE:
            yield invalid(path, written, "unsupported scope")
        for _ in _out_of_place(scope, spec):
            yield invalid(path, written, "unsupported scope applied to resource")
    for _ in _conflicts(spec.scopes):
        yield invalid(path, written, "conflicting scopes")


def _selector(spec: ResourceQuotaSpec, selector: ScopeSelector) -> Iterator[Violation]:
    """What is wrong with a scope selector; the API server does not say of which expression.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateScopedResourceSelectorRequirement.
    """
    path = "spec.scopeSelector.matchExpressions"
    for term in selector.match_expressions:
        if term.scope_name not in _FOR_SCOPE:
            yield invalid(f"{path}.scopeName", term.scope_name, "unsupported scope")
        for _ in _out_of_place(term.scope_name, spec):
            yield invalid(path, _as_printed(selector), "unsupported scope applied to resource")
        yield from _term(term, path)
    for _ in _conflicts([term.scope_name for term in selector.match_expressions]):
        yield invalid(path, spec.scopes, "conflicting scopes")


def _term(term: ScopeTerm, path: str) -> Iterator[Violation]:
    if term.scope_name in _EXISTS_ONLY and term.operator != "Exists":
        yield invalid(f"{path}.operator", term.operator, _EXISTS_RULE)
    if term.operator in ("In", "NotIn"):
        if not term.values:
            rule = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(f"{path}.values", rule)
    elif term.operator in ("Exists", "DoesNotExist"):
        if term.values:
            rule = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{path}.values", term.values, rule)
    else:
        yield invalid(f"{path}.operator", term.operator, "not a valid selector operator")


def _out_of_place(scope: str, spec: ResourceQuotaSpec) -> Iterator[str]:
    """The resources of the quota that nothing in the scope uses, as far as the API server looks.

    Follows: v1.36, pkg/apis/core/helper/helpers.go, IsResourceQuotaScopeValidForResource.
    """
    allowed = _FOR_SCOPE.get(scope)
    if allowed is not None:
        yield from (name for name in sorted(spec.hard) if _is_for_quotas(name) and name not in allowed)


def _conflicts(scopes: Sequence[str]) -> list[set[str]]:
    return [pair for pair in _CONFLICTS if pair.issubset(scopes)]


def _as_printed(selector: ScopeSelector) -> dict[str, Any]:
    """The selector as the API server's own type prints it."""
    terms = [
        {"ScopeName": term.scope_name, "Operator": term.operator, "Values": list(term.values or ()) or None}
        for term in selector.match_expressions
    ]
    return {"MatchExpressions": terms}
