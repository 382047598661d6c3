"""Which devices the claims of a pod get on a node, or that they get none."""

import msgspec

from nodewright.engine.core.claims.allocation_results import allocation_results
from nodewright.engine.core.claims.allocation_values import (
    Allocated,
    AllocationError,
    AllocationFailed,
    AllocationInput,
    AllocationOutcome,
    NotAllocatable,
    SearchGivenUp,
    SearchRecord,
)
from nodewright.engine.core.claims.device_pools import Pool, pools_of_node
from nodewright.engine.core.claims.device_search import DeviceSearch, SearchLimitError
from nodewright.engine.core.claims.device_selectors import DeviceSelectors
from nodewright.engine.core.claims.request_checks import RequestChecks
from nodewright.engine.core.claims.searched_requests import Candidate


class AllocationAnswer(msgspec.Struct, frozen=True):
    """The outcome, and the pools that the node sees, in the order of the search."""

    outcome: AllocationOutcome
    pools: tuple[Pool, ...] = ()
    steps: int = 0
    """How many devices were tried, approximately."""


def allocate(asked: AllocationInput, record: SearchRecord | None = None) -> AllocationAnswer:
    """The allocation of all claims, or why there is none; ``record`` collects how the search went.

    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go, Allocate.
    Departs: a search is given up because of its effort, where the scheduler's ends after ten seconds. Parts of it that
        fail with certainty are left out, unless there is a record.
    """
    pools: tuple[Pool, ...] = ()
    try:
        pools = pools_of_node(asked.slices, asked.node, asked.rules)
        outcome, steps = _outcome(asked, pools, record)
    except AllocationError as error:
        outcome, steps = AllocationFailed(str(error)), 0
    return AllocationAnswer(outcome, pools, steps)


def _outcome(
    asked: AllocationInput, pools: tuple[Pool, ...], record: SearchRecord | None
) -> tuple[AllocationOutcome, int]:
    candidates, end_error = candidates_of(pools, checked=asked.rules.is_later)
    selectors = DeviceSelectors(asked)
    requests = RequestChecks(asked, pools, candidates, selectors).checked()
    search = DeviceSearch(asked, requests, candidates, selectors, record)
    search.end_error = end_error
    try:
        devices = search.run()
    except SearchLimitError:
        return SearchGivenUp(search.steps), search.steps
    steps = search.steps + selectors.evaluated
    if devices is None:
        if asked.rules.is_later and any(pool.invalid for pool in pools):
            error = "invalid resource pools were encountered"
            return AllocationFailed(error, only_this_node=True), steps
        return NotAllocatable(), steps
    alternatives = search.chosen_alternatives()
    chosen = [
        [each[alternatives.get((claim, index), 0)] for index, each in enumerate(of_claim)]
        for claim, of_claim in enumerate(requests)
    ]
    return Allocated(allocation_results(asked, devices, chosen)), steps


def candidates_of(pools: tuple[Pool, ...], *, checked: bool) -> tuple[list[Candidate], str]:
    """The devices in the order of the search, and the error of reaching their end.

    Without ``checked``, those of incomplete pools are among them, and they end before an invalid pool.
    """
    candidates: list[Candidate] = []
    for pool in pools:
        if pool.invalid and not checked:
            return candidates, f"pool {pool.name} is invalid: {pool.invalid}"
        if pool.is_usable or not checked:
            for piece in pool.slices:
                for device in piece.spec.devices:
                    candidates.append(Candidate(len(candidates), pool, piece, device))
    return candidates, ""
