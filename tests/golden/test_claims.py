"""Explanations of claims that get no devices: what is printed for each case, and that each change that is named works.

`python -m tools regenerate` rewrites the file.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.claims import DRIVER, NODE, a_claim, a_class, a_request, a_slice, holding, selectors

from nodewright.engine.core.claims.claim_changes import changed_inputs
from nodewright.engine.core.claims.claim_explanation import ClaimExplanation, explain_claims
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster, ClaimScheduling, StatusCode
from nodewright.engine.core.claims.pod_claims import resolved_claims
from nodewright.model.kubernetes.claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    CapacityRequestPolicy,
    CapacityRequirements,
    Counter,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    DeviceTaint,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
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
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

STORED = Path(__file__).parent / "claims.txt"
NIC = "nic.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
GPU_CLASS = a_class("gpu", f'device.driver == "{DRIVER}"')
NIC_CLASS = a_class("nic", f'device.driver == "{NIC}"')
BAD = DeviceTaint(key="example.com/unhealthy", value="xid-79", effect="NoSchedule")
AND_NEAR = 'device.attributes["gpu.example.com"]'


def gpu(name: str, taints: Iterable[DeviceTaint] = (), **attributes: int | str) -> Device:
    values = {
        (ROOT if key == "root" else key): DeviceAttribute(
            int_value=value if isinstance(value, int) else None,
            string_value=value if isinstance(value, str) else None,
        )
        for key, value in attributes.items()
    }
    return Device(name=name, attributes=values, taints=tuple(taints))


def with_memory(name: str, amount: str, policy: CapacityRequestPolicy | None = None, **fields: Any) -> Device:
    capacity = {"memory": DeviceCapacity(Quantity.parse(amount), policy)}
    return Device(name=name, capacity=capacity, **fields)


def partition(name: str, gigabytes: int, taints: Iterable[DeviceTaint] = ()) -> Device:
    used = DeviceCounterConsumption("card-0", {"memory": Counter(Quantity.parse(f"{gigabytes}Gi"))})
    return replace(gpu(name, taints), consumes_counters=(used,))


CARD = a_slice(
    (), "card", count=2, shared_counters=(CounterSet("card-0", {"memory": Counter(Quantity.parse("40Gi"))}),)
)


def used_by(pod: str, claim: ResourceClaim) -> ResourceClaim:
    user = ResourceClaimConsumerReference(resource="pods", name=pod, uid="u2")
    return replace(claim, status=replace(claim.status, reserved_for=(user,)))


def memory(amount: str) -> CapacityRequirements:
    return CapacityRequirements({"memory": Quantity.parse(amount)})


def on_node(claim: ResourceClaim, node: str) -> ResourceClaim:
    own = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(own,)),))
    allocation = replace(holding("gpu-0").status.allocation or AllocationResult(), node_selector=selector)
    return replace(claim, status=ResourceClaimStatus(allocation=allocation))


def share(device: str, amount: str) -> ResourceClaim:
    result = DeviceRequestAllocationResult(
        request="r",
        driver=DRIVER,
        pool="p",
        device=device,
        share_id="share-0",
        consumed_capacity={"memory": Quantity.parse(amount)},
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    return replace(holding(name="shared"), status=ResourceClaimStatus(allocation=allocation))


ENTRY = {"name": "gpu", "resourceClaimName": "claim"}
TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "large-gpu"}


def a_pod(*entries: dict[str, str], gpus: int = 0, **statuses: str) -> Pod:
    amounts = {"example.com/gpu": Quantity.of(gpus)} if gpus else {}
    container = Container(name="main", resources=ResourceRequirements(requests=amounts))
    created = tuple(PodResourceClaimStatus(name, claim) for name, claim in statuses.items())
    return Pod(
        metadata=ObjectMeta(name="trainer", namespace="ml", uid="u"),
        spec=PodSpec(containers=(container,), resource_claims=entries),
        status=PodStatus(resource_claim_statuses=created),
    )


Inputs = tuple[Pod, ClaimCluster, FeatureGates, tuple[ResourceClaim, ...] | None]


def case(
    slices: Iterable[ResourceSlice],
    *claims: ResourceClaim,
    pod: Pod | None = None,
    classes: Iterable[DeviceClass] = (GPU_CLASS, NIC_CLASS),
    off: Iterable[str] = (),
    created: tuple[ResourceClaim, ...] | None = None,
) -> Inputs:
    cluster = ClaimCluster(slices=tuple(slices), classes=tuple(classes), claims=claims)
    gates = replace(DEFAULT_GATES, enabled=DEFAULT_GATES.enabled.difference(off))
    return pod or a_pod(ENTRY), cluster, gates, created


def wanting(count: int = 1, *constraints: DeviceConstraint, **spec: Any) -> ResourceClaim:
    return a_claim(a_request("gpu", count, **spec), constraints=constraints)


FOUR = [gpu(f"gpu-{at}", model="T4" if at < 2 else "A100", numa=at // 2) for at in range(4)]
GPUS = a_slice(FOUR)
NEWER = a_slice(FOUR, "new", node_name="node-b", count=2)
ALL: dict[str, Any] = {"allocation_mode": "All", "count": 0}
A100 = selectors(f'{AND_NEAR}.model == "A100"')
GPU_AND_NIC = a_claim(
    a_request("gpu", 2),
    a_request("nic", 1, "nic"),
    constraints=[DeviceConstraint(requests=("gpu", "nic"), match_attribute=ROOT)],
)
ROOTS = (
    a_slice([gpu(f"gpu-{at}", root="pci0000:4d" if at > 5 else "pci0000:00") for at in range(8)]),
    a_slice([gpu("nic-0", root="pci0000:00"), gpu("nic-1", root="pci0000:4d")], "n", driver=NIC, pool="nics"),
)
NIC_HELD = replace(
    holding(name="train-3"),
    status=ResourceClaimStatus(
        allocation=AllocationResult(
            devices=DeviceAllocationResult(
                results=(DeviceRequestAllocationResult(driver=NIC, pool="nics", device="nic-1"),)
            )
        )
    ),
)
BINDING = DeviceRequestAllocationResult(
    driver=DRIVER,
    pool="p",
    device="gpu-0",
    binding_conditions=("Ready",),
    binding_failure_conditions=("Failed",),
)
FAILED = ResourceClaimStatus(
    allocation=AllocationResult(devices=DeviceAllocationResult(results=(BINDING,))),
    devices=(
        AllocatedDeviceStatus(
            driver=DRIVER, pool="p", device="gpu-0", conditions=(PodCondition(type="Failed", status="True"),)
        ),
    ),
)
LARGE = ResourceClaimTemplate(
    metadata=ObjectMeta(name="large-gpu", namespace="ml"),
    spec=ResourceClaimTemplateSpec(spec=wanting(5).spec),
)
TO_CREATE = resolved_claims(a_pod(TEMPLATE), {}, {("ml", "large-gpu"): LARGE}, ())[0].claim
assert TO_CREATE is not None
OTHERS = OwnerReference(kind="Pod", name="other", uid="u2", controller=True)
EXTENDED = replace(GPU_CLASS, spec=DeviceClassSpec(extended_resource_name="example.com/gpu"))
POLICY = CapacityRequestPolicy(valid_values=(Quantity.parse("4Gi"), Quantity.parse("8Gi")))

CASES: dict[str, Inputs] = {
    "all devices are held": case(
        [GPUS],
        wanting(),
        used_by("a-0", holding("gpu-0", "gpu-1", name="a")),
        holding("gpu-2", "gpu-3", name="b"),
    ),
    "some are held, some have another value": case(
        [GPUS], wanting(2, selectors=A100), used_by("a-0", holding("gpu-2", name="a"))
    ),
    "a selector that no device meets": case(
        [GPUS], wanting(selectors=selectors(f'{AND_NEAR}.model == "H100"'))
    ),
    "a conjunction of which one part is false": case(
        [GPUS], wanting(selectors=selectors(f'{AND_NEAR}.model == "A100" && {AND_NEAR}.numa == 0'))
    ),
    "a capacity that is too low": case(
        [a_slice([with_memory("gpu-0", "16Gi"), with_memory("gpu-1", "40Gi")])],
        wanting(
            selectors=selectors('device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0')
        ),
    ),
    "an attribute that no device has": case(
        [GPUS], wanting(selectors=selectors(f'{AND_NEAR}.modle == "A100"'))
    ),
    "an attribute that only some devices have": case(
        [a_slice([gpu("gpu-0"), *FOUR[2:]])], wanting(2, selectors=A100)
    ),
    "more devices than the node has": case([GPUS], wanting(5)),
    "more devices than a claim may have": case([GPUS], wanting(33)),
    "a taint": case([a_slice([gpu("gpu-0", [BAD]), gpu("gpu-1", [BAD])])], wanting()),
    "all devices, one of them held": case([GPUS], wanting(**ALL), holding("gpu-3", name="a")),
    "all devices, of which there are none": case([GPUS], wanting(selectors=selectors("false"), **ALL)),
    "admin access to a device of another class": case([GPUS], wanting(device_class="nic", admin_access=True)),
    "admin access, whose feature is off": case([GPUS], wanting(admin_access=True), off=["DRAAdminAccess"]),
    "the first available of two": case(
        [GPUS],
        a_claim(
            DeviceRequest(
                name="gpu",
                first_available=(
                    DeviceSubRequest(
                        name="large",
                        device_class_name="gpu",
                        allocation_mode="ExactCount",
                        count=1,
                        selectors=selectors(f'{AND_NEAR}.model == "H100"'),
                    ),
                    DeviceSubRequest(
                        name="many", device_class_name="gpu", allocation_mode="ExactCount", count=6
                    ),
                ),
            )
        ),
    ),
    "two requests for the same devices": case(
        [GPUS], a_claim(a_request("a", 3), a_request("b", 2)), holding("gpu-3", name="a")
    ),
    "GPUs and a NIC on the same root": case(
        ROOTS,
        GPU_AND_NIC,
        holding(*(f"gpu-{at}" for at in range(6)), name="train-2"),
        used_by("train-3-0", NIC_HELD),
    ),
    "devices with the same attribute": case(
        [GPUS], wanting(3, DeviceConstraint(match_attribute=f"{DRIVER}/numa"))
    ),
    "devices that differ": case(
        [a_slice(FOUR[:2])],
        a_claim(
            a_request("a"),
            a_request("b"),
            constraints=[DeviceConstraint(distinct_attribute=f"{DRIVER}/numa")],
        ),
    ),
    "a constraint on an attribute that is not there": case(
        [GPUS], wanting(2, DeviceConstraint(match_attribute=ROOT))
    ),
    "a partition, and too little of a counter": case(
        [CARD, a_slice([partition("full", 40), partition("half-0", 20), partition("half-1", 20)], count=2)],
        wanting(selectors=selectors('device.attributes["gpu.example.com"].?model.orValue("") == ""')),
        holding("half-0", "half-1", name="a"),
    ),
    "partitions that compete for a counter": case(
        [CARD, a_slice([partition("half-0", 20), partition("large", 30)], count=2)], wanting(2)
    ),
    "counters that stay consumed after a taint": case(
        [CARD, a_slice([partition("full", 40, [BAD]), partition("half", 20)], count=2)], wanting()
    ),
    "pools of two drivers with one name": case(
        [
            CARD,
            a_slice([partition("full", 40)], count=2),
            replace(CARD, metadata=ObjectMeta(name="n-card"), spec=replace(CARD.spec, driver=NIC)),
            a_slice([partition("nic", 40)], "n", count=2, driver=NIC),
        ],
        a_claim(a_request("gpu"), a_request("nic", 1, "nic")),
    ),
    "a shared device with too little left": case(
        [a_slice([with_memory("gpu-0", "16Gi", allow_multiple_allocations=True)])],
        wanting(capacity=memory("10Gi")),
        share("gpu-0", "12Gi"),
    ),
    "an amount that the policy does not allow": case(
        [a_slice([with_memory("gpu-0", "16Gi", POLICY, allow_multiple_allocations=True)])],
        wanting(capacity=memory("10Gi")),
    ),
    "an incomplete pool": case([a_slice(FOUR, count=2)], wanting()),
    "all devices, and an incomplete pool": case(
        [GPUS, a_slice([gpu("nic-0")], "n", count=2, driver=NIC, pool="nics")], wanting(**ALL)
    ),
    "an invalid pool": case([a_slice([gpu("gpu-0"), gpu("gpu-0")])], wanting()),
    "no slices at all": case([], wanting()),
    "no slices of the driver": case([GPUS], wanting(device_class="nic")),
    "devices on other nodes": case([a_slice(FOUR, node_name="node-b")], wanting()),
    "a class that is missing": case([GPUS], wanting(device_class="gpus")),
    "a claim that is missing": case([GPUS]),
    "a claim that is not created yet": case([GPUS], pod=a_pod(TEMPLATE)),
    "a claim from a template": case([GPUS], pod=a_pod(TEMPLATE), created=(TO_CREATE,)),
    "a claim that is being deleted": case(
        [GPUS],
        replace(
            wanting(),
            metadata=replace(wanting().metadata, deletion_timestamp=Instant.parse("2026-01-01T00:00:00Z")),
        ),
    ),
    "a claim of another pod": case(
        [GPUS],
        replace(wanting(), metadata=replace(wanting().metadata, owner_references=(OTHERS,))),
        pod=a_pod(TEMPLATE, gpu="claim"),
    ),
    "a claim that is allocated on another node": case([GPUS], on_node(wanting(), "node-b")),
    "a claim that is allocated to a device with a taint": case(
        [a_slice([gpu("gpu-0", [replace(BAD, effect="NoExecute")])])], on_node(wanting(), "node-a")
    ),
    "a device that failed to be bound": case(
        [a_slice([replace(gpu("gpu-0"), binding_conditions=("Ready",)), gpu("gpu-1")])],
        replace(wanting(), status=FAILED),
    ),
    "an extended resource that a class serves": case(
        [GPUS], holding("gpu-0", name="a"), pod=a_pod(gpus=4), classes=[EXTENDED]
    ),
    "an alternative, whose feature is off": case(
        [GPUS],
        a_claim(
            DeviceRequest(
                name="gpu",
                first_available=(
                    DeviceSubRequest(
                        name="any", device_class_name="gpu", allocation_mode="ExactCount", count=1
                    ),
                ),
            )
        ),
        off=["DRAPrioritizedList"],
    ),
    "devices of a slice that are for other nodes": case(
        [
            a_slice(
                [replace(gpu("gpu-0"), node_name="node-b"), replace(gpu("gpu-1"), node_name="node-a")],
                node_name=None,
                per_device_node_selection=True,
            )
        ],
        wanting(2),
    ),
    "a slice whose node selector does not parse": case(
        [
            a_slice(
                FOUR,
                node_name=None,
                node_selector=NodeSelector(
                    node_selector_terms=(
                        NodeSelectorTerm(
                            match_expressions=(NodeSelectorRequirement(key="zone", operator="Near"),)
                        ),
                    )
                ),
            )
        ],
        wanting(),
    ),
    "a pool that is outdated on this node": case(
        [
            a_slice(FOUR, count=2),
            replace(NEWER, spec=replace(NEWER.spec, pool=replace(NEWER.spec.pool, generation=2))),
        ],
        wanting(),
    ),
    "binding conditions, whose feature is off": case(
        [a_slice([replace(gpu("gpu-0"), binding_conditions=("Ready",))])],
        wanting(),
        off=["DRADeviceBindingConditions"],
    ),
    "partitions, whose feature is off": case(
        [a_slice([partition("half", 20)])], wanting(), off=["DRAPartitionableDevices"]
    ),
    "a capacity that devices do not have": case([GPUS], wanting(capacity=memory("10Gi"))),
    "values of which none is enough": case(
        [GPUS],
        a_claim(
            a_request("a", 2),
            a_request("b", 3),
            constraints=[DeviceConstraint(match_attribute=f"{DRIVER}/numa")],
        ),
    ),
    "a pod without claims": case([GPUS], pod=a_pod()),
    "claims that get their devices": case([GPUS], wanting(2, selectors=A100)),
}


def explained(inputs: Inputs) -> ClaimExplanation:
    pod, cluster, gates, claims = inputs
    return explain_claims(pod, cluster, NODE, gates, claims)


def lines() -> Iterator[str]:
    for name, inputs in CASES.items():
        explanation = explained(inputs)
        status = explanation.status
        yield f"{name}"
        yield f"  {status.code}: {status.message}" if status.message else f"  {status.code}"
        yield f"  {explanation.summary}"
        for request in explanation.requests:
            yield f"    {request.request}: {request.wanted}; would do: {', '.join(request.would_do) or 'none'}"
            yield from (f"      {group}" for group in request.why_not)
        yield from (f"    - {change.kind}: {change.text}" for change in explanation.changes)
        yield ""


def test_the_texts_are_those_that_were_reviewed() -> None:
    text = "\n".join(lines())
    if os.environ.get("REFRESH_GOLDEN"):
        STORED.write_text(text, "utf-8")
    assert text == STORED.read_text("utf-8")


@pytest.mark.parametrize("name", CASES)
def test_each_change_gives_the_claims_their_devices(name: str) -> None:
    pod, cluster, gates, claims = CASES[name]
    for change in explained(CASES[name]).changes:
        scheduling = ClaimScheduling(*changed_inputs(change, pod, cluster, gates, claims))
        assert scheduling.status(NODE).code is StatusCode.SUCCESS, change.text
