"""A line to a runtime that is not there, says nothing, or says what nobody understands."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc import aio as grpc_aio

from nodewright.agent.runtimes.cri import CRIChannel
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import GET_CONTAINER_EVENTS, VERSION, DeadlineExceededError
from nodewright.model.errors import HostError

if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[Any, Any]
else:
    _Handler = grpc.GenericRpcHandler

GARBAGE = b"HTTP/1.1 418 I'm a teapot\r\n\r\nshort and stout"


@contextmanager
def answering(place: Path, said: bytes | None) -> Iterator[None]:
    """Somebody at a socket who says this and hangs up; None: who never takes the call."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()

        def answer() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                with caller:
                    caller.sendall(said or b"")

        thread = threading.Thread(target=answer)
        if said is not None:
            thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
    if said is not None:
        thread.join()


def refusal_at(place: Path) -> HostError:
    """What a first question comes to."""

    async def ask() -> HostError:
        channel = CRIChannel(str(place), timeout_factor=0.05)
        try:
            with pytest.raises(HostError) as refused:
                await channel.call(VERSION, cri.VersionRequest(), "")
        finally:
            await channel.close()
        return refused.value

    return asyncio.run(ask())


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    refused = refusal_at(tmp_path / "none.sock")
    assert (refused.operation, refused.place) == ("Version", str(tmp_path / "none.sock"))
    assert os.strerror(2) in refused.error


@pytest.mark.parametrize("said", [GARBAGE, b""])
def test_a_socket_at_which_something_else_answers(said: bytes, tmp_path: Path) -> None:
    with answering(tmp_path / "odd.sock", said):
        assert refusal_at(tmp_path / "odd.sock").operation == "Version"


@pytest.mark.slow
def test_a_socket_without_a_server_is_an_error(tmp_path: Path) -> None:
    with answering(tmp_path / "dumb.sock", None):
        refused = refusal_at(tmp_path / "dumb.sock")
    assert isinstance(refused, DeadlineExceededError)
    assert refused.error == "no answer within 0.5 s"


class _Odd(_Handler):
    """Answers every call with what is no message."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def reply(_question: bytes, _context: object) -> bytes:
            return b"\xff" * 9

        async def stream(_question: bytes, _context: object) -> AsyncIterator[bytes]:
            yield b"\xff" * 9

        if handler_call_details.method == GET_CONTAINER_EVENTS.path:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(reply)


def test_answers_that_are_no_messages_are_errors_and_not_the_end(tmp_path: Path) -> None:
    async def ask() -> None:
        server = grpc_aio.server()
        server.add_generic_rpc_handlers((_Odd(),))
        server.add_insecure_port(f"unix://{tmp_path / 'odd.sock'}")
        await server.start()
        channel = CRIChannel(str(tmp_path / "odd.sock"))
        try:
            with pytest.raises(HostError, match="not a valid VersionResponse"):
                await channel.call(VERSION, cri.VersionRequest(), "")
            with pytest.raises(HostError, match="not a valid ContainerEventResponse"):
                [
                    event_response
                    async for event_response in channel.stream(GET_CONTAINER_EVENTS, cri.GetEventsRequest())
                ]
        finally:
            await channel.close()
            await server.stop(None)

    asyncio.run(ask())


def test_a_channel_closed_during_a_call_is_an_error_and_no_cancellation(tmp_path: Path) -> None:
    async def ask() -> None:
        channel = CRIChannel(str(tmp_path / "dumb.sock"))
        asking = asyncio.create_task(channel.call(VERSION, cri.VersionRequest(), ""))
        hearing = asyncio.create_task(anext(channel.stream(GET_CONTAINER_EVENTS, cri.GetEventsRequest())))
        await asyncio.sleep(0.1)
        await channel.close()
        for task in (asking, hearing):
            with pytest.raises(HostError, match="the connection to the runtime was closed"):
                await task

    with answering(tmp_path / "dumb.sock", None):
        asyncio.run(ask())
