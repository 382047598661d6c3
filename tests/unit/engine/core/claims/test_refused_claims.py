"""Claims that the allocator refuses before its search."""

import pytest
from msgspec.structs import replace
from tests.support.claims import a_claim, a_class, a_request, a_slice, allocated, selectors

from nodewright.engine.core.claims.allocation_values import AllocationFailed
from nodewright.engine.core.claims.allocator_rules import DEFAULT_RULES
from nodewright.engine.core.claims.extended_resources import extended_requests
from nodewright.engine.core.claims.node_selection import NodeSelectorError, nodes_of_devices
from nodewright.model.kubernetes.claims import (
    CapacityRequirements,
    Device,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ResourceClaim,
)
from nodewright.model.kubernetes.objects import (
    Container,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from nodewright.model.values.quantity import Quantity


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        (a_claim(a_request("r", selectors=(DeviceSelector(),))), "selector #0: CEL expression empty"),
        (a_claim(a_request("r", device_class="")), "request r: missing device class name"),
        (a_claim(a_request("r", allocation_mode="Some")), "request r: unsupported count mode Some"),
        (a_claim(a_request("r"), constraints=[DeviceConstraint()]), "constraint #0: empty constraint"),
        (a_claim(a_request("r", selectors=selectors("device."))), "selector #0: CEL compile error: "),
    ],
)
def test_a_claim_that_is_refused(claim: ResourceClaim, error: str) -> None:
    outcome = allocated([a_slice([Device(name="x")])], [claim])
    assert isinstance(outcome, AllocationFailed)
    assert outcome.error.startswith("claim ml/claim")
    assert error in outcome.error


def test_admin_access_without_its_feature_is_refused() -> None:
    outcome = allocated(
        [a_slice([Device(name="x")])],
        [a_claim(a_request("r", admin_access=False))],
        rules=replace(DEFAULT_RULES, admin_access=False),
    )
    assert isinstance(outcome, AllocationFailed)
    assert outcome.error.endswith("admin access is requested, but the feature is disabled")


def test_a_class_with_an_empty_selector_is_refused() -> None:
    empty = a_class()
    empty = replace(empty, spec=replace(empty.spec, selectors=(DeviceSelector(),)))
    outcome = allocated([a_slice([Device(name="x")])], [a_claim(a_request("r"))], classes=[empty])
    assert isinstance(outcome, AllocationFailed)
    assert outcome.error.startswith("class gpu: selector #0: CEL expression empty")


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        (a_request("r", capacity=CapacityRequirements()), "request r"),
        (
            DeviceRequest(
                name="r", first_available=(DeviceSubRequest(name="s", capacity=CapacityRequirements()),)
            ),
            "subrequest s",
        ),
    ],
)
def test_a_request_for_capacity_without_its_feature_is_refused(request_: DeviceRequest, where: str) -> None:
    rules = replace(DEFAULT_RULES, shared=False)
    outcome = allocated([a_slice([Device(name="x")])], [a_claim(request_)], rules=rules)
    text = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    assert isinstance(outcome, AllocationFailed)
    assert outcome.error == f"claim ml/claim, {where}: {text}"


def test_devices_of_slices_with_several_terms_have_no_common_nodes() -> None:
    piece = a_slice(
        [], node_name=None, node_selector=NodeSelector(node_selector_terms=(NodeSelectorTerm(),) * 2)
    )
    with pytest.raises(NodeSelectorError, match=r"unsupported ResourceSlice\.NodeSelector with 2 terms"):
        nodes_of_devices([(piece, Device(name="x"))], "node-a", bound_devices=False)


def test_an_init_container_reuses_the_requests_of_containers_behind_it() -> None:
    def container(name: str, count: int) -> Container:
        amounts = {"example.com/gpu": Quantity.of(count)}
        return Container(name=name, resources=ResourceRequirements(requests=amounts))

    pod = Pod(spec=PodSpec(init_containers=(container("init", 2),), containers=(container("main", 2),)))
    found = extended_requests(pod, ["example.com/gpu"], {"example.com/gpu": "gpu"})
    assert [each.name for each in found.requests] == ["container-1-request-0"]
    served = {each.container_name: each.request_name for each in found.mappings}
    assert served == {"main": "container-1-request-0", "init": "container-1-request-0"}
