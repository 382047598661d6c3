"""A node's export: what it is made of, when a new one is served, its routes, and the metrics of an exporter."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.cluster.exports.export_feed import ServedExport
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
from nodewright.model.errors import Fault
from nodewright.model.values.quantity import INT64_MAX

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
