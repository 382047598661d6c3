"""Picking CPUs that lie close together: whole NUMA nodes, sockets, caches and cores first, then single CPUs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nodewright.core.cpu.topology import CPUTopology, Mask, Parts
from nodewright.model.cpu_reasons import CPURefusal, KubeletCrashes, NotEnoughCPUs

Order: TypeAlias = list[tuple[int, int]]
"""Units in the order in which they are tried, each as (free CPUs, id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How single CPUs, caches and irregular machines are treated."""

    spread: bool = False
    """Single CPUs in the order of their numbers, so that cores stay half empty; no whole cores first."""
    prefer_uncore_cache: bool = False
    """Try to stay within one last-level cache, or as few as will do."""
    follow_defects: bool = True
    """Hand out what the kubelet hands out: on irregular machines also CPUs that are not free."""


def take_packed(topology: CPUTopology, free: Mask, count: int, manner: Manner) -> Mask | CPURefusal:
    """The CPUs that the kubelet picks out of the free ones, close to one another.

    Follows: v1.36, cpumanager/cpu_assignment.go, takeByTopologyNUMAPacked.
    Departs: with `follow_defects` off, a core or socket counts as free when all its own CPUs are (the kubelet
        compares with machine-wide averages and then takes CPUs that others have), and none is taken twice.
    """
    if count < 1:
        return 0
    known = free & topology.cpus.mask
    if count > known.bit_count():
        return NotEnoughCPUs(requested=count, available=free.bit_count())
    work = _Work(topology, known, count, follow=manner.follow_defects)
    for phase in _phases(work, manner):
        phase()
        if work.has_crashed:
            return KubeletCrashes(divisor="CPUs per core")
        if work.needed < 1:
            return work.taken
    # No step takes more from the free CPUs than from the need, and the last one tries every free CPU.
    raise AssertionError(f"{work.needed} of {count} CPUs missing")


def numa_order(topology: CPUTopology, free: Mask) -> Order:
    """The NUMA nodes with free CPUs, as the kubelet tries them: the fullest first."""
    if topology.numa_is_outer:
        return _by_room(topology.numa_nodes, free)
    return _nested(_by_room(topology.sockets, free), topology.numa_in_socket, free)


class _Work:
    """One picking under way: what is left, what was taken, how many are still needed.

    A list of units is made once a phase, as the kubelet does. Where units do not nest, one may stand in it
    twice; the kubelet then takes it twice and counts it twice.
    """

    __slots__ = ("follow", "free", "has_crashed", "needed", "taken", "topology")

    def __init__(self, topology: CPUTopology, free: Mask, needed: int, *, follow: bool) -> None:
        self.topology = topology
        self.free = free
        self.needed = needed
        self.taken = 0
        self.follow = follow
        self.has_crashed = False

    def take(self, cpus: Mask) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.needed -= cpus.bit_count()

    def take_whole(self, order: Order, units: Mapping[int, Mask], average: int | None = None) -> None:
        """Every unit that is free as a whole and not larger than what is still needed.

        `average` is the size that the kubelet believes all such units have; None: it knows their real sizes.
        """
        for room, one in order:
            whole = units[one]
            size = whole.bit_count()
            if self.follow:
                is_free = room == (size if average is None else average)
            else:
                is_free = whole & ~self.free == 0
            if is_free and self.needed >= size:
                self.take(whole)

    def take_numa_nodes(self) -> None:
        self.take_whole(numa_order(self.topology, self.free), self.topology.in_numa)

    def take_sockets(self) -> None:
        self.take_whole(
            _socket_order(self.topology, self.free), self.topology.in_socket, self.topology.cpus_per_socket
        )

    def take_cores(self) -> None:
        self.take_whole(
            _core_order(self.topology, self.free), self.topology.in_core, self.topology.cpus_per_core
        )

    def take_uncore_caches(self) -> None:
        """Whole caches, then part of one; cache by cache, because the part must fit to the last CPU."""
        topology = self.topology
        for _, cache in _cache_order(topology, self.free):
            if self.needed >= topology.cpus_per_uncore_cache:
                self.take_whole(_cache_order(topology, self.free), topology.in_uncore_cache)
            if self.needed > 0:
                self.take_part_of_cache(cache)
            if self.needed < 1 or self.has_crashed:
                return

    def take_part_of_cache(self, cache: int) -> None:
        """The lowest cores with a free CPU in this cache, if their free CPUs are just what is needed."""
        per_core = self.topology.cpus_per_core
        if per_core == 0:
            self.has_crashed = self.follow
            return
        wanted_cores = -(-self.needed // per_core)
        cores = [core for core in self.topology.cores_in_uncore_cache[cache] if self.free & core.inside]
        cpus = 0
        for core in cores[:wanted_cores]:
            cpus |= self.free & core.whole
        if self.needed % 2 != 0 and per_core > 1 and cpus.bit_count() > self.needed:
            cpus ^= 1 << cpus.bit_length() - 1
        if cpus.bit_count() == self.needed:
            self.take(cpus)

    def take_singles(self) -> None:
        """CPUs one by one, filling up cores that are in use already."""
        self.take_in_order(_core_order(self.topology, self.free), self.topology.in_core)

    def take_singles_spread(self) -> None:
        """CPUs one by one, socket by socket in the order of their numbers."""
        self.take_in_order(_socket_order(self.topology, self.free), self.topology.in_socket)

    def take_in_order(self, order: Order, units: Mapping[int, Mask]) -> None:
        at_first = self.free
        for _, one in order:
            if self.needed < 1:
                break
            cpus = units[one] & (at_first if self.follow else self.free)
            self.take(_lowest(cpus, self.needed))


def _phases(work: _Work, manner: Manner) -> list[Callable[[], None]]:
    steps = [work.take_sockets, work.take_numa_nodes]
    if work.topology.numa_is_outer:
        steps.reverse()
    if manner.prefer_uncore_cache:
        steps.append(work.take_uncore_caches)
    if manner.spread:
        return [*steps, work.take_singles_spread]
    return [*steps, work.take_cores, work.take_singles]


def _socket_order(topology: CPUTopology, free: Mask) -> Order:
    if topology.numa_is_outer:
        # A socket's room is counted on all NUMA nodes, not just on the one it is listed under.
        return _nested(_by_room(topology.numa_nodes, free), topology.sockets_in_numa, free)
    return _by_room(topology.sockets, free)


def _core_order(topology: CPUTopology, free: Mask) -> Order:
    if topology.numa_is_outer:
        return _nested(_socket_order(topology, free), topology.cores_in_socket, free)
    return _nested(numa_order(topology, free), topology.cores_in_numa, free)


def _cache_order(topology: CPUTopology, free: Mask) -> Order:
    return _nested(numa_order(topology, free), topology.uncore_caches_in_numa, free)


def _by_room(parts: Parts, free: Mask) -> Order:
    """The units with a free CPU, fewest free ones first, ties by id."""
    return sorted([((free & whole).bit_count(), one) for one, inside, whole in parts if free & inside])


def _nested(outer: Order, parts: Mapping[int, Parts], free: Mask) -> Order:
    return [unit for _, one in outer for unit in _by_room(parts[one], free)]


def _lowest(mask: Mask, count: int) -> Mask:
    """The `count` lowest members, or all there are."""
    if mask.bit_count() <= count:
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest
