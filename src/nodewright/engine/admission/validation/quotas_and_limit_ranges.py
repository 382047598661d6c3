"""Validation of ResourceQuotas and LimitRanges."""

from collections.abc import Iterator, Sequence
from typing import Any

from nodewright.engine.admission.validation.container_resources import (
    INTEGER_RESOURCES,
    container_resource_name_violations,
    is_standard,
    resource_name_violations,
)
from nodewright.engine.admission.validation.violation import (
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    metadata_violations,
    required,
)
from nodewright.model.kubernetes.cluster_objects import (
    LimitRange,
    LimitRangeItem,
    ResourceQuota,
    ResourceQuotaSpec,
    ScopeSelector,
    ScopeTerm,
)
from nodewright.model.kubernetes.name_validation import label_key_errors
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.kubernetes.resource_names import (
    CPU,
    MEMORY,
    PODS,
    is_extended,
    is_huge_page,
    is_native,
    resource_sort_key,
)
from nodewright.model.releases.release_rules import ReleaseRules
from nodewright.model.values.quantity import INT64_MAX, Quantity

_POD_RESOURCES = frozenset(
    {PODS, *(prefix + name for prefix in ("", "requests.", "limits.") for name in (CPU, MEMORY))}
)
_CLAIM_RESOURCES = frozenset({"persistentvolumeclaims", "requests.storage"})
_ATTRIBUTES_CLASS, _UNSUPPORTED = "VolumeAttributesClass", "unsupported scope"
_RESOURCES_BY_SCOPE = {
    "Terminating": _POD_RESOURCES,
    "NotTerminating": _POD_RESOURCES,
    "NotBestEffort": _POD_RESOURCES,
    "PriorityClass": _POD_RESOURCES,
    "CrossNamespacePodAffinity": _POD_RESOURCES,
    "BestEffort": frozenset({PODS}),
    _ATTRIBUTES_CLASS: _CLAIM_RESOURCES,
}
"""For each scope, the compute resources that a quota with this scope may name."""
_EXISTS_ONLY = frozenset(
    {"BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"}
)
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_EXISTS_RULE = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def unknown_scopes(quota: ResourceQuota, rules: ReleaseRules) -> Iterator[Violation]:
    """The scopes that the API server of a release does not know yet."""
    if rules.attributes_class_scope:
        return
    if _ATTRIBUTES_CLASS in quota.spec.scopes:
        yield invalid("spec.scopes", quota.spec.scopes, _UNSUPPORTED)
    selector = quota.spec.scope_selector
    for term in () if selector is None else selector.match_expressions:
        if term.scope_name == _ATTRIBUTES_CLASS:
            path = "spec.scopeSelector.matchExpressions.scopeName"
            yield invalid(path, term.scope_name, _UNSUPPORTED)


def quota_violations(quota: ResourceQuota) -> tuple[Violation, ...]:
    """The violations for which the API server rejects the quota; empty if it accepts it.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateResourceQuota.
    Departs: resources in a fixed order, where the API server walks maps.

    >>> from nodewright.model.kubernetes.objects import ObjectMeta
    >>> spec = ResourceQuotaSpec(scopes=("BestEffort", "NotBestEffort"))
    >>> quota = ResourceQuota(metadata=ObjectMeta(name="team"), spec=spec)
    >>> [(violation.path, violation.value, violation.rule) for violation in quota_violations(quota)]
    [('spec.scopes', ('BestEffort', 'NotBestEffort'), 'conflicting scopes')]
    """
    violations = list(metadata_violations(quota.metadata, keeps_generation=True))
    violations.extend(_quota_amount_violations(quota.spec.hard, "spec.hard"))
    violations.extend(_scope_violations(quota.spec))
    if quota.spec.scope_selector is not None:
        violations.extend(_selector(quota.spec, quota.spec.scope_selector))
    violations.extend(_quota_amount_violations(quota.status.hard, "status.hard"))
    violations.extend(_quota_amount_violations(quota.status.used, "status.used"))
    return tuple(violations)


def _quota_amount_violations(amounts: ResourceList, path: str) -> Iterator[Violation]:
    """The violations in amounts and in resource names.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateResourceQuotaResourceName,
        ValidateResourceQuantityValue.
    """
    for name in sorted(amounts, key=resource_sort_key):
        amount_path, amount = f"{path}[{name}]", amounts[name]
        yield from resource_name_violations(name, amount_path)
        if "/" not in name and not _is_quota_resource(name):
            yield invalid(amount_path, name, "must be a standard resource for quota")
        if amount.sign() < 0:
            yield invalid(amount_path, str(amount), "must be greater than or equal to 0")
        if (name in INTEGER_RESOURCES or is_extended(name)) and amount.milli_value() % 1000:
            yield invalid(amount_path, str(amount), "must be an integer")


def _is_quota_resource(name: str) -> bool:
    return is_standard(name) and name != "storage"


def _scope_violations(spec: ResourceQuotaSpec) -> Iterator[Violation]:
    """The violations in plain scopes.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResourceQuotaScopes.
    """
    path, written = "spec.scopes", spec.scopes
    for scope in spec.scopes:
        if scope not in _RESOURCES_BY_SCOPE:
            yield invalid(path, written, _UNSUPPORTED)
        for _ in _misplaced_resources(scope, spec):
            yield invalid(path, written, "unsupported scope applied to resource")
    for _ in _conflicts(spec.scopes):
        yield invalid(path, written, "conflicting scopes")


def _selector(spec: ResourceQuotaSpec, selector: ScopeSelector) -> Iterator[Violation]:
    """The violations in a scope selector; the API server does not report the index of the expression.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateScopedResourceSelectorRequirement.
    """
    path = "spec.scopeSelector.matchExpressions"
    for term in selector.match_expressions:
        if term.scope_name not in _RESOURCES_BY_SCOPE:
            yield invalid(f"{path}.scopeName", term.scope_name, _UNSUPPORTED)
        for _ in _misplaced_resources(term.scope_name, spec):
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


def _misplaced_resources(scope: str, spec: ResourceQuotaSpec) -> Iterator[str]:
    """The resources of the quota that do not belong to the scope, as far as the API server checks.

    Follows: v1.36, pkg/apis/core/helper/helpers.go, IsResourceQuotaScopeValidForResource.
    """
    allowed = _RESOURCES_BY_SCOPE.get(scope)
    if allowed is not None:
        yield from (name for name in sorted(spec.hard) if _is_quota_resource(name) and name not in allowed)


def _conflicts(scopes: Sequence[str]) -> list[set[str]]:
    return [pair for pair in _CONFLICTS if pair.issubset(scopes)]


def _as_printed(selector: ScopeSelector) -> dict[str, Any]:
    """The selector as the API server's Go type prints it."""
    terms = [
        {"ScopeName": term.scope_name, "Operator": term.operator, "Values": list(term.values or ()) or None}
        for term in selector.match_expressions
    ]
    return {"MatchExpressions": terms}


_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_ONE = Quantity.of(1)
_MOST_IN_MILLI = INT64_MAX // 1000


def limit_range_violations(limit_range: LimitRange) -> tuple[Violation, ...]:
    """The violations for which the API server rejects the stored limit range; empty if it accepts it.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateLimitRange.
    Departs: resources in a fixed order, where the API server walks maps.

    >>> from nodewright.model.kubernetes.objects import ObjectMeta
    >>> from nodewright.model.kubernetes.cluster_objects import LimitRangeSpec
    >>> item = LimitRangeItem(type="Container", default={"cpu": Quantity.parse("2")}, max={"cpu": _ONE})
    >>> limit_range = LimitRange(metadata=ObjectMeta(name="bounds"), spec=LimitRangeSpec(limits=(item,)))
    >>> [(violation.path, violation.value, violation.rule) for violation in limit_range_violations(limit_range)]
    [('spec.limits[0].default[cpu]', '1', 'default value 2 is greater than max value 1')]
    """
    violations = list(metadata_violations(limit_range.metadata, keeps_generation=True))
    seen: set[str] = set()
    for index, item in enumerate(limit_range.spec.limits):
        path = f"spec.limits[{index}]"
        violations.extend(_type_violations(item.type, f"{path}.type"))
        if item.type in seen:
            violations.append(duplicate(f"{path}.type", item.type))
        seen.add(item.type)
        violations.extend(_field_violations(item, path))
        fields = (item.max, item.min, item.max_limit_request_ratio, *_defaults_of(item))
        for name in sorted(set().union(*fields), key=resource_sort_key):
            violations.extend(_bound_violations(item, name, path))
    return tuple(violations)


def _type_violations(kind: str, path: str) -> Sequence[Violation]:
    rules = label_key_errors(kind)
    if not rules and "/" not in kind and kind not in _TYPES:
        rules = ["must be a standard limit type or fully qualified"]
    return each_invalid(path, kind, rules)


def _field_violations(item: LimitRangeItem, path: str) -> Iterator[Violation]:
    """The violations in resource names, and fields that are forbidden or required."""
    named = (
        container_resource_name_violations if item.type in ("Pod", "Container") else resource_name_violations
    )
    default, default_request = _defaults_of(item)
    for field, amounts in (("max", item.max), ("min", item.min)):
        for name in sorted(amounts, key=resource_sort_key):
            yield from named(name, f"{path}.{field}[{name}]")
    if item.type == "Pod":
        for field, given in (("default", item.default), ("defaultRequest", item.default_request)):
            if given:
                yield forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
    for field, amounts in (("default", default), ("defaultRequest", default_request)):
        for name in sorted(amounts, key=resource_sort_key):
            yield from named(name, f"{path}.{field}[{name}]")
    if item.type == "PersistentVolumeClaim" and "storage" not in item.min and "storage" not in item.max:
        rule = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", rule)
    for name in sorted(item.max_limit_request_ratio, key=resource_sort_key):
        yield from named(name, f"{path}.maxLimitRequestRatio[{name}]")


def _defaults_of(item: LimitRangeItem) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """The defaults that are checked: none for type Pod."""
    return ({}, {}) if item.type == "Pod" else (item.default, item.default_request)


def _bound_violations(item: LimitRangeItem, name: str, path: str) -> Iterator[Violation]:
    """The contradictions among the item's amounts of one resource."""
    default_limits, default_requests = _defaults_of(item)
    minimum, maximum = item.min.get(name), item.max.get(name)
    limit, request = default_limits.get(name), default_requests.get(name)
    checks = (
        # The field blamed, the value shown, then the amount that must not be greater than the other.
        ("min", minimum, ("min", minimum), ("max", maximum)),
        ("defaultRequest", request, ("min", minimum), ("default request", request)),
        ("defaultRequest", request, ("default request", request), ("max", maximum)),
        ("defaultRequest", request, ("default request", request), ("default limit", limit)),
        ("default", minimum, ("min", minimum), ("default", limit)),
        ("default", maximum, ("default", limit), ("max", maximum)),
    )
    for field, shown, (lower_name, lower), (upper_name, upper) in checks:
        if lower is not None and upper is not None and lower.compare(upper) > 0:
            rule = f"{lower_name} value {lower} is greater than {upper_name} value {upper}"
            yield invalid(f"{path}.{field}[{name}]", str(shown), rule)
    ratio = item.max_limit_request_ratio.get(name)
    if ratio is not None:
        yield from _ratio_violations(ratio, minimum, maximum, f"{path}.maxLimitRequestRatio[{name}]")
    overcommit = is_native(name) and not is_huge_page(name)
    if not overcommit and limit is not None and request is not None and limit.compare(request) != 0:
        rule = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        yield invalid(f"{path}.defaultRequest[{name}]", str(request), rule)


def _ratio_violations(
    ratio: Quantity, least: Quantity | None, most: Quantity | None, path: str
) -> Iterator[Violation]:
    if ratio.compare(_ONE) < 0:
        yield invalid(path, str(ratio), f"ratio {ratio} is less than 1")
    if least is None or most is None:
        return
    # Floats, as in the API server's division.
    allowed, lower, upper = float(ratio.value()), least.value(), most.value()
    if max(ratio.value(), lower, upper) < _MOST_IN_MILLI:
        allowed, lower, upper = ratio.milli_value() / 1000, least.milli_value(), most.milli_value()
    if lower and allowed > float(upper) / float(lower):
        rule = f"ratio {ratio} is greater than max/min = {float(upper) / float(lower):.6f}"
        yield invalid(path, str(ratio), rule)
