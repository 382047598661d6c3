"""Why a pod failed or does not run: what its status proves, what the node decides now, and what differs."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Literal, assert_never

import msgspec

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.engine.core.requests.integer_requests import scheduler_requests
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import PODS, readable_amount
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.status_evidence import (
    FailureCause,
    StatusEvidence,
    StatusFact,
)
from nodewright.model.reasons.texts import kubelet_text
from nodewright.predict.explain.explanation import Explanation


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


class FailedPodAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod's status proves, and what its node decides about it now."""

    proof: StatusEvidence
    current: Explanation

    @property
    def verdict_change(self) -> VerdictChange:
        """How the current decision compares with the recorded one."""
        if self.proof.cause is not FailureCause.REJECTED:
            return VerdictChange.ENDED_LATER
        result = self.current.step
        if result.decision is Decision.UNDECIDED:
            return VerdictChange.UNDECIDED
        if result.decision is Decision.ADMITTED:
            return VerdictChange.ADMITTED
        answer = kubelet_text(result.because[0])
        if answer == (self.proof.reason, self.proof.message):
            return VerdictChange.SAME
        return (
            VerdictChange.OTHER_NUMBERS if answer.reason == self.proof.reason else VerdictChange.OTHER_REASON
        )

    @property
    def shortages_then_and_now(self) -> tuple[tuple[InsufficientResource, InsufficientResource], ...]:
        """Each shortage that the message proves, with the node's current numbers, whether short or not."""
        if self.proof.cause is not FailureCause.REJECTED:
            return ()
        then = (fact for fact in self.proof.facts if isinstance(fact, InsufficientResource))
        return tuple((shortage, self._now(shortage.resource)) for shortage in then)

    def _now(self, resource: str) -> InsufficientResource:
        state = self.current.step.state
        requested = {**scheduler_requests(self.current.pod), PODS: 1}.get(resource, 0)
        used = {**state.usage.requests, PODS: state.usage.pods}.get(resource, 0)
        own = requested if self.current.pod.uid in state.pods else 0
        capacity = state.config.view.allocatable.get(resource, 0)
        return InsufficientResource(
            resource=resource, requested=requested, used=used - own, capacity=capacity
        )


def failed_pod_lines(analysis: FailedPodAnalysis) -> Iterator[str]:
    """What the status proves and how the current decision differs, one sentence a line."""
    yield from proof_lines(analysis.proof)
    yield verdict_change_text(analysis)
    yield from _differences(analysis)


def proof_lines(proof: StatusEvidence) -> Iterator[str]:
    """What the status proves, one sentence a line."""
    status = ": ".join(part for part in (proof.reason, proof.message) if part)
    if proof.has_ended:
        yield f"status: {status or 'no reason and no message'}"
    yield _ENDINGS[proof.cause]
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


def verdict_change_text(analysis: FailedPodAnalysis) -> str:
    """How the node's current decision compares with the recorded one, as a sentence."""
    match analysis.verdict_change:
        case VerdictChange.SAME:
            return "the node as described refuses it with the same message"
        case VerdictChange.OTHER_NUMBERS:
            return "the node as described refuses it for the same reason, with other numbers"
        case VerdictChange.OTHER_REASON:
            answer = kubelet_text(analysis.current.step.because[0])
            return f"the node as described also refuses it, for another reason: {answer.reason}"
        case VerdictChange.ADMITTED:
            return "the node as described would admit it: its state has changed since"
        case VerdictChange.UNDECIDED:
            return "it is undecided whether the node as described would admit it"
        case VerdictChange.ENDED_LATER if analysis.proof.cause in _RUNNING:
            return (
                "below is the decision of the node as described if the pod were created now; it is about requests, not "
                "about the memory that containers use while they run"
            )
        case VerdictChange.ENDED_LATER:
            return "below is the decision of the node as described if the pod were created now"
        case _:
            assert_never(analysis.verdict_change)


def _differences(analysis: FailedPodAnalysis) -> Iterator[str]:
    """The numbers that have changed since."""
    for then, now in analysis.shortages_then_and_now:
        name = then.resource
        for amount, was, is_now in (
            ("the pod requested", then.requested, now.requested),
            ("the other pods held", then.used, now.used),
            ("the node had", then.capacity, now.capacity),
        ):
            if was != is_now:
                yield f"{name}: {amount} {readable_amount(name, was)} then, {readable_amount(name, is_now)} now"


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


def failed_pod_report(analysis: FailedPodAnalysis) -> FailedPodReport:
    """What the status proves and what the node decides now."""
    proof = analysis.proof
    return FailedPodReport(
        ending=proof.cause,
        reason=proof.reason,
        message=proof.message,
        proves=tuple(fact.sentence() for fact in proof.facts),
        facts=proof.facts,
        comparison=analysis.verdict_change,
        text=tuple(failed_pod_lines(analysis)),
        not_proved=proof.open_questions,
        remedies=proof.remedies,
        amounts=tuple(ThenAndNow(then=then, now=now) for then, now in analysis.shortages_then_and_now),
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
    return PodStatusFindings(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace or "default",
        ending=proof.cause,
        reason=proof.reason,
        message=proof.message,
        proves=tuple(fact.sentence() for fact in proof.facts),
        facts=proof.facts,
        not_proved=proof.open_questions,
        remedies=proof.remedies,
    )
