"""Iterations that are not on disk yet: they wait in order, and most of their effects with them."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from nodewright.agent.decide.iteration import IterationResult, StateChanges
from nodewright.agent.state.agent_state import AgentState
from nodewright.agent.state.effects import (
    CancelEffect,
    CleanUpPod,
    Effect,
    PodEffect,
    ReclaimNodeResources,
    RunProbe,
    SyncPod,
    TerminatePod,
    WriteCgroups,
)
from nodewright.cluster.tasks.supervision import error_text
from nodewright.cluster.tasks.timing import ThreadRunner


class StateWriter(Protocol):
    """Persists state changes."""

    def write(self, changes: StateChanges) -> None:
        """Persists all of the changes or none of them; may take long.

        Errors: HostError.
        """


class QueuedIteration(NamedTuple):
    """An iteration, and those of its effects that wait until it is persisted."""

    result: IterationResult
    effects: tuple[Effect, ...]


def bypasses_queue(effect: Effect, state: AgentState) -> bool:
    """Whether an effect starts before the iteration that ordered it is persisted.

    An eviction does not wait for the disk, which may be slow because of the same pressure: after a crash the next
    agent sees the pressure, too. Probes change nothing, reclaimed resources are unused, and every agent rewrites the
    cgroups above those of pods when it starts (without them the usage of all pods cannot be read). All other effects
    wait, because they are right only as long as their reason is known: starts, ends, updates, cleanups and events.
    """
    match effect:
        case TerminatePod(uid=uid) | CancelEffect(uid=uid):
            return uid in state.evicted_until_ns
        case RunProbe() | ReclaimNodeResources() | WriteCgroups():
            return True
        case _:
            return False


_MAX_RECORDS_A_WRITE = 100
"""Records of pods that one write may change: with thousands of changes, their effects begin at a steady rate."""


class WriteQueue:
    """Persists iterations, one or several at a time, and releases them in order.

    One write runs at a time, beside the loop; iterations decided meanwhile go into the next write.
    """

    def __init__(
        self,
        state_writer: StateWriter,
        on_persisted: Callable[[QueuedIteration], None],
        on_written: Callable[[], None],
    ) -> None:
        """``on_written`` is called when `poll` has something to do."""
        self._state_writer, self._on_persisted, self._on_written = state_writer, on_persisted, on_written
        self.run_in_thread: ThreadRunner = asyncio.to_thread
        """Runs the writer without blocking the loop."""
        self._write_task: asyncio.Future[None] | None = None
        self.error = ""
        """Why the last write failed; empty: it succeeded."""
        self.on_error: Callable[[str], None] = lambda _: None
        """Called when writes begin to fail."""
        self._unwritten: StateChanges | None = None
        """Changes that are not on disk yet, of iterations that are being written or were released without it."""
        self._in_writing: list[QueuedIteration] = []
        self._waiting: deque[QueuedIteration] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether no iteration waits."""
        return not (self._waiting or self._in_writing)

    def add(self, queued: QueuedIteration) -> None:
        """Adds an iteration; released at once if neither it nor anything before it must be persisted."""
        if self.is_empty and self._unwritten is None and queued.result.changes.is_empty:
            self._on_persisted(queued)
            return
        self._waiting.append(queued)
        self._start_write()

    def withdraw(self, uid: str) -> PodEffect | None:
        """Removes and returns a pod's waiting effect; None: none waits."""
        for queue in (self._in_writing, self._waiting):
            for index, queued in enumerate(queue):
                for effect in queued.effects:
                    if isinstance(effect, SyncPod | TerminatePod | CleanUpPod) and effect.uid == uid:
                        effects = tuple(other for other in queued.effects if other is not effect)
                        queue[index] = queued._replace(effects=effects)
                        return effect
        return None

    def poll(self) -> None:
        """Releases what was persisted meanwhile, and starts the next write."""
        if self._write_task is None or not self._write_task.done():
            return
        write_task, self._write_task = self._write_task, None
        try:
            write_task.result()
        except Exception as error:  # noqa: BLE001 - what cannot be written must not end the agent
            self._report_error(error_text(error))
        else:
            self._unwritten, self.error = None, ""
        self._release_written()
        self._start_write()

    async def close(self) -> None:
        """Waits until every iteration is released; what could not be persisted is released all the same."""
        while self._write_task is not None:
            await asyncio.wait((self._write_task,))
            self.poll()

    def _start_write(self) -> None:
        if self._write_task is not None or not self._waiting:
            return
        while self._waiting:
            changes = self._waiting[0].result.changes
            merged = changes if self._unwritten is None else self._unwritten.merged_with(changes)
            if self._in_writing and len(merged.pods) > _MAX_RECORDS_A_WRITE:
                break
            self._unwritten = merged
            self._in_writing.append(self._waiting.popleft())
        assert self._unwritten is not None
        if self._unwritten.is_empty:
            self._unwritten = None
            self._release_written()
            self._start_write()
        else:
            self._write_task = asyncio.ensure_future(
                self.run_in_thread(partial(self._state_writer.write, self._unwritten))
            )
            self._write_task.add_done_callback(lambda _: self._on_written())

    def _release_written(self) -> None:
        on_written, self._in_writing = self._in_writing, []
        for queued in on_written:
            self._on_persisted(queued)

    def _report_error(self, error: str) -> None:
        if not self.error:
            self.on_error(error)
        self.error = error
