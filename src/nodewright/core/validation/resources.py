"""Requests, limits and overhead: names, amounts, and what they must have to do with one another."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from nodewright.core.validation.names import key_rules, label_rules
from nodewright.core.validation.violation import (
    ErrorType,
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.objects import ResourceList, ResourceRequirements
from nodewright.model.resource_names import (
    CPU,
    HUGE_PAGES_PREFIX,
    MEMORY,
    in_order,
    is_extended,
    is_huge_page,
    is_native,
    is_pod_level,
)
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.values.units import fits_int64

NameRule = Callable[[str], tuple[tuple[ErrorType, str], ...]]

COUNTED = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
"""What namespaces have a number of, under the names that quotas give them."""
_OF_CONTAINERS = frozenset({CPU, MEMORY, "ephemeral-storage"})
_STANDARD = (
    _OF_CONTAINERS
    | COUNTED
    | {
        "storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
_QUOTA_HUGE_PAGES_PREFIX = f"requests.{HUGE_PAGES_PREFIX}"


def container_violations(
    resources: ResourceRequirements, path: str, claims: frozenset[str]
) -> Iterator[Violation]:
    """What the API server has against a container's requests and limits. `claims` are the pod's, by name.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateContainerResourceRequirements.
    """
    return _violations(resources, path, claims, _container_name_rules)


def pod_level_violations(resources: ResourceRequirements, path: str) -> Iterator[Violation]:
    """What the API server has against the requests and limits of `spec.resources` by themselves.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResourceRequirements.
    """
    return _violations(resources, path, frozenset(), _pod_level_name_rules)


def _violations(
    resources: ResourceRequirements, path: str, claims: frozenset[str], name_rules: NameRule
) -> Iterator[Violation]:
    requests, limits = resources.requests, resources.limits
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name in sorted(amounts, key=in_order):
            yield from _amount_violations(name, amounts[name], f"{path}.{side}[{name}]", name_rules)
            if side == "requests":
                yield from _against_limit(name, amounts[name], limits.get(name), path)
    names = requests.keys() | limits.keys()
    if any(map(is_huge_page, names)) and names.isdisjoint((CPU, MEMORY)):
        yield forbidden(path, "HugePages require cpu or memory")
    yield from _claim_violations(resources, f"{path}.claims", claims)


def _amount_violations(name: str, amount: Quantity, path: str, name_rules: NameRule) -> Iterator[Violation]:
    for error, rule in name_rules(name):
        yield Violation(path, error, name, rule)
    if amount.sign() < 0:
        yield invalid(path, str(amount), "must be greater than or equal to 0")
    if (name in COUNTED or is_extended(name)) and amount.milli_value() % 1000:
        yield invalid(path, str(amount), "must be an integer")
    if is_huge_page(name) and not _is_whole_pages(name, amount):
        yield invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")
    yield from _overflow(name, amount, path)


def _overflow(name: str, amount: Quantity, path: str) -> Iterator[Violation]:
    """The amount, if the kubelet cannot count it.

    Departs: the API server takes such amounts; the kubelet and the scheduler then calculate with what is
        left of them in 64 bits, which may be anything.
    """
    power, unit = (3, "thousandths of a CPU") if name == CPU else (0, "whole units")
    power += amount.scale
    exact = amount.unscaled * 10**power if power >= 0 else -(-amount.unscaled // 10**-power)
    if exact <= 0 or fits_int64(exact):
        return
    counted = amount.milli_value() if name == CPU else amount.value()
    rule = f"is too large: Kubernetes counts {unit} in 64 bits, where this comes to {counted}"
    yield invalid(path, str(amount), rule)


def _against_limit(name: str, request: Quantity, limit: Quantity | None, path: str) -> Iterator[Violation]:
    overcommit = is_native(name) and not is_huge_page(name)
    if limit is None:
        if not overcommit:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif request != limit and not overcommit:
        yield invalid(f"{path}.requests", str(request), f"must be equal to {name} limit of {limit}")
    elif request > limit:
        yield invalid(
            f"{path}.requests", str(request), f"must be less than or equal to {name} limit of {limit}"
        )


def _is_whole_pages(name: str, amount: Quantity) -> bool:
    """Whether the amount is a multiple of the page size that the name tells.

    Follows: v1.36, pkg/apis/core/helper/helpers.go, IsHugePageResourceValueDivisible.
    """
    try:
        size = Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX))
    except QuantityError:
        return False
    if size.sign() <= 0 or size.milli_value() % 1000 or not size.value():
        return False
    return amount.value() % size.value() == 0


def _claim_violations(
    resources: ResourceRequirements, path: str, claims: frozenset[str]
) -> Iterator[Violation]:
    """What is wrong with the names of resource claims.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResourceClaimNames.
    """
    seen: set[str] = set()
    for index, claim in enumerate(resources.claims):
        here = f"{path}[{index}]"
        name, request = str(claim.get("name") or ""), str(claim.get("request") or "")
        if not name:
            yield required(here)
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            yield duplicate(here, name)
        else:
            if request:
                yield from each_invalid(f"{here}.request", request, label_rules(request))
            if key in seen or (not request and any(one.startswith(f"{name}/") for one in seen)):
                yield duplicate(here, key)
            seen.add(key)
        if name not in claims:
            listed = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            rule = f"must be one of the names in pod.spec.resourceClaims{listed}"
            yield Violation(here, ErrorType.NOT_FOUND, name, rule)


# ------------------------------------------------------------ names


@lru_cache(maxsize=4096)
def _container_name_rules(name: str) -> tuple[tuple[ErrorType, str], ...]:
    """What keeps the name from being that of a container's resource.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerResourceName.
    """
    found = list(_name_rules(name))
    if "/" not in name:
        if name not in _OF_CONTAINERS and not is_huge_page(name):
            found.append((ErrorType.INVALID, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        found.append((ErrorType.INVALID, "doesn't follow extended resource name standard"))
    return tuple(found)


@lru_cache(maxsize=4096)
def _pod_level_name_rules(name: str) -> tuple[tuple[ErrorType, str], ...]:
    """What keeps the name from being that of a pod-level resource.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResourceName.
    """
    found = _name_rules(name)
    if found or is_pod_level(name):
        return found
    error = not_supported("", name, (CPU, HUGE_PAGES_PREFIX, MEMORY))
    return ((error.type, error.rule),)


def _name_rules(name: str) -> tuple[tuple[ErrorType, str], ...]:
    rules = key_rules(name)
    if not rules and "/" not in name and not is_standard(name):
        rules = ["must be a standard resource type or fully qualified"]
    return tuple((ErrorType.INVALID, rule) for rule in rules)


def name_violations(name: str, path: str) -> Iterator[Violation]:
    """What keeps the name from being that of any resource.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResourceName.
    """
    return (Violation(path, error, name, rule) for error, rule in _name_rules(name))


def container_name_violations(name: str, path: str) -> Iterator[Violation]:
    """What keeps the name from being that of a container's resource; else as name_violations."""
    return (Violation(path, error, name, rule) for error, rule in _container_name_rules(name))


def is_standard(name: str) -> bool:
    """Whether a resource without a domain in its name is one of Kubernetes, in a pod or in a quota.

    Follows: v1.36, pkg/apis/core/helper/helpers.go, IsStandardResourceName.
    """
    return name in _STANDARD or is_huge_page(name) or name.startswith(_QUOTA_HUGE_PAGES_PREFIX)


def over_pod_level(
    resources: ResourceRequirements, requests: ResourceList, limits: ResourceList, path: str
) -> Iterator[Violation]:
    """Where the containers together ask for more than the pod level gives.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResourceConsistency.
    """
    for side, total, given in _sides(resources, requests, limits):
        for name in sorted(total, key=in_order):
            if name in given and total[name] > given[name]:
                rule = f"must be greater than or equal to aggregate container {side} of {total[name]}"
                yield invalid(f"{path}.{side}[{name}]", str(given[name]), rule)


def _sides(
    resources: ResourceRequirements, requests: ResourceList, limits: ResourceList
) -> Iterator[tuple[str, Mapping[str, Quantity], Mapping[str, Quantity]]]:
    yield "requests", requests, resources.requests
    # Only huge pages may not be limited to more by the containers together than by the pod.
    yield "limits", {name: limits[name] for name in limits if is_huge_page(name)}, resources.limits
