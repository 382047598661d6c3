"""Devices that are alike for the rest of a search: where one has failed, the other fails as well."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from nodewright.engine.core.claims.allocation_values import AllocationError, AllocationInput, DeviceID
from nodewright.engine.core.claims.device_constraints import AttributeConstraint
from nodewright.engine.core.claims.device_selectors import DeviceSelectors
from nodewright.engine.core.claims.searched_requests import Candidate, SearchedRequest
from nodewright.model.kubernetes.objects import ResourceList

Likeness: TypeAlias = tuple[object, ...]
_MAX_ASKED = 20_000
"""Pairs of requests and devices that are asked about before a search is shortened."""


class AlikeDevices:
    """What makes devices alike: exchanged in a solution, they give another one.

    A search that has failed with a device at some place fails with a later one that is alike, since a solution with it
    would be one with the earlier device when the two are exchanged. That holds if an attempt that fails leaves nothing
    behind, which `is_exact` finds out; Kubernetes leaks counters, and forgets values of distinctAttribute.
    """

    def __init__(
        self,
        asked: AllocationInput,
        requests: Sequence[Sequence[Sequence[SearchedRequest]]],
        candidates: Sequence[Candidate],
        selectors: DeviceSelectors,
    ) -> None:
        self._asked, self._rules, self._selectors = asked, asked.rules, selectors
        self._requests = [alternative for claim in requests for request in claim for alternative in request]
        constraints: dict[int, AttributeConstraint] = {}
        for request in self._requests:
            constraints.update((id(constraint), constraint) for constraint in request.constraints)
        self._constraints = tuple(constraints.values())
        self._in_all = [
            frozenset(candidate.index for candidate in request.all_devices or ())
            for request in self._requests
        ]
        self._candidates = candidates
        self._groups: dict[tuple[int, bool], Counter[object]] = {}
        self.is_exact = not self._rules.list_attributes and not self._leaks(candidates)

    def _leaks(self, candidates: Sequence[Candidate]) -> bool:
        """Whether a failed attempt may change what follows it."""
        rules = self._rules
        for request in self._requests:
            compares = any(not constraint.is_match for constraint in request.constraints)
            if compares and request.count > 1:
                return True
            if request.all_devices is not None and (
                request.constraints
                or any(each.device.allow_multiple_allocations for each in request.all_devices)
            ):
                return True
        if rules.shared and not rules.is_later:
            return True
        consuming = (
            [each for each in candidates if each.device.consumes_counters] if rules.partitionable else []
        )
        if len(consuming) * len(self._requests) > _MAX_ASKED:
            return True
        return any(
            self._may_leak(request, candidate) for request in self._requests for candidate in consuming
        )

    def _may_leak(self, request: SearchedRequest, candidate: Candidate) -> bool:
        """Whether counters that the device consumed for the request may stay consumed."""
        device, rules = candidate.device, self._rules
        is_refused = bool(request.constraints) or (
            rules.taints and bool(device.taints or (rules.taint_rules and self._asked.taint_rules))
        )
        is_shared = rules.shared and device.allow_multiple_allocations
        return (is_refused or is_shared) and self._may_have(request, candidate) is not False

    def is_too_few(self, request: SearchedRequest, candidate: Candidate) -> bool:
        """Whether fewer devices than the request needs have the value that the others would have to match."""
        if request.count < 2 or not self._rules.combined:
            return False
        for constraint in request.constraints:
            value = constraint.unset_value(candidate.device, candidate.id)
            if value is not None and self._group(constraint, request)[value] < request.count:
                return True
        return False

    def _group(self, constraint: AttributeConstraint, request: SearchedRequest) -> Counter[object]:
        """How many devices have each value, of those that are not allocated unless the request has admin access."""
        key = id(constraint), request.is_admin
        if key not in self._groups:
            self._groups[key] = Counter(
                constraint.value_of(each.device, each.id)
                for each in self._candidates
                if request.is_admin or each.id not in self._asked.in_use.exclusive
            )
        return self._groups[key]

    def likeness(
        self,
        request: SearchedRequest,
        candidate: Candidate,
        reached: int,
        users: set[int] | None,
        shares: Mapping[DeviceID, ResourceList],
    ) -> Likeness:
        """What decides about the device after this request, up to the rank that was reached.

        Whether a later request may have it counts if the search has asked that of any device. Where a selector fails,
        the device is like no other: Kubernetes ends with that error if it comes there.
        """
        parts: list[object] = [self._own(candidate), frozenset(users or ())]
        if candidate.device.allow_multiple_allocations:
            parts.append(repr((self._asked.in_use.consumed.get(candidate.id), shares.get(candidate.id))))
        place = request.claim, request.request
        for later in self._requests[request.rank + 1 : reached + 1]:
            if (later.claim, later.request) == place:
                continue
            if later.all_devices is not None:
                parts.append(candidate.index in self._in_all[later.rank])
            elif later.selectable:
                parts.append(self._may_have(later, candidate))
        return tuple(parts)

    def _may_have(self, request: SearchedRequest, candidate: Candidate) -> object:
        try:
            return self._selectors.is_selectable(request, candidate, request.selectable)
        except AllocationError:
            return object()

    def _own(self, candidate: Candidate) -> Likeness:
        """What does not change during the search."""
        if candidate.likeness is None:
            device, rules = candidate.device, self._rules
            candidate.likeness = (
                candidate.id in self._asked.in_use.exclusive,
                repr(device.capacity) if rules.shared else None,
                repr(device.taints) if rules.taints else None,
                candidate.id if rules.taint_rules and self._asked.taint_rules else None,
                (candidate.pool.name, repr(device.consumes_counters)) if device.consumes_counters else None,
                tuple(constraint.value_of(device, candidate.id) for constraint in self._constraints),
            )
        return candidate.likeness
