"""Keeps the objects of a list as they are in the API server: one list, then a watch, and a new list when needed."""

import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI
from nodewright.cluster.tasks.timing import Clock

if TYPE_CHECKING:
    from nodewright.model.kubernetes.runtime_status import RecordEvent

_MIN_DELAY_S, _MAX_DELAY_S = 0.8, 30.0
_WATCH_S = 300
PAGE_SIZE = "500"
_MAX_VERSION_DIGITS = 20
"""Versions are 64-bit numbers."""


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


class Reflector:
    """The objects at a path that match a field selector, by uid, as documents.

    ``on_change`` is called with the uid of each object that has changed, or without one after a new list. ``reduce``
    leaves of each object what is to be kept.

    Units: watch_s, how long a watch lasts, in seconds.
    """

    def __init__(
        self, api: ClusterAPI, path: str, field_selector: str, clock: Clock, *, watch_s: int = _WATCH_S
    ) -> None:
        self._api, self._path, self._clock, self._watch_s = api, path, clock, watch_s
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self.reduce: Callable[[dict[str, Any]], dict[str, Any]] = lambda document: document
        self.on_change: Callable[[str], None] = lambda _uid: None
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.objects: dict[str, dict[str, Any]] = {}
        self.has_listed = False
        """Whether a whole list has been received."""
        self.error: ApiError | None = None
        """Why the objects cannot be followed at present; None: they are."""
        self._version = ""
        """The version up to which the objects are known; empty: a list is needed."""

    async def run(self) -> None:
        """Follows the objects until it is cancelled."""
        delay = BackOffDelay()
        while True:
            try:
                if not self._version:
                    self._version = await self._list()
                    self._report_recovery()
                    delay.reset()
                await self._watch(delay)
            except ApiError as error:
                if error.is_expired:
                    self._version = ""
                    continue
                self._report_failure(error)
                await self._clock.sleep(delay.next_s())

    async def _list(self) -> str:
        """Reads all objects, page by page; the version of the list."""
        objects: dict[str, dict[str, Any]] = {}
        query = {**self._selector, "limit": PAGE_SIZE}
        while True:
            page = await self._api.read(self._path, query)
            for item in page.get("items") or ():
                objects[item["metadata"]["uid"]] = self.reduce(item)
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                break
            if token == query.get("continue"):
                raise ApiError("GET", self._path, "the list has no end: two pages name the same next page")
            query["continue"] = token
        # A write may have been answered with a newer version while the pages were read.
        self.objects = {
            uid: newest_object(self.objects.get(uid), document) for uid, document in objects.items()
        }
        self.has_listed = True
        self.on_change("")
        return str(page["metadata"]["resourceVersion"])

    async def _watch(self, delay: BackOffDelay) -> None:
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
        async with aclosing(cast("Any", self._api.watch(self._path, query))) as events:
            async for event in events:
                document = event.get("object") or {}
                if event.get("type") == "ERROR":
                    if document.get("code") == 410:
                        self._version = ""
                        return
                    message = str(document.get("message"))
                    raise ApiError("WATCH", self._path, message, status=document.get("code") or 0)
                self._report_recovery()
                delay.reset()
                if event["type"] != "BOOKMARK":
                    self._apply(str(event["type"]), document)
                self._version = str(document["metadata"]["resourceVersion"])

    def _apply(self, kind: str, document: dict[str, Any]) -> None:
        uid = document["metadata"]["uid"]
        if kind == "DELETED":
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = newest_object(self.objects.get(uid), self.reduce(document))
        self.on_change(uid)

    def put(self, document: dict[str, Any]) -> None:
        """Takes over an object that a write has returned, unless the watch already has a newer one."""
        uid = document["metadata"]["uid"]
        if uid in self.objects:
            self.objects[uid] = newest_object(self.objects[uid], document)

    def _report_failure(self, error: ApiError) -> None:
        is_new, self.error = self.error is None, error
        if is_new:
            message = f"{error}; it is tried again until it succeeds, and pods keep running"
            self._record("APIServerUnavailable", message, is_warning=True)

    def _report_recovery(self) -> None:
        if self.error is not None:
            self.error = None
            self._record("APIServerAvailable", f"{self._path} is followed again", is_warning=False)

    def _record(self, reason: str, message: str, *, is_warning: bool) -> None:
        from nodewright.model.kubernetes.runtime_status import RecordEvent  # noqa: PLC0415 - memory of exporters

        self.record_event(RecordEvent(uid="", is_warning=is_warning, reason=reason, message=message))


def newest_object(known: dict[str, Any] | None, document: dict[str, Any]) -> dict[str, Any]:
    """The newer version of an object: resource versions of one resource can be compared as numbers.

    Follows: KEP-5504
    """
    return document if known is None or object_version(document) >= object_version(known) else known


def object_version(document: Mapping[str, Any]) -> int:
    """The version of an object, as a number."""
    text = str((document.get("metadata") or {}).get("resourceVersion") or "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_VERSION_DIGITS else 0
