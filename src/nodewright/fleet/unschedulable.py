"""Pods that no node of a fleet can ever hold, reported when they arrive."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.fleet.capacity import tolerates_and_selects
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.objects import Pod

Amounts = Mapping[str, int]


class UnschedulablePod(msgspec.Struct, frozen=True, kw_only=True):
    """Why no node can ever hold a pod.

    Units: requested and largest_allocatable in thousandths for cpu, else bytes or units.
    """

    pod: FleetPod
    """The first such pod."""
    resource: str = ""
    """The resource of which no feasible node has enough; empty: no node is feasible, or none has enough of everything."""
    requested: int = 0
    largest_allocatable: int = 0
    """The largest allocatable amount of a node."""
    feasible_nodes: int = 0
    """Number of nodes that match by labels and taints."""


def report_unschedulable(
    pods: Iterable[FleetPod],
    nodes: Sequence[tuple[FleetNode, Amounts]],
    report: Callable[[UnschedulablePod], None],
) -> Iterator[FleetPod]:
    """The pods, unchanged; ``report`` is called for each kind of unschedulable pod when the first of it arrives.

    Nodes are given with their allocatable resources.
    """
    checked: dict[int, Pod] = {}
    by_name = {node.name: (node, allocatable) for node, allocatable in nodes}
    for pod in pods:
        if pod.required_node in by_name:
            if (unschedulable := unschedulable_pod(pod, [by_name[pod.required_node]])) is not None:
                report(unschedulable)
        elif id(pod.pod) not in checked:
            checked[id(pod.pod)] = pod.pod  # keeps the pod alive, so that no other object gets its id
            if not pod.node and (unschedulable := unschedulable_pod(pod, nodes)) is not None:
                report(unschedulable)
        yield pod


def unschedulable_pod(pod: FleetPod, nodes: Sequence[tuple[FleetNode, Amounts]]) -> UnschedulablePod | None:
    """Why no node could hold the pod even if it were empty; None: a node could, by its amounts."""
    requests = {name: amount for name, amount in scheduler_requests(pod.pod).items() if amount}
    for node, allocatable in nodes:
        if all(
            allocatable.get(name, 0) >= amount for name, amount in requests.items()
        ) and tolerates_and_selects(node, pod.pod):
            return None
    feasible = [allocatable for node, allocatable in nodes if tolerates_and_selects(node, pod.pod)]
    for name, amount in requests.items():
        largest = max((allocatable.get(name, 0) for allocatable in feasible), default=0)
        if feasible and amount > largest:
            return UnschedulablePod(
                pod=pod,
                resource=name,
                requested=amount,
                largest_allocatable=largest,
                feasible_nodes=len(feasible),
            )
    return UnschedulablePod(pod=pod, feasible_nodes=len(feasible))
