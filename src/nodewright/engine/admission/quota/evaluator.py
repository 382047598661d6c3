"""Quota evaluators: the usage of a kind of objects, the resources it is charged for, its scopes; Services."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from nodewright.model.kubernetes.api_request import APIObject, APIRequest, GroupResource, Operation
from nodewright.model.kubernetes.name_validation import is_label_value
from nodewright.model.kubernetes.namespace_objects import ResourceQuota, ScopeTerm, Service
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.reasons.quota import SelectorFault, SelectorRule, UnreadableScope, Unspecified
from nodewright.model.values.quantity import Quantity

T = TypeVar("T", bound=APIObject)

ONE_OBJECT = Quantity.of(1)


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

_LEGACY_NAMES = {
    GroupResource("configmaps"): "configmaps",
    GroupResource("resourcequotas"): "resourcequotas",
    GroupResource("replicationcontrollers"): "replicationcontrollers",
    GroupResource("secrets"): "secrets",
}


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

_SERVICE_COUNT = object_count_name(SERVICE_RESOURCE)
_SERVICES, _NODE_PORTS, _LOAD_BALANCERS = "services", "services.nodeports", "services.loadbalancers"
_SERVICE_NAMES = frozenset({_SERVICE_COUNT, _SERVICES, _NODE_PORTS, _LOAD_BALANCERS})


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


SERVICE_EVALUATOR: QuotaEvaluator[Service] = QuotaEvaluator(
    resource=SERVICE_RESOURCE,
    usage=service_usage,
    is_charged_for=_SERVICE_NAMES.__contains__,
    is_handled=creates_or_updates,
)
"""Services.

Follows: v1.36, pkg/quota/v1/evaluator/core/services.go, serviceEvaluator.
"""
