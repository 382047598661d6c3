"""The result of a timeline: its moments, each with its numbers, and totals.

Units: nanoseconds from the start; bytes.
"""

from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.reasons.eviction import LimitExceeded, NodeRanShort
from nodewright.predict.timeline.timeline_model import LimitScope


class ThresholdCrossed(msgspec.Struct, frozen=True, kw_only=True):
    """A signal falls below its threshold; the eviction policy has not observed it yet."""

    at_ns: int
    signal: Signal
    threshold_bytes: int
    grace_ns: int = 0


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """A check observes that the threshold is met."""

    at_ns: int
    signal: Signal
    threshold_bytes: int
    available_bytes: int
    late_ns: int
    """Time since the threshold was crossed."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """A check observes that the threshold, minimum reclaim included, is no longer met."""

    at_ns: int
    signal: Signal
    available_bytes: int


class ConditionsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The node's pressure conditions change."""

    at_ns: int
    conditions: tuple[NodeCondition, ...]


class EvictionBegun(msgspec.Struct, frozen=True, kw_only=True):
    """The eviction of a pod starts."""

    at_ns: int
    pod: str
    grace_period_s: int
    ends_ns: int
    because: NodeRanShort | LimitExceeded
    seen_bytes: int
    """Its usage at the last measurement."""
    used_bytes: int
    """Its usage now."""
    critical_passed: tuple[str, ...] = ()
    """Critical pods ranked before it, which are not evicted."""


class EvictionDone(msgspec.Struct, frozen=True, kw_only=True):
    """An evicted pod has terminated and its memory is free."""

    at_ns: int
    pod: str
    freed_bytes: int
    beyond_need_bytes: int
    """The part beyond what the threshold and its minimum reclaim required."""
    lost_cpu_s: float
    """The CPU that it requests, times its age: the work that may have to be done again."""
    age_known: bool


class NobodyToEvict(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold is met, and there is no pod other than critical ones."""

    at_ns: int
    signal: Signal


class KernelKilled(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's OOM killer ends a container, or a process outside pods, at a memory limit."""

    at_ns: int
    scope: LimitScope
    of: str
    """Name of the pod or container at its limit; otherwise all pods or the node."""
    limit_bytes: int
    pod: str
    """Empty: a process outside pods."""
    container: str
    oom_score_adj: int
    points: int
    used_bytes: int
    as_a_whole: bool
    lost_cpu_s: float = 0
    restarts_ns: int | None = None

    @property
    def is_race_lost(self) -> bool:
        """Whether eviction could have prevented it; it cannot for a container's or a pod's own limit."""
        return self.scope in (LimitScope.NODE, LimitScope.PODS)


class Deadlocked(msgspec.Struct, frozen=True, kw_only=True):
    """Memory is exhausted and the kernel may not kill any process."""

    at_ns: int
    scope: LimitScope
    of: str


class Restarted(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet restarts a container that the kernel killed."""

    at_ns: int
    pod: str
    container: str


Moment: TypeAlias = (
    ThresholdCrossed
    | Noticed
    | Recovered
    | ConditionsChanged
    | EvictionBegun
    | EvictionDone
    | NobodyToEvict
    | KernelKilled
    | Deadlocked
    | Restarted
)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What happens under an eviction policy."""

    policy: str
    about: str = ""
    """Description of the policy."""
    duration_ns: int
    moments: tuple[Moment, ...]
    check_count: int
    """Number of checks by the policy."""
    available: tuple[tuple[int, int], ...]
    """Memory available on the node, as corners of a curve: nanoseconds and bytes."""

    @property
    def evictions(self) -> tuple[EvictionDone, ...]:
        """Evictions that ended within the timeline."""
        return tuple(moment for moment in self.moments if isinstance(moment, EvictionDone))

    @property
    def kernel_kills(self) -> tuple[KernelKilled, ...]:
        """Kills by the kernel's OOM killer."""
        return tuple(moment for moment in self.moments if isinstance(moment, KernelKilled))

    @property
    def is_lost(self) -> bool:
        """Whether the node, or all pods together, ran out of memory before eviction freed enough."""
        return any(isinstance(moment, Deadlocked) for moment in self.moments) or any(
            kill.is_race_lost for kill in self.kernel_kills
        )

    @property
    def first_crossing_ns(self) -> int | None:
        """When a threshold is crossed for the first time; None: never."""
        return next((moment.at_ns for moment in self.moments if isinstance(moment, ThresholdCrossed)), None)

    @property
    def lowest_available_bytes(self) -> int:
        """Minimum of the available memory."""
        return min(amount for _, amount in self.available)

    @property
    def lost_cpu_s(self) -> float:
        """CPU time lost by eviction and by the kernel's kills."""
        return sum(eviction.lost_cpu_s for eviction in self.evictions) + sum(
            kill.lost_cpu_s for kill in self.kernel_kills
        )

    @property
    def beyond_need_bytes(self) -> int:
        """Memory freed beyond what the thresholds required."""
        return sum(eviction.beyond_need_bytes for eviction in self.evictions)
