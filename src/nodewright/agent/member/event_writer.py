"""Writes the agent's events to the API server: repeated ones as a count, similar ones as one, not too many of an object."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from nodewright.agent.host.token_bucket import TokenBucket
from nodewright.agent.state.agent_state import PodRecord, PodSource
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.bounded_cache import BoundedCache
from nodewright.model.values.instant import Instant


class EventObject(msgspec.Struct, frozen=True):
    """What an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    field_path: str = ""
    """The container, as in `spec.containers{main}`; empty: all of the object."""


class ObjectEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is recorded."""

    involved_object: EventObject
    is_warning: bool
    reason: str
    message: str


class CorrelatedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to write: a new one, or, with a count above one, one to update.

    Units: seconds since 1970.
    """

    event: ObjectEvent
    name: str
    count: int
    first_s: float
    last_s: float


COMPONENT = "kubelet"
"""The source of events, by which tools and tests find those of a node."""
_MAX_QUEUED = 1000
_MAX_TRIES, _RETRY_S = 12, 10.0


class EventWriter:
    """Writes events one after the other, at most so many a second.

    ``limits`` are events a second, 0 for any number, and the kubelet's eventBurst.

    Follows: v1.36, client-go/tools/record/event.go, recordToSink, recordEvent.
    Departs: events about pods that the API server does not show are not written.
    """

    def __init__(self, api: ClusterAPI, node_name: str, limits: tuple[int, int], clock: Clock) -> None:
        rate, burst = limits
        self._api, self._node_name, self._clock = api, node_name, clock
        self._correlator = EventCorrelator()
        self._bucket = TokenBucket(rate, max(burst, 1)) if rate else None
        self._queue: asyncio.Queue[ObjectEvent] = asyncio.Queue(_MAX_QUEUED)
        self.on_error: Callable[[str], None] = lambda _message: None
        """Called when the API server refuses an event, once for each reason."""
        self._errors: set[str] = set()

    def record(self, event: RecordEvent, record: PodRecord | None) -> None:
        """Queues an event; while too many wait, it is dropped."""
        if event.uid and (record is None or not _is_shown(record)):
            return
        about = (
            EventObject("Node", "", self._node_name, self._node_name)
            if record is None or not event.uid
            else pod_object(record.pod, event.container)
        )
        # The agent's own lists name the container in the message, the API server beside it.
        message = event.message.removesuffix(f": {event.container}") if event.container else event.message
        queued = ObjectEvent(
            involved_object=about, is_warning=event.is_warning, reason=event.reason, message=message
        )
        if not self._queue.full():
            self._queue.put_nowait(queued)

    async def run(self) -> None:
        """Writes until it is cancelled."""
        while True:
            event = await self._queue.get()
            correlated = self._correlator.correlate(event, self._clock.now_ns())
            if correlated is not None:
                await self._write(correlated)

    async def _write(self, event: CorrelatedEvent) -> None:
        """Writes an event; one that the server refuses is dropped, one that does not reach it is tried again."""
        for attempt in range(_MAX_TRIES):
            if self._bucket is not None:
                while (delay_s := self._bucket.delay_s(self._clock.monotonic_s())) > 0:
                    await self._clock.sleep(delay_s)
                self._bucket.take(self._clock.monotonic_s())
            try:
                await self._send(event)
            except ApiError as error:
                if error.status:
                    self._report(error)
                    return
                await self._clock.sleep(_RETRY_S * (random.random() if attempt == 0 else 1.0))
            else:
                return

    async def _send(self, event: CorrelatedEvent) -> None:
        """Updates an event that was written before, or creates it.

        Errors: ApiError.
        """
        namespace = event.event.involved_object.namespace or "default"
        path = api_path("/api/v1", "namespaces", namespace, "events")
        if event.count > 1:
            changed = {
                "count": event.count,
                "lastTimestamp": _time(event.last_s),
                "message": event.event.message,
            }
            try:
                await self._api.patch(api_path(path, event.name), changed)
            except ApiError as error:
                if error.status != 404:
                    raise
            else:
                return
        await self._api.create(path, event_document(event, self._node_name))

    def _report(self, error: ApiError) -> None:
        """Reports why events are refused; a namespace that is being deleted takes none, which is no error."""
        is_expected = error.reason == "AlreadyExists" or "being terminated" in str(error)
        if not is_expected and error.reason not in self._errors:
            self._errors.add(error.reason)
            self.on_error(f"events are not written: {error}")


def pod_object(pod: Pod, container: str) -> EventObject:
    """A pod, or one of its containers.

    Follows: v1.36, kubelet/container/ref.go, GenerateContainerRef, fieldPath.
    """
    spec, field_path = pod.spec, ""
    lists = (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    )
    for field, containers in lists:
        if container and any(other.name == container for other in containers):
            field_path = f"spec.{field}{{{container}}}"
    return EventObject(
        "Pod", pod.metadata.namespace or "default", pod.metadata.name, pod.metadata.uid, field_path
    )


def event_document(event: CorrelatedEvent, node_name: str) -> dict[str, Any]:
    """The Event object."""
    about = event.event.involved_object
    involved = {"apiVersion": "v1", "kind": about.kind, "name": about.name, "uid": about.uid}
    if about.namespace:
        involved["namespace"] = about.namespace
    if about.field_path:
        involved["fieldPath"] = about.field_path
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": about.namespace or "default"},
        "involvedObject": involved,
        "type": "Warning" if event.event.is_warning else "Normal",
        "reason": event.event.reason,
        "message": event.event.message,
        "count": event.count,
        "firstTimestamp": _time(event.first_s),
        "lastTimestamp": _time(event.last_s),
        "source": {"component": COMPONENT, "host": node_name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node_name,
    }


def _is_shown(record: PodRecord) -> bool:
    """Whether the API server shows the pod, itself or as a mirror pod."""
    return record.source is PodSource.CLUSTER or record.source.is_static_pod_source


def _time(moment_s: float) -> str:
    return str(Instant(round(moment_s * 10**9)).whole_second)


# ---------------------------------------------------------------- correlation


MAX_ENTRIES, MAX_ENTRIES_BYTES = 4096, 16 << 20
SIMILAR_EVENTS, SIMILAR_PERIOD_S = 10, 600.0
SPAM_BURST, SPAM_PERIOD_S = 25, 300.0
_COMBINED = "(combined from similar events): "


class _SimilarEvents(msgspec.Struct):
    messages: dict[str, None] = {}
    last_s: float = float("-inf")


class _EventCount(msgspec.Struct, frozen=True):
    name: str
    count: int
    first_s: float


class EventCorrelator:
    """What becomes of each event, from those before it.

    Departs: of the messages of similar events the oldest is forgotten, where client-go forgets a random one.

    Follows: v1.36, client-go/tools/record/events_cache.go.
    """

    def __init__(self) -> None:
        self._similar = BoundedCache[ObjectEvent, _SimilarEvents](MAX_ENTRIES_BYTES, MAX_ENTRIES)
        self._counts = BoundedCache[ObjectEvent, _EventCount](MAX_ENTRIES_BYTES, MAX_ENTRIES)
        self._buckets = BoundedCache[tuple[EventObject, bool], TokenBucket](MAX_ENTRIES_BYTES, MAX_ENTRIES)

    def correlate(self, event: ObjectEvent, now_ns: int) -> CorrelatedEvent | None:
        """The event to write; None: there were too many about the object.

        Units: nanoseconds since 1970.
        """
        now_s = now_ns / 10**9
        event, key = self._aggregated(event, now_s)
        known = self._counts.get(key)
        if known is None:
            name = f"{event.involved_object.name}.{now_ns:x}"
            known = _EventCount(name=name, count=0, first_s=now_s)
        known = msgspec.structs.replace(known, count=known.count + 1)
        self._counts.put(key, known, len(key.message))
        if not self._bucket(event).take(now_s):
            return None
        return CorrelatedEvent(
            event=event, name=known.name, count=known.count, first_s=known.first_s, last_s=now_s
        )

    def _aggregated(self, event: ObjectEvent, now_s: float) -> tuple[ObjectEvent, ObjectEvent]:
        """The event itself, or, after many similar ones, one that stands for all; and what its count is kept for."""
        about = msgspec.structs.replace(event.involved_object, field_path="")
        key = msgspec.structs.replace(event, involved_object=about, message="")
        similar = self._similar.get(key)
        if similar is None or now_s - similar.last_s > SIMILAR_PERIOD_S:
            similar = _SimilarEvents()
        similar.messages[event.message] = None
        similar.last_s = now_s
        self._similar.put(key, similar, sum(map(len, similar.messages)))
        if len(similar.messages) < SIMILAR_EVENTS:
            return event, event
        del similar.messages[next(iter(similar.messages))]
        return msgspec.structs.replace(event, message=f"{_COMBINED}{event.message}"), key

    def _bucket(self, event: ObjectEvent) -> TokenBucket:
        key = (msgspec.structs.replace(event.involved_object, field_path=""), event.is_warning)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = TokenBucket(1 / SPAM_PERIOD_S, SPAM_BURST)
        self._buckets.put(key, bucket, 0)
        return bucket
