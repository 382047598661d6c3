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


@pytest.mark.parametrize("path", ["/at-once", "/after-the-body", "/begun", "/complete"])
@pytest.mark.parametrize("malformed", [b"zz\r\n\r\n", b"f" * 30 + b"\r\n", b"1\r\nab\r\n"])
def test_a_malformed_body_is_answered_once_whatever_the_application_does(
    path: str, malformed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    refused = list[str]()
    asyncio.run(_send_malformed_body(path, malformed, RefusalLog(refused.append)))
    assert not caplog.records
    assert len(refused) == 1
    assert "malformed HTTP request" in refused[0]


async def _send_malformed_body(path: str, malformed: bytes, refusals: RefusalLog) -> None:
    has_begun = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        message: object = None
        if scope["path"] == "/after-the-body":
            message = await receive()
        await send({**START, "headers": [(b"content-length", b"4")]})
        if scope["path"] == "/begun":
            await send(part(b"bo", more=True))
            has_begun.set()
            message = await receive()
        await send(part(b"body" if message is None else b"dy", more=False))
        has_begun.set()

    head = b"POST " + path.encode() + b" HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serve_network(application, ListenAddress("127.0.0.1", 0), None, refusals) as bound:
        reader, writer = await asyncio.open_connection(bound.address, bound.port)
        if path in ("/begun", "/complete"):
            writer.write(head)
            await has_begun.wait()
            head = b""
        writer.write(head + malformed)
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200" if not head else b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1


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
