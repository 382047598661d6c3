"""Why does one pod go before another, and what is the smallest change that lets another go first?"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from math import ceil

import msgspec
from msgspec.structs import replace

from nodewright.core.eviction.claims import Amount, Claim
from nodewright.core.eviction.ranking import Candidate, Stats, ranking
from nodewright.core.eviction.rules import Filesystems
from nodewright.model.pressure import RESOURCES
from nodewright.model.resource_names import EPHEMERAL_STORAGE, INODES, MEMORY, PIDS
from nodewright.model.thresholds import Signal

HIGHEST_PRIORITY = 1_000_000_000
"""Of pods that are not the system's own.

Follows: v1.36, pkg/apis/scheduling/types.go, HighestUserDefinablePriority.
"""


class Key(StrEnum):
    """What two pods differ in, where it decides which of them goes first."""

    STATS = "stats"
    """Nothing is known of what the one uses."""
    EXCEEDS = "exceeds"
    """The one uses more than it requests."""
    PRIORITY = "priority"
    OVER = "over"
    """The one uses more beyond its request, or has more processes."""
    PLACE = "place"
    """Nothing: the order of the list decides, which is random in the kubelet."""


def decided_by(signal: Signal, earlier: Candidate, later: Candidate) -> Key:
    """Which key put the one before the other.

    Follows: v1.36, eviction/helpers.go, rankMemoryPressure, rankPIDPressure, rankDiskPressureFunc.
    """
    keys: list[tuple[Key, Callable[[Candidate], object]]] = [
        (Key.STATS, lambda one: one.has_stats),
        (Key.EXCEEDS, lambda one: one.exceeds),
        (Key.PRIORITY, lambda one: one.claim.priority),
        (Key.OVER, lambda one: one.over),
    ]
    if RESOURCES[signal] == PIDS:
        keys = [keys[2], keys[0], keys[3]]
    return next((key for key, of in keys if of(earlier) != of(later)), Key.PLACE)


class Reprieve(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one pod, after which another goes first.

    Units: the request and what it grows by in bytes.
    """

    claim: Claim
    """The pod that would go first as it is."""
    instead: Claim
    """The pod that goes first after the change."""
    resource: str = ""
    """What it has to request more of; empty: its requests stay."""
    request: int = 0
    """The request that is enough."""
    more: int = 0
    priority: int | None = None
    """The priority that is enough; None: it stays."""


def reprieves(
    signal: Signal, filesystems: Filesystems, claims: Sequence[Claim], stats: Stats
) -> tuple[Reprieve, ...]:
    """The smallest request, and the smallest priority, with which the first pod is not the first any more.

    Where neither helps alone: a request as large as the use, with the smallest priority. All were tried; what is not
    in the answer does not help.

    Units: as `Reprieve`.
    """
    ranked = [one for one in ranking(signal, filesystems, claims, stats) if not one.claim.critical]
    if len(ranked) < 2:
        return ()

    def instead(changed: Claim) -> Claim | None:
        """Who goes first once the claim is so; None: the same pod."""
        others = [changed if one.uid == changed.uid else one for one in claims]
        again = ranking(signal, filesystems, others, stats)
        first = next(one.claim for one in again if not one.claim.critical)
        return None if first.uid == changed.uid else first

    first = ranked[0].claim
    found = (_by_request(signal, ranked, instead), _by_priority(first, ranked, instead))
    alone = tuple(one for one in found if one is not None)
    both = _by_both(signal, ranked, instead) if not alone else None
    return alone if both is None else (both,)


_Instead = Callable[[Claim], Claim | None]


def _by_request(signal: Signal, ranked: Sequence[Candidate], instead: _Instead) -> Reprieve | None:
    """Only where the key depends on requests: to the use itself, or to be less far over than another."""
    first, resource = ranked[0], _requested(signal)
    if not resource or not first.has_stats:
        return None
    now = first.claim.requests.get(resource, 0)
    requests = sorted({one for one in _enough(first, ranked[1:], now) if one > now})
    found = _least(requests, lambda request: instead(_requesting(first.claim, resource, request)))
    if found is None:
        return None
    return _more(Reprieve(claim=first.claim, instead=found[1]), resource, found[0])


def _by_both(signal: Signal, ranked: Sequence[Candidate], instead: _Instead) -> Reprieve | None:
    first, resource = ranked[0], _requested(signal)
    if not first.exceeds or not resource:
        return None
    request = ceil(Fraction(first.usage))
    found = _by_priority(_requesting(first.claim, resource, request), ranked, instead)
    return None if found is None else _more(replace(found, claim=first.claim), resource, request)


def _requested(signal: Signal) -> str:
    """What can be requested so that a pod goes later; empty: nothing."""
    requested = {MEMORY: MEMORY, EPHEMERAL_STORAGE: EPHEMERAL_STORAGE, INODES: EPHEMERAL_STORAGE}
    return requested.get(RESOURCES[signal], "")


def _requesting(claim: Claim, resource: str, request: int) -> Claim:
    return replace(claim, requests={**claim.requests, resource: request})


def _more(one: Reprieve, resource: str, request: int) -> Reprieve:
    now = one.claim.requests.get(resource, 0)
    return replace(one, resource=resource, request=request, more=ceil(Fraction(request) - Fraction(now)))


def _enough(first: Candidate, others: Sequence[Candidate], now: Amount) -> Iterator[int]:
    """The requests at which the rank can change."""
    yield ceil(Fraction(first.usage))
    # All of the others have stats: those without come before any with.
    for other in others:
        equal = ceil(Fraction(now) + Fraction(first.over) - Fraction(other.over))
        yield equal
        yield equal + 1


def _by_priority(first: Claim, ranked: Sequence[Candidate], instead: _Instead) -> Reprieve | None:
    priorities = {one.claim.priority + more for one in ranked[1:] for more in (0, 1)}
    found = _least(
        sorted(one for one in priorities if first.priority < one <= HIGHEST_PRIORITY),
        lambda priority: instead(replace(first, priority=priority)),
    )
    return None if found is None else Reprieve(claim=first, instead=found[1], priority=found[0])


def _least(amounts: Sequence[int], tried: Callable[[int], Claim | None]) -> tuple[int, Claim] | None:
    """The least amount that helps, and whom it lets go first; the more of it, the later a pod goes."""
    low, high, found = 0, len(amounts), None
    while low < high:
        middle = (low + high) // 2
        other = tried(amounts[middle])
        if other is None:
            low = middle + 1
        else:
            high, found = middle, (amounts[middle], other)
    return found
