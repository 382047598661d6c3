"""The quota evaluator of PersistentVolumeClaims."""

from functools import partial

from nodewright.engine.admission.quota.evaluator import (
    ONE_OBJECT,
    EvaluatorScopes,
    QuotaEvaluator,
    creates_or_updates,
    object_count_name,
    selects,
)
from nodewright.model.kubernetes.api_request import APIRequest, GroupResource
from nodewright.model.kubernetes.namespace_objects import PersistentVolumeClaim, ScopeTerm
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.quantity import Quantity

VOLUME_CLAIM_RESOURCE = GroupResource("persistentvolumeclaims")

_VOLUME_CLAIM_COUNT = object_count_name(VOLUME_CLAIM_RESOURCE)
_CLAIMS, _STORAGE = "persistentvolumeclaims", "requests.storage"
_VOLUME_CLAIM_NAMES = frozenset({_VOLUME_CLAIM_COUNT, _CLAIMS, _STORAGE})
_OF_CLASS = ".storageclass.storage.k8s.io/"
_SUFFIXES = (_OF_CLASS + _CLAIMS, _OF_CLASS + _STORAGE)
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


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


def _whole_bytes(amount: Quantity) -> Quantity:
    rounded, is_exact = amount.rounded_up(0)
    return amount if is_exact else rounded


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


VOLUME_CLAIM_EVALUATOR = volume_claim_evaluator(DEFAULT_GATES)
"""The evaluator of PersistentVolumeClaims in the newest release."""
