"""Exec, attach and port-forward: the client's connection is joined to the runtime's streaming server."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_streams import SWITCHING, UPGRADE, FakeStreamingServer, Talk, echo, upgraded
from tests.support.kubelet_api import HTTPSAgent, http_request

from nodewright.agent.host.ports import (
    AttachStreamRequest,
    ExecStreamRequest,
    PortForwardStreamRequest,
    StandardStreams,
    StreamingServer,
    StreamRequest,
)
from nodewright.agent.serving import upgrade_proxy
from nodewright.model.errors import HostError
from nodewright.testing.objects import a_pod

EXEC = "/exec/default/web/main?command=sh&command=-c&command=id%20-u&input=1&output=1"
StreamTest = Callable[[HTTPSAgent, FakeStreamingServer], Coroutine[Any, Any, None]]


def with_streams(
    talk: Talk = echo, absent: StreamingServer | None = None
) -> Callable[[StreamTest], Callable[[Path], None]]:
    """The test with an agent whose runtime has a streaming server, and the pod `web`."""

    def with_server(test: StreamTest) -> Callable[[Path], None]:
        @wraps(test)
        def running(tmp_path: Path) -> None:
            async def run() -> None:
                server = FakeStreamingServer(talk)
                node = HTTPSAgent(tmp_path)
                node.streaming_server = absent or server
                async with server.running(), node:
                    await node.bench.add_pods(a_pod("web"))
                    await test(node, server)

            asyncio.run(run())

        del running.__wrapped__
        return running

    return with_server


@with_streams()
async def test_bytes_are_copied_in_both_directions(node: HTTPSAgent, server: FakeStreamingServer) -> None:
    async with upgraded(node, EXEC, following=b"early ") as (reader, writer):
        assert await reader.readexactly(len(SWITCHING)) == SWITCHING
        writer.write(b"and late")
        assert await reader.readexactly(14) == b"early and late"
    await asyncio.wait_for(server.ended.wait(), 60)
    assert server.requests == [
        ExecStreamRequest(
            container_id="main-web-0",
            command=("sh", "-c", "id -u"),
            streams=StandardStreams(stdin=True, stdout=True),
        )
    ]


@with_streams()
async def test_the_request_passes_unchanged_without_credentials(
    node: HTTPSAgent, server: FakeStreamingServer
) -> None:
    async with upgraded(node, EXEC) as (reader, _):
        await reader.readexactly(len(SWITCHING))
    first, *headers = server.heads[0].strip().split("\r\n")
    assert first == "POST /token/1?of=runtime HTTP/1.1"
    assert sorted(header.lower() for header in headers) == [
        "connection: upgrade",
        "content-length: 0",
        "host: node1",
        "upgrade: echo/1",
        "x-forwarded-for: 127.0.0.1",
        "x-stream-protocol-version: v4",
    ]


async def speak_and_close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(SWITCHING + b"last words")


@with_streams(speak_and_close)
async def test_the_end_of_the_server_ends_the_client(node: HTTPSAgent, server: FakeStreamingServer) -> None:
    del server
    async with upgraded(node, EXEC) as (reader, _):
        assert await reader.read() == SWITCHING + b"last words"


@with_streams()
async def test_a_client_that_aborts_ends_the_conversation(
    node: HTTPSAgent, server: FakeStreamingServer
) -> None:
    async with upgraded(node, EXEC) as (reader, writer):
        await reader.readexactly(len(SWITCHING))
        writer.transport.abort()
        await asyncio.wait_for(server.ended.wait(), 60)


FLOOD_BYTES, CHUNK = 256 << 20, bytes(1 << 20)


@pytest.mark.slow
@with_streams()
async def test_a_client_that_does_not_read_stops_the_server(
    node: HTTPSAgent, server: FakeStreamingServer
) -> None:
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(SWITCHING)
        while sent < FLOOD_BYTES:
            writer.write(CHUNK)
            sent += len(CHUNK)
            await writer.drain()

    server._talk = flood
    async with upgraded(node, EXEC) as (reader, _):
        await reader.readexactly(len(SWITCHING))
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
        assert 0 < sent < FLOOD_BYTES // 4


@with_streams()
async def test_a_shutdown_ends_open_streams(node: HTTPSAgent, server: FakeStreamingServer) -> None:
    async with upgraded(node, EXEC) as (reader, _):
        await reader.readexactly(len(SWITCHING))
        started_s = asyncio.get_running_loop().time()
        await node._stack.aclose()
        assert asyncio.get_running_loop().time() - started_s < 5
        assert await reader.read() == b""
        await asyncio.wait_for(server.ended.wait(), 60)


@with_streams()
async def test_attach_uses_the_terminal_of_the_container(
    node: HTTPSAgent, server: FakeStreamingServer
) -> None:
    await node.bench.add_pods(a_pod("shell", containers=[{"name": "main", "tty": True}]))
    for pod in ("shell", "web"):
        path = f"/attach/default/{pod}/main?output=1&error=1&tty=0"
        async with upgraded(node, path) as (reader, _):
            await reader.readexactly(len(SWITCHING))
    assert server.requests == [
        AttachStreamRequest(container_id="main-shell-0", streams=StandardStreams(stdout=True, tty=True)),
        AttachStreamRequest(container_id="main-web-0", streams=StandardStreams(stdout=True, stderr=True)),
    ]


@with_streams()
async def test_ports_of_websockets_are_in_the_query(node: HTTPSAgent, server: FakeStreamingServer) -> None:
    headers = {"Authorization": "Bearer writes", "Connection": "Upgrade", "Upgrade": "WebSocket"}

    async def answer(query: str, upgrade: str = "WebSocket") -> tuple[int, str]:
        requested = {**headers, "Upgrade": upgrade}
        path = f"/portForward/default/web{query}"
        context = node.client()
        response = await http_request(node.places[0], path, requested, method="POST", context=context)
        return response.status, response.text

    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n")

    server._talk = refuse
    for query, rule in (
        ("", 'query parameter "port" is required'),
        ("?port=", 'query parameter "port" cannot be empty'),
        ("?port=80,x", 'unable to parse "80,x" as a port'),
        ("?port=65536", 'unable to parse "65536" as a port'),
        ("?port=0", 'port "0" must be > 0'),
    ):
        assert await answer(query) == (400, rule)
    assert (await answer("?port=80,81&port=82"))[0] == 418
    assert (await answer("", "SPDY/3.1"))[0] == 418
    assert server.requests == [
        PortForwardStreamRequest(sandbox_id="sandbox-web-0", ports=(80, 81, 82)),
        PortForwardStreamRequest(sandbox_id="sandbox-web-0"),
    ]


@with_streams()
async def test_requests_that_cannot_be_joined_are_refused(
    node: HTTPSAgent, server: FakeStreamingServer
) -> None:
    context = node.client()
    for path, status, text in (
        ("/exec/default/web/main", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("/exec/default/web/main?error=1&tty=1", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("/exec/default/none/main?output=1", 404, "pod does not exist"),
        ("/exec/default/web/none?output=1", 500, 'container not found ("none")'),
        ("/exec/default/web/other-uid/main?output=1", 500, 'container not found ("main")'),
        ("/attach/default/web/none?output=1", 500, 'container not found ("none")'),
        ("/portForward/default/web/other-uid", 404, "pod not found"),
    ):
        headers = {"Authorization": "Bearer writes", **UPGRADE}
        response = await http_request(node.places[0], path, headers, method="POST", context=context)
        assert (response.status, response.text) == (status, text), path
    response = await node.request("/exec/default/web/main?output=1", "writes", method="POST")
    assert (response.status, response.text) == (500, "Upgrade request required")
    assert (await node.request("/exec/default/web/main?output=1", "reads", method="POST")).status == 403
    assert (await node.request("/exec/default/web/main?output=1", "", method="POST")).status == 401
    assert server.heads == []


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (b"HTTP/1.1 404 Gone\r\nContent-Length: 5\r\n\r\ntoken", 404, "token"),
        (b"HTTP/1.1 429 Busy\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbusy\r\n0\r\n\r\n", 429, "busy"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 500, "invalid upgrade response: status code 200"),
        (b"", 500, "error sending request: the server closed the connection"),
        (b"garbage\r\n\r\n", 500, "error sending request: illegal status line"),
    ],
)
def test_answers_without_a_switch_reach_the_client(
    answer: bytes, status: int, text: str, tmp_path: Path
) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    @with_streams(talk)
    async def run(node: HTTPSAgent, _server: FakeStreamingServer) -> None:
        headers = {"Authorization": "Bearer writes", **UPGRADE}
        response = await http_request(node.places[0], EXEC, headers, method="POST", context=node.client())
        assert response.status == status
        assert response.text.startswith(text)

    run(tmp_path)


class _AbsentServer:
    """A runtime that fails, or names a server that is gone."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def streaming_url(self, _request: StreamRequest) -> str:
        if not self._url:
            raise HostError("Exec", "main-web-0", "container is paused")
        return self._url


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://127.0.0.1:1/token", "error dialing backend: 127.0.0.1:1: Connect call failed"),
        ("", "container is paused"),
    ],
)
def test_a_runtime_without_its_server_is_an_error(url: str, text: str, tmp_path: Path) -> None:
    @with_streams(absent=_AbsentServer(url))
    async def run(node: HTTPSAgent, _server: FakeStreamingServer) -> None:
        headers = {"Authorization": "Bearer writes", **UPGRADE}
        response = await http_request(node.places[0], EXEC, headers, method="POST", context=node.client())
        assert (response.status, response.text[: len(text)]) == (500, text)

    run(tmp_path)


def test_a_silent_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_proxy, "RESPONSE_TIMEOUT_S", 0.1)

    async def wait(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    @with_streams(wait)
    async def run(node: HTTPSAgent, server: FakeStreamingServer) -> None:
        headers = {"Authorization": "Bearer writes", **UPGRADE}
        response = await http_request(node.places[0], EXEC, headers, method="POST", context=node.client())
        assert (response.status, response.text) == (500, "error sending request: no response within 0.1 s")
        await asyncio.wait_for(server.ended.wait(), 60)

    run(tmp_path)
