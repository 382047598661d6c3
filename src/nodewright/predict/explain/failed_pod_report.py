"""Why a pod failed or does not run: what its status proves, what the node decides now, and what differs."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Literal, TypeVar

from msgspec.structs import replace

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import PODS, readable_amount
from nodewright.model.reasons.container_evidence import LowOnResource
from nodewright.model.reasons.cpu import NotWholeCores
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.status_evidence import (
    FailureCause,
    StatusEvidence,
    StatusFact,
)
from nodewright.predict.explain.explained_decision import ExplainedDecision
from nodewright.predict.reported import reported

E = TypeVar("E", bound=ExplainedDecision)


class VerdictChange(StrEnum):
    """How the node's current decision compares with the recorded one."""

    SAME = "same"
    """The same reason and the same message."""
    OTHER_NUMBERS = "other numbers"
    """The same reason, with another message."""
    OTHER_REASON = "other reason"
    """The pod would be refused again, for another reason."""
    ADMITTED = "admitted now"
    UNDECIDED = "undecided now"
    ENDED_LATER = "ended later"
    """The pod had been admitted, so there is no refusal to compare with."""


def with_cores_of_status(explanation: E, proof: StatusEvidence | None) -> E:
    """The explanation, refused where the layout of cores is unknown and the status shows that whole cores do not fit it.

    ``proof`` is of a pod of the same node: the machine has the same number of CPUs per core as then.
    """
    policy = explanation.step.state.config.managers.static_cpu_policy
    fact = next((fact for fact in proof.facts if isinstance(fact, NotWholeCores)), None) if proof else None
    is_open = explanation.decision is Decision.UNDECIDED and policy and policy.options.full_pcpus_only
    if fact is None or not is_open:
        return explanation
    refused = replace(explanation.step, because=(fact,), decision=Decision.REFUSED)
    return replace(explanation, step=refused, refusals=(fact,), placement=None)


def failed_pod_lines(proof: StatusEvidence, current: ExplainedDecision) -> Iterator[str]:
    """What the status proves and how the current decision differs, one sentence a line."""
    yield from proof_lines(proof)
    yield from _thresholds_now(proof, current)
    yield verdict_change_text(proof, current)
    for then, now in _shortages_then_and_now(proof, current):
        name = then.resource
        for amount, was, is_now in (
            ("the pod requested", then.requested, now.requested),
            ("the other pods held", then.used, now.used),
            ("the node had", then.capacity, now.capacity),
        ):
            if was != is_now:
                yield f"{name}: {amount} {readable_amount(name, was)} then, {readable_amount(name, is_now)} now"


def _thresholds_now(proof: StatusEvidence, current: ExplainedDecision) -> Iterator[str]:
    """The thresholds in percent of a resource that the node was short of: the message has the amount only."""
    short = {fact.resource for fact in proof.facts if isinstance(fact, LowOnResource) and fact.threshold}
    texts = [
        f"{threshold.signal}<{threshold.value.text}"
        for threshold in current.step.state.config.eviction.thresholds
        if SIGNAL_RESOURCES[threshold.signal] in short and threshold.value.quantity is None
    ]
    if texts:
        yield f"the node as described evicts with {', '.join(dict.fromkeys(texts))}"


def verdict_change(proof: StatusEvidence, current: ExplainedDecision) -> VerdictChange:
    """How the current decision compares with the recorded one."""
    if proof.cause is not FailureCause.REJECTED:
        return VerdictChange.ENDED_LATER
    if current.decision is Decision.UNDECIDED:
        return VerdictChange.UNDECIDED
    if current.decision is Decision.ADMITTED:
        return VerdictChange.ADMITTED
    if current.kubelet == (proof.reason, proof.message):
        return VerdictChange.SAME
    same_reason = current.kubelet.reason == proof.reason
    return VerdictChange.OTHER_NUMBERS if same_reason else VerdictChange.OTHER_REASON


def _shortages_then_and_now(
    proof: StatusEvidence, current: ExplainedDecision
) -> tuple[tuple[InsufficientResource, InsufficientResource], ...]:
    """Each shortage that the message proves, with the node's current numbers, whether short or not."""
    if proof.cause is not FailureCause.REJECTED:
        return ()
    then = (fact for fact in proof.facts if isinstance(fact, InsufficientResource))
    return tuple((shortage, _current_amounts(shortage.resource, current)) for shortage in then)


def _current_amounts(resource: str, current: ExplainedDecision) -> InsufficientResource:
    state = current.step.state
    requested = {**scheduler_requests(current.pod), PODS: 1}.get(resource, 0)
    used = {**state.usage.requests, PODS: state.usage.pods}.get(resource, 0)
    own = requested if current.pod.uid in state.pods else 0
    capacity = state.config.view.allocatable.get(resource, 0)
    return InsufficientResource(resource=resource, requested=requested, used=used - own, capacity=capacity)


def proof_lines(proof: StatusEvidence) -> Iterator[str]:
    """What the status proves, one sentence a line."""
    status = ": ".join(part for part in (proof.reason, proof.message) if part)
    if proof.has_ended:
        yield f"status: {status or 'no reason and no message'}"
    is_bare = proof.cause is FailureCause.UNKNOWN and not status
    yield "it does not show what failed the pod" if is_bare else _ENDINGS[proof.cause]
    when = "then: " if proof.has_ended else ""
    yield from (f"{when}{fact.sentence()}" for fact in proof.facts)


_ENDINGS = {
    FailureCause.REJECTED: "the kubelet rejected it at admission; none of its containers ran",
    FailureCause.EVICTED: "the kubelet admitted it and evicted it later",
    FailureCause.PREEMPTED: "the kubelet admitted it and later preempted it for a critical pod",
    FailureCause.DEADLINE_EXCEEDED: "the kubelet admitted it and terminated it when its activeDeadlineSeconds expired",
    FailureCause.NODE_SHUTDOWN: "the kubelet admitted it and terminated it at node shutdown",
    FailureCause.CONTAINERS_TERMINATED: "the kubelet admitted it; its containers terminated and are not restarted",
    FailureCause.CRASH_LOOP: "the kubelet admitted it and restarts its containers; nothing was refused",
    FailureCause.RESTARTED: "the kubelet admitted it and has restarted containers; nothing was refused",
    FailureCause.UNSCHEDULABLE: "no node is assigned, so no kubelet has decided about it",
    FailureCause.RESIZE_PENDING: "it runs, with the resources that it had before",
    FailureCause.UNKNOWN: "no kubelet sets this reason: another component failed the pod",
}


_RUNNING = (FailureCause.CRASH_LOOP, FailureCause.RESTARTED)


def status_headline(proof: StatusEvidence) -> str:
    """The status as one word of Kubernetes, or a few of ours."""
    return proof.reason or _HEADLINES.get(proof.cause, "failed")


_HEADLINES = {
    FailureCause.CONTAINERS_TERMINATED: "failed, its containers terminated",
    FailureCause.RESTARTED: "containers were restarted",
}


def verdict_change_text(proof: StatusEvidence, current: ExplainedDecision) -> str:
    """How the node's current decision compares with the recorded one, as a sentence."""
    change = verdict_change(proof, current)
    text = _CHANGES[change]
    if change is VerdictChange.OTHER_REASON:
        text += current.kubelet.reason
    if change is VerdictChange.ENDED_LATER and proof.cause in _RUNNING:
        text += "; it is about requests, not about the memory that containers use while they run"
    return text


_CHANGES = {
    VerdictChange.SAME: "the node as described refuses it with the same message",
    VerdictChange.OTHER_NUMBERS: "the node as described refuses it for the same reason, with other numbers",
    VerdictChange.OTHER_REASON: "the node as described also refuses it, for another reason: ",
    VerdictChange.ADMITTED: "the node as described would admit it: its state has changed since",
    VerdictChange.UNDECIDED: "it is undecided whether the node as described would admit it",
    VerdictChange.ENDED_LATER: "below is the decision of the node as described if the pod were created now",
}


class ThenAndNow(Report, frozen=True, kw_only=True):
    """The amounts of a resource that the message proves, and the node's."""

    then: InsufficientResource
    now: InsufficientResource


class FailedPodReport(Report, frozen=True, kw_only=True):
    """What the status of a pod proves, and what the node decides now."""

    ending: FailureCause
    reason: str
    message: str
    """Without the prefix of the messages of rejected pods."""
    proves: tuple[str, ...]
    facts: tuple[StatusFact, ...]
    comparison: VerdictChange
    """How the node's current decision compares with the recorded one."""
    text: tuple[str, ...]
    not_proved: tuple[str, ...]
    """What the status cannot prove."""
    remedies: tuple[str, ...]
    amounts: tuple[ThenAndNow, ...]


def failed_pod_report(proof: StatusEvidence, current: ExplainedDecision) -> FailedPodReport:
    """What the status proves and what the node decides now."""
    return reported(
        FailedPodReport,
        proof,
        ending=proof.cause,
        proves=tuple(fact.sentence() for fact in proof.facts),
        comparison=verdict_change(proof, current),
        text=tuple(failed_pod_lines(proof, current)),
        not_proved=proof.open_questions,
        amounts=tuple(
            ThenAndNow(then=then, now=now) for then, now in _shortages_then_and_now(proof, current)
        ),
    )


class PodStatusFindings(Report, frozen=True, kw_only=True):
    """What the status of a pod proves, without a node."""

    name: str
    namespace: str
    ending: FailureCause
    reason: str
    message: str
    proves: tuple[str, ...]
    facts: tuple[StatusFact, ...]
    not_proved: tuple[str, ...]
    """What the status cannot prove."""
    remedies: tuple[str, ...]


class StatusReport(ReportDocument, frozen=True, kw_only=True):
    """What the statuses of pods prove: `nodewright explain` without a node."""

    kind: Literal["StatusReport"] = "StatusReport"
    pods: tuple[PodStatusFindings, ...]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def status_findings(pod: Pod, proof: StatusEvidence) -> PodStatusFindings:
    """What the status of the pod proves, as a part of the report."""
    return reported(
        PodStatusFindings,
        proof,
        name=pod.metadata.name,
        namespace=pod.metadata.namespace or "default",
        ending=proof.cause,
        proves=tuple(fact.sentence() for fact in proof.facts),
        not_proved=proof.open_questions,
    )
