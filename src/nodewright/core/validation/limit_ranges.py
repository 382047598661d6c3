"""Limit ranges: what the API server has against a LimitRange."""

from collections.abc import Iterator

from nodewright.core.validation.metadata import metadata_violations
from nodewright.core.validation.names import key_rules
from nodewright.core.validation.resources import container_name_violations, name_violations
from nodewright.core.validation.violation import (
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    required,
)
from nodewright.model.quota_objects import LimitRange, LimitRangeItem
from nodewright.model.resource_names import in_order, is_huge_page, is_native
from nodewright.values.quantity import Quantity
from nodewright.values.units import INT64_MAX

_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_ONE = Quantity.of(1)
_MOST_IN_MILLI = INT64_MAX // 1000


def limit_range_violations(limit_range: LimitRange) -> tuple[Violation, ...]:
    """What the API server has against the limit range as it keeps it; empty if it takes it.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateLimitRange.
    Departs: resources in a fixed order, where the API server walks maps.

    >>> from nodewright.model.objects import ObjectMeta
    >>> from nodewright.model.quota_objects import LimitRangeSpec
    >>> item = LimitRangeItem(type="Container", default={"cpu": Quantity.parse("2")}, max={"cpu": _ONE})
    >>> one = LimitRange(metadata=ObjectMeta(name="bounds"), spec=LimitRangeSpec(limits=(item,)))
    >>> [(one.path, one.value, one.rule) for one in limit_range_violations(one)]
    [('spec.limits[0].default[cpu]', '1', 'default value 2 is greater than max value 1')]
    """
    found = list(metadata_violations(limit_range.metadata))
    seen: set[str] = set()
    for index, item in enumerate(limit_range.spec.limits):
        path = f"spec.limits[{index}]"
        found.extend(_type_violations(item.type, f"{path}.type"))
        if item.type in seen:
            found.append(duplicate(f"{path}.type", item.type))
        seen.add(item.type)
        found.extend(_field_violations(item, path))
        fields = (item.max, item.min, item.max_limit_request_ratio, *_defaults_of(item))
        for name in sorted(set().union(*fields), key=in_order):
            found.extend(_bound_violations(item, name, path))
    return tuple(found)


def _type_violations(kind: str, path: str) -> Iterator[Violation]:
    rules = key_rules(kind)
    if not rules and "/" not in kind and kind not in _TYPES:
        rules = ["must be a standard limit type or fully qualified"]
    return each_invalid(path, kind, rules)


def _field_violations(item: LimitRangeItem, path: str) -> Iterator[Violation]:
    """What is wrong with names of resources, and with fields that are there or not."""
    named = container_name_violations if item.type in ("Pod", "Container") else name_violations
    default, default_request = _defaults_of(item)
    for field, amounts in (("max", item.max), ("min", item.min)):
        for name in sorted(amounts, key=in_order):
            yield from named(name, f"{path}.{field}[{name}]")
    if item.type == "Pod":
        for field, given in (("default", item.default), ("defaultRequest", item.default_request)):
            if given:
                yield forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
    for field, amounts in (("default", default), ("defaultRequest", default_request)):
        for name in sorted(amounts, key=in_order):
            yield from named(name, f"{path}.{field}[{name}]")
    if item.type == "PersistentVolumeClaim" and "storage" not in item.min and "storage" not in item.max:
        rule = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", rule)
    for name in sorted(item.max_limit_request_ratio, key=in_order):
        yield from named(name, f"{path}.maxLimitRequestRatio[{name}]")


def _defaults_of(item: LimitRangeItem) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """The defaults that are looked at: none of a pod."""
    return ({}, {}) if item.type == "Pod" else (item.default, item.default_request)


def _bound_violations(item: LimitRangeItem, name: str, path: str) -> Iterator[Violation]:
    """Which of the item's amounts of one resource contradict one another."""
    default_limits, default_requests = _defaults_of(item)
    least, most = item.min.get(name), item.max.get(name)
    limit, request = default_limits.get(name), default_requests.get(name)
    checks = (
        # The field blamed, the value shown, then the amount that must not be greater than the other.
        ("min", least, ("min", least), ("max", most)),
        ("defaultRequest", request, ("min", least), ("default request", request)),
        ("defaultRequest", request, ("default request", request), ("max", most)),
        ("defaultRequest", request, ("default request", request), ("default limit", limit)),
        ("default", least, ("min", least), ("default", limit)),
        ("default", most, ("default", limit), ("max", most)),
    )
    for field, shown, (lower_name, lower), (upper_name, upper) in checks:
        if lower is not None and upper is not None and lower.compare(upper) > 0:
            rule = f"{lower_name} value {lower} is greater than {upper_name} value {upper}"
            yield invalid(f"{path}.{field}[{name}]", str(shown), rule)
    ratio = item.max_limit_request_ratio.get(name)
    if ratio is not None:
        yield from _ratio_violations(ratio, least, most, f"{path}.maxLimitRequestRatio[{name}]")
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
    # Floats, as the API server divides.
    allowed, lower, upper = float(ratio.value()), least.value(), most.value()
    if max(ratio.value(), lower, upper) < _MOST_IN_MILLI:
        allowed, lower, upper = ratio.milli_value() / 1000, least.milli_value(), most.milli_value()
    if lower and allowed > float(upper) / float(lower):
        rule = f"ratio {ratio} is greater than max/min = {float(upper) / float(lower):.6f}"
        yield invalid(path, str(ratio), rule)
