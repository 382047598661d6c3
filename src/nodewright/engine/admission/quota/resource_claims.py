"""The quota evaluator of ResourceClaims."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.quota import quota_pods as pods
from nodewright.engine.admission.quota.evaluator import (
    ONE_OBJECT,
    QuotaEvaluator,
    creates_or_updates,
    object_count_name,
)
from nodewright.engine.admission.quota.quota_pods import DEVICE_CLASS_PREFIX, is_extended_in_quota
from nodewright.engine.admission.quota.quota_usage import ZERO_AMOUNT
from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.namespace_objects import DeviceRequest, ExactDeviceRequest, ResourceClaim
from nodewright.model.kubernetes.objects import ObjectMeta, OwnerReference, Pod, ResourceList
from nodewright.model.kubernetes.resource_names import QUOTA_REQUESTS_PREFIX
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.instant import ZERO_TIME, Instant
from nodewright.model.values.quantity import Quantity

CLAIM_RESOURCE = GroupResource("resourceclaims", "resource.k8s.io")
MAX_DEVICES = 32
"""The most devices that a claim can get, and so the charge of allocation mode `All`."""

_CLAIM_COUNT = object_count_name(CLAIM_RESOURCE)
_CLASS_SUFFIX = ".deviceclass.resource.k8s.io/devices"
_IMPLICIT_PREFIX = QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX
_EXTENDED_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


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


def claim_with_defaults(claim: ResourceClaim) -> ResourceClaim:
    """The claim as the API server stores it: the default is exactly one device.

    Follows: v1.36, pkg/apis/resource/v1/defaults.go, SetDefaults_ExactDeviceRequest,
        SetDefaults_DeviceSubRequest.
    """
    requests = tuple(
        replace(
            request,
            exactly=request.exactly and _with_default_count(request.exactly),
            first_available=tuple(map(_with_default_count, request.first_available)),
        )
        for request in claim.spec.devices.requests
    )
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))


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
    return pods.pod_usage(pod, now=context.now, gates=context.gates) if is_its_own else {}


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
