"""What a failed pod's status proves about its end."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from nodewright.model.cpu_reasons import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.model.reasons import (
    InsufficientResource,
    NodeFeaturesMissing,
    OtherPredicate,
    SysctlForbidden,
)


class Ending(StrEnum):
    """When and by whom a pod was ended."""

    TURNED_AWAY = "turned away"
    """The kubelet did not take it; no container ever ran."""
    EVICTED = "evicted"
    """It ran until the node ran short of something, or until it used more than it may."""
    PREEMPTED = "preempted"
    """It ran until it had to make way for a critical pod."""
    OVERDUE = "overdue"
    """It ran for longer than its activeDeadlineSeconds."""
    SHUT_DOWN = "shut down"
    """It ran until the node was shut down."""
    BY_ITSELF = "by itself"
    """Its containers ended, and are not to be started again."""
    UNKNOWN = "unknown"
    """The status says nothing that the kubelet would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFewDevices:
    """A container asked for more devices than were free.

    Units: pieces.
    """

    resource: str
    requested: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsThen:
    """The node had these conditions when the pod came."""

    conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowOnResource:
    """The node was short of a resource.

    Units: amounts as the kubelet wrote them; empty: it did not say.
    """

    resource: str
    threshold: str = ""
    available: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreThanRequested:
    """A container (or the pod: ``is_pod``) used more than it had requested.

    Units: amounts as the kubelet wrote them.
    """

    name: str
    is_pod: bool = False
    used: str
    requested: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverLimit:
    """More local storage was used than a limit allows; ``what`` is `container`, `pod` or `emptyDir`.

    Units: limit as the kubelet wrote it.
    """

    what: str
    name: str
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEnded:
    """A container that ended and did not succeed."""

    name: str
    reason: str
    exit_code: int


ProvenFact: TypeAlias = (
    InsufficientResource
    | NotEnoughCPUs
    | NotWholeCores
    | NotEnoughWholeCores
    | SysctlForbidden
    | NodeFeaturesMissing
    | OtherPredicate
    | TooFewDevices
    | ConditionsThen
    | LowOnResource
    | MoreThanRequested
    | OverLimit
    | ContainerEnded
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a failed pod's status proves."""

    ending: Ending
    reason: str
    message: str
    """Without what the kubelet puts before the message of every pod that it turns away."""
    facts: tuple[ProvenFact, ...] = ()
    """The numbers in the message."""
