"""Records the events about pods and the node, and keeps the agent's latest published state."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.decide.pod_events import pod_events
from nodewright.agent.state.agent_state import AgentState, PodRecord
from nodewright.agent.state.effects import ReclaimNodeResources
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.kubernetes.runtime_status import RecordEvent


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event about a pod or, without one, about the node; counted when it recurs.

    Units: moments in nanoseconds since 1970.
    """

    sequence_number: int
    uid: str
    namespace: str
    name: str
    """Empty: the node."""
    is_warning: bool
    reason: str
    message: str
    first_timestamp_ns: int
    last_timestamp_ns: int
    count: int = 1


MAX_EVENTS = 1000
EVENT_TTL_NS = 3600 * 10**9
"""As long as the API server keeps events."""


class EventRecorder:
    """Implements `LoopSubscriber`; passes on what it gets to the callbacks."""

    def __init__(self, state: AgentState, clock: Clock) -> None:
        self.state = state
        self.on_reclaim: Callable[[ReclaimNodeResources], None] = lambda _: None
        self.on_event: Callable[[RecordEvent, str], None] = lambda _event, _name: None
        """Called with each event and its pod: `namespace/name`, or empty for the node."""
        self.on_record: Callable[[RecordEvent, PodRecord | None], None] = lambda _event, _record: None
        """Called with each event and the record of its pod; None: it is about the node, or the pod is not known."""
        self.on_result: Callable[[IterationResult], None] = lambda _: None
        self.on_pods_updated: Callable[[list[str]], None] = lambda _uids: None
        """Called with the uids of pods whose specs or metadata have changed: volumes may show them."""
        self._clock = clock
        self._since_ns = clock.now_ns()
        self._before: Mapping[str, PodRecord] = {}
        self._events: dict[tuple[str, str, str], RecordedEvent] = {}
        self._sequence_number = 0
        self._changed = asyncio.Event()
        self.is_closed = False
        """Whether no more events will follow: subscribers should leave."""

    def record(self, event: RecordEvent) -> None:
        """Records an event."""
        record = self.state.pods.get(event.uid) or self._before.get(event.uid)
        metadata = record.pod.metadata if record is not None else None
        now_ns, key = self._clock.now_ns(), (event.uid, event.reason, event.message)
        known = self._events.pop(key, None)
        if known is not None:
            recorded = replace(known, count=known.count + 1, last_timestamp_ns=now_ns)
        else:
            self._sequence_number += 1
            recorded = RecordedEvent(
                sequence_number=self._sequence_number,
                uid=event.uid,
                namespace=(metadata.namespace or "default") if metadata is not None else "default",
                name=metadata.name if metadata is not None else "",
                is_warning=event.is_warning,
                reason=event.reason,
                message=event.message,
                first_timestamp_ns=now_ns,
                last_timestamp_ns=now_ns,
            )
        # Insertion order is the order of the last occurrence: the first entry is always the oldest.
        self._events[key] = recorded
        self._evict_old(now_ns)
        self.on_record(event, record)
        self.on_event(event, f"{recorded.namespace}/{recorded.name}" if recorded.name else "")
        self._wake()

    def record_warning(self, reason: str, message: str) -> None:
        """Records a warning about the node."""
        self.record(RecordEvent(uid="", is_warning=True, reason=reason, message=message))

    def publish(self, result: IterationResult) -> None:
        """Publishes the new state and the events of an iteration."""
        self._before, self.state = self.state.pods, result.state
        self.on_result(result)
        updated = [
            uid
            for uid, record in result.changes.pods.items()
            if record is not None and uid in self._before and self._before[uid].pod != record.pod
        ]
        if updated:
            self.on_pods_updated(updated)
        for event in pod_events(self._before, self.state.pods, result.effects, self._since_ns):
            self.record(event)
        self._wake()

    def reclaim(self, effect: ReclaimNodeResources) -> None:
        """Passes on a reclaim request."""
        self.on_reclaim(effect)

    def events(self) -> tuple[RecordedEvent, ...]:
        """The recent events, oldest first."""
        return tuple(self._events.values())

    def change_signal(self) -> asyncio.Event:
        """An event that is set at the next change."""
        return self._changed

    def close(self) -> None:
        """Ends all subscriptions."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _evict_old(self, now_ns: int) -> None:
        while self._events:
            oldest = next(iter(self._events))
            is_old = self._events[oldest].last_timestamp_ns < now_ns - EVENT_TTL_NS
            if not is_old and len(self._events) <= MAX_EVENTS:
                return
            del self._events[oldest]
