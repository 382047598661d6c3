"""What quotas know of a kind of objects: its usage, the resources it is charged for, its scopes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from nodewright.model.api_request import APIObject, APIRequest, GroupResource, Operation
from nodewright.model.objects import ResourceList
from nodewright.model.quota_objects import ResourceQuota, ScopeTerm
from nodewright.model.quota_reasons import SelectorFault, SelectorRule, UnreadableScope, Unspecified
from nodewright.values.names import is_label_value
from nodewright.values.quantity import Quantity

T = TypeVar("T", bound=APIObject)

ONE = Quantity.of(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes(Generic[T]):
    """The scopes of a kind."""

    matches: Callable[[ScopeTerm, T], bool]
    """Whether an object matches a term that can be read."""
    selectable: str
    """The scope whose values a term may select; of other scopes the operator is not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """What quotas know of a kind of objects.

    Follows: v1.36, apiserver/pkg/quota/v1/interfaces.go, Evaluator.
    """

    resource: GroupResource
    usage: Callable[[T], ResourceList]
    is_charged_for: Callable[[str], bool]
    """Whether a resource of a quota is one that objects of this kind may be charged for."""
    is_handled: Callable[[APIRequest[T]], bool]
    """Whether a request can change what is in use."""
    scopes: Scopes[T] | None = None
    """None: no object of this kind is in any scope."""
    unspecified: Callable[[Iterable[str], T], tuple[Unspecified, ...]] | None = None
    """What the object must specify and does not, if a quota names these resources; None: nothing ever."""

    def own(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the resources that objects of this kind may be charged for, sorted."""
        return tuple(sorted(filter(self.is_charged_for, names)))

    def is_in_scope(self, term: ScopeTerm, item: T) -> bool:
        """Whether the object matches a term that can be read."""
        return self.scopes is not None and self.scopes.matches(term, item)

    def first_unreadable(self, terms: Iterable[ScopeTerm]) -> UnreadableScope | None:
        """The first term that cannot be read."""
        if self.scopes is None:
            return None
        for term in terms:
            if term.scope_name == self.scopes.selectable and term.operator != "Exists":
                faults = selector_faults(term)
                if faults:
                    return UnreadableScope(term=term, faults=faults)
        return None

    def matching(self, terms: Iterable[ScopeTerm], item: T) -> tuple[ScopeTerm, ...]:
        """The terms, all of which can be read, that the object matches."""
        return tuple(term for term in terms if self.is_in_scope(term, item))

    def uncovered(self, wanted: Sequence[ScopeTerm], had: Iterable[ScopeTerm]) -> tuple[ScopeTerm, ...]:
        """The terms wanted whose scope is not among those had.

        Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.UncoveredQuotaScopes.
        """
        scopes = {term.scope_name for term in had}
        return tuple(term for term in wanted if self.scopes is not None and term.scope_name not in scopes)

    def is_bound_by(self, quota: ResourceQuota, item: T) -> bool:
        """Whether the quota, all of whose terms can be read, is for the object.

        Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, Matches.
        """
        return any(map(self.is_charged_for, quota.status.hard)) and all(
            self.is_in_scope(term, item) for term in quota.spec.terms
        )


def selects(term: ScopeTerm, value: str | None) -> bool:
    """Whether a term that can be read selects the value; None: the object has none.

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
    """What keeps a term from being read.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, ScopedResourceSelectorRequirementsAsSelector.
    """
    values = term.values or ()
    found = []
    match term.operator:
        case "In" | "NotIn":
            if not values:
                found.append(SelectorFault(rule=SelectorRule.VALUES_NEEDED))
        case "Exists" | "DoesNotExist":
            if values:
                found.append(SelectorFault(rule=SelectorRule.NO_VALUES))
        case _:
            return (SelectorFault(rule=SelectorRule.OPERATOR),)
    for index, value in enumerate(values):
        if not is_label_value(value):
            found.append(SelectorFault(rule=SelectorRule.LABEL_VALUE, index=index))
    return tuple(found)


# ---------------------------------------------------------------- kinds of which only the number counts


AnyKind: TypeAlias = Kind[APIObject]
"""A kind whose objects are only counted."""

_FORMER_NAMES = {
    GroupResource("configmaps"): "configmaps",
    GroupResource("resourcequotas"): "resourcequotas",
    GroupResource("replicationcontrollers"): "replicationcontrollers",
    GroupResource("secrets"): "secrets",
}


def count_of(resource: GroupResource) -> str:
    """The name under which quotas count objects.

    Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, ObjectCountQuotaResourceNameFor.

    >>> count_of(GroupResource("deployments", "apps"))
    'count/deployments.apps'
    """
    return f"count/{resource}"


def counted(resource: GroupResource) -> AnyKind:
    """The kind whose objects are only counted, when they are created.

    Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, objectCountEvaluator.
    """
    names = [count_of(resource), *filter(None, [_FORMER_NAMES.get(resource)])]
    usage = dict.fromkeys(names, ONE)
    return Kind(
        resource=resource,
        usage=lambda _: usage,
        is_charged_for=usage.__contains__,
        is_handled=lambda request: request.operation is Operation.CREATE and not request.subresource,
    )


def creates_or_updates(request: APIRequest[APIObject]) -> bool:
    """Whether the request is to make or change an object itself, not a part of it."""
    return request.operation in (Operation.CREATE, Operation.UPDATE) and not request.subresource
