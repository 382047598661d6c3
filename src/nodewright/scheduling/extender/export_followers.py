"""Follows the exports of all nodes: one long poll each."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Self

import aiohttp

from nodewright.cluster.client.reflector import BackOffDelay
from nodewright.cluster.client.tls import PeerAccess
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.profiles.node_export import MAX_EXPORT_BYTES, NodeExport
from nodewright.model.errors import Fault, HostError, InputError
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
"""An exporter whose answers cost more than usual may have a tenth of the time."""
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
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.tls())
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=ANSWER_S)
        )
        return self

    async def __aexit__(self, *_exception: object) -> None:
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

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
        delay, generation, is_failing = BackOffDelay(), -1, False
        reader = ExportReader(self._parts)
        while True:
            try:
                generation, pause_s = await self._next(name, url, generation, reader)
            except Exception as error:  # noqa: BLE001 - the export of one node must not end the following of it
                is_content = isinstance(error, InputError)
                is_transport = isinstance(error, aiohttp.ClientError | HostError | OSError | TimeoutError)
                kind = "content" if is_content else "transport" if is_transport else "internal"
                self.errors[kind] += 1
                text = f"{url}: {str(error) or type(error).__name__}"
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
        self, name: str, url: str, generation: int, reader: ExportReader
    ) -> tuple[int, float | None]:
        """Takes over the next export: its generation, and a pause; None: the watch ended before its time.

        Errors: aiohttp.ClientError, OSError and TimeoutError of the connection; InputError for an export that cannot be.
        """
        started_s = self._clock.monotonic_s()
        if generation < 0:
            async with self._first_reads:
                content = await self._requested(url, generation)
        else:
            content = await self._requested(url, generation)
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
        return export.generation, _PAUSE_FACTOR * cost_s if cost_s > _USUAL_COST_S else 0.0

    async def _requested(self, url: str, generation: int) -> bytes | None:
        """The next export; None: it is still of this generation.

        The Node object names the URL, and a writer of that object could read a token that is sent in plain text.
        """
        assert self._session is not None
        headers = self._access.headers()
        if headers and not url.startswith("https://"):
            raise aiohttp.ClientError("the token of --export-token-file is sent over https only")
        query = {"watch": "true", "generation": str(generation), "timeoutSeconds": str(WATCH_S)}
        params = query if generation >= 0 else {}
        get = self._session.get(url, params=params, headers=headers, allow_redirects=False)
        async with get as response:
            if response.status == 304:
                return None
            if response.status != 200:
                text = (await response.content.read(300)).decode("utf-8", "replace")
                raise aiohttp.ClientError(f"status {response.status}: {text}")
            content = await response.content.read(MAX_EXPORT_BYTES + 1)
            while not response.content.at_eof() and len(content) <= MAX_EXPORT_BYTES:
                content += await response.content.read(MAX_EXPORT_BYTES)
            return content

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
