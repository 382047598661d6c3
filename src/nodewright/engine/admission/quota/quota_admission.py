"""Quota admission: what a request is charged, whether the quotas allow it, and how often it fits."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.quota.evaluator import (
    ZERO_AMOUNT,
    QuotaEvaluator,
    masked,
    names_only_in_first,
    negative,
    positive_difference,
    total,
    used_as_stored,
    without_zeros,
)
from nodewright.model.kubernetes.api_request import APIObject, APIRequest, Operation
from nodewright.model.kubernetes.cluster_objects import (
    LimitedResource,
    ResourceQuota,
    ResourceQuotaStatus,
    ScopeTerm,
)
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.reasons.quota import (
    MustSpecify,
    NegativeUsage,
    NoQuotaForResources,
    NoQuotaForScopes,
    Overrun,
    PriorObjectMissing,
    QuotaExceeded,
    QuotaReason,
    QuotaUnreadable,
    StatusUnknown,
)
from nodewright.model.releases.release_rules import ReleaseRules
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.quantity import Quantity, QuantityFormat

T = TypeVar("T", bound=APIObject)


class QuotaDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The charge of a request: for each quota, by index, amounts of the resources that the quota names."""

    items: tuple[tuple[int, ResourceList], ...] = ()
    enforced: bool = True
    """False: it is charged even where it exceeds a quota."""
    handled: bool = True
    """False: quotas do not apply to this kind of request."""


class QuotaCharge(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts that a quota is charged, and its usage afterwards."""

    quota: str
    requested: ResourceList
    used: ResourceList


class WithinQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The request is allowed: all quotas of the namespace with their usage afterwards, and the charges."""

    quotas: tuple[ResourceQuota, ...]
    charges: tuple[QuotaCharge, ...] = ()
    handled: bool = True
    """False: quotas do not apply to this kind of request."""


class BeyondQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The request is forbidden, for the first reason that the API server encounters."""

    because: QuotaReason


QuotaVerdict: TypeAlias = WithinQuota | BeyondQuota


def quota_verdict(
    request: APIRequest[T],
    kind: QuotaEvaluator[T],
    quotas: Sequence[ResourceQuota],
    limited: Sequence[LimitedResource] = (),
    rules: ReleaseRules = NEWEST.rules,
) -> QuotaVerdict:
    """The quotas of the namespace with the request charged to them, or why it is forbidden.

    An update is charged only for its increase, and nothing without an increase, even if a quota is exceeded.
    `limited` is the API server's list of resources that may not be used without a quota.
    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest. The API server
        does not call it where there are neither quotas nor limited resources.
    """
    delta = quota_delta(request, kind, quotas, limited, rules)
    return delta if isinstance(delta, BeyondQuota) else with_delta(delta, quotas)


def quota_delta(
    request: APIRequest[T],
    kind: QuotaEvaluator[T],
    quotas: Sequence[ResourceQuota],
    limited: Sequence[LimitedResource] = (),
    rules: ReleaseRules = NEWEST.rules,
) -> QuotaDelta | BeyondQuota:
    """The charge of the request, or why it is forbidden whatever the usage.

    Equal objects (the pods of one controller) have the same charge as long as only the quotas' usage changes.
    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest.
    """
    if not kind.is_handled(request):
        return QuotaDelta(handled=False)
    if any(kind.first_invalid_term(limited_resource.match_scopes) for limited_resource in limited):
        # The API server only logs this and allows the request.
        return QuotaDelta()
    matching = _matching_quotas(request.object, kind, quotas)
    if not isinstance(matching, _MatchingQuotas):
        return BeyondQuota(because=matching)
    usage = kind.usage(request.object)
    negative_names = negative(usage)
    if negative_names:
        return BeyondQuota(because=NegativeUsage(usage=_pairs(usage, negative_names)))
    if request.operation is Operation.UPDATE and request.old is None:
        return BeyondQuota(because=PriorObjectMissing())
    deltas = _deltas(request, kind, usage, [quotas[index] for index in matching.indexes], rules)
    if not any(deltas):
        return QuotaDelta()
    uncovered = _uncovered(request.object, kind, usage, matching, limited) if limited else None
    if uncovered is not None:
        return BeyondQuota(because=uncovered)
    items = (
        (index, masked(delta, quotas[index].status.hard))
        for index, delta in zip(matching.indexes, deltas, strict=False)
    )
    return QuotaDelta(items=tuple(items), enforced=request.subresource != "status")


def with_delta(delta: QuotaDelta, quotas: Sequence[ResourceQuota]) -> QuotaVerdict:
    """The quotas, in their order, with the charge added; or the first one that it exceeds.

    Only charged resources are compared: a quota that is exceeded in another resource does not refuse.
    """
    after = list(quotas)
    charges = []
    for index, requested in delta.items:
        quota = quotas[index]
        used = total(quota.status.used, requested)
        overruns = _overruns(quota.status, requested, used) if delta.enforced else ()
        if overruns:
            return BeyondQuota(because=QuotaExceeded(quota=quota.name, overruns=overruns))
        if requested:
            after[index] = replace(quota, status=replace(quota.status, used=used))
            charges.append(QuotaCharge(quota=quota.name, requested=requested, used=used))
    return WithinQuota(quotas=tuple(after), charges=tuple(charges), handled=delta.handled)


# ---------------------------------------------------------------- matching quotas


class _MatchingQuotas(msgspec.Struct, frozen=True):
    """The quotas that apply to an object, by index, and the resources that they name."""

    indexes: tuple[int, ...]
    names: frozenset[str]
    terms: tuple[ScopeTerm, ...]
    """The terms that the object matches, including those of quotas that do not apply to it."""


def _matching_quotas(
    item: T, kind: QuotaEvaluator[T], quotas: Sequence[ResourceQuota]
) -> _MatchingQuotas | QuotaReason:
    indexes: list[int] = []
    names: set[str] = set()
    terms: list[ScopeTerm] = []
    for index, quota in enumerate(quotas):
        quota_terms = quota.spec.terms
        invalid_term = kind.first_invalid_term(quota_terms)
        if invalid_term is not None:
            return QuotaUnreadable(quota=quota.name, scope=invalid_term)
        matching = kind.matching_scopes(quota_terms, item)
        terms.extend(matching)
        resources = kind.matching_resources(quota.status.hard)
        if not resources or len(matching) < len(quota_terms):
            continue
        unspecified = (
            kind.unspecified_resources(resources, item) if kind.unspecified_resources is not None else ()
        )
        if unspecified:
            return MustSpecify(quota=quota.name, unspecified=unspecified)
        if not all(name in quota.status.used for name in resources):
            return StatusUnknown(quota=quota.name, resources=resources)
        indexes.append(index)
        names.update(resources)
    return _MatchingQuotas(tuple(indexes), frozenset(names), tuple(terms))


# ---------------------------------------------------------------- deltas


def _deltas(
    request: APIRequest[T],
    kind: QuotaEvaluator[T],
    usage: ResourceList,
    quotas: Sequence[ResourceQuota],
    rules: ReleaseRules,
) -> list[ResourceList]:
    """The charge of each quota without zeros; a single one if there are no quotas."""
    full_usage = without_zeros(usage)
    old = request.old
    # An object without a resource version is created by this update.
    if request.operation is not Operation.UPDATE or old is None or not old.metadata.resource_version:
        return [full_usage] * max(len(quotas), 1)
    increase = without_zeros(positive_difference(usage, kind.usage(old)))
    if not quotas or not rules.updates_charged_by_quota:
        return [increase] * max(len(quotas), 1)
    return [increase if kind.matches_quota(quota, old) else full_usage for quota in quotas]


# ---------------------------------------------------------------- limited resources


def _uncovered(
    item: T,
    kind: QuotaEvaluator[T],
    usage: ResourceList,
    matching: _MatchingQuotas,
    limited: Iterable[LimitedResource],
) -> NoQuotaForResources | NoQuotaForScopes | None:
    names: set[str] = set()
    terms: list[ScopeTerm] = []
    for limited_resource in limited:
        terms.extend(kind.matching_scopes(limited_resource.match_scopes, item))
        if (limited_resource.resource, limited_resource.api_group) == (
            kind.resource.resource,
            kind.resource.group,
        ):
            used = (name for name, amount in usage.items() if amount.sign() > 0)
            names.update(
                name for name in used if any(part in name for part in limited_resource.match_contains)
            )
    missing = names_only_in_first(names, matching.names)
    if missing:
        return NoQuotaForResources(usage=_pairs(usage, missing))
    uncovered = kind.uncovered_scopes(terms, matching.terms)
    return NoQuotaForScopes(terms=uncovered) if uncovered else None


# ---------------------------------------------------------------- overruns


def _overruns(
    status: ResourceQuotaStatus, requested: ResourceList, used: ResourceList
) -> tuple[Overrun, ...]:
    return tuple(
        Overrun(
            resource=name,
            requested=requested[name],
            used=status.used.get(name),
            limited=status.hard[name],
        )
        for name in sorted(requested)
        if used[name].compare(status.hard[name]) > 0
    )


def _pairs(usage: ResourceList, names: Iterable[str]) -> tuple[tuple[str, Quantity], ...]:
    return tuple((name, usage[name]) for name in names)


def combined_delta(deltas: Iterable[QuotaDelta]) -> QuotaDelta:
    """One charge in place of several successive ones."""
    items: dict[int, ResourceList] = {}
    for delta in deltas:
        for index, requested in delta.items:
            items[index] = total(items.get(index, {}), requested)
    return QuotaDelta(items=tuple(items.items()))


def max_repetitions(delta: QuotaDelta, quotas: Sequence[ResourceQuota]) -> int | None:
    """How often the charge fits before it exceeds a quota; None: without limit.

    The result equals that of successive charges, because no charge is negative.

    >>> from nodewright.model.kubernetes.cluster_objects import ResourceQuotaStatus
    >>> status = ResourceQuotaStatus(hard={"pods": Quantity.of(10)}, used={"pods": Quantity.of(3)})
    >>> max_repetitions(QuotaDelta(items=((0, {"pods": Quantity.of(2)}),)), [ResourceQuota(status=status)])
    3
    """
    times = [
        _whole_times(
            requested, quotas[index].status.hard[name], quotas[index].status.used.get(name, ZERO_AMOUNT)
        )
        for index, amounts in delta.items
        for name, requested in amounts.items()
    ]
    return min(times, default=None)


def with_repeated_deltas(
    deltas: Sequence[QuotaDelta], quotas: Sequence[ResourceQuota], times: int
) -> tuple[ResourceQuota, ...]:
    """The quotas after a set of charges, this many times, exceeded or not, with the used amounts stored after each charge.

    The notation that the first sets leave behind is that of all further ones, which are charged at once.
    """
    after, number = list(quotas), 0
    while number < times and (number == 0 or (number < _SETS_TO_SETTLE and _has_exponents(deltas, after))):
        for index, requested in (item for delta in deltas for item in delta.items):
            after[index] = _charged(after[index], requested)
        number += 1
    if number < times:
        for index, requested in combined_delta(deltas).items:
            rest = {name: amount * (times - number) for name, amount in requested.items()}
            after[index] = _charged(after[index], rest)
    return tuple(after)


_SETS_TO_SETTLE = 2_000
"""A sum that is a whole number without a multiple of 1,000 in it loses its exponent.

Amounts are whole thousandths, so that what makes the sum whole recurs within 1,000 sets, and is no multiple at once or the next time.
"""


def _has_exponents(deltas: Sequence[QuotaDelta], quotas: Sequence[ResourceQuota]) -> bool:
    return any(
        quotas[index].status.used[name].format is QuantityFormat.DECIMAL_EXPONENT
        for delta in deltas
        for index, requested in delta.items
        for name in requested
    )


def _charged(quota: ResourceQuota, requested: ResourceList) -> ResourceQuota:
    used = used_as_stored(total(quota.status.used, requested), quota.status.used)
    return replace(quota, status=replace(quota.status, used=used))


def _whole_times(amount: Quantity, hard: Quantity, used: Quantity) -> int:
    free = hard - used
    scale = min(free.scale, amount.scale)
    free_amount: int = free.unscaled * 10 ** (free.scale - scale)
    amount_each: int = amount.unscaled * 10 ** (amount.scale - scale)
    return max(free_amount // amount_each, 0)
