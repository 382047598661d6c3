"""Searches the smallest number of nodes that holds a workload; each candidate is simulated. Lower bounds prove results."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from importlib import import_module
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.claims.device_pools import IndexedSlices
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.claims import ResourceSlice
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import PODS
from nodewright.version import install_command

HoldsWorkload = Callable[[Sequence[FleetNode]], int]
"""Returns how many pods of the workload these nodes cannot place at once; 0: they hold it."""
Amounts = Mapping[str, int]
_MAX_ROUNDS = 300
_TOLERANCE = 1e-6
"""Tolerance for results of HiGHS, which computes in floats."""


class SearchInterruptedError(Exception):
    """The search was interrupted."""


class MinimumNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest set of nodes that was found to hold a workload."""

    counts: tuple[int, ...]
    """Number of nodes of each kind; empty: no number up to the maximum holds it."""
    bound: int
    """Lower bound for the number of nodes."""
    runs: int
    """Number of simulations."""
    is_complete: bool = True
    """False: the search was interrupted, and this is the best result until then."""

    @property
    def nodes(self) -> int:
        """Total number of nodes."""
        return sum(self.counts)

    @property
    def is_proved_minimal(self) -> bool:
        """Whether the lower bound proves that no smaller set holds it."""
        return bool(self.counts) and self.nodes <= self.bound


def node_copies(kinds: Sequence[FleetNode], counts: Sequence[int]) -> list[FleetNode]:
    """Copies of nodes of each kind, with unique names and host names."""
    return [
        replace(kind, name=name, labels={**kind.labels, "kubernetes.io/hostname": name})
        for kind, count in zip(kinds, counts, strict=True)
        for name in (f"{kind.name}-{number}" for number in range(count))
    ]


def slices_of_copies(claims: ClaimCluster, nodes: Iterable[FleetNode]) -> ClaimCluster:
    """The cluster of copies of nodes: each has the ResourceSlices of its node, in a pool of its own."""
    of_nodes = IndexedSlices(claims.slices).of_nodes
    copies = [
        _slice_of_copy(item, node.name, own)
        for node in nodes
        for own in (of_nodes.get(node.name.rpartition("-")[0], ()),)
        for item in own
        if item.spec.node_name
    ]
    return replace(claims, slices=(*of_nodes.get("", ()), *copies))


def _slice_of_copy(item: ResourceSlice, node: str, slices: Sequence[ResourceSlice]) -> ResourceSlice:
    pool = item.spec.pool
    count = sum(each.spec.pool == pool and each.spec.driver == item.spec.driver for each in slices)
    own = replace(pool, name=f"{pool.name}/{node}", resource_slice_count=count)
    meta = replace(item.metadata, name=f"{item.metadata.name}-{node}")
    return replace(item, metadata=meta, spec=replace(item.spec, node_name=node, pool=own))


def minimum_nodes(
    kinds: Sequence[FleetNode], holds: HoldsWorkload, *, bound: int, maximum: int
) -> MinimumNodes:
    """The smallest number of nodes of the kinds that holds the workload, as far as the search finds it.

    Tries each kind alone first, or, where none suffices, equal numbers of all kinds; then removes nodes one by one
    as long as the rest holds the workload. ``maximum`` is the largest number of nodes of a kind. When ``holds`` raises
    SearchInterruptedError, the result is the best one until then.
    """
    search = _NodeCountSearch(kinds, holds)
    try:
        best, is_complete = _best(search, len(kinds), bound, maximum), True
    except SearchInterruptedError:
        best, is_complete = search.smallest_known(), False
    return MinimumNodes(counts=best, bound=bound, runs=search.runs, is_complete=is_complete)


def _best(search: "_NodeCountSearch", kinds: int, bound: int, maximum: int) -> tuple[int, ...]:
    best: tuple[int, ...] = ()
    for at in range(kinds):
        if best and sum(best) <= bound:
            break
        only = tuple(int(at == kind) for kind in range(kinds))
        smallest = search.smallest_multiple(
            only, minimum=max(bound, 1), maximum=sum(best) - 1 if best else maximum
        )
        best = smallest or best
    if not best and kinds > 1:
        best = search.smallest_multiple((1,) * kinds, minimum=1, maximum=maximum)
        best = search.reduced(best, bound) if best else best
    return best


class _NodeCountSearch:
    def __init__(self, kinds: Sequence[FleetNode], holds: HoldsWorkload) -> None:
        self.kinds, self._holds = kinds, holds
        self.runs = 0
        self._results: dict[tuple[int, ...], bool] = {}

    def holds(self, counts: tuple[int, ...]) -> bool:
        if counts not in self._results:
            self.runs += 1
            self._results[counts] = not self._holds(node_copies(self.kinds, counts))
        return self._results[counts]

    def smallest_known(self) -> tuple[int, ...]:
        """The smallest counts that hold it so far; empty: none."""
        holding = [counts for counts, holds_it in self._results.items() if holds_it]
        return min(holding, key=lambda counts: (sum(counts), counts), default=())

    def smallest_multiple(self, direction: tuple[int, ...], *, minimum: int, maximum: int) -> tuple[int, ...]:
        """The smallest multiple that holds it, assuming that more nodes hold no less; empty: none up to the maximum."""
        low, high = minimum, minimum
        while high <= maximum and not self.holds(_multiple(direction, high)):
            low, high = high + 1, 2 * high
        if high > maximum:
            high = maximum
            if high < low or not self.holds(_multiple(direction, high)):
                return ()
        while low < high:
            middle = (low + high) // 2
            if self.holds(_multiple(direction, middle)):
                high = middle
            else:
                low = middle + 1
        return _multiple(direction, high)

    def reduced(self, counts: tuple[int, ...], bound: int) -> tuple[int, ...]:
        """Removes nodes of each kind, one by one, as long as the rest holds the workload."""
        at = 0
        while at < len(counts) and sum(counts) > bound:
            fewer = tuple(count - (index == at) for index, count in enumerate(counts))
            if fewer[at] >= 0 and self.holds(fewer):
                counts = fewer
            else:
                at += 1
        return counts


def _multiple(direction: tuple[int, ...], factor: int) -> tuple[int, ...]:
    return tuple(count * factor for count in direction)


class PodDemand(msgspec.Struct, frozen=True):
    """Equal pods that run at the same time.

    Units: thousandths for cpu, else bytes or units.
    """

    pod: Pod
    requests: Amounts
    count: int


def peak_demands(pods: Sequence[FleetPod]) -> tuple[tuple[PodDemand, ...], ...]:
    """The pods that run when the demand for each resource peaks, if no pod waits; equal moments once."""
    requests: dict[int, dict[str, int]] = {}
    pods_by_kind: dict[int, Pod] = {}
    running: Counter[int] = Counter()
    demand: Counter[str] = Counter()
    peak: dict[str, int] = {}
    moments: dict[str, Counter[int]] = {}
    ends: list[tuple[float, int]] = []
    for pod in pods:
        kind = id(pod.pod)
        if kind not in requests:
            requests[kind] = {name: amount for name, amount in scheduler_requests(pod.pod).items() if amount}
            requests[kind][PODS] = 1
            pods_by_kind[kind] = pod.pod
        while ends and ends[0][0] <= pod.arrives_s:
            ended = heappop(ends)[1]
            running[ended] -= 1
            demand.subtract(requests[ended])
        running[kind] += 1
        demand.update(requests[kind])
        if pod.runs_s is not None:
            heappush(ends, (pod.arrives_s + pod.runs_s, kind))
        peaking = [name for name in requests[kind] if demand[name] > peak.get(name, 0)]
        if peaking:
            moment = +running
            for name in peaking:
                peak[name] = demand[name]
                moments[name] = moment
    distinct = {frozenset(moment.items()): moment for moment in moments.values()}.values()
    return tuple(
        tuple(PodDemand(pods_by_kind[kind], requests[kind], count) for kind, count in moment.items())
        for moment in distinct
    )


def node_lower_bound(demands: Sequence[PodDemand], nodes: Sequence[Amounts]) -> int:
    """A lower bound for the number of nodes of these kinds that hold the pods, by requests only.

    Each resource gives a bound: its sum, and the number of pods of which no two fit on one node.

    >>> node_lower_bound([PodDemand(Pod(), {"cpu": 600}, 3)], [{"cpu": 1000}])
    3
    """
    largest: dict[str, int] = {}
    for node in nodes:
        for name, amount in node.items():
            largest[name] = max(largest.get(name, 0), amount)
    bound = 0
    for name, capacity in largest.items():
        if not capacity:
            continue
        needed = sum(demand.count * demand.requests.get(name, 0) for demand in demands)
        alone = sum(demand.count for demand in demands if 2 * demand.requests.get(name, 0) > capacity)
        bound = max(bound, -(-needed // capacity), alone)
    return bound


def packing_lower_bound(
    requests: Sequence[Amounts],
    counts: Sequence[int],
    nodes: Sequence[Amounts],
    allowed: Sequence[Sequence[bool]],
) -> int:
    """A sharper lower bound, by HiGHS (extra `exact`): the linear program over whole loads of nodes.

    A load is a set of pods that one node can hold. The program combines fractions of loads so that all pods are held by
    the fewest nodes; no integral packing needs fewer. Loads are generated on demand (column generation), and in each
    round the dual prices of the pods prove a bound (Farley's).

    ``counts`` are the numbers of pods of each kind, ``requests`` what a pod of each kind requests.
    ``allowed`` states for each kind of node which kinds of pods may run on it.
    Errors: HostError if the package is not installed.
    """
    highs = _highs()
    loads = [_single_kind_load(at, requests, nodes, allowed) for at in range(len(requests))]
    if any(load is None for load in loads):
        return 0
    columns = [load for load in loads if load is not None]
    best = 0.0
    for _ in range(_MAX_ROUNDS):
        value, prices = _fractional_solution(highs, columns, counts)
        new = [
            load
            for node, is_allowed in zip(nodes, allowed, strict=True)
            if any(load := _most_valuable_load(highs, requests, counts, prices, (node, is_allowed)))
        ]
        value_of_load = max(
            (sum(p * n for p, n in zip(prices, load, strict=True)) for load in new), default=0.0
        )
        best = max(best, value / max(value_of_load, 1.0))
        if value_of_load <= 1 + _TOLERANCE or ceil(best - _TOLERANCE) >= ceil(value - _TOLERANCE):
            break
        columns += new
    return ceil(best - _TOLERANCE)


def _highs() -> Any:
    try:
        return import_module("highspy")  # an optional extra
    except ImportError as error:
        raise HostError("load", "highspy", f"{error}; {install_command('exact')}") from error


def _single_kind_load(
    at: int, requests: Sequence[Amounts], nodes: Sequence[Amounts], allowed: Sequence[Sequence[bool]]
) -> tuple[int, ...] | None:
    """The largest load of pods of one kind; None: no node holds one."""
    count_per_node = 0
    for node, is_allowed in zip(nodes, allowed, strict=True):
        if is_allowed[at]:
            count_per_node = max(
                count_per_node,
                min(node.get(name, 0) // amount for name, amount in requests[at].items() if amount),
            )
    return (
        tuple(count_per_node if at == kind else 0 for kind in range(len(requests)))
        if count_per_node
        else None
    )


def _solver(highs: Any) -> Any:
    solver = highs.Highs()
    for name, value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0}.items():
        solver.setOptionValue(name, value)
    return solver


def _fractional_solution(
    highs: Any, columns: Sequence[tuple[int, ...]], counts: Sequence[int]
) -> tuple[float, list[float]]:
    """Solves the linear program: its number of nodes, and the dual price of a pod of each kind."""
    solver = _solver(highs)
    for _ in columns:
        solver.addVar(0.0, highs.kHighsInf)
    indexes = list(range(len(columns)))
    solver.changeColsCost(len(columns), indexes, [1.0] * len(columns))
    for at, count in enumerate(counts):
        row = [float(load[at]) for load in columns]
        solver.addRow(float(count), highs.kHighsInf, len(indexes), indexes, row)
    solver.run()
    prices = [max(price, 0.0) for price in solver.getSolution().row_dual]
    return float(solver.getInfo().objective_function_value), prices


def _most_valuable_load(
    highs: Any,
    requests: Sequence[Amounts],
    counts: Sequence[int],
    prices: Sequence[float],
    node: tuple[Amounts, Sequence[bool]],
) -> tuple[int, ...]:
    """The load of a node with the highest value at these prices."""
    capacity, is_allowed = node
    solver = _solver(highs)
    indexes = list(range(len(requests)))
    for at in indexes:
        solver.addVar(0.0, float(counts[at] if is_allowed[at] else 0))
        solver.changeColIntegrality(at, highs.HighsVarType.kInteger)
    solver.changeColsCost(len(indexes), indexes, [-price for price in prices])
    for name in sorted({name for request in requests for name in request}):
        needed = sum(request.get(name, 0) * count for request, count in zip(requests, counts, strict=True))
        if needed <= capacity.get(name, 0):
            continue  # All pods together have enough of it; and what device classes serve has no limit here.
        unit = max([1, capacity.get(name, 0), *(request.get(name, 0) for request in requests)])
        row = [request.get(name, 0) / unit for request in requests]
        # Capacity plus tolerance: a load lost to rounding could make the bound too high.
        solver.addRow(-highs.kHighsInf, capacity.get(name, 0) / unit + _TOLERANCE, len(indexes), indexes, row)
    solver.run()
    return tuple(round(value) for value in solver.getSolution().col_value)
