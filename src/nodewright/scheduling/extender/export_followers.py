"""Follows the exports of all nodes: one long poll each."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from nodewright.cluster.client.cluster_api import with_query
from nodewright.cluster.client.http_connections import (
    HTTPConnections,
    HTTPError,
    OversizedAnswerError,
    WireRequest,
    error_text,
    whole_body,
)
from nodewright.cluster.client.reflector import BackOffDelay
from nodewright.cluster.client.tls import PeerAccess
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.profiles.node_export import MAX_EXPORT_BYTES, NodeExport
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.printable import address_text
from nodewright.scheduling.verdicts.export_reader import ExportReader, NodePartCache
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster

WATCH_S, ANSWER_S = 30, 45.0
SETTLE_S = 60.0
"""How long calls wait for the first answers of all exporters; then the missing ones count as unknown."""
_SKEW_S = 300.0
_MIN_WATCH_S = 1.0
"""A watch that ends earlier without news is answered like a failure: the next one waits."""
_LARGE_EXPORT_BYTES = 256 << 10
"""From here on an export is read beside the loop, which answers the scheduler meanwhile."""
_USUAL_COST_S, _PAUSE_FACTOR = 0.05, 9.0
"""An exporter whose answers cost more than usual, or follow each other at once, may have a tenth of the time."""
_FIRST_READS = 32
"""How many exports are read at once when thousands of nodes appear together; watches are not limited."""


class ExportFollowers:
    """Follows one export a node, as nodes come and go; an asynchronous context manager."""

    def __init__(self, access: PeerAccess, cluster: TrackedCluster, clock: Clock) -> None:
        self._access, self.cluster, self._clock = access, cluster, clock
        self.on_error: Callable[[str, str], None] = lambda _name, _error: None
        """Called with a node and why its export is of no use."""
        self.log: Callable[[str], None] = lambda _text: None
        self.errors: Counter[str] = Counter()
        """By kind: `transport`, `content`, `internal`, `skew`, `address`."""
        self._tasks: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._refused: dict[str, str] = {}
        """Why exporters are not asked, by node."""
        self._unanswered: set[str] = set()
        self._parts = NodePartCache()
        self._first_reads = asyncio.Semaphore(_FIRST_READS)
        self._started_s = clock.monotonic_s()
        self._context = access.tls()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def has_settled(self) -> bool:
        """Whether each exporter has been asked once: before, a restarted extender would guess."""
        return not self._unanswered or self._clock.monotonic_s() - self._started_s > SETTLE_S

    def awaits(self, name: str) -> bool:
        """Whether calls wait for the first answer of the exporter of this node."""
        return name in self._unanswered and not self.has_settled

    def follow(self, name: str, url: str) -> None:
        """Follows the export of a node at a URL; an empty one ends it."""
        self._refused.pop(name, None)
        self._follow(name, url)

    def refuse(self, name: str, reason: str) -> None:
        """Ends following the export of a node, whose Node object leads elsewhere."""
        if self._refused.get(name) == reason:
            return
        self._follow(name, "")
        self._refused[name] = reason
        self.errors["address"] += 1
        self.log(f"node {name}: {reason}")
        self.on_error(name, reason)

    def _follow(self, name: str, url: str) -> None:
        known_url, task = self._tasks.get(name, ("", None))
        if known_url == url:
            return
        if task is not None:
            task.cancel()
            del self._tasks[name]
            self._unanswered.discard(name)
        if url:
            self._unanswered.add(name)
            self._tasks[name] = (url, asyncio.ensure_future(self._run(name, url)))

    async def _run(self, name: str, url: str) -> None:
        exporter = _Exporter(url, self._access, self._context)
        try:
            await self._follow_exporter(name, exporter)
        finally:
            exporter.close()

    async def _follow_exporter(self, name: str, exporter: "_Exporter") -> None:
        delay, generation, is_failing = BackOffDelay(), -1, False
        reader = ExportReader(self._parts)
        while True:
            try:
                generation, pause_s = await self._next(name, exporter, generation, reader)
            except Exception as error:  # noqa: BLE001 - the export of one node must not end the following of it
                is_content = isinstance(error, InputError)
                is_transport = isinstance(error, HostError | OSError)
                kind = "content" if is_content else "transport" if is_transport else "internal"
                self.errors[kind] += 1
                description = error_text(error) if isinstance(error, OSError) else str(error)
                text = f"{address_text(exporter.url)}: {description or type(error).__name__}"
                if not is_failing or is_content:
                    self.log(f"node {name}: {text}")
                is_failing = True
                self._unanswered.discard(name)
                if not is_transport:
                    self.on_error(name, text)
                    generation = -1
                await self._clock.sleep(delay.next_s())
                continue
            is_failing = False
            self._unanswered.discard(name)
            if pause_s is None:
                await self._clock.sleep(delay.next_s())
                continue
            delay.reset()
            if pause_s:
                await self._clock.sleep(pause_s)

    async def _next(
        self, name: str, exporter: "_Exporter", generation: int, reader: ExportReader
    ) -> tuple[int, float | None]:
        """Takes over the next export: its generation, and a pause; None: the watch ended before its time.

        Errors: as of `_Exporter.next_export`; InputError for an export that cannot be.
        """
        started_s = self._clock.monotonic_s()
        if generation < 0:
            async with self._first_reads:
                content = await exporter.next_export(generation)
        else:
            content = await exporter.next_export(generation)
        answered_s = self._clock.monotonic_s()
        if content is None:
            self.cluster.confirm_export(name, now_s=answered_s)
            return generation, 0.0 if answered_s - started_s >= _MIN_WATCH_S else None
        source = f"export of node {name}"
        is_large = len(content) > _LARGE_EXPORT_BYTES
        read = asyncio.to_thread(reader.read, content, source) if is_large else None
        export = reader.read(content, source) if read is None else await read
        self._take(name, export)
        cost_s = self._clock.monotonic_s() - answered_s
        is_early = answered_s - started_s < _MIN_WATCH_S
        return export.generation, _PAUSE_FACTOR * cost_s if cost_s > _USUAL_COST_S or is_early else 0.0

    def _take(self, name: str, export: NodeExport) -> None:
        """Takes over an export.

        Errors: InputError for an export of another node.
        """
        if export.node_name != name:
            rule = f"the export is that of node {export.node_name}"
            raise InputError([Fault(path="nodeName", value=export.node_name, rule=rule)])
        self._note_skew(export)
        now_s = self._clock.monotonic_s()
        self.cluster.put_export(name, export.profile, generation=export.generation, now_s=now_s)

    def _note_skew(self, export: NodeExport) -> None:
        """Counts clocks that differ; ages are measured by this machine's clock only."""
        skew_s = abs(export.observed_time.nanoseconds - self._clock.now_ns()) / 10**9
        if skew_s > _SKEW_S:
            self.errors["skew"] += 1


class _Exporter:
    """The exporter of one node, and the connection that is kept between two requests."""

    def __init__(self, url: str, access: PeerAccess, context: ssl.SSLContext) -> None:
        self.url = url
        self._access, self._context = access, context
        self._connections: HTTPConnections | None = None

    async def next_export(self, generation: int) -> bytes | None:
        """The export after this generation; None: it is still of this one.

        Errors: OSError, also for an answer that is no success; InputError for one that is too large; HostError for a token
                that cannot be read, or sent there.
        """
        token = self._access.headers(self.url)
        connections = self._opened()
        query = {"watch": "true", "generation": str(generation), "timeoutSeconds": str(WATCH_S)}
        path = urlsplit(self.url).path or "/"
        request = WireRequest(
            target=with_query(path, query) if generation >= 0 else path,
            headers=(*connections.headers, ("Accept", "*/*"), *token.items()),
        )
        async with asyncio.timeout(ANSWER_S), connections.exchange(request) as (head, parts):
            try:
                content = await whole_body(parts, MAX_EXPORT_BYTES)
            except OversizedAnswerError as error:
                raise InputError([Fault(rule=str(error))]) from None
        if head.status == 304:
            return None
        if head.status != 200:
            raise HTTPError(f"status {head.status}: {content[:300].decode('utf-8', 'replace')}")
        return content

    def _opened(self) -> HTTPConnections:
        if self._connections is None:
            try:
                parts = urlsplit(self.url)
                self._connections = HTTPConnections(f"{parts.scheme}://{parts.netloc}", self._tls)
            except ValueError as error:
                raise HTTPError(str(error)) from None
        return self._connections

    async def _tls(self) -> ssl.SSLContext:
        return self._context

    def close(self) -> None:
        """Closes the connection."""
        if self._connections is not None:
            self._connections.close()
