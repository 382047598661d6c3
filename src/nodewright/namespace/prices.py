"""What the API server makes of one object, and what it is to be charged: whatever is in use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from nodewright.core.limits import BeyondLimits, Filled, claim_violations, limited
from nodewright.core.quota import (
    SERVICES,
    VOLUME_CLAIMS,
    BeyondQuota,
    Bill,
    Kind,
    Surroundings,
    billed,
    counted,
    device_claims,
    pods,
)
from nodewright.model.api_request import APIObject, GroupResource, creation
from nodewright.model.limit_reasons import LimitReason
from nodewright.model.objects import Pod
from nodewright.model.quota_objects import LimitRange, PersistentVolumeClaim, ResourceQuota
from nodewright.model.quota_reasons import QuotaReason
from nodewright.values.instant import ZERO_TIME

PODS = GroupResource("pods")
VOLUMES = GroupResource("persistentvolumeclaims")
DEVICES = GroupResource("resourceclaims", "resource.k8s.io")
_SERVICES = GroupResource("services")

_IGNORED = frozenset(
    {
        GroupResource("bindings"),
        GroupResource("componentstatuses"),
        GroupResource("events"),
        GroupResource("events", "events.k8s.io"),
        GroupResource("tokenreviews", "authentication.k8s.io"),
        GroupResource("selfsubjectreviews", "authentication.k8s.io"),
        GroupResource("subjectaccessreviews", "authorization.k8s.io"),
        GroupResource("selfsubjectaccessreviews", "authorization.k8s.io"),
        GroupResource("localsubjectaccessreviews", "authorization.k8s.io"),
        GroupResource("selfsubjectrulesreviews", "authorization.k8s.io"),
    }
)
"""What quotas never count. Follows: v1.36, pkg/quota/v1/install/registry.go, DefaultIgnoredResources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsBroken:
    """A limit range that an object does not keep within, and all that it breaks of it."""

    limit_range: str
    because: tuple[LimitReason, ...]


Reason: TypeAlias = LimitsBroken | QuotaReason
"""Why the API server does not let an object into a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What guards a namespace, and what is in use of it."""

    name: str
    quotas: tuple[ResourceQuota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    device_classes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The cluster's device classes, each with its extended resource, which may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """An object as it would be stored, and what it is charged; or why it is refused whatever is in use."""

    resource: GroupResource
    object: APIObject
    bill: Bill | None = None
    filled: tuple[Filled, ...] = ()
    """What limit ranges gave its containers."""
    because: Reason | None = None


@dataclass(slots=True)
class PriceBook:
    """Prices of pods that were worked out before: what is in use does not change them."""

    known: dict[tuple[int, str], tuple[APIObject, Priced]] = field(default_factory=dict)
    """By identity; the object is kept, so that no other can have its place."""

    def priced(self, resource: GroupResource, item: APIObject, namespace: Namespace) -> Priced:
        """As the function of that name; the namespaces of one name must differ in nothing but what is in use."""
        if resource != PODS:
            return priced(resource, item, namespace)
        key = (id(item), namespace.name)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = (item, priced(resource, item, namespace))
        return found[1]


def priced(resource: GroupResource, item: APIObject, namespace: Namespace) -> Priced:
    """What the object comes to when it is created.

    Follows: v1.36, pkg/kubeapiserver/options/plugins.go, AllOrderedPlugins: LimitRanger first, ResourceQuota last.
    """
    filled: tuple[Filled, ...] = ()
    if isinstance(item, Pod):
        verdict = limited(creation(item), namespace.limit_ranges)
        item, filled = verdict.pod, verdict.filled
        if isinstance(verdict, BeyondLimits):
            broken = LimitsBroken(limit_range=verdict.limit_range, because=verdict.because)
            return Priced(resource=resource, object=item, filled=filled, because=broken)
    elif isinstance(item, PersistentVolumeClaim):
        for limit_range in namespace.limit_ranges:
            if because := claim_violations(item, limit_range):
                broken = LimitsBroken(limit_range=limit_range.metadata.name, because=because)
                return Priced(resource=resource, object=item, because=broken)
    if not namespace.quotas or resource in _IGNORED:
        return Priced(resource=resource, object=item, bill=Bill(handled=False), filled=filled)
    bill = billed(creation(item), kind_of(resource, namespace), namespace.quotas)
    if isinstance(bill, BeyondQuota):
        return Priced(resource=resource, object=item, filled=filled, because=bill.because)
    return Priced(resource=resource, object=item, bill=bill, filled=filled)


def kind_of(resource: GroupResource, namespace: Namespace) -> Kind[Any]:
    """What quotas know of the resource."""
    if resource == DEVICES:
        return device_claims(Surroundings(now=ZERO_TIME, device_classes=namespace.device_classes))
    return _plain_kind(resource)


@lru_cache(maxsize=1024)
def _plain_kind(resource: GroupResource) -> Kind[Any]:
    if resource == PODS:
        return pods(ZERO_TIME)
    if resource == _SERVICES:
        return SERVICES
    return VOLUME_CLAIMS if resource == VOLUMES else counted(resource)
