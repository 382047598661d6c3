"""The nodes of a cluster as the extender knows them: exported states, and the pods on their way to them.

Pods may be bound to nodes that the cluster does not have yet. Preemption respects PodDisruptionBudgets as the API server
shows them.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from nodewright.engine.node.step import Decision
from nodewright.fleet.simulation.pod_templates import LabelMatcher
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import kubelet_text, sentence
from nodewright.scheduling.verdicts.pod_queries import PodQuery
from nodewright.scheduling.verdicts.shared_states import (
    NodeNames,
    NodeVerdict,
    SharedState,
    StatePool,
    last_number,
    pod_number,
)

RESERVATION_S = 60.0
MAX_ORDERED_PODS = 4
"""With more pods on their way to a node, not every order of their arrival is tried."""
MAX_TABLES = 128
MIN_PLACED = 10_000
T = TypeVar("T")


class Basis(StrEnum):
    """What a verdict is based on."""

    EXACT = "exact"
    """The node's own export."""
    PREDICTED = "predicted"
    """The pods of the API server, replayed in order of their creation."""
    UNKNOWN = "unknown"
    """Nothing that can be: the node is not in the cluster, or its description is impossible."""

    __hash__ = str.__hash__


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


class PodReservation(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound, or about to be bound, to a node that does not show it yet.

    Units: reserved_s in seconds of a clock that never goes back.
    """

    query: PodQuery
    node: str
    reserved_s: float
    is_bound: bool = False
    """Whether the API server shows it there: then only the node or the end of the pod ends the reservation."""


class TrackedNode:
    """What is known about a node. Changed in place, by `TrackedCluster` only."""

    __slots__ = (
        "api_pods",
        "basis",
        "departing",
        "generation",
        "labels",
        "name",
        "names",
        "note",
        "numbers",
        "profile",
        "received_s",
        "reservations",
        "seen",
        "state",
    )

    def __init__(self, name: str) -> None:
        self.name, self.names = name, NodeNames()
        self.labels: Mapping[str, str] = {}
        self.basis, self.note = Basis.UNKNOWN, "nothing is known about the node yet"
        self.state: SharedState | None = None
        self.profile: NodeProfile | None = None
        """The last exported profile, or the prediction."""
        self.numbers: dict[str, str] = {}
        """The names of its pods in the state, by uid."""
        self.generation, self.received_s = -1, float("-inf")
        self.seen: set[str] = set()
        """The uids of bound pods that an export has shown: they are never reserved again."""
        self.reservations: dict[str, PodReservation] = {}
        """By uid, in the order of reservation."""
        self.api_pods: dict[str, PodQuery] = {}
        """The active pods that the API server shows on the node, by uid."""
        self.departing: dict[str, float] = {}
        """When the API server showed the end of pods that the export still shows, by uid."""


class PodOnNode(NamedTuple):
    """A pod on a node: its uid, and its name in the node's state."""

    uid: str
    number: str


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

    def count_by_basis(self) -> dict[Basis, int]:
        """The number of nodes by what their verdicts are based on."""
        counts = dict.fromkeys(Basis, 0)
        for node in self.nodes.values():
            counts[node.basis] += 1
        return counts

    def reservations(self) -> Iterable[PodReservation]:
        """All reservations."""
        return (each for node in self._tracked for each in node.reservations.values())


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


class TrackedNodes:
    """The nodes of the cluster; of nodes that it does not have, or not yet, only the pods that are bound to them."""

    def __init__(self) -> None:
        self.present: dict[str, TrackedNode] = {}
        self._absent: dict[str, TrackedNode] = {}

    def __iter__(self) -> Iterator[TrackedNode]:
        """All nodes that anything is known about."""
        return chain(self.present.values(), self._absent.values())

    def add(self, name: str) -> TrackedNode:
        """The node of that name, which is in the cluster from now on."""
        node = self.present.get(name)
        if node is None:
            node = self.present[name] = self.holder(name)
            self._absent.pop(name)
        return node

    def find(self, name: str) -> TrackedNode | None:
        """The node of that name, also if only pods name it."""
        return self.present.get(name) or self._absent.get(name)

    def holder(self, name: str) -> TrackedNode:
        """The node of that name, for pods that name it."""
        node = self.find(name)
        if node is None:
            node = self._absent[name] = TrackedNode(name)
        return node

    def remove(self, name: str) -> None:
        """Forgets a node, but not the pods that are bound to it: a node of the same name may follow."""
        removed = self.present.pop(name, None)
        if removed is not None and (removed.api_pods or removed.reservations):
            node = self._absent[name] = TrackedNode(name)
            node.api_pods, node.reservations = removed.api_pods, removed.reservations

    def drop_without_pods(self, name: str) -> None:
        """Forgets a node that the cluster does not have, once no pod names it."""
        node = self._absent.get(name)
        if node is not None and not node.api_pods and not node.reservations:
            del self._absent[name]


class RememberedAnswers(Generic[T]):
    """Verdicts about equal pods, kept by node until the node changes: a table for each key of a pod."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, dict[str, T]] = OrderedDict()
        self._begun: set[str] = set()
        """The tables that were to be completed."""

    def __contains__(self, key: str) -> bool:
        return key in self._tables

    def begin(self, key: str) -> bool:
        """Whether a table is to be completed for the first time; what changes later is left to the calls."""
        is_first = key not in self._begun
        self._begun.add(key)
        return is_first

    def table(self, key: str) -> dict[str, T]:
        """The verdicts about pods with this key, by node; the longest unused table is dropped for a new one."""
        known = self._tables.get(key)
        if known is not None:
            self._tables.move_to_end(key)
            return known
        while len(self._tables) >= MAX_TABLES:
            self._begun.discard(self._tables.popitem(last=False)[0])
        return self._tables.setdefault(key, {})

    def read(self, key: str, names: Sequence[str]) -> list[T | None]:
        """The known verdicts of these nodes, in their order."""
        return list(map(self.table(key).get, names))

    def forget_node(self, name: str) -> None:
        """Drops the verdicts of a node."""
        for table in self._tables.values():
            table.pop(name, None)


class PlacedPods:
    """Pods that are, or have been, on a node or on their way to one; of the latter, some are forgotten now and then."""

    def __init__(self) -> None:
        self._uids: set[str] = set()
        self._limit = MIN_PLACED

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def add(self, uids: Iterable[str], present: Iterator[str]) -> None:
        """Adds pods; when most of the known ones may be gone, only those that are ``present`` are kept."""
        self._uids.update(uids)
        if len(self._uids) > self._limit:
            self._uids = set(present)
            self._limit = max(2 * len(self._uids), MIN_PLACED)


class ClusterBudget(NamedTuple):
    """A PodDisruptionBudget and its status."""

    namespace: str
    selector: LabelMatcher
    disruptions_allowed: int
    disrupted_pods: frozenset[str]
    """The names of pods whose eviction is in progress: the status has counted them."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "ClusterBudget":
        """The budget that an object describes.

        >>> budget = {"metadata": {"namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
        >>> ClusterBudget.of(budget | {"status": {"disruptionsAllowed": 2}}).disruptions_allowed
        2
        """
        status = document.get("status") or {}
        return cls(
            namespace=str(document["metadata"].get("namespace") or ""),
            selector=LabelMatcher((document.get("spec") or {}).get("selector")),
            disruptions_allowed=int(status.get("disruptionsAllowed") or 0),
            disrupted_pods=frozenset(status.get("disruptedPods") or ()),
        )

    def counts(self, pod: Pod) -> bool:
        """Whether the preemption of the pod is charged to the budget."""
        labels = pod.metadata.labels
        return (
            bool(labels)
            and pod.metadata.namespace == self.namespace
            and not self.selector.is_empty
            and self.selector.matches(labels)
            and pod.metadata.name not in self.disrupted_pods
        )


def violating_uids(pods: Iterable[Pod], budgets: Iterable[ClusterBudget]) -> frozenset[str]:
    """The uids of those pods whose preemption, after that of the pods before them, violates a budget.

    Follows: v1.36, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go,
        filterPodsWithPDBViolation.
    """
    known = tuple(budgets)
    left, violating = [budget.disruptions_allowed for budget in known], set[str]()
    for pod in pods if known else ():
        for place, budget in enumerate(known):
            if budget.counts(pod):
                left[place] -= 1
                if left[place] < 0:
                    violating.add(pod.uid)
    return frozenset(violating)
