"""The quota charge of one object, after defaulting by limit ranges; independent of the used amounts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import PluginRefusal
from nodewright.engine.admission.api_server.pod_creation import (
    PODS,
    ClusterObjects,
    LimitRangeViolation,
    ObjectRejection,
    PodCreation,
    created_pod,
)
from nodewright.engine.admission.limit_ranger import (
    DefaultedByLimitRange,
    claim_limit_violations,
)
from nodewright.engine.admission.quota.evaluator import (
    SERVICE_EVALUATOR,
    SERVICE_RESOURCE,
    QuotaEvaluator,
    object_count_evaluator,
)
from nodewright.engine.admission.quota.object_usage import (
    ClaimContext,
    pod_evaluator,
    resource_claim_evaluator,
    volume_claim_evaluator,
)
from nodewright.engine.admission.quota.quota_admission import BeyondQuota, QuotaDelta, quota_delta
from nodewright.engine.core.requests.qos_and_priority import CONFIG_SOURCE, is_static
from nodewright.model.kubernetes.api_request import APIObject, GroupResource, create_request
from nodewright.model.kubernetes.cluster_objects import (
    LimitRange,
    PersistentVolumeClaim,
    PriorityClass,
    ResourceClaim,
    ResourceQuota,
    RuntimeClass,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.api_server import terminating_error
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.instant import ZERO_TIME

POD_RESOURCE = PODS
VOLUME_CLAIM_RESOURCE = GroupResource("persistentvolumeclaims")
RESOURCE_CLAIM_RESOURCE = GroupResource("resourceclaims", "resource.k8s.io")
_EVALUATORS: Mapping[GroupResource, Callable[[FeatureGates], QuotaEvaluator[Any]]] = {
    POD_RESOURCE: lambda gates: pod_evaluator(ZERO_TIME, gates),
    VOLUME_CLAIM_RESOURCE: volume_claim_evaluator,
    SERVICE_RESOURCE: lambda _: SERVICE_EVALUATOR,
}
"""Resources whose charge depends on the object, beside resource claims; others are only counted."""

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
"""Resources that quotas do not count. Follows: v1.36, pkg/quota/v1/install/registry.go, DefaultIgnoredResources."""


class NamespacePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The quotas and limit ranges of a namespace, with used amounts."""

    name: str
    quotas: tuple[ResourceQuota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    device_classes: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The cluster's device classes, each with its extended resource, which may be empty."""
    priority_classes: tuple[PriorityClass, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    """Those that the scheduler created for the extended resources of pods."""
    pods: Mapping[str, Pod] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The pods of the namespace by name, if there are such claims."""
    gates: FeatureGates = DEFAULT_GATES
    """Those of the API server, with the rules of its release."""
    terminating: frozenset[str] = frozenset()
    """The names of all namespaces that are being terminated."""

    @property
    def refusal_of_new_objects(self) -> PluginRefusal | None:
        """Why nothing new is created in the namespace; None: it is not being terminated."""
        is_ending = self.name in self.terminating
        return PluginRefusal(error=terminating_error(self.name)) if is_ending else None

    @property
    def cluster(self) -> ClusterObjects:
        """The objects that take part in the creation of the namespace's pods."""
        return ClusterObjects(
            priority_classes=self.priority_classes,
            runtime_classes=self.runtime_classes,
            limit_ranges={self.name: self.limit_ranges},
            gates=self.gates,
        )


class ObjectCharge(msgspec.Struct, frozen=True, kw_only=True):
    """An object as it would be stored with its charge, or why it is rejected regardless of used amounts."""

    resource: GroupResource
    object: APIObject
    delta: QuotaDelta | None = None
    filled: tuple[DefaultedByLimitRange, ...] = ()
    """Defaults that limit ranges set in its containers."""
    because: ObjectRejection | None = None


@dataclass(slots=True)
class ChargeCache:
    """A cache of charges, which do not depend on used amounts: of each pod, and of each kind that is only counted."""

    entries: dict[tuple[int, str], tuple[APIObject, ObjectCharge]] = field(default_factory=dict)
    """Keyed by identity; the object is kept alive, so that no other object gets its id."""
    counted: dict[tuple[GroupResource, str], ObjectCharge] = field(default_factory=dict)
    """The charge of one object of a kind whose objects are all charged alike."""
    creations: Mapping[int, PodCreation] = field(default_factory=dict)
    """Pods that have been created before, by the identity of the pod that is submitted."""

    def object_charge(
        self, resource: GroupResource, item: APIObject, namespace: NamespacePolicy, *, is_stored: bool = False
    ) -> ObjectCharge:
        """See the function `object_charge`; namespaces of one name must differ only in used amounts."""
        if resource not in _EVALUATORS and resource != RESOURCE_CLAIM_RESOURCE:
            kind = (resource, namespace.name)
            if kind not in self.counted:
                self.counted[kind] = object_charge(resource, item, namespace)
            return replace(self.counted[kind], object=item)
        if resource != POD_RESOURCE:
            return object_charge(resource, item, namespace)
        key = (id(item), namespace.name)
        entry = self.entries.get(key)
        if entry is None:
            creation = self.creations.get(id(item))
            charge = object_charge(resource, item, namespace, creation, is_stored=is_stored)
            entry = self.entries[key] = (item, charge)
        return entry[1]


def object_charge(
    resource: GroupResource,
    item: APIObject,
    namespace: NamespacePolicy,
    creation: PodCreation | None = None,
    *,
    is_stored: bool = False,
) -> ObjectCharge:
    """The charge of the object when it is created; ``creation``: what becomes of it if it is a pod, where known.

    ``is_stored``: an API server has accepted the pod, so that only its amounts are refused, and its status counts.
    Follows: v1.36, pkg/kubeapiserver/options/plugins.go, AllOrderedPlugins: ResourceQuota comes last.
    Departs: a pod that exceeded its deletion grace period counts until it is gone, because files have no time.
    """
    filled: tuple[DefaultedByLimitRange, ...] = ()
    if isinstance(item, Pod):
        if is_static(item) and not is_stored:
            # Its mirror pod is charged, which passes all plugins.
            annotations = {**item.metadata.annotations, CONFIG_SOURCE: "api"}
            item, creation = replace(item, metadata=replace(item.metadata, annotations=annotations)), None
        creation = creation or created_pod(item, namespace.cluster, is_stored=is_stored)
        item, filled = creation.pod, creation.filled
        if creation.refusal is not None:
            return ObjectCharge(resource=resource, object=item, filled=filled, because=creation.refusal)
    elif isinstance(item, PersistentVolumeClaim):
        for limit_range in namespace.limit_ranges:
            if because := claim_limit_violations(item, limit_range):
                violation = LimitRangeViolation(limit_range=limit_range.metadata.name, because=because)
                return ObjectCharge(resource=resource, object=item, because=violation)
    if not namespace.quotas or resource in _IGNORED:
        return ObjectCharge(resource=resource, object=item, delta=QuotaDelta(handled=False), filled=filled)
    kind = counted_kind(resource, namespace)
    if is_stored:
        kind = replace(kind, unspecified_resources=None)
    delta = quota_delta(create_request(item), kind, namespace.quotas, rules=namespace.gates.rules)
    if isinstance(delta, BeyondQuota):
        return ObjectCharge(resource=resource, object=item, filled=filled, because=delta.because)
    return ObjectCharge(resource=resource, object=item, delta=delta, filled=filled)


def counted_kind(resource: GroupResource, namespace: NamespacePolicy) -> QuotaEvaluator[Any]:
    """The quota evaluator of the resource."""
    if resource == RESOURCE_CLAIM_RESOURCE:
        return resource_claim_evaluator(
            ClaimContext(
                now=ZERO_TIME,
                device_classes=namespace.device_classes,
                pods=namespace.pods,
                claims=namespace.claims,
                gates=namespace.gates,
            )
        )
    return (
        _plain_kind(resource)
        if namespace.gates is DEFAULT_GATES
        else _kind_of_release(resource, namespace.gates)
    )


@lru_cache(maxsize=1024)
def _plain_kind(resource: GroupResource) -> QuotaEvaluator[Any]:
    return _kind_of_release(resource, DEFAULT_GATES)


def _kind_of_release(resource: GroupResource, gates: FeatureGates) -> QuotaEvaluator[Any]:
    evaluator = _EVALUATORS.get(resource)
    return object_count_evaluator(resource) if evaluator is None else evaluator(gates)
