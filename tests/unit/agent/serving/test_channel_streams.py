"""Exec and attach by WebSocket for plain processes: channels, closing, sizes, and clients that leave."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wsproto", reason="wsproto is not installed: `make setup` installs it")

from tests.support.channel_client import CLOSE, STDIN, channels
from tests.support.kubelet_api import HTTPSAgent, http_request

from nodewright.agent.host.ports import (
    STDERR,
    STDOUT,
    AttachStreamRequest,
    ExecStreamRequest,
    ProcessSession,
    StandardStreams,
)
from nodewright.agent.serving import channel_streams
from nodewright.model.errors import HostError
from nodewright.testing.objects import a_pod

EXEC = "/exec/default/web/main?command=cat&input=1&output=1&error=1"


class EchoSession:
    """A process that writes its input to both outputs, and ends with the code 7 after it."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.taken = 0
        self.error: HostError | None = None
        self.is_silent = False

    async def write(self, data: bytes) -> None:
        await self.may_read.wait()
        self.taken += len(data)
        await self.input.put(data)

    def close_stdin(self) -> None:
        self.input.put_nowait(None)

    def resize(self, width: int, height: int) -> None:
        self.sizes.append((width, height))

    async def copy_output(self, send: Callable[[int, bytes], Awaitable[None]]) -> int:
        if self.error is not None:
            raise self.error
        while (data := await self.input.get()) is not None:
            if self.is_silent:
                continue
            await send(STDOUT, data)
            await send(STDERR, data.upper())
        return 7


class EchoStreams:
    """A runtime of such processes."""

    def __init__(self) -> None:
        self.requests: list[ExecStreamRequest | AttachStreamRequest] = []
        self.session = EchoSession()
        self.closed = asyncio.Event()

    @asynccontextmanager
    async def open(self, request: ExecStreamRequest | AttachStreamRequest) -> AsyncIterator[ProcessSession]:
        self.requests.append(request)
        try:
            yield self.session
        finally:
            self.closed.set()


ChannelTest = Callable[[HTTPSAgent, EchoStreams], Coroutine[Any, Any, None]]


def with_processes(test: ChannelTest) -> Callable[[Path], None]:
    """The test with an agent of plain processes, and the pod `web`."""

    @wraps(test)
    def running(tmp_path: Path) -> None:
        async def run() -> None:
            node, streams = HTTPSAgent(tmp_path), EchoStreams()
            node.process_streams = streams
            async with node:
                await node.bench.add_pods(a_pod("web"))
                await test(node, streams)

        asyncio.run(run())

    del running.__wrapped__
    return running


@with_processes
async def test_the_streams_have_channels_and_the_end_a_status(node: HTTPSAgent, streams: EchoStreams) -> None:
    async with channels(node, EXEC) as client:
        assert client.protocol == "v5.channel.k8s.io"
        client.write(STDIN, b"hello ")
        client.write(STDIN, b"there")
        await client.until(STDERR, b"HELLO THERE")
        client.write(CLOSE, bytes([STDIN]))
        status = await client.status()
        assert client.received[STDOUT] == b"hello there"
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    await asyncio.wait_for(streams.closed.wait(), 60)
    (request,) = streams.requests
    assert isinstance(request, ExecStreamRequest)
    assert request.command == ("cat",)
    assert request.streams == StandardStreams(stdin=True, stdout=True, stderr=True)


@with_processes
async def test_attach_refuses_an_input_that_no_process_would_read(
    node: HTTPSAgent, streams: EchoStreams
) -> None:
    response = await node.request("/attach/default/web/main?input=1&output=1", "writes", method="POST")
    assert response.status == 400
    assert "attach without -i, or run a command with kubectl exec -i" in response.text
    assert streams.requests == []


@with_processes
async def test_the_older_protocol_cannot_close_a_stream(node: HTTPSAgent, streams: EchoStreams) -> None:
    async with channels(node, EXEC, "v9.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io") as client:
        assert client.protocol == "v4.channel.k8s.io"
        client.write(CLOSE, bytes([STDIN]))
        client.write(STDIN, b"more")
        await client.until(STDERR, b"MORE")
    await asyncio.wait_for(streams.closed.wait(), 60)


@with_processes
async def test_sizes_pings_and_nonsense(node: HTTPSAgent, streams: EchoStreams) -> None:
    async with channels(node, EXEC) as client:
        client.resize(80, 24)
        client.resize(1 << 20, 0)
        for channel, data in (
            (4, b"{"),
            (4, b'{"Width":-1}'),
            (4, b"x" * 9000),
            (9, b"?"),
            (255, b""),
            (255, b"\7"),
        ):
            client.write(channel, data)
        client.ping()
        client.write(STDIN, b"on")
        await client.until(STDERR, b"ON")
        assert client.pongs == 1
    assert streams.session.sizes == [(80, 24), (65535, 0)]


@pytest.mark.parametrize("last", [b"\x88\x80\0\0\0\0", b"\xff\xff", b"\x82\x01x"])
def test_a_process_that_ends_as_its_client_leaves_is_no_error(
    last: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @with_processes
    async def run_scenario(node: HTTPSAgent, streams: EchoStreams) -> None:
        session = streams.session
        monkeypatch.setattr(EchoSession, "resize", lambda *_: session.close_stdin())
        async with channels(node, EXEC) as client:
            client.send_bytes(b"\x82\x93\0\0\0\0\x04" + b'{"Width":1,"a":42}' + last)
            await asyncio.wait_for(streams.closed.wait(), 60)

    run_scenario(tmp_path)
    assert not caplog.records


@with_processes
async def test_a_client_that_leaves_ends_the_process(node: HTTPSAgent, streams: EchoStreams) -> None:
    async with channels(node, EXEC) as client:
        client.abort()
        await asyncio.wait_for(streams.closed.wait(), 60)


@pytest.mark.slow
@with_processes
async def test_a_process_that_does_not_read_stops_its_client(node: HTTPSAgent, streams: EchoStreams) -> None:
    streams.session.may_read.clear()
    streams.session.is_silent = True
    chunk, count = bytes(1 << 16), 256
    async with channels(node, EXEC) as client:

        async def pump() -> None:
            for _ in range(count):
                client.write(STDIN, chunk)
                await client._writer.drain()
            client.write(CLOSE, bytes([STDIN]))

        pumping = asyncio.ensure_future(pump())
        await asyncio.sleep(0.5)
        assert not pumping.done()
        streams.session.may_read.set()
        await client.status()
        await pumping
        assert streams.session.taken == count * len(chunk)


@with_processes
async def test_an_error_of_the_streams_is_the_status(node: HTTPSAgent, streams: EchoStreams) -> None:
    streams.session.error = HostError("read log", "/log", "gone")
    async with channels(node, EXEC) as client:
        status = await client.status()
    assert (status["status"], status["message"], status["code"]) == ("Failure", "gone", 500)


@with_processes
async def test_silent_clients_are_pinged(node: HTTPSAgent, streams: EchoStreams) -> None:
    del streams
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel_streams, "PING_PERIOD_S", 0.01)
        async with channels(node, EXEC) as client:
            assert await client._reader.readuntil(b"\x89\x00")


@with_processes
async def test_other_clients_get_a_reason(node: HTTPSAgent, streams: EchoStreams) -> None:
    context = node.client()
    for path, headers, text in (
        (
            EXEC,
            {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"},
            "need a WebSocket with one of the protocols v5",
        ),
        (EXEC, {}, "need a WebSocket"),
        (EXEC, {"Connection": "Upgrade", "Upgrade": "websocket"}, "need a WebSocket"),
        (
            EXEC,
            {
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
                "Sec-WebSocket-Version": "7",
            },
            "no WebSocket handshake",
        ),
        (
            "/portForward/default/web",
            {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"},
            "no network of its own",
        ),
    ):
        requested = {"Authorization": "Bearer writes", **headers}
        response = await http_request(node.places[0], path, requested, method="POST", context=context)
        assert response.status == 400, path
        assert text in response.text
    assert streams.closed.is_set() is False
    async with channels(node, EXEC, token="reads") as client:  # noqa: S106 - of a test
        assert client.refusal.startswith("403")
