"""Fewer nodes than this cannot hold a workload, whatever anybody does."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from nodewright.core.requests import scheduler_requests
from nodewright.model.fleet import FleetPod
from nodewright.model.objects import Pod
from nodewright.model.resource_names import PODS

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods of one kind that run at the same time.

    Units: thousandths for cpu, else bytes or pieces.
    """

    pod: Pod
    asks: Amounts
    count: int


def peaks(pods: Sequence[FleetPod]) -> tuple[tuple[Demand, ...], ...]:
    """What runs at the moments when most of each resource is asked for, if no pod waits; each moment once."""
    asks: dict[int, dict[str, int]] = {}
    kinds: dict[int, Pod] = {}
    running: Counter[int] = Counter()
    now: Counter[str] = Counter()
    most: dict[str, int] = {}
    moments: dict[str, Counter[int]] = {}
    leaving: list[tuple[float, int]] = []
    for one in pods:
        kind = id(one.pod)
        if kind not in asks:
            asks[kind] = {name: amount for name, amount in scheduler_requests(one.pod).items() if amount}
            asks[kind][PODS] = 1
            kinds[kind] = one.pod
        while leaving and leaving[0][0] <= one.arrives_s:
            gone = heappop(leaving)[1]
            running[gone] -= 1
            now.subtract(asks[gone])
        running[kind] += 1
        now.update(asks[kind])
        if one.runs_s is not None:
            heappush(leaving, (one.arrives_s + one.runs_s, kind))
        higher = [name for name in asks[kind] if now[name] > most.get(name, 0)]
        if higher:
            moment = +running
            for name in higher:
                most[name] = now[name]
                moments[name] = moment
    found = {frozenset(moment.items()): moment for moment in moments.values()}.values()
    return tuple(
        tuple(Demand(kinds[kind], asks[kind], count) for kind, count in moment.items()) for moment in found
    )


def bound_of(demands: Sequence[Demand], nodes: Sequence[Amounts]) -> int:
    """The least number of nodes of these kinds that could hold them, by their amounts alone.

    Each resource is looked at for itself: its sum, and the pods of which no two fit on one node.

    >>> bound_of([Demand(Pod(), {"cpu": 600}, 3)], [{"cpu": 1000}])
    3
    """
    most: dict[str, int] = {}
    for node in nodes:
        for name, amount in node.items():
            most[name] = max(most.get(name, 0), amount)
    found = 0
    for name, has in most.items():
        if not has:
            continue
        needed = sum(one.count * one.asks.get(name, 0) for one in demands)
        alone = sum(one.count for one in demands if 2 * one.asks.get(name, 0) > has)
        found = max(found, -(-needed // has), alone)
    return found
