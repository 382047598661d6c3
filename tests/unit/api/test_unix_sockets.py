"""Servers that begin with the first who asks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.agent_bench import async_test

from nodewright.api.unix_sockets import ServerFactory, remove_socket, serve_on_demand
from nodewright.errors import HostError


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
        remove_socket(path)


async def answer(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    said = await reader.readline()
    writer.close()
    return said


def test_it_starts_once_at_the_first_connection_and_cleans_up(tmp_path: Path) -> None:
    @async_test
    async def story() -> None:
        begun: list[None] = []

        def load() -> ServerFactory:
            begun.append(None)
            return shouting

        async with serve_on_demand(tmp_path / "s", "--option", load):
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
    @async_test
    async def story() -> None:
        tries: list[None] = []

        def load() -> ServerFactory:
            tries.append(None)
            if len(tries) == 1:
                raise HostError("begin", "s", "not now")
            return shouting

        async with serve_on_demand(tmp_path / "s", "--option", load):
            assert await answer(tmp_path / "s", b"hello\n") == b""
            assert await answer(tmp_path / "s", b"hello\n") == b"HELLO\n"

    story()
