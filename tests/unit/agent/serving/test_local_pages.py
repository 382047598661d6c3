"""The server of pages for a browser: its limits, the headers of each answer, and that it waits for no reader of stderr."""

import asyncio
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from tests.support.agent_bench import async_test

from nodewright.cluster.serving import http_server
from nodewright.cluster.serving.browser_auth import (
    SECURITY_HEADERS,
    SESSION_PATH,
    BrowserAuth,
    PageAddress,
    serve_local_pages,
)

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def page_server() -> AsyncIterator[BrowserAuth]:
    """A server of pages, which has no page."""
    async with serve_local_pages(Starlette(), PageAddress()) as (browser_auth, _host):
        yield browser_auth


async def answer_to(port: int, request: bytes) -> bytes:
    """What the server answers, until it closes the connection."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(request)
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


def get(port: int, path: str = "/dashboard/", *lines: str) -> bytes:
    """A request."""
    return "\r\n".join(
        [f"GET {path} HTTP/1.1", f"Host: {LOOPBACK}:{port}", "Connection: close", *lines, "", ""]
    ).encode()


async def session_header(browser_auth: BrowserAuth) -> str:
    """The header of requests after a login."""
    token = browser_auth.login_url(LOOPBACK).partition("#token=")[2]
    request = get(browser_auth.port, SESSION_PATH, f"Authorization: Bearer {token}")
    head, _, session = (await answer_to(browser_auth.port, request)).decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    return f"Authorization: Bearer {session}"


@async_test
async def test_every_answer_has_the_security_headers() -> None:
    async with page_server() as browser_auth:
        port = browser_auth.port
        session = await session_header(browser_auth)
        answers = {
            404: (await answer_to(port, get(port, "/none", session))).decode(),
            403: (await answer_to(port, get(port, "/none"))).decode(),
            421: (await answer_to(port, get(port + 1))).decode(),
            400: (await answer_to(port, b"garbage\r\n\r\n")).decode(),
        }
    for code, answer in answers.items():
        assert answer.startswith(f"HTTP/1.1 {code} "), answer
        for name, value in SECURITY_HEADERS.items():
            assert answer.lower().count(f"\r\n{name}: {value}\r\n".lower()) == 1, (code, name)


@async_test
async def test_a_fault_of_the_application_is_an_answer_with_the_headers() -> None:
    async def faulty(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("a bug")

    async with serve_local_pages(faulty, PageAddress()) as (browser_auth, _host):
        port = browser_auth.port
        answer = (await answer_to(port, get(port, "/", await session_header(browser_auth)))).decode()
    assert answer.startswith("HTTP/1.1 500 ")
    assert "nosniff" in answer
    assert "a bug" not in answer


def test_half_open_connections_give_way_to_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 20)
    assert asyncio.run(answer_in_a_crowd()).startswith(b"HTTP/1.1 403 ")


async def answer_in_a_crowd() -> bytes:
    """The answer to a request that is made while 50 connections are half open."""
    async with page_server() as browser_auth:
        crowd = [await asyncio.open_connection(LOOPBACK, browser_auth.port) for _ in range(50)]
        for _, writer in crowd:
            writer.write(b"GET / HTTP/1.1\r\n")
        answer = await answer_to(browser_auth.port, get(browser_auth.port, "/none"))
        for _, writer in crowd:
            writer.close()
    return answer


def test_requests_that_run_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS_PER_ADDRESS", 3)
    assert asyncio.run(answer_among_streams()) == b""


async def answer_among_streams() -> bytes:
    """The answer to a request that is made while three others run."""

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b":", "more_body": True})
        await stopped.wait()

    stopped = asyncio.Event()
    async with serve_local_pages(stream, PageAddress(), stopped.set) as (browser_auth, _host):
        port = browser_auth.port
        session = await session_header(browser_auth)
        streams = [await asyncio.open_connection(LOOPBACK, port) for _ in range(3)]
        for reader, writer in streams:
            writer.write(get(port, "/", session))
            await reader.readuntil(b"\r\n\r\n")
        try:
            return await answer_to(port, get(port))
        except ConnectionError:
            return b""
        finally:
            for _, writer in streams:
                writer.close()


def test_connections_leave_descriptors_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft_limit, count in ((64, 16), (256, 64), (1 << 20, 500), (-1, 500), (10, 8)):
        monkeypatch.setattr(resource, "getrlimit", lambda _kind, soft=soft_limit: (soft, -1))
        assert http_server.connection_limit() == count


@pytest.mark.slow
def test_a_page_is_quiet_and_ends_though_nobody_reads_its_stderr() -> None:
    pods = ("-f", "examples/admission/pods.yaml", "--node", "examples/nodes/worker.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "nodewright", "admit", *pods, "--serve", "0"], stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        match = re.search(rb"127.0.0.1:([0-9]+)", process.stderr.readline())
        assert match is not None
        os.set_blocking(process.stderr.fileno(), False)
        port = int(match[1])

        async def send_garbage() -> None:
            for _ in range(100):
                await answer_to(port, b"\x16\x03\x01garbage\r\n\r\n")

        asyncio.run(send_garbage())
        written = process.stderr.read() or b""
        # The pipe is full from here on.
        filler = os.open(f"/proc/{process.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        try:
            while True:
                os.write(filler, b"x" * 4096)
        except BlockingIOError:
            os.close(filler)
        asyncio.run(answer_to(port, get(port)))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 3
    finally:
        process.kill()
        process.communicate()
    assert b"Invalid HTTP" not in written
