"""The rules of allocation that a release and its feature gates choose."""

from typing import Self

import msgspec

from nodewright.engine.core.claims.cel import SelectorFeatures
from nodewright.model.releases.feature_gates import FeatureGates


class AllocatorRules(msgspec.Struct, frozen=True, kw_only=True):
    """The features of the allocator, and what its implementation does; the defaults are those of 1.36.

    Kubernetes keeps several implementations and takes the oldest one that knows all features whose gates are on.

    Follows: v1.36, pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go, AllocatorFeatures;
        dynamic-resource-allocation/structured/allocator.go, availableAllocators.
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable: bool = True
    taints: bool = True
    taint_rules: bool = False
    binding: bool = True
    """Devices with binding conditions can be allocated."""
    shared: bool = True
    """Devices can be shared, and requests ask for capacity."""
    selector_features: SelectorFeatures = SelectorFeatures()
    list_attributes: bool = False
    """Constraints compare lists; not to be confused with the gate, which reaches selectors only."""

    is_full: bool = True
    """The implementation for all features: it has distinctAttribute, refuses requests for capacity without the gate,
    searches pools with binding conditions last, and knows devices that bind to their node."""
    is_minimal: bool = False
    """The implementation of 1.34 and 1.35 for no feature: its results have no tolerations, and it goes on with its search
    where a claim would have more than 32 devices."""

    is_later: bool = True
    """The implementations of 1.35 and later: incomplete pools are not searched, nor invalid ones, where before an invalid
    one ended the search; a pool is complete if its slices on all nodes are; taints with other effects than NoSchedule and
    NoExecute do not matter; distinctAttribute compares values, where before it found only that a shared device is the same
    one; a shared device consumes counters once, not once a share; and the last check of a device's capacity is about the
    device, not about the one at the request's index in its slice."""
    is_latest: bool = True
    """The implementations of 1.36: All as a later alternative goes on with its own devices, not with those of the first
    alternative; devices that are shared already have consumed their counters."""
    combined: bool = True
    """A request takes combinations of devices in order; else every order is tried."""
    counters_by_pool: bool = True
    """Counter sets belong to pools and have slices of their own, else to slices; results have tolerations."""

    counters_leak: bool = True
    """What a device consumes of counters stays consumed where a taint or a constraint refuses it. So in all releases: an
    explanation asks what it changes."""
    counters_by_name: bool = True
    """Counters are looked up by the name of the pool alone. So in all releases that have counters of pools."""

    @classmethod
    def of(cls, gates: FeatureGates, *, list_attributes: bool = False) -> Self:
        """The rules of the gates' release."""
        release = gates.rules
        is_later, is_latest = release.claim_pools_checked, release.claim_devices_combined
        plain = "DRAAdminAccess", "DRAPrioritizedList", "DRAPartitionableDevices", "DRADeviceTaints"
        conditions = gates["DRADeviceBindingConditions"] and gates["DRAResourceClaimDeviceStatus"]
        shared, binding = gates["DRAConsumableCapacity"], conditions and is_later
        is_full = shared or binding or list_attributes
        is_minimal = not (is_full or any(gates[name] for name in plain) or is_latest)
        return cls(
            admin_access=gates["DRAAdminAccess"],
            prioritized_list=gates["DRAPrioritizedList"],
            partitionable=gates["DRAPartitionableDevices"],
            taints=gates["DRADeviceTaints"],
            taint_rules=gates["DRADeviceTaints"] and gates["DRADeviceTaintRules"],
            binding=binding,
            shared=shared,
            selector_features=SelectorFeatures(
                consumable_capacity=shared,
                list_type_attributes=gates["DRAListTypeAttributes"],
                stored_may_include=is_latest,
            ),
            list_attributes=list_attributes,
            is_full=is_full,
            is_minimal=is_minimal,
            is_later=is_later,
            is_latest=is_latest,
            combined=is_full and is_latest,
            counters_by_pool=is_later and not is_minimal,
        )


DEFAULT_RULES = AllocatorRules()
