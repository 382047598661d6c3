"""Servers that begin with the first who asks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from nodewright.api.on_demand import Begin, serving_on_demand
from nodewright.api.sockets import leave_place
from nodewright.testing.agents import running
from nodewright.world.errors import WorldError


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
        leave_place(path)


async def answer(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    said = await reader.readline()
    writer.close()
    return said


def test_it_begins_once_with_the_first_who_asks_and_leaves_nothing(tmp_path: Path) -> None:
    @running
    async def story() -> None:
        begun: list[None] = []

        def load() -> Begin:
            begun.append(None)
            return shouting

        async with serving_on_demand(tmp_path / "s", "--option", load):
            assert begun == []
            said = await asyncio.gather(*(answer(tmp_path / "s", b"hello\n") for _ in range(5)))
            assert set(said) == {b"HELLO\n"}
            assert len(begun) == 1
            _, lingering = await asyncio.open_unix_connection(tmp_path / "s")
        lingering.close()
        await asyncio.sleep(0)

    story()
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_begin_turns_people_away_and_is_tried_again(tmp_path: Path) -> None:
    @running
    async def story() -> None:
        tries: list[None] = []

        def load() -> Begin:
            tries.append(None)
            if len(tries) == 1:
                raise WorldError("begin", "s", "not now")
            return shouting

        async with serving_on_demand(tmp_path / "s", "--option", load):
            assert await answer(tmp_path / "s", b"hello\n") == b""
            assert await answer(tmp_path / "s", b"hello\n") == b"HELLO\n"

    story()
