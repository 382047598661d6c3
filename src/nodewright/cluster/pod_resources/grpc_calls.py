"""Decodes gRPC messages here, so that malformed ones and closed channels have errors of their own."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from grpc import StatusCode, aio

Reply = TypeVar("Reply", bound=Message)


class ChannelClosedError(Exception):
    """The channel was closed during a call."""


class MalformedResponseError(Exception):
    """The response is not a valid message of the expected type."""


async def request_message(
    data: bytes, request: type[Reply], context: "aio.ServicerContext[Any, Any]"
) -> Reply:
    """The request of a call to a server with ``bytes`` as deserializer; gRPC itself logs a traceback for a malformed one.

    Follows: grpc-go 1.79.3, server.go, processUnaryRPC: the code and the text of the answer.
    """
    try:
        return _decoded(data, request)
    except MalformedResponseError as error:
        await context.abort(StatusCode.INTERNAL, f"grpc: error unmarshalling request: {error}")
        raise AssertionError("abort always raises") from None


async def unary_response(call: Awaitable[bytes], reply: type[Reply], max_bytes: int | None = None) -> Reply:
    """The response to a call that was made with ``bytes`` as deserializer; larger ones are malformed.

    Errors: AioRpcError, ChannelClosedError, MalformedResponseError.
    """
    with _channel_closed_error():
        data = await call
    if max_bytes is not None and len(data) > max_bytes:
        raise MalformedResponseError(
            "rpc error: code = ResourceExhausted desc = grpc: received message larger than max "
            f"({len(data)} vs. {max_bytes})"
        )
    return _decoded(data, reply)


async def stream_responses(stream: AsyncIterable[bytes], reply: type[Reply]) -> AsyncIterator[Reply]:
    """The responses of a stream, as they arrive; gRPC itself ends the stream at a malformed response.

    Errors: as for `unary_response`.
    """
    with _channel_closed_error():
        async for data in stream:
            yield _decoded(data, reply)


@contextmanager
def _channel_closed_error() -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The task was not cancelled: gRPC raises CancelledError for a closed channel.
        raise ChannelClosedError from None


def _decoded(data: bytes, reply: type[Reply]) -> Reply:
    try:
        return reply.FromString(data)
    except DecodeError as error:
        raise MalformedResponseError(f"not a valid {reply.DESCRIPTOR.name}: {error}") from None
