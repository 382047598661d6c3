"""What fits on a node: pods and their multiples, shapes, policies, and what is stranded; made for `nodewright fit`."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.workloads import Workload
from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.engine.admission.admission_plugins import pod_as_stored, with_uid, without_cluster_fields
from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.engine.core.predicates.scheduler_filters import unknown_resources
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import is_critical
from nodewright.engine.node.events import PodAdded, PodStarted
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.what_if.candidate_changes import MIB, POLICIES_BY_STRICTNESS
from nodewright.engine.node.what_if.changes import Setting, SettingsChanged
from nodewright.engine.node.what_if.counterfactuals import Trial
from nodewright.engine.node.what_if.largest_pod import emptied_node
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import Reason, sentence
from nodewright.predict.fit.multiples import NodeForPod, ResourceMultiple, resource_multiples
from nodewright.predict.fit.queued import QueueFit
from nodewright.predict.fit.shapes import Shape, device_resource, largest_shapes, shape_pod
from nodewright.predict.fit.stranded import (
    MAX_COPIES,
    MOVE_BUDGET,
    HeldNUMANode,
    PodsToMove,
    copies,
    copies_by_amounts,
    held_numa_nodes,
    pods_to_admit,
    pods_to_move,
    room_key,
)
from nodewright.predict.node import Node
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    ReferencedPod,
    ReportedObstacle,
    node_of_report,
    referenced_pod,
    reported_obstacles,
)
from nodewright.predict.verdict import SchedulerAnswer, Verdict, scheduler_answer, verdict_of

if TYPE_CHECKING:
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster


_ALL_MOVES = 50_000
"""Sets of pods to move that are tried on all nodes for all pods, at least `_LEAST_MOVES` for each."""
_LEAST_MOVES = 20


class FittedPod(Report, frozen=True, kw_only=True):
    """What of a pod fits on a node: its copies, and the largest multiples of its requests."""

    pod: ReferencedPod
    verdict: Verdict
    """About one more such pod now."""
    why: tuple[str, ...]
    """Why no further copy is admitted now, as sentences."""
    scheduler: tuple[ReportedObstacle, ...]
    """What keeps the scheduler from binding it to the node, whatever its size."""
    copies_now: int
    """How many such pods the node admits beside its own, one after the other."""
    copies_by_amounts: int
    """For how many the free amounts suffice, wherever they are."""
    copies_empty: int | None
    """How many the node admits without pods; null: its kubelet does not start."""
    stranded: Mapping[str, int]
    """What is free for further copies by amounts, and cannot be used for them: cpu in thousandths, sizes in bytes."""
    largest: tuple[ResourceMultiple, ...]
    """Empty: not asked for."""


class PolicyFit(Report, frozen=True, kw_only=True):
    """What the node admits under a policy of the topology manager."""

    policy: str
    admitted_now: int | None
    """How many of the given pods, in order, once the node's own pods are placed under the policy; null: it rejects one of
    these, or the kubelet does not start."""
    admitted_empty: int | None
    shapes: tuple[Shape, ...]
    """The largest shapes when the node is empty; only if no pods are given."""


class NodeFit(Report, frozen=True, kw_only=True):
    """What fits on a node now."""

    node: NodeOfReport
    pods: tuple[FittedPod, ...]
    shapes_now: tuple[Shape, ...]
    """The largest shapes beside the node's pods; only if no pods are given."""
    numa_nodes: tuple[HeldNUMANode, ...]
    to_move: tuple[PodsToMove, ...]
    """For a NUMA node, for a socket, and for each pod that is not admitted but would be without other pods."""


class GroupFit(Report, frozen=True, kw_only=True):
    """Nodes that are equal apart from their names, labels, taints and pods."""

    nodes: tuple[str, ...]
    topology_policy: str
    resource: str
    """The extended resource of the shapes; empty: there is none."""
    policies: tuple[PolicyFit, ...]
    """The counts of pods are those of the first node; none if a custom policy decides."""
    best_policy: str
    """The one that admits most of the given pods now, then when empty; of equal ones the node's own, then the strictest."""
    now: tuple[NodeFit, ...]
    """In the order of `nodes`."""


class FitReport(ReportDocument, frozen=True, kw_only=True):
    """The largest pods that nodes admit, and what of the nodes is stranded: `nodewright fit`."""

    kind: Literal["FitReport"] = "FitReport"
    groups: tuple[GroupFit, ...]
    queues: tuple[QueueFit, ...]
    """What the quotas of Kueue's queues allow, and the nodes take."""
    unread: Mapping[str, str]
    """Nodes about which nothing is known, with the error."""
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


class FitQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about nodes."""

    workloads: tuple[Workload, ...]
    """The pods; none: shapes are asked about."""
    resource: str | None = None
    """The extended resource of the shapes; None: as `device_resource`."""
    kubelet_only: bool = False
    multiples_up_to: int | None = None
    """Groups of more nodes have no multiples, which cost most; None: all have."""

    def groups(
        self, nodes: Sequence[Node], answered: Callable[[], None] = lambda: None
    ) -> tuple[GroupFit, ...]:
        """The answers of the nodes by groups of equal ones, the largest groups first.

        ``answered`` is called after each node.
        """
        groups: list[list[Node]] = []
        for node in nodes:
            group = next((each for each in groups if _are_equal(each[0], node)), None)
            if group is None:
                groups.append(group := [])
            group.append(node)
        searches = len(nodes) * len(self.workloads) or 1
        budget = min(MOVE_BUDGET, max(_ALL_MOVES // searches, _LEAST_MOVES))
        groups.sort(key=lambda group: -len(group))
        return tuple(self._group(group, budget, answered) for group in groups)

    def _group(self, nodes: Sequence[Node], budget: int, answered: Callable[[], None]) -> GroupFit:
        """The answers of equal nodes; what their pods do not change is found once."""
        state = nodes[0].state
        empty = emptied_node(state)
        own = state.config.managers.policy
        names = POLICIES_BY_STRICTNESS if state.config.managers.custom_policy is None else ()
        policies = tuple(self._policy_fit(state, empty or state, name) for name in names)
        best = max(
            policies,
            key=lambda fit: (*_counts(fit), fit.policy == own, names.index(fit.policy)),
            default=None,
        )
        return GroupFit(
            nodes=tuple(node.name for node in nodes),
            topology_policy=own,
            resource=self._resource(state),
            policies=policies,
            best_policy=best.policy if best else own,
            now=tuple(self._node_fits(nodes, budget, answered)),
        )

    def _node_fits(
        self, nodes: Sequence[Node], budget: int, answered: Callable[[], None]
    ) -> Iterator[NodeFit]:
        """The answers of the nodes; those with equal room share the multiples, all what they admit when empty."""
        rooms: dict[Hashable, list[NodeForPod]] = {}
        empties: dict[Hashable, list[_EmptyNode]] = {}
        shapes: dict[Hashable, tuple[Shape, ...]] = {}
        for node in nodes:
            state, own = node.state, self._own_facts(node)
            is_alone = any(pod.uid in state.pods or is_critical(pod) for pod in map(_pod, self.workloads))
            name = node.name if is_alone else ""
            key = (room_key(state), state.conditions, state.undecided_pods, own, name)
            if own not in empties:
                empties[own] = self._empties(node)
            if key not in rooms:
                rooms[key] = self._rooms(node, state)
                shapes[key] = self._shapes(state)
            limit = self.multiples_up_to
            nows = rooms[key] if limit is None or len(nodes) <= limit else []
            fit = self._node_fit(node, nows, empties[own], budget)
            yield replace(fit, shapes_now=shapes[key])
            answered()

    def _own_facts(self, node: Node) -> Hashable:
        """What the admission of the pods depends on, besides the kind of node and its pods."""
        view, pods = node.config.view, [each.pod for each in self.workloads]
        matches = tuple(affinity_mismatch(pod.spec, view.name, view.labels) is None for pod in pods)
        has_claims = self._claims(node) is not None and any(
            pod.spec.resource_claims or unknown_resources(pod, view) for pod in pods
        )
        return view.taints, matches, view.name if has_claims else ""

    def _rooms(self, node: Node, state: NodeState) -> list[NodeForPod]:
        claims = self._claims(node)
        return [NodeForPod(state=state, pod=_pod(each), claims=claims) for each in self.workloads]

    def _empties(self, node: Node) -> list["_EmptyNode"]:
        """For each pod the node without pods; none: its kubelet does not start."""
        empty = emptied_node(node.state)
        return [
            _EmptyNode(room, copies(room.state, room.stored, room.claims, most=MAX_COPIES)[0])
            for room in ([] if empty is None else self._rooms(node, empty))
        ]

    def _node_fit(
        self, node: Node, nows: Sequence[NodeForPod], empties: Sequence["_EmptyNode"], budget: int
    ) -> NodeFit:
        pods = [self._fitted(node, *entry) for entry in zip_longest(self.workloads, nows, empties)]
        rooms = [pods_to_admit(node.state, _pod(workload), budget) for workload in self.workloads]
        return NodeFit(
            node=node_of_report(node.config),
            pods=tuple(pods),
            shapes_now=(),
            numa_nodes=held_numa_nodes(node.state, self._resource(node.state)),
            to_move=(*pods_to_move(node.state), *(room for room in rooms if room)),
        )

    def _claims(self, node: Node) -> "ClaimCluster | None":
        return None if self.kubelet_only else node.claims

    def _resource(self, state: NodeState) -> str:
        return device_resource(state) if self.resource is None else self.resource

    def _shapes(self, state: NodeState) -> tuple[Shape, ...]:
        return () if self.workloads else largest_shapes(state, self._resource(state))

    def _fitted(
        self, node: Node, workload: Workload, now: NodeForPod | None, empty: "_EmptyNode | None"
    ) -> FittedPod:
        state, pod, claims = node.state, _pod(workload), self._claims(node)
        stored = pod_as_stored(pod, node.config.gates)
        answer = SchedulerAnswer()
        if not self.kubelet_only:
            answer = scheduler_answer(node.config, claims, pod, workload.volumes)
        result = step(state.without_pod(pod.uid), PodAdded(stored))
        assert result.decision is not None
        admitted, because, unused = 0, tuple[Reason | str, ...](), 0
        if answer.binds:
            admitted, because = copies(state, stored, claims, most=MAX_COPIES)
            by_amounts = copies_by_amounts(state, stored, node.config.view.allocatable)
            unused = max(min(by_amounts, MAX_COPIES) - admitted, 0)
        stranded = {name: unused * amount for name, amount in scheduler_requests(stored).items()}
        return FittedPod(
            pod=referenced_pod(pod),
            verdict=verdict_of(result.decision, answer.obstacles),
            why=tuple(why if isinstance(why, str) else sentence(why) for why in because),
            scheduler=reported_obstacles(answer.obstacles),
            copies_now=admitted,
            copies_by_amounts=admitted + unused,
            copies_empty=None if empty is None else empty.copies,
            stranded={name: amount for name, amount in stranded.items() if amount},
            largest=() if now is None else resource_multiples(now, empty.room if empty else None),
        )

    def _policy_fit(self, state: NodeState, emptied: NodeState, policy: str) -> PolicyFit:
        empty = _under_policy(emptied, policy)
        now = state if policy == state.config.managers.policy else _under_policy(state, policy)
        pods = list(map(_pod, self.workloads))
        return PolicyFit(
            policy=policy,
            admitted_now=None if now is None else admitted_count(now, pods),
            admitted_empty=None if empty is None else admitted_count(empty, pods),
            shapes=() if empty is None else self._shapes(empty),
        )


class _EmptyNode(NamedTuple):
    """A node without pods, and how many copies of a pod it admits."""

    room: NodeForPod
    copies: int


def _pod(workload: Workload) -> Pod:
    """The pod as a new one; of a cluster, without what it has there."""
    pod = with_uid(workload.pod)
    return without_cluster_fields(pod) if workload.is_stored else pod


def _counts(fit: PolicyFit) -> tuple[int, int]:
    return -1 if fit.admitted_now is None else fit.admitted_now, fit.admitted_empty or 0


def _under_policy(state: NodeState, policy: str) -> NodeState | None:
    """The node with its pods placed under a policy of the topology manager; None: it would lose one, or not start."""
    was = state.config.parts.kubelet.topology_manager_policy
    setting = Setting(name="topologyManagerPolicy", was=was, now=policy)
    changed = Trial(state, shape_pod(1, MIB, {})).changed(SettingsChanged(settings=(setting,)))
    return replace(changed[0], conditions=state.conditions) if changed else None


def best_verdict(report: FitReport, index: int) -> Verdict:
    """What becomes of a given pod on the node that is best for it; undecided if no node is judged."""
    verdicts = {fit.pods[index].verdict for group in report.groups for fit in group.now}
    order = (Verdict.ADMITTED, Verdict.UNDECIDED, Verdict.UNSCHEDULABLE, Verdict.REFUSED)
    return min(verdicts, key=order.index, default=Verdict.UNDECIDED)


def admitted_count(state: NodeState, pods: Sequence[Pod]) -> int:
    """How many of the pods the node admits, one after the other."""
    count = 0
    for pod in pods:
        result = step(state.without_pod(pod.uid), PodAdded(pod_as_stored(pod, state.config.gates)))
        state = result.state
        if result.decision is Decision.ADMITTED:
            count += 1
            state = step(state, PodStarted(pod.uid)).state
    return count


def _are_equal(first: Node, second: Node) -> bool:
    """Whether the nodes differ at most in names, labels, taints and pods."""
    parts, other = first.config.parts, second.config.parts
    own = {name: getattr(parts.facts, name) for name in ("name", "labels", "taints", "sources")}
    facts = replace(other.facts, **own)
    return parts == replace(other, facts=facts)
