"""What the resource claims of a pod get on a node, as the scheduler allocates them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from nodewright.engine.core.claims.allocation_values import DeviceID
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.claim_explanation import (
    ClaimExplanation,
    KnownAnswers,
    explain_claims,
    refusal_of_claims,
)
from nodewright.engine.core.claims.claim_lifecycle import claims_to_schedule, with_pod
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster, StatusCode
from nodewright.engine.core.claims.device_pools import IndexedSlices
from nodewright.engine.core.claims.device_taints import eviction_text, taints_of
from nodewright.engine.core.claims.extended_resources import classes_of_resources
from nodewright.engine.core.claims.pod_claims import PodClaim, PodClaimState
from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import is_mirror, is_static
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.claims import (
    Device,
    DeviceTaint,
    ResourceClaim,
)
from nodewright.model.kubernetes.cluster_objects import APINode, NodeStatus
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.printable import counted
from nodewright.model.values.quantity import Quantity

_MAX_NAMES = 4
_PLUGIN = "DynamicResources"
_MISSING = (PodClaimState.NOT_FOUND, PodClaimState.TEMPLATE_NOT_FOUND, PodClaimState.NOT_CREATED)


class ClaimedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a claim of a pod gets, or has."""

    claim: str
    """The name of the claim."""
    request: str
    driver: str
    pool: str
    device: str
    eviction: str = ""
    """Why a taint of the device ends the pod; empty: none does."""

    def sentence(self) -> str:
        """The device with its claim."""
        return f"claim {self.claim}: {self.described}"

    @property
    def described(self) -> str:
        """The device with the request that it serves."""
        text = f"{self.driver}/{self.pool}/{self.device} for request {self.request}"
        return f"{text}; {self.eviction}" if self.eviction else text


class ClaimsOnNode(msgspec.Struct, frozen=True, kw_only=True):
    """What the claims of a pod get on a node."""

    after: ClaimCluster | None
    """The claims of the cluster once the pod is bound; None: nothing is known."""
    served: frozenset[str] = frozenset()
    """The extended resources that device classes serve."""
    obstacle: SchedulerObstacle | None = None
    """Why the scheduler does not bind the pod because of its claims; None: it does."""
    devices: tuple[ClaimedDevice, ...] = ()
    names: Mapping[str, str] = {}
    """The names of the claims by those of the pod's entries."""
    explanation: ClaimExplanation | None = None


def claims_on(
    config: NodeConfig, cluster: ClaimCluster | None, pod: Pod, known: KnownAnswers | None = None
) -> ClaimsOnNode:
    """What the claims of the pod, and the extended resources that classes serve, get on the node.

    ``cluster``: what it has of Dynamic Resource Allocation; None: nothing is known about it.
    ``known``: the answers about the pod so far, for many nodes: a refusal alone is explained, without changes and details.
    Departs: the scheduler's feature gates are assumed to be the kubelet's.
    """
    return _claims_on(config, cluster, pod, known, allocates=known is None)


def devices_on(config: NodeConfig, cluster: ClaimCluster | None, pod: Pod) -> ClaimsOnNode:
    """As `claims_on`; a refusal is explained without changes and details."""
    return _claims_on(config, cluster, pod, {}, allocates=True)


def _claims_on(
    config: NodeConfig, cluster: ClaimCluster | None, pod: Pod, known: KnownAnswers | None, *, allocates: bool
) -> ClaimsOnNode:
    if is_static(pod) or is_mirror(pod):
        return ClaimsOnNode(after=cluster)
    if cluster is None:
        return ClaimsOnNode(after=None, obstacle=_unknown(("ResourceSlice", "DeviceClass")))
    served = classes_of_resources(cluster.classes) if config.gates["DRAExtendedResource"] else {}
    claims = claims_to_schedule(pod, cluster)
    if not claims and not any(name in served for name in scheduler_requests(pod)):
        return ClaimsOnNode(after=cluster, served=frozenset(served))
    if not cluster.is_whole and (missing := list(dict.fromkeys(_missing(cluster, claims)))):
        return ClaimsOnNode(after=cluster, served=frozenset(served), obstacle=_unknown(missing))
    usable = tuple(each.claim for each in claims if each.claim is not None)
    own = None if any(each.message for each in claims) else usable
    question = pod, cluster, _api_node(config), config.gates, own
    explanation = explain_claims(*question) if known is None else refusal_of_claims(*question, known)
    status = explanation.status
    if status.code not in (StatusCode.SUCCESS, StatusCode.SKIP):
        return ClaimsOnNode(
            after=cluster,
            served=frozenset(served),
            obstacle=_obstacle(explanation),
            explanation=explanation,
        )
    if not allocates:
        return ClaimsOnNode(after=cluster, served=frozenset(served), explanation=explanation)
    after = with_pod(cluster, pod, usable, status)
    return ClaimsOnNode(
        after=after,
        served=frozenset(served),
        devices=tuple(_devices(after, pod, AllocatorRules.of(config.gates))),
        names={each.name: each.claim.metadata.name for each in claims if each.claim is not None},
        explanation=explanation,
    )


def _missing(cluster: ClaimCluster, claims: tuple[PodClaim, ...]) -> Iterator[str]:
    """The objects that decide and are not among the given ones, which may not be all."""
    names = {each.metadata.name for each in cluster.classes}
    if not cluster.slices:
        yield "ResourceSlice"
    for pod_claim in claims:
        if pod_claim.state in _MISSING:
            yield pod_claim.message
        for request in pod_claim.claim.spec.devices.requests if pod_claim.claim is not None else ():
            for each in request.first_available if request.exactly is None else (request.exactly,):
                if each.device_class_name not in names:
                    yield f"DeviceClass {each.device_class_name}"


def _unknown(missing: Iterable[str]) -> SchedulerObstacle:
    names = ", ".join(missing)
    return SchedulerObstacle(
        _PLUGIN,
        "",
        f"the devices of its resource claims are not judged: not among the given objects: {names}",
        "the objects given with -f, e.g. from `kubectl get resourceslices,deviceclasses,resourceclaims -A -o yaml`",
        is_open=True,
    )


def _obstacle(explanation: ClaimExplanation) -> SchedulerObstacle:
    changes = [change.text for change in explanation.changes]
    first = changes[0] if changes else "no single change among those tried"
    return SchedulerObstacle(
        _PLUGIN,
        explanation.status.message,
        explanation.summary,
        first,
        details=tuple(_request_sentences(explanation)),
        other_remedies=tuple(changes[1:]),
        is_fatal=explanation.status.code is StatusCode.ERROR,
        family=f"{explanation.status.message} {' '.join(explanation.kinds)}",
    )


def _request_sentences(explanation: ClaimExplanation) -> Iterator[str]:
    """What each request asks for, which devices would do, and why the others do not."""
    for request in explanation.requests:
        text = f"request {request.request} of claim {request.claim}: {request.wanted}"
        yield f"{text}: {request.problem}" if request.problem else text
        if request.would_do:
            yield f"would do: {_device_names(request.would_do, len(request.would_do))}"
        # That devices of other classes are not asked for goes without saying.
        of_class = [each for each in request.why_not if each.kind != "class"]
        for group in of_class if of_class or request.would_do else request.why_not:
            names = f" ({_device_names(group.devices, group.count)})" if group.devices else ""
            yield f"{counted(group.count, 'device')}{names}: {group.reason}"
    if not explanation.is_complete:
        yield "the search was ended before it was through: other reasons and changes are possible"


def _device_names(ids: Sequence[str], count: int) -> str:
    """The first devices, and how many more there are; those of one pool without its name for each.

    >>> _device_names(["d/p/gpu-0", "d/p/gpu-1"], 3)
    'gpu-0, gpu-1, and 1 more of d/p'
    """
    pools = {each.rpartition("/")[0] for each in ids}
    names = [each.rpartition("/")[2] if len(pools) == 1 else each for each in ids[:_MAX_NAMES]]
    more = [f"and {count - len(names)} more"] if count > len(names) else []
    return ", ".join([*names, *more]) + (f" of {pools.pop()}" if len(pools) == 1 else "")


def _api_node(config: NodeConfig) -> APINode:
    """What the scheduler's plugin sees of the node."""
    view = config.view
    extended = {name: Quantity.of(amount) for name, amount in view.allocatable.items() if is_extended(name)}
    return APINode(
        metadata=ObjectMeta(name=view.name, labels=dict(view.labels)), status=NodeStatus(allocatable=extended)
    )


def _devices(after: ClaimCluster, pod: Pod, rules: AllocatorRules) -> Iterator[ClaimedDevice]:
    """The devices of all claims that are reserved for the pod."""
    for claim in after.claims:
        if any(each.uid == pod.uid for each in claim.status.reserved_for):
            yield from claimed_devices(claim, after, rules)


def claimed_devices(
    claim: ResourceClaim, cluster: ClaimCluster, rules: AllocatorRules
) -> Iterator[ClaimedDevice]:
    """The devices that are allocated to the claim."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        place = result.driver, result.pool, result.device
        yield ClaimedDevice(
            claim=claim.metadata.name,
            request=result.request,
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            eviction=eviction_text(taints_of_device(cluster, place, rules), result.tolerations),
        )


def taints_of_device(
    cluster: ClaimCluster, place: DeviceID, rules: AllocatorRules
) -> tuple[DeviceTaint, ...]:
    """The taints of an allocated device: its own, of the newest generation of its pool, and those of rules."""
    if not rules.taints:
        return ()
    driver, pool, name = place
    slices = cluster.slices
    assert isinstance(slices, IndexedSlices)
    of_pool = slices.by_pool.get((driver, pool), ())
    newest = max((each.spec.pool.generation for each in of_pool), default=0)
    current = (each for each in of_pool if each.spec.pool.generation == newest)
    devices = (device for each in current for device in each.spec.devices if device.name == name)
    # The controller knows no rule without a selector, with which the scheduler taints all devices.
    selecting = [each for each in cluster.taint_rules if each.spec.device_selector is not None]
    return taints_of(next(devices, Device()), place, selecting if rules.taint_rules else ())
