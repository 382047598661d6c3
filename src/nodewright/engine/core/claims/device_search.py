"""The search for devices: depth first, the first solution counts, as Kubernetes does it."""

from enum import Enum
from typing import NamedTuple, TypeAlias

from nodewright.engine.core.claims.alike_devices import AlikeDevices, Likeness
from nodewright.engine.core.claims.allocation_values import (
    MAX_DEVICES,
    AllocationError,
    AllocationInput,
    Attempt,
    CapacityShort,
    DeviceID,
    Fact,
    Holders,
    Outcome,
    SearchRecord,
    Tried,
    Untolerated,
)
from nodewright.engine.core.claims.device_capacity import capacity_short
from nodewright.engine.core.claims.device_constraints import AttributeConstraint
from nodewright.engine.core.claims.device_counters import CounterLedger
from nodewright.engine.core.claims.device_selectors import DeviceSelectors
from nodewright.engine.core.claims.device_taints import taints_of, untolerated_taint
from nodewright.engine.core.claims.searched_requests import Candidate, SearchedRequest
from nodewright.model.kubernetes.objects import ResourceList

MAX_EFFORT = 5_000_000
"""What a search may cost: a few seconds; Kubernetes' own ends after ten."""
MAX_RECORD = 10_000
"""Entries of a record; what comes after them is not recorded."""
SHORT_EFFORT = 1000
"""A search that is longer, and has no record, is shortened where that changes no answer."""
_TRY = 10
"""The effort of trying a device; one that is left out at once costs 1."""


class SearchLimitError(Exception):
    """The search was ended because of its effort."""


_IN_USE = Outcome.IN_USE, None
"""Without a record, a fact is not needed."""


class Failure(Enum):
    """Why a part of the search has no solution."""

    NONE_FITS = "none fits"
    TOO_MANY = "too many"
    """The claim would have more than 32 devices."""


class Position(NamedTuple):
    """The device that is looked for next: all are indices; the last is where the search begins among the devices."""

    claim: int
    request: int
    alternative: int | None
    """None: the alternatives, if there are any, are still to be tried."""
    device: int
    start: int


SOLVED = Position(-1, 0, None, 0, 0)


class TakenDevice(NamedTuple):
    """A device that is allocated to a request."""

    request: SearchedRequest
    candidate: Candidate
    consumed: ResourceList | None
    """Of a shared device: what it consumes."""


FailedDevices: TypeAlias = dict[int, set[Likeness]]
"""By how far the search came with devices: what made them fail."""


class ClaimEnd:
    """A claim is complete: what follows is another one."""

    def resume(self, _: Failure) -> Position | Failure:
        """Too many devices of a later claim are no reason to stop."""
        return Failure.NONE_FITS


class Alternatives:
    """The alternatives of a request, in order."""

    def __init__(self, position: Position, number: int, *, propagates: bool) -> None:
        self.position, self.number = position, number
        self.chosen = -1
        self._all_exceeded = propagates

    def resume(self, failure: Failure | None) -> Position | Failure:
        """The next alternative."""
        if failure is Failure.NONE_FITS:
            self._all_exceeded = False
        self.chosen += 1
        if self.chosen == self.number:
            return Failure.TOO_MANY if self._all_exceeded else Failure.NONE_FITS
        return self.position._replace(alternative=self.chosen)


class DeviceChoice:
    """One device of a request: the candidates in order."""

    def __init__(self, search: "DeviceSearch", request: SearchedRequest, position: Position) -> None:
        self._search, self._request, self._position = search, request, position
        self._next = position.start
        self._taken: TakenDevice | None = None
        self._reached = 0
        self._failed: FailedDevices = {}

    def resume(self, failure: Failure | None) -> Position | Failure:
        """Takes the next device that can be taken, after the one that it had is given back."""
        search, request, position = self._search, self._request, self._position
        if failure is not None:
            assert self._taken is not None
            search.give_back(self._taken)
            if failure is Failure.TOO_MANY or request.all_devices is not None:
                return failure
            search.note_failure(request, self._taken.candidate, self._failed)
            search.reached = max(search.reached, self._reached)
        if request.all_devices is not None:
            candidate = request.all_devices[position.device]
            self._taken = search.take(request, candidate, position.device, must=True)
            following = position._replace(device=position.device + 1, start=0)
            if not search.rules.is_latest and position.alternative is not None:
                following = following._replace(alternative=0)
            return following if self._taken else Failure.NONE_FITS
        candidates, selectable = search.candidates, request.selectable
        for index in range(self._next, len(candidates)):
            if search.is_shortened and index in selectable and search.is_excluded(request, candidates[index]):
                continue
            self._taken = search.try_to_take(request, candidates[index], position.device, self._failed)
            if self._taken:
                self._next = index + 1
                self._reached, search.reached = search.reached, request.rank
                start = index + 1 if search.rules.combined else 0
                return position._replace(device=position.device + 1, start=start)
        if search.end_error:
            raise AllocationError(search.end_error)
        return Failure.NONE_FITS


class DeviceSearch:
    """A search for the devices of checked requests.

    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go, allocateOne,
        allocateDevice.
    Departs: a stack in place of recursion.
    """

    def __init__(
        self,
        asked: AllocationInput,
        requests: list[list[list[SearchedRequest]]],
        candidates: list[Candidate],
        selectors: DeviceSelectors,
        record: SearchRecord | None = None,
    ) -> None:
        self.rules, self.candidates = asked.rules, candidates
        self.end_error = ""
        """The error of a search that goes through all candidates: the pool behind them is invalid."""
        self._asked, self._requests, self._selectors, self._record = asked, requests, selectors, record
        self._in_use = asked.in_use
        self._counters = CounterLedger(asked.in_use, asked.rules)
        self._devices: list[list[TakenDevice]] = [[] for _ in requests]
        self._users: dict[int, set[int]] = {}
        """By index of a device: the claims that have taken it for themselves."""
        self._shares: dict[DeviceID, ResourceList] = {}
        """What was taken of shared devices."""
        self._frames: list[ClaimEnd | Alternatives | DeviceChoice] = []
        self.reached = 0
        """The highest rank of a request since the last device was taken."""
        for rank, request in enumerate(each for claim in requests for group in claim for each in group):
            request.rank = rank
        self._alike: AlikeDevices | None = None
        self.is_shortened = False
        """Parts that fail with certainty are left out."""
        self._effort = 0

    def run(self) -> list[list[TakenDevice]] | None:
        """The devices of each claim; None: it is impossible.

        Errors: AllocationError; SearchLimitError where the search would take too long.
        """
        limit = MAX_EFFORT if self._asked.max_effort is None else self._asked.max_effort
        step: Position | Failure = Position(0, 0, None, 0, 0)
        while True:
            if self._effort > limit:
                raise SearchLimitError
            if self._record is not None and len(self._record) >= MAX_RECORD:
                self._record = None
            if self._alike is None and self._effort > SHORT_EFFORT and self._record is None:
                self._alike = AlikeDevices(self._asked, self._requests, self.candidates, self._selectors)
                self.is_shortened = self._alike.is_exact
            if isinstance(step, Failure):
                if not self._frames:
                    return None
                resumed = self._frames[-1].resume(step)
                if isinstance(resumed, Failure):
                    self._frames.pop()
                step = resumed
            elif step is SOLVED:
                return self._devices
            else:
                step = self._enter(step)

    @property
    def steps(self) -> int:
        """How many devices were tried, approximately."""
        return self._effort // _TRY

    def chosen_alternatives(self) -> dict[tuple[int, int], int]:
        """The alternatives of the solution, by claim and request."""
        return {
            (frame.position.claim, frame.position.request): frame.chosen
            for frame in self._frames
            if isinstance(frame, Alternatives)
        }

    def _enter(self, position: Position) -> Position | Failure:
        if position.claim == len(self._requests):
            return SOLVED
        requests = self._requests[position.claim]
        if position.request == len(requests):
            self._frames.append(ClaimEnd())
            return Position(position.claim + 1, 0, None, 0, 0)
        alternatives = requests[position.request]
        if position.alternative is None and alternatives[0].alternative_name:
            frame = Alternatives(position, len(alternatives), propagates=not self.rules.is_minimal)
            self._frames.append(frame)
            return frame.resume(None)
        request = alternatives[position.alternative or 0]
        if request.all_devices is not None and not request.all_devices:
            self._note("", Outcome.NO_DEVICES)
            return Failure.NONE_FITS
        if position.device >= request.count:
            return Position(position.claim, position.request + 1, None, 0, 0)
        if len(self._devices[position.claim]) + request.count - position.device > MAX_DEVICES:
            return Failure.NONE_FITS if self.rules.is_minimal else Failure.TOO_MANY
        if self._record is not None:
            self._record.append(
                Attempt(position.claim, position.request, position.alternative or 0, position.device)
            )
        self.reached = max(self.reached, request.rank)
        choice = DeviceChoice(self, request, position)
        step = choice.resume(None)
        if not isinstance(step, Failure):
            self._frames.append(choice)
        return step

    # ------------------------------------------------------------ candidates

    def try_to_take(
        self, request: SearchedRequest, candidate: Candidate, at: int, failed: "FailedDevices"
    ) -> TakenDevice | None:
        """Takes the device for the request if it is free, meets the selectors, has enough capacity and is not hopeless."""
        self._effort += _TRY
        used = self._use(request, candidate)
        if used is not None:
            self._note(candidate.name, *used)
            return None
        if not self._selectors.is_selectable(request, candidate, request.selectable):
            self._note(candidate.name, Outcome.NOT_SELECTABLE, request.selectable[candidate.index])
            return None
        if self.rules.shared and (short := self._capacity_short(request, candidate)) is not None:
            self._note(candidate.name, *short)
            return None
        if self._alike is not None and self.is_shortened:
            if self._alike.is_too_few(request, candidate):
                return None
            if any(self._likeness(request, candidate, reached) in each for reached, each in failed.items()):
                return None
        return self.take(request, candidate, at, must=False)

    def is_excluded(self, request: SearchedRequest, candidate: Candidate) -> bool:
        """Whether a device that was asked about before is refused at once by selectors or constraints."""
        self._effort += 1
        return request.selectable[candidate.index] is not None or any(
            constraint.excludes(candidate.id) for constraint in request.constraints
        )

    def note_failure(self, request: SearchedRequest, candidate: Candidate, failed: "FailedDevices") -> None:
        """Remembers what made the search fail with this device, if those that are alike fail with certainty."""
        if self.is_shortened:
            failed.setdefault(self.reached, set()).add(self._likeness(request, candidate, self.reached))

    def _likeness(self, request: SearchedRequest, candidate: Candidate, reached: int) -> Likeness:
        assert self._alike is not None
        users = self._users.get(candidate.index)
        return self._alike.likeness(request, candidate, reached, users, self._shares)

    def take(
        self, request: SearchedRequest, candidate: Candidate, at: int, *, must: bool
    ) -> TakenDevice | None:
        """Takes the device unless it is in use, counters are short, or a taint or constraint refuses it.

        With ``must`` (for All), a constraint that refuses it is an error.
        """
        device = candidate.device
        is_shared = self.rules.shared and device.allow_multiple_allocations
        if must:
            used = self._use(request, candidate)
            if used is not None and not (is_shared and used[0] is Outcome.IN_USE_SAME_CLAIM):
                self._note(candidate.name, *used)
                return None
        consumes = candidate.device.consumes_counters and not self._has_counters(
            candidate, is_shared=is_shared
        )
        refusal = (consumes and self._consume_counters(candidate)) or self._untolerated(request, candidate)
        if refusal and not must:
            self._note(candidate.name, *refusal)
        if refusal or not self._satisfies_constraints(request, candidate, must=must):
            is_consumed = consumes and not (refusal and refusal[0] is not Outcome.TAINT)
            if is_consumed and not self.rules.counters_leak:
                self._counters.give_back(candidate.pool, candidate.piece, candidate.device)
            return None
        if not is_shared:
            self._users.setdefault(candidate.index, set()).add(request.claim)
        self._note(candidate.name, Outcome.TAKEN)
        consumed: ResourceList | None = None
        if self.rules.shared:
            if self._lacks_capacity(request, candidate, at, must=must):
                self._note("", Outcome.CAPACITY)
                return None
            if is_shared:
                amounts = request.consumed_amounts(candidate)
                assert isinstance(amounts, dict)
                consumed = amounts
                taken = self._shares.setdefault(candidate.id, {})
                for name, amount in consumed.items():
                    taken[name] = taken[name] + amount if name in taken else amount
        result = TakenDevice(request, candidate, consumed)
        self._devices[request.claim].append(result)
        return result

    def verdict(self, request: SearchedRequest, candidate: Candidate) -> Tried:
        """What becomes of the device if it is the first one that is tried; the search has not begun.

        Errors: AllocationError where a selector does not compile or fails.
        """
        self._record = []
        taken = self.try_to_take(request, candidate, 0, {})
        record = [each for each in self._record if isinstance(each, Tried)]
        if taken is not None:
            self.give_back(taken)
        elif record[0].outcome is Outcome.TAKEN:
            for constraint in request.constraints:
                constraint.remove(request.request_name)
        for kept in (self._users, self._shares, self._devices[request.claim]):
            kept.clear()
        self._counters.forget()
        return record[-1] if taken is None else record[0]

    def give_back(self, taken: TakenDevice) -> None:
        """Undoes `take`. What a shared device consumed of counters stays consumed, as in Kubernetes."""
        request, candidate = taken.request, taken.candidate
        for constraint in request.constraints:
            constraint.remove(request.request_name)
        if taken.consumed is None:
            self._users[candidate.index].discard(request.claim)
            if candidate.device.consumes_counters:
                self._counters.give_back(candidate.pool, candidate.piece, candidate.device)
        elif taken.consumed and (left := self._shares.get(candidate.id)) is not None:
            for name, amount in taken.consumed.items():
                left[name] = left[name] - amount
            if all(amount.is_zero() for amount in left.values()):
                del self._shares[candidate.id]
        self._devices[request.claim].pop()
        self._note(candidate.name, Outcome.GIVEN_BACK)

    # ------------------------------------------------------------ checks of a candidate

    def _use(self, request: SearchedRequest, candidate: Candidate) -> tuple[Outcome, Fact | None] | None:
        """Whether the device is in use, for this request."""
        users = self._users.get(candidate.index)
        if request.is_admin:
            if not users or request.claim not in users:
                return None
            return Outcome.IN_USE_SAME_CLAIM, Holders((request.claim_name,), by_this_search=True)
        if candidate.id in self._in_use.exclusive:
            return Outcome.IN_USE, Holders(self._in_use.exclusive[candidate.id])
        if not users:
            return None
        if self._record is None:
            return _IN_USE
        names = tuple(self._asked.claims[index].name for index in sorted(users))
        return Outcome.IN_USE, Holders(names, by_this_search=True)

    def _capacity_short(
        self, request: SearchedRequest, candidate: Candidate
    ) -> tuple[Outcome, CapacityShort] | None:
        amounts = request.consumed_amounts(candidate)
        if isinstance(amounts, tuple):
            return amounts
        held, taken = self._in_use.consumed.get(candidate.id), self._shares.get(candidate.id)
        short = capacity_short(amounts, candidate.device.capacity, held, taken)
        return None if short is None else (Outcome.CAPACITY, short)

    def _lacks_capacity(self, request: SearchedRequest, candidate: Candidate, at: int, *, must: bool) -> bool:
        """Whether the capacity is short, for All or by the check of older releases."""
        if self.rules.is_later:
            return must and self._capacity_short(request, candidate) is not None
        devices = candidate.piece.spec.devices
        other = Candidate(-1, candidate.pool, candidate.piece, devices[min(at, len(devices) - 1)])
        unknown = SearchedRequest((0, 0, 0), "", ("", ""), request.spec, request.device_class)
        return self._capacity_short(unknown, other) is not None

    def _has_counters(self, candidate: Candidate, *, is_shared: bool) -> bool:
        """Whether another share of the device has consumed its counters."""
        is_held = candidate.id in self._in_use.consumed or candidate.id in self._shares
        return is_shared and is_held and self.rules.partitionable and self.rules.is_later

    def _consume_counters(self, candidate: Candidate) -> tuple[Outcome, Fact | None] | None:
        if not self.rules.partitionable:
            return Outcome.PARTITIONABLE_OFF, None
        place = candidate.pool, candidate.piece, candidate.device
        if self._counters.consume(*place):
            return None
        return Outcome.COUNTERS, self._counters.shortage(*place) if self._record is not None else None

    def _untolerated(self, request: SearchedRequest, candidate: Candidate) -> tuple[Outcome, Fact] | None:
        if not self.rules.taints:
            return None
        rules = self._asked.taint_rules if self.rules.taint_rules else ()
        taint = untolerated_taint(
            taints_of(candidate.device, candidate.id, rules) if rules else candidate.device.taints,
            request.spec.tolerations,
            known_effects=self.rules.is_later,
        )
        return None if taint is None else (Outcome.TAINT, Untolerated(taint))

    def _satisfies_constraints(self, request: SearchedRequest, candidate: Candidate, *, must: bool) -> bool:
        added: list[AttributeConstraint] = []
        for constraint in request.constraints:
            refusal = constraint.add(request.request_name, candidate.device, candidate.id)
            if refusal is None:
                added.append(constraint)
                continue
            if must:
                text = f"cannot add device {candidate.name} because a claim constraint would not be satisfied"
                raise AllocationError(f"claim {request.claim_name}, request {request.name}: {text}")
            for each in added:
                each.remove(request.request_name)
            if self._record is not None:
                self._note(candidate.name, refusal, constraint.conflict(candidate.device, candidate.id))
            return False
        return True

    # ------------------------------------------------------------ the record

    def _note(self, device: str, outcome: Outcome, because: Fact | None = None) -> None:
        if self._record is not None:
            self._record.append(Tried(device, outcome, because))
