"""The smallest eviction threshold that prevents OOM kills, found by simulation: one step less does not prevent them."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_policy import MONITORING_INTERVAL_NS, EvictionPolicy
from nodewright.engine.core.eviction.eviction_thresholds import threshold_amount
from nodewright.model.kubernetes.eviction_thresholds import Signal, Threshold, ThresholdValue
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.predict.timeline.pressure_simulation import simulated_timeline
from nodewright.predict.timeline.timeline_model import LimitScope, Timeline, TimelineSetup

STEP_BYTES = 1 << 20
PHASES = 4
"""Number of offsets of the kubelet's first check within its interval that are tried, besides the worst one."""

T = TypeVar("T")


class TriedThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold and its worst run.

    Units: bytes.
    """

    threshold_bytes: int
    worst_run: Timeline

    @property
    def is_lost(self) -> bool:
        """Whether the kernel was first in one of the runs."""
        return self.worst_run.is_lost


class ThresholdAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The advised `evictionHard` for memory.available, with the runs that support it.

    Units: bytes.
    """

    policy: str
    step_bytes: int
    threshold_bytes: int | None
    """0: no threshold is needed; None: no threshold up to the memory available at the start is sufficient."""
    current_bytes: int = 0
    """The present threshold."""
    winning_run: Timeline | None
    """The worst run with the advised threshold."""
    losing_run: Timeline | None
    """The run with one step less in which the kernel was first; None: no smaller threshold is possible."""
    tried: tuple[TriedThreshold, ...]
    """All thresholds that were tried, in ascending order."""
    reserved_bytes: int | None = None
    """The sum of kubeReserved and systemReserved with which pods reach their common limit before the node runs out
    of memory if eviction fails; None: the present sum is sufficient, or no sum is."""


def threshold_advice(
    setup: TimelineSetup, policy: EvictionPolicy, *, step_bytes: int = STEP_BYTES
) -> ThresholdAdvice:
    """The smallest hard threshold with which the kernel kills no pod and no process outside pods.

    Kills at a container's or a pod's own limit do not count, because no threshold prevents them. Each candidate is
    simulated with several times of the first check, one of them just before the threshold is crossed.

    Departs: candidates are found by bisection; a smaller one that was not tried may be sufficient by chance.
    """
    tried: dict[int, TriedThreshold] = {}

    def wins(steps: int) -> bool:
        candidate = _tried_threshold(setup, policy, steps * step_bytes)
        tried[steps] = candidate
        return not candidate.is_lost

    maximum = max(_available_bytes(setup) // step_bytes, 0)
    steps = _least_winning(wins, maximum)
    one_less = tried.get(steps - 1) if steps else None
    return ThresholdAdvice(
        policy=policy.name,
        step_bytes=step_bytes,
        threshold_bytes=None if steps is None else steps * step_bytes,
        winning_run=None if steps is None else tried[steps].worst_run,
        losing_run=one_less.worst_run if one_less is not None else None,
        tried=tuple(tried[at] for at in sorted(tried)),
        current_bytes=_current_threshold_bytes(setup),
        reserved_bytes=_advised_reserved_bytes(setup, policy, step_bytes),
    )


def with_hard_threshold(setup: TimelineSetup, amount_bytes: int) -> TimelineSetup:
    """The setup with this hard threshold on memory, for the node and for all pods; 0: without one."""
    soft = tuple(threshold for threshold in setup.rules.thresholds if not threshold.is_hard)
    value = ThresholdValue(Quantity.of(amount_bytes, QuantityFormat.BINARY_SI))
    signals = [
        Signal.MEMORY_AVAILABLE,
        *([Signal.ALLOCATABLE_MEMORY_AVAILABLE] if setup.enforces_pods else []),
    ]
    reclaims = {
        threshold.signal: threshold.min_reclaim for threshold in setup.rules.thresholds if threshold.is_hard
    }
    hard = [
        Threshold(signal=signal, value=value, min_reclaim=reclaims.get(signal))
        for signal in signals
        if amount_bytes
    ]
    return replace(setup, rules=replace(setup.rules, thresholds=(*hard, *soft)))


def _least_winning(wins: Callable[[int], bool], maximum: int) -> int | None:
    """The least number that wins while one less does not, as bisection finds it; None: not even the maximum wins."""
    if wins(0):
        return 0
    if maximum == 0 or not wins(maximum):
        return None
    losing, winning = 0, maximum
    while winning - losing > 1:
        middle = (losing + winning) // 2
        if wins(middle):
            winning = middle
        else:
            losing = middle
    return winning


def _tried_threshold(setup: TimelineSetup, policy: EvictionPolicy, amount_bytes: int) -> TriedThreshold:
    tried_setup = with_hard_threshold(setup, amount_bytes)
    assumptions = tried_setup.assumptions
    worst = simulated_timeline(tried_setup, policy, until_lost=True)
    for first_look_ns in _further_first_checks_ns(assumptions.first_look_ns, worst.first_crossing_ns, policy):
        if worst.is_lost:
            break
        shifted = replace(tried_setup, assumptions=replace(assumptions, first_look_ns=first_look_ns))
        run = simulated_timeline(shifted, policy, until_lost=True)
        if run.is_lost or run.lowest_available_bytes < worst.lowest_available_bytes:
            worst = run
    return TriedThreshold(threshold_bytes=amount_bytes, worst_run=worst)


def _further_first_checks_ns(
    assumed_ns: int, crossing_ns: int | None, policy: EvictionPolicy
) -> Iterable[int]:
    """Times of the first check besides the assumed one: just before the threshold is crossed, and evenly spread ones."""
    if not policy.waits_for_cleanup:
        return ()
    before_crossing = ((crossing_ns - 1) % MONITORING_INTERVAL_NS,) if crossing_ns else ()
    spread = (phase * MONITORING_INTERVAL_NS // PHASES for phase in range(PHASES))
    return (at_ns for at_ns in dict.fromkeys((*before_crossing, *spread)) if at_ns != assumed_ns)


def _current_threshold_bytes(setup: TimelineSetup) -> int:
    capacity = Quantity.of(setup.memory_bytes, QuantityFormat.BINARY_SI)
    return max(
        (
            threshold_amount(threshold, capacity).value()
            for threshold in setup.rules.thresholds
            if threshold.is_hard and threshold.signal is Signal.MEMORY_AVAILABLE
        ),
        default=0,
    )


def _available_bytes(setup: TimelineSetup) -> int:
    used = setup.system_bytes + setup.pods_other_bytes
    return (
        setup.memory_bytes
        - used
        - sum(container.used_bytes for pod in setup.pods for container in pod.containers)
    )


def _advised_reserved_bytes(setup: TimelineSetup, policy: EvictionPolicy, step_bytes: int) -> int | None:
    """The least reservation with which the pods' limit is reached before the node's memory, if no pod is evicted."""
    if setup.pods_limit_bytes is None:
        return None
    without_thresholds = with_hard_threshold(setup, 0)
    without_thresholds = replace(without_thresholds, rules=replace(without_thresholds.rules, thresholds=()))
    reserved = setup.memory_bytes - setup.pods_limit_bytes
    pods_bytes = sum(container.used_bytes for pod in setup.pods for container in pod.containers)

    def pods_run_out_first(steps: int) -> bool:
        limit = setup.memory_bytes - reserved - steps * step_bytes
        run = simulated_timeline(replace(without_thresholds, pods_limit_bytes=limit), policy, until_lost=True)
        return not any(kill.scope is LimitScope.NODE for kill in run.kernel_kills)

    maximum = max((setup.pods_limit_bytes - setup.pods_other_bytes - pods_bytes) // step_bytes - 1, 0)
    steps = _least_winning(pods_run_out_first, maximum)
    return reserved + steps * step_bytes if steps else None
