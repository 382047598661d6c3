"""Why a quota forbids an object: facts with amounts as in `status.used` and `spec.hard`, and the API server's errors.

Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias, assert_never

import msgspec

from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.cluster_objects import ScopeTerm
from nodewright.model.kubernetes.name_validation import label_value_errors
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.reasons.api_server import aggregate_error, forbidden_error
from nodewright.model.values.golang import quoted
from nodewright.model.values.quantity import ZERO, Quantity


class Unspecified(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that must be requested or limited, and the containers that do not, by name."""

    resource: str
    """As a quota names it: `requests.cpu`, `limits.memory`, …"""
    containers: tuple[str, ...]


class MustSpecify(msgspec.Struct, frozen=True, kw_only=True):
    """A quota on cpu or memory applies to this pod, and some container has no request or limit for them."""

    quota: str
    unspecified: tuple[Unspecified, ...]

    def message(self) -> str:
        return f"failed quota: {self.quota}: {must_specify_message(self.unspecified)}"


class StatusUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a quota has no usage of these resources yet."""

    quota: str
    resources: tuple[str, ...]
    """All the resources of the quota that the object's kind is charged for."""

    def message(self) -> str:
        return f"status unknown for quota: {self.quota}, resources: {','.join(sorted(self.resources))}"


class NegativeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The object would be charged a negative amount."""

    usage: tuple[tuple[str, Quantity], ...]

    def message(self) -> str:
        return f"quota usage is negative for resource(s): {_names(self.usage)}"


class PriorObjectMissing(msgspec.Struct, frozen=True, kw_only=True):
    """An update cannot be charged without the previous version of the object."""

    def message(self) -> str:
        return "unable to get previous usage since prior version of object was not found"


class NoQuotaForResources(msgspec.Struct, frozen=True, kw_only=True):
    """The API server is configured to reject these resources without a quota for them."""

    usage: tuple[tuple[str, Quantity], ...]

    def message(self) -> str:
        return f"insufficient quota to consume: {_names(self.usage)}"


class NoQuotaForScopes(msgspec.Struct, frozen=True, kw_only=True):
    """The API server is configured to reject objects in these scopes without a quota for the scope."""

    terms: tuple[ScopeTerm, ...]

    def message(self) -> str:
        return f"insufficient quota to match these scopes: [{' '.join(map(scope_term_text, self.terms))}]"


class Overrun(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of which a quota has less left than the object is charged."""

    resource: str
    requested: Quantity
    used: Quantity | None
    """None: the quota's status does not name it."""
    limited: Quantity

    @property
    def missing(self) -> Quantity:
        """How much would have to be freed, or added to the quota."""
        return (self.used or ZERO) + self.requested - self.limited


class QuotaExceeded(msgspec.Struct, frozen=True, kw_only=True):
    """A quota has less left than the object would be charged; all its resources that fall short are listed."""

    quota: str
    overruns: tuple[Overrun, ...]

    def message(self) -> str:
        requested = _amounts((overrun.resource, overrun.requested) for overrun in self.overruns)
        used = _amounts((overrun.resource, overrun.used) for overrun in self.overruns)
        limited = _amounts((overrun.resource, overrun.limited) for overrun in self.overruns)
        return f"exceeded quota: {self.quota}, requested: {requested}, used: {used}, limited: {limited}"


class SelectorRule(StrEnum):
    """A rule for scope selectors."""

    OPERATOR = "known operator"
    VALUES_NEEDED = "In and NotIn need values"
    NO_VALUES = "Exists and DoesNotExist have no values"
    LABEL_VALUE = "values are label values"


class SelectorFault(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a scope selector breaks."""

    rule: SelectorRule
    index: int = 0
    """The index of the value that breaks it, if one does."""


class UnreadableScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope selector that cannot be evaluated, and why: at least one fault."""

    term: ScopeTerm
    faults: tuple[SelectorFault, ...]
    lists_as_json: bool = True
    """Whether the API server prints lists as JSON; else as in Go's source."""

    def selector_error(self) -> str:
        """Why the scope selector cannot be parsed.

        Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, ScopedResourceSelectorRequirementsAsSelector;
            apimachinery/pkg/labels/selector.go, NewRequirement.
        """
        faults = aggregate_error(
            _fault_message(self.term, fault, as_json=self.lists_as_json) for fault in self.faults
        )
        return f"failed to parse and convert selector: {faults}"

    def match_error(self) -> str:
        """Why the scope selector cannot be matched.

        Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.MatchingScopes.
        """
        return f"error on matching scope {scope_term_text(self.term)}: {self.selector_error()}"


class QuotaUnreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A scope selector of a quota cannot be evaluated."""

    quota: str
    scope: UnreadableScope

    def message(self) -> str:
        return f"error matching scopes of quota {self.quota}, err: {self.scope.match_error()}"


QuotaReason: TypeAlias = (
    MustSpecify
    | StatusUnknown
    | NegativeUsage
    | PriorObjectMissing
    | NoQuotaForResources
    | NoQuotaForScopes
    | QuotaExceeded
    | QuotaUnreadable
)
"""Why the API server rejects an object because of quotas; `message()` is its error."""


def quota_error(resource: GroupResource, meta: ObjectMeta, reason: QuotaReason) -> str:
    """The whole text with which the API server rejects an object for this reason; errors about scopes omit the object.

    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest.
    """
    if isinstance(reason, NoQuotaForScopes | QuotaUnreadable):
        return reason.message()
    return forbidden_error(resource, meta, reason.message())


def must_specify_message(unspecified: Iterable[Unspecified]) -> str:
    """Which requests and limits containers must have.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Constraints.

    >>> must_specify_message([Unspecified(resource="requests.cpu", containers=("a", "b"))])
    'must specify requests.cpu for: a,b'
    """
    parts = (f"{item.resource} for: {','.join(item.containers)}" for item in unspecified)
    return f"must specify {'; '.join(parts)}"


def scope_term_text(term: ScopeTerm) -> str:
    """A term as Go prints it.

    >>> scope_term_text(ScopeTerm(scope_name="PriorityClass", operator="In", values=("low", "high")))
    '{PriorityClass In [low high]}'
    """
    return f"{{{term.scope_name} {term.operator} [{' '.join(term.values or ())}]}}"


def _fault_message(term: ScopeTerm, fault: SelectorFault, *, as_json: bool) -> str:
    match fault.rule:
        case SelectorRule.OPERATOR:
            return f"{quoted(term.operator)} is not a valid scope selector operator"
        case SelectorRule.VALUES_NEEDED:
            shown = _list_text(term.values, as_json=as_json)
            return f"values: Invalid value: {shown}: for 'in', 'notin' operators, values set can't be empty"
        case SelectorRule.NO_VALUES:
            shown = _list_text(term.values, as_json=as_json)
            return f"values: Invalid value: {shown}: values set must be empty for exists and does not exist"
        case SelectorRule.LABEL_VALUE:
            value = (term.values or ())[fault.index]
            rules = "; ".join(label_value_errors(value))
            return f"values[{fault.index}][{term.scope_name}]: Invalid value: {quoted(value)}: {rules}"
        case _:
            assert_never(fault.rule)


def _list_text(values: tuple[str, ...] | None, *, as_json: bool) -> str:
    """A list as a field error prints it; a missing one is null."""
    if as_json:
        import json  # noqa: PLC0415 - start-up time

        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return "[]string(nil)" if values is None else f"[]string{{{', '.join(map(quoted, values))}}}"


def _names(usage: Iterable[tuple[str, Quantity]]) -> str:
    return ",".join(sorted(name for name, _ in usage))


def _amounts(amounts: Iterable[tuple[str, Quantity | None]]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts) if amount is not None)
