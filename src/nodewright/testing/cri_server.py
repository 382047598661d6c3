"""A container runtime that answers what it is told to, over a real socket: for what the installed one does not do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc import aio as grpc_aio

from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri import channel
from nodewright.world.cri.channel import Call

_CALLS: dict[str, Call[Any, Any]] = {
    one.path: one for one in vars(channel).values() if isinstance(one, Call) and "/runtime.v1." in one.path
}

Answer: TypeAlias = Message | Callable[[Any], Message]


if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[Any, Any]
else:
    _Handler = grpc.GenericRpcHandler


class CRIServer(_Handler):
    """Answers calls by name; those without an answer it does not implement."""

    def __init__(self, name: str = "other", version: str = "1.0") -> None:
        self.asked: list[Message] = []
        self.news: asyncio.Queue[Message] | None = None
        """What it tells of changes; None: it has no such call."""
        self.answers: dict[str, Answer] = {
            "Version": cri.VersionResponse(
                runtime_name=name, runtime_version=version, runtime_api_version="v1"
            ),
            "Status": cri.StatusResponse(),
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Who answers a call; None: nobody."""
        call = _CALLS.get(handler_call_details.method)
        if call is channel.EVENTS and self.news is not None:
            return grpc.unary_stream_rpc_method_handler(self._stream, call.question.FromString, _bytes)
        if call is None or call.name not in self.answers:
            return None
        answer = self.answers[call.name]

        async def reply(question: Message, context: grpc_aio.ServicerContext[Any, Any]) -> Message:
            self.asked.append(question)
            if not isinstance(answer, Message):
                try:
                    return answer(question)
                except ValueError as error:
                    await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            return answer

        return grpc.unary_unary_rpc_method_handler(reply, call.question.FromString, _bytes)

    async def _stream(self, _question: Message, _context: object) -> AsyncIterator[Message]:
        assert self.news is not None
        while True:
            yield await self.news.get()


@asynccontextmanager
async def serving_cri(server: CRIServer, place: Path) -> AsyncIterator[str]:
    """Its endpoint."""
    running = grpc_aio.server()
    running.add_generic_rpc_handlers((server,))
    running.add_insecure_port(f"unix://{place}")
    await running.start()
    try:
        yield f"unix://{place}"
    finally:
        await running.stop(None)


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()
