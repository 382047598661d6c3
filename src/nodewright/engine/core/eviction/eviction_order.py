"""Why a pod is evicted before another, and the smallest change with which another is evicted first."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from math import ceil

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_ranking import (
    ActivePod,
    Amount,
    EvictionCandidate,
    StatsByUID,
    ranked_pods,
)
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, Signal
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, INODES, MEMORY, PIDS

HIGHEST_USER_DEFINABLE_PRIORITY = 1_000_000_000
"""The highest priority of pods that are not system-critical.

Follows: v1.36, pkg/apis/scheduling/types.go, HighestUserDefinablePriority.
"""


class RankKey(StrEnum):
    """The key that decides which of two pods is evicted first."""

    STATS = "stats"
    """One has no stats."""
    EXCEEDS = "exceeds"
    """One uses more than it requests."""
    PRIORITY = "priority"
    EXCESS = "over"
    """One exceeds its request by more, or has more processes."""
    LIST_ORDER = "place"
    """None: the order of the list decides, which is random in the kubelet."""


def deciding_key(signal: Signal, earlier: EvictionCandidate, later: EvictionCandidate) -> RankKey:
    """The key that ranks `earlier` before `later`.

    Follows: v1.36, eviction/helpers.go, rankMemoryPressure, rankPIDPressure, rankDiskPressureFunc.
    """
    keys: list[tuple[RankKey, Callable[[EvictionCandidate], object]]] = [
        (RankKey.STATS, lambda candidate: candidate.has_stats),
        (RankKey.EXCEEDS, lambda candidate: candidate.exceeds_request),
        (RankKey.PRIORITY, lambda candidate: candidate.active_pod.priority),
        (RankKey.EXCESS, lambda candidate: candidate.excess),
    ]
    if SIGNAL_RESOURCES[signal] == PIDS:
        keys = [keys[2], keys[0], keys[3]]
    return next((key for key, value_of in keys if value_of(earlier) != value_of(later)), RankKey.LIST_ORDER)


class RankChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one pod, after which another is evicted first.

    Units: request and request_increase in bytes.
    """

    active_pod: ActivePod
    """The pod that is evicted first without the change."""
    next_pod: ActivePod
    """The pod that is evicted first after the change."""
    resource: str = ""
    """The resource to request more of; empty: the requests stay."""
    request: int = 0
    """The sufficient request."""
    request_increase: int = 0
    priority: int | None = None
    """The sufficient priority; None: it stays."""


def rank_changes(
    signal: Signal, filesystems: NodeFilesystems, active_pods: Sequence[ActivePod], stats: StatsByUID
) -> tuple[RankChange, ...]:
    """The smallest request, and the smallest priority, with which the first pod is no longer the first.

    If neither suffices alone: a request as large as the usage, with the smallest priority. All changes are tried; a
    change that is not in the result does not suffice.

    Units: as `RankChange`.
    """
    ranked = [
        pod for pod in ranked_pods(signal, filesystems, active_pods, stats) if not pod.active_pod.is_critical
    ]
    if len(ranked) < 2:
        return ()

    def first_after(changed: ActivePod) -> ActivePod | None:
        """The first pod after this change; None: the same pod."""
        others = [changed if active_pod.uid == changed.uid else active_pod for active_pod in active_pods]
        reranked = ranked_pods(signal, filesystems, others, stats)
        first = next(candidate.active_pod for candidate in reranked if not candidate.active_pod.is_critical)
        return None if first.uid == changed.uid else first

    first = ranked[0].active_pod
    changes = (_by_request(signal, ranked, first_after), _by_priority(first, ranked, first_after))
    sufficient = tuple(change for change in changes if change is not None)
    both = _by_both(signal, ranked, first_after) if not sufficient else None
    return sufficient if both is None else (both,)


_FirstAfter = Callable[[ActivePod], ActivePod | None]


def _by_request(
    signal: Signal, ranked: Sequence[EvictionCandidate], first_after: _FirstAfter
) -> RankChange | None:
    """Requests matter only if the key depends on them: up to the usage, or below another pod's excess."""
    first, resource = ranked[0], _requested(signal)
    if not resource or not first.has_stats:
        return None
    now = first.active_pod.requests.get(resource, 0)
    requests = sorted({request for request in _deciding_requests(first, ranked[1:], now) if request > now})
    least = _least(requests, lambda request: first_after(_requesting(first.active_pod, resource, request)))
    if least is None:
        return None
    return _with_request(RankChange(active_pod=first.active_pod, next_pod=least[1]), resource, least[0])


def _by_both(
    signal: Signal, ranked: Sequence[EvictionCandidate], first_after: _FirstAfter
) -> RankChange | None:
    first, resource = ranked[0], _requested(signal)
    if not first.exceeds_request or not resource:
        return None
    request = ceil(Fraction(first.usage))
    change = _by_priority(_requesting(first.active_pod, resource, request), ranked, first_after)
    return (
        None
        if change is None
        else _with_request(replace(change, active_pod=first.active_pod), resource, request)
    )


def _requested(signal: Signal) -> str:
    """The resource whose request lowers the rank; empty: none."""
    requested = {MEMORY: MEMORY, EPHEMERAL_STORAGE: EPHEMERAL_STORAGE, INODES: EPHEMERAL_STORAGE}
    return requested.get(SIGNAL_RESOURCES[signal], "")


def _requesting(active_pod: ActivePod, resource: str, request: int) -> ActivePod:
    return replace(active_pod, requests={**active_pod.requests, resource: request})


def _with_request(change: RankChange, resource: str, request: int) -> RankChange:
    now = change.active_pod.requests.get(resource, 0)
    return replace(
        change, resource=resource, request=request, request_increase=ceil(Fraction(request) - Fraction(now))
    )


def _deciding_requests(
    first: EvictionCandidate, others: Sequence[EvictionCandidate], now: Amount
) -> Iterator[int]:
    """The requests at which the rank can change."""
    yield ceil(Fraction(first.usage))
    # All others have stats: pods without stats rank before any with.
    for other in others:
        equal = ceil(Fraction(now) + Fraction(first.excess) - Fraction(other.excess))
        yield equal
        yield equal + 1


def _by_priority(
    first: ActivePod, ranked: Sequence[EvictionCandidate], first_after: _FirstAfter
) -> RankChange | None:
    priorities = {candidate.active_pod.priority + step for candidate in ranked[1:] for step in (0, 1)}
    least = _least(
        sorted(
            priority
            for priority in priorities
            if first.priority < priority <= HIGHEST_USER_DEFINABLE_PRIORITY
        ),
        lambda priority: first_after(replace(first, priority=priority)),
    )
    return None if least is None else RankChange(active_pod=first, next_pod=least[1], priority=least[0])


def _least(amounts: Sequence[int], tried: Callable[[int], ActivePod | None]) -> tuple[int, ActivePod] | None:
    """The least sufficient amount, and the pod that is first then; a larger amount never ranks a pod earlier."""
    low, high, least = 0, len(amounts), None
    while low < high:
        middle = (low + high) // 2
        other = tried(amounts[middle])
        if other is None:
            low = middle + 1
        else:
            high, least = middle, (amounts[middle], other)
    return least
