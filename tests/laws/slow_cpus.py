"""The picking of CPUs once more, slow and obvious, on sets and with Go's slices: what the quick one must equal."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from nodewright.engine.core.cpu.cpu_topology import CPUTopology

CPUs = frozenset[int]


class Refusal(Exception):  # noqa: N818 - an outcome
    """Why there are no CPUs, in a word."""


@dataclass
class GoSlice:
    """A slice as Go has it: a window on a buffer that others may write, too."""

    buffer: list[int] = field(default_factory=list)
    length: int = 0

    def append(self, item: int) -> "GoSlice":
        buffer = self.buffer
        if self.length == len(buffer):
            buffer = buffer + [-1] * max(len(buffer), 1)
        buffer[self.length] = item
        return GoSlice(buffer, self.length + 1)

    def __iter__(self) -> Iterator[int]:
        return iter(self.buffer[: self.length])

    def __len__(self) -> int:
        return self.length


@dataclass
class Machine:
    """The questions that picking asks, each answered by looking at every CPU."""

    topology: CPUTopology

    def __post_init__(self) -> None:
        self.place = {place.cpu: place for place in self.topology.cpu_info}

    def where(self, cpus: Iterable[int], unit: str, number: int) -> CPUs:
        return frozenset(cpu for cpu in cpus if getattr(self.place[cpu], unit) == number)

    def of(self, cpus: Iterable[int], unit: str) -> set[int]:
        return {getattr(self.place[cpu], unit) for cpu in cpus}

    def sorted(self, free: CPUs, units: Iterable[int], unit: str) -> list[int]:
        return sorted(units, key=lambda number: (len(self.where(free, unit, number)), number))

    def below(self, free: CPUs, outer: list[int], outer_unit: str, unit: str) -> list[int]:
        result = []
        for number in outer:
            result += self.sorted(free, self.of(self.where(free, outer_unit, number), unit), unit)
        return result

    @property
    def numa_first(self) -> bool:
        return self.topology.num_sockets >= self.topology.num_numa_nodes

    def numa_nodes(self, free: CPUs) -> list[int]:
        if self.numa_first:
            return self.sorted(free, self.of(free, "numa"), "numa")
        return self.below(free, self.sockets(free), "socket", "numa")

    def sockets(self, free: CPUs) -> list[int]:
        if self.numa_first:
            return self.below(free, self.numa_nodes(free), "numa", "socket")
        return self.sorted(free, self.of(free, "socket"), "socket")

    def cores(self, free: CPUs) -> list[int]:
        if self.numa_first:
            return self.below(free, self.sockets(free), "socket", "core")
        return self.below(free, self.numa_nodes(free), "numa", "core")

    def caches(self, free: CPUs) -> list[int]:
        return self.below(free, self.numa_nodes(free), "numa", "uncore_cache")


class Picking:
    """CPUs taken step by step."""

    def __init__(self, machine: Machine, free: CPUs, count: int) -> None:
        self.machine = machine
        self.all = frozenset(machine.place)
        self.free = free & self.all
        self.needed = count
        self.taken: CPUs = frozenset()

    def take(self, cpus: CPUs) -> None:
        self.taken |= cpus
        self.free -= cpus
        self.needed -= len(cpus)

    def whole(self, units: list[int], unit: str, size: int | None) -> None:
        free_then = self.free
        for number in units:
            whole = self.machine.where(self.all, unit, number)
            free = self.machine.where(free_then, unit, number)
            if len(free) == (len(whole) if size is None else size) and self.needed >= len(whole):
                self.take(whole)

    def numa_nodes(self) -> None:
        self.whole(self.machine.numa_nodes(self.free), "numa", None)

    def sockets(self) -> None:
        self.whole(self.machine.sockets(self.free), "socket", self.machine.topology.cpus_per_socket)

    def cores(self) -> None:
        self.whole(self.machine.cores(self.free), "core", self.machine.topology.cpus_per_core)

    def caches(self) -> None:
        topology = self.machine.topology
        for cache in self.machine.caches(self.free):
            if self.needed >= topology.cpus_per_uncore_cache:
                self.whole(self.machine.caches(self.free), "uncore_cache", None)
            if self.needed < 1:
                return
            self.part_of(cache)
            if self.needed < 1:
                return

    def part_of(self, cache: int) -> None:
        per_core = self.machine.topology.cpus_per_core
        if per_core == 0:
            raise Refusal("crash")
        cores = sorted(self.machine.of(self.machine.where(self.free, "uncore_cache", cache), "core"))
        chosen = set(cores[: math.ceil(self.needed / per_core)])
        cpus = sorted(cpu for cpu in self.free if self.machine.place[cpu].core in chosen)
        if self.needed % 2 and per_core > 1 and len(cpus) > self.needed:
            cpus.pop()
        if len(cpus) == self.needed:
            self.take(frozenset(cpus))

    def singles(self, unit: str, units: list[int]) -> None:
        in_order = [cpu for number in units for cpu in sorted(self.machine.where(self.free, unit, number))]
        for cpu in in_order:
            self.take(frozenset([cpu]))
            if self.needed < 1:
                return


def slow_packed(
    machine: Machine, free: CPUs, count: int, *, spread: bool = False, caches: bool = False
) -> CPUs:
    picking = Picking(machine, free, count)
    if count > len(picking.free):
        raise Refusal("not enough")
    steps: list[Callable[[], None]] = [picking.sockets, picking.numa_nodes]
    if machine.numa_first:
        steps.reverse()
    if caches:
        steps.append(picking.caches)
    if not spread:
        steps.append(picking.cores)
    for step in steps:
        if picking.needed >= 1:
            step()
    if picking.needed >= 1:
        unit = "socket" if spread else "core"
        order = machine.sockets if spread else machine.cores
        picking.singles(unit, order(picking.free))
    if picking.needed >= 1:
        raise Refusal("not found")
    return picking.taken


def combinations(items: list[int], size: int, visit: Callable[[GoSlice], bool]) -> None:
    """All combinations, each in a slice that may share its buffer with others; until a visit says stop."""

    def grow(so_far: GoSlice, start: int, left: int) -> bool:
        if left == 0:
            return visit(so_far)
        for place in range(start, len(items) - left + 1):
            if grow(so_far.append(items[place]), place + 1, left - 1):
                return True
        return False

    if size >= 1:
        grow(GoSlice(), 0, size)


def thousandths(number: float) -> float:
    return math.floor(number * 1000 + 0.5) / 1000


def deviation(amounts: Iterable[int]) -> float:
    numbers = list(amounts)
    mean = thousandths(sum(numbers) / len(numbers))
    return thousandths(math.sqrt(math.fsum((each - mean) ** 2 for each in numbers) / len(numbers)))


@dataclass
class Best:
    balance: float = math.inf
    nodes: GoSlice = field(default_factory=GoSlice)
    rest: GoSlice = field(default_factory=GoSlice)


def slow_distributed(machine: Machine, free: CPUs, count: int, group: int, *, spread: bool = False) -> CPUs:
    if group == 0:
        raise Refusal("crash")
    if count % group:
        return slow_packed(machine, free, count, spread=spread)
    picking = Picking(machine, free, count)
    if count < 1:
        return frozenset()
    if count > len(picking.free):
        raise Refusal("not enough")
    nodes = machine.numa_nodes(picking.free)
    room = {numa: len(machine.where(picking.free, "numa", numa)) for numa in nodes}
    all_groups = math.ceil(len(machine.place) / group)
    groups_a_node = math.ceil(all_groups / len(machine.of(machine.place, "numa")))
    least = math.ceil(math.ceil(count / group) / groups_a_node)
    for size in range(least, min(math.ceil(count / group), len(room)) + 1):
        best = best_nodes(nodes, room, count, group, size)
        if best.nodes.length:
            return use(picking, best, count, group, spread)
    return slow_packed(machine, free, count, spread=spread)


def best_nodes(nodes: list[int], room: dict[int, int], count: int, group: int, size: int) -> Best:
    best = Best()
    share = count // size // group * group

    def visit(chosen: GoSlice) -> bool:
        if best.balance == 0:
            return True
        if sum(room[numa] for numa in set(chosen)) < count:
            return False
        if sum(room[numa] // group for numa in chosen) * group < count:
            return False
        if any(room[numa] < share for numa in chosen):
            return False
        left = dict(room)
        for numa in chosen:
            left[numa] -= share
        balance, rest_nodes = best_rest(left, list(chosen), count - share * size, group)
        if balance < best.balance:
            best.balance, best.nodes, best.rest = balance, chosen, rest_nodes
        return False

    combinations(nodes, size, visit)
    return best


def best_rest(left: dict[int, int], chosen: list[int], rest: int, group: int) -> tuple[float, GoSlice]:
    if rest == 0:
        return deviation(left.values()), GoSlice()
    candidates = [numa for numa in chosen if left[numa] >= group]
    best = Best()

    def visit(subset: GoSlice) -> bool:
        if sum(left[numa] for numa in subset) < rest:
            return False
        now, to_give = dict(left), rest
        while to_give > 0:
            before = to_give
            for numa in subset:
                if to_give > 0 and now[numa] >= group:
                    now[numa] -= group
                    to_give -= group
            if to_give == before:
                raise Refusal("hang")
        if deviation(now.values()) < best.balance:
            best.balance, best.rest = deviation(now.values()), subset
        return False

    for size in range(len(candidates), 0, -1):
        combinations(candidates, size, visit)
    return best.balance, best.rest


def use(picking: Picking, best: Best, count: int, group: int, spread: bool) -> CPUs:
    machine = picking.machine
    share = count // len(best.nodes) // group * group

    def take(numa: int, portion: int) -> None:
        here = machine.where(picking.free, "numa", numa)
        try:
            picking.take(slow_packed(machine, here, portion, spread=spread))
        except Refusal:
            return

    for numa in best.nodes:
        take(numa, share)
    rest = count - share * len(best.nodes)
    while rest > 0:
        before = rest
        for numa in best.rest:
            if rest > 0 and len(machine.where(picking.free, "numa", numa)) >= group:
                take(numa, group)
                rest -= group
        if rest == before:
            raise Refusal("hang")
    if picking.needed:
        raise Refusal(f"accounting {picking.needed}")
    return picking.taken
