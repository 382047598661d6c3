"""Lower bounds for the number of nodes that can hold a workload."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.fleet.workload import FleetPod
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import PODS

Amounts = Mapping[str, int]


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
