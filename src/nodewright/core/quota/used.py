"""What do the objects of a namespace use of its quotas?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from nodewright.core.quota.amounts import NOTHING, only, total
from nodewright.core.quota.kinds import Kind
from nodewright.core.requests import in_milli
from nodewright.model.api_request import APIObject
from nodewright.model.objects import ResourceList
from nodewright.model.quota_objects import ResourceQuota, ResourceQuotaStatus, ScopeTerm

T = TypeVar("T", bound=APIObject)


@dataclass(frozen=True, slots=True)
class Population(Generic[T]):
    """All the objects of a kind in a namespace."""

    kind: Kind[T]
    objects: Sequence[T]


def usage_of(
    kind: Kind[T], items: Iterable[T], names: Iterable[str], terms: Sequence[ScopeTerm]
) -> ResourceList:
    """What the objects that match all the terms use together, and nothing of each name that they do not use.

    Where a term cannot be read nothing is counted, and nobody is told.
    Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, CalculateUsageStats.
    """
    used: ResourceList = dict.fromkeys(names, NOTHING)
    if kind.first_unreadable(terms) is not None:
        return used
    for item in items:
        if all(kind.is_in_scope(term, item) for term in terms):
            used = total(used, kind.usage(item))
    return used


def calculated(quota: ResourceQuota, populations: Sequence[Population[Any]]) -> ResourceQuota:
    """The quota with the status that the quota controller writes, once it has seen all the objects.

    What no population is charged for stays as it was in the status, or unknown.
    Follows: v1.36, apiserver/pkg/quota/v1/resources.go, CalculateUsage;
        pkg/controller/resourcequota/resource_quota_controller.go, syncResourceQuota.
    """
    hard = quota.spec.hard
    used = dict(quota.status.used)
    found: ResourceList = {}
    tracked: set[str] = set()
    for population in populations:
        own = population.kind.own(hard)
        if own:
            tracked.update(own)
            found = total(found, usage_of(population.kind, population.objects, own, quota.spec.terms))
    used.update(only(found, tracked))
    return replace(quota, status=ResourceQuotaStatus(hard=hard, used=only(used, hard)))


def stored(quota: ResourceQuota) -> ResourceQuota:
    """The quota as the API server keeps it: no amount finer than a thousandth.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_ResourceList.
    """
    status = ResourceQuotaStatus(hard=in_milli(quota.status.hard), used=in_milli(quota.status.used))
    return replace(quota, spec=replace(quota.spec, hard=in_milli(quota.spec.hard)), status=status)
