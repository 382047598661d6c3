"""The report of explanations, with the numbers behind the text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType, field, structs

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import wrapped_text
from nodewright.engine.core.eviction.eviction_state import ConditionEffect, PressureAdmission
from nodewright.engine.core.predicates.scheduler_filters import UnknownResource, unknown_resources
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.managers.manager_trace import NoHintReason
from nodewright.engine.node.node_config import KubeletDefects
from nodewright.engine.node.resource_holders import ResourceEvidence
from nodewright.engine.node.step import Decision
from nodewright.engine.node.what_if.changes import RequestsChanged
from nodewright.engine.node.what_if.counterfactuals import ChangePair, Counterfactuals, Suggestion
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import printable_lines
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import Reason, sentence
from nodewright.model.reasons.status_evidence import StatusEvidence
from nodewright.model.reasons.topology import AffinityObstacle
from nodewright.model.values.idset import NUMASet
from nodewright.predict.explain.alignment import NEVER, leading_sentences
from nodewright.predict.explain.explained_decision import (
    ExplainedDecision,
    ReportedDefect,
    ResourceView,
    RoundView,
    WithoutDefects,
)
from nodewright.predict.explain.failed_pod_report import (
    FailedPodReport,
    failed_pod_lines,
    failed_pod_report,
    proof_lines,
    status_headline,
)
from nodewright.predict.explain.reason_tree import LONG_MERGE_S, ReasonBranch, merge_duration_s, reason_tree
from nodewright.predict.explain.suggestion_text import (
    ReportedSuggestion,
    incomplete_search_text,
    ineffective_text,
    largest_pod_texts,
    largest_text,
    proposals,
    reported_suggestion,
)
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    OpenQuestion,
    ReportedAllocations,
    ReportedDevice,
    ReportedObstacle,
    ReportedUnknownResource,
    message_origin,
    open_questions,
    pod_allocations,
    referenced_pod,
    reported_devices,
    reported_obstacles,
    reported_unknown_resources,
)
from nodewright.predict.reported import reported
from nodewright.predict.verdict import Verdict


class PodName(Report, frozen=True, kw_only=True):
    """A pod by name and namespace."""

    name: str
    namespace: str


class TaintOfCondition(Report, frozen=True, kw_only=True):
    """The taint of a node condition."""

    key: str
    effect: str


class ConditionAnswer(Report, frozen=True, kw_only=True):
    """What a component makes of a pod under a node condition."""

    passes: bool
    because: PressureAdmission


class ReportedCondition(Report, frozen=True, kw_only=True):
    """The effect of a node condition on the pod, as if it were the only one."""

    type: NodeCondition
    taint: TaintOfCondition
    scheduler: ConditionAnswer
    """A scheduler that respects taints."""
    kubelet: ConditionAnswer


class ReportedJudgement(Report, frozen=True, kw_only=True):
    """The judgement of a custom policy."""

    policy: str
    said: str
    is_kubelets: bool


class ResourceHintsReport(Report, frozen=True, kw_only=True):
    """A manager's hints for a resource, and the evidence for them.

    Units: cpu in CPUs, memory in bytes, devices in units.
    """

    provider: str
    resource: str | None
    says: str
    """`hints`, or why there are none."""
    asked: int | None
    """null: the manager gave no hints at all."""
    no_hint_reason: NoHintReason | UnsetType = UNSET
    preferred: tuple[tuple[int, ...], ...] | UnsetType = UNSET
    """The preferred hints, each as NUMA nodes."""
    narrowest: tuple[int, ...] | UnsetType | None = UNSET
    enough_if_empty: int | UnsetType | None = UNSET
    """The number of NUMA nodes that would suffice if nothing were allocated; hints of this size are preferred."""
    sites: ResourceEvidence | tuple[()]
    """What each NUMA node holds."""


class RoundReport(Report, frozen=True, kw_only=True):
    """The managers' hints of one round, and their merge by the topology manager."""

    container: str | None
    """null: the pod as a whole."""
    admits: bool
    numa: tuple[int, ...] | UnsetType | None = UNSET
    """The merged hint, null: any NUMA nodes. Absent, as are the next two: the kubelet crashes before the merge."""
    preferred: bool | UnsetType = UNSET
    proved: bool | UnsetType = UNSET
    combinations: int
    """Number of combinations of hints that the kubelet tries."""
    resources: tuple[ResourceHintsReport, ...]
    obstacles: tuple[AffinityObstacle, ...]
    """Why the hint is not preferred."""


class TopologyManagerReport(Report, frozen=True, kw_only=True):
    """The topology manager's policy and its merges."""

    policy: str
    scope: str
    judged_by: ReportedJudgement | UnsetType = UNSET
    """The custom policy that judged or chose the hint; absent: the kubelet's own policy did."""
    rounds: tuple[RoundReport, ...]


class ContainerChoices(Report, frozen=True, kw_only=True):
    """Remarkable facts of a container's allocation."""

    container: str
    """Empty: the whole pod."""
    because: tuple[Reason, ...]


class MergeStall(Report, frozen=True, kw_only=True):
    """How long the kubelet is busy with the combinations of hints."""

    least_seconds: float
    most_seconds: float
    warned: bool


class VerdictWithoutDefects(Report, frozen=True, kw_only=True):
    """The decision of a kubelet without its known defects."""

    verdict: Decision
    placement: ReportedAllocations | UnsetType = UNSET


class PodSuggestion(Report, frozen=True, kw_only=True):
    """A change that lets the pod in."""

    suggestion: ReportedSuggestion
    reallocated_pods: int
    """Number of the node's pods that are reallocated, because the change resets the managers."""
    preempts: tuple[PodName, ...]
    moved_pods: tuple[str, ...]
    """The pods that get other exclusive allocations, by namespace and name."""
    numa: NUMASet
    """The NUMA nodes of containers whose CPUs, memory and devices are on more than one; empty: there are none."""


class SuggestedPair(Report, frozen=True, kw_only=True):
    """Two changes that together let the pod in."""

    first: PodSuggestion
    second: PodSuggestion


class LargestPod(Report, frozen=True, kw_only=True):
    """The requests of the largest pod of a shape: none alone can be a step larger."""

    text: str
    change: RequestsChanged


class ExplainedPod(Report, frozen=True, kw_only=True):
    """Why a pod is admitted or refused, and what would let it in.

    Units: cpu in thousandths in `because` and `change`, in CPUs in `asked`; everything else in bytes or units.
    """

    name: str
    namespace: str
    uid: str
    qos_class: QOSClass
    verdict: Verdict
    kubelet: Decision
    """The decision of the kubelet, were the pod bound to the node."""
    admitted: bool
    """Whether the verdict is `admitted`."""
    presence: str | UnsetType = UNSET
    """What a pod of a cluster does; the verdict is then about its arrival now. Absent: nothing."""
    origin: str | UnsetType = field(default=UNSET, name="from")
    """The object that creates the pod, e.g. `Deployment web`."""
    failed: FailedPodReport | UnsetType = UNSET
    """What the pod's status proves; absent: the pod has not failed."""
    observed: tuple[str, ...] | UnsetType = UNSET
    """What a cluster reports about the pod besides its status; absent: nothing."""
    reason: str | UnsetType = UNSET
    """The kubelet's reason for a refusal."""
    message: str | UnsetType = UNSET
    why: tuple[str, ...]
    because: tuple[Reason, ...]
    later: tuple[str, ...]
    """What comes later of its admission, at the kubelet's next restart; empty: nothing."""
    not_judged: tuple[OpenQuestion, ...]
    unknown_resources: tuple[ReportedUnknownResource, ...]
    """The extended resources that the node does not have: its kubelet ignores them, the scheduler does not."""
    scheduler: tuple[ReportedObstacle, ...]
    """Why the scheduler never binds the pod to the node; empty: it may."""
    devices: tuple[ReportedDevice, ...]
    """The devices of the pod's resource claims."""
    unaligned: tuple[str, ...]
    """What of these devices is not aligned with the pod's CPUs and memory."""
    conditions: tuple[ReportedCondition, ...]
    topology_manager: TopologyManagerReport
    choices: tuple[ContainerChoices, ...]
    placement: ReportedAllocations | UnsetType = UNSET
    preempted: tuple[PodName, ...]
    combinations: int
    """Number of combinations of hints that the kubelet tries for the pod."""
    stall: MergeStall
    defects: tuple[ReportedDefect, ...]
    without_defects: VerdictWithoutDefects | UnsetType = UNSET
    never: tuple[str, ...]
    """Why the node can never admit the pod, whatever is free; empty: it can, or that is not certain."""
    largest: LargestPod | UnsetType = UNSET
    """The largest pod of this shape that is admitted now; absent: there is none, or it is not known."""
    smallest_refused: LargestPod | UnsetType = UNSET
    """The smallest pod of this shape, if even that is refused now."""
    largest_if_empty: LargestPod | UnsetType = UNSET
    """The largest if the node had no pods, of a pod that it can never admit."""
    short: tuple[InsufficientResource, ...]
    """All amounts that the node lacks for a refused pod, whatever refuses it first."""
    suggestions: tuple[PodSuggestion, ...]
    pairs: tuple[SuggestedPair, ...]
    """Pairs of changes that let the pod in, where no single change does."""
    ineffective: tuple[str, ...]
    """Kinds of change of which none lets the pod in."""
    cut_short: tuple[str, ...]
    """Kinds that were not searched completely, because the budget was exhausted."""
    decisions: int
    """Number of admission decisions made by the search."""


class ExplanationReport(ReportDocument, frozen=True, kw_only=True):
    """Why pods are admitted or refused, and what would let them in: `nodewright explain`."""

    kind: Literal["ExplanationReport"] = "ExplanationReport"
    node: NodeOfReport
    kubelet_defects: KubeletDefects
    pods: tuple[ExplainedPod, ...]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def explained_pod(explanation: ExplainedDecision) -> ExplainedPod:
    """The explanation of a pod as a part of the report."""
    pod, result, kubelet = explanation.pod, explanation.step, explanation.kubelet
    counterfactuals = explanation.counterfactuals
    return reported(
        ExplainedPod,
        explanation,
        **structs.asdict(referenced_pod(pod)),
        qos_class=qos_class(pod),
        kubelet=explanation.decision,
        admitted=explanation.verdict is Verdict.ADMITTED,
        scheduler=reported_obstacles(explanation.scheduler),
        devices=reported_devices(explanation.devices),
        failed=UNSET if explanation.proof is None else failed_pod_report(explanation.proof, explanation),
        presence=explanation.presence or UNSET,
        observed=explanation.observed or UNSET,
        reason=kubelet.reason or UNSET,
        message=kubelet.message if kubelet.reason else UNSET,
        why=tuple(map(sentence, explanation.refusals)),
        because=explanation.refusals,
        not_judged=open_questions(explanation.refusals),
        unknown_resources=reported_unknown_resources(unknown_resources(pod, result.state.config.view)),
        conditions=tuple(map(_condition, explanation.conditions)),
        topology_manager=_topology_manager(explanation),
        choices=tuple(_choices(explanation)),
        placement=UNSET if explanation.placement is None else pod_allocations(explanation.placement),
        preempted=_names(victim.pod for victim in (result.victims.victims if result.victims else ())),
        stall=_stall(explanation),
        without_defects=_without_defects(explanation.without_defects),
        never=tuple(text for text in leading_sentences(explanation) if NEVER in text),
        largest=_largest(pod, explanation.largest),
        smallest_refused=_largest(pod, explanation.smallest_refused),
        largest_if_empty=_largest(pod, explanation.largest_if_empty),
        suggestions=tuple(map(_suggestion, counterfactuals.suggestions)),
        pairs=tuple(map(_pair, explanation.pairs)),
        ineffective=counterfactuals.ineffective,
        cut_short=counterfactuals.cut_short,
        decisions=counterfactuals.decisions,
    )


def _choices(explanation: ExplainedDecision) -> Iterator[ContainerChoices]:
    for container, reasons in explanation.choices:
        if reasons:
            yield ContainerChoices(container=container, because=reasons)


def _stall(explanation: ExplainedDecision) -> MergeStall:
    least, most = merge_duration_s(explanation)
    return MergeStall(least_seconds=round(least, 3), most_seconds=round(most, 3), warned=most >= LONG_MERGE_S)


def _largest(pod: Pod, change: RequestsChanged | None) -> LargestPod | UnsetType:
    return UNSET if change is None else LargestPod(text=largest_text(pod, change), change=change)


def _pair(pair: ChangePair) -> SuggestedPair:
    return SuggestedPair(first=_suggestion(pair.first), second=_suggestion(pair.second))


def _suggestion(suggestion: Suggestion) -> PodSuggestion:
    text = reported_suggestion(suggestion)
    return reported(PodSuggestion, suggestion, suggestion=text, preempts=_names(suggestion.preempts))


def _condition(effect: ConditionEffect) -> ReportedCondition:
    scheduler, kubelet = effect.scheduler, effect.kubelet
    return ReportedCondition(
        type=effect.condition,
        taint=reported(TaintOfCondition, effect.taint),
        scheduler=ConditionAnswer(passes=scheduler.admits, because=scheduler),
        kubelet=ConditionAnswer(passes=kubelet.admits, because=kubelet),
    )


def _topology_manager(explanation: ExplainedDecision) -> TopologyManagerReport:
    by = explanation.rounds[0].judged_by if explanation.rounds else None
    return reported(
        TopologyManagerReport,
        explanation,
        judged_by=UNSET if by is None else reported(ReportedJudgement, by, is_kubelets=False),
        rounds=tuple(map(_round, explanation.rounds)),
    )


def _round(numa_round: RoundView) -> RoundReport:
    hint = numa_round.hint
    return reported(
        RoundReport,
        numa_round,
        container=numa_round.container or None,
        numa=UNSET if hint is None else None if hint.numa is None else tuple(hint.numa),
        preferred=UNSET if hint is None else hint.preferred,
        proved=UNSET if hint is None else numa_round.proved,
        resources=tuple(map(_resource_hints, numa_round.resources)),
    )


def _resource_hints(view: ResourceView) -> ResourceHintsReport:
    hints = view.hints
    has_hints = hints.says == "hints"
    return ResourceHintsReport(
        provider=hints.provider,
        resource=hints.resource or None,
        says=hints.says,
        asked=view.requested,
        no_hint_reason=UNSET if view.no_hint_reason is None else view.no_hint_reason,
        preferred=tuple(tuple(numa) for numa in hints.preferred) if has_hints else UNSET,
        narrowest=(None if hints.narrowest is None else tuple(hints.narrowest)) if has_hints else UNSET,
        enough_if_empty=view.enough_if_empty if has_hints else UNSET,
        sites=view.sites or (),
    )


def _without_defects(view: WithoutDefects | None) -> VerdictWithoutDefects | UnsetType:
    if view is None:
        return UNSET
    return VerdictWithoutDefects(
        verdict=view.decision,
        placement=UNSET if view.placement is None else pod_allocations(view.placement),
    )


def _names(pods: Iterable[Pod]) -> tuple[PodName, ...]:
    return tuple(reported(PodName, referenced_pod(pod)) for pod in pods)


MIN_WIDTH, MAX_WIDTH = 40, 100
INDENT_STEP = "  "


def explanation_text(
    explanations: Sequence[ExplainedDecision], *, width: int = 80, wide: bool = False
) -> str:
    """The explanations one after the other; ``wide`` includes details that did not decide anything."""
    width = max(min(width, MAX_WIDTH), MIN_WIDTH)
    return "\n".join(printable_lines(_lines(explanation, width, wide=wide)) for explanation in explanations)


def _lines(explanation: ExplainedDecision, width: int, *, wide: bool) -> Iterator[str]:
    kubelet, proof = explanation.kubelet, explanation.proof
    reason = f" ({explanation.reason})" if explanation.reason else ""
    origin = f" ({explanation.origin})" if explanation.origin else ""
    yield f"{explanation.pod.full_name}{origin}: {explanation.headline}{reason}"
    if proof is not None:
        title = "Why it failed" if proof.has_ended else "What its status proves"
        yield from _list(title, failed_pod_lines(proof, explanation), width)
        yield from _advice(proof, width)
    if explanation.observed:
        is_claim = explanation.origin.startswith("ResourceClaim ")
        title = "What the claim has" if is_claim else "What the cluster reports"
        yield from _list(title, explanation.observed, width)
    if (proof is not None or explanation.observed) and kubelet.message:
        yield ""
    if kubelet.message:
        text = f"{message_origin(explanation.step.because[0])}: {kubelet.message}"
        yield from wrapped_text(text, width, INDENT_STEP)
    if explanation.later:
        yield from _list("What comes later", explanation.later, width)
    for unknown in _unmentioned(explanation):
        yield from wrapped_text(unknown.sentence(), width, INDENT_STEP)
    for branch in reason_tree(explanation, details=wide):
        yield ""
        yield from _branch(branch, width, INDENT_STEP, wide=wide)
    if explanation.scheduler and explanation.decision is not Decision.REFUSED:
        yield ""
        remedies = (text for each in explanation.scheduler for text in (each.remedy, *each.other_remedies))
        is_open = explanation.verdict is Verdict.UNDECIDED
        title = "What would decide it:" if is_open else "What would let the scheduler bind it to this node:"
        yield from _list(title, remedies, width)
    yield from _suggestion_lines(explanation, width, wide=wide)


def _unmentioned(explanation: ExplainedDecision) -> tuple[UnknownResource, ...]:
    """The resources that the node does not offer, unless the scheduler's obstacles name them."""
    view = explanation.step.state.config.view
    return () if explanation.scheduler else unknown_resources(explanation.pod, view)


def status_text(pods: Sequence[tuple[Pod, StatusEvidence]], *, width: int = 80) -> str:
    """What the statuses of pods prove, one pod after the other."""
    width = max(min(width, MAX_WIDTH), MIN_WIDTH)
    return "\n".join(printable_lines(_status_lines(pod, proof, width)) for pod, proof in pods)


def _status_lines(pod: Pod, proof: StatusEvidence, width: int) -> Iterator[str]:
    yield f"{pod.full_name}: {status_headline(proof)}"
    yield from _list("What its status proves", proof_lines(proof), width)
    yield from _advice(proof, width)


def _advice(proof: StatusEvidence, width: int) -> Iterator[str]:
    """What the status leaves open, and what helps."""
    if proof.open_questions:
        yield from _list("What it cannot prove", proof.open_questions, width)
    if proof.remedies:
        yield from _list("What helps", proof.remedies, width)


def _list(title: str, texts: Iterable[str], width: int) -> Iterator[str]:
    yield from wrapped_text(title, width, INDENT_STEP)
    for text in texts:
        yield from wrapped_text(f"- {text}", width, 2 * INDENT_STEP)


def _branch(branch: ReasonBranch, width: int, indent: str, *, wide: bool) -> Iterator[str]:
    if branch.is_detail and not wide:
        return
    yield from wrapped_text(branch.text, width, indent)
    for child in branch.children:
        yield from _branch(child, width, indent + INDENT_STEP, wide=wide)


def _suggestion_lines(explanation: ExplainedDecision, width: int, *, wide: bool) -> Iterator[str]:
    counterfactuals = explanation.counterfactuals
    is_searched = counterfactuals != Counterfactuals() and not explanation.is_refused_by_api_server
    if explanation.step.decision is not Decision.REFUSED or not is_searched:
        return
    yield ""
    for text in largest_pod_texts(explanation):
        yield from wrapped_text(text, width, INDENT_STEP)
    heading, texts = proposals(explanation)
    yield from wrapped_text(heading, width, INDENT_STEP)
    for text in texts:
        yield from wrapped_text(f"- {text}", width, 2 * INDENT_STEP)
    ineffective = ineffective_text(counterfactuals) if wide else ""
    for text in filter(None, (ineffective, incomplete_search_text(counterfactuals))):
        yield from wrapped_text(text, width, INDENT_STEP)
