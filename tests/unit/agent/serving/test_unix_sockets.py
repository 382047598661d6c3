"""Servers that begin with the first who asks."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle

from nodewright.agent.host.on_demand_server import ServerFactory
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.serving import agent_server
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.agent_server import (
    remove_socket,
    serve_agent_api,
    serve_on_demand,
)
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.cluster.serving import http_server
from nodewright.cluster.serving.http_server import serve_unix_socket
from nodewright.cluster.serving.middleware import Receive, RefusalLog, Scope, Send
from nodewright.model.errors import HostError
from nodewright.testing.nodes import a_profile


@contextlib.asynccontextmanager
async def shouting(path: Path) -> AsyncIterator[None]:
    """A server that answers each line in capitals."""

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()

    server = await asyncio.start_unix_server(met, path)
    try:
        yield
    finally:
        server.close()
        remove_socket(path)


async def answer(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    readline = await reader.readline()
    writer.close()
    return readline


def test_it_starts_once_at_the_first_connection_and_cleans_up(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        begun: list[None] = []

        def load() -> ServerFactory:
            begun.append(None)
            return shouting

        async with serve_on_demand(tmp_path / "s", "--option", load):
            assert begun == []
            contents = await asyncio.gather(*(answer(tmp_path / "s", b"hello\n") for _ in range(5)))
            assert set(contents) == {b"HELLO\n"}
            assert len(begun) == 1
            _, lingering = await asyncio.open_unix_connection(tmp_path / "s")
        lingering.close()
        await asyncio.sleep(0)

    run_scenario()
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_begin_turns_people_away_and_is_tried_again(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        tries: list[None] = []

        def load() -> ServerFactory:
            tries.append(None)
            if len(tries) == 1:
                raise HostError("begin", "s", "not now")
            return shouting

        async with serve_on_demand(tmp_path / "s", "--option", load):
            assert await answer(tmp_path / "s", b"hello\n") == b""
            assert await answer(tmp_path / "s", b"hello\n") == b"HELLO\n"

    run_scenario()


@pytest.mark.parametrize("limit", [3])
def test_beyond_the_limit_the_oldest_connection_is_closed(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_server, "MAX_CONNECTIONS", limit)

    @async_test
    async def run_scenario() -> None:
        async with serve_on_demand(tmp_path / "s", "--option", lambda: shouting):
            held = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(limit)]
            for _ in range(2 * limit):
                held.append(await asyncio.open_unix_connection(tmp_path / "s"))
                assert await answer(tmp_path / "s", b"hello\n") == b"HELLO\n"
            with contextlib.suppress(ConnectionResetError):
                assert await held[0][0].read() == b""
            for _, writer in held:
                writer.close()

    run_scenario()


class HTTPSocket:
    """A Unix socket that answers every request with its body, and what is recorded of refused ones."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s"
        self.refused: list[str] = []

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        listener.listen()
        async with serve_unix_socket(echo, listener, RefusalLog(self.refused.append)):
            yield

    async def request(self) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        response = await reader.read()
        writer.close()
        return response


async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
    body, is_complete = b"", False
    while not is_complete:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message["body"]
        is_complete = not message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("total", [True, False])
def test_idle_connections_of_a_user_give_way_to_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, total: bool
) -> None:
    if total:
        monkeypatch.setattr(http_server, "connection_limit", lambda: 3)
    else:
        monkeypatch.setattr(http_server, "MAX_CONNECTIONS_PER_ADDRESS", 3)

    @async_test
    async def run_scenario() -> None:
        served = HTTPSocket(tmp_path)
        async with served.serving():
            held = [await asyncio.open_unix_connection(served.path) for _ in range(3)]
            assert (await served.request()).endswith(b"hello\r\n0\r\n\r\n")
            assert served.refused == [
                f"user {os.getuid()}: 3 connections of this client are open, 3 in total"
            ]
            assert await held[0][0].read() == b""
            for _, writer in held:
                writer.close()

    run_scenario()


@pytest.mark.parametrize(
    ("limit", "sent", "refusal"),
    [
        ("http_server.HEADERS_TIMEOUT_S", b"GET / HTTP/1.1\r\nX: ", "no complete request within 0.05 s"),
        (
            "middleware.BODY_TIMEOUT_S",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nh",
            "too slow",
        ),
        (
            "middleware.MAX_BODY_BYTES",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789",
            "too large",
        ),
        ("", b"nonsense\r\n\r\n", "malformed HTTP request"),
    ],
)
def test_requests_that_are_slow_large_or_malformed_end_their_connection(
    tmp_path: Path, limit: str, sent: bytes, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit:
        monkeypatch.setattr(f"nodewright.cluster.serving.{limit}", 0.05)

    @async_test
    async def run_scenario() -> None:
        served = HTTPSocket(tmp_path)
        async with served.serving():
            reader, writer = await asyncio.open_unix_connection(served.path)
            writer.write(sent)
            with contextlib.suppress(OSError):
                assert not (await reader.read()).startswith(b"HTTP/1.1 200")
            await settle()
            assert any(refusal in text for text in served.refused)
            writer.close()

    run_scenario()


def test_a_reader_may_pause_for_as_long_as_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodewright.cluster.serving.middleware.SEND_TIMEOUT_S", 0)

    @async_test
    async def run_scenario() -> None:
        served = HTTPSocket(tmp_path)
        async with served.serving():
            assert (await served.request()).endswith(b"hello\r\n0\r\n\r\n")

    run_scenario()


def test_malformed_requests_on_the_agents_socket_are_refused_and_recorded(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        async with AgentBench(a_profile()) as bench:
            recorder = EventRecorder(bench.loop.state, bench.clock)
            facts = NodeSystemInfo(
                kubelet_version="v1.36", started_ns=0, container_runtime_version="fake://0"
            )
            agent = AgentInterface(
                event_recorder=recorder,
                observe=bench.loop.observe,
                runtime=bench.runtime,
                clock=bench.clock,
                system_info=facts,
                log_root=tmp_path,
            )
            async with serve_agent_api(agent, tmp_path / "s"):
                reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
                writer.write(b"nonsense\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
                writer.close()
            (event,) = recorder.events()
            assert event.reason == "RequestRefused"
            assert event.message == f"user {os.getuid()}: malformed HTTP request"

    run_scenario()
