"""A node's export: what it is made of, when a new one is served, its routes, and the metrics of an exporter."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.cluster.serving.middleware import RefusalLog
from nodewright.cluster.serving.process_metrics import own_process_metrics
from nodewright.cluster.serving.routes import (
    BAD_REQUEST,
    APIError,
    AuthorizedRoute,
    boolean_parameter,
    status_response,
)
from nodewright.documents.output.exposition import (
    CONTENT_TYPE,
    MetricFamily,
    MetricSample,
    MetricType,
    family_text,
)
from nodewright.documents.profiles.node_export import (
    ExportedProfile,
    ExportSource,
    NodeExport,
    SourceState,
    encode_node_export,
    node_export,
)
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.values.instant import Instant
from nodewright.model.values.units import INT64_MAX

if TYPE_CHECKING:
    from nodewright.cluster.tasks.timing import Clock


class SourceReading(msgspec.Struct, frozen=True, kw_only=True):
    """A source as it was read last.

    Units: read_s on the monotonic clock.
    """

    name: str
    state: SourceState
    read_s: float | None = None
    """When its content was read; None: never."""
    is_watched: bool = False
    """Whether a change would have been noticed."""
    error: str = ""
    assumed: str = ""

    def at(self, now_s: float) -> ExportSource:
        """The source with its age."""
        is_current = self.is_watched and self.state is not SourceState.FAILED
        age_s = None if self.read_s is None else 0.0 if is_current else max(0.0, now_s - self.read_s)
        return ExportSource(
            name=self.name,
            state=self.state,
            age_milliseconds=None if age_s is None else round(age_s * 1000),
            error=self.error,
            assumed=self.assumed,
        )

    @property
    def facts(self) -> tuple[str, ...]:
        """What makes a difference to readers, besides the age."""
        return self.name, self.state, self.error, self.assumed


class ExportReading(msgspec.Struct, frozen=True, kw_only=True):
    """A node as its sources describe it."""

    profile: NodeProfile
    sources: tuple[SourceReading, ...] = ()
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


class ServedExport(msgspec.Struct, frozen=True, kw_only=True):
    """An export and its JSON."""

    export: NodeExport
    content: bytes


class ExportFeed:
    """The latest export of a node; its generation is the time of the change, so that it outlives restarts."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._reading: ExportReading | None = None
        self._exported: ExportedProfile | None = None
        self._changed = asyncio.Event()
        self.generation = 0
        """That of the latest export; 0: there is none.

        Units: milliseconds since 1970, or one more than the generation before.
        """
        self.changes = 0
        """How often the export has changed."""
        self.error = "the node has not been read yet"
        """Why there is no export, or why the latest is old; empty: it is current."""
        self.on_change: Callable[[], None] = lambda: None

    def publish(self, reading: ExportReading) -> bool:
        """Takes over a reading; whether it differs from the one before."""
        before, self._reading, self.error = self._reading, reading, ""
        if before is not None and _facts(before) == _facts(reading):
            return False
        if self._exported is None or before is None or before.profile != reading.profile:
            self._exported = ExportedProfile.of(reading.profile, self._exported)
        self.generation = max(self.generation + 1, self._clock.now_ns() // 10**6)
        self.changes += 1
        self._wake()
        return True

    def fail(self, error: str, sources: Sequence[SourceReading] = ()) -> None:
        """Records that the node cannot be read at the moment; the latest export stays, with these sources."""
        self.error = error
        if self._reading is None:
            return
        before, self._reading = self._reading, msgspec.structs.replace(self._reading, sources=tuple(sources))
        if _facts(before) != _facts(self._reading):
            self.generation = max(self.generation + 1, self._clock.now_ns() // 10**6)
            self.changes += 1
            self._wake()

    def current(self) -> ServedExport | None:
        """The export as of now; None if there is none."""
        if self._reading is None or self._exported is None:
            return None
        now_s = self._clock.monotonic_s()
        export = node_export(
            self._exported,
            generation=self.generation,
            observed_time=Instant(self._clock.now_ns()),
            sources=[source.at(now_s) for source in self._reading.sources],
            warnings=self._reading.warnings,
            assumed=self._reading.assumed,
        )
        return ServedExport(export=export, content=encode_node_export(export, self._exported.content))

    @property
    def digest(self) -> str:
        """The digest of the latest profile; empty if there is none."""
        return self._exported.digest if self._exported else ""

    async def wait_after(self, generation: int, timeout_s: float) -> bool:
        """Waits until there is an export of a later generation; False at the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.generation <= generation:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()


def _facts(reading: ExportReading) -> tuple[object, ...]:
    sources = tuple(source.facts for source in reading.sources)
    return reading.profile, sources, reading.warnings, reading.assumed


# ---------------------------------------------------------------- routes

EXPORT_ROUTE = "/v1/state"
DEFAULT_WATCH_S, MAX_WATCH_S = 30, 300
UNAVAILABLE = 503


class ExportProvider(Protocol):
    """Provides the export of a node."""

    @property
    def digest(self) -> str:
        """The digest of the current profile; empty if there is no export."""

    @property
    def error(self) -> str:
        """Why there is no current export; empty: there is one."""

    def current(self) -> ServedExport | None:
        """The export as of now; None if there is none."""

    async def wait_after(self, generation: int, timeout_s: float) -> bool:
        """Waits until there is an export of a later generation; False at the timeout."""


class ExportRoutes:
    """`GET /v1/state`: the export, or that it has not changed."""

    def __init__(self, provider: ExportProvider) -> None:
        self._provider = provider

    def authorized_routes(self) -> tuple[AuthorizedRoute, ...]:
        """All routes."""
        return (AuthorizedRoute(Route(EXPORT_ROUTE, self.state)),)

    async def state(self, request: Request) -> Response:
        """The export. With `watch=true&generation=N` the next one after that generation, or 304 at the time-out.

        Without a watch, 304 if the digest is one of `If-None-Match`.
        """
        try:
            is_watch = boolean_parameter(request, "watch")
            generation = _number(request, "generation", INT64_MAX, 0)
            timeout_s = _number(request, "timeoutSeconds", MAX_WATCH_S, DEFAULT_WATCH_S)
        except APIError as error:
            return status_response(error.code, error.message, error.faults)
        provider = self._provider
        # A provider without an export gets one at any generation.
        if is_watch and not await provider.wait_after(generation, timeout_s):
            return Response(status_code=304, headers=_headers(provider.digest))
        if not is_watch and provider.digest and _matches(request, provider.digest):
            return Response(status_code=304, headers=_headers(provider.digest))
        served = provider.current()
        if served is None:
            return status_response(UNAVAILABLE, provider.error)
        headers = _headers(served.export.digest)
        return Response(served.content, media_type="application/json", headers=headers)


def _number(request: Request, name: str, largest: int, default: int) -> int:
    """An integer parameter.

    Errors: APIError.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > largest:
        fault = Fault(path=name, value=text, rule=f"must be a whole number, 0 to {largest}")
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    return int(text)


def _headers(digest: str) -> dict[str, str]:
    return {"Cache-Control": "no-cache", **({"ETag": f'"{digest}"'} if digest else {})}


def _matches(request: Request, digest: str) -> bool:
    """Whether the client has this version.

    Follows: RFC 9110, 13.1.2: weak comparison.
    """
    tags = ",".join(request.headers.getlist("if-none-match")).split(",")
    return any(tag.strip().removeprefix("W/") in (f'"{digest}"', "*") for tag in tags)


class HealthRoutes:
    """`/healthz`: the process answers; `/readyz`: there is an export."""

    def __init__(self, provider: ExportProvider) -> None:
        self._provider = provider

    def authorized_routes(self) -> tuple[AuthorizedRoute, ...]:
        """All routes."""
        return (
            AuthorizedRoute(Route("/healthz", self.health)),
            AuthorizedRoute(Route("/readyz", self.readiness)),
        )

    async def health(self, _request: Request) -> Response:
        """Reports that the exporter responds."""
        return Response("ok", media_type="text/plain")

    async def readiness(self, _request: Request) -> Response:
        """Whether there is an export, also an old one."""
        if self._provider.digest:
            return Response("ok", media_type="text/plain")
        return Response(f"{self._provider.error}\n", UNAVAILABLE, media_type="text/plain")


_GENERATION = MetricFamily(
    "nodewright_export_generation", MetricType.GAUGE, "The generation of the export: milliseconds since 1970."
)
_FAILING = MetricFamily(
    "nodewright_export_failing", MetricType.GAUGE, "1 while the node cannot be read and the export is old."
)
_SOURCE_AGE = MetricFamily(
    "nodewright_export_source_age_seconds",
    MetricType.GAUGE,
    "How old a source's content may be.",
    ("source",),
)
_SOURCE_STATE = MetricFamily(
    "nodewright_export_source_state", MetricType.GAUGE, "1 for the state of each source.", ("source", "state")
)
_REFUSALS = MetricFamily(
    "nodewright_http_refusals_total", MetricType.COUNTER, "Connections and requests refused.", ("kind",)
)


class ExportMetricsRoutes:
    """`/metrics` of an exporter."""

    def __init__(self, provider: ExportProvider, refusals: RefusalLog, counters: "ExportCounters") -> None:
        self._provider, self._refusals, self._counters = provider, refusals, counters

    def authorized_routes(self) -> tuple[AuthorizedRoute, ...]:
        """All routes."""
        return (AuthorizedRoute(Route("/metrics", self.metrics)),)

    async def metrics(self, _request: Request) -> Response:
        """The metrics in the Prometheus text format."""
        kinds = sorted(self._refusals.counts.items())
        parts = [
            *_export_metrics(self._provider.current(), self._provider.error),
            *_counter_metrics(self._counters.counts()),
            family_text(_REFUSALS, [MetricSample((kind,), count) for kind, count in kinds]),
            *own_process_metrics(),
        ]
        return Response("".join(parts).encode(), media_type=CONTENT_TYPE)


class ExportCounters(Protocol):
    """Counts what an exporter does."""

    def counts(self) -> Iterable[tuple[str, str, int]]:
        """Name, help and value of each counter."""


def _counter_metrics(counts: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    for name, help_text, value in counts:
        family = MetricFamily(f"nodewright_export_{name}_total", MetricType.COUNTER, help_text)
        yield family_text(family, [MetricSample((), value)])


def _export_metrics(served: ServedExport | None, error: str) -> Iterator[str]:
    yield family_text(_FAILING, [MetricSample((), int(bool(error)))])
    if served is None:
        return
    yield family_text(_GENERATION, [MetricSample((), served.export.generation)])
    sources = served.export.sources
    ages = [
        MetricSample((source.name,), source.age_milliseconds / 1000)
        for source in sources
        if source.age_milliseconds is not None
    ]
    yield family_text(_SOURCE_AGE, ages)
    yield family_text(_SOURCE_STATE, [MetricSample((source.name, source.state), 1) for source in sources])
