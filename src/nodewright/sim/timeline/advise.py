"""The smallest thresholds that win the race, found by running timelines: the advised one wins, one step less loses."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.core.eviction import EvictionPolicy, target
from nodewright.core.eviction.policy import MONITORING_INTERVAL_NS
from nodewright.model.thresholds import Signal, Threshold, ThresholdValue
from nodewright.sim.timeline.moments import Timeline
from nodewright.sim.timeline.play import played
from nodewright.sim.timeline.setting import Scope, Setting
from nodewright.values.quantity import Format, Quantity

STEP_BYTES = 1 << 20
PHASES = 4
"""At so many moments of the kubelet's interval its first look is tried, besides the worst."""

T = TypeVar("T")


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold, with the run that came off worst.

    Units: bytes.
    """

    threshold_bytes: int
    worst: Timeline

    @property
    def is_lost(self) -> bool:
        """Whether the kernel was first in any of the runs."""
        return self.worst.is_lost


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to set `evictionHard` to for memory.available, and how that is known.

    Units: bytes.
    """

    policy: str
    step_bytes: int
    threshold_bytes: int | None
    """0: nothing is needed; None: no threshold wins, up to what is available at the start."""
    now_bytes: int = 0
    """What it is now."""
    won: Timeline | None
    """The run with it that came off worst."""
    lost: Timeline | None
    """The run with one step less in which the kernel was first; None: nothing less was possible."""
    tried: tuple[Tried, ...]
    """All that were run, from the smallest."""
    reserved_bytes: int | None = None
    """What kubeReserved and systemReserved should come to, so that pods run into their own limit before the node
    has no memory left, should eviction fail; None: what is kept now does, or nothing would."""


def advise(setting: Setting, policy: EvictionPolicy, *, step_bytes: int = STEP_BYTES) -> Advice:
    """The smallest hard threshold with which no pod, and no process beside them, falls to the kernel.

    What a container's or a pod's own limit does is no race: no threshold prevents it. Each candidate is run with
    several moments of the first look, one of them just before the threshold is crossed.

    Departs: candidates are halved between, so that smaller ones may win by chance that were not tried.
    """
    tried: dict[int, Tried] = {}

    def wins(steps: int) -> bool:
        found = _tried(setting, policy, steps * step_bytes)
        tried[steps] = found
        return not found.is_lost

    most = max(_available_bytes(setting) // step_bytes, 0)
    steps = _least(wins, most)
    less = tried.get(steps - 1) if steps else None
    return Advice(
        policy=policy.name,
        step_bytes=step_bytes,
        threshold_bytes=None if steps is None else steps * step_bytes,
        won=None if steps is None else tried[steps].worst,
        lost=less.worst if less is not None else None,
        tried=tuple(tried[at] for at in sorted(tried)),
        now_bytes=_now_bytes(setting),
        reserved_bytes=_reserved(setting, policy, step_bytes),
    )


def with_hard_threshold(setting: Setting, amount_bytes: int) -> Setting:
    """The setting with this hard threshold on memory, for the node and for all pods; 0: with none."""
    kept = tuple(one for one in setting.rules.thresholds if not one.is_hard)
    value = ThresholdValue(Quantity.of(amount_bytes, Format.BINARY_SI))
    signals = [Signal.MEMORY_AVAILABLE, *([Signal.ALLOCATABLE_MEMORY_AVAILABLE] if setting.for_pods else [])]
    reclaims = {one.signal: one.min_reclaim for one in setting.rules.thresholds if one.is_hard}
    own = [
        Threshold(signal=signal, value=value, min_reclaim=reclaims.get(signal))
        for signal in signals
        if amount_bytes
    ]
    return replace(setting, rules=replace(setting.rules, thresholds=(*own, *kept)))


def _least(wins: Callable[[int], bool], most: int) -> int | None:
    """The least number that wins while one less does not, as far as halving finds it; None: not even the most."""
    if wins(0):
        return 0
    if most == 0 or not wins(most):
        return None
    lost, won = 0, most
    while won - lost > 1:
        middle = (lost + won) // 2
        if wins(middle):
            won = middle
        else:
            lost = middle
    return won


def _tried(setting: Setting, policy: EvictionPolicy, amount_bytes: int) -> Tried:
    with_it = with_hard_threshold(setting, amount_bytes)
    worst: Timeline | None = None
    for first_look_ns in _phases(with_it, policy):
        assumed = replace(with_it.assumed, first_look_ns=first_look_ns)
        run = played(replace(with_it, assumed=assumed), policy, until_lost=True)
        if run.is_lost:
            return Tried(threshold_bytes=amount_bytes, worst=run)
        if worst is None or run.lowest_available_bytes < worst.lowest_available_bytes:
            worst = run
    assert worst is not None
    return Tried(threshold_bytes=amount_bytes, worst=worst)


def _phases(setting: Setting, policy: EvictionPolicy) -> Iterable[int]:
    """When the first look may be: as it was said, just before the threshold is crossed, and evenly in between."""
    yield setting.assumed.first_look_ns
    if policy.waits_for_cleanup:
        crossing_ns = played(setting, policy, until_lost=True).first_crossing_ns
        if crossing_ns:
            yield (crossing_ns - 1) % MONITORING_INTERVAL_NS
        yield from (part * MONITORING_INTERVAL_NS // PHASES for part in range(PHASES))


def _now_bytes(setting: Setting) -> int:
    capacity = Quantity.of(setting.memory_bytes, Format.BINARY_SI)
    return max(
        (
            target(one, capacity).value()
            for one in setting.rules.thresholds
            if one.is_hard and one.signal is Signal.MEMORY_AVAILABLE
        ),
        default=0,
    )


def _available_bytes(setting: Setting) -> int:
    used = setting.system_bytes + setting.pods_other_bytes
    return (
        setting.memory_bytes - used - sum(part.used_bytes for pod in setting.pods for part in pod.containers)
    )


def _reserved(setting: Setting, policy: EvictionPolicy, step_bytes: int) -> int | None:
    """The least reservation with which the node never runs out before its pods do, if nobody is evicted."""
    if setting.pods_limit_bytes is None:
        return None
    calm = with_hard_threshold(setting, 0)
    calm = replace(calm, rules=replace(calm.rules, thresholds=()))
    kept = setting.memory_bytes - setting.pods_limit_bytes
    pods_bytes = sum(part.used_bytes for pod in setting.pods for part in pod.containers)

    def holds(steps: int) -> bool:
        limit = setting.memory_bytes - kept - steps * step_bytes
        run = played(replace(calm, pods_limit_bytes=limit), policy, until_lost=True)
        return not any(one.scope is Scope.NODE for one in run.kernel_kills)

    most = max((setting.pods_limit_bytes - setting.pods_other_bytes - pods_bytes) // step_bytes - 1, 0)
    steps = _least(holds, most)
    return kept + steps * step_bytes if steps else None
