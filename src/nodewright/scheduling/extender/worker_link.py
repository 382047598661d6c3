"""A connection between the process that schedulers call and one of its workers: numbered requests and answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from nodewright.scheduling.extender.shard_messages import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    NumberedAnswer,
    NumberedRequest,
    ShareAnswer,
    ShareRequest,
    framed,
)

ANSWER_S = 10.0
"""How long an answer may take: longer than schedulers wait for theirs."""
T = TypeVar("T")


class WorkerLostError(Exception):
    """The worker does not run, or does not answer."""


class WorkerLink:
    """Requests to a worker, answered in any order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[ShareAnswer]] = {}
        self._number = 0

    async def ask(self, request: ShareRequest) -> ShareAnswer:
        """The worker's answer.

        Errors: WorkerLostError.
        """
        self._number = number = self._number + 1
        future: asyncio.Future[ShareAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(framed(NumberedRequest(number, request)))
            async with asyncio.timeout(ANSWER_S):
                return await future
        except (TimeoutError, ConnectionError, RuntimeError) as error:
            raise WorkerLostError(str(error) or "no answer") from None
        finally:
            self._waiting.pop(number, None)

    async def run(self) -> None:
        """Takes the answers until the connection ends, and closes it."""
        try:
            while (message := await read_frame(self._reader, NumberedAnswer)) is not None:
                future = self._waiting.get(message.number)
                if future is not None and not future.done():
                    future.set_result(message.answer)
        finally:
            self._writer.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(WorkerLostError("the worker has ended"))


async def answer_requests(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Callable[[ShareRequest], Awaitable[ShareAnswer]],
) -> None:
    """Answers the requests of a connection until it ends."""

    async def reply(message: NumberedRequest) -> None:
        writer.write(framed(NumberedAnswer(message.number, await answer(message.request))))

    async with asyncio.TaskGroup() as tasks:
        while (message := await read_frame(reader, NumberedRequest)) is not None:
            tasks.create_task(reply(message))


async def read_frame(
    reader: asyncio.StreamReader, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None
) -> T | None:
    """The next message of a connection; None at its end.

    ``dec_hook``: as in `msgspec.msgpack.decode`.
    """
    try:
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        assert length <= MAX_FRAME_BYTES
        content = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return msgspec.msgpack.decode(content, type=kind, dec_hook=dec_hook)
