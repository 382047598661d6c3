"""Questions about a resource claim: what it has, and, as a pod that only has this claim, what nodes would give it."""

from collections.abc import Iterator, Sequence

from nodewright.documents.formats.workloads import Workload
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.model.kubernetes.claims import ResourceClaim
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.predict.pod_claims import claimed_devices, taints_of_device

KIND = "ResourceClaim"
_RULES = AllocatorRules(taint_rules=True)
"""A cluster that has rules of taints knows them."""


def pod_of_claim(claim: ResourceClaim) -> Workload:
    """A pod that requests nothing and uses the claim."""
    meta = claim.metadata
    pod = Pod(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace),
        spec=PodSpec(
            containers=(Container(name="uses-the-claim", image="image"),),
            resource_claims=({"name": "claim", "resourceClaimName": meta.name},),
        ),
    )
    return Workload(
        source="",
        api_version="resource.k8s.io/v1",
        kind=KIND,
        name=meta.name,
        namespace=meta.namespace,
        replicas=None,
        pod=pod,
    )


def claim_sentences(
    name: str, namespace: str, cluster: ClaimCluster, pods: Sequence[Pod] = ()
) -> Iterator[str]:
    """What a claim of the cluster has, for which pods it is reserved, and what it waits for, a sentence each.

    ``pods``: those of its namespace, as far as they are known.
    """
    for claim in cluster.claims:
        if (claim.metadata.name, claim.metadata.namespace) == (name, namespace):
            yield from _sentences(claim, cluster, pods)


def _sentences(claim: ResourceClaim, cluster: ClaimCluster, pods: Sequence[Pod]) -> Iterator[str]:
    reserved = claim.status.reserved_for
    users = [f"{each.resource.removesuffix('s')}/{each.name}" for each in reserved]
    if claim.metadata.deletion_timestamp is not None:
        waits = f"; it waits until {', '.join(users)} no longer use it" if users else ""
        yield f"it is being deleted{waits}"
    if claim.status.allocation is None:
        yield "nothing is allocated: the scheduler allocates devices when it binds a pod that uses the claim"
    for device in claimed_devices(claim, cluster, _RULES):
        yield f"allocated: {device.described}"
        place = device.driver, device.pool, device.device
        for taint in taints_of_device(cluster, place, _RULES) if not device.eviction else ():
            yield f"{device.device} has the taint {taint.key}={taint.value}:{taint.effect}"
    yield from _allocation_sentences(claim, users)
    uids = {each.uid for each in reserved}
    for pod in pods:
        if _uses(pod, claim) and pod.uid not in uids and not pod.is_terminal:
            where = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
            yield f"pod/{pod.metadata.name}{where} uses it and has no reservation yet"


def _allocation_sentences(claim: ResourceClaim, users: Sequence[str]) -> Iterator[str]:
    allocation = claim.status.allocation
    if allocation is None:
        return
    selector = allocation.node_selector
    terms = () if selector is None else selector.node_selector_terms
    for name in (value for term in terms for each in term.match_fields for value in each.values):
        yield f"only pods on node {name} can use it"
    if selector is None:
        yield "pods on every node can use it"
    if users:
        yield f"reserved for {', '.join(users)}"
    else:
        yield "reserved for no pod: it keeps its devices until it is deleted, or the scheduler takes them back for another pod"
    for status in claim.status.devices:
        for condition in status.conditions:
            text = f": {condition.message}" if condition.message else ""
            yield f"the driver reports {condition.type}={condition.status} of {status.device}{text}"


def _uses(pod: Pod, claim: ResourceClaim) -> bool:
    if pod.metadata.namespace != claim.metadata.namespace:
        return False
    names = {each.resource_claim_name for each in pod.status.resource_claim_statuses}
    return claim.metadata.name in names | {
        str(each.get("resourceClaimName")) for each in pod.spec.resource_claims
    }
