"""Why a pod was refused: what its status proves, what the node says now, and what is otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from nodewright.core.requests import scheduler_requests
from nodewright.model.cpu_reasons import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.model.reasons import (
    InsufficientResource,
    NodeFeaturesMissing,
    OtherPredicate,
    SysctlForbidden,
)
from nodewright.model.refusal import (
    ConditionsThen,
    ContainerEnded,
    Ending,
    LowOnResource,
    MoreThanRequested,
    OverLimit,
    Proof,
    ProvenFact,
    TooFewDevices,
)
from nodewright.model.resource_names import PODS
from nodewright.node.explanation import Explanation
from nodewright.node.step import Decision
from nodewright.render.amounts import readable
from nodewright.render.documents import fact_document
from nodewright.render.messages import message
from nodewright.render.sentences import sentence


class Comparison(StrEnum):
    """How the node's answer now stands to the one then."""

    SAME = "same"
    """The same reason and message, to the letter."""
    OTHER_NUMBERS = "other numbers"
    """The same reason, with another message."""
    OTHER_REASON = "other reason"
    """The pod would be refused again, for another reason."""
    ADMITTED = "admitted now"
    UNDECIDED = "undecided now"
    ENDED_LATER = "ended later"
    """It had been taken then, so there is no refusal to compare with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """What a failed pod's status proves beside what its node says of it now."""

    proof: Proof
    now: Explanation

    @property
    def comparison(self) -> Comparison:
        """How the two stand to one another."""
        if self.proof.ending is not Ending.TURNED_AWAY:
            return Comparison.ENDED_LATER
        taken = self.now.step
        if taken.decision is Decision.UNDECIDED:
            return Comparison.UNDECIDED
        if taken.decision is Decision.ADMITTED:
            return Comparison.ADMITTED
        said = message(taken.because[0])
        if said == (self.proof.reason, self.proof.message):
            return Comparison.SAME
        return Comparison.OTHER_NUMBERS if said.reason == self.proof.reason else Comparison.OTHER_REASON

    @property
    def amounts(self) -> tuple[tuple[InsufficientResource, InsufficientResource], ...]:
        """Each shortage that the message proves, and the same numbers of the node now, whether short or not."""
        if self.proof.ending is not Ending.TURNED_AWAY:
            return ()
        then = (one for one in self.proof.facts if isinstance(one, InsufficientResource))
        return tuple((one, self._now(one.resource)) for one in then)

    def _now(self, resource: str) -> InsufficientResource:
        state = self.now.step.state
        asked = {**scheduler_requests(self.now.pod), PODS: 1}.get(resource, 0)
        used = {**state.totals.requests, PODS: state.totals.pods}.get(resource, 0)
        own = asked if self.now.pod.uid in state.pods else 0
        capacity = state.config.view.allocatable.get(resource, 0)
        return InsufficientResource(resource=resource, requested=asked, used=used - own, capacity=capacity)


def hindsight_lines(seen: Hindsight) -> Iterator[str]:
    """What the status proves, and how the node's answer now differs, a sentence a line."""
    yield from proof_lines(seen.proof)
    yield comparison_text(seen)
    yield from _differences(seen)


def proof_lines(proof: Proof) -> Iterator[str]:
    """What the status proves."""
    said = ": ".join(part for part in (proof.reason, proof.message) if part)
    yield f"its status says: {said or 'nothing'}"
    yield _ENDINGS[proof.ending]
    yield from (f"then: {proven_sentence(one)}" for one in proof.facts)


_ENDINGS = {
    Ending.TURNED_AWAY: "so the kubelet turned it away when it came; no container of it ran",
    Ending.EVICTED: "so the node had taken it, and evicted it later",
    Ending.PREEMPTED: "so the node had taken it, and ended it later to make room for a critical pod",
    Ending.OVERDUE: "so the node had taken it, and ended it when its activeDeadlineSeconds were over",
    Ending.SHUT_DOWN: "so the node had taken it, and ended it when it was shut down itself",
    Ending.BY_ITSELF: "so the node had taken it; its containers ended, and nothing starts them again",
    Ending.UNKNOWN: "which is no reason that a kubelet gives: somebody else has ended it",
}


def proven_sentence(fact: ProvenFact) -> str:
    """What a number in the message proves, without a full stop."""
    match fact:
        case (
            InsufficientResource()
            | NotEnoughCPUs()
            | NotWholeCores()
            | NotEnoughWholeCores()
            | SysctlForbidden()
            | NodeFeaturesMissing()
            | OtherPredicate()
        ):
            return sentence(fact)
        case TooFewDevices(resource=name, requested=asked, available=free):
            return f"{name}: {asked} asked for, {free} free"
        case ConditionsThen(conditions=conditions):
            return f"the node had the condition {', '.join(conditions)}"
        case LowOnResource(resource=name, threshold="", available=""):
            return f"the node was short of {name}"
        case LowOnResource(resource=name, threshold=threshold, available=available):
            return f"the node was short of {name}: {available} left, less than the threshold of {threshold}"
        case MoreThanRequested(name=name, is_pod=is_pod, used=used, requested=asked, resource=resource):
            whose = "pod" if is_pod else "container"
            return f"{whose} {name} used {used} of {resource} and had requested {asked}"
        case OverLimit(what="container", name=name, limit=limit):
            return f"container {name} used more local storage than its limit of {limit}"
        case OverLimit(what="emptyDir", name=name, limit=limit):
            return f"emptyDir volume {name} held more than its limit of {limit}"
        case OverLimit(limit=limit):
            return f"the pod used more local storage than its containers' limits of {limit} together"
        case ContainerEnded(name=name, reason="OOMKilled", exit_code=code):
            return (
                f"container {name} was ended by the kernel, for it used more memory than its limit "
                f"(OOMKilled, exit code {code})"
            )
        case ContainerEnded(name=name, reason=reason, exit_code=code):
            return f"container {name} ended with exit code {code}{f' ({reason})' if reason else ''}"
        case _:
            assert_never(fact)


def comparison_text(seen: Hindsight) -> str:
    """How the node's answer now stands to the one then, in a sentence."""
    match seen.comparison:
        case Comparison.SAME:
            return "the node as it is described says the same, to the letter"
        case Comparison.OTHER_NUMBERS:
            return "the node as it is described refuses it for the same reason, with other numbers"
        case Comparison.OTHER_REASON:
            said = message(seen.now.step.because[0])
            return f"the node as it is described refuses it, too, but for another reason: {said.reason}"
        case Comparison.ADMITTED:
            return "the node as it is described would take it: it is not as it was then"
        case Comparison.UNDECIDED:
            return "whether the node as it is described would take it is open"
        case Comparison.ENDED_LATER:
            return "what follows is what the node as it is described would say if it came now"
        case _:
            assert_never(seen.comparison)


def _differences(seen: Hindsight) -> Iterator[str]:
    """What is otherwise than it was."""
    for then, now in seen.amounts:
        name = then.resource
        for what, was, is_now in (
            ("the pod asked for", then.requested, now.requested),
            ("the other pods held", then.used, now.used),
            ("the node had", then.capacity, now.capacity),
        ):
            if was != is_now:
                yield f"{name}: {what} {readable(name, was)} then, {readable(name, is_now)} now"


def hindsight_document(seen: Hindsight) -> dict[str, Any]:
    """What the status proves beside what the node says now; units as in an explanation."""
    proof = seen.proof
    document: dict[str, Any] = {
        "ending": proof.ending.value,
        "reason": proof.reason,
        "message": proof.message,
        "proves": [proven_sentence(one) for one in proof.facts],
        "facts": [fact_document(one) for one in proof.facts],
        "comparison": seen.comparison.value,
        "text": list(hindsight_lines(seen)),
    }
    document["amounts"] = [
        {"then": fact_document(then), "now": fact_document(now)} for then, now in seen.amounts
    ]
    return document
