"""What comes over a line of gRPC: bytes that somebody else reads, and an end that can be told from being cancelled."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

Reply = TypeVar("Reply", bound=Message)


class LineClosedError(Exception):
    """The line was closed while something was being asked."""


class UnreadableError(Exception):
    """What was answered is no such message."""


async def answer(call: Awaitable[bytes], reply: type[Reply]) -> Reply:
    """The answer to a call that was made with ``bytes`` as deserializer.

    Errors: AioRpcError, LineClosedError, UnreadableError.
    """
    with _closing_told():
        said = await call
    return _read(said, reply)


async def answers(stream: AsyncIterable[bytes], reply: type[Reply]) -> AsyncIterator[Reply]:
    """All that is answered, as it comes; gRPC itself would take what it cannot read for the end.

    Errors: as for `answer`.
    """
    with _closing_told():
        async for said in stream:
            yield _read(said, reply)


@contextmanager
def _closing_told() -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Nobody has cancelled us: it is gRPC that says so of a line that was closed.
        raise LineClosedError from None


def _read(said: bytes, reply: type[Reply]) -> Reply:
    try:
        return reply.FromString(said)
    except DecodeError as error:
        raise UnreadableError(f"this is no {reply.DESCRIPTOR.name}: {error}") from None
