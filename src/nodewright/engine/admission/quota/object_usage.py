"""What objects use of a quota: the evaluators of pods, ResourceClaims and PersistentVolumeClaims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.quota.evaluator import (
    ONE_OBJECT,
    ZERO_AMOUNT,
    EvaluatorScopes,
    QuotaEvaluator,
    creates_or_updates,
    object_count_name,
    selects,
)
from nodewright.engine.core.requests.effective_resources import (
    RequestRules,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.kubernetes.api_request import APIRequest, GroupResource, Operation
from nodewright.model.kubernetes.cluster_objects import (
    DeviceRequest,
    ExactDeviceRequest,
    PersistentVolumeClaim,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ScopeTerm,
)
from nodewright.model.kubernetes.objects import ObjectMeta, OwnerReference, Pod, ResourceList
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGE_PAGES_PREFIX,
    MEMORY,
    PODS,
    QUOTA_REQUESTS_PREFIX,
    is_extended,
    is_huge_page,
    is_native,
)
from nodewright.model.reasons.quota import Unspecified
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.releases.release_rules import PodLevelQOS, ReleaseRules
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.bounded_cache import cached_texts
from nodewright.model.values.instant import ZERO_TIME, Instant
from nodewright.model.values.quantity import Quantity, wrap_int64

ClaimT = TypeVar("ClaimT", bound=ResourceClaim)
TemplateT = TypeVar("TemplateT", bound=ResourceClaimTemplate)

POD_RESOURCE = GroupResource("pods")
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"

_POD_COUNT = object_count_name(POD_RESOURCE)
_LIMITS_PREFIX = "limits."
_CHARGED_TWICE = {name: (name, QUOTA_REQUESTS_PREFIX + name) for name in (CPU, MEMORY, EPHEMERAL_STORAGE)}
_LIMITS = {name: _LIMITS_PREFIX + name for name in _CHARGED_TWICE}
_POD_NAMES = frozenset(
    {_POD_COUNT, PODS, *(name for pair in _CHARGED_TWICE.values() for name in pair)}
) | frozenset(_LIMITS.values())
_HUGE_PAGES = (HUGE_PAGES_PREFIX, QUOTA_REQUESTS_PREFIX + HUGE_PAGES_PREFIX)
# Every container must specify these as soon as a quota names them: a known mistake, kept for compatibility.
_MUST_SPECIFY = frozenset(
    {CPU, MEMORY, *(prefix + name for prefix in ("requests.", "limits.") for name in (CPU, MEMORY))}
)
_TERMINAL_PHASES = ("Succeeded", "Failed")

CLAIM_RESOURCE = GroupResource("resourceclaims", "resource.k8s.io")
MAX_DEVICES = 32
"""The most devices that a claim can get, and so the charge of allocation mode `All`."""

_CLAIM_COUNT = object_count_name(CLAIM_RESOURCE)
_CLASS_SUFFIX = ".deviceclass.resource.k8s.io/devices"
_IMPLICIT_PREFIX = QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX
_EXTENDED_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"

VOLUME_CLAIM_RESOURCE = GroupResource("persistentvolumeclaims")

_VOLUME_CLAIM_COUNT = object_count_name(VOLUME_CLAIM_RESOURCE)
_CLAIMS, _STORAGE = "persistentvolumeclaims", "requests.storage"
_VOLUME_CLAIM_NAMES = frozenset({_VOLUME_CLAIM_COUNT, _CLAIMS, _STORAGE})
_OF_CLASS = ".storageclass.storage.k8s.io/"
_SUFFIXES = (_OF_CLASS + _CLAIMS, _OF_CLASS + _STORAGE)
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def pod_evaluator(now: Instant, gates: FeatureGates = DEFAULT_GATES) -> QuotaEvaluator[Pod]:
    """The evaluator of pods; pods that exceeded their deletion grace period before ``now`` use nothing.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.
    """
    return QuotaEvaluator(
        resource=POD_RESOURCE,
        usage=partial(pod_usage, now=now, gates=gates),
        is_charged_for=is_pod_quota_resource
        if gates.rules.implicit_extended_resources_charged
        else is_pod_quota_resource_without_classes,
        is_handled=partial(is_charged_request, rules=gates.rules),
        scopes=EvaluatorScopes(
            matches=partial(matches_pod_scope, pod_level=gates.pod_level_qos),
            selectable="PriorityClass",
            lists_as_json=gates.rules.lists_printed_as_json,
        ),
        unspecified_resources=partial(unspecified_pod_resources, gates=gates),
    )


def pod_usage(pod: Pod, *, now: Instant, gates: FeatureGates = DEFAULT_GATES) -> ResourceList:
    """The pod's usage: itself, and its requests and limits while it is active.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, PodUsageFunc.
    """
    if not is_charged(pod, now):
        return {_POD_COUNT: ONE_OBJECT}
    charged: ResourceList = {_POD_COUNT: ONE_OBJECT, PODS: ONE_OBJECT}
    options = replace(
        RequestRules.of(gates).options(use_status=True), in_place_pod_level_resources_vertical_scaling=False
    )
    for name, amount in pod_requests(pod, options).items():
        if name in _CHARGED_TWICE:
            plain, prefixed = _CHARGED_TWICE[name]
            charged[plain] = charged[prefixed] = amount
        elif is_huge_page(name):
            charged[name] = charged[QUOTA_REQUESTS_PREFIX + name] = amount
        elif is_extended(name) or (
            name.startswith(DEVICE_CLASS_PREFIX) and gates.rules.implicit_extended_resources_charged
        ):
            charged[QUOTA_REQUESTS_PREFIX + name] = amount
    for name, amount in pod_limits(pod, options).items():
        if name in _LIMITS:
            charged[_LIMITS[name]] = amount
    return charged


def is_charged(pod: Pod, now: Instant) -> bool:
    """Whether the pod's requests count: it has not ended, nor exceeded its deletion grace period.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, QuotaV1Pod.
    """
    meta = pod.metadata
    if pod.status.phase in _TERMINAL_PHASES:
        return False
    if meta.deletion_timestamp is None or meta.deletion_grace_period_seconds is None:
        return True
    grace_ns = wrap_int64(meta.deletion_grace_period_seconds * 10**9)
    return now <= Instant(meta.deletion_timestamp.nanoseconds + grace_ns)


@cached_texts(4096)
def is_pod_quota_resource(name: str) -> bool:
    """Whether pods may be charged for the resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.MatchingResources.
    """
    return name in _POD_NAMES or name.startswith(_HUGE_PAGES) or is_extended_in_quota(name)


def is_pod_quota_resource_without_classes(name: str) -> bool:
    """As `is_pod_quota_resource`, in releases that do not charge pods for device classes."""
    return is_pod_quota_resource(name) and not name.startswith(QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX)


def is_extended_in_quota(name: str) -> bool:
    """Whether the name is a quota's name of an extended resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, isExtendedResourceNameForQuota.

    >>> is_extended_in_quota("requests.nvidia.com/gpu"), is_extended_in_quota("nvidia.com/gpu")
    (True, False)
    """
    if not name.startswith(QUOTA_REQUESTS_PREFIX):
        return False
    return not is_native(name) or name.startswith(QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX)


def is_charged_request(request: APIRequest[Pod], rules: ReleaseRules = NEWEST.rules) -> bool:
    """Whether the request can change the usage: creation, resize, and a change of the Terminating scope.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Handles.
    """
    if request.operation is Operation.UPDATE:
        if request.subresource or request.old is None:
            return request.subresource == "resize"
        changes = is_terminating(request.old) != is_terminating(request.object)
        return changes and rules.terminating_change_charged
    return request.operation is Operation.CREATE and not request.subresource


def unspecified_pod_resources(
    names: Iterable[str], pod: Pod, gates: FeatureGates = DEFAULT_GATES
) -> tuple[Unspecified, ...]:
    """The missing requests and limits that containers must specify because a quota names these resources.

    A pod with any pod-level resources need not specify them.
    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Constraints.
    """
    required = sorted(_MUST_SPECIFY.intersection(names))
    has_pod_level = gates["PodLevelResources"] and pod_level_resources_set(
        pod, huge_pages=gates.rules.pod_level_huge_pages
    )
    if not required or has_pod_level:
        return ()
    unspecified = []
    for name in required:
        prefix, _, resource = name.rpartition(".")
        missing = {
            container.name
            for container in (*pod.spec.containers, *pod.spec.init_containers)
            if resource
            not in (container.resources.limits if prefix == "limits" else container.resources.requests)
        }
        if missing:
            unspecified.append(Unspecified(resource=name, containers=tuple(sorted(missing))))
    return tuple(unspecified)


def matches_pod_scope(
    term: ScopeTerm, pod: Pod, *, pod_level: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED
) -> bool:
    """Whether the pod matches a valid term.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podMatchesScopeFunc.
    """
    match term.scope_name:
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return qos_class(pod, pod_level) is QOSClass.BEST_EFFORT
        case "NotBestEffort":
            return qos_class(pod, pod_level) is not QOSClass.BEST_EFFORT
        case "PriorityClass":
            return selects(term, pod.spec.priority_class_name or None)
        case "CrossNamespacePodAffinity":
            return has_affinity_across_namespaces(pod)
        case _:
            return False


def is_terminating(pod: Pod) -> bool:
    """Whether the pod has an active deadline.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, IsTerminating.
    """
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def has_affinity_across_namespaces(pod: Pod) -> bool:
    """Whether any affinity or anti-affinity to pods names namespaces or selects them.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, usesCrossNamespacePodAffinity.
    """
    affinity = pod.spec.affinity
    for rules in () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity):
        terms_by_kind = rules or {}
        required = terms_by_kind.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms_by_kind.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms = (*required, *(weighted.get("podAffinityTerm") or {} for weighted in preferred))
        if any(term.get("namespaces") or "namespaceSelector" in term for term in terms):
            return True
    return False


# ---------------------------------------------------------------- ResourceClaims


class ClaimContext(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a claim's usage depends on: device classes, the namespace's pods and claims, the time."""

    now: Instant
    device_classes: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The extended resource of each device class, empty if it has none."""
    pods: Mapping[str, Pod] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    claims: Sequence[ResourceClaim] = ()
    gates: FeatureGates = DEFAULT_GATES

    @property
    def charges_extended(self) -> bool:
        """Whether claims are charged for extended resources."""
        return self.gates["DRAExtendedResource"] and self.gates.rules.extended_claims_charged


def resource_claim_evaluator(context: ClaimContext) -> QuotaEvaluator[ResourceClaim]:
    """The evaluator of ResourceClaims.

    Follows: v1.36, pkg/quota/v1/evaluator/core/resource_claims.go, claimEvaluator.
    """
    extended = frozenset(name for name in context.device_classes.values() if name)

    def is_charged_for(name: str) -> bool:
        if name == _CLAIM_COUNT or name.endswith(_CLASS_SUFFIX):
            return True
        if not context.charges_extended:
            return False
        if name.startswith(_IMPLICIT_PREFIX):
            return name.removeprefix(_IMPLICIT_PREFIX) in context.device_classes
        return is_extended_in_quota(name) and name.removeprefix(QUOTA_REQUESTS_PREFIX) in extended

    return QuotaEvaluator(
        resource=CLAIM_RESOURCE,
        usage=lambda claim: resource_claim_usage(claim, context),
        is_charged_for=is_charged_for,
        is_handled=creates_or_updates,
    )


def resource_claim_usage(claim: ResourceClaim, context: ClaimContext) -> ResourceList:
    """The claim's usage: itself, and devices by class and by the class's extended resources.

    Follows: v1.36, pkg/quota/v1/evaluator/core/resource_claims.go, claimEvaluator.Usage.
    Departs: where two classes share an extended resource, the last of them by name is charged for it;
        upstream takes one at random.
    """
    by_class: ResourceList = {}
    for request in claim.spec.devices.requests:
        for name, devices in _worst_case(request).items():
            by_class[name] = by_class.get(name, ZERO_AMOUNT) + Quantity.of(devices)
    charged = {
        _CLAIM_COUNT: ONE_OBJECT,
        **{f"{name}{_CLASS_SUFFIX}": devices for name, devices in by_class.items()},
    }
    if context.charges_extended:
        charged.update(_as_extended(by_class, _charged_to_pod(claim, context), context.device_classes))
    return charged


def claim_with_defaults(claim: ClaimT) -> ClaimT:
    """The claim as the API server stores it: the default is exactly one device.

    Follows: v1.36, pkg/apis/resource/v1/defaults.go, SetDefaults_ExactDeviceRequest,
        SetDefaults_DeviceSubRequest.
    """
    return replace(claim, spec=_spec_with_defaults(claim.spec))


def template_with_defaults(template: TemplateT) -> TemplateT:
    """The template as the API server stores it: with the defaults of its claims."""
    return replace(template, spec=replace(template.spec, spec=_spec_with_defaults(template.spec.spec)))


def _spec_with_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    requests = tuple(
        replace(
            request,
            exactly=request.exactly and _with_default_count(request.exactly),
            first_available=tuple(map(_with_default_count, request.first_available)),
        )
        for request in spec.devices.requests
    )
    return replace(spec, devices=replace(spec.devices, requests=requests))


def _with_default_count(ask: ExactDeviceRequest) -> ExactDeviceRequest:
    mode = ask.allocation_mode or "ExactCount"
    return replace(
        ask, allocation_mode=mode, count=1 if mode == "ExactCount" and not ask.count else ask.count
    )


def _worst_case(request: DeviceRequest) -> dict[str, int]:
    """The maximum number of devices of each class that the request can be allocated."""
    if not request.first_available:
        return {request.exactly.device_class_name: _devices(request.exactly)} if request.exactly else {}
    most: dict[str, int] = {}
    for alternative in request.first_available:
        devices = _devices(alternative)
        if devices > most.get(alternative.device_class_name, 0):
            most[alternative.device_class_name] = devices
    return most


def _devices(ask: ExactDeviceRequest) -> int:
    return {"ExactCount": ask.count, "All": MAX_DEVICES}.get(ask.allocation_mode, 0)


def _as_extended(
    by_class: ResourceList, charged_to_pod: ResourceList, classes: Mapping[str, str]
) -> Iterator[tuple[str, Quantity]]:
    """The devices under the quota names of extended resources, minus those charged to the pod."""
    charged: ResourceList = {}
    for name in sorted(filter(None, by_class)):
        charged[_IMPLICIT_PREFIX + name] = by_class[name]
        if classes.get(name):
            charged[QUOTA_REQUESTS_PREFIX + classes[name]] = by_class[name]
    for name, devices in charged.items():
        remaining = devices - charged_to_pod[name] if name in charged_to_pod else devices
        if remaining.sign() > 0:
            yield name, remaining


# ---------------------------------------------------------------- claims that the scheduler created for a pod


def _charged_to_pod(claim: ResourceClaim, context: ClaimContext) -> ResourceList:
    """The usage of the pod that the claim was created for, if the claim stands for its extended resources.

    Follows: v1.36, pkg/quota/v1/evaluator/core/resource_claims.go, claimEvaluator.getVerifiedPodUsage.
    """
    owner = _owning_pod(claim.metadata)
    pod = context.pods.get(owner.name) if owner is not None else None
    if owner is None or pod is None or pod.uid != owner.uid:
        return {}
    named = pod.status.extended_resource_claim_status
    if named is not None:
        is_its_own = named.resource_claim_name == claim.metadata.name
    else:
        rivals = (other for other in context.claims if _owner_uid(other) == pod.uid)
        is_its_own = not any(_seniority(rival) < _seniority(claim) for rival in rivals)
    return pod_usage(pod, now=context.now, gates=context.gates) if is_its_own else {}


def stands_for_extended_resources(claim: ResourceClaim) -> bool:
    """Whether the scheduler created the claim for the extended resources of a pod."""
    return _owning_pod(claim.metadata) is not None


def _owning_pod(meta: ObjectMeta) -> OwnerReference | None:
    """The pod that a claim was created for, if it stands for extended resources."""
    if meta.annotations.get(_EXTENDED_CLAIM_ANNOTATION) != "true":
        return None
    controller = next((owner for owner in meta.owner_references if owner.controller), None)
    if controller is None or (controller.api_version, controller.kind) != ("v1", "Pod"):
        return None
    return controller


def _owner_uid(claim: ResourceClaim) -> str | None:
    owner = _owning_pod(claim.metadata)
    return owner.uid if owner is not None else None


def _seniority(claim: ResourceClaim) -> tuple[Instant, str]:
    return claim.metadata.creation_timestamp or ZERO_TIME, claim.metadata.name


# ---------------------------------------------------------------- PersistentVolumeClaims


def volume_claim_usage(claim: PersistentVolumeClaim, *, with_allocated: bool = True) -> ResourceList:
    """The claim's usage: itself and its storage, both also by storage class.

    ``with_allocated``: the gate RecoverVolumeExpansionFailure.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.Usage.
    """
    charged = {_CLAIMS: ONE_OBJECT, _VOLUME_CLAIM_COUNT: ONE_OBJECT}
    storage_class = claim.metadata.annotations.get(_CLASS_ANNOTATION, claim.spec.storage_class_name) or ""
    storage = storage_usage(claim, with_allocated=with_allocated)
    if storage is not None:
        charged[_STORAGE] = storage
    if storage_class:
        charged[f"{storage_class}{_OF_CLASS}{_CLAIMS}"] = ONE_OBJECT
        if storage is not None:
            charged[f"{storage_class}{_OF_CLASS}{_STORAGE}"] = storage
    return charged


def storage_usage(claim: PersistentVolumeClaim, *, with_allocated: bool = True) -> Quantity | None:
    """The requested storage, or the allocated storage if that is more; None without a request.

    Units:   bytes, rounded up to whole ones.
    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.getStorageUsage.
    """
    requested = claim.spec.resources.requests.get("storage")
    if requested is None:
        return None
    storage = _whole_bytes(requested)
    allocated = claim.status.allocated_resources.get("storage")
    if with_allocated and allocated is not None and allocated.compare(storage) > 0:
        return _whole_bytes(allocated)
    return storage


def is_claim_quota_resource(name: str) -> bool:
    """Whether claims may be charged for the resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.MatchingResources.

    >>> is_claim_quota_resource("gold.storageclass.storage.k8s.io/requests.storage"), is_claim_quota_resource("requests.cpu")
    (True, False)
    """
    return name in _VOLUME_CLAIM_NAMES or name.endswith(_SUFFIXES)


def is_claim_request_charged(request: APIRequest[PersistentVolumeClaim]) -> bool:
    """Whether the request can change the usage: creation, update, and any update of the status.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.Handles, which
        compares the status by pointers, so that every one has changed.
    """
    if request.subresource == "status":
        return request.old is not None
    return creates_or_updates(request)


def matches_claim_scope(term: ScopeTerm, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim matches a valid term: by any of its classes, or by having none.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcMatchesScopeFunc.
    """
    if term.scope_name != "VolumeAttributesClass":
        return False
    names = attributes_classes(claim)
    return any(selects(term, name) for name in names) if names else selects(term, None)


def attributes_classes(claim: PersistentVolumeClaim) -> tuple[str, ...]:
    """The VolumeAttributesClasses that the claim requests, has, or is being changed to.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, getReferencedVolumeAttributesClassNames.
    """
    change = claim.status.modify_volume_status
    names = (
        claim.spec.volume_attributes_class_name,
        claim.status.current_volume_attributes_class_name,
        change.target_volume_attributes_class_name if change else None,
    )
    return tuple(name for name in names if name)


def volume_claim_evaluator(gates: FeatureGates) -> QuotaEvaluator[PersistentVolumeClaim]:
    """The evaluator of PersistentVolumeClaims.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.
    """
    return QuotaEvaluator(
        resource=VOLUME_CLAIM_RESOURCE,
        usage=partial(volume_claim_usage, with_allocated=gates["RecoverVolumeExpansionFailure"]),
        is_charged_for=is_claim_quota_resource,
        is_handled=is_claim_request_charged if gates.rules.claim_status_charged else creates_or_updates,
        scopes=EvaluatorScopes(
            matches=matches_claim_scope,
            selectable="VolumeAttributesClass",
            lists_as_json=gates.rules.lists_printed_as_json,
            exist=gates["VolumeAttributesClass"] and gates.rules.attributes_class_scope,
        ),
    )


def _whole_bytes(amount: Quantity) -> Quantity:
    rounded, is_exact = amount.rounded_up(0)
    return amount if is_exact else rounded


VOLUME_CLAIM_EVALUATOR = volume_claim_evaluator(DEFAULT_GATES)
"""The evaluator of PersistentVolumeClaims in the newest release."""
