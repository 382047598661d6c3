"""Objects of Dynamic Resource Allocation (resource.k8s.io/v1): slices, classes, claims, templates and taint rules.

Claims and classes extend those that quotas charge, with the fields that allocation depends on.
"""

from typing import Any, Literal

import msgspec

from nodewright.model.kubernetes import cluster_objects
from nodewright.model.kubernetes.device_attributes import AttributeValue, Version
from nodewright.model.kubernetes.objects import NodeSelector, ObjectMeta, PodCondition, ResourceList
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity


class DeviceAttribute(msgspec.Struct, frozen=True):
    """An attribute of a device: one of the fields is set."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[int, ...] = msgspec.field(default=(), name="ints")
    bool_values: tuple[bool, ...] = msgspec.field(default=(), name="bools")
    string_values: tuple[str, ...] = msgspec.field(default=(), name="strings")
    version_values: tuple[str, ...] = msgspec.field(default=(), name="versions")

    @property
    def value(self) -> AttributeValue:
        """The value, with its kind."""
        for scalar in (self.string_value, self.int_value, self.bool_value):
            if scalar is not None:
                return scalar
        if self.version_value is not None:
            return Version(self.version_value)
        if self.version_values:
            return tuple(map(Version, self.version_values))
        return self.int_values or self.bool_values or self.string_values or None


class CapacityRequestPolicyRange(msgspec.Struct, frozen=True):
    """The amounts that may be consumed: from `min` to `max`, in steps."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """How a request for capacity is rounded, and which amounts are allowed."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(msgspec.Struct, frozen=True, rename="camel"):
    """An amount that a device has."""

    value: Quantity = Quantity()
    request_policy: CapacityRequestPolicy | None = None


class Counter(msgspec.Struct, frozen=True):
    """An amount that devices of a pool share."""

    value: Quantity = Quantity()


class CounterSet(msgspec.Struct, frozen=True):
    """Amounts that the devices of a pool share, e.g. the memory of a card that is partitioned."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(msgspec.Struct, frozen=True, rename="camel"):
    """What a device consumes of a counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(msgspec.Struct, frozen=True, rename="camel"):
    """A reason not to use a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Instant | None = None


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """A device of a slice; the node fields count with `perDeviceNodeSelection` only."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(msgspec.Struct, frozen=True, rename="camel"):
    """The pool that a slice belongs to; the slices of its highest generation are valid together."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Devices of a driver, and the nodes that can use them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(msgspec.Struct, frozen=True):
    """Some of the devices of a pool, as their driver publishes them."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class CELDeviceSelector(msgspec.Struct, frozen=True):
    """An expression of the Common Expression Language about a device."""

    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True):
    """What a device must meet."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(msgspec.Struct, frozen=True):
    """Parameters for a driver."""

    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(msgspec.Struct, frozen=True):
    """Parameters for all devices that are allocated through a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(cluster_objects.DeviceClassSpec, frozen=True, rename="camel"):
    """The spec of a device class."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()


class DeviceClass(cluster_objects.DeviceClass, frozen=True):
    """A cluster-wide class of devices."""

    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceToleration(msgspec.Struct, frozen=True, rename="camel"):
    """A taint of devices that a request tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(msgspec.Struct, frozen=True):
    """The amounts that a request asks for of each device."""

    requests: ResourceList = {}


class ExactDeviceRequest(cluster_objects.ExactDeviceRequest, frozen=True, rename="camel"):
    """Devices of a class: exactly `count`, or all that match."""

    selectors: tuple[DeviceSelector, ...] = ()
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(cluster_objects.ExactDeviceRequest, frozen=True, rename="camel"):
    """An alternative of a request."""

    name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(cluster_objects.DeviceRequest, frozen=True, rename="camel"):
    """The devices of a claim: one request, or the first available of several."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """An attribute that the devices of the requests have in common, or in which they differ."""

    requests: tuple[str, ...] = ()
    """Empty: all of the claim. A name of a request or `request/alternative`."""
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(DeviceClassConfiguration, frozen=True):
    """Parameters for the devices of some requests; of all if none is named."""

    requests: tuple[str, ...] = ()


class DeviceClaim(cluster_objects.DeviceClaim, frozen=True):
    """The device requests of a claim, what holds among their devices, and parameters for drivers."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(cluster_objects.ResourceClaimSpec, frozen=True):
    """The spec of a resource claim."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A device that is allocated to a request."""

    request: str = ""
    """The name of the request, or `request/alternative`."""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    """The device is shared: this allocation's name, and what it consumes."""
    consumed_capacity: ResourceList | None = None


class DeviceAllocationConfiguration(DeviceClassConfiguration, frozen=True):
    """Parameters for the driver of allocated devices."""

    source: Literal["", "FromClass", "FromClaim"] = ""
    requests: tuple[str, ...] = ()


class DeviceAllocationResult(msgspec.Struct, frozen=True):
    """The devices that are allocated to a claim."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(msgspec.Struct, frozen=True, rename="camel"):
    """The devices of a claim, and the nodes that can use them; None: all nodes."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None


class ResourceClaimConsumerReference(msgspec.Struct, frozen=True, rename="camel"):
    """An object that uses a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[PodCondition, ...] = ()


class ResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What is allocated to a claim, which objects use it, and what drivers report."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(cluster_objects.ResourceClaim, frozen=True):
    """A claim for devices."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def name(self) -> str:
        """`namespace/name`, as Kubernetes names a claim in its messages."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class ResourceClaimTemplateSpec(cluster_objects.ResourceClaimTemplateSpec, frozen=True):
    """The metadata and spec of claims that are created from a template."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(cluster_objects.ResourceClaimTemplate, frozen=True):
    """A template from which each pod that names it gets its own claim for devices."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceTaintSelector(msgspec.Struct, frozen=True):
    """Devices by name; what is absent matches any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A taint, and the devices that have it."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(msgspec.Struct, frozen=True):
    """A taint that an administrator adds to devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
