"""Keeps the objects of a list as they are in the API server: one list, then a watch, and a new list when needed."""

import random
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, cast

import msgspec

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, PageCount, StatusObject
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.formats.decode import examined
from nodewright.model.errors import shortened
from nodewright.model.values.golang import is_number_of_digits

if TYPE_CHECKING:
    from nodewright.model.kubernetes.recorded_events import RecordEvent

T = TypeVar("T")

_MIN_DELAY_S, _MAX_DELAY_S = 0.8, 30.0
_WATCH_S = 300
STEADY_S = 5.0
"""A watch that ends earlier is answered like a failure, and its delay grows: lists of large clusters are expensive."""
PAGE_SIZE = "500"
_MAX_VERSION_DIGITS = 20
"""Versions are 64-bit numbers."""
_MAX_UNREADABLE = 100
"""How many objects that cannot be read are remembered, so that each is reported once."""


class _ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: Annotated[str, msgspec.Meta(min_length=1)]
    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, frozen=True):
    """What every reader of objects relies on."""

    metadata: _ObjectMeta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    items: list[Any] | None = None
    metadata: _ListMeta = _ListMeta()


class _BookmarkMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _BookmarkMeta


class BackOffDelay:
    """Growing delays after failures, with jitter.

    Units:   seconds.
    Follows: v1.36, client-go/tools/cache/reflector.go: 0.8 s to 30 s, twice as long each time.
    """

    def __init__(self, min_s: float = _MIN_DELAY_S, max_s: float = _MAX_DELAY_S) -> None:
        self._min_s, self._max_s = min_s, max_s
        self._next_s = min_s

    def next_s(self) -> float:
        """The next delay."""
        delay_s, self._next_s = self._next_s, min(2 * self._next_s, self._max_s)
        return delay_s * random.uniform(1.0, 1.5)

    def reset(self) -> None:
        """Begins again after a success."""
        self._next_s = self._min_s


class ObjectView(Protocol):
    """Objects of an API server by uid, as a reader of some of them needs them."""

    objects: dict[str, dict[str, Any]]
    has_listed: bool
    """Whether a whole list has been received."""
    on_change: Callable[[str], None]
    """Called with the uid of each object that has changed; empty: any of them."""

    def put(self, document: dict[str, Any]) -> None:
        """Takes over an object that a write has returned, unless a newer one is known."""


class Reflector:
    """The objects at a path that match a field selector, by uid, as documents.

    ``on_change`` is called with the uid of each object that has changed, or without one after a new list. ``reduce``
    leaves of each object what is to be kept, and raises any error for one that cannot be read: it stays as it was known,
    or is left out, and concerns no other.

    Units: watch_s, how long a watch lasts, in seconds.
    """

    def __init__(
        self, api: ClusterAPI, path: str, field_selector: str, clock: Clock, *, watch_s: int = _WATCH_S
    ) -> None:
        self._api, self.path, self._clock, self._watch_s = api, path, clock, watch_s
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self.reduce: Callable[[dict[str, Any]], dict[str, Any]] = lambda document: document
        self.on_change: Callable[[str], None] = lambda _uid: None
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.objects: dict[str, dict[str, Any]] = {}
        self.has_listed = False
        """Whether a whole list has been received."""
        self.error: ApiError | None = None
        """Why the objects cannot be followed at present; None: they are."""
        self.unreadable = 0
        """How often an object could not be read."""
        self._unreadable: dict[str, None] = {}
        self._version = ""
        """The version up to which the objects are known; empty: a list is needed."""

    async def run(self) -> None:
        """Follows the objects until it is cancelled.

        Follows: v1.36, client-go/tools/cache/reflector.go: the back-off is that of lists and watches alike.
        """
        delay = BackOffDelay()
        while True:
            started_s, has_failed = self._clock.monotonic_s(), False
            try:
                if not self._version:
                    self._version = await self.read_list()
                    self._report_recovery()
                    started_s = self._clock.monotonic_s()
                await self._watch()
            except ApiError as error:
                has_failed = not (error.is_expired and self._version)
                if has_failed:
                    self._report_failure(error)
                else:
                    self._version = ""
            is_steady = self._clock.monotonic_s() - started_s >= STEADY_S
            if is_steady:
                delay.reset()
            if has_failed or not is_steady:
                await self._clock.sleep(delay.next_s())

    async def read_list(self) -> str:
        """Reads all objects, page by page; the version of the list.

        Errors: ApiError.
        """
        objects: dict[str, dict[str, Any]] = {}
        query, count = {**self._selector, "limit": PAGE_SIZE}, PageCount(self.path)
        while True:
            page = self._converted(await self._api.read(self.path, query), _List)
            for item in page.items or ():
                uid, document = self._readable(item)
                if document is not None:
                    objects[uid] = document
            query["continue"] = page.metadata.continue_token
            count.add(page.metadata.continue_token)
            if not page.metadata.continue_token:
                break
        # A write may have been answered with a newer version while the pages were read.
        self.objects = {
            uid: newest_object(self.objects.get(uid), document) for uid, document in objects.items()
        }
        self.has_listed = True
        self.on_change("")
        return page.metadata.resource_version

    def _converted(self, document: Any, kind: type[T]) -> T:
        """The answer as the server must send it.

        Errors: ApiError.
        """
        try:
            return msgspec.convert(document, examined(kind))
        except msgspec.ValidationError as error:
            raise ApiError("GET", self.path, f"the answer is not the expected JSON: {error}") from None

    def _readable(self, document: Any) -> tuple[str, dict[str, Any] | None]:
        """The uid of an object and what is kept of it: what is known if it cannot be read, None if nothing is."""
        uid = ""
        try:
            uid = msgspec.convert(document, examined(_Object)).metadata.uid
            return uid, self.reduce(document)
        except Exception as error:  # noqa: BLE001 - one object must not end the following of the others
            self.unreadable += 1
            metadata = (document.get("metadata") if isinstance(document, dict) else None) or {}
            names = metadata if isinstance(metadata, dict) else {}
            uid = uid or str(names.get("uid") or "")
            text = shortened(f"{names.get('namespace')}/{names.get('name')}: {error}")
        if text not in self._unreadable:
            if len(self._unreadable) >= _MAX_UNREADABLE:
                self._unreadable.clear()
            self._unreadable[text] = None
            self._record("ObjectNotRead", f"{self.path}: {text}", is_warning=True)
        return uid, self.objects.get(uid)

    async def _watch(self) -> None:
        """Applies the events of one watch.

        A watch that breaks off is resumed after its last event: an earlier one shows pods again that are deleted.
        """
        query = {
            **self._selector,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            # The servers of a cluster get the watches of many nodes at different times.
            "timeoutSeconds": str(round(self._watch_s * random.uniform(1.0, 2.0))),
        }
        # Every implementation is an asynchronous generator, whose connection must be closed.
        async with aclosing(cast("Any", self._api.watch(self.path, query))) as events:
            async for event in events:
                kind, document = event.get("type"), event.get("object")
                if kind == "ERROR":
                    status = self._converted(document, StatusObject)
                    raise ApiError("WATCH", self.path, status.message, status=status.code)
                self._report_recovery()
                if kind != "BOOKMARK":
                    self._apply(str(kind), document)
                with suppress(msgspec.ValidationError):  # The watch goes on after what cannot be read.
                    self._version = msgspec.convert(document, examined(_Versioned)).metadata.resource_version

    def _apply(self, kind: str, document: Any) -> None:
        uid, kept = self._readable(document)
        if kind == "DELETED":
            self.objects.pop(uid, None)
        elif kept is not None:
            self.objects[uid] = newest_object(self.objects.get(uid), kept)
        if uid:
            self.on_change(uid)

    def put(self, document: dict[str, Any]) -> None:
        """Takes over an object that a write has returned, unless the watch already has a newer one."""
        uid, kept = self._readable(document)
        if uid in self.objects and kept is not None:
            self.objects[uid] = newest_object(self.objects[uid], kept)

    def _report_failure(self, error: ApiError) -> None:
        is_new, self.error = self.error is None, error
        if is_new:
            message = f"{error}; it is tried again until it succeeds, and pods keep running"
            self._record("APIServerUnavailable", message, is_warning=True)

    def _report_recovery(self) -> None:
        if self.error is not None:
            self.error = None
            self._record("APIServerAvailable", f"{self.path} is followed again", is_warning=False)

    def _record(self, reason: str, message: str, *, is_warning: bool) -> None:
        from nodewright.model.kubernetes.recorded_events import RecordEvent  # noqa: PLC0415 - memory of exporters

        self.record_event(RecordEvent(uid="", is_warning=is_warning, reason=reason, message=message))


def newest_object(known: dict[str, Any] | None, document: dict[str, Any]) -> dict[str, Any]:
    """The newer version of an object: resource versions of one resource can be compared as numbers.

    Of the same version, which a write and the watch both have, the known one: it is kept once.

    Follows: KEP-5504
    """
    if known is None:
        return document
    version, known_version = object_version(document), object_version(known)
    has_no_version = version == known_version == 0
    return document if version > known_version or has_no_version else known


def object_version(document: Mapping[str, Any]) -> int:
    """The version of an object, as a number."""
    text = str((document.get("metadata") or {}).get("resourceVersion") or "0")
    return int(text) if is_number_of_digits(text) and len(text) <= _MAX_VERSION_DIGITS else 0
