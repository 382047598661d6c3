"""Requests to each route of each server, which `tools.fuzz` damages: the servers' applications answer them in this process."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import DecodeError
from starlette.applications import Starlette
from starlette.routing import Router
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.support.dashboards import DashboardAgent
from tests.support.mutated_documents import POD
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile

from nodewright.agent.devices import deviceplugin_pb2
from nodewright.agent.devices.protocols import PluginRegistration, PluginRegistrationError
from nodewright.agent.devices.registration import check_registration
from nodewright.agent.serving.agent_server import agent_application
from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes
from nodewright.agent.serving.kubelet_routes import (
    KubeletRoutes,
    LoopMetrics,
    agent_export_routes,
    kubelet_application,
)
from nodewright.agent.serving.node_metrics import AgentMetricsPages
from nodewright.agent.serving.pod_routes import ProfileRoutes
from nodewright.cluster.exports.export_feed import ExportFeed, ExportReading, SourceReading
from nodewright.cluster.exports.export_routes import ExportMetricsRoutes, ExportRoutes, HealthRoutes
from nodewright.cluster.serving.browser_auth import BrowserAuth
from nodewright.cluster.serving.middleware import (
    App,
    AuthMiddleware,
    Message,
    RefusalLog,
    RequestMetrics,
    run_bounded,
)
from nodewright.cluster.serving.routes import AuthorizedRoute, bare_routes
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.profiles.node_export import SourceState
from nodewright.scheduling.extender.extender_routes import (
    MAX_CALL_BYTES,
    ExtenderRoutes,
    extender_application,
)
from nodewright.scheduling.extender.pod_reviews import ClusterReviews, ReviewRoutes
from nodewright.testing.nodes import STATIC_CPUS
from nodewright.testing.nodes import a_profile as a_node
from nodewright.testing.objects import a_pod

_ANSWER_S = 0.3
"""Streams and long polls are left then."""
_QUERIES = {
    "log": "container=main&tailLines=1&sinceSeconds=1&timestamps=true",
    "containerLogs": "tailLines=1&sinceSeconds=1&limitBytes=10&sinceTime=2026-01-01T00:00:00Z",
    "exec": "command=ls&output=1&input=1&tty=1",
    "attach": "output=1",
    "portForward": "port=80",
    "run": "cmd=ls",
    "state": "watch=true&generation=5&timeoutSeconds=1",
    "events": "pod=web",
    "pods": "watch=false",
    "healthz": "verbose&exclude=ping",
    "summary": "only_cpu_and_memory=true",
}
"""By a part of the path."""
_NAMES = {
    "{namespace}": "default",
    "{name}": "web",
    "{pod}": "web",
    "{container}": "main",
    "{uid}": "u",
    "{rest:path}": "a/b",
    "{key:path}": "default/web",
    "{check}": "ping",
}
_REVIEW = {
    "uid": "r",
    "operation": "CREATE",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "object": POD,
}
_VICTIMS = {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
_BODIES: dict[str, Any] = {
    "/filter": {"Pod": POD, "NodeNames": ["n1"]},
    "/prioritize": {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "n1"}}]}},
    "/preempt": {"Pod": POD, "NodeNameToMetaVictims": _VICTIMS},
    "/bind": {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1"},
    "/v1/admit": {"pod": POD, "nodes": ["n1"]},
    "/v1/review-pods": {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": _REVIEW},
    "/pods": {"apiVersion": "v1", "kind": "Pod", **POD},
    "/resize": {"apiVersion": "v1", "kind": "Pod", **POD},
}
"""By the end of the path."""


def _served(entries: list[AuthorizedRoute], app: App, max_body_bytes: int | None = None) -> App:
    refusals, requests = RefusalLog(lambda _text: None), RequestMetrics()
    return AuthMiddleware(
        app, entries, None, refusals=refusals, requests=requests, max_body_bytes=max_body_bytes
    )


@asynccontextmanager
async def _agent() -> AsyncIterator[DashboardAgent]:
    async with DashboardAgent(a_node(**STATIC_CPUS)) as stand:
        await stand.bench.add_pods(a_pod("web", "cpu=1"))
        yield stand


@asynccontextmanager
async def _socket() -> AsyncIterator[tuple[App, list[Any]]]:
    async with _agent() as stand:
        additional = [
            *ProfileRoutes(stand.agent, a_node()).authorized_routes(),
            *DashboardRoutes(stand.view).authorized_routes(),
        ]
        app = agent_application(stand.agent, additional)
        yield partial(run_bounded, app, may_pause=True), list(app.routes)  # type: ignore[misc] # the bool that it returns is not used


@asynccontextmanager
async def _kubelet() -> AsyncIterator[tuple[App, list[Any]]]:
    async with _agent() as stand:
        pressure = await stand.bench.watch_pressure()
        metrics = LoopMetrics(stand.bench.loop, pressure, Path(tempfile.gettempdir()) / "journal.json")
        counters = RequestMetrics(), RefusalLog(lambda _text: None)
        pages = AgentMetricsPages(stand.agent, metrics.agent_metrics, metrics.gauge_inputs, counters)
        routes = KubeletRoutes(stand.agent, metrics, pages)
        entries = [*routes.authorized_routes(has_debugging=True), *routes.read_only_port_routes()]
        entries += [*agent_export_routes(stand.agent, a_node())]
        yield _served(entries, kubelet_application(entries)), bare_routes(entries)


@asynccontextmanager
async def _exporter() -> AsyncIterator[tuple[App, list[Any]]]:
    feed = ExportFeed(HostClock())
    sources = (SourceReading(name="pods", state=SourceState.READ, read_s=0.0, is_watched=True),)
    feed.publish(ExportReading(profile=a_node(), sources=sources))

    class Counters:
        def counts(self) -> tuple[tuple[str, str, int], ...]:
            return ()

    entries = [
        *ExportRoutes(feed).authorized_routes(),
        *HealthRoutes(feed).authorized_routes(),
        *ExportMetricsRoutes(feed, RefusalLog(lambda _text: None), Counters()).authorized_routes(),
    ]
    yield _served(entries, Router(routes=bare_routes(entries))), bare_routes(entries)


@asynccontextmanager
async def _extender() -> AsyncIterator[tuple[App, list[Any]]]:
    clock = HostClock()
    bench = ExtenderBench(BindingCluster(clock), clock)
    bench.feed.nodes.has_listed = bench.feed.pods.has_listed = True
    bench.put_export("n1", a_profile())
    routes = ExtenderRoutes(bench.service, binds=True)
    reviews = ReviewRoutes(ClusterReviews(bench.service).refusals, denies=True)
    entries = [*routes.call_routes(), *routes.health_routes(), *reviews.authorized_routes()]
    yield _served(entries, extender_application(tuple(entries)), MAX_CALL_BYTES), bare_routes(entries)


@asynccontextmanager
async def _pages() -> AsyncIterator[tuple[App, list[Any]]]:
    async with _agent() as stand:
        routes = list[Any](DashboardRoutes(stand.view).routes())
        gate = BrowserAuth(Starlette(routes=routes), 80)
        gate._session = "session"  # noqa: SLF001 - as after a login
        yield gate, routes


Serving = Callable[[], AbstractAsyncContextManager[tuple[App, list[Any]]]]
SERVERS: Mapping[str, Serving] = {
    "requests to the agent's socket": _socket,
    "requests to the kubelet's API": _kubelet,
    "requests to an exporter": _exporter,
    "requests to the extender": _extender,
    "requests to a page": _pages,
}


@cache
def request_targets() -> Mapping[str, tuple[Callable[[bytes], None], tuple[bytes, ...]]]:
    """For each server what answers a request in JSON, and a good request for each of its routes."""
    call = deviceplugin_pb2.RegisterRequest(
        version="v1beta1", endpoint="a.sock", resource_name="vendor.com/gpu"
    )
    return {
        **{name: (partial(_answered, serving), _samples(serving)) for name, serving in SERVERS.items()},
        "registration of a device plugin": (_registered, (call.SerializeToString(),)),
    }


def _registered(content: bytes) -> None:
    with suppress(DecodeError, PluginRegistrationError):
        request = deviceplugin_pb2.RegisterRequest.FromString(content)
        versions, directory = (request.version,), Path("/plugins")
        check_registration(PluginRegistration(request.resource_name, versions, directory, request.endpoint))


def _samples(serving: Serving) -> tuple[bytes, ...]:
    async def collected() -> list[bytes]:
        async with serving() as (_, routes):
            return [
                _sample(method, route.path) for route in routes for method in sorted(route.methods - {"HEAD"})
            ]

    return tuple(dict.fromkeys(asyncio.run(collected())))


def requested_routes() -> set[str]:
    """Method and path pattern of all routes that requests are made to."""

    async def routes_of(serving: Serving) -> list[Any]:
        async with serving() as (_, routes):
            return routes

    routes = [route for serving in SERVERS.values() for route in asyncio.run(routes_of(serving))]
    return {f"{method} {route.path}" for route in routes for method in route.methods - {"HEAD"}}


def _sample(method: str, path: str) -> bytes:
    body = next((body for end, body in _BODIES.items() if path.endswith(end)), "") if method != "GET" else ""
    query = next((text for part, text in _QUERIES.items() if part in path.split("/")), "")
    for pattern, name in _NAMES.items():
        path = path.replace(pattern, name)
    headers = {"host": "127.0.0.1:80", "authorization": "Bearer session", "if-none-match": "a"}
    request = {"method": method, "path": path, "query": query, "headers": headers, "body": body}
    return json.dumps(request).encode()


def _answered(serving: Serving, content: bytes) -> None:
    """Sends the request.

    Errors: what the server raises; ValueError for an answer of an error with more than a line.
    """
    try:
        request = json.loads(content)
        headers, line = request["headers"].items(), [request["method"], request["path"], request["query"]]
        body = request["body"] if isinstance(request["body"], str) else json.dumps(request["body"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        headers, line, body = (), ["POST", "/filter", ""], content.decode("latin-1")
    method, path, query = (str(part).encode("utf-8", "surrogatepass") for part in line)
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method.decode("latin-1"),
        "scheme": "http",
        "path": unquote(path.decode("latin-1")) or "/",
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(str(name).lower().encode(errors="replace"), str(text).encode(errors="replace")) for name, text in headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }  # fmt: skip
    asyncio.run(_sent(serving, scope, body.encode("utf-8", "surrogatepass")))


async def _sent(serving: Serving, scope: dict[str, Any], body: bytes) -> None:
    sent = list[Message]()
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async with serving() as (app, _):
        try:
            async with asyncio.timeout(_ANSWER_S):
                await app(scope, receive, send)
        except TimeoutError:
            return
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    if sent and sent[0]["status"] >= 400 and b"\n" in answer.strip() and "link" not in answer.decode():
        raise ValueError(f"{scope['method']} {scope['path']}: {sent[0]['status']} {answer[:200]!r}")
