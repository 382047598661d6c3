"""What the API server says of quotas, to the letter."""

import json
from collections.abc import Iterable
from typing import assert_never

from nodewright.core.validation.names import value_rules
from nodewright.model.api_request import GroupResource
from nodewright.model.objects import ObjectMeta
from nodewright.model.quota_objects import ScopeTerm
from nodewright.model.quota_reasons import (
    MustSpecify,
    NegativeUsage,
    NoQuotaForResources,
    NoQuotaForScopes,
    PriorObjectMissing,
    QuotaExceeded,
    QuotaReason,
    QuotaUnreadable,
    SelectorFault,
    SelectorRule,
    StatusUnknown,
    UnreadableScope,
    Unspecified,
)
from nodewright.render.forbidden import aggregate, forbidden
from nodewright.values.golang import quoted
from nodewright.values.quantity import Quantity


def quota_error(resource: GroupResource, meta: ObjectMeta, reason: QuotaReason) -> str:
    """The whole text with which the API server refuses an object because of this.

    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest. What is said of
        scopes is not said of the object.
    """
    text = quota_message(reason)
    if isinstance(reason, NoQuotaForScopes | QuotaUnreadable):
        return text
    return forbidden(resource, meta, text)


def quota_message(reason: QuotaReason) -> str:
    """What the API server says of the reason itself.

    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest.
    """
    match reason:
        case MustSpecify(quota=quota, unspecified=unspecified):
            return f"failed quota: {quota}: {must_specify(unspecified)}"
        case StatusUnknown(quota=quota, resources=names):
            return f"status unknown for quota: {quota}, resources: {','.join(sorted(names))}"
        case NegativeUsage(usage=usage):
            return f"quota usage is negative for resource(s): {_names(usage)}"
        case PriorObjectMissing():
            return "unable to get previous usage since prior version of object was not found"
        case NoQuotaForResources(usage=usage):
            return f"insufficient quota to consume: {_names(usage)}"
        case NoQuotaForScopes(terms=terms):
            return f"insufficient quota to match these scopes: [{' '.join(map(term_text, terms))}]"
        case QuotaExceeded(quota=quota, overruns=overruns):
            requested = _amounts((each.resource, each.requested) for each in overruns)
            used = _amounts((each.resource, each.used) for each in overruns)
            limited = _amounts((each.resource, each.limited) for each in overruns)
            return f"exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"
        case QuotaUnreadable(quota=quota, scope=scope):
            return f"error matching scopes of quota {quota}, err: {scope_error(scope)}"
        case _:
            assert_never(reason)


def must_specify(unspecified: Iterable[Unspecified]) -> str:
    """What containers must say of themselves.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Constraints.

    >>> must_specify([Unspecified(resource="requests.cpu", containers=("a", "b"))])
    'must specify requests.cpu for: a,b'
    """
    parts = (f"{each.resource} for: {','.join(each.containers)}" for each in unspecified)
    return f"must specify {'; '.join(parts)}"


def scope_error(scope: UnreadableScope) -> str:
    """Why a scope selector cannot be matched.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.MatchingScopes.
    """
    return f"error on matching scope {term_text(scope.term)}: {selector_error(scope)}"


def selector_error(scope: UnreadableScope) -> str:
    """Why a scope selector cannot be read.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, ScopedResourceSelectorRequirementsAsSelector;
        apimachinery/pkg/labels/selector.go, NewRequirement.
    """
    faults = aggregate(_fault(scope.term, fault) for fault in scope.faults)
    return f"failed to parse and convert selector: {faults}"


def term_text(term: ScopeTerm) -> str:
    """A term as Go prints it.

    >>> term_text(ScopeTerm(scope_name="PriorityClass", operator="In", values=("low", "high")))
    '{PriorityClass In [low high]}'
    """
    return f"{{{term.scope_name} {term.operator} [{' '.join(term.values or ())}]}}"


def _fault(term: ScopeTerm, fault: SelectorFault) -> str:
    match fault.rule:
        case SelectorRule.OPERATOR:
            return f"{quoted(term.operator)} is not a valid scope selector operator"
        case SelectorRule.VALUES_NEEDED:
            # Values that are not given at all are null.
            shown = "null" if term.values is None else "[]"
            return f"values: Invalid value: {shown}: for 'in', 'notin' operators, values set can't be empty"
        case SelectorRule.NO_VALUES:
            shown = json.dumps(term.values, ensure_ascii=False, separators=(",", ":"))
            return f"values: Invalid value: {shown}: values set must be empty for exists and does not exist"
        case SelectorRule.LABEL_VALUE:
            value = (term.values or ())[fault.index]
            rules = "; ".join(value_rules(value))
            return f"values[{fault.index}][{term.scope_name}]: Invalid value: {quoted(value)}: {rules}"
        case _:
            assert_never(fault.rule)


def _names(usage: Iterable[tuple[str, Quantity]]) -> str:
    return ",".join(sorted(name for name, _ in usage))


def _amounts(amounts: Iterable[tuple[str, Quantity | None]]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts) if amount is not None)
