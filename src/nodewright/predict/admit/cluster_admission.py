"""Which nodes of a cluster admit a pod: now, after which change, and never."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.workloads import Workload
from nodewright.engine.admission.admission_plugins import pod_as_stored, with_uid, without_cluster_fields
from nodewright.engine.node.events import PodAdded, PodRemoved
from nodewright.engine.node.step import Decision, Step, step
from nodewright.engine.node.what_if.changes import PodLeaves
from nodewright.engine.node.what_if.counterfactuals import Counterfactuals, Suggestion
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.model.kubernetes.tolerations import tolerates
from nodewright.model.reasons.cpu import CPUReason
from nodewright.model.reasons.devices import DeviceReason
from nodewright.model.reasons.memory import MemoryReason
from nodewright.model.reasons.predicates import (
    HostPortsTaken,
    InsufficientResource,
    NoVictimsSuffice,
    taint_text,
)
from nodewright.model.reasons.reason import NotJudged, Reason
from nodewright.model.reasons.texts import kubelet_text, sentence
from nodewright.model.reasons.topology import TopologyReason
from nodewright.predict.explain.explanation import suggested_changes
from nodewright.predict.explain.suggestion_text import suggestion_text
from nodewright.predict.node import Node

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
MAX_SEARCHES = 1_000
"""Of so many refusals the changes that help are looked for."""
_BUDGET = 300
"""Number of decisions in the search for changes of one node."""


class Outcome(StrEnum):
    """When a node admits a pod."""

    NOW = "now"
    UNDECIDED = "undecided"
    AFTER_CHANGE = "after a change"
    NOT_NOW = "not now"
    """Whether a change helps is not known."""
    NEVER = "never"


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a node about a pod, without the names of the node and its pods; equal answers are one group."""

    outcome: Outcome
    reason: str = ""
    """The kubelet's reason for a refusal."""
    why: tuple[str, ...] = ()
    """The facts that decided."""
    changes: tuple[str, ...] = ()
    """The smallest change of each kind that lets the pod in."""
    kinds: tuple[str, ...] = ()
    """The kinds of these changes."""
    preempts: bool = False
    """Whether pods of lower priority are preempted for it."""
    scheduler: tuple[str, ...] = ()
    """What keeps the scheduler from choosing the node, although its kubelet would admit the pod."""


class AnswerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that give an answer."""

    answer: NodeAnswer
    nodes: tuple[str, ...]


class ClusterAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all nodes about a pod, the groups of each outcome by size."""

    pod: Pod
    origin: str = ""
    """The object that creates the pod, e.g. `Deployment web`."""
    groups: tuple[AnswerGroup, ...]
    observed: tuple[str, ...] = ()
    """What the cluster reports about the pod, one sentence each."""

    @property
    def takers(self) -> tuple[str, ...]:
        """The nodes that admit the pod now and that the scheduler may choose."""
        return tuple(
            name
            for group in self.groups
            if group.answer.outcome is Outcome.NOW and not group.answer.scheduler
            for name in group.nodes
        )


def with_observed(admission: ClusterAdmission, observed: tuple[str, ...]) -> ClusterAdmission:
    """The answers with what the cluster reports about the pod."""
    return replace(admission, observed=observed)


class ClusterAnswers:
    """Collects the answers of nodes about the pods of workloads, node by node, so that no node has to stay."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self._workloads = workloads
        self._nodes: list[dict[NodeAnswer, list[str]]] = [{} for _ in workloads]
        self._searched: dict[tuple[int, tuple[Reason, ...]], NodeAnswer] = {}
        self._search_count = 0

    def add_node(self, node: Node, *, is_unschedulable: bool = False) -> None:
        """Adds the answers of a node about each pod, as if that pod alone arrived."""
        for index, workload in enumerate(self._workloads):
            answer = self._answer(node, index, workload, is_unschedulable=is_unschedulable)
            self._nodes[index].setdefault(answer, []).append(node.name)

    def add_unread_node(self, name: str, error: str) -> None:
        """Adds a node about which nothing is known."""
        answer = NodeAnswer(outcome=Outcome.UNDECIDED, why=(error,))
        for answers in self._nodes:
            answers.setdefault(answer, []).append(name)

    def admissions(self) -> tuple[ClusterAdmission, ...]:
        """The answers so far, for each workload."""
        return tuple(
            ClusterAdmission(
                pod=workload.pod,
                origin="" if workload.kind == "Pod" else f"{workload.kind} {workload.name}",
                groups=_groups(answers),
            )
            for workload, answers in zip(self._workloads, self._nodes, strict=True)
        )

    def _answer(self, node: Node, index: int, workload: Workload, *, is_unschedulable: bool) -> NodeAnswer:
        if workload.refusal is not None:
            return NodeAnswer(outcome=Outcome.NEVER, why=(workload.refusal.sentence(),))
        pod = with_uid(workload.pod)
        if workload.is_stored:
            node = replace(node, state=step(node.state, PodRemoved(pod.uid)).state)
            pod = without_cluster_fields(pod)
        result = step(node.state, PodAdded(pod_as_stored(pod, node.config.gates)))
        if result.decision is Decision.REFUSED:
            return self._refusal(node, index, pod, result)
        is_open = result.decision is not Decision.ADMITTED or workload.is_verdict_open
        facts = (*result.because, *workload.not_judged) if is_open else ()
        return NodeAnswer(
            outcome=Outcome.UNDECIDED if is_open else Outcome.NOW,
            why=tuple(map(sentence, facts)),
            preempts=result.victims is not None,
            scheduler=_scheduler_obstacles(node, pod, is_unschedulable=is_unschedulable),
        )

    def _refusal(self, node: Node, index: int, pod: Pod, result: Step) -> NodeAnswer:
        # Whether a pod that leaves makes enough room depends on the node's pods, not on the reasons alone.
        key = None if any(isinstance(reason, _DEPENDENT) for reason in result.because) else result.because
        if key is not None and (index, key) in self._searched:
            return self._searched[index, key]
        is_searched = self._search_count < MAX_SEARCHES
        self._search_count += is_searched
        answer = _refused_answer(node, pod, result, is_searched=is_searched)
        if key is not None:
            self._searched[index, key] = answer
        return answer


_DEPENDENT = (
    InsufficientResource
    | HostPortsTaken
    | NoVictimsSuffice
    | CPUReason
    | DeviceReason
    | MemoryReason
    | TopologyReason
)


def _refused_answer(node: Node, pod: Pod, result: Step, *, is_searched: bool) -> NodeAnswer:
    search = suggested_changes(node.state, pod, result, budget=_BUDGET) if is_searched else Counterfactuals()
    is_open = not is_searched or any(isinstance(reason, NotJudged) for reason in result.because)
    outcome = Outcome.NOT_NOW if is_open else Outcome.NEVER
    return NodeAnswer(
        outcome=Outcome.AFTER_CHANGE if search.suggestions else outcome,
        reason=kubelet_text(result.because[0]).reason,
        why=tuple(map(sentence, result.because)),
        changes=tuple(map(_change_text, search.suggestions)),
        kinds=tuple(suggestion.kind for suggestion in search.suggestions),
    )


def _change_text(suggestion: Suggestion) -> str:
    """The change, without the names of the node's pods, which differ from node to node."""
    if isinstance(suggestion.change, PodLeaves):
        return "without one of its pods"
    return suggestion_text(replace(suggestion, preempts=()))


def _scheduler_obstacles(node: Node, pod: Pod, *, is_unschedulable: bool) -> tuple[str, ...]:
    """What the scheduler heeds and the kubelet does not: the taints and the cordon of the node.

    Follows: v1.36, pkg/scheduler/framework/plugins/{tainttoleration,nodeunschedulable}, Filter.
    """
    untolerated = [
        taint
        for taint in node.config.view.taints
        if taint.effect == "NoSchedule" and not any(tolerates(each, taint) for each in pod.spec.tolerations)
    ]
    texts = [f"not tolerated: {taint_text(taint)}" for taint in untolerated]
    cordon = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
    if is_unschedulable and not any(tolerates(each, cordon) for each in pod.spec.tolerations):
        texts = [text for text in texts if UNSCHEDULABLE not in text]
        texts.append("the node is cordoned")
    return tuple(texts)


def _groups(answers: Mapping[NodeAnswer, Sequence[str]]) -> tuple[AnswerGroup, ...]:
    order = list(Outcome)
    groups = [AnswerGroup(answer=answer, nodes=tuple(nodes)) for answer, nodes in answers.items()]
    return tuple(
        sorted(
            groups, key=lambda group: (order.index(group.answer.outcome), -len(group.nodes), group.nodes[:1])
        )
    )
