"""Slices, classes and claims for tests."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodewright.engine.core.claims.allocation import allocate
from nodewright.engine.core.claims.allocation_values import (
    AllocationInput,
    AllocationOutcome,
    SearchRecord,
    devices_in_use,
)
from nodewright.engine.core.claims.allocator_rules import DEFAULT_RULES, AllocatorRules
from nodewright.model.kubernetes.claims import (
    AllocationResult,
    CELDeviceSelector,
    Device,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import ObjectMeta

DRIVER = "gpu.example.com"
NODE = APINode(metadata=ObjectMeta(name="node-a", labels={"zone": "z1"}))


def has(name: str, value: int) -> str:
    """The expression that an attribute of the driver has the value."""
    return f'device.attributes["{DRIVER}"].{name} == {value}'


def a_slice(
    devices: Sequence[Device], name: str = "s", pool: str = "p", count: int = 1, **spec: Any
) -> ResourceSlice:
    """A slice of the node."""
    own = {"node_name": "node-a", "driver": DRIVER, **spec}
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(
            pool=ResourcePool(name=pool, generation=1, resource_slice_count=count),
            devices=tuple(devices),
            **own,
        ),
    )


def selectors(*expressions: str) -> tuple[DeviceSelector, ...]:
    """Selectors with these expressions."""
    return tuple(DeviceSelector(cel=CELDeviceSelector(expression=each)) for each in expressions)


def a_class(name: str = "gpu", *expressions: str) -> DeviceClass:
    """A class with these selectors."""
    return DeviceClass(
        metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors(*expressions))
    )


def a_request(name: str, count: int = 1, device_class: str = "gpu", **spec: Any) -> DeviceRequest:
    """A request for so many devices of the class."""
    own = {"allocation_mode": "ExactCount", "count": count, "device_class_name": device_class, **spec}
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(**own))


def a_claim(
    *requests: DeviceRequest, name: str = "claim", constraints: Iterable[DeviceConstraint] = ()
) -> ResourceClaim:
    """A claim with these requests."""
    devices = DeviceClaim(requests=requests, constraints=tuple(constraints))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="ml"), spec=ResourceClaimSpec(devices=devices)
    )


def holding(*devices: str, name: str = "held", pool: str = "p") -> ResourceClaim:
    """A claim that has these devices."""
    results = tuple(
        DeviceRequestAllocationResult(request="r", driver=DRIVER, pool=pool, device=each) for each in devices
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="ml"), status=ResourceClaimStatus(allocation=allocation)
    )


def allocated(
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    *,
    held: Iterable[ResourceClaim] = (),
    classes: Iterable[DeviceClass] = (a_class(),),
    taint_rules: Iterable[DeviceTaintRule] = (),
    rules: AllocatorRules = DEFAULT_RULES,
    record: SearchRecord | None = None,
) -> AllocationOutcome:
    """What the allocator answers."""
    by_name: Mapping[str, DeviceClass] = {each.metadata.name: each for each in classes}
    asked = AllocationInput(
        node=NODE,
        claims=tuple(claims),
        slices=tuple(slices),
        classes=by_name,
        in_use=devices_in_use(held, rules),
        taint_rules=tuple(taint_rules),
        rules=rules,
    )
    return allocate(asked, record).outcome
