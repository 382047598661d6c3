"""Validation of requests, limits and overhead: names, amounts and their relations."""

from collections.abc import Callable, Iterator, Mapping

from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, label_key_errors
from nodewright.model.kubernetes.objects import ResourceList, ResourceRequirements
from nodewright.model.kubernetes.resource_names import (
    CPU,
    HUGE_PAGES_PREFIX,
    MEMORY,
    is_extended,
    is_huge_page,
    is_native,
    is_supported_pod_level,
    resource_sort_key,
)
from nodewright.model.values.bounded_cache import cached_texts
from nodewright.model.values.quantity import Quantity, QuantityError

NameRule = Callable[[str], tuple[tuple[ErrorType, str], ...]]

INTEGER_RESOURCES = frozenset(
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
"""Objects that namespaces count, by their quota names."""
_OF_CONTAINERS = frozenset({CPU, MEMORY, "ephemeral-storage"})
_STANDARD = (
    _OF_CONTAINERS
    | INTEGER_RESOURCES
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
_PLAIN = frozenset({CPU, MEMORY})
_QUOTA_HUGE_PAGES_PREFIX = f"requests.{HUGE_PAGES_PREFIX}"


def resource_violations(
    resources: ResourceRequirements, path: str, claims: frozenset[str]
) -> Iterator[Violation]:
    """The violations in a container's requests and limits. `claims` are the names of the pod's claims.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateContainerResourceRequirements.
    """
    return _violations(resources, path, claims, _container_name_rules)


def pod_level_violations(
    resources: ResourceRequirements, path: str, claims: frozenset[str] = frozenset()
) -> Iterator[Violation]:
    """The violations in the requests and limits of `spec.resources` by themselves; the pod has these claims.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResourceRequirements.
    """
    return _violations(resources, path, claims, _pod_level_name_rules)


def _violations(
    resources: ResourceRequirements, path: str, claims: frozenset[str], name_rules: NameRule
) -> Iterator[Violation]:
    requests, limits = resources.requests, resources.limits
    if not _are_plain(limits) or not _are_plain(requests) or not _are_within(requests, limits):
        yield from _amounts_violations(requests, limits, path, name_rules)
    if resources.claims:
        yield from _claim_violations(resources, f"{path}.claims", claims)


def _are_plain(amounts: ResourceList) -> bool:
    """Whether all amounts are of resources without special rules, and not negative; most are."""
    return all(name in _PLAIN and amount.unscaled >= 0 for name, amount in amounts.items())


def _are_within(requests: ResourceList, limits: ResourceList) -> bool:
    return all(name not in limits or requests[name] <= limits[name] for name in requests)


def _amounts_violations(
    requests: ResourceList, limits: ResourceList, path: str, name_rules: NameRule
) -> Iterator[Violation]:
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name in sorted(amounts, key=resource_sort_key):
            yield from _amount_violations(name, amounts[name], f"{path}.{side}[{name}]", name_rules)
            if side == "requests":
                yield from _request_limit_violations(name, amounts[name], limits.get(name), path)
    names = requests.keys() | limits.keys()
    if any(map(is_huge_page, names)) and names.isdisjoint((CPU, MEMORY)):
        yield forbidden(path, "HugePages require cpu or memory")


def _amount_violations(name: str, amount: Quantity, path: str, name_rules: NameRule) -> Iterator[Violation]:
    for error, rule in name_rules(name):
        yield Violation(path, error, name, rule)
    if amount.sign() < 0:
        yield invalid(path, str(amount), "must be greater than or equal to 0")
    if (name in INTEGER_RESOURCES or is_extended(name)) and amount.milli_value() % 1000:
        yield invalid(path, str(amount), "must be an integer")
    if is_huge_page(name) and not _is_whole_pages(name, amount):
        yield invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")


def _request_limit_violations(
    name: str, request: Quantity, limit: Quantity | None, path: str
) -> Iterator[Violation]:
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
    """Whether the amount is a multiple of the page size in the name.

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
    """The violations in the names of resource claims.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResourceClaimNames.
    """
    seen: set[str] = set()
    for index, claim in enumerate(resources.claims):
        claim_path = f"{path}[{index}]"
        name, request = str(claim.get("name") or ""), str(claim.get("request") or "")
        if not name:
            yield required(claim_path)
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            yield duplicate(claim_path, name)
        else:
            if request:
                yield from each_invalid(f"{claim_path}.request", request, dns1123_label_errors(request))
            if key in seen or (not request and any(other.startswith(f"{name}/") for other in seen)):
                yield duplicate(claim_path, key)
            seen.add(key)
        if name not in claims:
            listed = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            rule = f"must be one of the names in pod.spec.resourceClaims{listed}"
            yield Violation(claim_path, ErrorType.NOT_FOUND, name, rule)


# ------------------------------------------------------------ names


@cached_texts(4096)
def _container_name_rules(name: str) -> tuple[tuple[ErrorType, str], ...]:
    """The rules that the name breaks as a container's resource.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerResourceName.
    """
    rules = list(_name_rules(name))
    if "/" not in name:
        if name not in _OF_CONTAINERS and not is_huge_page(name):
            rules.append((ErrorType.INVALID, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        rules.append((ErrorType.INVALID, "doesn't follow extended resource name standard"))
    return tuple(rules)


@cached_texts(4096)
def _pod_level_name_rules(name: str) -> tuple[tuple[ErrorType, str], ...]:
    """The rules that the name breaks as a pod-level resource.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResourceName.
    """
    rules = _name_rules(name)
    if rules or is_supported_pod_level(name):
        return rules
    error = not_supported("", name, (CPU, HUGE_PAGES_PREFIX, MEMORY))
    return ((error.type, error.rule),)


def _name_rules(name: str) -> tuple[tuple[ErrorType, str], ...]:
    rules = label_key_errors(name)
    if not rules and "/" not in name and not is_standard(name):
        rules = ["must be a standard resource type or fully qualified"]
    return tuple((ErrorType.INVALID, rule) for rule in rules)


def resource_name_violations(name: str, path: str) -> Iterator[Violation]:
    """The violations of the name as any resource.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResourceName.
    """
    return (Violation(path, error, name, rule) for error, rule in _name_rules(name))


def container_resource_name_violations(name: str, path: str) -> Iterator[Violation]:
    """The violations of the name as a container's resource."""
    return (Violation(path, error, name, rule) for error, rule in _container_name_rules(name))


def is_standard(name: str) -> bool:
    """Whether a resource name without a domain is a standard one, in a pod or in a quota.

    Follows: v1.36, pkg/apis/core/helper/helpers.go, IsStandardResourceName.
    """
    return name in _STANDARD or is_huge_page(name) or name.startswith(_QUOTA_HUGE_PAGES_PREFIX)


def pod_level_excess_violations(
    resources: ResourceRequirements, requests: ResourceList, limits: ResourceList, path: str
) -> Iterator[Violation]:
    """The pod-level amounts below the containers' sums.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResourceConsistency.
    """
    for side, total, pod_level in _sides(resources, requests, limits):
        for name in sorted(total, key=resource_sort_key):
            if name in pod_level and total[name] > pod_level[name]:
                rule = f"must be greater than or equal to aggregate container {side} of {total[name]}"
                yield invalid(f"{path}.{side}[{name}]", str(pod_level[name]), rule)


def _sides(
    resources: ResourceRequirements, requests: ResourceList, limits: ResourceList
) -> Iterator[tuple[str, Mapping[str, Quantity], Mapping[str, Quantity]]]:
    yield "requests", requests, resources.requests
    # Only the huge page limits of all containers together must not exceed the pod's.
    yield "limits", {name: limits[name] for name in limits if is_huge_page(name)}, resources.limits
