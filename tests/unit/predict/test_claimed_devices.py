"""What is said of a device that a pod has: its taints, and whether they end the pod."""

import pytest
from msgspec.structs import replace
from tests.support.claims import DRIVER, a_class, a_request, a_slice
from tests.support.claims import a_claim as with_requests

from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.model.kubernetes.claims import (
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimStatus,
)
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.predict.explain.claim_question import claim_sentences
from nodewright.predict.node import Node
from nodewright.predict.pod_claims import claimed_devices, claims_on, devices_on
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

BROKEN = DeviceTaint(key="health", value="bad", effect="NoExecute")
FULL = DeviceTaint(key="full", effect="NoSchedule")
DELETED = "the device taint eviction controller deletes the pod"
NOT = (
    f"it has the taint health=bad:NoExecute, which the claim does not tolerate (effect NoExecute): {DELETED}"
)
RULES = AllocatorRules(taint_rules=True)


def a_claim(*tolerations: DeviceToleration) -> ResourceClaim:
    result = DeviceRequestAllocationResult(
        request="r", driver=DRIVER, pool="p", device="gpu-0", tolerations=tolerations
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    return ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="ml"), status=ResourceClaimStatus(allocation=allocation)
    )


def a_cluster(*taints: DeviceTaint) -> ClaimCluster:
    old = replace(a_slice([Device(name="gpu-0", taints=(BROKEN,))], name="old"))
    old = replace(old, spec=replace(old.spec, pool=replace(old.spec.pool, generation=0)))
    return ClaimCluster(slices=(old, a_slice([Device(name="gpu-0", taints=taints)])))


@pytest.mark.parametrize(
    ("tolerations", "text"),
    [
        ((), NOT),
        # For an allocation an empty effect stands for all effects, for the controller for none.
        ((DeviceToleration(key="health", operator="Exists"),), NOT),
        ((DeviceToleration(key="health", operator="Exists", effect="NoExecute"),), ""),
        (
            (DeviceToleration(key="health", operator="Exists", effect="NoExecute", toleration_seconds=300),),
            f"it has the taint health=bad:NoExecute, which the claim tolerates for 300 s only: {DELETED}",
        ),
        ((DeviceToleration(operator="Exists", effect="NoExecute", toleration_seconds=-1),), NOT),
        ((DeviceToleration(key="other", operator="Exists", effect="NoExecute"),), NOT),
    ],
)
def test_a_taint_ends_the_pod_unless_it_is_tolerated_for_ever(
    tolerations: tuple[DeviceToleration, ...], text: str
) -> None:
    (device,) = claimed_devices(a_claim(*tolerations), a_cluster(FULL, BROKEN), RULES)
    assert device.eviction == text
    (device,) = claimed_devices(a_claim(*tolerations), a_cluster(FULL), RULES)
    assert not device.eviction
    (device,) = claimed_devices(a_claim(*tolerations), a_cluster(BROKEN), AllocatorRules(taints=False))
    assert not device.eviction


def test_a_rule_ends_pods_if_it_selects_the_device() -> None:
    def eviction(selector: DeviceTaintSelector | None, rules: AllocatorRules = RULES) -> str:
        rule = DeviceTaintRule(spec=DeviceTaintRuleSpec(device_selector=selector, taint=BROKEN))
        cluster = replace(a_cluster(), taint_rules=(rule,))
        (device,) = claimed_devices(a_claim(), cluster, rules)
        return device.eviction

    assert eviction(DeviceTaintSelector(driver=DRIVER)) == NOT
    assert not eviction(DeviceTaintSelector(driver="other"))
    assert not eviction(DeviceTaintSelector(driver=DRIVER), AllocatorRules())
    assert not eviction(None)


def test_a_claim_is_described_with_the_taints_of_its_devices() -> None:
    def first_two(*taints: DeviceTaint) -> list[str]:
        cluster = replace(a_cluster(*taints), claims=(a_claim(),))
        return list(claim_sentences("c", "ml", cluster))[:2]

    assert first_two(FULL) == [
        f"allocated: {DRIVER}/p/gpu-0 for request r",
        "gpu-0 has the taint full=:NoSchedule",
    ]
    assert first_two(BROKEN)[0] == f"allocated: {DRIVER}/p/gpu-0 for request r; {NOT}"


def test_a_device_is_allocated_by_one_search_and_a_refusal_is_brief() -> None:
    config = Node.from_profile(a_profile()).config
    item = a_slice([Device(name="gpu-0")], node_name=config.view.name)
    claim = with_requests(a_request("r"), name="one")
    cluster = ClaimCluster(slices=(item,), classes=(a_class(),), claims=(claim,))
    pod = a_pod("a", metadata={"namespace": "ml"}, resourceClaims=[{"name": "c", "resourceClaimName": "one"}])
    answer, whole = devices_on(config, cluster, pod), claims_on(config, cluster, pod)
    assert (answer.after, answer.devices) == (whole.after, whole.devices)
    assert [each.device for each in answer.devices] == ["gpu-0"]
    empty = replace(cluster, slices=())
    refusal, whole = devices_on(config, empty, pod), claims_on(config, empty, pod)
    assert refusal.obstacle is not None
    assert whole.obstacle is not None
    assert refusal.obstacle.why == whole.obstacle.why
    assert not refusal.obstacle.details
