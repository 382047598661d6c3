"""PodResources v1 and v1alpha1 on a Unix socket, as the kubelet serves it: authorized by the file's permissions, rate-limited."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from nodewright.agent.decide.termination import LISTED_STAGES
from nodewright.agent.host.token_bucket import TokenBucket
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.agent_server import prepare_socket_path, remove_socket
from nodewright.agent.state.agent_state import PodRecord, PodStage
from nodewright.cluster.pod_resources import api_pb2 as v1
from nodewright.cluster.pod_resources.grpc_calls import request_message
from nodewright.cluster.pod_resources.lister import SERVICE, allocatable_message, pod_message
from nodewright.engine.core.claims.prepared_claims import PreparedClaim
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_resources_view import allocatable_resources, pod_resources_of
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod

RpcRequest = TypeVar("RpcRequest", bound=Message)
RpcResponse = TypeVar("RpcResponse", bound=Message)
RpcMethod = Callable[[RpcRequest, "Context"], Awaitable[RpcResponse]]

QPS, BURST_TOKENS = 100, 10
"""The kubelet's rate limit."""
_OLDER, _OLDER_SERVICE = "v1alpha1", "v1alpha1.PodResourcesLister"
DIRECTORY, SOCKET = "pod-resources", "kubelet.sock"

_TERMINAL_PHASES = ("Succeeded", "Failed")
_STOP_GRACE_S = 0.2

Context: TypeAlias = "aio.ServicerContext[Any, Any]"


def _dynamic_resource(claim: PreparedClaim) -> v1.DynamicResource:
    """A claim with its devices; the CDI names of a device include those of the driver's devices before it, as a kubelet's do.

    Follows: v1.36, pkg/kubelet/cm/container_manager_linux.go, GetDynamicResources.
    """
    resources = []
    for driver in sorted(claim.drivers):
        names: list[v1.CDIDevice] = []
        for device in claim.drivers[driver] or ():
            names = [*names, *(v1.CDIDevice(name=name) for name in device.cdi_devices or ())]
            resources.append(
                v1.ClaimResource(
                    cdi_devices=names,
                    driver_name=driver,
                    pool_name=device.pool,
                    device_name=device.device,
                    share_id=device.share_id,
                )
            )
    return v1.DynamicResource(
        claim_name=claim.name, claim_namespace=claim.namespace, claim_resources=resources
    )


class PodResourcesServer:
    """The methods of the service, with the agent's current state.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go; pkg/kubelet/apis/grpc/ratelimit.go.
    Departs: pods are sorted by name.
    """

    def __init__(self, agent: AgentInterface) -> None:
        self._agent = agent
        self._limit = TokenBucket(QPS, BURST_TOKENS)

    def handlers(self) -> "tuple[grpc.GenericRpcHandler[Any, Any], ...]":
        """All methods of the service, and the one of its older version, whose messages are a part of these."""
        older = grpc.method_handlers_generic_handler(
            _OLDER_SERVICE, {"List": self._call("list", self.devices, v1.ListPodResourcesRequest, _OLDER)}
        )
        service = grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "List": self._call("list", self.pods, v1.ListPodResourcesRequest),
                "GetAllocatableResources": self._call(
                    "get_allocatable", self.allocatable, v1.AllocatableResourcesRequest
                ),
                "Get": self._call("get", self.pod, v1.GetPodResourcesRequest),
            },
        )
        return service, older

    async def devices(
        self, _request: v1.ListPodResourcesRequest, _context: Context
    ) -> v1.ListPodResourcesResponse:
        """The devices of all pods, ended ones included, as v1alpha1 has them.

        Follows: v1.36, pkg/kubelet/apis/podresources/server_v1alpha1.go, List.
        """
        node = self._agent.event_recorder.state.node
        pods = []
        for record in self._agent.pods():
            names = {container.name for container in record.pod.spec.containers}
            message = pod_message(pod_resources_of(node, record.pod))
            containers = [
                v1.ContainerResources(
                    name=container.name,
                    devices=[
                        v1.ContainerDevices(resource_name=each.resource_name, device_ids=each.device_ids)
                        for each in container.devices
                    ],
                )
                for container in message.containers
                if container.name in names
            ]
            pods.append(
                v1.PodResources(name=message.name, namespace=message.namespace, containers=containers)
            )
        return v1.ListPodResourcesResponse(pod_resources=pods)

    async def pods(
        self, _request: v1.ListPodResourcesRequest, _context: Context
    ) -> v1.ListPodResourcesResponse:
        """The active pods; without the gate KubeletPodResourcesListUseActivePods also those that have ended."""
        node = self._agent.event_recorder.state.node
        only_active = node.config.gates["KubeletPodResourcesListUseActivePods"]
        pods = [record.pod for record in self._agent.pods() if is_active(record) or not only_active]
        return v1.ListPodResourcesResponse(pod_resources=[self._message(node, pod) for pod in pods])

    async def allocatable(
        self, _request: v1.AllocatableResourcesRequest, _context: Context
    ) -> v1.AllocatableResourcesResponse:
        """The resources that containers can use exclusively."""
        return allocatable_message(allocatable_resources(self._agent.event_recorder.state.node))

    async def pod(self, request: v1.GetPodResourcesRequest, context: Context) -> v1.GetPodResourcesResponse:
        """One active pod."""
        record = self._agent.find_pod(request.pod_namespace, request.pod_name)
        if record is None or not is_active(record):
            self._agent.pod_resources_calls["v1", "errors_get"] += 1
            text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        message = self._message(self._agent.event_recorder.state.node, record.pod)
        return v1.GetPodResourcesResponse(pod_resources=message)

    def _message(self, node: NodeState, pod: Pod) -> v1.PodResources:
        """What the pod has, with the claims of its containers.

        Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, getContainerResources.
        """
        message = pod_message(pod_resources_of(node, pod))
        containers = {container.name: container for container in pod.spec.all_containers}
        for each in (
            message.containers
            if pod.spec.resource_claims or pod.status.extended_resource_claim_status
            else ()
        ):
            claims = self._agent.claims_of_container(pod, containers[each.name])
            each.dynamic_resources.extend(map(_dynamic_resource, claims))
        return message

    def _call(
        self,
        name: str,
        method: "RpcMethod[RpcRequest, RpcResponse]",
        request_type: type[RpcRequest],
        version: str = "v1",
    ) -> "grpc.RpcMethodHandler[bytes, RpcResponse]":
        async def limited(data: bytes, context: Context) -> RpcResponse:
            if not self._limit.take(self._agent.clock.monotonic_s()):
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            request = await request_message(data, request_type, context)
            self._agent.pod_resources_calls[version, "requests_total"] += 1
            if version != _OLDER:
                self._agent.pod_resources_calls[version, f"requests_{name}"] += 1
            return await method(request, context)

        return grpc.unary_unary_rpc_method_handler(
            limited,
            request_deserializer=bytes,
            response_serializer=lambda response: response.SerializeToString(),
        )


def is_active(record: PodRecord) -> bool:
    """Whether the kubelet lists the pod: it is admitted and has not ended, or is terminating.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, isPodInactive.
    """
    return record.stage in LISTED_STAGES and (
        record.stage is PodStage.TERMINATING or record.status.phase not in _TERMINAL_PHASES
    )


@asynccontextmanager
async def serve_pod_resources(agent: AgentInterface, path: Path) -> AsyncIterator[None]:
    """Serves PodResources inside this context.

    Errors: HostError if another process listens there, or the socket cannot be created.
    """
    server = aio.server(options=(("grpc.so_reuseport", 0), ("grpc.enable_http_proxy", 0)))
    server.add_generic_rpc_handlers(PodResourcesServer(agent).handlers())
    prepare_socket_path(path, "--pod-resources-socket")
    old = os.umask(0o177)
    try:
        # The socket is accessible by root only from its creation.
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise HostError("listen on", str(path), str(error)) from None
    finally:
        os.umask(old)
    await server.start()
    try:
        yield
    finally:
        await server.stop(_STOP_GRACE_S)
        remove_socket(path)
