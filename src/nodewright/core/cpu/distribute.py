"""Picking CPUs in equal shares from as few NUMA nodes as will do, so that what is left is even."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import TypeAlias

from nodewright.core.cpu.packed import Manner, numa_order, take_packed
from nodewright.core.cpu.topology import CPUTopology, Mask
from nodewright.model.cpu_reasons import (
    CPUAccountingWrong,
    CPURefusal,
    DistributionOverwritten,
    KubeletCrashes,
    KubeletHangs,
    NotEnoughCPUs,
)
from nodewright.model.reasons import NotJudged
from nodewright.values.idset import NUMASet

BUDGET = 200_000
"""Combinations of NUMA nodes that are looked at before the verdict is left open."""

Room: TypeAlias = Mapping[int, int]
"""Free CPUs by NUMA node."""


@dataclass(frozen=True, slots=True)
class Distributed:
    """CPUs taken, and what the kubelet did wrong on the way, if anything."""

    cpus: Mask
    remark: DistributionOverwritten | None = None


Refusal: TypeAlias = CPURefusal | NotJudged


def take_distributed(
    topology: CPUTopology, free: Mask, count: int, group: int, manner: Manner
) -> Distributed | Refusal:
    """The CPUs that the kubelet picks out of the free ones, in groups, spread evenly over NUMA nodes.

    Follows: v1.36, cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed (KEP-2902).
    Departs: an endless loop is returned as `KubeletHangs`. Node sets that leave the same numbers of free CPUs
        are looked at once. With `follow_defects` off there is no loop, and the best nodes found are used.
    """
    plain = Manner(spread=manner.spread, follow_defects=manner.follow_defects)
    if group == 0:
        if manner.follow_defects:
            return KubeletCrashes(divisor="CPUs per core")
        group = 1
    if count % group != 0:
        return _packed(topology, free, count, plain)
    known = free & topology.cpus.mask
    if count < 1:
        return Distributed(0)
    if count > known.bit_count():
        return NotEnoughCPUs(requested=count, available=free.bit_count())
    order = [numa for _, numa in numa_order(topology, known)]
    room = {numa: (known & topology.in_numa[numa]).bit_count() for numa in order}
    search = _Search(order, room, count, group, follow=manner.follow_defects)
    for size in _sizes(topology, len(room), count, group):
        found = search.best(size)
        if isinstance(found, KubeletHangs | NotJudged):
            return found
        if found is not None:
            return _take(topology, known, found, search, plain)
    return _packed(topology, free, count, plain)


def _packed(topology: CPUTopology, free: Mask, count: int, manner: Manner) -> Distributed | Refusal:
    taken = take_packed(topology, free, count, manner)
    return Distributed(taken) if isinstance(taken, int) else taken


def _sizes(topology: CPUTopology, free_nodes: int, count: int, group: int) -> range:
    """The numbers of NUMA nodes worth a try."""
    groups_a_node = _ceil(_ceil(len(topology.cpus), group), len(topology.in_numa))
    groups = _ceil(count, group)
    return range(_ceil(groups, groups_a_node), min(groups, free_nodes) + 1)


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)


# ---------------------------------------------------------------- looking for the best nodes


@dataclass(frozen=True, slots=True)
class _Found:
    """NUMA nodes that give an equal share each, and those that give the rest, in the order of giving."""

    nodes: tuple[int, ...]
    for_rest: tuple[int, ...]
    remark: DistributionOverwritten | None = None


class _Search:
    """The search among the combinations of NUMA nodes of one request.

    The balance of a choice is the standard deviation of what is left on all nodes, to three decimals. The
    mean is the same for all choices of a request, so it follows from the sum of the squares of what is left.
    """

    def __init__(self, order: Sequence[int], room: Room, count: int, group: int, *, follow: bool) -> None:
        self.order = order
        self.room = room
        self.count = count
        self.group = group
        self.follow = follow
        left, nodes = sum(room.values()) - count, len(room)
        self.mean_thousandths = (2000 * left + nodes) // (2 * nodes)
        self.squares = sum(each * each for each in room.values())
        self.constant = nodes * self.mean_thousandths**2 - 2000 * self.mean_thousandths * left
        self.regular = len(room) == len(order)
        self.looked_at = 0

    def share(self, size: int) -> int:
        """What each of so many nodes gives at least."""
        return self.count // size // self.group * self.group

    def deviation(self, squares: int) -> int:
        """The standard deviation in thousandths, rounded, from the sum of the squares.

        Follows: v1.36, cpumanager/cpu_assignment.go, standardDeviation.
        Departs: in integers instead of floats; the same for up to 63 nodes, where no deviation lies halfway
            between two thousandths.
        """
        return (isqrt(4 * (self.constant + 1_000_000 * squares) // len(self.room)) + 1) // 2

    def best(self, size: int) -> _Found | KubeletHangs | NotJudged | None:
        """The nodes that the kubelet would use, if it takes just so many."""
        best: tuple[int, tuple[int, ...], _Rest] | None = None
        for places in _choices([self.key(numa, self.room[numa]) for numa in self.order], size):
            self.looked_at += 1
            if self.looked_at > BUDGET:
                return _too_many(size)
            nodes = tuple(self.order[place] for place in places)
            rest = self.rest(nodes)
            if isinstance(rest, KubeletHangs | NotJudged):
                return rest
            if rest is not None and (best is None or rest.deviation < best[0]):
                best = (rest.deviation, places, rest)
                if rest.deviation == 0:
                    break
        return None if best is None else self.found(best[1], best[2])

    def key(self, numa: int, room: int) -> int:
        """What makes NUMA nodes interchangeable: their room, unless nodes stand in the list twice."""
        return room if self.regular else numa

    def rest(self, nodes: tuple[int, ...]) -> "_Rest | KubeletHangs | NotJudged | None":
        """The nodes among these that are best to take the rest from; None: these nodes cannot serve."""
        share = self.share(len(nodes))
        rooms = [self.room[numa] for numa in nodes]
        if sum(self.room[numa] for numa in set(nodes)) < self.count or min(rooms) < share:
            return None
        if sum(room // self.group for room in rooms) * self.group < self.count:
            return None
        left: dict[int, int] = {}
        for numa in nodes:
            left[numa] = left.get(numa, self.room[numa]) - share
        squares = self.squares + sum(room * room - self.room[numa] ** 2 for numa, room in left.items())
        rest = self.count - share * len(nodes)
        if rest == 0:
            return _Rest(self.deviation(squares))
        return self.best_rest(left, tuple(numa for numa in nodes if left[numa] >= self.group), rest, squares)

    def best_rest(
        self, left: Room, nodes: tuple[int, ...], rest: int, squares: int
    ) -> "_Rest | KubeletHangs | NotJudged | None":
        """The best dealing of the rest to some of these nodes, of which `left` says what each still has."""
        least = self.least_deviation(left, nodes, rest, squares)
        best: _Rest | None = None
        for size in range(len(nodes), 0, -1):
            for places in _choices([self.key(numa, left[numa]) for numa in nodes], size):
                self.looked_at += 1
                if self.looked_at > BUDGET:
                    return _too_many(size)
                change = self.deal(left, [nodes[place] for place in places], rest)
                if isinstance(change, KubeletHangs):
                    return change
                if change is None:
                    continue
                deviation = self.deviation(squares + change)
                if best is None or deviation < best.deviation:
                    best = _Rest(deviation, nodes, places)
                    if deviation == least:
                        return best
        return best

    def least_deviation(self, left: Room, nodes: tuple[int, ...], rest: int, squares: int) -> int | None:
        """No dealing of the rest does better than this; None where the kubelet may loop, so all are tried."""
        if not self.regular or any(left[numa] % self.group for numa in nodes):
            return None
        rooms = [left[numa] for numa in nodes]
        for _ in range(rest // self.group):
            largest = max(range(len(rooms)), key=rooms.__getitem__)
            squares -= self.group * (2 * rooms[largest] - self.group)
            rooms[largest] -= self.group
        return self.deviation(squares)

    def deal(self, left: Room, nodes: list[int], rest: int) -> int | KubeletHangs | None:
        """By how much the sum of squares changes when the rest is dealt to these nodes, a group at a time."""
        if sum(left[numa] for numa in nodes) < rest:
            return None
        now = {numa: left[numa] for numa in nodes}
        while rest > 0:
            before = rest
            for numa in nodes:
                if rest > 0 and now[numa] >= self.group:
                    now[numa] -= self.group
                    rest -= self.group
            if rest == before:
                return self.hang(nodes) if self.follow else None
        return sum(room * room - left[numa] * left[numa] for numa, room in now.items())

    def hang(self, nodes: Sequence[int]) -> KubeletHangs:
        return KubeletHangs(requested=self.count, group=self.group, numa=NUMASet.from_ids(nodes))

    def found(self, places: tuple[int, ...], rest: "_Rest") -> _Found:
        best = _Found(self.at(places), rest.at(rest.places))
        if not self.follow:
            return best
        used_places = _overwritten(places, len(self.order), stopped=rest.deviation == 0)
        used_rest = _overwritten(rest.places, len(rest.nodes), stopped=False)
        if (used_places, used_rest) == (places, rest.places):
            return best
        remark = DistributionOverwritten(
            best=NUMASet.from_ids(best.nodes),
            used=NUMASet.from_ids(self.at(used_places)),
            best_for_rest=NUMASet.from_ids(best.for_rest),
            used_for_rest=NUMASet.from_ids(rest.at(used_rest)),
        )
        return _Found(self.at(used_places), rest.at(used_rest), remark)

    def at(self, places: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.order[place] for place in places)


@dataclass(frozen=True, slots=True)
class _Rest:
    """How even what is left would be, and the nodes that give what cannot be shared out evenly."""

    deviation: int
    nodes: tuple[int, ...] = ()
    """The candidates."""
    places: tuple[int, ...] = ()
    """The chosen among them."""

    def at(self, places: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.nodes[place] for place in places)


def _too_many(size: int) -> NotJudged:
    return NotJudged(
        what="distribute-cpus-across-numa",
        because=f"more than {BUDGET} combinations of {size} NUMA nodes and fewer to look at",
    )


def _choices(keys: Sequence[int], size: int, start: int = 0) -> Iterator[tuple[int, ...]]:
    """The combinations of places in lexicographic order, of those with the same keys the first only.

    >>> list(_choices([7, 7, 9], 2))
    [(0, 1), (0, 2)]
    """
    if size == 0:
        yield ()
        return
    seen = set()
    for place in range(start, len(keys) - size + 1):
        if keys[place] not in seen:
            seen.add(keys[place])
            for others in _choices(keys, size - 1, place + 1):
                yield (place, *others)


def _overwritten(places: tuple[int, ...], length: int, *, stopped: bool) -> tuple[int, ...]:
    """What the kubelet finds where it kept this combination, once its search is over.

    It keeps a reference to a buffer that Go's append grows to 1, 2, 4, 8, 16… elements. Combinations share a
    buffer when they agree up to the element that made it grow last, so the last combination generated with
    this beginning is what remains; a search that `stopped` generated just one more after this one.

    >>> _overwritten((0, 1, 2, 3), 6, stopped=False), _overwritten((0, 1, 2, 3), 6, stopped=True)
    ((0, 1, 2, 5), (0, 1, 2, 4))
    """
    size = len(places)
    kept = 1 + (1 << (size - 1).bit_length() - 1) if size > 1 else size
    if stopped:
        following = _successor(places, length)
        return following if following is not None and following[:kept] == places[:kept] else places
    return places[:kept] + tuple(range(length - (size - kept), length))


def _successor(places: tuple[int, ...], length: int) -> tuple[int, ...] | None:
    size = len(places)
    for index in range(size - 1, -1, -1):
        if places[index] < length - size + index:
            first = places[index] + 1
            return places[:index] + tuple(range(first, first + size - index))
    return None


# ---------------------------------------------------------------- taking from the nodes found


def _take(
    topology: CPUTopology, free: Mask, found: _Found, search: _Search, manner: Manner
) -> Distributed | Refusal:
    """The CPUs that come out when these nodes are used; not as many as wanted if they were overwritten."""
    taken, needed = 0, search.count

    def take(numa: int, portion: int) -> None:
        nonlocal free, taken, needed
        got = take_packed(topology, free & topology.in_numa[numa], portion, manner)
        if isinstance(got, int):  # the kubelet passes over the error of a node that has too little
            taken |= got
            free &= ~got
            needed -= got.bit_count()

    share = search.share(len(found.nodes))
    for numa in found.nodes:
        take(numa, share)
    rest = search.count - share * len(found.nodes)
    while rest > 0:
        before = rest
        for numa in found.for_rest:
            if rest > 0 and (free & topology.in_numa[numa]).bit_count() >= search.group:
                take(numa, search.group)
                rest -= search.group
        if rest == before:
            return search.hang(found.for_rest)
    return CPUAccountingWrong(remaining=needed) if needed else Distributed(taken, found.remark)
