"""The agent's loop: it queues observations, decides on one after the other, persists the result and starts effects."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol

from nodewright.agent.decide.decide import decide
from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.pods.cgroup_reconcile import end_loans, end_orphaned_cgroups
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.state.agent_state import AgentConstants, AgentState, ClockReading, next_due_ns
from nodewright.agent.state.effects import (
    CancelEffect,
    Effect,
    PodEffect,
    ReclaimNodeResources,
    SyncPod,
    TerminatePod,
    WriteCgroups,
)
from nodewright.agent.state.observations import (
    EffectFailure,
    LentMemoryObserved,
    NodeUsageObserved,
    Observation,
    PodEffectCompleted,
    PodStatusObserved,
    RuntimeRelisted,
    Ticked,
)
from nodewright.agent.store.write_queue import QueuedIteration, StateWriter, WriteQueue, bypasses_queue
from nodewright.cluster.tasks.supervision import STATE_NOT_SAVED, error_text
from nodewright.cluster.tasks.timing import Clock, elapsed_s, monotonic_ns
from nodewright.model.kubernetes.recorded_events import RecordEvent


class LoopSubscriber(Protocol):
    """What the loop reports to."""

    def record(self, event: RecordEvent) -> None:
        """Publishes an event that no decision produced."""

    def publish(self, result: IterationResult) -> None:
        """Publishes the result of an iteration, its RecordEvent effects included."""

    def reclaim(self, effect: ReclaimNodeResources) -> None:
        """Reclaims node resources without ending pods."""


class IterationTrace(NamedTuple):
    """One iteration, for metrics and traces.

    Units: nanoseconds.
    """

    state_before: AgentState
    observation: Observation
    result: IterationResult
    at_ns: int
    """When, on the monotonic clock."""
    duration_ns: int
    """Time spent in `decide`."""


_YIELDS_BEFORE_NEXT_DECISION = 10
"""How often the loop yields after an urgent effect, enough for the runtime to send the signal; and between the
decisions on a long list of pods, so that servers answer."""


class AgentLoop:
    """Decides on one observation after the other; no decision awaits."""

    def __init__(
        self,
        state: AgentState,
        effect_runner: EffectRunner,
        state_writer: StateWriter,
        subscriber: LoopSubscriber,
        clock: Clock,
        constants: AgentConstants,
    ) -> None:
        self.state, self.effect_runner, self.subscriber = state, effect_runner, subscriber
        self.clock, self.constants = clock, constants
        self._observations: list[tuple[int, int, Observation]] = []
        self._sequence, self._wake = count(), asyncio.Event()
        self.write_queue = WriteQueue(state_writer, self._on_persisted, self._wake.set)
        self.write_queue.on_error = partial(self._warn, STATE_NOT_SAVED)
        self.has_observed_runtime = False
        """Whether the runtime's pods are known, and the cgroups above all pods exist."""
        self._is_closing = False
        self.on_iteration: Callable[[IterationTrace], None] = lambda _: None
        """Called after every iteration."""
        effect_runner.observe, effect_runner.record_event = self.observe, subscriber.record

    @property
    def is_idle(self) -> bool:
        """Whether every observation is decided on, persisted, and its effects started."""
        return not self._observations and not self.state.waiting_pods and self.write_queue.is_empty

    @property
    def queue_length(self) -> int:
        """Number of observations that wait for a decision."""
        return len(self._observations)

    def observe(self, observation: Observation) -> None:
        """Queues an observation."""
        # Usage of the node takes precedence: under memory pressure an eviction does not wait for other pods.
        rank = 0 if isinstance(observation, NodeUsageObserved | LentMemoryObserved) else 1
        heappush(self._observations, (rank, next(self._sequence), observation))
        self._wake.set()

    async def run(self) -> None:
        """Decides until it is cancelled."""
        runtime_watch = asyncio.create_task(self._watch_runtime())
        try:
            # No decision is made before the running pods are known, and no pod starts beside an orphan.
            relisted = await self._relist()
            cgroups = self.effect_runner.cgroups
            events = end_orphaned_cgroups(self.state, relisted.pods, cgroups)
            for event in (*events, *end_loans(self.state, cgroups)):
                self.subscriber.record(event)
            self.iterate(relisted)
            while True:
                is_urgent = self.iterate(await self._next_observation())
                yields = _YIELDS_BEFORE_NEXT_DECISION if is_urgent or self.state.waiting_pods else 1
                for _ in range(yields):
                    await asyncio.sleep(0)
        finally:
            await self._close(runtime_watch)

    def iterate(self, observation: Observation) -> bool:
        """Decides on one observation and queues the result; whether a kill or cancellation was started at once."""
        now = ClockReading(self.clock.now_ns(), monotonic_ns(self.clock))
        state_before, began_s = self.state, self.clock.monotonic_s()
        try:
            result = decide(state_before, observation, now, self.constants)
        except Exception as error:  # noqa: BLE001 - without this observation the state is still consistent
            self._warn("DecisionFailed", f"{type(observation).__name__}: {error_text(error)}")
            return False
        duration_ns = round((self.clock.monotonic_s() - began_s) * 10**9)
        self.state = result.state
        urgent = tuple(effect for effect in result.effects if bypasses_queue(effect, self.state))
        for effect in urgent:
            self._start_urgent(effect)
        self.write_queue.add(
            QueuedIteration(result, tuple(effect for effect in result.effects if effect not in urgent))
        )
        self.has_observed_runtime = True
        self.on_iteration(IterationTrace(state_before, observation, result, now.monotonic_ns, duration_ns))
        return any(isinstance(effect, TerminatePod | CancelEffect) for effect in urgent)

    async def _next_observation(self) -> Observation:
        """The next observation; Ticked if a moment becomes due first."""
        while True:
            self._wake.clear()
            self.write_queue.poll()
            if self._observations:
                return heappop(self._observations)[-1]
            if self.state.waiting_pods:
                return Ticked()
            if await self._wait_until_due():
                return Ticked()

    async def _wait_until_due(self) -> bool:
        """Waits for an observation or a due moment; whether the moment came first."""
        due_ns = next_due_ns(self.state)
        if due_ns is None:
            await self._wake.wait()
            return False
        left_s = due_ns / 10**9 - self.clock.monotonic_s()
        await elapsed_s(self.clock, self._wake.wait(), max(left_s, 0.001))
        return not self._wake.is_set()

    async def _close(self, runtime_watch: "asyncio.Task[None]") -> None:
        """Persists what was decided, and starts no more effects."""
        self._is_closing = True
        try:
            await self.write_queue.close()
        finally:
            runtime_watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await runtime_watch
            await self.effect_runner.close()

    async def _relist(self) -> RuntimeRelisted:
        """All pods of the runtime; repeated until it answers."""
        while True:
            requested_at_ns = monotonic_ns(self.clock)
            try:
                return RuntimeRelisted(await self.effect_runner.runtime.pods(), requested_at_ns)
            except Exception as error:  # noqa: BLE001 - repeated until it succeeds
                self._warn_unavailable(error)
            await self.clock.sleep(1)

    async def _watch_runtime(self) -> None:
        """Observes every pod for which the runtime reports a change."""
        while True:
            try:
                async for uid in self.effect_runner.runtime.changes():
                    await self._observe_pod(uid)
            except Exception as error:  # noqa: BLE001 - as above
                self._warn_unavailable(error)
            await self.clock.sleep(1)
            # Changes during the interruption were not reported.
            self.observe(await self._relist())

    def _warn_unavailable(self, error: Exception) -> None:
        self._warn("RuntimeUnavailable", error_text(error))

    async def _observe_pod(self, uid: str) -> None:
        requested_at_ns = monotonic_ns(self.clock)
        if uid:
            self.observe(PodStatusObserved(uid, await self.effect_runner.runtime.pod(uid), requested_at_ns))
        else:
            self.observe(RuntimeRelisted(await self.effect_runner.runtime.pods(), requested_at_ns))

    # ------------------------------------------------------------ effects

    def _on_persisted(self, queued: QueuedIteration) -> None:
        """Publishes a persisted result and starts its effects."""
        try:
            # Subscribers need the new pods before the events about them.
            self.subscriber.publish(queued.result)
        except Exception as error:  # noqa: BLE001 - effects run whether or not they are published
            self._warn("ResultNotPublished", error_text(error))
        for effect in queued.effects:
            if not self._is_closing:
                self._start(effect)

    def _start_urgent(self, effect: Effect) -> None:
        """Starts an effect that does not wait for persistence; a cancellation may withdraw an effect that waits."""
        withdrawn = self.write_queue.withdraw(effect.uid) if isinstance(effect, CancelEffect) else None
        if withdrawn is None:
            self._start(effect)
        else:
            self._report_not_run(withdrawn, is_cancelled=True)

    def _start(self, effect: Effect) -> None:
        match effect:
            case WriteCgroups():
                for failure in self.effect_runner.write_cgroups(effect):
                    self._warn(failure.reason, failure.message)
            case SyncPod() if self.write_queue.error:
                # A pod that cannot be persisted is not started: after a crash it would be forgotten.
                self._report_not_run(
                    effect, EffectFailure(reason=STATE_NOT_SAVED, message=self.write_queue.error)
                )
            case ReclaimNodeResources():
                self.subscriber.reclaim(effect)
            case RecordEvent():
                # The subscriber has published it with the result.
                pass
            case _:
                self.effect_runner.start(effect)

    def _report_not_run(
        self, effect: PodEffect, *failures: EffectFailure, is_cancelled: bool = False
    ) -> None:
        """Completes an effect that was never started."""
        record = self.state.pods[effect.uid]
        self.observe(
            PodEffectCompleted(
                uid=effect.uid,
                effect=effect,
                runtime_status=record.runtime_status,
                observed_at_ns=record.observed_at_ns,
                failures=failures,
                is_cancelled=is_cancelled,
            )
        )

    def _warn(self, reason: str, message: str) -> None:
        self.subscriber.record(RecordEvent.warning(reason, message))
