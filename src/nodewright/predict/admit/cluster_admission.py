"""Which nodes of a cluster admit a pod: now, after which change, and never."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from nodewright.documents.formats.workloads import Workload
from nodewright.documents.output.json_yaml import Inlined, ReportDocument
from nodewright.documents.output.text_layout import wrapped_text
from nodewright.engine.admission.admission_plugins import pod_as_stored, with_uid, without_cluster_fields
from nodewright.engine.node.events import PodAdded, PodRemoved
from nodewright.engine.node.step import Decision, Step, step
from nodewright.engine.node.what_if.changes import PodLeaves
from nodewright.engine.node.what_if.counterfactuals import Counterfactuals, Suggestion
from nodewright.model.kubernetes.node_profile import ReadSource
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import counted, printable_lines
from nodewright.model.reasons.cpu import CPUReason
from nodewright.model.reasons.devices import DeviceReason
from nodewright.model.reasons.memory import MemoryReason
from nodewright.model.reasons.predicates import (
    HostPortsTaken,
    InsufficientResource,
    NoVictimsSuffice,
)
from nodewright.model.reasons.reason import NotJudged, Reason, kubelet_text, sentence
from nodewright.model.reasons.topology import TopologyReason
from nodewright.predict.explain.explanation import suggested_changes
from nodewright.predict.explain.suggestion_text import suggestion_text
from nodewright.predict.node import Node
from nodewright.predict.reported import reported
from nodewright.predict.verdict import scheduler_answer

if TYPE_CHECKING:
    from nodewright.engine.core.claims.claim_explanation import KnownAnswers
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster

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
    """The answer of nodes about a pod, without the names of their pods; equal answers are one group."""

    outcome: Outcome
    nodes: tuple[str, ...] = ()
    """The names of the nodes; empty until all nodes have answered."""
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
    families: tuple[str, ...] = ()
    """What that has in common with answers that differ in names and amounts only."""
    is_fatal: bool = False
    """Whether that is an error with which the scheduler chooses no node at all."""


class ClusterAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all nodes about a pod, the groups of each outcome by size."""

    pod: Pod
    origin: str = ""
    """The object that creates the pod, e.g. `Deployment web`."""
    groups: tuple[NodeAnswer, ...]
    observed: tuple[str, ...] = ()
    """What the cluster reports about the pod, one sentence each."""

    @property
    def takers(self) -> tuple[str, ...]:
        """The nodes that admit the pod now and that the scheduler may choose."""
        if self.failing_nodes:
            return ()
        return tuple(
            name
            for group in self.groups
            if group.outcome is Outcome.NOW and not group.scheduler
            for name in group.nodes
        )

    @property
    def failing_nodes(self) -> tuple[str, ...]:
        """The nodes with an error of the scheduler, because of which it chooses none."""
        return tuple(name for group in self.groups if group.is_fatal for name in group.nodes)


class ClusterAnswers:
    """Collects the answers of nodes about the pods of workloads, node by node, so that no node has to stay."""

    def __init__(self, workloads: Sequence[Workload], claims: "ClaimCluster | None" = None) -> None:
        """``claims``: what the cluster has of Dynamic Resource Allocation; None: nothing is known about it."""
        self._workloads, self._claims = workloads, claims
        self._nodes: list[dict[NodeAnswer, list[str]]] = [{} for _ in workloads]
        self._known: list[KnownAnswers] = [{} for _ in workloads]
        self._searched: dict[tuple[int, tuple[Reason, ...]], NodeAnswer] = {}
        self._search_count = 0

    def add_node(self, node: Node) -> None:
        """Adds the answers of a node about each pod, as if that pod alone arrived."""
        for index, workload in enumerate(self._workloads):
            answer = self._answer(node, index, workload)
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

    def _answer(self, node: Node, index: int, workload: Workload) -> NodeAnswer:
        if workload.refusal is not None:
            return NodeAnswer(outcome=Outcome.NEVER, why=(workload.refusal.sentence(),))
        pod = claimant = with_uid(workload.pod)
        claims = self._claims
        if workload.is_stored:
            node = replace(node, state=step(node.state, PodRemoved(pod.uid)).state)
            pod = without_cluster_fields(pod)
        if claims is not None and workload.pod.spec.node_name:  # It is judged as a new one.
            from nodewright.engine.core.claims.claim_lifecycle import without_pod  # noqa: PLC0415 - start-up time

            claims, claimant = without_pod(claims, claimant), pod
        result = step(node.state, PodAdded(pod_as_stored(pod, node.config.gates)))
        if result.decision is Decision.REFUSED:
            return self._refusal(node, index, pod, result)
        is_open = result.decision is not Decision.ADMITTED or workload.is_verdict_open
        facts = (*result.because, *workload.not_judged) if is_open else ()
        answer = scheduler_answer(node.config, claims, claimant, workload.volumes, self._known[index])
        obstacles = answer.obstacles
        open_texts = tuple(each.why for each in obstacles if each.is_open)
        return NodeAnswer(
            outcome=Outcome.UNDECIDED if is_open or open_texts else Outcome.NOW,
            why=(*map(sentence, facts), *open_texts),
            preempts=result.victims is not None,
            scheduler=tuple(each.why for each in obstacles if not each.is_open),
            families=tuple(each.family or each.why for each in obstacles if not each.is_open),
            # Filters before it keep the scheduler from asking for devices.
            is_fatal=len(obstacles) == 1 and obstacles[0].is_fatal,
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
    return suggestion_text(replace(suggestion, preempts=(), moved_pods=()))


def _groups(answers: Mapping[NodeAnswer, Sequence[str]]) -> tuple[NodeAnswer, ...]:
    order = list(Outcome)
    groups = [replace(answer, nodes=tuple(nodes)) for answer, nodes in answers.items()]
    groups.sort(key=lambda group: (order.index(group.outcome), -len(group.nodes), group.nodes[:1]))
    return tuple(groups)


_MAX_NAMES = 4
_MIN_WIDTH, _MAX_WIDTH = 60, 100


class NodeAnswers(Inlined, frozen=True, kw_only=True):
    """The nodes that give the same answer."""

    outcome: Outcome
    nodes: tuple[str, ...]
    reason: str | UnsetType = UNSET
    """The kubelet's reason for a refusal."""
    why: tuple[str, ...]
    """The facts that decided as sentences."""
    changes: tuple[str, ...]
    """The smallest change of each kind that lets the pod in; each was tried on the node."""
    preempts: bool
    """Whether pods of lower priority are preempted for it."""
    scheduler: tuple[str, ...]
    """What keeps the scheduler from choosing the nodes."""
    is_fatal: bool
    """Whether that is an error with which the scheduler chooses no node at all."""


class PodOfCluster(Inlined, frozen=True, kw_only=True):
    """The answers of all nodes about one pod."""

    name: str
    namespace: str
    origin: str | UnsetType = field(default=UNSET, name="from")
    """The object that creates the pod, e.g. `Deployment web`."""
    admitted: int
    """Number of nodes that admit the pod now and that the scheduler may choose."""
    observed: tuple[str, ...] | UnsetType = UNSET
    """What the cluster reports about the pod; absent: nothing, or it is not of the cluster."""
    groups: tuple[NodeAnswers, ...]


class ClusterAdmissionReport(ReportDocument, frozen=True, kw_only=True):
    """Which nodes of a cluster admit each pod, now, after a change, or never: `nodewright admit` for a cluster."""

    kind: Literal["ClusterAdmissionReport"] = "ClusterAdmissionReport"
    context: str
    time: str
    """When the nodes and pods were read."""
    nodes: int
    sources: tuple[ReadSource, ...]
    """What was read, and what could not be read and is therefore assumed, with the number of nodes in `name`."""
    pods: tuple[PodOfCluster, ...]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def pod_of_cluster(admission: ClusterAdmission) -> PodOfCluster:
    """The answers about one pod."""
    meta = admission.pod.metadata
    return reported(
        PodOfCluster,
        admission,
        name=meta.name,
        namespace=meta.namespace or "default",
        admitted=len(admission.takers),
        observed=admission.observed or UNSET,
        groups=tuple(reported(NodeAnswers, group) for group in admission.groups),
    )


def taking_nodes(admissions: Iterable[ClusterAdmission]) -> str:
    """The nodes that take all of the pods now, one line each, as kubectl names them."""
    takers = [set(admission.takers) for admission in admissions]
    return printable_lines(f"node/{name}" for name in sorted(set.intersection(*takers) if takers else ()))


def cluster_admission_text(
    admissions: Iterable[ClusterAdmission], *, width: int = 80, wide: bool = False
) -> str:
    """The groups of each pod; those that differ in amounts only are shown as one. ``wide``: all groups and nodes."""
    width = max(min(width, _MAX_WIDTH), _MIN_WIDTH)
    return "\n".join(
        printable_lines(_admission_lines(admission, width, wide=wide)) for admission in admissions
    )


def _admission_lines(admission: ClusterAdmission, width: int, *, wide: bool) -> Iterator[str]:
    total = sum(len(group.nodes) for group in admission.groups)
    origin = f" ({admission.origin})" if admission.origin else ""
    takers = len(admission.takers)
    yield f"{admission.pod.full_name}{origin}: {takers:,} of {counted(total, 'node')} take{'s' * (takers == 1)} it now"
    if failing := admission.failing_nodes:
        text = f"the scheduler ends with an error on {_names(failing)}, and then chooses no node for the pod"
        yield from wrapped_text(text, width, " " * 2)
    if admission.observed:
        yield "  What the cluster reports"
        for text in admission.observed:
            yield from wrapped_text(f"- {text}", width, " " * 4)
    families: dict[tuple[object, ...], list[NodeAnswer]] = {}
    for index, group in enumerate(admission.groups):
        families.setdefault((index,) if wide else _family(group), []).append(group)
    for outcome, members in groupby(families.values(), lambda family: family[0].outcome):
        yield f"  {outcome}"
        for family in sorted(members, key=lambda family: -sum(len(group.nodes) for group in family)):
            yield from _family_lines(family, width, wide=wide)


def _family(answer: NodeAnswer) -> tuple[object, ...]:
    """What answers have in common that differ in amounts only."""
    return (answer.outcome, answer.reason, answer.kinds, answer.preempts, answer.families, len(answer.why))


def _family_lines(family: Sequence[NodeAnswer], width: int, *, wide: bool) -> Iterator[str]:
    names = [name for group in family for name in group.nodes]
    answer = max(family, key=lambda group: len(group.nodes))
    shown = names if wide else names[:_MAX_NAMES]
    more = ", ..." if len(shown) < len(names) else ""
    reason = f" ({answer.reason})" if answer.reason else ""
    yield from wrapped_text(
        f"{counted(len(names), 'node')}{reason}: {', '.join(shown)}{more}", width, " " * 4
    )
    if len(family) > 1:
        others = "the other differs" if len(names) - len(answer.nodes) == 1 else "the others differ"
        yield from wrapped_text(f"on {_names(answer.nodes)}, {others} in amounts:", width, " " * 6)
    for text in answer.why:
        yield from wrapped_text(text, width, " " * 6)
    for text in answer.scheduler:
        yield from wrapped_text(f"the scheduler does not choose it: {text}", width, " " * 6)
    if answer.preempts:
        yield from wrapped_text("pods of lower priority are preempted for it", width, " " * 6)
    for text in answer.changes:
        yield from wrapped_text(f"- {text}", width, " " * 6)
    if answer.outcome is Outcome.NOT_NOW:
        text = "whether a change would let it in is not judged; for one node: --node node/NAME"
        yield from wrapped_text(text, width, " " * 6)
    if answer.outcome is Outcome.NEVER and answer.reason:
        yield from wrapped_text("no single change among those tried lets it in", width, " " * 6)


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
