"""Which events reach the API server: repeated ones as a count, similar ones as one, too many of an object not at all.

Follows: v1.36, client-go/tools/record/events_cache.go.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

MAX_ENTRIES = 4096
SIMILAR_EVENTS, SIMILAR_PERIOD_S = 10, 600.0
SPAM_BURST, SPAM_PERIOD_S = 25, 300.0
_COMBINED = "(combined from similar events): "
Key = TypeVar("Key")
Value = TypeVar("Value")


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


class TokenBucket:
    """Permits up to ``burst`` at once, and ``rate`` a second in the long run.

    Follows: v1.36, client-go/util/flowcontrol/throttle.go, tokenBucketRateLimiter.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at_s = float(burst), float("-inf")

    def delay_s(self, now_s: float) -> float:
        """How long until the next one is permitted; 0: now."""
        if now_s > self._at_s:
            gained = (now_s - self._at_s) * self._rate
            self._tokens, self._at_s = min(self._burst, self._tokens + gained), now_s
        # Sums of fractions may be slightly below a whole.
        return max(0.0, (1 - self._tokens) / self._rate) if self._tokens < 1 - 1e-9 else 0.0

    def take(self, now_s: float) -> bool:
        """Takes one, if one is permitted now."""
        is_permitted = self.delay_s(now_s) == 0
        if is_permitted:
            self._tokens -= 1
        return is_permitted


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
    """

    def __init__(self) -> None:
        self._similar = _RecentEntries[ObjectEvent, _SimilarEvents]()
        self._counts = _RecentEntries[ObjectEvent, _EventCount]()
        self._buckets = _RecentEntries[tuple[EventObject, bool], TokenBucket]()

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
        self._counts.put(key, known)
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
        self._similar.put(key, similar)
        if len(similar.messages) < SIMILAR_EVENTS:
            return event, event
        del similar.messages[next(iter(similar.messages))]
        return msgspec.structs.replace(event, message=f"{_COMBINED}{event.message}"), key

    def _bucket(self, event: ObjectEvent) -> TokenBucket:
        key = (msgspec.structs.replace(event.involved_object, field_path=""), event.is_warning)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = TokenBucket(1 / SPAM_PERIOD_S, SPAM_BURST)
        self._buckets.put(key, bucket)
        return bucket


class _RecentEntries(Generic[Key, Value]):
    """The most recently used entries."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """An entry, which is then the most recent one."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Sets an entry; the least recently used one is forgotten."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
