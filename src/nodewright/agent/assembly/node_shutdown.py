"""Graceful node shutdown: the drain of all pods by priority, and their grace periods."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from nodewright.agent.decide.termination import COUNTED_STAGES
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.state.observations import DrainRequested, Observation
from nodewright.cluster.tasks.timing import Clock, elapsed_s
from nodewright.engine.core.disruption.node_shutdown import shutdown_groups, shutdown_periods
from nodewright.model.kubernetes.recorded_events import RecordEvent

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
