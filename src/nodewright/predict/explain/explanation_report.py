"""The report of explanations, with the numbers behind the text."""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import UNSET, UnsetType, field

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.engine.core.eviction.pressure_admission import ConditionEffect, PressureAdmission
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.managers.manager_trace import NoHintReason
from nodewright.engine.node.node_config import KubeletDefects
from nodewright.engine.node.resource_holders import ResourceEvidence
from nodewright.engine.node.step import Decision
from nodewright.engine.node.unknowns import unknown_resources
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import CPUHolder
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.texts import sentence
from nodewright.model.reasons.topology import AffinityObstacle
from nodewright.model.values.idset import CPUSet
from nodewright.predict.explain.explanation import (
    Defect,
    Explanation,
    ResourceView,
    RoundView,
    WithoutDefects,
)
from nodewright.predict.explain.explanation_report import PodExplanation
from nodewright.predict.explain.failed_pod_report import FailedPodReport, failed_pod_report
from nodewright.predict.explain.reason_tree import LONG_MERGE_S, merge_duration_s
from nodewright.predict.explain.suggestion_text import ReportedSuggestion, reported_suggestion
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    OpenQuestion,
    ReportedAllocations,
    ReportedUnknownResource,
    open_questions,
    pod_allocations,
    reported_unknown_resources,
)


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


class ReportedDefect(Report, frozen=True, kw_only=True):
    """A known defect of the kubelet that affects the decision."""

    text: str
    type: Literal["Defect"] = "Defect"
    reason: Reason
    holders: tuple[CPUHolder, ...]
    """The holders of CPUs that are assigned a second time."""
    reserved: CPUSet
    """Reserved CPUs that are assigned."""


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


class ExplainedPod(Report, frozen=True, kw_only=True):
    """Why a pod is admitted or refused, and what would let it in.

    Units: cpu in thousandths in `because` and `change`, in CPUs in `asked`; everything else in bytes or units.
    """

    name: str
    namespace: str
    uid: str
    qos_class: QOSClass
    verdict: Decision
    admitted: bool
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
    not_judged: tuple[OpenQuestion, ...]
    unknown_resources: tuple[ReportedUnknownResource, ...]
    """The extended resources that the node does not have: its kubelet ignores them, the scheduler does not."""
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
    suggestions: tuple[PodSuggestion, ...]
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


def explained_pod(entry: PodExplanation) -> ExplainedPod:
    """The explanation of a pod as a part of the report."""
    explanation, kubelet = entry.explanation, entry.kubelet
    pod, result, counterfactuals = explanation.pod, explanation.step, explanation.counterfactuals
    assert result.decision is not None
    (name,) = _names([pod])
    return ExplainedPod(
        name=name.name,
        namespace=name.namespace,
        uid=pod.uid,
        qos_class=qos_class(pod),
        verdict=result.decision,
        admitted=result.decision is Decision.ADMITTED,
        origin=entry.origin or UNSET,
        failed=UNSET if entry.failed_pod is None else failed_pod_report(entry.failed_pod),
        observed=entry.observed or UNSET,
        reason=kubelet.reason or UNSET,
        message=kubelet.message if kubelet.reason else UNSET,
        why=tuple(map(sentence, explanation.refusals)),
        because=explanation.refusals,
        not_judged=open_questions(explanation.refusals),
        unknown_resources=reported_unknown_resources(unknown_resources(result.state.config, pod)),
        conditions=tuple(map(_condition, explanation.conditions)),
        topology_manager=_topology_manager(explanation),
        choices=tuple(
            ContainerChoices(container=container, because=reasons)
            for container, reasons in explanation.choices
            if reasons
        ),
        placement=UNSET if explanation.placement is None else pod_allocations(explanation.placement),
        preempted=_names(victim.pod for victim in (result.victims.victims if result.victims else ())),
        combinations=explanation.combinations,
        stall=_stall(explanation),
        defects=tuple(map(_defect, explanation.defects)),
        without_defects=_without_defects(explanation.without_defects),
        suggestions=tuple(map(_suggestion, counterfactuals.suggestions)),
        ineffective=counterfactuals.ineffective,
        cut_short=counterfactuals.cut_short,
        decisions=counterfactuals.decisions,
    )


def _stall(explanation: Explanation) -> MergeStall:
    least, most = merge_duration_s(explanation)
    return MergeStall(least_seconds=round(least, 3), most_seconds=round(most, 3), warned=most >= LONG_MERGE_S)


def _suggestion(suggestion: Suggestion) -> PodSuggestion:
    return PodSuggestion(
        suggestion=reported_suggestion(suggestion),
        reallocated_pods=suggestion.reallocated_pods,
        preempts=_names(suggestion.preempts),
    )


def _condition(effect: ConditionEffect) -> ReportedCondition:
    scheduler, kubelet = effect.scheduler, effect.kubelet
    return ReportedCondition(
        type=effect.condition,
        taint=TaintOfCondition(key=effect.taint.key, effect=effect.taint.effect),
        scheduler=ConditionAnswer(passes=scheduler.admits, because=scheduler),
        kubelet=ConditionAnswer(passes=kubelet.admits, because=kubelet),
    )


def _topology_manager(explanation: Explanation) -> TopologyManagerReport:
    by = explanation.rounds[0].judged_by if explanation.rounds else None
    return TopologyManagerReport(
        policy=explanation.policy,
        scope=explanation.scope,
        judged_by=UNSET
        if by is None
        else ReportedJudgement(policy=by.policy, said=by.said, is_kubelets=False),
        rounds=tuple(map(_round, explanation.rounds)),
    )


def _round(numa_round: RoundView) -> RoundReport:
    hint = numa_round.hint
    return RoundReport(
        container=numa_round.container or None,
        admits=numa_round.admits,
        numa=UNSET if hint is None else None if hint.numa is None else tuple(hint.numa),
        preferred=UNSET if hint is None else hint.preferred,
        proved=UNSET if hint is None else numa_round.proved,
        combinations=numa_round.combinations,
        resources=tuple(map(_resource_hints, numa_round.resources)),
        obstacles=numa_round.obstacles,
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


def _defect(defect: Defect) -> ReportedDefect:
    return ReportedDefect(
        text=sentence(defect.reason), reason=defect.reason, holders=defect.holders, reserved=defect.reserved
    )


def _without_defects(view: WithoutDefects | None) -> VerdictWithoutDefects | UnsetType:
    if view is None:
        return UNSET
    return VerdictWithoutDefects(
        verdict=view.decision,
        placement=UNSET if view.placement is None else pod_allocations(view.placement),
    )


def _names(pods: Iterable[Pod]) -> tuple[PodName, ...]:
    return tuple(
        PodName(name=pod.metadata.name, namespace=pod.metadata.namespace or "default") for pod in pods
    )
