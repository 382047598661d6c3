"""Responses on the wire: heads and bodies are joined, and no head waits for a body."""

import asyncio
import socket

import pytest
from tests.support.agent_bench import async_test

from nodewright.cluster.serving.http_server import (
    EmbeddedServer,
    ListenAddress,
    embedded_config,
    serve_network,
)
from nodewright.cluster.serving.middleware import Receive, RefusalLog, Scope, Send

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}


def part(content: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.response.body", "body": content, "more_body": more}


@async_test
async def test_a_head_is_sent_before_a_body_that_is_late_and_with_one_that_is_not() -> None:
    body_may_follow = asyncio.Event()

    async def application(scope: Scope, _receive: Receive, send: Send) -> None:
        await send(dict(START))
        if scope["path"] == "/late":
            await body_may_follow.wait()
        await send(part(b"bo", more=True))
        await send(part(b"dy", more=False))

    async with serve_network(application, ListenAddress("127.0.0.1", 0), None, RefusalLog(print)) as bound:
        reader, writer = await asyncio.open_connection(bound.address, bound.port)
        for path in (b"/late", b"/", b"/late"):
            body_may_follow.clear()
            writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: h\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            body_may_follow.set()
            assert await reader.readexactly(4) == b"body"
        writer.write(b"HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.read() == b""
        writer.close()


class _BrokenServer(EmbeddedServer):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - as uvicorn has it
        raise OSError("no start")


@async_test
async def test_a_server_that_does_not_start_raises_its_error_and_closes_its_socket() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(OSError, match="no start"):
        async with _BrokenServer(embedded_config(None)).running(listener):
            pytest.fail("the server does not run")
    assert listener.fileno() == -1
