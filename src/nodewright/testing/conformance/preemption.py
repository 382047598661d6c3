"""Family preemption: the pods that are killed for a critical pod."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.preemption.greedy import victims_for
from nodewright.engine.core.requests.effective_resources import RequestRules
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import (
    InsufficientResource,
    NoVictimsSuffice,
    OtherPredicate,
    PredicateFailure,
)
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.vectors import plain_failure, question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The killed pods in order and the remaining reasons, or the error."""
    failures = [_failure(reason) for reason in question["failureReasons"] or ()]
    active = [decode(pod, Pod) for pod in question["activePods"] or ()]
    victims = victims_for(
        decode(question["pod"], Pod), active, failures, RequestRules.of(question_gates(question, release))
    )
    if not isinstance(victims, Refused):
        return {"killed": [victim.pod.uid for victim in victims.value.victims], "remainingReasons": []}
    answered: dict[str, Any] = {"killed": [], "remainingReasons": []}
    for reason in victims.because:
        if isinstance(reason, NoVictimsSuffice):
            answered["error"] = reason.preemption_error()
        elif isinstance(reason, InsufficientResource | OtherPredicate):
            answered["remainingReasons"].append(
                {name: value for name, value in plain_failure(reason).items() if value}
            )
    return answered


def _failure(reason: dict[str, Any]) -> PredicateFailure:
    if "resource" not in reason:
        return OtherPredicate(predicate=reason["predicate"], description=reason["description"])
    return InsufficientResource(
        resource=reason["resource"],
        requested=reason.get("requested", 0),
        used=reason.get("used", 0),
        capacity=reason.get("capacity", 0),
    )
