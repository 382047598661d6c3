"""The fleet as the scheduler sees it: what each node has, what its pods take of it, and which pods are where."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from nodewright.core.predicates.room import HostPort
from nodewright.model.objects import Taint
from nodewright.sim.fleet.shapes import PodShape

_LOG_LEAST = 1024


class Tenant(NamedTuple):
    """A pod on a node.

    Units: since_s in seconds since the beginning.
    """

    pod: int
    """Its number."""
    shape: PodShape
    since_s: float


class Seat:
    """A node as the scheduler sees it. Changed in place, by the board alone.

    Units: cpu in thousandths, memory in bytes.
    """

    __slots__ = (
        "allocatable", "cordoned", "cpu", "cpus_free_by_numa", "free_cpu", "free_memory", "free_places", "imbalance", "labels", "memory", "name", "number",
        "places", "ports", "scored_cpu", "scored_memory", "shapes", "taints", "tenants", "used", "version",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        name: str,
        allocatable: Mapping[str, int],
        labels: Mapping[str, str],
        taints: Sequence[Taint] = (),
        *,
        cordoned: bool = False,
    ) -> None:
        self.number, self.name, self.allocatable = number, name, allocatable
        self.labels, self.taints, self.cordoned = labels, taints, cordoned
        self.cpus_free_by_numa: Callable[[], Sequence[int]] = tuple
        """How many CPUs nobody has for himself, by NUMA node."""
        self.cpu, self.memory = allocatable.get("cpu", 0), allocatable.get("memory", 0)
        self.places = self.free_places = allocatable.get("pods", 0)
        self.free_cpu, self.free_memory = self.cpu, self.memory
        self.used: dict[str, int] = {}
        self.scored_cpu = self.scored_memory = 0
        self.ports: list[HostPort] = []
        self.tenants: dict[str, Tenant] = {}
        """By the uid that the pod has on this node, in the order of their coming."""
        self.shapes: dict[int, int] = {}
        """How many pods of each shape there are."""
        self.version = 0
        self.imbalance: int | None = None
        """How well used cpu and memory go together; None: not worked out since the last change."""


class Board:
    """All nodes, and where the pods of each shape are."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.seats = seats
        self.where: dict[int, dict[int, int]] = {}
        """By shape and node, how many pods there are."""
        self.shapes: dict[int, PodShape] = {}
        """Those that are somewhere."""
        self.looking: dict[int, PodShape] = {}
        """Those of them that look at other pods."""
        self.changes = 0
        """How often a node changed: whoever remembers something of them asks for those that changed since."""
        self._log: list[int] = []
        """The nodes that changed last, in order."""
        self._log_most = 2 * len(seats) + _LOG_LEAST
        self.priorities: dict[int, int] = {}
        """How many pods there are of each priority."""
        self.used: dict[str, int] = {}
        self.running = 0

    def requested(self) -> dict[str, int]:
        """What all pods that are somewhere request together."""
        return {name: amount for name, amount in sorted(self.used.items()) if amount}

    def changed_since(self, changes: int) -> Iterable[int]:
        """The nodes that changed since there were so many changes; all nodes, if that was long ago."""
        count = self.changes - changes
        if count < len(self.seats) and count <= len(self._log):
            return dict.fromkeys(self._log[-count:])
        return range(len(self.seats))

    @contextmanager
    def trial(self, seat: Seat) -> Iterator[None]:
        """Pods are put and taken on this node to see what would be; afterwards they are to be as before."""
        tenants, version, changes, logged = dict(seat.tenants), seat.version, self.changes, len(self._log)
        most, self._log_most = self._log_most, sys.maxsize
        yield
        seat.tenants, seat.version, self.changes, self._log_most = tenants, version, changes, most
        del self._log[logged:]

    def put(self, seat: Seat, uid: str, tenant: Tenant) -> None:
        """A pod comes to a node."""
        seat.tenants[uid] = tenant
        self._count(seat, tenant.shape, 1)
        seat.ports += tenant.shape.ports

    def take(self, seat: Seat, uid: str) -> Tenant:
        """A pod leaves its node."""
        tenant = seat.tenants.pop(uid)
        self._count(seat, tenant.shape, -1)
        for port in tenant.shape.ports:
            seat.ports.remove(port)
        return tenant

    def _count(self, seat: Seat, shape: PodShape, sign: int) -> None:
        seat.free_cpu -= sign * shape.cpu
        seat.free_memory -= sign * shape.memory
        seat.free_places -= sign
        seat.scored_cpu += sign * shape.scored_cpu
        seat.scored_memory += sign * shape.scored_memory
        used, total = seat.used, self.used
        for name, amount in shape.asks:
            used[name] = used.get(name, 0) + sign * amount
            total[name] = total.get(name, 0) + sign * amount
        seat.imbalance = None
        seat.version += 1
        self.changes += 1
        self._log.append(seat.number)
        if len(self._log) > self._log_most:
            del self._log[: len(self._log) // 2]
        self.running += sign
        _add(seat.shapes, shape.number, sign)
        _add(self.priorities, shape.priority, sign)
        there = self.where.setdefault(shape.number, {})
        _add(there, seat.number, sign)
        if there:
            self.shapes[shape.number] = shape
            if shape.terms.are_any:
                self.looking[shape.number] = shape
        else:
            del self.where[shape.number], self.shapes[shape.number]
            self.looking.pop(shape.number, None)


def _add(counts: dict[int, int], key: int, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        del counts[key]
