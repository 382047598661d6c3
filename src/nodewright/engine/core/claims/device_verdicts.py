"""What each device of a node is for each request by itself: it would do, or why not."""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from nodewright.engine.core.claims.allocation import candidates_of
from nodewright.engine.core.claims.allocation_values import (
    AllocationError,
    AllocationInput,
    Fact,
    Holders,
    Outcome,
    SelectorUnmet,
)
from nodewright.engine.core.claims.device_pools import Pool, pools_of_node
from nodewright.engine.core.claims.device_search import DeviceSearch
from nodewright.engine.core.claims.device_selectors import DeviceSelectors
from nodewright.engine.core.claims.request_checks import RequestChecks
from nodewright.engine.core.claims.searched_requests import Candidate, RequestSpec, SearchedRequest
from nodewright.model.kubernetes.claims import DeviceRequest, ExactDeviceRequest, ResourceClaim
from nodewright.model.printable import counted


class PoolUnusable(NamedTuple):
    """No device of the pool is allocated, because it lacks slices or is invalid."""

    pool: str
    reason: str
    is_incomplete: bool = False


class DeviceError(NamedTuple):
    """A selector or a node selector fails for the device, which ends the search."""

    error: AllocationError


NOT_MATCHING = (Outcome.NOT_SELECTABLE, Outcome.UNDEFINED_CAPACITY, Outcome.CAPACITY)
"""What keeps devices from being among those of a request for all devices."""
Because: TypeAlias = Fact | PoolUnusable | DeviceError | None


class DeviceVerdict(NamedTuple):
    """A device, and what becomes of it if it is the first one that is tried for the request."""

    candidate: Candidate
    outcome: Outcome
    because: Because = None

    @property
    def is_suitable(self) -> bool:
        """Whether the device would do."""
        return self.outcome is Outcome.TAKEN


class RequestVerdicts(NamedTuple):
    """A request, or one of its alternatives, and a verdict about each device of the node."""

    claim: int
    """The place of the claim among those of the search, from 0."""
    claim_name: str
    request: SearchedRequest
    needed: int
    """How many devices the request needs: for All, those that suit."""
    verdicts: tuple[DeviceVerdict, ...]
    problem: AllocationError | None = None
    """Why the request cannot be searched for at all."""

    @property
    def is_all(self) -> bool:
        """Whether it asks for all devices that suit."""
        return self.request.spec.allocation_mode == "All"

    @property
    def of_class(self) -> list[DeviceVerdict]:
        """The verdicts about devices of the request's class."""
        return [
            each
            for each in self.verdicts
            if not (isinstance(each.because, SelectorUnmet) and each.because.device_class)
        ]

    @property
    def suitable(self) -> list[Candidate]:
        """The devices that would do."""
        return [each.candidate for each in self.verdicts if each.is_suitable]

    @property
    def is_short(self) -> bool:
        """Whether there are too few devices for this request alone."""
        return self.problem is not None or not self.needed or len(self.suitable) < self.needed


class NodeDevices:
    """The devices that a node sees, those of incomplete pools as well.

    Errors: AllocationError for a node selector that does not parse.
    """

    def __init__(self, asked: AllocationInput) -> None:
        self._asked, rules = asked, asked.rules
        self.pools = pools_of_node(asked.slices, asked.node, rules)
        self._candidates, _ = candidates_of(self.pools, checked=rules.is_later)
        known = {(each.driver, each.name): each.invalid for each in self.pools if not each.is_usable}
        in_slices = replace(rules, counters_by_pool=False)
        following = count(len(self._candidates))
        self._unusable = [
            (
                Candidate(next(following), pool, piece, device),
                self._unusable_pool(pool, known[pool.driver, pool.name]),
            )
            for pool in (pools_of_node(asked.slices, asked.node, in_slices) if known else ())
            if (pool.driver, pool.name) in known and rules.is_later
            for piece in pool.slices
            for device in piece.spec.devices
        ]
        self.unusable_pools = tuple(dict.fromkeys(reason for _, reason in self._unusable))
        self._selectors = DeviceSelectors(asked)

    def _unusable_pool(self, pool: Pool, invalid: str) -> PoolUnusable:
        if invalid:
            return PoolUnusable(str(pool), f"invalid: {invalid}")
        pieces = [
            each.spec.pool
            for each in self._asked.slices
            if (each.spec.driver, each.spec.pool.name) == (pool.driver, pool.name)
        ]
        newest = max(each.generation for each in pieces)
        pieces = [each for each in pieces if each.generation == newest]
        expected = counted(pieces[0].resource_slice_count, "ResourceSlice")
        return PoolUnusable(
            str(pool), f"incomplete: {len(pieces)} of {expected} published", is_incomplete=True
        )

    def verdicts(self) -> Iterator[RequestVerdicts]:
        """The verdicts for all requests and alternatives, in order; none for those of a class that is missing."""
        for index, claim in enumerate(self._asked.claims):
            for request in claim.spec.devices.requests:
                yield from self._of_request(index, claim, request)

    def _of_request(
        self, index: int, claim: ResourceClaim, request: DeviceRequest
    ) -> Iterator[RequestVerdicts]:
        problem = None
        try:
            self._checked(claim, request)
        except AllocationError as error:
            problem = error
        try:
            alternatives, search = self._checked(claim, _one_of_each(request))
        except AllocationError:
            return
        specs: tuple[RequestSpec, ...] = request.first_available or (request.exactly or ExactDeviceRequest(),)
        for each, spec in zip(alternatives, specs, strict=True):
            own = tuple(self._of_devices(each, search))
            each.spec = spec
            matching = sum(verdict.outcome not in NOT_MATCHING for verdict in own)
            needed = matching if spec.allocation_mode == "All" else spec.count
            yield RequestVerdicts(index, claim.name, each, needed, own, problem)

    def _checked(
        self, claim: ResourceClaim, request: DeviceRequest
    ) -> tuple[list[SearchedRequest], DeviceSearch]:
        devices = replace(claim.spec.devices, requests=(request,))
        question = replace(self._asked, claims=(replace(claim, spec=replace(claim.spec, devices=devices)),))
        requests = RequestChecks(question, self.pools, self._candidates, self._selectors).checked()
        return requests[0][0], DeviceSearch(question, requests, self._candidates, self._selectors)

    def _of_devices(self, request: SearchedRequest, search: DeviceSearch) -> Iterator[DeviceVerdict]:
        """A device that does not suit counts as that, even if it is in use."""
        for candidate in self._candidates:
            try:
                self._selectors.is_selectable(request, candidate, request.selectable)
                unmet = request.selectable[candidate.index]
                if unmet is not None:
                    yield DeviceVerdict(candidate, Outcome.NOT_SELECTABLE, unmet)
                    continue
                tried = search.verdict(request, candidate)
                yield DeviceVerdict(candidate, tried.outcome, tried.because)
            except AllocationError as error:
                holders = self._asked.in_use.exclusive.get(candidate.id)
                because = Holders(holders) if holders and not request.is_admin else DeviceError(error)
                yield DeviceVerdict(candidate, Outcome.NOT_SELECTABLE, because)
        for candidate, unusable in self._unusable:
            try:
                if self._selectors.is_selectable(request, candidate, request.selectable):
                    yield DeviceVerdict(candidate, Outcome.NOT_SELECTABLE, unusable)
            except AllocationError:
                continue


def _one_of_each(request: DeviceRequest) -> DeviceRequest:
    """The request for one device, so that each can be tried by itself."""
    exactly = request.exactly and replace(request.exactly, allocation_mode="ExactCount", count=1)
    first = tuple(replace(each, allocation_mode="ExactCount", count=1) for each in request.first_available)
    return replace(request, exactly=exactly, first_available=first)
