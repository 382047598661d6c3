"""A line to a runtime that is not there, says nothing, or says what nobody understands."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodewright.world.cri import Channel
from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri.channel import VERSION, TooLate
from nodewright.world.errors import WorldError

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


def refusal_at(place: Path) -> WorldError:
    """What a first question comes to."""

    async def ask() -> WorldError:
        channel = Channel(str(place), patience=0.05)
        try:
            with pytest.raises(WorldError) as refused:
                await channel.ask(VERSION, cri.VersionRequest(), "")
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


def test_a_socket_at_which_nobody_answers(tmp_path: Path) -> None:
    with answering(tmp_path / "dumb.sock", None):
        refused = refusal_at(tmp_path / "dumb.sock")
    assert isinstance(refused, TooLate)
    assert refused.error == "no answer within 0.5 s"
