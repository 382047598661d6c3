"""The result of an allocation: devices with shares, configurations and nodes."""

from collections.abc import Iterator, Sequence
from itertools import count

from nodewright.engine.core.claims.allocation_values import AllocationError, AllocationInput
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.device_search import TakenDevice
from nodewright.engine.core.claims.node_selection import NodeSelectorError, nodes_of_devices
from nodewright.engine.core.claims.searched_requests import SearchedRequest
from nodewright.model.kubernetes.claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)


def allocation_results(
    asked: AllocationInput,
    devices: Sequence[Sequence[TakenDevice]],
    requests: Sequence[Sequence[SearchedRequest]],
) -> tuple[AllocationResult, ...]:
    """The allocation of each claim; ``requests`` are its requests or the alternatives that were chosen.

    Errors:  AllocationError for a node selector with several terms.
    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go, Allocate.
    Departs: shares are named in order, where Kubernetes draws random names.
    """
    shares = (f"share-{number}" for number in count())
    results = []
    for claim, taken, chosen in zip(asked.claims, devices, requests, strict=True):
        try:
            selector = nodes_of_devices(
                ((each.candidate.piece, each.candidate.device) for each in taken),
                asked.node.metadata.name,
                bound_devices=asked.rules.is_full,
            )
        except NodeSelectorError as error:
            raise AllocationError(f"create NodeSelector for claim {claim.metadata.name}: {error}") from None
        allocated = DeviceAllocationResult(
            results=tuple(_device_result(each, shares, asked.rules) for each in taken),
            config=(*_class_configurations(chosen), *_claim_configurations(claim, chosen)),
        )
        results.append(AllocationResult(devices=allocated, node_selector=selector))
    return tuple(results)


def _device_result(
    taken: TakenDevice, shares: Iterator[str], rules: AllocatorRules
) -> DeviceRequestAllocationResult:
    request, device = taken.request, taken.candidate.device
    driver, pool, name = taken.candidate.id
    return DeviceRequestAllocationResult(
        request=request.full_name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if request.is_admin else None,
        tolerations=request.spec.tolerations if rules.counters_by_pool else (),
        binding_conditions=(device.binding_conditions or ()) if rules.binding else (),
        binding_failure_conditions=device.binding_failure_conditions if rules.binding else (),
        share_id=None if taken.consumed is None else next(shares),
        consumed_capacity=taken.consumed or None,
    )


def _class_configurations(chosen: Sequence[SearchedRequest]) -> Iterator[DeviceAllocationConfiguration]:
    """The configurations of each class once, for all requests of it."""
    requests: dict[str, list[SearchedRequest]] = {}
    for request in chosen:
        requests.setdefault(request.device_class.metadata.name, []).append(request)
    for of_class in requests.values():
        for config in of_class[0].device_class.spec.config:
            yield DeviceAllocationConfiguration(
                source="FromClass",
                requests=tuple(each.full_name for each in of_class),
                opaque=config.opaque,
            )


def _claim_configurations(
    claim: ResourceClaim, chosen: Sequence[SearchedRequest]
) -> Iterator[DeviceAllocationConfiguration]:
    """The configurations of the claim: once without requests, else once for each request that is named."""
    for config in claim.spec.devices.config:
        named = sum(
            request.request_name in config.requests or request.full_name in config.requests
            for request in chosen
        )
        for _ in range(named if config.requests else 1):
            yield DeviceAllocationConfiguration(
                source="FromClaim", requests=config.requests, opaque=config.opaque
            )
