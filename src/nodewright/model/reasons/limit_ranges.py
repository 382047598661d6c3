"""Why a limit range forbids an object: facts with their amounts, and the API server's errors.

Follows: v1.36, plugin/pkg/admission/limitranger/admission.go.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.model.reasons.api_errors import aggregate_error
from nodewright.model.values.quantity import Quantity


class Bound(StrEnum):
    """The side on which a limit range bounds amounts."""

    MINIMUM = "minimum"
    MAXIMUM = "maximum"


class RequestOrLimit(StrEnum):
    """Which of the two amounts of a resource."""

    REQUEST = "request"
    LIMIT = "limit"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an item of a limit range applies to."""

    type: str
    """`Container`, `Pod` or `PersistentVolumeClaim`."""
    container: str = ""
    """The container's name; empty: the pod or claim as a whole."""
    init: bool = False
    """Whether it is an init container."""


class OutOfBounds(msgspec.Struct, frozen=True, kw_only=True):
    """A request or limit below the minimum or above the maximum."""

    subject: Subject
    resource: str
    bound: Bound
    enforced: Quantity
    figure: RequestOrLimit
    observed: Quantity

    def message(self) -> str:
        return (
            f"{self.bound} {self.resource} usage per {self.subject.type} is {self.enforced}, "
            f"but {self.figure} is {self.observed}"
        )


class NothingToBound(msgspec.Struct, frozen=True, kw_only=True):
    """A request or limit is missing that a minimum or maximum requires."""

    subject: Subject
    resource: str
    bound: Bound
    enforced: Quantity
    figure: RequestOrLimit

    def message(self) -> str:
        return (
            f"{self.bound} {self.resource} usage per {self.subject.type} is {self.enforced}.  "
            f"No {self.figure} is specified"
        )


class RatioTooLarge(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of limit to request is too large."""

    subject: Subject
    resource: str
    enforced: Quantity
    """The largest ratio allowed."""
    request: Quantity
    limit: Quantity
    ratio: float
    """Limit by request, as the API server computes it: in 64-bit floats."""

    def message(self) -> str:
        return (
            f"{self.resource} max limit to request ratio per {self.subject.type} is {self.enforced}, "
            f"but provided ratio is {self.ratio:.6f}"
        )


class NoRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of limit to request is bounded, and one of the two is missing or zero."""

    subject: Subject
    resource: str
    enforced: Quantity
    """The largest ratio allowed."""
    figure: RequestOrLimit
    """The one that is missing or zero; the request, if both are."""

    def message(self) -> str:
        return (
            f"{self.resource} max limit to request ratio per {self.subject.type} is {self.enforced}, "
            f"but no {self.figure} is specified or {self.figure} is 0"
        )


LimitReason: TypeAlias = OutOfBounds | NothingToBound | RatioTooLarge | NoRatio
"""Why the API server rejects an object because of a limit range; `message()` is its error."""


def limit_range_error(because: Iterable[LimitReason]) -> str:
    """The API server's error for all that one limit range forbids of an object; each text once.

    Follows: v1.36, apimachinery/pkg/util/errors/errors.go, aggregate.Error.
    """
    return aggregate_error(reason.message() for reason in because)
