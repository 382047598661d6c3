"""Responses on the wire: heads and bodies are joined, and no head waits for a body."""

import asyncio
import contextlib
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

ANY_PORT = ListenAddress("127.0.0.1", 0)
ENDLESS = 256 << 20
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


async def _answer_with_the_size(_scope: Scope, receive: Receive, send: Send) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({**START, "headers": []})
    await send(part(b"%d" % size, more=False))


@pytest.mark.parametrize(
    ("headers", "body", "answer"),
    [
        pytest.param(f"Content-Length: {2**63}", b"", b"400 Bad Request", id="64 bits"),
        pytest.param(f"Content-Length: {10**19}", b"", b"400 Bad Request", id="20 digits"),
        pytest.param("Content-Length: " + "9" * 400, b"", b"400 Bad Request", id="400 digits"),
        pytest.param("Transfer-Encoding: gzip", b"", b"501 Not Implemented", id="encoding"),
        pytest.param("X: " + "x" * (300 << 10), b"", b"431 Request Header Fields Too Large", id="headers"),
        pytest.param(
            "Transfer-Encoding: chunked", b"1\r\nx\r\n" * 2000, b"400 Bad Request", id="chunks of a byte"
        ),
        pytest.param(
            "Transfer-Encoding: chunked", b"1\r\nx\r\n" * 999 + b"0\r\n\r\n", b"200 OK", id="few chunks"
        ),
        pytest.param(
            "Transfer-Encoding: chunked",
            (b"40\r\n" + b"x" * 64 + b"\r\n") * 2000 + b"0\r\n\r\n",
            b"200 OK",
            id="chunks of 64 bytes",
        ),
    ],
)
def test_what_go_refuses_before_a_handler_is_refused_at_once(
    headers: str, body: bytes, answer: bytes
) -> None:
    request = f"POST / HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n".encode() + body
    assert asyncio.run(_status(request)).startswith(b"HTTP/1.1 " + answer)


async def _status(request: bytes) -> bytes:
    async with serve_network(_answer_with_the_size, ANY_PORT, None, RefusalLog(print)) as bound:
        reader, writer = await asyncio.open_connection(bound.address, bound.port)
        writer.write(request)
        async with asyncio.timeout(10):
            status = await reader.readuntil(b"\r\n")
        writer.close()
        return status


async def _refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({**START, "status": 405})
    await send(part(b"body", more=False))


@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked", f"Content-Length: {2**63 - 1}"])
def test_an_endless_body_of_an_answered_request_is_not_read(framing: str) -> None:
    answer, sent = asyncio.run(_send_endless_body(framing))
    assert answer.startswith(b"HTTP/1.1 405")
    assert answer.endswith(b"body")
    assert sent < ENDLESS


async def _send_endless_body(framing: str) -> tuple[bytes, int]:
    async with serve_network(_refuse, ANY_PORT, None, RefusalLog(print)) as bound:
        reader, writer = await asyncio.open_connection(bound.address, bound.port)
        writer.write(f"POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n".encode())
        answer, sent = asyncio.create_task(reader.read()), 0
        while not answer.done() and sent < ENDLESS:
            writer.write(b"10000\r\n" + b"x" * (64 << 10) + b"\r\n")
            sent += 64 << 10
            with contextlib.suppress(ConnectionError):
                await asyncio.wait(
                    [answer, asyncio.ensure_future(writer.drain())], return_when="FIRST_COMPLETED"
                )
        writer.transport.abort()
        return await answer, sent


@async_test
async def test_a_short_body_of_an_answered_request_ends_no_connection() -> None:
    async with serve_network(_refuse, ANY_PORT, None, RefusalLog(print)) as bound:
        reader, writer = await asyncio.open_connection(bound.address, bound.port)
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000)
            assert (await reader.readuntil(b"body")).startswith(b"HTTP/1.1 405")
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
