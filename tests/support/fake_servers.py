"""A fake container runtime with configured answers on a real socket, for behaviour that the installed one lacks.

A PodResources socket that says what it is told to, for tests of those who ask one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc import aio as grpc_aio

from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri import channel
from nodewright.agent.runtimes.cri.channel import RuntimeCall
from nodewright.cluster.pod_resources import api_pb2 as v1
from nodewright.cluster.pod_resources.lister import SERVICE, allocatable_message, pod_message
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_resources_view import allocatable_resources, pod_resources_of

_CALLS: dict[str, RuntimeCall[Any, Any]] = {
    var.path: var
    for var in vars(channel).values()
    if isinstance(var, RuntimeCall) and "/runtime.v1." in var.path
}

Answer: TypeAlias = Message | Callable[[Any], Message]


if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[Any, Any]
else:
    _Handler = grpc.GenericRpcHandler


class FakeCRIServer(_Handler):
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
        """The handler of a call, or None."""
        call = _CALLS.get(handler_call_details.method)
        if call is channel.GET_CONTAINER_EVENTS and self.news is not None:
            return grpc.unary_stream_rpc_method_handler(self._stream, call.request_type.FromString, _bytes)
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

        return grpc.unary_unary_rpc_method_handler(reply, call.request_type.FromString, _bytes)

    async def _stream(self, _question: Message, _context: object) -> AsyncIterator[Message]:
        assert self.news is not None
        while True:
            yield await self.news.get()


@asynccontextmanager
async def cri_endpoint(server: FakeCRIServer, place: Path) -> AsyncIterator[str]:
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


@contextmanager
def serve_pod_resources(path: Path, node: NodeState) -> Iterator[None]:
    """A PodResources socket for this node, as of its kubelet."""
    pods = [pod_message(pod_resources_of(node, pod)) for pod in node.pods.values()]
    there = allocatable_resources(node)
    listed = v1.ListPodResourcesResponse(pod_resources=pods).SerializeToString()
    with serve_raw_answers(
        path, List=listed, GetAllocatableResources=allocatable_message(there).SerializeToString()
    ):
        yield


@contextmanager
def serve_raw_answers(path: Path, **answers: bytes) -> Iterator[None]:
    """A socket at which calls of these names are answered with these bytes, and others not."""
    server = grpc.server(ThreadPoolExecutor(1))
    calls = {
        name: grpc.unary_unary_rpc_method_handler(
            partial(_answered, answer), request_deserializer=bytes, response_serializer=bytes
        )
        for name, answer in answers.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def _answered(answer: bytes, _asked: bytes, _context: Any) -> bytes:
    return answer
