"""The claims of a cluster as pods come and go."""

from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from nodewright.engine.core.claims.claim_scheduling import (
    EXTENDED_ANNOTATION,
    EXTENDED_CLAIM,
    ClaimCluster,
    PluginStatus,
)
from nodewright.engine.core.claims.pod_claims import (
    PodClaim,
    PodClaimState,
    is_controlled_by,
    resolved_claims,
)
from nodewright.model.kubernetes.claims import (
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from nodewright.model.kubernetes.objects import ObjectMeta, OwnerReference, Pod


def claims_to_schedule(pod: Pod, cluster: ClaimCluster) -> tuple[PodClaim, ...]:
    """The claims of the pod once those of templates are created, in order; these are named after the pod and its entry.

    Departs: Kubernetes adds random characters to the names.
    """
    created = cluster.claims_by_controller.get(pod.uid, ())
    claims = resolved_claims(pod, cluster.claims_by_name, cluster.templates_by_name, created)
    return tuple(map(_named, claims))


def _named(pod_claim: PodClaim) -> PodClaim:
    claim = pod_claim.claim
    if pod_claim.state is not PodClaimState.TO_CREATE or claim is None:
        return pod_claim
    metadata = replace(claim.metadata, name=claim.metadata.generate_name.rstrip("-"))
    return replace(pod_claim, claim=replace(claim, metadata=metadata))


def with_pod(
    cluster: ClaimCluster, pod: Pod, claims: Iterable[ResourceClaim], status: PluginStatus
) -> ClaimCluster:
    """The cluster after the scheduler has bound the pod: its claims are allocated and reserved for it.

    ``claims``: those of the pod; ``status``: the plugin's answer for the node.
    Follows: v1.36, pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go, bindClaim;
        extendeddynamicresources.go, createExtendedResourceClaimInAPI.
    """
    consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.uid)
    bound = {}
    for claim in chain(claims, _extended_claim(pod, status)):
        known, name = claim.status, claim.metadata.name
        claim_status = replace(
            known,
            allocation=status.allocations.get(name, known.allocation),
            reserved_for=(*(each for each in known.reserved_for if each.uid != pod.uid), consumer),
        )
        name = f"{pod.metadata.name}-extended-resources" if name == EXTENDED_CLAIM else name
        metadata = replace(claim.metadata, name=name)
        bound[metadata.namespace, name] = replace(claim, metadata=metadata, status=claim_status)
    others = (each for each in cluster.claims if (each.metadata.namespace, each.metadata.name) not in bound)
    return replace(cluster, claims=(*others, *bound.values()))


def _extended_claim(pod: Pod, status: PluginStatus) -> Iterable[ResourceClaim]:
    """The claim that the scheduler creates for extended resources."""
    if EXTENDED_CLAIM not in status.allocations or status.extended is None:
        return
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.uid, controller=True)
    metadata = ObjectMeta(
        name=EXTENDED_CLAIM,
        namespace=pod.metadata.namespace,
        annotations={EXTENDED_ANNOTATION: "true"},
        owner_references=(owner,),
    )
    claim = ResourceClaim(metadata=metadata)
    devices = replace(claim.spec.devices, requests=status.extended.requests)
    yield replace(claim, spec=replace(claim.spec, devices=devices))


def without_pod(cluster: ClaimCluster, pod: Pod) -> ClaimCluster:
    """The cluster after the pod has ended: its own claims are gone, those that nothing else uses are deallocated.

    Follows: v1.36, pkg/controller/resourceclaim/controller.go, syncClaim, syncPod.
    """
    claims = tuple(_left(claim, pod) for claim in cluster.claims if not is_controlled_by(claim, pod))
    return cluster if claims == cluster.claims else replace(cluster, claims=claims)


def _left(claim: ResourceClaim, pod: Pod) -> ResourceClaim:
    reserved = claim.status.reserved_for
    others = tuple(each for each in reserved if each.uid != pod.uid)
    if len(others) == len(reserved):
        return claim
    return replace(
        claim, status=replace(claim.status, reserved_for=others) if others else ResourceClaimStatus()
    )
