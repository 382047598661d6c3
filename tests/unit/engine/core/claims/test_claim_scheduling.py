from msgspec.structs import replace
from tests.support.claims import DRIVER, NODE, a_claim, a_class, a_request, a_slice, holding

from nodewright.engine.core.claims.allocation_values import NotAllocatable
from nodewright.engine.core.claims.claim_scheduling import (
    EXTENDED_CLAIM,
    ClaimCluster,
    ClaimScheduling,
    PluginStatus,
    StatusCode,
)
from nodewright.engine.core.claims.extended_resources import classes_of_resources
from nodewright.model.kubernetes.claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceClassSpec,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import (
    Container,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

SLICES = (a_slice([Device(name="x"), Device(name="y")]),)
GPU = replace(a_class(), spec=DeviceClassSpec(extended_resource_name="example.com/gpu"))


def a_pod(*entries: dict[str, str], requests: int = 0, **statuses: str | None) -> Pod:
    amounts = {"example.com/gpu": Quantity.of(requests)} if requests else {}
    created = tuple(PodResourceClaimStatus(name, claim) for name, claim in statuses.items())
    container = Container(name="main", resources=ResourceRequirements(requests=amounts))
    return Pod(
        metadata=ObjectMeta(name="pod", namespace="ml", uid="u"),
        spec=PodSpec(containers=(container,), resource_claims=entries),
        status=PodStatus(resource_claim_statuses=created),
    )


BY_NAME = {"name": "gpu", "resourceClaimName": "claim"}
BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "template"}


def status(pod: Pod, *claims: ResourceClaim, node: APINode = NODE) -> PluginStatus:
    cluster = ClaimCluster(slices=SLICES, classes=(GPU,), claims=claims)
    return ClaimScheduling(pod, cluster).status(node)


def message(pod: Pod, *claims: ResourceClaim) -> str:
    answer = status(pod, *claims)
    assert answer.for_all_nodes
    return answer.message


def test_a_pod_without_claims_is_skipped() -> None:
    assert status(a_pod()).code is StatusCode.SKIP
    assert status(a_pod(BY_TEMPLATE, gpu=None)).code is StatusCode.SKIP


def test_claims_are_found_by_name_and_through_templates() -> None:
    claim = a_claim(a_request("r"))
    assert message(a_pod(BY_NAME)) == 'could not find ResourceClaim "ml/claim"'
    assert message(a_pod(BY_TEMPLATE)) == 'pod "ml/pod": ResourceClaim not created yet'
    unknown = 'pod "ml/pod", spec.resourceClaim "gpu": none of the supported fields are set'
    assert message(a_pod({"name": "gpu"})) == unknown
    pod = a_pod(BY_TEMPLATE, gpu="claim")
    other = "ResourceClaim ml/claim was not created for Pod ml/pod (Pod is not owner)"
    assert message(pod, claim) == other
    owner = OwnerReference(kind="Pod", name="pod", uid="u", controller=True)
    owned = replace(claim, metadata=replace(claim.metadata, owner_references=(owner,)))
    assert list(status(pod, owned).allocations) == ["claim"]
    ended = replace(
        claim, metadata=replace(claim.metadata, deletion_timestamp=Instant.parse("2026-01-01T00:00:00Z"))
    )
    assert message(a_pod(BY_NAME), ended) == 'resourceclaim "claim" is being deleted'


def test_a_class_that_is_missing_keeps_the_pod_from_all_nodes() -> None:
    claim = a_claim(a_request("r", device_class="nope"))
    assert message(a_pod(BY_NAME), claim) == "request r: device class nope does not exist"


def test_devices_in_use_are_not_allocated_twice() -> None:
    answer = status(a_pod(BY_NAME), a_claim(a_request("r", 2)), holding("x"))
    assert (answer.code, answer.message) == (StatusCode.UNSCHEDULABLE, "cannot allocate all claims")
    assert answer.outcome == NotAllocatable()


def test_extended_resources_are_served_by_a_class_if_the_node_has_none() -> None:
    answer = status(a_pod(requests=2))
    assert [each.device for each in answer.allocations[EXTENDED_CLAIM].devices.results] == ["x", "y"]
    assert answer.extended is not None
    assert [each.request_name for each in answer.extended.mappings] == ["container-0-request-0"]
    amounts = {"example.com/gpu": Quantity.of(1)}
    by_plugin = replace(NODE, status=replace(NODE.status, allocatable=amounts))
    assert status(a_pod(requests=2), node=by_plugin) == PluginStatus(code=StatusCode.SUCCESS)


def test_of_two_classes_for_a_resource_the_newer_one_serves_it() -> None:
    old, new = (
        replace(
            GPU,
            metadata=ObjectMeta(name=name, creation_timestamp=Instant.parse(f"202{year}-01-01T00:00:00Z")),
        )
        for name, year in (("a", 5), ("b", 6))
    )
    assert classes_of_resources([new, old])["example.com/gpu"] == "b"
    assert classes_of_resources([replace(new, metadata=ObjectMeta(name="b")), GPU])["example.com/gpu"] == "b"


def allocated_claim(selector: NodeSelector | None = None, *conditions: PodCondition) -> ResourceClaim:
    result = DeviceRequestAllocationResult(
        request="r", driver=DRIVER, pool="p", device="x", binding_conditions=("ready",),
        binding_failure_conditions=("failed",),
    )  # fmt: skip
    allocation = AllocationResult(DeviceAllocationResult(results=(result,)), selector)
    reported = AllocatedDeviceStatus(driver=DRIVER, pool="p", device="x", conditions=conditions)
    return replace(a_claim(a_request("r")), status=ResourceClaimStatus(allocation, devices=(reported,)))


def test_an_allocated_claim_can_be_used_where_its_devices_are_and_unless_binding_has_failed() -> None:
    elsewhere = NodeSelectorRequirement(key="metadata.name", operator="In", values=("node-b",))
    selector = NodeSelector((NodeSelectorTerm(match_fields=(elsewhere,)),))
    unusable = "resourceclaim not available on the node"
    assert status(a_pod(BY_NAME), allocated_claim(selector)).message == unusable
    failed = PodCondition(type="failed", status="True")
    assert status(a_pod(BY_NAME), allocated_claim(None, failed)).message == unusable
    waiting = PodCondition(type="failed", status="False")
    assert status(a_pod(BY_NAME), allocated_claim(None, waiting)).code is StatusCode.SUCCESS
