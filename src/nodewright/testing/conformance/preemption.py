"""Family preemption: who makes way for a critical pod?"""

from collections.abc import Mapping
from typing import Any

from nodewright.core.preemption import preempt
from nodewright.model.objects import Pod
from nodewright.model.reasons import InsufficientResource, NoVictimsSuffice, OtherPredicate, PredicateFailure
from nodewright.model.verdict import Refused
from nodewright.render.messages import preemption_error
from nodewright.testing.conformance.failures import plain_failure
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """The kills in order, the reasons handed back, or the error."""
    del machines
    failures = [_failure(one) for one in question["failureReasons"] or ()]
    active = [decode(one, Pod) for one in question["activePods"] or ()]
    found = preempt(decode(question["pod"], Pod), active, failures)
    if not isinstance(found, Refused):
        return {"killed": [one.pod.uid for one in found.value.victims], "remainingReasons": []}
    answered: dict[str, Any] = {"killed": [], "remainingReasons": []}
    for reason in found.because:
        if isinstance(reason, NoVictimsSuffice):
            answered["error"] = preemption_error(reason)
        elif isinstance(reason, InsufficientResource | OtherPredicate):
            answered["remainingReasons"].append(
                {name: value for name, value in plain_failure(reason).items() if value}
            )
    return answered


def _failure(found: dict[str, Any]) -> PredicateFailure:
    if "resource" not in found:
        return OtherPredicate(predicate=found["predicate"], description=found["description"])
    return InsufficientResource(
        resource=found["resource"],
        requested=found.get("requested", 0),
        used=found.get("used", 0),
        capacity=found.get("capacity", 0),
    )
