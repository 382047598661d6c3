"""The claims of a pod: by name, or those that are created for it from templates."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from nodewright.model.kubernetes.claims import ResourceClaim, ResourceClaimTemplate
from nodewright.model.kubernetes.objects import ObjectMeta, OwnerReference, Pod

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
_MAX_BASE_LENGTH = 57


class PodClaimError(Exception):
    """Why a claim of a pod cannot be used; the text is Kubernetes'."""

    def __init__(self, pod_claim: "PodClaim") -> None:
        super().__init__(pod_claim.message)
        self.pod_claim = pod_claim


class ClaimNotCreatedError(ValueError):
    """The claim of a template is not created yet; the text is Kubernetes'."""


class PodClaimState(StrEnum):
    """What there is for an entry of a pod's claims."""

    FOUND = "found"
    TO_CREATE = "created from its template"
    """The controller of claims creates it; its name is generated."""
    NOT_NEEDED = "not needed"
    NOT_FOUND = "claim not found"
    TEMPLATE_NOT_FOUND = "template not found"
    NOT_CREATED = "not created yet"
    DELETING = "being deleted"
    NOT_OWNED = "claim of another pod"
    NO_SOURCE = "neither a claim nor a template"


class PodClaim(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a pod's claims with its claim."""

    name: str
    """The entry's name, which containers use."""
    state: PodClaimState
    claim: ResourceClaim | None = None
    """Only with the states FOUND and TO_CREATE."""
    message: str = ""
    """Why the claim cannot be used, in Kubernetes' words."""


Claims = Mapping[tuple[str, str], ResourceClaim]
Templates = Mapping[tuple[str, str], ResourceClaimTemplate]


def claims_of_pod(pod: Pod, claims: Claims) -> tuple[ResourceClaim, ...]:
    """The claims that the pod names, in order; ``claims`` are those of the cluster by namespace and name.

    Errors:  PodClaimError, the first one.
    Follows: v1.36, pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go, foreachPodResourceClaim.
    """
    named = []
    for entry in pod.spec.resource_claims:
        pod_claim = _pod_claim(pod, entry, claims, None)
        if pod_claim.message:
            raise PodClaimError(pod_claim)
        if pod_claim.claim is not None:
            named.append(pod_claim.claim)
    return tuple(named)


def resolved_claims(
    pod: Pod, claims: Claims, templates: Templates, created: Sequence[ResourceClaim]
) -> tuple[PodClaim, ...]:
    """The claims of the pod after the controller of claims has created those from ``templates``, in order.

    Both mappings are by namespace and name; ``created``: the claims whose controller has the pod's uid, by name.
    Follows: v1.36, pkg/controller/resourceclaim/controller.go, handleClaim.
    """
    return tuple(_pod_claim(pod, entry, claims, templates, created) for entry in pod.spec.resource_claims)


def _pod_claim(
    pod: Pod,
    entry: Mapping[str, Any],
    claims: Claims,
    templates: Templates | None,
    created: Sequence[ResourceClaim] = (),
) -> PodClaim:
    """One entry; without templates as the scheduler sees it.

    Follows: v1.36, dynamic-resource-allocation/resourceclaim/resourceclaim.go, Name, IsForPod.
    """
    own, namespace = str(entry.get("name", "")), pod.metadata.namespace
    template, is_created = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName") is None
    try:
        name = claim_name_of(pod, entry)
    except ClaimNotCreatedError as error:
        pod_claim = PodClaim(name=own, state=PodClaimState.NOT_CREATED, message=str(error))
    except ValueError as error:
        return PodClaim(name=own, state=PodClaimState.NO_SOURCE, message=str(error))
    else:
        if name is None:
            return PodClaim(name=own, state=PodClaimState.NOT_NEEDED)
        pod_claim = _stored_claim(pod, own, name, claims, is_created=is_created)
    if templates is None or not is_created:
        return pod_claim
    if pod_claim.state is PodClaimState.NOT_CREATED:
        orphan = _orphan(pod, own, created)
        pod_claim = pod_claim if orphan is None else _usable(own, orphan)
    is_missing = pod_claim.state in (
        PodClaimState.NOT_CREATED,
        PodClaimState.NOT_FOUND,
        PodClaimState.NOT_OWNED,
    )
    return (
        _from_template(pod, own, templates.get((namespace, str(template))), str(template))
        if is_missing
        else pod_claim
    )


def claim_name_of(pod: Pod, entry: Mapping[str, Any]) -> str | None:
    """The name of the claim of an entry; None: the entry needs none.

    Errors:  ClaimNotCreatedError if the pod's status does not name it yet; ValueError for an entry that names nothing.
    Follows: v1.36, dynamic-resource-allocation/resourceclaim/resourceclaim.go, Name.
    """
    if (name := entry.get("resourceClaimName")) is not None:
        return str(name)
    own, where = str(entry.get("name", "")), f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if entry.get("resourceClaimTemplateName") is None:
        raise ValueError(f'{where}, spec.resourceClaim "{own}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == own:
            return status.resource_claim_name
    raise ClaimNotCreatedError(f"{where}: ResourceClaim not created yet")


def not_owned_text(claim: ResourceClaim, pod: Pod) -> str:
    """Why a claim cannot serve a pod for which it was not created."""
    namespace, name = pod.metadata.namespace, pod.metadata.name
    return f"ResourceClaim {claim.name} was not created for Pod {namespace}/{name} (Pod is not owner)"


def _stored_claim(pod: Pod, own: str, name: str, claims: Claims, *, is_created: bool) -> PodClaim:
    namespace = pod.metadata.namespace
    claim = claims.get((namespace, name))
    if claim is None:
        text = f'could not find ResourceClaim "{namespace}/{name}"'
        return PodClaim(name=own, state=PodClaimState.NOT_FOUND, message=text)
    usable = _usable(own, claim)
    if is_created and not usable.message and not is_controlled_by(claim, pod):
        return PodClaim(name=own, state=PodClaimState.NOT_OWNED, message=not_owned_text(claim, pod))
    return usable


def _usable(own: str, claim: ResourceClaim) -> PodClaim:
    if claim.metadata.deletion_timestamp is not None:
        text = f'resourceclaim "{claim.metadata.name}" is being deleted'
        return PodClaim(name=own, state=PodClaimState.DELETING, message=text)
    return PodClaim(name=own, state=PodClaimState.FOUND, claim=claim)


def _orphan(pod: Pod, own: str, created: Sequence[ResourceClaim]) -> ResourceClaim | None:
    """The claim that was created for the entry before the pod's status names it."""
    return next(
        (
            claim
            for claim in created
            if claim.metadata.namespace == pod.metadata.namespace
            and claim.metadata.annotations.get(POD_CLAIM_ANNOTATION) == own
        ),
        None,
    )


def _from_template(pod: Pod, own: str, template: ResourceClaimTemplate | None, name: str) -> PodClaim:
    if template is None:
        text = f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found'
        return PodClaim(name=own, state=PodClaimState.TEMPLATE_NOT_FOUND, message=text)
    meta, pod_name = template.spec.metadata, pod.metadata.name
    generate_name = f"{pod_name}-{own}-"
    if (length := len(generate_name)) > _MAX_BASE_LENGTH:
        parts = (text[: len(text) * _MAX_BASE_LENGTH // length] for text in (pod_name, own))
        generate_name = "-".join(parts)
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod_name, uid=pod.uid, controller=True)
    metadata = ObjectMeta(
        generate_name=generate_name,
        namespace=pod.metadata.namespace,
        labels=meta.labels,
        annotations={**meta.annotations, POD_CLAIM_ANNOTATION: own},
        owner_references=(owner,),
    )
    claim = ResourceClaim(metadata=metadata, spec=template.spec.spec)
    return PodClaim(name=own, state=PodClaimState.TO_CREATE, claim=claim)


def is_controlled_by(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the pod is the claim's controller."""
    return controller_of(claim) == pod.uid


def controller_of(claim: ResourceClaim) -> str | None:
    """The uid of the claim's controller."""
    return next((owner.uid for owner in claim.metadata.owner_references if owner.controller), None)
