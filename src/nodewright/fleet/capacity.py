"""How many more pods of a kind fit, by each node's admission and by its free amounts only; pods that can never fit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.engine.core.predicates.scheduler_filters import unknown_resources
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.node.events import PodAdded, PodStarted
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import unallocated_resources
from nodewright.engine.node.step import Decision, step
from nodewright.fleet.simulation.outcomes import NodeRecord
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.objects import Pod, untolerated
from nodewright.model.kubernetes.resource_names import (
    distinguishable_amounts,
)
from nodewright.model.reasons.reason import Reason

Amounts = Mapping[str, int]


class RemainingCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many more equal pods some nodes hold."""

    nodes: int
    admitted: int
    """Pods that the kubelets admit, one after the other."""
    by_free_amounts: int
    """Pods that fit by free amounts, regardless of NUMA nodes and devices."""
    because: Reason | None = None
    """Why the first of the nodes admits no more; None: no node is feasible."""

    @property
    def stranded(self) -> int:
        """Pods for which free amounts suffice, but which the kubelets reject."""
        return self.by_free_amounts - self.admitted


_INFEASIBLE = RemainingCapacity(nodes=1, admitted=0, by_free_amounts=0)


class ShapeCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """Remaining capacity of the nodes of a shape."""

    shape: str
    capacity: RemainingCapacity


def capacity_by_shape(nodes: Sequence[NodeRecord], pod: Pod) -> tuple[ShapeCapacity, ...]:
    """How many more of these pods fit, by shape of node, in the order of the nodes.

    The pod gets the API server's defaults first, such as requests from limits. Its node selector, required node affinity
    and tolerations count, and only nodes that offer all its resources; its constraints on other pods (topology spread,
    pod affinity) do not. No pod is preempted.
    """
    by_state: dict[object, RemainingCapacity] = {}
    stored_by_gates: dict[int, Pod] = {}
    by_shape: dict[str, RemainingCapacity] = {}
    for record in nodes:
        capacity = _INFEASIBLE
        config = record.state.config
        if id(config.gates) not in stored_by_gates:
            stored_by_gates[id(config.gates)] = pod_as_stored(pod, config.gates)
        stored = stored_by_gates[id(config.gates)]
        if tolerates_and_selects(record.node, stored) and not unknown_resources(stored, config.view):
            key = _state_key(record.state)
            if key not in by_state:
                by_state[key] = _node_capacity(record.state, stored)
            capacity = by_state[key]
        by_shape[record.node.shape] = _sum(by_shape.get(record.node.shape), capacity)
    return tuple(ShapeCapacity(shape=shape, capacity=capacity) for shape, capacity in by_shape.items())


def uncounted_constraints(pod: Pod) -> tuple[str, ...]:
    """What of the pod's spec `capacity_by_shape` does not count, so that fewer may fit."""
    constraints, affinity = pod.spec.topology_spread_constraints, pod.spec.affinity
    spread = any(each.get("whenUnsatisfiable") == "DoNotSchedule" for each in constraints)
    required = affinity is not None and any(
        (each or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        for each in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )
    return tuple(
        name for name, is_set in (("topology spread", spread), ("inter-pod affinity", required)) if is_set
    )


def total_capacity(shapes: Iterable[ShapeCapacity]) -> RemainingCapacity:
    """The sum over all shapes."""
    total = RemainingCapacity(nodes=0, admitted=0, by_free_amounts=0)
    for shape in shapes:
        total = _sum(total, shape.capacity)
    return total


def tolerates_and_selects(node: FleetNode, pod: Pod) -> bool:
    """Whether the node passes the pod's static filters, regardless of its free resources."""
    return (
        not node.unschedulable
        and not untolerated(node.taints, pod.spec.tolerations)
        and affinity_mismatch(pod.spec, node.name, node.labels) is None
    )


def _sum(total: RemainingCapacity | None, capacity: RemainingCapacity) -> RemainingCapacity:
    if total is None:
        return capacity
    return RemainingCapacity(
        nodes=total.nodes + capacity.nodes,
        admitted=total.admitted + capacity.admitted,
        by_free_amounts=total.by_free_amounts + capacity.by_free_amounts,
        because=total.because or capacity.because,
    )


def _node_capacity(state: NodeState, pod: Pod) -> RemainingCapacity:
    # Labels have been checked, and no pod may be preempted.
    spec = replace(pod.spec, node_selector={}, affinity=None, priority=0, priority_class_name="")
    probe = replace(pod, spec=spec)
    fits, because = 0, None
    count_by_free_amounts = _count_by_free_amounts(state, probe)
    while True:
        uid = f"probe-{fits}"
        copy = replace(probe, metadata=replace(probe.metadata, name=uid, uid=uid))
        result = step(state, PodAdded(copy))
        if result.decision is not Decision.ADMITTED:
            because = result.because[0] if result.because else None
            break
        fits += 1
        state = step(result.state, PodStarted(uid)).state
    return RemainingCapacity(
        nodes=1, admitted=fits, by_free_amounts=max(count_by_free_amounts, fits), because=because
    )


def _count_by_free_amounts(state: NodeState, pod: Pod) -> int:
    allocatable = state.config.view.allocatable
    used = state.usage.requests
    free_pods = allocatable.get("pods", 0) - state.usage.pods
    by_resource = [
        (allocatable.get(name, 0) - used.get(name, 0)) // amount
        for name, amount in scheduler_requests(pod).items()
        if amount
    ]
    return max(min([free_pods, *by_resource]), 0)


def _state_key(state: NodeState) -> object:
    """Nodes with equal keys have the same remaining capacity."""
    unallocated = unallocated_resources(state)
    return (
        id(state.config.parts.machine),
        id(state.config.parts.kubelet),
        state.usage.pods,
        _frozen(state.usage.requests),
        state.usage.ports,
        unallocated.shared_cpus,
        tuple(
            (table.numa, table.group, table.assignments, _frozen(table.free)) for table in unallocated.memory
        ),
        tuple((name, frozenset(ids)) for name, ids in sorted(unallocated.devices.items())),
    )


def _frozen(amounts: Mapping[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset(amounts.items())


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


def unschedulable_text(unschedulable: UnschedulablePod) -> str:
    """Why no node can ever hold a pod, with the location of its definition."""
    where = f" ({unschedulable.pod.source})" if unschedulable.pod.source else ""
    head = f"{unschedulable.pod.full_name}{where}: no node can ever hold it: "
    if unschedulable.resource:
        requested, largest = distinguishable_amounts(
            unschedulable.resource, unschedulable.requested, unschedulable.largest_allocatable
        )
        return (
            f"{head}{unschedulable.resource}: {requested} requested, at most {largest} allocatable on a node"
        )
    if unschedulable.feasible_nodes:
        return f"{head}none of the {unschedulable.feasible_nodes} feasible nodes has enough of all resources"
    return f"{head}no node matches by labels and taints"
