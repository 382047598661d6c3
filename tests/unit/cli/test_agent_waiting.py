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

from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.assembly.node_shutdown import run_unless_stopped
from nodewright.agent.assembly.runtime_setup import RuntimeParts, wait_for_runtime
from nodewright.agent.runtimes.cri import CRIChannel, CRIImageStore, CRIRuntime
from nodewright.agent.runtimes.simulated import FakeRuntime
from nodewright.cluster.tasks.timing import HostClock
from nodewright.model.errors import HostError


class Images:
    """Are where they are told."""

    async def image_fs_path(self) -> str:
        return "/images"


def parts(runtime: Any, images: Any) -> RuntimeParts:
    return RuntimeParts(runtime=runtime, config_builder=cast("Any", SimpleNamespace()), image_store=images)


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
    channel, told, stop = CRIChannel(f"unix://{path}", timeout_factor=0.05), list[str](), asyncio.Event()

    def hear(why: str) -> None:
        told.append(why)
        stop.set()

    machinery = parts(CRIRuntime(channel), CRIImageStore(channel))
    assert await run_unless_stopped(stop, wait_for_runtime(machinery, HostClock(), hear)) is None
    await channel.close()
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("says", "hangs_up", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\nwho are you?\n" * 20, False, "Failed parsing HTTP/2"),
        (b"", False, "no answer within 0.5 s"),
        (b"", True, ""),
    ],
)
def test_a_socket_without_a_runtime_is_reported(
    tmp_path: Path, says: bytes, hangs_up: bool, told: str
) -> None:
    path = tmp_path / "x.sock"
    with impostor(path, says, hangs_up=hangs_up):
        (why,) = asyncio.run(why_it_waits(path))
    assert why.startswith(f"Version unix://{path}: {told}")
    assert "all addresses" not in why


def test_a_missing_socket_is_reported(tmp_path: Path) -> None:
    (why,) = asyncio.run(why_it_waits(tmp_path / "x.sock"))
    assert why == f"Version unix://{tmp_path}/x.sock: connect failed: No such file or directory"


def test_it_goes_on_with_the_answer_and_says_each_reason_once() -> None:
    async def waits() -> tuple[list[str], Any]:
        clock = FakeClock()
        runtime, told = FakeRuntime(clock), list[str]()
        for error in ("no such file", "no such file", "garbage"):
            runtime.fail("facts", error)
        task = asyncio.create_task(wait_for_runtime(parts(runtime, Images()), clock, told.append))
        for _ in range(4):
            await settle()
            await clock.advance(1)
        return told, await task

    told, (facts, place) = asyncio.run(waits())
    assert [text.rpartition(": ")[2] for text in told] == ["no such file", "garbage"]
    assert (facts.name, place) == ("fake", Path("/images"))


def test_processes_of_the_machine_are_not_waited_for() -> None:
    runtime = FakeRuntime(FakeClock())
    runtime.fail("facts", "Permission denied")
    with pytest.raises(HostError, match="Permission denied"):
        asyncio.run(wait_for_runtime(parts(runtime, None), FakeClock(), pytest.fail))


def test_an_error_before_shutdown_ends_the_agent() -> None:
    async def fails() -> None:
        async def doing() -> None:
            raise HostError("do", "it", "no")

        await run_unless_stopped(asyncio.Event(), doing())

    with pytest.raises(HostError, match="do it: no"):
        asyncio.run(fails())
