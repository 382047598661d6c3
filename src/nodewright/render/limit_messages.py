"""What the API server says of limit ranges, to the letter."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from nodewright.core.limits import FilledIn
from nodewright.model.limit_reasons import LimitReason, NoRatio, NothingToBound, OutOfBounds, RatioTooLarge
from nodewright.render.forbidden import aggregate


def limit_message(reason: LimitReason) -> str:
    """What the API server says of one thing that a limit range forbids.

    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go.
    """
    name, kind, enforced = reason.resource, reason.subject.type, reason.enforced
    match reason:
        case OutOfBounds(bound=bound, figure=figure, observed=observed):
            return f"{bound} {name} usage per {kind} is {enforced}, but {figure} is {observed}"
        case NothingToBound(bound=bound, figure=figure):
            return f"{bound} {name} usage per {kind} is {enforced}.  No {figure} is specified"
        case NoRatio(figure=figure):
            why = f"no {figure} is specified or {figure} is 0"
            return f"{name} max limit to request ratio per {kind} is {enforced}, but {why}"
        case RatioTooLarge(ratio=ratio):
            why = f"provided ratio is {ratio:.6f}"
            return f"{name} max limit to request ratio per {kind} is {enforced}, but {why}"
        case _:
            assert_never(reason)


def limits_message(because: Iterable[LimitReason]) -> str:
    """What the API server says of all that one limit range forbids of an object; each text once.

    Follows: v1.36, apimachinery/pkg/util/errors/errors.go, aggregate.Error.
    """
    return aggregate(map(limit_message, because))


def annotation(given: Sequence[FilledIn]) -> str:
    """The text of the annotation `kubernetes.io/limit-ranger`, which tells what was filled into a pod.

    Empty: nothing was, and there is no annotation.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, mergePodResourceRequirements.
    """
    parts = []
    for each in given:
        whose = f"{'init container' if each.init else 'container'} {each.container}"
        for what, amounts in (("request", each.requests), ("limit", each.limits)):
            if amounts:
                parts.append(f"{', '.join(sorted(amounts))} {what} for {whose}")
    return f"LimitRanger plugin set: {'; '.join(parts)}" if parts else ""
