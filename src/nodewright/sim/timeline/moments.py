"""What a timeline tells: moments, each with its numbers, and what came of it all.

Units: nanoseconds from the start; bytes.
"""

from typing import TypeAlias

import msgspec

from nodewright.model.eviction_reasons import LimitExceeded, NodeRanShort
from nodewright.model.pressure import NodeCondition
from nodewright.model.thresholds import Signal
from nodewright.sim.timeline.setting import Scope


class ThresholdCrossed(msgspec.Struct, frozen=True, kw_only=True):
    """Less is available than the threshold says; nobody knows yet."""

    at_ns: int
    signal: Signal
    threshold_bytes: int
    grace_ns: int = 0


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """A look finds the threshold met."""

    at_ns: int
    signal: Signal
    threshold_bytes: int
    available_bytes: int
    late_ns: int
    """Since it was crossed."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """A look finds the threshold met no more, minimum reclaim included."""

    at_ns: int
    signal: Signal
    available_bytes: int


class ConditionsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The node's conditions are others than before."""

    at_ns: int
    conditions: tuple[NodeCondition, ...]


class EvictionBegun(msgspec.Struct, frozen=True, kw_only=True):
    """A pod is told to end."""

    at_ns: int
    pod: str
    grace_period_s: int
    ends_ns: int
    because: NodeRanShort | LimitExceeded
    seen_bytes: int
    """What it used when it was last measured."""
    used_bytes: int
    """What it uses now."""
    critical_passed: tuple[str, ...] = ()
    """Critical pods that came before it in the ranking."""


class EvictionDone(msgspec.Struct, frozen=True, kw_only=True):
    """The pod has ended and its memory is free."""

    at_ns: int
    pod: str
    freed_bytes: int
    beyond_need_bytes: int
    """What of that was more than the threshold with its minimum reclaim asked for."""
    lost_cpu_s: float
    """The CPU that it requests, times its age: the work that may have to be done again."""
    age_known: bool


class NobodyToEvict(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold is met, and there are only critical pods, or none."""

    at_ns: int
    signal: Signal


class KernelKilled(msgspec.Struct, frozen=True, kw_only=True):
    """Memory ran out somewhere, and the kernel's OOM killer took a container, or a process beside the pods."""

    at_ns: int
    scope: Scope
    of: str
    """Whose limit it was."""
    limit_bytes: int
    pod: str
    """Empty: a process beside the pods."""
    container: str
    oom_score_adj: int
    points: int
    used_bytes: int
    as_a_whole: bool
    lost_cpu_s: float = 0
    restarts_ns: int | None = None

    @property
    def is_race_lost(self) -> bool:
        """Whether eviction could have been first: what a container's or a pod's own limit does, it cannot prevent."""
        return self.scope in (Scope.NODE, Scope.PODS)


class Deadlocked(msgspec.Struct, frozen=True, kw_only=True):
    """Memory ran out and there is nothing that the kernel may end."""

    at_ns: int
    scope: Scope
    of: str


class Restarted(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet starts a container again that the kernel had ended."""

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
    """What happens under a policy, and what came of it."""

    policy: str
    about: str = ""
    """What the policy does."""
    duration_ns: int
    moments: tuple[Moment, ...]
    looks: int
    """How often the policy looked."""
    available: tuple[tuple[int, int], ...]
    """What is available on the node, as corners of a line: nanoseconds and bytes."""

    @property
    def evictions(self) -> tuple[EvictionDone, ...]:
        """The pods that were ended by eviction."""
        return tuple(one for one in self.moments if isinstance(one, EvictionDone))

    @property
    def kernel_kills(self) -> tuple[KernelKilled, ...]:
        """Whom the kernel took."""
        return tuple(one for one in self.moments if isinstance(one, KernelKilled))

    @property
    def is_lost(self) -> bool:
        """Whether memory ran out on the node, or for all pods together, before eviction had made room."""
        return any(isinstance(one, Deadlocked) for one in self.moments) or any(
            one.is_race_lost for one in self.kernel_kills
        )

    @property
    def first_crossing_ns(self) -> int | None:
        """When a threshold was crossed for the first time; None: never."""
        return next((one.at_ns for one in self.moments if isinstance(one, ThresholdCrossed)), None)

    @property
    def lowest_available_bytes(self) -> int:
        """The least that was available at any time."""
        return min(amount for _, amount in self.available)

    @property
    def lost_cpu_s(self) -> float:
        """The work of all pods that were ended, by eviction or by the kernel."""
        return sum(one.lost_cpu_s for one in self.evictions) + sum(
            one.lost_cpu_s for one in self.kernel_kills
        )

    @property
    def beyond_need_bytes(self) -> int:
        """What evictions freed beyond what was asked for."""
        return sum(one.beyond_need_bytes for one in self.evictions)
