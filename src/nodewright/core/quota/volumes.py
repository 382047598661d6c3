"""What quotas know of claims to volumes (PersistentVolumeClaims)."""

from nodewright.core.quota.kinds import ONE, Kind, Scopes, count_of, creates_or_updates, selects
from nodewright.model.api_request import APIRequest, GroupResource
from nodewright.model.objects import ResourceList
from nodewright.model.quota_objects import PersistentVolumeClaim, ScopeTerm
from nodewright.values.quantity import Quantity

RESOURCE = GroupResource("persistentvolumeclaims")

_COUNT = count_of(RESOURCE)
_CLAIMS, _STORAGE = "persistentvolumeclaims", "requests.storage"
_NAMES = frozenset({_COUNT, _CLAIMS, _STORAGE})
_OF_CLASS = ".storageclass.storage.k8s.io/"
_SUFFIXES = (_OF_CLASS + _CLAIMS, _OF_CLASS + _STORAGE)
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def usage(claim: PersistentVolumeClaim) -> ResourceList:
    """What the claim is charged: itself and its storage, both also under its storage class.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.Usage.
    """
    charged = {_CLAIMS: ONE, _COUNT: ONE}
    storage_class = claim.metadata.annotations.get(_CLASS_ANNOTATION, claim.spec.storage_class_name) or ""
    storage = storage_usage(claim)
    if storage is not None:
        charged[_STORAGE] = storage
    if storage_class:
        charged[f"{storage_class}{_OF_CLASS}{_CLAIMS}"] = ONE
        if storage is not None:
            charged[f"{storage_class}{_OF_CLASS}{_STORAGE}"] = storage
    return charged


def storage_usage(claim: PersistentVolumeClaim) -> Quantity | None:
    """The storage that was asked for, or that was set aside if that is more; None if nothing was asked for.

    Units:   bytes, rounded up to whole ones.
    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.getStorageUsage.
    """
    asked = claim.spec.resources.requests.get("storage")
    if asked is None:
        return None
    storage = _whole_bytes(asked)
    set_aside = claim.status.allocated_resources.get("storage")
    if set_aside is not None and set_aside.compare(storage) > 0:
        return _whole_bytes(set_aside)
    return storage


def is_charged_for(name: str) -> bool:
    """Whether claims may be charged for the resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.MatchingResources.

    >>> is_charged_for("gold.storageclass.storage.k8s.io/requests.storage"), is_charged_for("requests.cpu")
    (True, False)
    """
    return name in _NAMES or name.endswith(_SUFFIXES)


def is_handled(request: APIRequest[PersistentVolumeClaim]) -> bool:
    """Whether the request can change what is in use: creation, update, and any update of the status.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.Handles, which
        compares the status by pointers, so that every one has changed.
    """
    if request.subresource == "status":
        return request.old is not None
    return creates_or_updates(request)


def matches(term: ScopeTerm, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim matches a term that can be read: any of its classes will do, or the lack of one.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcMatchesScopeFunc.
    """
    if term.scope_name != "VolumeAttributesClass":
        return False
    names = attributes_classes(claim)
    return any(selects(term, name) for name in names) if names else selects(term, None)


def attributes_classes(claim: PersistentVolumeClaim) -> tuple[str, ...]:
    """The VolumeAttributesClasses that the claim wants, has, or is on the way to.

    Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, getReferencedVolumeAttributesClassNames.
    """
    change = claim.status.modify_volume_status
    names = (
        claim.spec.volume_attributes_class_name,
        claim.status.current_volume_attributes_class_name,
        change.target_volume_attributes_class_name if change else None,
    )
    return tuple(name for name in names if name)


def _whole_bytes(amount: Quantity) -> Quantity:
    rounded, is_exact = amount.rounded_up(0)
    return amount if is_exact else rounded


VOLUME_CLAIMS: Kind[PersistentVolumeClaim] = Kind(
    resource=RESOURCE,
    usage=usage,
    is_charged_for=is_charged_for,
    is_handled=is_handled,
    scopes=Scopes(matches=matches, selectable="VolumeAttributesClass"),
)
"""Claims to volumes.

Follows: v1.36, pkg/quota/v1/evaluator/core/persistent_volume_claims.go, pvcEvaluator.
"""
