"""Validation of the objects of Dynamic Resource Allocation: a table of checks for each kind.

The checks read documents of resource.k8s.io/v1 without nulls, in which all fields have the right types.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from nodewright.engine.admission.validation.placement import node_selector_violations
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    list_violations,
    not_supported,
    required,
    too_long,
    unless_few,
    unless_short,
)
from nodewright.engine.core.claims.cel import compile_selector, explain_selector_error
from nodewright.model.kubernetes.claims import DeviceCapacity
from nodewright.model.kubernetes.name_validation import (
    c_identifier_errors,
    dns1123_label_errors,
    dns1123_subdomain_errors,
    label_key_errors,
    label_value_errors,
)
from nodewright.model.kubernetes.objects import NodeSelector
from nodewright.model.kubernetes.resource_names import is_extended, is_native
from nodewright.model.values.bounded_cache import cached_texts
from nodewright.model.values.quantity import Quantity

Fields: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Any, str], Iterable[Violation]]
"""The violations of a value, None if it is absent, at a path."""
Convert: TypeAlias = Callable[[Any, type[Any]], Any]

_MAX_ITEMS = 32
_MAX_ALTERNATIVES = 8
_MAX_TAINTS = 16
_MAX_CONDITIONS = 4
_MAX_DEVICES, _MAX_DEVICES_WITH_DETAILS = 128, 64
_MAX_ATTRIBUTE_VALUES, _MAX_VALUE_LENGTH = 48, 64
_MAX_COUNTER_SETS, _MAX_CONSUMPTIONS = 8, 2
_MAX_OPTIONS = 10
_MAX_TEXT = 10 * 1024
"""Bytes of an expression, and of parameters for a driver."""
_MAX_DOMAIN, _MAX_IDENTIFIER, _MAX_POOL_NAME = 63, 32, 253
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


# ---------------------------------------------------------------- how checks are combined


def _all(*checks: Check) -> Check:
    return lambda value, path: (violation for check in checks for violation in check(value, path))


def _optional(check: Check) -> Check:
    return lambda value, path: () if value is None else check(value, path)


def _required(check: Check) -> Check:
    return lambda value, path: check(value, path) if value else (required(path),)


def _structure(fields: Mapping[str, Check]) -> Check:
    return lambda value, path: (
        violation
        for name, check in fields.items()
        for violation in check((value or {}).get(name), f"{path}.{name}")
    )


def _each(check: Check, most: int | None = None, key: Callable[[Any], str] | None = None) -> Check:
    """Each item of a list, unless it is too long, and those with the key of an earlier one."""

    def violations(items: Any, path: str) -> Iterator[Violation]:
        items = items or ()
        if most is not None and (few := unless_few(path, items, most)):
            yield from few
            return
        for index, item in enumerate(items):
            yield from check(item, f"{path}[{index}]")
        seen: set[Any] = set()
        for index, item in enumerate(items if key is not None else ()):
            name = key(item) if key is not None else ""
            if name in seen:
                yield duplicate(f"{path}[{index}]", name)
            seen.add(name)

    return violations


def _named(field: str) -> Callable[[Any], str]:
    return lambda item: item.get(field) or ""


def _mapping(check_key: Check, check: Check, most: int | None = None) -> Check:
    """Each key at the path of the mapping, and each value at its own, in order of the keys."""

    def violations(values: Any, path: str) -> Iterator[Violation]:
        if most is not None and (few := unless_few(path, values or (), most)):
            yield from few
            return
        for key in sorted(values or ()):
            yield from check_key(key, path)
            yield from check(values[key], f"{path}[{_shortened(key)}]")

    return violations


def _shortened(key: str) -> str:
    most = _MAX_DOMAIN + 1 + _MAX_IDENTIFIER
    return key if len(key) <= most else f"{key[: (most - 2) // 2]}...{key[-((most - 3) // 2) :]}"


def _text(errors: Callable[[str], Iterable[str]], most: int | None = None) -> Check:
    """A text; an absent one is empty."""

    def violations(value: Any, path: str) -> Iterator[Violation]:
        text = value or ""
        if most is not None:
            yield from unless_short(path, text, most)
        yield from each_invalid(path, text, list(errors(text)))

    return violations


def _one_of(supported: Collection[str]) -> Check:
    return lambda value, path: () if value in supported else (not_supported(path, value, supported),)


# ---------------------------------------------------------------- names


def _pool_name(name: str, path: str) -> Iterator[Violation]:
    yield from unless_short(path, name, _MAX_POOL_NAME)
    for part in name.split("/"):
        yield from each_invalid(path, part, dns1123_subdomain_errors(part))


def _qualified_name(name: str, path: str) -> Iterator[Violation]:
    """A name with or without a domain; one with several slashes is not checked.

    Follows: v1.36, pkg/apis/resource/validation/validation.go, validateQualifiedName.
    """
    domain, slash, identifier = name.partition("/")
    if not slash:
        yield from _IDENTIFIER(domain, path)
    elif "/" not in identifier:
        yield from _DRIVER(domain, path) if domain else (invalid(path, "", "the domain must not be empty"),)
        yield from (
            _IDENTIFIER(identifier, path)
            if identifier
            else (invalid(path, "", "the name must not be empty"),)
        )


@cached_texts(4096)
def _is_qualified(name: str) -> bool:
    return not any(True for _ in _qualified_name(name, ""))


def _map_key(name: str, path: str) -> Iterable[Violation]:
    """As `_qualified_name`; the devices of a pool have the same names."""
    return () if _is_qualified(name) else _qualified_name(name, path)


def _fully_qualified_name(name: str, path: str) -> Iterator[Violation]:
    yield from _qualified_name(name, path)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


_IDENTIFIER = _text(c_identifier_errors, _MAX_IDENTIFIER)
_LABEL = _text(dns1123_label_errors)
_SUBDOMAIN = _text(dns1123_subdomain_errors)
_DRIVER = _required(_text(lambda name: dns1123_subdomain_errors(name.lower()), _MAX_DOMAIN))
_POOL = _required(_pool_name)
_LABEL_KEY = _text(label_key_errors)
_LABEL_VALUE = _text(label_value_errors)


# ---------------------------------------------------------------- requests of claims


def _expression(value: Any, path: str) -> Iterator[Violation]:
    """An expression as the API server compiles those of new objects.

    Departs: the first error in one line with what was probably meant; the cost of an expression is not estimated.
    """
    text = value or ""
    if too_large := unless_short(path, text, _MAX_TEXT):
        yield from too_large
        return
    error = compile_selector(text, new_expression=True).error
    if error is not None:
        prefix = "compilation failed: "
        explained = explain_selector_error(text, error, ())
        yield invalid(path, text, prefix + explained if error.startswith(prefix) else explained)


def _cel_of_selector(selector: Any, path: str) -> Iterator[Violation]:
    """A selector has an expression, which may be empty."""
    if "cel" not in selector:
        yield required(f"{path}.cel")
    else:
        yield from _expression(selector["cel"].get("expression"), f"{path}.cel.expression")


_SELECTORS = _each(_cel_of_selector, _MAX_ITEMS)


def _allocation_mode(request: Fields, path: str) -> Iterator[Violation]:
    mode = request.get("allocationMode") or "ExactCount"
    count = request.get("count") or (1 if mode == "ExactCount" else 0)
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode != "ExactCount":
        yield not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    elif count < 0:
        yield invalid(f"{path}.count", count, "must be greater than zero")


def _toleration(toleration: Fields, path: str) -> Iterator[Violation]:
    operator, value = toleration.get("operator") or "Equal", toleration.get("value") or ""
    if toleration.get("key"):
        yield from _LABEL_KEY(toleration["key"], f"{path}.key")
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from _LABEL_VALUE(value, f"{path}.value")
    else:
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if toleration.get("effect"):
        yield from _one_of(_EFFECTS)(toleration["effect"], f"{path}.effect")


_EXACTLY = _all(
    _structure({"deviceClassName": _required(_SUBDOMAIN), "selectors": _SELECTORS}),
    _allocation_mode,
    _structure({"tolerations": _each(_toleration)}),
)
_ALTERNATIVE = _all(_structure({"name": _LABEL}), _EXACTLY)


def _request(request: Fields, path: str) -> Iterator[Violation]:
    yield from _LABEL(request.get("name"), f"{path}.name")
    alternatives, exactly = request.get("firstAvailable"), request.get("exactly")
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if alternatives and exactly is not None:
        yield invalid(path, (), f"{rule}, but multiple fields are set")
    elif alternatives:
        check = _each(_ALTERNATIVE, _MAX_ALTERNATIVES, _named("name"))
        yield from check(alternatives, f"{path}.firstAvailable")
    elif exactly is not None:
        yield from _EXACTLY(exactly, f"{path}.exactly")
    else:
        yield required(path, rule)


def _request_reference(known: Collection[str]) -> Check:
    rule = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"

    def violations(name: str, path: str) -> Iterator[Violation]:
        segments = name.split("/")
        for segment in segments if len(segments) <= 2 else ():
            yield from _LABEL(segment, path)
        if name not in known:
            yield invalid(path, name, rule)

    return violations


def _constraint(constraint: Fields, path: str) -> Iterator[Violation]:
    for field in ("matchAttribute", "distinctAttribute"):
        if field in constraint:
            yield from _fully_qualified_name(constraint[field], f"{path}.{field}")
            return
    rule = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    yield required(path, rule)


def _parameters(value: Any, path: str) -> Iterator[Violation]:
    if value is None:
        yield required(path)
    elif len(msgspec.json.encode(value)) > _MAX_TEXT:
        yield too_long(path, _MAX_TEXT)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def _opaque(value: Any, path: str) -> Iterable[Violation]:
    """Parameters for a driver; an empty structure is one."""
    fields = {"driver": _DRIVER, "parameters": _parameters}
    return (required(path),) if value is None else _structure(fields)(value, path)


_CONFIG = _structure({"opaque": _opaque})


def _device_claim(claim: Any, path: str) -> Iterable[Violation]:
    requests = (claim or {}).get("requests") or ()
    known = {request.get("name") or "" for request in requests}
    known |= {
        f"{request.get('name') or ''}/{alternative.get('name') or ''}"
        for request in requests
        for alternative in request.get("firstAvailable") or ()
    }
    names = _structure({"requests": _each(_request_reference(known), _MAX_ITEMS, str)})
    table = {
        "requests": _each(_request, _MAX_ITEMS, _named("name")),
        "constraints": _each(_all(names, _constraint), _MAX_ITEMS),
        "config": _each(_all(names, _CONFIG), _MAX_ITEMS),
    }
    return _structure(table)(claim, path)


# ---------------------------------------------------------------- devices of slices


def _node_choice(places: tuple[str, ...], rule: str, empty_name: str) -> Check:
    """Exactly one of the fields that say for which nodes something is."""

    def violations(holder: Fields, path: str) -> Iterator[Violation]:
        set_fields = []
        for field in places:
            value, field_path = holder.get(field), f"{path}.{field}"
            if value is None:
                continue
            if value in ("", False):
                rule_of_field = empty_name if value == "" else "must be either unset or set to true"
                yield invalid(field_path, value, rule_of_field)
                continue
            set_fields.append(f"`{field}`")
            if field == "nodeName":
                yield from each_invalid(field_path, value, dns1123_subdomain_errors(value))
            elif field == "nodeSelector":
                selector = msgspec.convert(value, NodeSelector)
                yield from node_selector_violations(selector, f"{field_path}.nodeSelectorTerms")
        if not set_fields:
            yield required(path, rule)
        elif len(set_fields) > 1:
            yield invalid(path, f"{{{', '.join(set_fields)}}}", f"{rule}{several}")

    several = ", but multiple fields are set" if "perDeviceNodeSelection" in places else ""
    return violations


_OF_SLICE = _node_choice(
    ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"),
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
    "must be either unset or set to a non-empty string",
)
_OF_DEVICE = _node_choice(
    ("nodeName", "nodeSelector", "allNodes"),
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
    "true in the ResourceSlice spec",
    "must not be empty",
)


def _attribute(attribute: Fields, path: str) -> Iterator[Violation]:
    for field, value in attribute.items():
        check = _ATTRIBUTE_VALUES.get(field.removesuffix("s"))
        if value == []:
            yield invalid(f"{path}.{field}", [], "must not be empty if specified")
        elif check is not None:
            field_path = f"{path}.{field}"
            is_list = isinstance(value, list)
            yield from list_violations(check, value, field_path) if is_list else check(value, field_path)
    if len(attribute) != 1:
        shown = {name: attribute.get(field) for field, name in _ATTRIBUTE_FIELDS.items()}
        yield invalid(path, shown if attribute else "", "exactly one value must be specified")


_ATTRIBUTE_FIELDS = {
    **{name: f"{name.capitalize()}Value" for name in ("int", "bool", "string", "version")},
    **{f"{name}s": f"{name.capitalize()}Values" for name in ("int", "bool", "string", "version")},
}


def _version(text: str, path: str) -> Iterator[Violation]:
    if not _SEMVER.fullmatch(text):
        yield invalid(path, text, "must be a string compatible with semver.org spec 2.0.0")
    yield from unless_short(path, text, _MAX_VALUE_LENGTH)


def _short_text(text: str, path: str) -> Iterable[Violation]:
    return unless_short(path, text, _MAX_VALUE_LENGTH)


_ATTRIBUTE_VALUES: Mapping[str, Check] = {"string": _short_text, "version": _version}
_COUNTERS = _required(_mapping(_LABEL, lambda _value, _path: (), _MAX_ITEMS))
_TAINT = _structure({"key": _LABEL_KEY, "value": _LABEL_VALUE, "effect": _required(_one_of(_EFFECTS))})
_CONSUMPTION = _structure({"counterSet": _required(_LABEL), "counters": _COUNTERS})


def _device(convert: Convert, *, is_placed: bool) -> Check:
    """A device; ``is_placed``: the slice leaves its nodes to its devices."""
    tables = [
        _structure(
            {
                "attributes": _mapping(_map_key, _attribute),
                "capacity": _mapping(_map_key, _capacity(convert, is_shared=is_shared)),
                "taints": _each(_TAINT, _MAX_TAINTS),
                "consumesCounters": _each(_CONSUMPTION, _MAX_CONSUMPTIONS, _named("counterSet")),
            }
        )
        for is_shared in (False, True)
    ]

    def violations(device: Fields, path: str) -> Iterator[Violation]:
        attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
        yield from _LABEL(device.get("name"), f"{path}.name")
        if (count := len(attributes) + len(capacity)) > _MAX_ITEMS:
            rule = f"the total number of attributes and capacities must not exceed {_MAX_ITEMS}"
            yield invalid(path, count, rule)
        if (count := sum(map(_size, attributes.values()))) > _MAX_ATTRIBUTE_VALUES:
            rule = f"the total number of attribute values must not exceed {_MAX_ATTRIBUTE_VALUES}"
            yield invalid(path, count, rule)
        yield from tables[bool(device.get("allowMultipleAllocations"))](device, path)
        if is_placed:
            yield from _OF_DEVICE(device, path)
        elif not device.keys().isdisjoint(("nodeName", "nodeSelector", "allNodes")):
            rule = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true"
            yield invalid(path, (), f"{rule} in the ResourceSlice spec")
        if "bindingConditions" in device or "bindingFailureConditions" in device:
            yield from _binding_conditions(device, path)
        yield from _node_resources(device, path, convert)

    return violations


def _size(attribute: Fields) -> int:
    """How many values the attribute has."""
    if _ATTRIBUTE_LISTS.isdisjoint(attribute):
        return 1
    return sum(len(each) for each in attribute.values() if isinstance(each, list)) or 1


def _binding_conditions(device: Fields, path: str) -> Iterator[Violation]:
    fields = ("bindingConditions", "bindingFailureConditions")
    before, failed = (device.get(field) or () for field in fields)
    for field in fields:
        yield from _each(_LABEL_KEY, _MAX_CONDITIONS)(device.get(field), f"{path}.{field}")
    seen: set[str] = set()
    for field, conditions in zip(fields, (before, failed), strict=True):
        seen.clear()
        for index, condition in enumerate(conditions):
            if condition in seen:
                yield duplicate(f"{path}.{field}[{index}]", condition)
            seen.add(condition)
            if conditions is failed and condition in before:
                rule = "bindingFailureConditions must not overlap with bindingConditions"
                yield invalid(f"{path}.{field}[{index}]", condition, rule)
    for missing, other in (fields, fields[::-1]):
        if not device.get(missing) and device.get(other):
            yield invalid(f"{path}.{missing}", (), f"{missing} are required to use {other}")


def _node_resources(device: Fields, path: str, convert: Convert) -> Iterator[Violation]:
    for name, mapping in sorted((device.get("nodeAllocatableResourceMappings") or {}).items()):
        key_path = f"{path}.nodeAllocatableResourceMappings[{name}]"
        if not is_native(name):
            yield invalid(key_path, name, "must be a node allocatable resource name")
        # Without a multiplier the API server sets 1.
        if "allocationMultiplier" in mapping:
            multiplier = convert(mapping["allocationMultiplier"], Quantity)
            if multiplier.sign() <= 0:
                yield invalid(f"{key_path}.allocationMultiplier", str(multiplier), "must be positive")
        capacity_key = mapping.get("capacityKey")
        if capacity_key == "":
            yield invalid(f"{key_path}.capacityKey", "", "capacityKey must not be an empty string")
        elif capacity_key is not None and capacity_key not in (device.get("capacity") or {}):
            yield Violation(f"{key_path}.capacityKey", ErrorType.NOT_FOUND, capacity_key)


# ---------------------------------------------------------------- policies for requests of capacity


def _capacity(convert: Convert, *, is_shared: bool) -> Check:
    def violations(value: Fields, path: str) -> Iterable[Violation]:
        if "requestPolicy" not in value:
            return ()
        if not is_shared:
            return (forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true"),)
        return _policy(convert(value, DeviceCapacity), f"{path}.requestPolicy")

    return violations


def _policy(capacity: DeviceCapacity, path: str) -> Iterator[Violation]:
    policy = capacity.request_policy
    assert policy is not None
    fields = {"validValues": policy.valid_values, "validRange": policy.valid_range}
    field = next((name for name, value in fields.items() if value not in (None, ())), None)
    if policy.valid_values and policy.valid_range is not None:
        rule = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(path, rule)
    elif field is not None and policy.default is None:
        yield required(f"{path}.default", f"required when {field} is defined")
    elif field == "validValues":
        yield from _policy_values(capacity, f"{path}.validValues")
    elif field == "validRange":
        yield from _policy_range(capacity, f"{path}.validRange")


def _policy_values(capacity: DeviceCapacity, path: str) -> Iterator[Violation]:
    policy = capacity.request_policy
    assert policy is not None
    values, default = policy.valid_values or (), policy.default
    assert default is not None
    for index, value in enumerate(values[1:], 1):
        if values[index - 1].compare(value) > 0:
            yield invalid(f"{path}[{index}]", str(value), "values must be sorted in ascending order")

    def option(value: Quantity, at: str) -> Iterable[Violation]:
        rule = f"option is larger than capacity value: {capacity.value}"
        return (invalid(at, str(value), rule),) if value.compare(capacity.value) > 0 else ()

    yield from _each(option, _MAX_OPTIONS, lambda value: str(value.value()))(values, path)
    # A list that is too long is not looked through.
    if len(values) > _MAX_OPTIONS or all(value.compare(default) for value in values):
        yield invalid(path, str(default), "default value is not valid according to the requestPolicy")


def _policy_range(capacity: DeviceCapacity, path: str) -> Iterator[Violation]:
    policy = capacity.request_policy
    assert policy is not None
    bounds, default = policy.valid_range, policy.default
    assert bounds is not None
    assert default is not None
    least, most, step = bounds.min, bounds.max, bounds.step
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    larger = "is larger than capacity value:"
    # The field, the value shown, whose amount must not exceed the other one, and the rule.
    checks = [
        ("min", least, least, capacity.value, f"min {larger} {capacity.value}"),
        ("min", default, least, default, f"default is less than min: {least}"),
    ]
    if most is not None:
        checks += [
            ("max", least, least, most, f"min is larger than max: {most}"),
            ("max", most, most, capacity.value, f"max {larger} {capacity.value}"),
            ("max", default, default, most, f"default is more than max: {most}"),
        ]
    if step is not None:
        first = least + step
        checks.append(("step", step, first, capacity.value, f"one step {first} {larger} {capacity.value}"))
    for field, shown, lower, upper, rule in checks:
        if lower.compare(upper) > 0:
            yield invalid(f"{path}.{field}", str(shown), rule)
    for value in (default, most) if step is not None and step.value() else ():
        if value is not None and step is not None and (value.value() - least.value()) % step.value():
            rule = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid(f"{path}.step", str(value), rule)


# ---------------------------------------------------------------- the kinds


def _slice(spec: Any, path: str, convert: Convert) -> Iterator[Violation]:
    spec = spec or {}
    yield from _structure({"driver": _DRIVER, "pool": _pool})(spec, path)
    yield from _OF_SLICE(spec, path)
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if "nodeSelector" in spec and len(terms) != 1:
        shown = [_term_as_printed(term) for term in terms]
        rule = "must have exactly one node selector term"
        yield invalid(f"{path}.nodeSelector.nodeSelectorTerms", shown or (), rule)
    if "sharedCounters" in spec and "devices" in spec:
        yield invalid(path, "", "only one of `sharedCounters` or `devices` is allowed")
    devices = spec.get("devices") or ()
    has_details = any(
        device.get("taints")
        or device.get("consumesCounters")
        or any(not _ATTRIBUTE_LISTS.isdisjoint(each) for each in (device.get("attributes") or {}).values())
        for device in devices
    )
    table = {
        "devices": _each(
            _device(convert, is_placed=spec.get("perDeviceNodeSelection", False)),
            _MAX_DEVICES_WITH_DETAILS if has_details else _MAX_DEVICES,
            _named("name"),
        ),
        "sharedCounters": _each(
            _structure({"name": _required(_LABEL), "counters": _COUNTERS}), _MAX_COUNTER_SETS, _named("name")
        ),
    }
    yield from _structure(table)(spec, path)


_ATTRIBUTE_LISTS = frozenset({"ints", "bools", "strings", "versions"})


def _pool(pool: Any, path: str) -> Iterator[Violation]:
    pool = pool or {}
    yield from _POOL(pool.get("name"), f"{path}.name")
    if (count := pool.get("resourceSliceCount") or 0) <= 0:
        yield invalid(f"{path}.resourceSliceCount", count, "must be greater than zero")
    if (generation := pool.get("generation") or 0) < 0:
        yield invalid(f"{path}.generation", generation, "must be greater than or equal to zero")


def _term_as_printed(term: Fields) -> dict[str, Any]:
    """The term as the API server's Go type prints it."""
    return {
        f"{field[0].upper()}{field[1:]}": [
            {
                "Key": each.get("key") or "",
                "Operator": each.get("operator") or "",
                "Values": each.get("values"),
            }
            for each in term.get(field) or ()
        ]
        or None
        for field in ("matchExpressions", "matchFields")
    }


def _extended_resource(name: str, path: str) -> Iterable[Violation]:
    return () if is_extended(name) else (invalid(path, name, "must be a valid extended resource name"),)


_CLAIM_SPEC = _structure({"devices": _device_claim})
_SPECS: Mapping[str, Check] = {
    "ResourceClaim": _CLAIM_SPEC,
    "ResourceClaimTemplate": _structure({"spec": _CLAIM_SPEC}),
    "DeviceClass": _structure(
        {
            "selectors": _SELECTORS,
            "config": _each(_CONFIG, _MAX_ITEMS),
            "extendedResourceName": _optional(_extended_resource),
        }
    ),
    "DeviceTaintRule": _structure(
        {
            "deviceSelector": _structure(
                {"driver": _optional(_DRIVER), "pool": _optional(_POOL), "device": _optional(_LABEL)}
            ),
            "taint": _TAINT,
        }
    ),
}


def device_object_violations(document: Fields, convert: Convert) -> Iterable[Violation]:
    """The violations in the spec of a new object of resource.k8s.io/v1.

    ``convert`` decodes a part of the document.
    Follows: v1.36, pkg/apis/resource/validation/validation.go, ValidateResourceClaim, ValidateResourceClaimTemplate,
        ValidateDeviceClass, ValidateResourceSlice, ValidateDeviceTaintRule.
    Departs: mappings in the order of their keys, where the API server walks maps; lists as attributes are valid, as with
        the gate DRAListTypeAttributes; a status is not judged: schedulers and drivers write it.
    """
    kind, spec = document["kind"], document.get("spec")
    return _slice(spec, "spec", convert) if kind == "ResourceSlice" else _SPECS[kind](spec, "spec")
