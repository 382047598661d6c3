"""Quota evaluators: the usage of a kind of objects, the resources it is charged for, its scopes; Services.

Also the arithmetic on resource lists as quotas use it, and the usage of a namespace's objects. Each function of the arithmetic
states how it treats names that only one list has.

Follows: v1.36, apiserver/pkg/quota/v1/resources.go.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.resource_defaults import rounded_to_milli
from nodewright.model.kubernetes.api_request import APIObject, APIRequest, GroupResource, Operation
from nodewright.model.kubernetes.cluster_objects import (
    ResourceQuota,
    ResourceQuotaStatus,
    ScopeTerm,
    Service,
)
from nodewright.model.kubernetes.name_validation import is_label_value
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.reasons.quota import SelectorFault, SelectorRule, UnreadableScope, Unspecified
from nodewright.model.values.quantity import Quantity, QuantityFormat

T = TypeVar("T", bound=APIObject)

ONE_OBJECT = Quantity.of(1)

ZERO_AMOUNT = Quantity(0, 0, QuantityFormat.DECIMAL_SI)


class EvaluatorScopes(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The quota scopes of a kind."""

    matches: Callable[[ScopeTerm, T], bool]
    """Whether an object matches a valid term."""
    selectable: str
    """The scope with values that a term may select; the operator is ignored for other scopes."""
    lists_as_json: bool = True
    """Whether errors print lists of values as JSON."""
    exist: bool = True
    """Whether the API server has these scopes; if not, nothing matches them and nothing is uncovered."""


class QuotaEvaluator(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """How quotas charge a kind of objects.

    Follows: v1.36, apiserver/pkg/quota/v1/interfaces.go, Evaluator.
    """

    resource: GroupResource
    usage: Callable[[T], ResourceList]
    is_charged_for: Callable[[str], bool]
    """Whether objects of this kind may be charged for the quota's resource."""
    is_handled: Callable[[APIRequest[T]], bool]
    """Whether a request can change the usage."""
    scopes: EvaluatorScopes[T] | None = None
    """None: no object of this kind is in any scope."""
    unspecified_resources: Callable[[Iterable[str], T], tuple[Unspecified, ...]] | None = None
    """What the object must specify, and does not, where a quota names these resources; None: nothing."""

    def matching_resources(self, names: Iterable[str]) -> tuple[str, ...]:
        """The resources that objects of this kind may be charged for, sorted."""
        return tuple(sorted(filter(self.is_charged_for, names)))

    def is_in_scope(self, term: ScopeTerm, item: T) -> bool:
        """Whether the object matches a valid term."""
        return self.scopes is not None and self.scopes.exist and self.scopes.matches(term, item)

    def first_invalid_term(self, terms: Iterable[ScopeTerm]) -> UnreadableScope | None:
        """The first invalid term."""
        if self.scopes is None:
            return None
        for term in terms:
            if term.scope_name == self.scopes.selectable and term.operator != "Exists":
                faults = selector_faults(term)
                if faults:
                    return UnreadableScope(term=term, faults=faults, lists_as_json=self.scopes.lists_as_json)
        return None

    def matching_scopes(self, terms: Iterable[ScopeTerm], item: T) -> tuple[ScopeTerm, ...]:
        """The terms, all of them valid, that the object matches."""
        return tuple(term for term in terms if self.is_in_scope(term, item))

    def uncovered_scopes(
        self, required: Sequence[ScopeTerm], matched: Iterable[ScopeTerm]
    ) -> tuple[ScopeTerm, ...]:
        """The required terms with a scope that no matched term has.

        Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.UncoveredQuotaScopes.
        """
        scopes = {term.scope_name for term in matched}
        exist = self.scopes is not None and self.scopes.exist
        return tuple(term for term in required if exist and term.scope_name not in scopes)

    def matches_quota(self, quota: ResourceQuota, item: T) -> bool:
        """Whether the quota, with valid terms only, applies to the object.

        Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, Matches.
        """
        return any(map(self.is_charged_for, quota.status.hard)) and all(
            self.is_in_scope(term, item) for term in quota.spec.terms
        )


def selects(term: ScopeTerm, value: str | None) -> bool:
    """Whether a valid term selects the value; None: the object has none.

    Follows: v1.36, apimachinery/pkg/labels/selector.go, Requirement.Matches.
    """
    match term.operator:
        case "In":
            return value is not None and value in (term.values or ())
        case "NotIn":
            return value is None or value not in (term.values or ())
        case "Exists":
            return value is not None
        case _:
            return value is None


def selector_faults(term: ScopeTerm) -> tuple[SelectorFault, ...]:
    """The faults that make a term invalid.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, ScopedResourceSelectorRequirementsAsSelector.
    """
    values = term.values or ()
    faults = []
    match term.operator:
        case "In" | "NotIn":
            if not values:
                faults.append(SelectorFault(rule=SelectorRule.VALUES_NEEDED))
        case "Exists" | "DoesNotExist":
            if values:
                faults.append(SelectorFault(rule=SelectorRule.NO_VALUES))
        case _:
            return (SelectorFault(rule=SelectorRule.OPERATOR),)
    for index, value in enumerate(values):
        if not is_label_value(value):
            faults.append(SelectorFault(rule=SelectorRule.LABEL_VALUE, index=index))
    return tuple(faults)


# ---------------------------------------------------------------- kinds that are only counted


ObjectCountEvaluator: TypeAlias = QuotaEvaluator[APIObject]
"""The evaluator of a kind that is only counted."""


def object_count_name(resource: GroupResource) -> str:
    """The quota resource that counts the objects of this kind.

    Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, ObjectCountQuotaResourceNameFor.

    >>> object_count_name(GroupResource("deployments", "apps"))
    'count/deployments.apps'
    """
    return f"count/{resource}"


def object_count_evaluator(resource: GroupResource) -> ObjectCountEvaluator:
    """The evaluator of a kind that is only counted, on creation.

    Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, objectCountEvaluator.
    """
    names = [object_count_name(resource), *filter(None, [_LEGACY_NAMES.get(resource)])]
    usage = dict.fromkeys(names, ONE_OBJECT)
    return QuotaEvaluator(
        resource=resource,
        usage=lambda _: usage,
        is_charged_for=usage.__contains__,
        is_handled=lambda request: request.operation is Operation.CREATE and not request.subresource,
    )


def creates_or_updates(request: APIRequest[APIObject]) -> bool:
    """Whether the request creates or updates an object itself, not a subresource."""
    return request.operation in (Operation.CREATE, Operation.UPDATE) and not request.subresource


SERVICE_RESOURCE = GroupResource("services")


def service_usage(service: Service) -> ResourceList:
    """The Service's usage: itself, its node ports and its load balancer.

    Node ports are counted before they are allocated: one for each port, unless a load balancer disables them.
    Follows: v1.36, pkg/quota/v1/evaluator/core/services.go, serviceEvaluator.Usage.
    """
    spec = service.spec
    node_ports = load_balancers = 0
    if spec.type == "NodePort":
        node_ports = len(spec.ports)
    elif spec.type == "LoadBalancer":
        load_balancers = 1
        allocates_all = spec.allocate_load_balancer_node_ports is not False
        node_ports = len(spec.ports) if allocates_all else sum(port.node_port != 0 for port in spec.ports)
    return {
        _SERVICE_COUNT: ONE_OBJECT,
        _SERVICES: ONE_OBJECT,
        _NODE_PORTS: Quantity.of(node_ports),
        _LOAD_BALANCERS: Quantity.of(load_balancers),
    }


_SERVICE_COUNT = object_count_name(SERVICE_RESOURCE)
_SERVICES, _NODE_PORTS, _LOAD_BALANCERS = "services", "services.nodeports", "services.loadbalancers"
_SERVICE_NAMES = frozenset({_SERVICE_COUNT, _SERVICES, _NODE_PORTS, _LOAD_BALANCERS})

SERVICE_EVALUATOR: QuotaEvaluator[Service] = QuotaEvaluator(
    resource=SERVICE_RESOURCE,
    usage=service_usage,
    is_charged_for=_SERVICE_NAMES.__contains__,
    is_handled=creates_or_updates,
)
"""Services.

Follows: v1.36, pkg/quota/v1/evaluator/core/services.go, serviceEvaluator.
"""

_LEGACY_NAMES = {
    GroupResource("configmaps"): "configmaps",
    GroupResource("resourcequotas"): "resourcequotas",
    GroupResource("replicationcontrollers"): "replicationcontrollers",
    GroupResource("secrets"): "secrets",
}


# ---------------------------------------------------------------- arithmetic on resource lists


def are_equal(a: ResourceList, b: ResourceList) -> bool:
    """Whether both name the same resources with the same amounts."""
    return a == b


def exceeding(a: ResourceList, limits: ResourceList) -> tuple[str, ...]:
    """The resources that exceed their limit; names that only one list has do not count."""
    return tuple(name for name in sorted(limits) if name in a and a[name].compare(limits[name]) > 0)


def maximum(a: ResourceList, b: ResourceList) -> ResourceList:
    """The greater amount of each resource; the one of ``b`` if they are equal."""
    greatest = dict(b)
    for name, amount in a.items():
        other = b.get(name)
        if other is None or amount.compare(other) > 0:
            greatest[name] = amount
    return greatest


def total(a: ResourceList, b: ResourceList) -> ResourceList:
    """The sum of each resource."""
    sums = dict(a)
    for name, amount in b.items():
        before = a.get(name)
        sums[name] = amount if before is None else before + amount
    return sums


def difference(a: ResourceList, b: ResourceList) -> ResourceList:
    """``a`` minus ``b``; negative amounts for names that only ``b`` has."""
    amounts = {name: amount - b[name] if name in b else amount for name, amount in a.items()}
    return {**amounts, **{name: -amount for name, amount in b.items() if name not in a}}


def positive_difference(a: ResourceList, b: ResourceList) -> ResourceList:
    """``a`` minus ``b``, zero where that is negative and for names that only ``b`` has."""
    differences = {name: amount - b[name] if name in b else amount for name, amount in a.items()}
    increases = {name: amount if amount.sign() > 0 else ZERO_AMOUNT for name, amount in differences.items()}
    return dict.fromkeys(b, ZERO_AMOUNT) | increases


def masked(amounts: ResourceList, names: Iterable[str]) -> ResourceList:
    """The amounts of these resources."""
    kept_names = frozenset(names)
    return {name: amount for name, amount in amounts.items() if name in kept_names}


def is_zero(amounts: ResourceList) -> bool:
    """Whether all amounts are zero."""
    return all(amount.is_zero() for amount in amounts.values())


def without_zeros(amounts: ResourceList) -> ResourceList:
    """The amounts that are not zero."""
    return {name: amount for name, amount in amounts.items() if not amount.is_zero()}


def negative(amounts: ResourceList) -> tuple[str, ...]:
    """The resources with a negative amount."""
    return tuple(name for name in sorted(amounts) if amounts[name].sign() < 0)


def common_names(a: Iterable[str], b: Iterable[str]) -> tuple[str, ...]:
    """The names that both lists have, sorted, each once."""
    return tuple(sorted(frozenset(a) & frozenset(b)))


def names_only_in_first(a: Iterable[str], b: Iterable[str]) -> tuple[str, ...]:
    """The names that only ``a`` has, sorted, each once."""
    return tuple(sorted(frozenset(a) - frozenset(b)))


class NamespaceObjects(msgspec.Struct, Generic[T], frozen=True):
    """All the objects of a kind in a namespace."""

    kind: QuotaEvaluator[T]
    objects: Sequence[T]


def usage_of(
    kind: QuotaEvaluator[T], items: Iterable[T], names: Iterable[str], terms: Sequence[ScopeTerm]
) -> ResourceList:
    """The total usage of the objects that match all terms, zero for names that they do not use.

    With an invalid term nothing is counted, without an error.
    Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, CalculateUsageStats.
    """
    used: ResourceList = dict.fromkeys(names, ZERO_AMOUNT)
    if kind.first_invalid_term(terms) is not None:
        return used
    for item in items:
        if all(kind.is_in_scope(term, item) for term in terms):
            used = total(used, kind.usage(item))
    return used


def with_calculated_usage(
    quota: ResourceQuota, populations: Sequence[NamespaceObjects[Any]]
) -> ResourceQuota:
    """The quota with the status that the quota controller calculates from all objects.

    The usage of resources that no population is charged for stays as in the status, or unknown.
    Follows: v1.36, apiserver/pkg/quota/v1/resources.go, CalculateUsage;
        pkg/controller/resourcequota/resource_quota_controller.go, syncResourceQuota.
    """
    hard = quota.spec.hard
    used = dict(quota.status.used)
    usage: ResourceList = {}
    tracked: set[str] = set()
    for population in populations:
        names = population.kind.matching_resources(hard)
        if names:
            tracked.update(names)
            usage = total(usage, usage_of(population.kind, population.objects, names, quota.spec.terms))
    used.update(masked(usage, tracked))
    return replace(quota, status=ResourceQuotaStatus(hard=hard, used=masked(used, hard)))


def used_as_stored(used: ResourceList, before: ResourceList) -> ResourceList:
    """The used amounts as they are read again after they were written: the notation of each follows from its text.

    ``before``: the amounts before the last charge, which are stored already.

    A sum keeps the notation of the amount that is added to (`Quantity.__add__`), which is that of the stored text:
    `1Ki` and 1536 bytes are stored as `2560`, so that another 1536 make `4096` and not `4Ki`.
    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, checkQuotas, which updates the status.
    """
    return {
        name: amount if amount is before.get(name) else amount.as_stored() for name, amount in used.items()
    }


def charged_quota_as_stored(before: ResourceQuota, after: ResourceQuota) -> ResourceQuota:
    """The quota after a charge as it is read again."""
    if after is before:
        return after
    used = used_as_stored(after.status.used, before.status.used)
    return replace(after, status=replace(after.status, used=used))


def quota_as_stored(quota: ResourceQuota) -> ResourceQuota:
    """The quota as the API server stores it: amounts rounded up to thousandths.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_ResourceList.
    """
    status = ResourceQuotaStatus(
        hard=rounded_to_milli(quota.status.hard), used=rounded_to_milli(quota.status.used)
    )
    return replace(quota, spec=replace(quota.spec, hard=rounded_to_milli(quota.spec.hard)), status=status)
