"""PodResources v1 on a unix socket, as the kubelet serves it: who may open the file may ask."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from nodewright.agent.values import PodRecord, Stage
from nodewright.api.agent import Agent
from nodewright.api.rate_limit import RateLimit
from nodewright.api.sockets import clear_place, leave_place
from nodewright.node.pod_resources import allocatable_resources, pod_resources
from nodewright.world.errors import WorldError
from nodewright.world.podresources import api_pb2 as v1
from nodewright.world.podresources.messages import SERVICE, allocatable_message, pod_message

Question = TypeVar("Question", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Answer = Callable[[Question, "Context"], Awaitable[Reply]]

PER_SECOND, AT_ONCE = 100, 10
"""As many questions as a kubelet answers."""
DIRECTORY, SOCKET = "pod-resources", "kubelet.sock"

_ACTIVE = (Stage.WAITING, Stage.ACTIVE, Stage.ENDING)
_OVER = ("Succeeded", "Failed")
_GONE_WITHIN_S = 0.2

Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class PodResourcesServer:
    """The answers of the service, out of what the agent knows now.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go; pkg/kubelet/apis/grpc/ratelimit.go.
    Departs: pods in the order of their names.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._limit = RateLimit(agent.clock, PER_SECOND, AT_ONCE)

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """All calls of the service."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "List": self._call(self.pods, v1.ListPodResourcesRequest),
                "GetAllocatableResources": self._call(self.allocatable, v1.AllocatableResourcesRequest),
                "Get": self._call(self.pod, v1.GetPodResourcesRequest),
            },
        )

    async def pods(
        self, _asked: v1.ListPodResourcesRequest, _context: Context
    ) -> v1.ListPodResourcesResponse:
        """The active pods; with the gate KubeletPodResourcesListUseActivePods off, those that have ended, too."""
        node = self._agent.board.mind.node
        only_active = node.config.gates["KubeletPodResourcesListUseActivePods"]
        pods = [one.pod for one in self._agent.pods() if is_active(one) or not only_active]
        return v1.ListPodResourcesResponse(
            pod_resources=[pod_message(pod_resources(node, pod)) for pod in pods]
        )

    async def allocatable(
        self, _asked: v1.AllocatableResourcesRequest, _context: Context
    ) -> v1.AllocatableResourcesResponse:
        """What containers can have for themselves."""
        return allocatable_message(allocatable_resources(self._agent.board.mind.node))

    async def pod(self, asked: v1.GetPodResourcesRequest, context: Context) -> v1.GetPodResourcesResponse:
        """One active pod."""
        record = self._agent.find(asked.pod_namespace, asked.pod_name)
        if record is None or not is_active(record):
            said = f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, said)
        found = pod_resources(self._agent.board.mind.node, record.pod)
        return v1.GetPodResourcesResponse(pod_resources=pod_message(found))

    def _call(
        self, answer: "Answer[Question, Reply]", question: type[Question]
    ) -> "grpc.RpcMethodHandler[Question, Reply]":
        async def limited(asked: Question, context: Context) -> Reply:
            if not self._limit.allows():
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            return await answer(asked, context)

        return grpc.unary_unary_rpc_method_handler(
            limited,
            request_deserializer=question.FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )


def is_active(record: PodRecord) -> bool:
    """Whether the kubelet would list the pod: it is admitted and has not ended, or is being ended.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, isPodInactive.
    """
    return record.stage in _ACTIVE and (record.stage is Stage.ENDING or record.status.phase not in _OVER)


@asynccontextmanager
async def serving_pod_resources(agent: Agent, path: Path) -> AsyncIterator[None]:
    """PodResources answers while this is entered.

    Errors: WorldError where somebody listens there, or the socket cannot be made.
    """
    server = aio.server(options=(("grpc.so_reuseport", 0), ("grpc.enable_http_proxy", 0)))
    server.add_generic_rpc_handlers((PodResourcesServer(agent).handlers(),))
    clear_place(path, "--pod-resources-socket")
    old = os.umask(0o177)
    try:
        # Read by root alone from the very beginning.
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise WorldError("listen on", str(path), str(error)) from None
    finally:
        os.umask(old)
    await server.start()
    try:
        yield
    finally:
        await server.stop(_GONE_WITHIN_S)
        leave_place(path)
