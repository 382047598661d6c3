"""What is asked of the allocator, its answers, and the record of its search."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.engine.core.claims.allocator_rules import DEFAULT_RULES, AllocatorRules
from nodewright.model.kubernetes.claims import (
    AllocationResult,
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.values.quantity import Quantity

DeviceID: TypeAlias = tuple[str, str, str]
"""The names of driver, pool and device; the texts join them with slashes."""
MAX_DEVICES = 32
"""Devices of a claim."""


class DevicesInUse(msgspec.Struct, frozen=True):
    """The devices that are allocated to claims, each with the names of the claims."""

    exclusive: Mapping[DeviceID, tuple[str, ...]] = {}
    shared: Mapping[DeviceID, tuple[str, ...]] = {}
    consumed: Mapping[DeviceID, ResourceList] = {}
    """The capacity that the shares of a device consume together."""


def devices_in_use(claims: Iterable[ResourceClaim], rules: AllocatorRules = DEFAULT_RULES) -> DevicesInUse:
    """What is allocated to these claims, admin access aside.

    Follows: v1.36, pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go, foreachAllocatedDevice.
    """
    exclusive: dict[DeviceID, tuple[str, ...]] = {}
    shared: dict[DeviceID, tuple[str, ...]] = {}
    consumed: dict[DeviceID, ResourceList] = {}
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            if result.admin_access:
                continue
            device = result.driver, result.pool, result.device
            is_share = rules.shared and result.share_id is not None
            holders = shared if is_share else exclusive
            holders[device] = (*holders.get(device, ()), claim.name)
            if is_share and result.consumed_capacity is not None:
                sums = consumed.setdefault(device, {})
                for name, amount in result.consumed_capacity.items():
                    sums[name] = sums[name] + amount if name in sums else amount
    return DevicesInUse(exclusive=exclusive, shared=shared, consumed=consumed)


class AllocationInput(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a pod without an allocation, a node, and what the cluster has."""

    node: APINode
    claims: tuple[ResourceClaim, ...]
    slices: tuple[ResourceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = {}
    in_use: DevicesInUse = DevicesInUse()
    taint_rules: tuple[DeviceTaintRule, ...] = ()
    rules: AllocatorRules = DEFAULT_RULES
    max_effort: int | None = None
    """What the search may cost; None: as much as any."""


class AllocationError(Exception):
    """Why the allocator ends with an error, as Kubernetes words it."""


class SelectorFailedError(AllocationError):
    """A selector that does not compile, or fails for a device."""

    def __init__(self, text: str, expression: str, error: str) -> None:
        super().__init__(text)
        self.expression, self.error = expression, error


class Allocated(msgspec.Struct, frozen=True):
    """Every claim can be allocated."""

    allocations: tuple[AllocationResult, ...]


class NotAllocatable(msgspec.Struct, frozen=True):
    """The claims cannot be allocated together on this node."""


class AllocationFailed(msgspec.Struct, frozen=True):
    """An error of an object; other nodes may do if only this node is concerned."""

    error: str
    only_this_node: bool = False


class SearchGivenUp(msgspec.Struct, frozen=True):
    """The search was ended before it was through, after so many devices were tried: it may be possible or not."""

    steps: int


AllocationOutcome: TypeAlias = Allocated | NotAllocatable | AllocationFailed | SearchGivenUp


class Outcome(StrEnum):
    """What became of a candidate. The values are those of recorded decisions."""

    TAKEN = "taken"
    GIVEN_BACK = "givenBack"
    """Everything behind it failed."""
    IN_USE = "inUse"
    IN_USE_SAME_CLAIM = "inUseSameClaim"
    """Admin access, to a device that the claim has already."""
    NOT_SELECTABLE = "notSelectable"
    UNDEFINED_CAPACITY = "undefinedCapacity"
    CAPACITY = "capacity"
    PARTITIONABLE_OFF = "partitionableOff"
    COUNTERS = "counters"
    TAINT = "taint"
    MATCH_MISSING = "match:missing"
    MATCH_DIFFERENT = "match:different"
    DISTINCT_MISSING = "distinct:missing"
    DISTINCT_DUPLICATE = "distinct:duplicate"
    NO_DEVICES = "noDevices"
    """All, and no device matches."""


class Holders(msgspec.Struct, frozen=True, tag=True):
    """The claims that have the device: allocated ones, or those of the pod."""

    claims: tuple[str, ...]
    by_this_search: bool = False


class SelectorUnmet(msgspec.Struct, frozen=True, tag=True):
    """A selector that the device does not meet."""

    expression: str
    device_class: str = ""
    """Empty: the request's."""


class OtherNode(msgspec.Struct, frozen=True, tag=True):
    """The device is for other nodes."""


class ConditionsOff(msgspec.Struct, frozen=True, tag=True):
    """The device has binding conditions, whose gate is off."""


class CapacityShort(msgspec.Struct, frozen=True, tag=True):
    """What would be consumed of a capacity is not allowed, or more than there is; None: the device does not have it."""

    name: str
    consumed: Quantity
    in_use: Quantity
    capacity: Quantity | None
    against_policy: bool = False


class CounterShort(msgspec.Struct, frozen=True, tag=True):
    """A counter of the pool that is overdrawn, with what was consumed before the device and would be with it."""

    counter_set: str
    counter: str
    available: Quantity
    consumed: Quantity
    needed: Quantity
    """By the device; zero: it does not consume this counter, which others have overdrawn."""


class Untolerated(msgspec.Struct, frozen=True, tag=True):
    """A taint that the request does not tolerate."""

    taint: DeviceTaint


class AttributeConflict(msgspec.Struct, frozen=True, tag=True):
    """The value of a constraint's attribute, and those that it is compared with."""

    attribute: str
    value: str | None
    others: tuple[str, ...] = ()


Fact: TypeAlias = (
    Holders
    | SelectorUnmet
    | OtherNode
    | ConditionsOff
    | CapacityShort
    | CounterShort
    | Untolerated
    | AttributeConflict
)


class Attempt(msgspec.Struct, frozen=True):
    """The search looks for a device of a request: all are numbers from 0."""

    claim: int
    request: int
    alternative: int
    device: int


class Tried(msgspec.Struct, frozen=True):
    """A candidate of the attempt before, and what became of it."""

    device: str
    """`driver/pool/device`; empty: what is said concerns the request."""
    outcome: Outcome
    because: Fact | None = None


SearchRecord: TypeAlias = list[Attempt | Tried]
"""How a search went, in order: its first 10,000 entries."""
