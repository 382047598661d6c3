"""Clients that are slow on purpose, in each part of a connection: they give way, and their time is limited."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, cast

import pytest
from starlette.requests import ClientDisconnect
from starlette.routing import Router
from tests.support.agent_bench import async_test
from tests.support.dashboards import DashboardAgent
from tests.support.kubelet_api import HTTPSAgent
from tests.support.real_api_server import free_port
from tests.unit.scheduling.extender.test_extender_network import serving

from nodewright.agent.serving import agent_server
from nodewright.agent.serving.agent_server import serve_agent_api, serve_on_demand
from nodewright.cluster.exports.export_feed import ExportFeed
from nodewright.cluster.exports.export_routes import ExportRoutes, HealthRoutes
from nodewright.cluster.serving import http_server, middleware
from nodewright.cluster.serving.access import Authorizer, Grants
from nodewright.cluster.serving.browser_auth import PageAddress, serve_local_pages
from nodewright.cluster.serving.http_server import ListenAddress, serve_network, serve_unix_socket
from nodewright.cluster.serving.key_pair import ensure_key_pair
from nodewright.cluster.serving.middleware import (
    TAKE_OVER_CONNECTION,
    App,
    AuthMiddleware,
    Receive,
    RefusalLog,
    RequestMetrics,
    Scope,
    Send,
)
from nodewright.cluster.serving.routes import bare_routes
from nodewright.cluster.serving.tls import serving_tls
from nodewright.cluster.tasks.timing import HostClock

SOURCES = Path(__file__).parents[4] / "src" / "nodewright"
LARGE = b"x" * (8 << 20)
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers bodies, with a large answer in one part or in many, and takes connections over."""
    is_complete = False
    while not is_complete:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        is_complete = not message["more_body"]
    if scope["path"] == "/socket":
        _, writer = scope["state"][TAKE_OVER_CONNECTION]()
        with contextlib.suppress(OSError):
            writer.write(LARGE)
            await writer.drain()
        writer.close()
        return
    parts = {"/large": [LARGE], "/parts": [LARGE[: 1 << 16]] * 200}.get(scope["path"], [b"ok"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Served:
    """A server, how it is reached, and what it has refused."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.refused = folder, list[str]()
        self.refusals = RefusalLog(self.refused.append)
        self.place: ListenAddress | str = ""
        self.is_tls, self.headers = False, "Host: a\r\n"

    async def connect(self, *, shakes_hands: bool = True) -> Streams:
        if isinstance(self.place, str):
            return await asyncio.open_unix_connection(self.place, limit=1)
        context = None
        if self.is_tls and shakes_hands:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return await asyncio.open_connection(*self.place, ssl=context, limit=1)

    async def request(self) -> bytes:
        """The first bytes of an answer."""
        reader, writer = await self.connect()
        writer.write(f"GET / HTTP/1.1\r\n{self.headers}Connection: close\r\n\r\n".encode())
        try:
            return await reader.read(12)
        finally:
            writer.transport.abort()


def middleware_app(served: Served) -> App:
    return AuthMiddleware(application, (), None, refusals=served.refusals, requests=RequestMetrics())


@asynccontextmanager
async def plain(served: Served) -> AsyncIterator[None]:
    """As the health port of the extender, and the exporter and the agent without TLS."""
    address = ListenAddress("127.0.0.1", 0)
    async with serve_network(middleware_app(served), address, None, served.refusals) as served.place:
        yield


@asynccontextmanager
async def tls(served: Served) -> AsyncIterator[None]:
    """As the extender, the exporter and the agent."""
    served.is_tls = True
    reloading = serving_tls(ensure_key_pair(served.folder / "tls", "localhost", ("127.0.0.1",)), None)
    context = lambda: reloading.context(print)  # noqa: E731 - a source of contexts
    address = ListenAddress("127.0.0.1", 0)
    async with serve_network(middleware_app(served), address, context, served.refusals) as served.place:
        yield


@asynccontextmanager
async def unix_socket(served: Served) -> AsyncIterator[None]:
    """As the agent."""
    served.place = str(served.folder / "s")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(served.place)
    listener.listen(64)
    async with serve_unix_socket(application, listener, served.refusals):
        yield


@asynccontextmanager
async def dashboard(served: Served) -> AsyncIterator[None]:
    """The pages for a browser of this machine."""
    async with serve_local_pages(application, PageAddress()) as (auth, host):
        served.place = ListenAddress(host, auth.port)
        yield


@asynccontextmanager
async def extender(served: Served) -> AsyncIterator[None]:
    """The extender with its routes."""
    served.is_tls = True
    async with serving() as caller:
        served.place = caller.address
        yield


@asynccontextmanager
async def exporter(served: Served) -> AsyncIterator[None]:
    """The exporter with its routes and its rights."""
    served.is_tls = True
    feed = ExportFeed(HostClock())
    entries = [*ExportRoutes(feed).authorized_routes(), *HealthRoutes(feed).authorized_routes()]
    app = AuthMiddleware(
        Router(routes=bare_routes(entries)),
        entries,
        Authorizer(Grants()),
        refusals=served.refusals,
        requests=RequestMetrics(),
    )
    reloading = serving_tls(ensure_key_pair(served.folder / "tls", "localhost", ("127.0.0.1",)), None)
    address = ListenAddress("127.0.0.1", 0)
    async with serve_network(app, address, lambda: reloading.context(print), served.refusals) as served.place:
        yield


@asynccontextmanager
async def kubelet_api(served: Served, port: int = 0) -> AsyncIterator[None]:
    """The agent's HTTPS API."""
    node = HTTPSAgent(served.folder)
    node.reconfigure(read_only_port=free_port(), healthz_port=free_port())
    async with node:
        served.is_tls, served.place = port == 0, node.places[port]
        yield


@asynccontextmanager
async def agent_socket(served: Served) -> AsyncIterator[None]:
    """The agent's socket with its routes."""
    served.place = str(served.folder / "s")
    async with DashboardAgent() as stand, serve_agent_api(stand.agent, Path(served.place)):
        yield


@asynccontextmanager
async def pod_resources(served: Served) -> AsyncIterator[None]:
    """The sockets whose servers begin with the first connection."""

    @asynccontextmanager
    async def answering(path: Path) -> AsyncIterator[None]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.fspath(path))
        listener.listen(64)
        async with serve_unix_socket(application, listener, served.refusals):
            yield

    served.place = str(served.folder / "s")
    async with serve_on_demand(Path(served.place), "--option", lambda: answering):
        yield


WHOLE_SERVERS: dict[str, Callable[[Served], contextlib.AbstractAsyncContextManager[None]]] = {
    "dashboard": dashboard,
    "extender": extender,
    "exporter": exporter,
    "kubelet's API": kubelet_api,
    "kubelet's read-only port": partial(kubelet_api, port=1),
    "kubelet's healthz port": partial(kubelet_api, port=2),
    "agent's socket": agent_socket,
    "PodResources, device plugins": pod_resources,
}


@pytest.mark.parametrize("server", WHOLE_SERVERS)
def test_slow_clients_of_whole_servers_give_way_to_a_request(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "connection_limit", lambda: 3)
    monkeypatch.setattr(agent_server, "MAX_CONNECTIONS", 3)

    @async_test
    async def run_scenario() -> None:
        served = Served(tmp_path)
        async with WHOLE_SERVERS[server](served):
            for attack in ("headers", "body", "chunks", "idle", "handshake"):
                held = []
                for _ in range(3):
                    _, writer = await served.connect(shakes_hands=attack != "handshake")
                    writer.write(ATTACKS[attack].replace("POST /", "POST /filter").encode())
                    held.append(writer)
                await asyncio.sleep(0.05)
                assert (await served.request()).startswith(b"HTTP/1.1 "), attack
                for writer in held:
                    writer.transport.abort()

    run_scenario()


SERVERS = [plain, tls, unix_socket]
ATTACKS = {
    "headers": "GET / HTTP/1.1\r\nX: ",
    "body": "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\nb",
    "chunks": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb",
    "idle": "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "answer": "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
    "answer in parts": "GET /parts HTTP/1.1\r\nHost: a\r\n\r\n",
    "socket": "GET /socket HTTP/1.1\r\nHost: a\r\n\r\n",
    "handshake": "",
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("server", SERVERS)
def test_slow_clients_give_way_to_a_request(
    server: Callable[[Served], contextlib.AbstractAsyncContextManager[None]],
    attack: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "connection_limit", lambda: 3)

    @async_test
    async def run_scenario() -> None:
        served = Served(tmp_path)
        async with server(served):
            held = []
            for _ in range(3):
                _, writer = await served.connect(shakes_hands=attack != "handshake")
                cast(
                    "asyncio.Transport", writer.transport
                ).pause_reading() if "answer" in attack or attack == "socket" else None
                writer.write(ATTACKS[attack].encode())
                held.append(writer)
            await asyncio.sleep(0.1)
            for _ in range(2):
                assert await served.request() == b"HTTP/1.1 200"
            for writer in held:
                writer.transport.abort()

    run_scenario()


@pytest.mark.parametrize("attack", ["headers", "body", "chunks", "answer", "answer in parts", "handshake"])
@pytest.mark.parametrize("server", SERVERS)
def test_the_time_of_slow_clients_is_limited_whatever_they_send(
    server: Callable[[Served], contextlib.AbstractAsyncContextManager[None]],
    attack: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if server is unix_socket and (attack == "handshake" or "answer" in attack):
        pytest.skip("no handshake; a reader of logs may pause")
    for module, name in (
        (http_server, "HEADERS_TIMEOUT_S"),
        (http_server, "HANDSHAKE_TIMEOUT_S"),
        (http_server, "SEND_TIMEOUT_S"),
        (middleware, "SEND_TIMEOUT_S"),
        (middleware, "BODY_TIMEOUT_S"),
    ):
        monkeypatch.setattr(module, name, 0.3)
    monkeypatch.setattr(middleware, "MIN_BYTES_A_SECOND", 1 << 30)

    @async_test
    async def run_scenario() -> None:
        served = Served(tmp_path)
        async with server(served):
            _, writer = await served.connect(shakes_hands=attack != "handshake")
            if "answer" in attack:
                cast("asyncio.Transport", writer.transport).pause_reading()
            writer.write(ATTACKS[attack].encode())
            while not served.refused:
                # A byte now and then is no progress.
                with contextlib.suppress(OSError):
                    writer.write({"body": b"b", "chunks": b"\r\n1\r\nb", "headers": b"y"}.get(attack, b""))
                await asyncio.sleep(0.05)
            assert await served.request() == b"HTTP/1.1 200"
            writer.transport.abort()

    run_scenario()


def test_no_other_module_has_a_server_of_its_own() -> None:
    servers = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "import uvicorn" in (text := path.read_text("utf-8"))
        or "asyncio.start_server" in text
        or "http.server" in text
    }
    assert servers == {"cluster/serving/http_server.py"}
