"""How many more pods of a kind fit, by each node's admission and by its free amounts only; pods that can never fit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.engine.core.predicates.scheduler_filters import unknown_resources
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.simulation.outcomes import NodeRecord
from nodewright.fleet.simulation.placed_claims import with_served
from nodewright.fleet.simulation.pod_templates import PodAffinityTerms
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.objects import CORDON, Pod, untolerated
from nodewright.model.kubernetes.resource_names import distinguishable_amounts
from nodewright.model.reasons.reason import Reason
from nodewright.predict.fit.stranded import copies, copies_by_amounts, room_key
from nodewright.predict.pod_claims import devices_on

Amounts = Mapping[str, int]


class RemainingCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many more equal pods some nodes hold."""

    nodes: int
    admitted: int
    """Pods that the kubelets admit, one after the other."""
    by_free_amounts: int
    """Pods that fit by free amounts, regardless of NUMA nodes and devices."""
    because: Reason | str | None = None
    """Why the first of the nodes admits no more, a text if the devices for claims are used up; None: no node is feasible."""

    @property
    def stranded(self) -> int:
        """Pods for which free amounts suffice, but which the kubelets reject."""
        return self.by_free_amounts - self.admitted


_INFEASIBLE = RemainingCapacity(nodes=1, admitted=0, by_free_amounts=0)


class ShapeCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """Remaining capacity of the nodes of a shape."""

    shape: str
    capacity: RemainingCapacity


def capacity_by_shape(
    nodes: Sequence[NodeRecord], pod: Pod, claims: ClaimCluster | None = None
) -> tuple[ShapeCapacity, ...]:
    """How many more of these pods fit, by shape of node, in the order of the nodes.

    The pod gets the API server's defaults first, such as requests from limits. Its node selector, required node affinity
    and tolerations count, and only nodes that offer all its resources; its constraints on other pods (topology spread,
    pod affinity) do not. No pod is preempted. ``claims``: what the cluster has of Dynamic Resource Allocation; None: the
    pod's resource claims do not count.
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
        amounts = with_served(config.view.allocatable, claims, config.gates)
        unknown = [each for each in unknown_resources(stored, config.view) if each.resource not in amounts]
        if tolerates_and_selects(record.node, stored) and not unknown:
            key = room_key(record.state)
            if key not in by_state:
                by_state[key] = _node_capacity(record.state, stored, amounts)
            capacity = by_state[key]
            if claims is not None:
                capacity, claims = _with_devices(record, stored, capacity, claims)
        by_shape[record.node.shape] = _sum(by_shape.get(record.node.shape), capacity)
    return tuple(ShapeCapacity(shape=shape, capacity=capacity) for shape, capacity in by_shape.items())


def _with_devices(
    record: NodeRecord, pod: Pod, capacity: RemainingCapacity, claims: ClaimCluster
) -> tuple[RemainingCapacity, ClaimCluster]:
    """As many of the pods as get devices for their claims, and the claims of the cluster with these pods."""
    config, name, claims = record.state.config, record.node.name, replace(claims, is_whole=True)
    config = replace(config, view=replace(config.view, name=name, labels=record.node.labels))
    for count in range(capacity.admitted):
        uid = f"{pod.metadata.name}-{name}-{count}"
        copy = replace(pod, metadata=replace(pod.metadata, name=uid, uid=uid))
        answer = devices_on(config, claims, copy)
        if answer.obstacle is not None:
            why = answer.obstacle.why
            return replace(capacity, admitted=count, by_free_amounts=count, because=why), claims
        claims = answer.after or claims
    return capacity, claims


def uncounted_constraints(
    pod: Pod, nodes: Sequence[NodeRecord] = (), claims: ClaimCluster | None = None
) -> tuple[str, ...]:
    """What of the pod's spec, and of the pods on the nodes, `capacity_by_shape` does not count, so that fewer may fit."""
    constraints, affinity = pod.spec.topology_spread_constraints, pod.spec.affinity
    spread = any(each.get("whenUnsatisfiable") == "DoNotSchedule" for each in constraints)
    required = affinity is not None and any(
        (each or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        for each in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )
    others = {id(other.spec): other for record in nodes for other in record.state.pods.values()}
    repelled = any(
        term.matches(pod.metadata.namespace or "default", pod.metadata.labels)
        for other in others.values()
        if other.spec.affinity is not None
        for term in PodAffinityTerms(other, other.metadata.namespace or "default").required_anti_affinity
    )
    is_found_by_name = {
        "topology spread": spread,
        "inter-pod affinity": required,
        "anti-affinity of other pods": repelled,
        "resource claims": bool(pod.spec.resource_claims) and claims is None,
    }
    return tuple(name for name, is_found in is_found_by_name.items() if is_found)


def total_capacity(shapes: Iterable[ShapeCapacity]) -> RemainingCapacity:
    """The sum over all shapes."""
    total = RemainingCapacity(nodes=0, admitted=0, by_free_amounts=0)
    for shape in shapes:
        total = _sum(total, shape.capacity)
    return total


def tolerates_and_selects(node: FleetNode, pod: Pod) -> bool:
    """Whether the node passes the pod's static filters, regardless of its free resources."""
    return (
        not (node.unschedulable and untolerated((CORDON,), pod.spec.tolerations))
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


def _node_capacity(state: NodeState, pod: Pod, allocatable: Amounts) -> RemainingCapacity:
    # Labels have been checked, and no pod may be preempted.
    spec = replace(pod.spec, node_selector={}, affinity=None, priority=0, priority_class_name="")
    probe = replace(pod, spec=spec)
    fits, because = copies(state, probe)
    by_free_amounts = max(copies_by_amounts(state, probe, allocatable), fits)
    return RemainingCapacity(
        nodes=1, admitted=fits, by_free_amounts=by_free_amounts, because=because[0] if because else None
    )


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
            node, allocatable = by_name[pod.required_node]
            node = replace(node, unschedulable=False)  # pods of DaemonSets tolerate a cordon
            if (unschedulable := unschedulable_pod(pod, [(node, allocatable)])) is not None:
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
        count = unschedulable.feasible_nodes
        subject = f"none of the {count:,} feasible nodes has" if count > 1 else "the only feasible node lacks"
        return f"{head}{subject} enough of all resources"
    return f"{head}no node matches by labels and taints"
