"""What quotas know of claims to devices (ResourceClaims)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec.structs import replace

from nodewright.core.quota import pods
from nodewright.core.quota.amounts import NOTHING
from nodewright.core.quota.kinds import ONE, Kind, count_of, creates_or_updates
from nodewright.core.quota.pods import DEVICE_CLASS_PREFIX, is_extended_in_quota
from nodewright.model.api_request import GroupResource
from nodewright.model.objects import ObjectMeta, OwnerReference, Pod, ResourceList
from nodewright.model.quota_objects import DeviceAsk, DeviceRequest, ResourceClaim
from nodewright.model.resource_names import QUOTA_REQUESTS_PREFIX
from nodewright.values.instant import ZERO_TIME, Instant
from nodewright.values.quantity import Quantity

RESOURCE = GroupResource("resourceclaims", "resource.k8s.io")
MOST_DEVICES = 32
"""How many devices a claim can get at most, and so what "all" is charged as."""

_COUNT = count_of(RESOURCE)
_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_IMPLICIT = QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX
_FOR_EXTENDED = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What else decides over a claim: the cluster's device classes, the namespace's pods and claims, the time."""

    now: Instant
    device_classes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The extended resource of each device class, empty if it has none."""
    pods: Mapping[str, Pod] = field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    claims: Sequence[ResourceClaim] = ()


def device_claims(around: Surroundings) -> Kind[ResourceClaim]:
    """Claims to devices.

    Follows: v1.36, pkg/quota/v1/evaluator/core/resource_claims.go, claimEvaluator.
    """
    extended = frozenset(name for name in around.device_classes.values() if name)

    def is_charged_for(name: str) -> bool:
        if name == _COUNT or name.endswith(_OF_CLASS):
            return True
        if name.startswith(_IMPLICIT):
            return name.removeprefix(_IMPLICIT) in around.device_classes
        return is_extended_in_quota(name) and name.removeprefix(QUOTA_REQUESTS_PREFIX) in extended

    return Kind(
        resource=RESOURCE,
        usage=lambda claim: usage(claim, around),
        is_charged_for=is_charged_for,
        is_handled=creates_or_updates,
    )


def usage(claim: ResourceClaim, around: Surroundings) -> ResourceList:
    """What the claim is charged: itself, and devices by class and by the class's extended resources.

    Follows: v1.36, pkg/quota/v1/evaluator/core/resource_claims.go, claimEvaluator.Usage.
    Departs: where two classes share an extended resource, the last of them by name is charged for it;
        upstream takes one at random.
    """
    by_class: ResourceList = {}
    for request in claim.spec.devices.requests:
        for name, devices in _worst_case(request).items():
            by_class[name] = by_class.get(name, NOTHING) + Quantity.of(devices)
    paid = _paid_by_pod(claim, around)
    charged = {_COUNT: ONE, **{f"{name}{_OF_CLASS}": devices for name, devices in by_class.items()}}
    charged.update(_as_extended(by_class, paid, around.device_classes))
    return charged


def with_defaults(claim: ResourceClaim) -> ResourceClaim:
    """The claim as the API server stores it: whoever says nothing wants exactly one device.

    Follows: v1.36, pkg/apis/resource/v1/defaults.go, SetDefaults_ExactDeviceRequest,
        SetDefaults_DeviceSubRequest.
    """
    requests = tuple(
        replace(
            request,
            exactly=request.exactly and _counted(request.exactly),
            first_available=tuple(map(_counted, request.first_available)),
        )
        for request in claim.spec.devices.requests
    )
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))


def _counted(ask: DeviceAsk) -> DeviceAsk:
    mode = ask.allocation_mode or "ExactCount"
    return replace(
        ask, allocation_mode=mode, count=1 if mode == "ExactCount" and not ask.count else ask.count
    )


def _worst_case(request: DeviceRequest) -> dict[str, int]:
    """The most devices of each class that the request can come to."""
    if not request.first_available:
        return {request.exactly.device_class_name: _devices(request.exactly)} if request.exactly else {}
    most: dict[str, int] = {}
    for ask in request.first_available:
        devices = _devices(ask)
        if devices > most.get(ask.device_class_name, 0):
            most[ask.device_class_name] = devices
    return most


def _devices(ask: DeviceAsk) -> int:
    return {"ExactCount": ask.count, "All": MOST_DEVICES}.get(ask.allocation_mode, 0)


def _as_extended(
    by_class: ResourceList, paid: ResourceList, classes: Mapping[str, str]
) -> Iterator[tuple[str, Quantity]]:
    """The devices under the names that quotas have for extended resources, less what is paid already."""
    charged: ResourceList = {}
    for name in sorted(filter(None, by_class)):
        charged[_IMPLICIT + name] = by_class[name]
        if classes.get(name):
            charged[QUOTA_REQUESTS_PREFIX + classes[name]] = by_class[name]
    for name, devices in charged.items():
        left = devices - paid[name] if name in paid else devices
        if left.sign() > 0:
            yield name, left


# ---------------------------------------------------------------- claims that the scheduler made for a pod


def _paid_by_pod(claim: ResourceClaim, around: Surroundings) -> ResourceList:
    """What the pod is charged that the claim was made for, if its extended resources are what it claims.

    Follows: v1.36, pkg/quota/v1/evaluator/core/resource_claims.go, claimEvaluator.getVerifiedPodUsage.
    """
    owner = _owning_pod(claim.metadata)
    pod = around.pods.get(owner.name) if owner is not None else None
    if owner is None or pod is None or pod.uid != owner.uid:
        return {}
    named = pod.status.extended_resource_claim_status
    if named is not None:
        is_its_own = named.resource_claim_name == claim.metadata.name
    else:
        rivals = (each for each in around.claims if _owner_uid(each) == pod.uid)
        is_its_own = not any(_seniority(rival) < _seniority(claim) for rival in rivals)
    return pods.usage(pod, now=around.now) if is_its_own else {}


def _owning_pod(meta: ObjectMeta) -> OwnerReference | None:
    """The pod that a claim was made for, if it stands for extended resources."""
    if meta.annotations.get(_FOR_EXTENDED) != "true":
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
