"""The checks of claims before the search, and the devices of requests for all devices."""

from collections.abc import Sequence
from itertools import groupby

from nodewright.engine.core.claims.allocation_values import (
    MAX_DEVICES,
    AllocationError,
    AllocationInput,
    Fact,
)
from nodewright.engine.core.claims.device_capacity import capacity_short
from nodewright.engine.core.claims.device_constraints import AttributeConstraint
from nodewright.engine.core.claims.device_pools import Pool
from nodewright.engine.core.claims.device_selectors import DeviceSelectors
from nodewright.engine.core.claims.searched_requests import Candidate, RequestSpec, SearchedRequest
from nodewright.model.kubernetes.claims import DeviceRequest, ExactDeviceRequest, ResourceClaim


class RequestChecks:
    """Checks claims in order.

    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go, Allocate,
        validateDeviceRequest.
    """

    def __init__(
        self,
        asked: AllocationInput,
        pools: Sequence[Pool],
        candidates: Sequence[Candidate],
        selectors: DeviceSelectors,
    ) -> None:
        self._asked, self._rules = asked, asked.rules
        self._pools, self._selectors = pools, selectors
        by_pool = groupby(candidates, key=lambda candidate: id(candidate.pool))
        self._by_pool = {key: list(group) for key, group in by_pool}

    def checked(self) -> list[list[list[SearchedRequest]]]:
        """For each claim and request, its alternatives; a plain request is the only one.

        Errors: AllocationError, the first one.
        """
        return [self._checked_claim(index, claim) for index, claim in enumerate(self._asked.claims)]

    def _checked_claim(self, index: int, claim: ResourceClaim) -> list[list[SearchedRequest]]:
        devices = claim.spec.devices
        requests = [
            self._checked_request((index, at), claim, request) for at, request in enumerate(devices.requests)
        ]
        least = sum(min(each.count for each in alternatives) for alternatives in requests)
        if least > MAX_DEVICES:
            text = f"number of requested devices {least} exceeds the claim limit of {MAX_DEVICES}"
            raise AllocationError(f"claim {claim.name}: {text}")
        constraints = []
        for at, constraint in enumerate(devices.constraints):
            is_known = constraint.match_attribute is not None or (
                constraint.distinct_attribute is not None and self._rules.is_full
            )
            if not is_known:
                text = "empty constraint (unsupported constraint type?)"
                raise AllocationError(f"claim {claim.name}, constraint #{at}: {text}")
            constraints.append(AttributeConstraint(constraint, self._rules))
        for alternatives in requests:
            for each in alternatives:
                each.constraints = tuple(
                    constraint
                    for constraint in constraints
                    if constraint.applies_to(each.request_name, each.alternative_name)
                )
        return requests

    def _checked_request(
        self, place: tuple[int, int], claim: ResourceClaim, request: DeviceRequest
    ) -> list[SearchedRequest]:
        rules, where = self._rules, f"claim {claim.name}"
        if request.first_available and not rules.prioritized_list:
            text = "has subrequests, but the DRAPrioritizedList feature is disabled"
            raise AllocationError(f"{where}, request {request.name}: {text}")
        if rules.is_full and not rules.shared:
            text = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
            if request.exactly and request.exactly.capacity is not None:
                raise AllocationError(f"{where}, request {request.name}: {text}")
            for each in request.first_available:
                if each.capacity is not None:
                    raise AllocationError(f"{where}, subrequest {each.name}: {text}")
        specs: list[tuple[str, RequestSpec]] = [(each.name, each) for each in request.first_available]
        specs = specs or [("", request.exactly or ExactDeviceRequest())]
        caches: list[dict[int, Fact | None]] = [{} for _ in specs]
        checked = []
        for index, (alternative, spec) in enumerate(specs):
            # Older releases look up what they know about the alternative before.
            known = caches[index if rules.is_latest else max(0, index - 1)]
            names = request.name, alternative
            checked.append(self._checked_alternative((*place, index), claim.name, names, spec, known))
            if rules.is_latest:
                checked[-1].selectable = known
        return checked

    def _checked_alternative(
        self,
        place: tuple[int, int, int],
        claim_name: str,
        names: tuple[str, str],
        spec: RequestSpec,
        known: dict[int, Fact | None],
    ) -> SearchedRequest:
        where = f"claim {claim_name}, request {names[1] or names[0]}"
        for index, selector in enumerate(spec.selectors):
            if selector.cel is None:
                text = "CEL expression empty (unsupported selector type?)"
                raise AllocationError(f"{where}, selector #{index}: {text}")
        asks_admin = isinstance(spec, ExactDeviceRequest) and spec.admin_access is not None
        if asks_admin and not self._rules.admin_access:
            raise AllocationError(f"{where}: admin access is requested, but the feature is disabled")
        name = spec.device_class_name
        if not name:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._asked.classes.get(name)
        if device_class is None:
            text = f'could not retrieve device class {name}: deviceclass.resource.k8s.io "{name}" not found'
            raise AllocationError(f"{where}: {text}")
        request = SearchedRequest(place, claim_name, names, spec, device_class)
        if spec.allocation_mode == "All":
            request.all_devices = self._all_devices(request, where, known)
            request.count = len(request.all_devices)
        elif spec.allocation_mode != "ExactCount":
            raise AllocationError(f"{where}: unsupported count mode {spec.allocation_mode}")
        return request

    def _all_devices(
        self, request: SearchedRequest, where: str, known: dict[int, Fact | None]
    ) -> list[Candidate]:
        devices = []
        for pool in self._pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                text = f"asks for all devices, but resource pool {pool} is currently {state}"
                raise AllocationError(f"{where}: {text}")
            for candidate in self._by_pool.get(id(pool), ()):
                if not self._selectors.is_selectable(request, candidate, known):
                    continue
                if self._rules.shared:
                    amounts = request.consumed_amounts(candidate)
                    held = self._asked.in_use.consumed.get(candidate.id)
                    if isinstance(amounts, tuple) or capacity_short(amounts, candidate.device.capacity, held):
                        continue
                devices.append(candidate)
        return devices
