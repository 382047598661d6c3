"""Why a limit range forbids something: facts with their amounts."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.values.quantity import Quantity


class Bound(StrEnum):
    """The side on which a limit range bounds amounts."""

    MINIMUM = "minimum"
    MAXIMUM = "maximum"


class Figure(StrEnum):
    """Which of the two amounts of a resource."""

    REQUEST = "request"
    LIMIT = "limit"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What an item of a limit range is held against."""

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
    figure: Figure
    observed: Quantity


class NothingToBound(msgspec.Struct, frozen=True, kw_only=True):
    """A request or limit that must be there, because there is a minimum or maximum, and is not."""

    subject: Subject
    resource: str
    bound: Bound
    enforced: Quantity
    figure: Figure


class RatioTooLarge(msgspec.Struct, frozen=True, kw_only=True):
    """The limit is more than so many times the request."""

    subject: Subject
    resource: str
    enforced: Quantity
    """The largest ratio allowed."""
    request: Quantity
    limit: Quantity
    ratio: float
    """Limit by request, as the API server computes it: in 64-bit floats."""


class NoRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of limit to request is bounded, and one of the two is missing or zero."""

    subject: Subject
    resource: str
    enforced: Quantity
    """The largest ratio allowed."""
    figure: Figure
    """The one that is missing or zero; the request, if both are."""


LimitReason: TypeAlias = OutOfBounds | NothingToBound | RatioTooLarge | NoRatio
"""Why the API server refuses an object on account of a limit range."""
