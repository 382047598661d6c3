"""A line between an agent and its runtime that can be watched: something happens at the very moment of a call."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc
from grpc import aio as grpc_aio

if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[Any, Any]
else:
    _Handler = grpc.GenericRpcHandler

_STREAMS = ("Subscribe", "GetContainerEvents")
_MIDDLE_S = 0.02


class Moment(StrEnum):
    """When, seen from the runtime."""

    BEFORE = "before"
    """It has not heard of the call."""
    DURING = "during"
    AFTER = "after"
    """It has done it, and the agent does not know."""


class Proxy(_Handler):
    """Passes calls on, for `with`; at the point that is set ``act`` is called, once."""

    def __init__(self, place: Path, runtime: str) -> None:
        self.endpoint, self._runtime = f"unix://{place}", runtime
        self.point: tuple[str, Moment] | None = None
        self.act: Callable[[], None] = lambda: None
        self.acted = threading.Event()
        self.calls: list[str] = []
        self._is_up, self._loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        """Whoever is called, the runtime is meant."""
        method = str(handler_call_details.method)
        name = method.rpartition("/")[2]

        async def one(question: bytes, _context: object) -> bytes:
            self.calls.append(name)
            if self._is_at(name, Moment.BEFORE):
                self._strike()
            call = asyncio.ensure_future(self._line.unary_unary(method, _unchanged, _unchanged)(question))
            if self._is_at(name, Moment.DURING):
                await asyncio.sleep(_MIDDLE_S)
                self._strike()
            reply: bytes = await call
            if self._is_at(name, Moment.AFTER):
                self._strike()
            return reply

        async def many(question: bytes, context: grpc_aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
            try:
                async for reply in self._line.unary_stream(method, _unchanged, _unchanged)(question):
                    yield reply
            except grpc_aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")

        if name in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(many)
        return grpc.unary_unary_rpc_method_handler(_passing_errors(one))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(10)
        self._loop.close()

    def _is_at(self, name: str, moment: Moment) -> bool:
        return self.point == (name, moment)

    def _strike(self) -> None:
        # Two calls may be at the point at once.
        if self.point is None:
            return
        self.point = None
        self.act()
        self.acted.set()

    async def _serve(self) -> None:
        self._done, self._line = asyncio.Event(), grpc_aio.insecure_channel(self._runtime)
        server = grpc_aio.server()
        server.add_generic_rpc_handlers((self,))
        server.add_insecure_port(self.endpoint)
        await server.start()
        self._is_up.set()
        await self._done.wait()
        await server.stop(None)
        await self._line.close(None)


def _unchanged(content: bytes) -> bytes:
    return content


def _passing_errors(one: Callable[[bytes, Any], Any]) -> Callable[[bytes, Any], Any]:
    """Errors of the runtime are passed on as they are."""

    async def pass_on(question: bytes, context: grpc_aio.ServicerContext[Any, Any]) -> bytes:
        try:
            return bytes(await one(question, context))
        except grpc_aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        raise AssertionError

    return pass_on
