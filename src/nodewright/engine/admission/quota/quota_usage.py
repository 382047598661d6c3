"""Arithmetic on resource lists as quotas use it, and the usage of a namespace's objects.

Each function states how it treats names that only one list has.

Follows: v1.36, apiserver/pkg/quota/v1/resources.go.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.quota.evaluator import QuotaEvaluator
from nodewright.engine.core.requests.resource_defaults import rounded_to_milli
from nodewright.model.kubernetes.api_request import APIObject
from nodewright.model.kubernetes.namespace_objects import ResourceQuota, ResourceQuotaStatus, ScopeTerm
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.values.quantity import Quantity, QuantityFormat

ZERO_AMOUNT = Quantity(0, 0, QuantityFormat.DECIMAL_SI)


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
