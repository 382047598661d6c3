"""Do the quotas of a namespace have room for what a request would use?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from nodewright.core.quota.amounts import (
    in_first,
    increase,
    negative,
    only,
    total,
    without_zeros,
)
from nodewright.core.quota.kinds import Kind
from nodewright.model.api_request import APIObject, APIRequest, Operation
from nodewright.model.objects import ResourceList
from nodewright.model.quota_objects import LimitedResource, ResourceQuota, ResourceQuotaStatus, ScopeTerm
from nodewright.model.quota_reasons import (
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
from nodewright.values.quantity import Quantity

T = TypeVar("T", bound=APIObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a request is to be charged: for each quota, by its index, amounts of the resources that it names."""

    items: tuple[tuple[int, ResourceList], ...] = ()
    enforced: bool = True
    """False: it is charged even where a quota is exceeded by it."""
    handled: bool = True
    """False: quotas do not look at requests of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a quota is charged, and what of it is in use then."""

    quota: str
    requested: ResourceList
    used: ResourceList


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinQuota:
    """All quotas of the namespace, with what is in use after the request, and what was charged to which."""

    quotas: tuple[ResourceQuota, ...]
    charges: tuple[Charge, ...] = ()
    handled: bool = True
    """False: quotas do not look at requests of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondQuota:
    """The request is forbidden: the first reason that the API server comes upon."""

    because: QuotaReason


QuotaVerdict: TypeAlias = WithinQuota | BeyondQuota


def charged(
    request: APIRequest[T],
    kind: Kind[T],
    quotas: Sequence[ResourceQuota],
    limited: Sequence[LimitedResource] = (),
) -> QuotaVerdict:
    """The quotas of the namespace with the request charged to them, or why it is forbidden.

    An update is charged its increase alone, and one without an increase nothing, whatever is exceeded.
    `limited` is the API server's list of what may not be used without a quota.
    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest. The API server
        does not call it where there are neither quotas nor limited resources.
    """
    bill = billed(request, kind, quotas, limited)
    return bill if isinstance(bill, BeyondQuota) else paid(bill, quotas)


def billed(
    request: APIRequest[T],
    kind: Kind[T],
    quotas: Sequence[ResourceQuota],
    limited: Sequence[LimitedResource] = (),
) -> Bill | BeyondQuota:
    """What the request is to be charged, or why it is forbidden whatever is in use.

    Objects that are alike (the pods of one controller) have the same bill, as long as the quotas change in
    nothing but the amounts in use.
    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest.
    """
    if not kind.is_handled(request):
        return Bill(handled=False)
    if any(kind.first_unreadable(each.match_scopes) for each in limited):
        # The API server writes a line into its log and lets the request pass.
        return Bill()
    concerned = _concerned(request.object, kind, quotas)
    if not isinstance(concerned, _Concerned):
        return BeyondQuota(because=concerned)
    usage = kind.usage(request.object)
    below = negative(usage)
    if below:
        return BeyondQuota(because=NegativeUsage(usage=_pairs(usage, below)))
    if request.operation is Operation.UPDATE and request.old is None:
        return BeyondQuota(because=PriorObjectMissing())
    deltas = _deltas(request, kind, usage, [quotas[index] for index in concerned.indexes])
    if not any(deltas):
        return Bill()
    uncovered = _uncovered(request.object, kind, usage, concerned, limited) if limited else None
    if uncovered is not None:
        return BeyondQuota(because=uncovered)
    items = (
        (index, only(delta, quotas[index].status.hard))
        for index, delta in zip(concerned.indexes, deltas, strict=False)
    )
    return Bill(items=tuple(items), enforced=request.subresource != "status")


def paid(bill: Bill, quotas: Sequence[ResourceQuota]) -> QuotaVerdict:
    """The quotas, in their order, with the bill charged to them; or the first of them that has no room.

    Only what is charged is compared: a quota that is exceeded in something else has room.
    """
    after = list(quotas)
    charges = []
    for index, requested in bill.items:
        quota = quotas[index]
        used = total(quota.status.used, requested)
        overruns = _overruns(quota.status, requested, used) if bill.enforced else ()
        if overruns:
            return BeyondQuota(because=QuotaExceeded(quota=quota.name, overruns=overruns))
        if requested:
            after[index] = replace(quota, status=replace(quota.status, used=used))
            charges.append(Charge(quota=quota.name, requested=requested, used=used))
    return WithinQuota(quotas=tuple(after), charges=tuple(charges), handled=bill.handled)


# ---------------------------------------------------------------- which quotas are for it


@dataclass(frozen=True, slots=True)
class _Concerned:
    """The quotas that are for an object, by index, and the resources that they name."""

    indexes: tuple[int, ...]
    names: frozenset[str]
    terms: tuple[ScopeTerm, ...]
    """The terms that the object matches, those of quotas that are not for it included."""


def _concerned(item: T, kind: Kind[T], quotas: Sequence[ResourceQuota]) -> _Concerned | QuotaReason:
    indexes: list[int] = []
    names: set[str] = set()
    terms: list[ScopeTerm] = []
    for index, quota in enumerate(quotas):
        wanted = quota.spec.terms
        unreadable = kind.first_unreadable(wanted)
        if unreadable is not None:
            return QuotaUnreadable(quota=quota.name, scope=unreadable)
        matching = kind.matching(wanted, item)
        terms.extend(matching)
        own = kind.own(quota.status.hard)
        if not own or len(matching) < len(wanted):
            continue
        unspecified = kind.unspecified(own, item) if kind.unspecified is not None else ()
        if unspecified:
            return MustSpecify(quota=quota.name, unspecified=unspecified)
        if not all(name in quota.status.used for name in own):
            return StatusUnknown(quota=quota.name, resources=own)
        indexes.append(index)
        names.update(own)
    return _Concerned(tuple(indexes), frozenset(names), tuple(terms))


# ---------------------------------------------------------------- how much more it is


def _deltas(
    request: APIRequest[T], kind: Kind[T], usage: ResourceList, quotas: Sequence[ResourceQuota]
) -> list[ResourceList]:
    """What each of the quotas is charged, without zeros; one list all the same if there are no quotas."""
    in_full = without_zeros(usage)
    old = request.old
    # An object without a version is made by this update.
    if request.operation is not Operation.UPDATE or old is None or not old.metadata.resource_version:
        return [in_full] * max(len(quotas), 1)
    more = without_zeros(increase(usage, kind.usage(old)))
    if not quotas:
        return [more]
    return [more if kind.is_bound_by(quota, old) else in_full for quota in quotas]


# ---------------------------------------------------------------- what may not go without a quota


def _uncovered(
    item: T,
    kind: Kind[T],
    usage: ResourceList,
    concerned: _Concerned,
    limited: Iterable[LimitedResource],
) -> NoQuotaForResources | NoQuotaForScopes | None:
    names: set[str] = set()
    terms: list[ScopeTerm] = []
    for each in limited:
        terms.extend(kind.matching(each.match_scopes, item))
        if (each.resource, each.api_group) == (kind.resource.resource, kind.resource.group):
            used = (name for name, amount in usage.items() if amount.sign() > 0)
            names.update(name for name in used if any(part in name for part in each.match_contains))
    missing = in_first(names, concerned.names)
    if missing:
        return NoQuotaForResources(usage=_pairs(usage, missing))
    uncovered = kind.uncovered(terms, concerned.terms)
    return NoQuotaForScopes(terms=uncovered) if uncovered else None


# ---------------------------------------------------------------- is there room


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
