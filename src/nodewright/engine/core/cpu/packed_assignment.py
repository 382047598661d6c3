"""Packed CPU assignment: whole NUMA nodes, sockets, caches and cores first, then single CPUs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from nodewright.engine.core.cpu.cpu_topology import CorePattern, CPUTopology, Mask, TopologyParts
from nodewright.model.reasons.cpu import CPURefusal, KubeletCrashes, NotEnoughCPUs

UnitOrder: TypeAlias = Iterable[tuple[int, int]]
"""Units in the order of assignment, each as (free CPUs, id). Nested units are ordered when they are reached."""


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
    raise AssertionError(f"{assignment.needed} of {count} CPUs missing")


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
