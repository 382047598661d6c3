"""Graceful node shutdown: the drain of all pods by priority, and their grace periods."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec

from nodewright.agent.decide.termination import COUNTED_STAGES
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.state.observations import DrainRequested, Observation
from nodewright.cluster.tasks.timing import Clock, elapsed_s
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import DEFAULT_GRACE_PERIOD_S, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.releases.feature_gates import FeatureGates

T = TypeVar("T")


async def run_unless_stopped(stop: asyncio.Event, operation: Coroutine[Any, Any, T]) -> T | None:
    """The operation's result; None: it was cancelled because of `stop`."""
    stopped, task = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(operation)
    try:
        await asyncio.wait({stopped, task}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        stopped.cancel()
        task.cancel()
        await asyncio.wait({stopped, task})


CRITICAL_PRIORITY = 2_000_000_000
TERMINATED_REASON = "Terminated"
SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."
SHUTTING_DOWN_MESSAGE = "Pod was rejected as the node is shutting down."
KILL_MARGIN_S = 5.0
"""Time for the end of a pod beyond its grace period."""
_TERMINATED = StatusOverride(
    phase="Failed", reason=TERMINATED_REASON, message=SHUTDOWN_MESSAGE, disruption_target=SHUTDOWN_MESSAGE
)


async def drain(event_recorder: EventRecorder, observe: Callable[[Observation], None], clock: Clock) -> bool:
    """Terminates all pods, group by group, and admits no more; whether all have ended.

    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, killPods.
    """
    parts = event_recorder.state.node.config.parts
    active = [pod.pod for pod in event_recorder.state.pods.values() if pod.stage in COUNTED_STAGES]
    groups = shutdown_groups(shutdown_periods(parts.kubelet, parts.gates), active)
    event_recorder.record(RecordEvent.normal("Shutdown", "Shutdown manager detected shutdown event"))
    observe(DrainRequested(reason=SHUTTING_DOWN_MESSAGE, status_override=_TERMINATED, grace_periods_s={}))
    for group in groups:
        observe(
            DrainRequested(
                reason=SHUTTING_DOWN_MESSAGE,
                status_override=_TERMINATED,
                grace_periods_s=dict(group.pod_grace_periods_s),
            )
        )
        await _wait_until_ended(
            event_recorder,
            frozenset(uid for uid, _ in group.pod_grace_periods_s),
            group.grace_period_s + KILL_MARGIN_S,
            clock,
        )
    return not any(pod.stage in COUNTED_STAGES for pod in event_recorder.state.pods.values())


async def _wait_until_ended(
    event_recorder: EventRecorder, uids: frozenset[str], limit_s: float, clock: Clock
) -> None:
    """Waits until these pods have ended, or the time is up."""

    async def all_ended() -> None:
        while any(
            uid in uids and pod.stage in COUNTED_STAGES for uid, pod in event_recorder.state.pods.items()
        ):
            await event_recorder.change_signal().wait()

    await elapsed_s(clock, all_ended(), limit_s)


class ShutdownGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are terminated together; the next group follows when all have ended or the time is up.

    Units: seconds.
    """

    priority: int
    """The lowest priority of the group; pods below the first group belong to it, too."""
    grace_period_s: int
    """The time for the whole group."""
    pod_grace_periods_s: tuple[tuple[str, int], ...]
    """The grace period of each pod, by uid."""


class ShutdownPeriod(msgspec.Struct, frozen=True):
    """The grace period of pods from a priority up to the next one.

    Units: seconds.
    """

    priority: int
    grace_period_s: int


def shutdown_periods(config: KubeletConfiguration, gates: FeatureGates) -> tuple[ShutdownPeriod, ...]:
    """The configured periods, lowest priority first; empty: the kubelet terminates no pods at shutdown.

    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, newPodManager, migrateConfig.
    """
    if gates["GracefulNodeShutdownBasedOnPodPriority"] and config.shutdown_grace_period_by_pod_priority:
        periods = (
            ShutdownPeriod(entry.priority, entry.shutdown_grace_period_seconds)
            for entry in config.shutdown_grace_period_by_pod_priority
        )
        return tuple(sorted(periods, key=lambda period: period.priority))
    total_ns = config.shutdown_grace_period.nanoseconds
    critical_ns = config.shutdown_grace_period_critical_pods.nanoseconds
    if total_ns == 0 or total_ns < critical_ns or critical_ns < 0:
        return ()
    second = 10**9
    return ShutdownPeriod(0, (total_ns - critical_ns) // second), ShutdownPeriod(
        CRITICAL_PRIORITY, critical_ns // second
    )


def shutdown_groups(periods: tuple[ShutdownPeriod, ...], pods: Iterable[Pod]) -> tuple[ShutdownGroup, ...]:
    """The groups in the order of termination, lowest priority first; groups without pods are left out.

    Without periods every pod has its own grace period, critical pods after all others.
    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, groupByPriority, killPods.
    """
    effective_periods = periods or (ShutdownPeriod(0, -1), ShutdownPeriod(CRITICAL_PRIORITY, -1))
    members: list[list[Pod]] = [[] for _ in effective_periods]
    for pod in pods:
        members[_group_index(effective_periods, pod.spec.priority or 0)].append(pod)
    return tuple(
        _group(period, group) for period, group in zip(effective_periods, members, strict=True) if group
    )


def _group_index(periods: tuple[ShutdownPeriod, ...], priority: int) -> int:
    """The last group with a priority that is not above the pod's; the first one for pods below all groups."""
    index = bisect_left(periods, priority, key=lambda period: period.priority)
    if index == len(periods):
        return index - 1
    return index - 1 if index > 0 and periods[index].priority > priority else index


def _group(period: ShutdownPeriod, pods: Iterable[Pod]) -> ShutdownGroup:
    limit_s, grace_periods = period.grace_period_s, []
    for pod in pods:
        own_s = pod.spec.termination_grace_period_seconds
        if own_s is None:
            own_s = DEFAULT_GRACE_PERIOD_S if limit_s < 0 else limit_s
        grace_periods.append((pod.uid, own_s if limit_s < 0 else min(own_s, limit_s)))
    group_period_s = limit_s if limit_s >= 0 else max(grace for _, grace in grace_periods)
    return ShutdownGroup(
        priority=period.priority, grace_period_s=group_period_s, pod_grace_periods_s=tuple(grace_periods)
    )
