"""CPU assignment of the static policy, packed or distributed.

Packed: whole NUMA nodes, sockets, caches and cores first, then single CPUs. Distributed: equal shares from as few NUMA nodes as
possible, with the remaining CPUs balanced.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isqrt
from typing import TypeAlias

import msgspec

from nodewright.engine.core.cpu.cpu_topology import CorePattern, CPUTopology, Mask, TopologyParts
from nodewright.model.reasons.cpu import (
    CPUAccountingWrong,
    CPURefusal,
    DistributionOverwritten,
    KubeletCrashes,
    KubeletHangs,
    NotEnoughCPUs,
)
from nodewright.model.reasons.reason import NotJudged
from nodewright.model.values.idset import NUMASet

UnitOrder: TypeAlias = Iterable[tuple[int, int]]
"""Units in the order of assignment, each as (free CPUs, id). Nested units are ordered when they are reached."""

MAX_COMBINATIONS = 200_000
"""Combinations of NUMA nodes that are examined before the result is `NotJudged`."""

FreeByNUMA: TypeAlias = Mapping[int, int]
"""Free CPUs by NUMA node."""


class PackingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How single CPUs, caches and irregular machines are handled."""

    spread: bool = False
    """Assign single CPUs in the order of their numbers instead of whole cores first (distribute-cpus-across-cores)."""
    prefer_uncore_cache: bool = False
    """Use one last-level cache, or as few as possible."""
    rounds_cores_up: bool = True
    """For a part of a cache, count the cores rounded up, and leave one CPU of an odd request; else rounded down."""
    follow_defects: bool = True
    """Assign as the kubelet does: on irregular machines also CPUs that are not free."""


def take_packed(topology: CPUTopology, free: Mask, count: int, packing: PackingOptions) -> Mask | CPURefusal:
    """The CPUs that the kubelet assigns out of the free ones with packed assignment.

    Follows: v1.36, cpumanager/cpu_assignment.go, takeByTopologyNUMAPacked.
    Departs: with `follow_defects` off, a core or socket counts as free when all its own CPUs are (the kubelet
        compares with machine-wide averages and then takes CPUs of other containers), and no CPU is taken twice.
    """
    if count < 1:
        return 0
    known = free & topology.cpus.mask
    if count > known.bit_count():
        return NotEnoughCPUs(requested=count, available=free.bit_count())
    assignment = _PackedAssignment(topology, known, count, packing)
    for phase in _phases(assignment, packing):
        phase()
        if assignment.has_crashed:
            return KubeletCrashes(divisor="CPUs per core")
        if assignment.needed < 1:
            return assignment.taken
    # No phase takes more free CPUs than are needed, and the last one tries every free CPU.
    raise AssertionError(f"CPUs missing: {assignment.needed} of {count}")


def numa_order(topology: CPUTopology, free: Mask) -> UnitOrder:
    """The NUMA nodes with free CPUs, in the kubelet's order: fewest free CPUs first."""
    if topology.numa_is_outer:
        return _by_free_count(topology.numa_nodes, free)
    return _nested(_by_free_count(topology.sockets, free), topology.numa_in_socket, free)


class _PackedAssignment:
    """The state of one assignment: CPUs left, CPUs taken, and the number still needed.

    A list of units is made once per phase, as in the kubelet. Where units do not nest, a unit may be listed
    twice; the kubelet then takes it twice and counts it twice.
    """

    __slots__ = ("follow", "free", "has_crashed", "needed", "rounds_cores_up", "taken", "topology")

    def __init__(self, topology: CPUTopology, free: Mask, needed: int, packing: PackingOptions) -> None:
        self.topology = topology
        self.free = free
        self.needed = needed
        self.taken = 0
        self.follow = packing.follow_defects
        self.rounds_cores_up = packing.rounds_cores_up
        self.has_crashed = False

    def take(self, cpus: Mask) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.needed -= cpus.bit_count()

    def take_whole(
        self, order: UnitOrder, units: Mapping[int, Mask], smallest: int, average: int | None = None
    ) -> None:
        """Takes every fully free unit that is not larger than what is still needed.

        `smallest` is the size of the smallest unit, `average` the size that the kubelet assumes for all such units;
        None: their real sizes.
        """
        for free_count, unit in order:
            if self.needed < smallest:
                return
            whole = units[unit]
            size = whole.bit_count()
            if self.follow:
                is_free = free_count == (size if average is None else average)
            else:
                is_free = whole & ~self.free == 0
            if is_free and self.needed >= size:
                self.take(whole)

    def take_numa_nodes(self) -> None:
        topology, smallest = self.topology, self.topology.smallest_numa_node
        if self.needed >= smallest:
            self.take_whole(numa_order(topology, self.free), topology.in_numa, smallest)

    def take_sockets(self) -> None:
        topology, smallest = self.topology, self.topology.smallest_socket
        if self.needed >= smallest:
            order = _socket_order(topology, self.free)
            self.take_whole(order, topology.in_socket, smallest, topology.cpus_per_socket)

    def take_cores(self) -> None:
        topology, smallest, per_core = self.topology, self.topology.smallest_core, self.topology.cpus_per_core
        if self.needed >= smallest and self.follow:
            self.take_cores_with(per_core)
        elif self.needed >= smallest:
            self.take_whole(_core_order(topology, self.free), topology.in_core, smallest, per_core)

    def take_cores_with(self, free_count: int) -> None:
        """`take_whole` of the cores in their order, at less cost: those that the kubelet counts as free have equally
        many free CPUs, so that their numbers order them.
        """
        topology, free, needed, taken = self.topology, self.free, self.needed, 0
        units, cores, patterns = _cores_by_unit(topology, free)
        for _, unit in units:
            pattern = patterns[unit]
            if pattern is not None and len(pattern.offsets) == free_count:
                whole_cores = _lowest(pattern.free_cores(free), needed // free_count)
                taken |= pattern.cpus(whole_cores)
                needed -= whole_cores.bit_count() * free_count
            else:
                for core in cores[unit]:
                    whole, size = core.whole, core.whole.bit_count()
                    is_free = (free & whole).bit_count() == free_count and free & core.inside
                    if is_free and needed >= size:
                        taken, needed = taken | whole, needed - size
            if needed < topology.smallest_core:
                break
        self.taken, self.free, self.needed = self.taken | taken, free & ~taken, needed

    def take_uncore_caches(self) -> None:
        """Takes whole caches, then a part of one; cache by cache, because the part must match the need exactly."""
        topology = self.topology
        for _, cache in _cache_order(topology, self.free):
            if self.needed >= topology.cpus_per_uncore_cache:
                self.take_whole(_cache_order(topology, self.free), topology.in_uncore_cache, smallest=1)
            if self.needed > 0:
                self.take_part_of_cache(cache)
            if self.needed < 1 or self.has_crashed:
                return

    def take_part_of_cache(self, cache: int) -> None:
        """Takes the lowest cores with a free CPU in this cache, if their free CPUs are exactly the number needed."""
        per_core = self.topology.cpus_per_core
        if per_core == 0:
            self.has_crashed = self.follow
            return
        core_count = -(-self.needed // per_core) if self.rounds_cores_up else self.needed // per_core
        cores = [core for core in self.topology.cores_in_uncore_cache[cache] if self.free & core.inside]
        cpus = 0
        for core in cores[:core_count]:
            cpus |= self.free & core.whole
        is_odd = self.rounds_cores_up and self.needed % 2 != 0
        if is_odd and per_core > 1 and cpus.bit_count() > self.needed:
            cpus ^= 1 << cpus.bit_length() - 1
        if cpus.bit_count() == self.needed:
            self.take(cpus)

    def take_singles(self) -> None:
        """Takes single CPUs, from cores with the fewest free CPUs first."""
        self.take_in_order(_core_order(self.topology, self.free), self.topology.in_core)

    def take_singles_spread(self) -> None:
        """Takes single CPUs, socket by socket in the order of their numbers."""
        self.take_in_order(_socket_order(self.topology, self.free), self.topology.in_socket)

    def take_in_order(self, order: UnitOrder, units: Mapping[int, Mask]) -> None:
        initially_free = self.free
        for _, unit in order:
            if self.needed < 1:
                break
            cpus = units[unit] & (initially_free if self.follow else self.free)
            self.take(_lowest(cpus, self.needed))


def _phases(assignment: _PackedAssignment, packing: PackingOptions) -> list[Callable[[], None]]:
    phases = [assignment.take_sockets, assignment.take_numa_nodes]
    if assignment.topology.numa_is_outer:
        phases.reverse()
    if packing.prefer_uncore_cache:
        phases.append(assignment.take_uncore_caches)
    if packing.spread:
        return [*phases, assignment.take_singles_spread]
    return [*phases, assignment.take_cores, assignment.take_singles]


def _socket_order(topology: CPUTopology, free: Mask) -> UnitOrder:
    if topology.numa_is_outer:
        # A socket's free CPUs are counted on all NUMA nodes, not only on the one under which it is listed.
        return _nested(_by_free_count(topology.numa_nodes, free), topology.sockets_in_numa, free)
    return _by_free_count(topology.sockets, free)


def _core_order(topology: CPUTopology, free: Mask) -> UnitOrder:
    outer, cores, _ = _cores_by_unit(topology, free)
    return _nested(outer, cores, free)


def _cores_by_unit(
    topology: CPUTopology, free: Mask
) -> tuple[UnitOrder, Mapping[int, TopologyParts], Mapping[int, CorePattern | None]]:
    """The sockets or NUMA nodes that contain the cores, in order, and the cores of each with their pattern."""
    if topology.numa_is_outer:
        return _socket_order(topology, free), topology.cores_in_socket, topology.core_patterns_in_socket
    return numa_order(topology, free), topology.cores_in_numa, topology.core_patterns_in_numa


def _cache_order(topology: CPUTopology, free: Mask) -> UnitOrder:
    return _nested(numa_order(topology, free), topology.uncore_caches_in_numa, free)


def _by_free_count(parts: TopologyParts, free: Mask) -> list[tuple[int, int]]:
    """The units with a free CPU, fewest free ones first, ties by id."""
    return sorted([((free & whole).bit_count(), unit) for unit, inside, whole in parts if free & inside])


def _nested(outer: UnitOrder, parts: Mapping[int, TopologyParts], free: Mask) -> Iterator[tuple[int, int]]:
    for _, outer_id in outer:
        yield from _by_free_count(parts[outer_id], free)


def _lowest(mask: Mask, count: int) -> Mask:
    """The `count` lowest members, or all if there are fewer."""
    if mask.bit_count() <= count:
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


# ---------------------------------------------------------------- equal shares of NUMA nodes


class DistributedCPUs(msgspec.Struct, frozen=True):
    """The CPUs taken, and the kubelet's defect that influenced them, if any."""

    cpus: Mask
    remark: DistributionOverwritten | None = None


DistributionRefusal: TypeAlias = CPURefusal | NotJudged


def take_distributed(
    topology: CPUTopology, free: Mask, count: int, group: int, packing: PackingOptions
) -> DistributedCPUs | DistributionRefusal:
    """The CPUs that the kubelet assigns out of the free ones, in groups, evenly over NUMA nodes.

    Follows: v1.36, cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed (KEP-2902).
    Departs: an endless loop is returned as `KubeletHangs`. Node sets that leave the same numbers of free CPUs
        are examined once. With `follow_defects` off there is no loop, and the best node set is used.
    """
    packed_only = PackingOptions(spread=packing.spread, follow_defects=packing.follow_defects)
    if group == 0:
        if packing.follow_defects:
            return KubeletCrashes(divisor="CPUs per core")
        group = 1
    if count % group != 0:
        return _packed(topology, free, count, packed_only)
    known = free & topology.cpus.mask
    if count < 1:
        return DistributedCPUs(0)
    if count > known.bit_count():
        return NotEnoughCPUs(requested=count, available=free.bit_count())
    order = [numa for _, numa in numa_order(topology, known)]
    free_by_numa = {numa: (known & topology.in_numa[numa]).bit_count() for numa in order}
    search = _DistributionSearch(order, free_by_numa, count, group, follow=packing.follow_defects)
    for size in _sizes(topology, len(free_by_numa), count, group):
        selection = search.best(size)
        if isinstance(selection, KubeletHangs | NotJudged):
            return selection
        if selection is not None:
            return _take(topology, known, selection, search, packed_only)
    return _packed(topology, free, count, packed_only)


def _packed(
    topology: CPUTopology, free: Mask, count: int, packing: PackingOptions
) -> DistributedCPUs | DistributionRefusal:
    taken = take_packed(topology, free, count, packing)
    return DistributedCPUs(taken) if isinstance(taken, int) else taken


def _sizes(topology: CPUTopology, free_nodes: int, count: int, group: int) -> range:
    """The numbers of NUMA nodes that can serve the request."""
    groups_per_node = _ceil(_ceil(len(topology.cpus), group), len(topology.in_numa))
    groups = _ceil(count, group)
    return range(_ceil(groups, groups_per_node), min(groups, free_nodes) + 1)


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)


# ---------------------------------------------------------------- search for the best nodes


class _NUMASelection(msgspec.Struct, frozen=True):
    """NUMA nodes that provide an equal share each, and those that provide the remainder, in order."""

    nodes: tuple[int, ...]
    for_rest: tuple[int, ...]
    remark: DistributionOverwritten | None = None


class _DistributionSearch:
    """The search among the combinations of NUMA nodes for one request.

    The balance of a combination is the standard deviation of the CPUs left on all nodes, to three decimals.
    The mean is the same for all combinations, so the deviation follows from the sum of the squares of the CPUs
    left.
    """

    def __init__(
        self, order: Sequence[int], free_by_numa: FreeByNUMA, count: int, group: int, *, follow: bool
    ) -> None:
        self.order = order
        self.free_by_numa = free_by_numa
        self.count = count
        self.group = group
        self.follow = follow
        left, nodes = sum(free_by_numa.values()) - count, len(free_by_numa)
        self.mean_thousandths = (2000 * left + nodes) // (2 * nodes)
        self.squares = sum(free * free for free in free_by_numa.values())
        self.constant = nodes * self.mean_thousandths**2 - 2000 * self.mean_thousandths * left
        self.regular = len(free_by_numa) == len(order)
        self.examined = 0

    def share(self, size: int) -> int:
        """The CPUs that each of `size` nodes provides at least."""
        return self.count // size // self.group * self.group

    def deviation(self, squares: int) -> int:
        """The standard deviation in thousandths, rounded, from the sum of the squares.

        Follows: v1.36, cpumanager/cpu_assignment.go, standardDeviation.
        Departs: in integers instead of floats; the same for up to 63 nodes, where no deviation lies halfway
            between two thousandths.
        """
        return (isqrt(4 * (self.constant + 1_000_000 * squares) // len(self.free_by_numa)) + 1) // 2

    def best(self, size: int) -> _NUMASelection | KubeletHangs | NotJudged | None:
        """The nodes that the kubelet uses when it takes exactly `size` of them; None: no combination serves."""
        best: tuple[int, tuple[int, ...], _Rest] | None = None
        for places in _choices([self.key(numa, self.free_by_numa[numa]) for numa in self.order], size):
            self.examined += 1
            if self.examined > MAX_COMBINATIONS:
                return _too_many(size)
            nodes = tuple(self.order[place] for place in places)
            rest = self.rest(nodes)
            if isinstance(rest, KubeletHangs | NotJudged):
                return rest
            if rest is not None and (best is None or rest.deviation < best[0]):
                best = (rest.deviation, places, rest)
                if rest.deviation == 0:
                    break
        return None if best is None else self.selection(best[1], best[2])

    def key(self, numa: int, free: int) -> int:
        """The key of interchangeable NUMA nodes: their free CPUs, unless a node is listed twice."""
        return free if self.regular else numa

    def rest(self, nodes: tuple[int, ...]) -> "_Rest | KubeletHangs | NotJudged | None":
        """The best nodes among these for the remainder; None: these nodes cannot serve the request."""
        share = self.share(len(nodes))
        free_counts = [self.free_by_numa[numa] for numa in nodes]
        if sum(self.free_by_numa[numa] for numa in set(nodes)) < self.count or min(free_counts) < share:
            return None
        if sum(free // self.group for free in free_counts) * self.group < self.count:
            return None
        left: dict[int, int] = {}
        for numa in nodes:
            left[numa] = left.get(numa, self.free_by_numa[numa]) - share
        squares = self.squares + sum(
            free * free - self.free_by_numa[numa] ** 2 for numa, free in left.items()
        )
        rest = self.count - share * len(nodes)
        if rest == 0:
            return _Rest(self.deviation(squares))
        return self.best_rest(left, tuple(numa for numa in nodes if left[numa] >= self.group), rest, squares)

    def best_rest(
        self, left: FreeByNUMA, nodes: tuple[int, ...], rest: int, squares: int
    ) -> "_Rest | KubeletHangs | NotJudged | None":
        """The best distribution of the remainder over some of these nodes, of which each has `left` free CPUs."""
        least = self.least_deviation(left, nodes, rest, squares)
        best: _Rest | None = None
        for size in range(len(nodes), 0, -1):
            for places in _choices([self.key(numa, left[numa]) for numa in nodes], size):
                self.examined += 1
                if self.examined > MAX_COMBINATIONS:
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

    def least_deviation(
        self, left: FreeByNUMA, nodes: tuple[int, ...], rest: int, squares: int
    ) -> int | None:
        """A lower bound of the deviation over all distributions of the remainder.

        None where the kubelet may loop: all distributions are tried then.
        """
        if not self.regular or any(left[numa] % self.group for numa in nodes):
            return None
        free_counts = [left[numa] for numa in nodes]
        for _ in range(rest // self.group):
            largest = max(range(len(free_counts)), key=free_counts.__getitem__)
            squares -= self.group * (2 * free_counts[largest] - self.group)
            free_counts[largest] -= self.group
        return self.deviation(squares)

    def deal(self, left: FreeByNUMA, nodes: list[int], rest: int) -> int | KubeletHangs | None:
        """The change of the sum of squares when the remainder is distributed over these nodes, a group at a time."""
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
        return sum(free * free - left[numa] * left[numa] for numa, free in now.items())

    def hang(self, nodes: Sequence[int]) -> KubeletHangs:
        return KubeletHangs(requested=self.count, group=self.group, numa=NUMASet.from_ids(nodes))

    def selection(self, places: tuple[int, ...], rest: "_Rest") -> _NUMASelection:
        best = _NUMASelection(self.at(places), rest.at(rest.places))
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
        return _NUMASelection(self.at(used_places), rest.at(used_rest), remark)

    def at(self, places: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.order[place] for place in places)


class _Rest(msgspec.Struct, frozen=True):
    """The deviation after the assignment, and the nodes that provide the remainder of the equal shares."""

    deviation: int
    nodes: tuple[int, ...] = ()
    """The candidates."""
    places: tuple[int, ...] = ()
    """The indexes of the chosen ones."""

    def at(self, places: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.nodes[place] for place in places)


def _too_many(size: int) -> NotJudged:
    return NotJudged(
        what="distribute-cpus-across-numa",
        because=f"more than {MAX_COMBINATIONS} combinations of {size} NUMA nodes and fewer to examine",
    )


def _choices(keys: Sequence[int], size: int, start: int = 0) -> Iterator[tuple[int, ...]]:
    """The combinations of indexes in lexicographic order; of those with equal keys only the first.

    >>> list(_choices([7, 7, 9], 2))
    [(0, 1), (0, 2)]
    """
    if size == 0:
        yield ()
        return
    used_keys = set()
    for place in range(start, len(keys) - size + 1):
        if keys[place] not in used_keys:
            used_keys.add(keys[place])
            for others in _choices(keys, size - 1, place + 1):
                yield (place, *others)


def _overwritten(places: tuple[int, ...], length: int, *, stopped: bool) -> tuple[int, ...]:
    """The content of the slice in which the kubelet kept this combination, after its search.

    It keeps a reference to a buffer that Go's append grows to 1, 2, 4, 8, 16… elements. Combinations share a
    buffer when they agree up to the element that made it grow last, so the last combination generated with
    this prefix remains; a search that `stopped` generated exactly one more after this one.

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


# ---------------------------------------------------------------- assignment from the selected nodes


def _take(
    topology: CPUTopology,
    free: Mask,
    selection: _NUMASelection,
    search: _DistributionSearch,
    packing: PackingOptions,
) -> DistributedCPUs | DistributionRefusal:
    """The CPUs assigned from these nodes; fewer than requested if the selection was overwritten."""
    taken, needed = 0, search.count

    def take(numa: int, portion: int) -> None:
        nonlocal free, taken, needed
        portion_cpus = take_packed(topology, free & topology.in_numa[numa], portion, packing)
        if isinstance(portion_cpus, int):  # the kubelet ignores the error of a node with too few CPUs
            taken |= portion_cpus
            free &= ~portion_cpus
            needed -= portion_cpus.bit_count()

    share = search.share(len(selection.nodes))
    for numa in selection.nodes:
        take(numa, share)
    rest = search.count - share * len(selection.nodes)
    while rest > 0:
        before = rest
        for numa in selection.for_rest:
            if rest > 0 and (free & topology.in_numa[numa]).bit_count() >= search.group:
                take(numa, search.group)
                rest -= search.group
        if rest == before:
            return search.hang(selection.for_rest)
    return CPUAccountingWrong(remaining=needed) if needed else DistributedCPUs(taken, selection.remark)
