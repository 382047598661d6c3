"""The nodes of a cluster as the extender knows them: exported states, and the pods on their way to them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.reasons.reason import kubelet_text, sentence
from nodewright.scheduling.verdicts.pod_queries import PodQuery
from nodewright.scheduling.verdicts.shared_states import (
    NodeVerdict,
    SharedState,
    StatePool,
    last_number,
    pod_number,
)
from nodewright.scheduling.verdicts.tracked_cluster import (
    Basis,
    ClusterBudget,
    PlacedPods,
    PodReservation,
    RememberedAnswers,
    TrackedNode,
    TrackedNodes,
)

RESERVATION_S = 60.0
MAX_ORDERED_PODS = 4
"""With more pods on their way to a node, not every order of their arrival is tried."""


class BasedVerdict(NamedTuple):
    """A verdict and what it is based on."""

    verdict: NodeVerdict
    basis: Basis
    generation: int = 0
    note: str = ""
    """Why the basis is not exact; empty for exact ones."""

    @property
    def decision(self) -> Decision:
        """The decision."""
        return self.verdict.decision

    def refuses(self, *, strict: bool) -> bool:
        """Whether the pod must not be bound to the node: never on a guess, unless ``strict``."""
        return refuses_pod(self.verdict.decision, self.basis, strict=strict)


def refuses_pod(decision: Decision, basis: Basis, *, strict: bool) -> bool:
    """Whether a decision on this basis is a refusal: never on a guess, unless ``strict``."""
    if strict:
        return decision is not Decision.ADMITTED or basis is Basis.UNKNOWN
    return basis is Basis.EXACT and decision is Decision.REFUSED


class TrackedCluster:
    """All nodes, their reservations, and the verdicts about pods."""

    def __init__(self, pool: StatePool | None = None) -> None:
        self.pool = StatePool() if pool is None else pool
        self._tracked = TrackedNodes()
        self.nodes = self._tracked.present
        self.budgets: dict[str, ClusterBudget] = {}
        """The PodDisruptionBudgets by uid."""
        self.answers = RememberedAnswers[BasedVerdict]()
        """About pods that are not on the node, until it changes; without those about its labels."""
        self._placed = PlacedPods()

    # ------------------------------------------------------------ what happens

    def node(self, name: str) -> TrackedNode:
        """The node of that name, which is added if it is new."""
        return self._tracked.add(name)

    def _place(self, uids: Iterable[str]) -> None:
        """Notes that pods are on a node, or on their way to one."""
        present = (chain(node.numbers, node.reservations, node.api_pods) for node in self._tracked)
        self._placed.add(uids, chain.from_iterable(present))

    def remove_node(self, name: str) -> None:
        """Forgets a node, apart from the pods that are bound to it."""
        self._tracked.remove(name)
        self.answers.forget_node(name)

    def set_labels(self, name: str, labels: Mapping[str, str]) -> None:
        """Sets the labels of the Node object, which a pod may select."""
        self.node(name).labels = labels

    def put_export(self, name: str, profile: NodeProfile, *, generation: int, now_s: float) -> None:
        """Takes over what a node exports; ends the reservations of the pods that it shows.

        Errors: InputError for a state that cannot be; the node then counts as unknown.
        """
        node = self.node(name)
        node.received_s = now_s
        self._put_state(node, profile, Basis.EXACT)
        node.generation, node.note = generation, ""
        node.seen.update(uid for uid in node.numbers if uid in node.api_pods)
        for uid in node.numbers:
            if node.reservations.pop(uid, None) is not None:
                node.seen.add(uid)
        self._reserve_unshown(node, now_s)

    def put_prediction(self, name: str, profile: NodeProfile, *, note: str, now_s: float = 0.0) -> None:
        """Takes over a node without a fresh export as its API objects describe it.

        Errors: InputError for a description that cannot be; the node then counts as unknown.
        """
        node = self.node(name)
        self._put_state(node, profile, Basis.PREDICTED)
        node.note = note
        # The pods of the API server are part of the prediction.
        for uid in node.numbers:
            node.reservations.pop(uid, None)
        self._reserve_unshown(node, now_s)

    def mark_unknown(self, name: str, note: str) -> None:
        """Counts a node as unknown."""
        node = self.node(name)
        node.basis, node.note, node.state, node.numbers = Basis.UNKNOWN, note, None, {}
        self.answers.forget_node(node.name)

    def confirm_export(self, name: str, *, now_s: float) -> None:
        """Notes that the node's state is still the exported one."""
        self.node(name).received_s = now_s

    def _put_state(self, node: TrackedNode, profile: NodeProfile, basis: Basis) -> None:
        node.basis, node.state, node.numbers = Basis.UNKNOWN, None, {}
        self.answers.forget_node(node.name)
        node.note = "the description of the node is impossible"
        node.state = self.pool.state_of(profile, node.names)
        node.profile, node.basis = profile, basis
        active = (pod for pod in profile.spec.pods if not pod.is_terminal)
        node.numbers = {pod.uid or pod.full_name: pod_number(at) for at, pod in enumerate(active)}
        node.departing = {uid: at_s for uid, at_s in node.departing.items() if uid in node.numbers}
        self._place(node.numbers)

    def _reserve_unshown(self, node: TrackedNode, now_s: float) -> None:
        """Reserves the places of bound pods that the state does not show, and has not shown before."""
        for uid, query in node.api_pods.items():
            if uid not in node.numbers and uid not in node.seen and uid not in node.reservations:
                node.reservations[uid] = PodReservation(
                    query=query, node=node.name, reserved_s=now_s, is_bound=True
                )

    def pod_bound(self, name: str, query: PodQuery, *, now_s: float) -> None:
        """Notes a pod that the API server shows on a node."""
        node = self._tracked.holder(name)
        self.answers.forget_node(node.name)
        node.api_pods[query.uid] = query
        self._place((query.uid,))
        if query.uid in node.numbers:
            if node.basis is Basis.EXACT:
                node.seen.add(query.uid)
        elif query.uid not in node.seen:
            known = node.reservations.get(query.uid)
            reserved_s = known.reserved_s if known else now_s
            node.reservations[query.uid] = PodReservation(
                query=query, node=name, reserved_s=reserved_s, is_bound=True
            )

    def pod_gone(self, name: str, uid: str, *, now_s: float = float("-inf")) -> None:
        """Notes that a pod has ended or is deleted."""
        node = self._tracked.find(name)
        if node is not None:
            if uid in node.numbers:
                node.departing[uid] = now_s
            self.answers.forget_node(node.name)
            node.reservations.pop(uid, None)
            node.api_pods.pop(uid, None)
            node.seen.discard(uid)
            self._tracked.drop_without_pods(name)

    def reserve(self, name: str, query: PodQuery, *, now_s: float) -> None:
        """Reserves the place of a pod that is about to be bound."""
        node = self._tracked.holder(name)
        if query.uid not in node.numbers and query.uid not in node.seen:
            self.answers.forget_node(node.name)
            node.reservations[query.uid] = PodReservation(query=query, node=name, reserved_s=now_s)
            self._place((query.uid,))

    def release(self, name: str, uid: str) -> None:
        """Ends a reservation, unless the API server shows the pod on the node."""
        node = self._tracked.find(name)
        if node is not None and uid in node.reservations and not node.reservations[uid].is_bound:
            del node.reservations[uid]
            self.answers.forget_node(node.name)
            self._tracked.drop_without_pods(name)

    def expire_reservations(
        self, *, now_s: float, after_s: float = RESERVATION_S
    ) -> tuple[PodReservation, ...]:
        """Ends the reservations that have waited too long for their binding."""
        expired = tuple(
            reservation
            for node in self._tracked
            for reservation in node.reservations.values()
            if not reservation.is_bound and now_s - reservation.reserved_s >= after_s
        )
        for reservation in expired:
            self.release(reservation.node, reservation.query.uid)
        return expired

    # ------------------------------------------------------------ what is asked

    def verdict(self, name: str, query: PodQuery) -> BasedVerdict:
        """The verdict of a node about a pod, after all pods that are on their way to it."""
        node = self.nodes.get(name)
        if node is None:
            return BasedVerdict(_UNDECIDED, Basis.UNKNOWN, note="the cluster has no such node")
        if node.state is None:
            return BasedVerdict(_UNDECIDED, node.basis, node.generation, node.note)
        if query.uid in node.numbers:
            return BasedVerdict(_ON_NODE, node.basis, node.generation, node.note)
        if query.selects_nodes or query.uid in node.reservations:
            return self._judged(node, node.state, query)
        answers = self.answers.table(query.own_key if node.state.has_own_policies else query.key)
        answer = answers.get(name)
        if answer is None:
            answer = answers[name] = self._judged(node, node.state, query)
        else:
            self.pool.counts.shared += 1
        return answer

    def verdicts(self, names: Sequence[str], query: PodQuery) -> list[BasedVerdict]:
        """The verdicts of several nodes, in their order: those of `verdict`."""
        if query.selects_nodes or query.uid in self._placed:
            return [self.verdict(name, query) for name in names]
        known = self.answers.read(query.key, names)
        answers = [
            self.verdict(names[place], query) if answer is None else answer
            for place, answer in enumerate(known)
        ]
        self.pool.counts.shared += len(known) - known.count(None)
        return answers

    def _judged(self, node: TrackedNode, state: SharedState, query: PodQuery) -> BasedVerdict:
        mismatch = query.label_mismatch(node.name, node.labels) if query.selects_nodes else None
        if mismatch is not None:
            text = kubelet_text(mismatch)
            verdict = NodeVerdict(
                Decision.REFUSED, text.reason, text.message, sentence(mismatch), is_unresolvable=True
            )
        else:
            verdict = self._verdict_after(state, node, query)
        return BasedVerdict(verdict, node.basis, node.generation, node.note)

    def _verdict_after(self, state: SharedState, node: TrackedNode, query: PodQuery) -> NodeVerdict:
        if not node.reservations:
            return state.verdict(query)
        waiting = [each.query for uid, each in node.reservations.items() if uid != query.uid]
        after = state
        for earlier in waiting:
            after = after.after(earlier)
        verdict = after.verdict(query)
        if verdict.decision is Decision.REFUSED or not waiting:
            return verdict
        return verdict if _is_safe(state, waiting, query) else _ORDER_MATTERS

    def pods_on(self, name: str) -> tuple["PodOnNode", ...]:
        """The pods on the node and on their way to it, in order, as the state names them."""
        node = self.nodes[name]
        assert node.state is not None
        pods = [PodOnNode(uid, number) for uid, number in node.numbers.items()]
        state = node.state
        for uid, reservation in node.reservations.items():
            after = state.after(reservation.query)
            if after is not state:
                pods.append(PodOnNode(uid, last_number(after.state)))
            state = after
        return tuple(pods)

    def state_after_reservations(self, name: str) -> SharedState:
        """The state of the node after the pods that are on their way to it."""
        node = self.nodes[name]
        assert node.state is not None
        state = node.state
        for reservation in node.reservations.values():
            state = state.after(reservation.query)
        return state

    def stale_nodes(self, *, now_s: float, after_s: float) -> Iterator[str]:
        """The nodes whose exports are too old to be exact."""
        for name, node in self.nodes.items():
            if node.basis is Basis.EXACT and now_s - node.received_s > after_s:
                yield name

    @property
    def holds_nothing(self) -> bool:
        """Whether no node is known, nor a pod on its way to one."""
        return next(iter(self._tracked), None) is None

    def count_by_basis(self) -> dict[Basis, int]:
        """The number of nodes by what their verdicts are based on."""
        counts = dict.fromkeys(Basis, 0)
        for node in self.nodes.values():
            counts[node.basis] += 1
        return counts

    def reservations(self) -> Iterable[PodReservation]:
        """All reservations."""
        return (each for node in self._tracked for each in node.reservations.values())


class PodOnNode(NamedTuple):
    """A pod on a node: its uid, and its name in the node's state."""

    uid: str
    number: str


_UNDECIDED = NodeVerdict(Decision.UNDECIDED, sentence="the node's state is not known")
_ON_NODE = NodeVerdict(Decision.ADMITTED, sentence="the pod is on the node")
_ORDER_MATTERS = NodeVerdict(
    Decision.REFUSED,
    "PodsOnTheirWay",
    "other pods are on their way to the node",
    "other pods are on their way to the node, whose kubelet would refuse one of them if it saw them in another order",
)


def _is_safe(state: SharedState, waiting: list[PodQuery], query: PodQuery) -> bool:
    """Whether the kubelet refuses none of the pods, in whatever order it sees them.

    Pods that depend on their order without this one do not count against it. With many pods the pod is tried as the
    first and as the last.
    """
    if len(waiting) < MAX_ORDERED_PODS:
        return state.admits_in_any_order([*waiting, query]) or not state.admits_in_any_order(waiting)
    first = state.after(query)
    if first is state:
        return False
    for earlier in waiting:
        before, first = first, first.after(earlier)
        if first is before:
            return False
    return True
