"""An agent whose container runtime does not answer as one."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("grpc")

from nodewright.cli.agent_runtime import Machinery, answering
from nodewright.cli.agent_stop import unless
from nodewright.testing.runtime import FakeClock, FakeRuntime, settle
from nodewright.world.clock import HostClock
from nodewright.world.cri import Channel, CRIImages, CRIRuntime
from nodewright.world.errors import WorldError


class Images:
    """Are where they are told."""

    async def place(self) -> str:
        return "/images"


def parts(runtime: Any, images: Any) -> Machinery:
    return Machinery(runtime=runtime, composer=cast("Any", SimpleNamespace()), images=images)


@contextmanager
def impostor(path: Path, says: bytes, *, hangs_up: bool) -> Iterator[None]:
    """Somebody who takes connections and is no runtime."""
    taken: list[socket.socket] = []

    def take() -> None:
        with suppress(OSError):
            while True:
                taken.append(door.accept()[0])
                taken[-1].sendall(says)
                if hangs_up:
                    taken.pop().close()

    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        thread = Thread(target=take)
        thread.start()
        try:
            yield
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in taken:
                each.close()


async def why_it_waits(path: Path) -> list[str]:
    """What an agent says until it is asked to end."""
    channel, told, stop = Channel(f"unix://{path}", patience=0.05), list[str](), asyncio.Event()

    def hear(why: str) -> None:
        told.append(why)
        stop.set()

    machinery = parts(CRIRuntime(channel), CRIImages(channel))
    assert await unless(stop, answering(machinery, HostClock(), hear)) is None
    await channel.close()
    return told


@pytest.mark.parametrize(
    ("says", "hangs_up", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\nwho are you?\n" * 20, False, "Failed parsing HTTP/2"),
        (b"", False, "no answer within 0.5 s"),
        (b"", True, ""),
    ],
)
def test_a_socket_that_is_no_runtimes_is_told_of(
    tmp_path: Path, says: bytes, hangs_up: bool, told: str
) -> None:
    path = tmp_path / "x.sock"
    with impostor(path, says, hangs_up=hangs_up):
        (why,) = asyncio.run(why_it_waits(path))
    assert why.startswith(f"Version unix://{path}: {told}")
    assert "all addresses" not in why


def test_a_socket_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    (why,) = asyncio.run(why_it_waits(tmp_path / "x.sock"))
    assert why == f"Version unix://{tmp_path}/x.sock: connect failed: No such file or directory"


def test_it_goes_on_with_the_answer_and_says_each_reason_once() -> None:
    async def waits() -> tuple[list[str], Any]:
        clock = FakeClock()
        runtime, told = FakeRuntime(clock), list[str]()
        for error in ("no such file", "no such file", "garbage"):
            runtime.fail("facts", error)
        task = asyncio.create_task(answering(parts(runtime, Images()), clock, told.append))
        for _ in range(4):
            await settle()
            await clock.advance(1)
        return told, await task

    told, (facts, place) = asyncio.run(waits())
    assert [one.rpartition(": ")[2] for one in told] == ["no such file", "garbage"]
    assert (facts.name, place) == ("fake", Path("/images"))


def test_processes_of_the_machine_are_not_waited_for() -> None:
    runtime = FakeRuntime(FakeClock())
    runtime.fail("facts", "Permission denied")
    with pytest.raises(WorldError, match="Permission denied"):
        asyncio.run(answering(parts(runtime, None), FakeClock(), pytest.fail))


def test_what_fails_while_nobody_asks_for_the_end_fails() -> None:
    async def fails() -> None:
        async def doing() -> None:
            raise WorldError("do", "it", "no")

        await unless(asyncio.Event(), doing())

    with pytest.raises(WorldError, match="do it: no"):
        asyncio.run(fails())
