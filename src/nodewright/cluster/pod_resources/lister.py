"""PodResources v1: a client for a kubelet's or an agent's socket, and conversions of its messages."""

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from nodewright.cluster.pod_resources import api_pb2 as v1
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.pod_resources_api import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.values.idset import LARGEST_ID, CPUSet

SERVICE = "v1.PodResourcesLister"


class InvalidResponseError(ValueError):
    """A response that no kubelet gives; the text says what is wrong."""


def pod_message(resources: PodResources) -> v1.PodResources:
    """The message of a pod."""
    return v1.PodResources(
        name=resources.name,
        namespace=resources.namespace,
        containers=[
            v1.ContainerResources(
                name=container.name,
                devices=_device_messages(container.devices),
                cpu_ids=list(container.cpus),
                memory=_memory_messages(container.memory),
            )
            for container in resources.containers
        ],
        cpu_ids=list(resources.cpus),
        memory=_memory_messages(resources.memory),
    )


def allocatable_message(resources: AllocatableResources) -> v1.AllocatableResourcesResponse:
    """The message of the allocatable resources."""
    return v1.AllocatableResourcesResponse(
        devices=_device_messages(resources.devices),
        cpu_ids=list(resources.cpus),
        memory=_memory_messages(resources.memory),
    )


def pod_from_message(message: v1.PodResources) -> PodResources:
    """The pod that a message describes.

    Errors: InvalidResponseError.
    """
    if not message.name or not message.namespace:
        raise InvalidResponseError(f"a pod without name or namespace: {message.namespace!r}/{message.name!r}")
    owner = f"pod {message.namespace}/{message.name}, container"
    return PodResources(
        namespace=message.namespace,
        name=message.name,
        containers=tuple(
            ContainerResources(
                name=container.name,
                devices=_devices(container.devices, f"{owner} {container.name}"),
                cpus=_cpus(container.cpu_ids, f"{owner} {container.name}"),
                memory=_memory(container.memory, f"{owner} {container.name}"),
            )
            for container in message.containers
        ),
        cpus=_cpus(message.cpu_ids, f"pod {message.namespace}/{message.name}"),
        memory=_memory(message.memory, f"pod {message.namespace}/{message.name}"),
    )


def allocatable_from_message(message: v1.AllocatableResourcesResponse) -> AllocatableResources:
    """The allocatable resources that a message describes.

    Errors: InvalidResponseError.
    """
    return AllocatableResources(
        devices=_devices(message.devices, "allocatable"),
        cpus=_cpus(message.cpu_ids, "allocatable"),
        memory=_memory(message.memory, "allocatable"),
    )


def _device_messages(devices: Iterable[ContainerDevices]) -> list[v1.ContainerDevices]:
    return [
        v1.ContainerDevices(
            resource_name=device.resource,
            device_ids=list(device.ids),
            topology=None if device.numa_nodes is None else _topology(device.numa_nodes),
        )
        for device in devices
    ]


def _memory_messages(blocks: Iterable[MemoryBlock]) -> list[v1.ContainerMemory]:
    return [
        v1.ContainerMemory(memory_type=block.type, size=block.size, topology=_topology(block.numa_nodes))
        for block in blocks
    ]


def _topology(numa_nodes: Iterable[int]) -> v1.TopologyInfo:
    return v1.TopologyInfo(nodes=[v1.NUMANode(ID=numa) for numa in numa_nodes])


def _devices(messages: Iterable[v1.ContainerDevices], owner: str) -> tuple[ContainerDevices, ...]:
    return tuple(
        ContainerDevices(
            message.resource_name,
            tuple(message.device_ids),
            _numa_nodes(message.topology, owner) if message.HasField("topology") else None,
        )
        for message in messages
    )


def _memory(messages: Iterable[v1.ContainerMemory], owner: str) -> tuple[MemoryBlock, ...]:
    return tuple(
        MemoryBlock(_numa_nodes(message.topology, owner), message.memory_type, message.size)
        for message in messages
    )


def _numa_nodes(topology: v1.TopologyInfo, owner: str) -> tuple[int, ...]:
    return tuple(_checked([node.ID for node in topology.nodes], "NUMA node", owner))


def _cpus(ids: Sequence[int], owner: str) -> CPUSet:
    return CPUSet.from_ids(_checked(ids, "CPU", owner))


def _checked(ids: Sequence[int], what: str, owner: str) -> Sequence[int]:
    for id_ in ids:
        if not 0 <= id_ <= LARGEST_ID:
            raise InvalidResponseError(f"{owner}: there is no {what} {id_}")
    return ids


MessageT = TypeVar("MessageT")
ValueT = TypeVar("ValueT")
ResponseMessage = TypeVar("ResponseMessage", bound=Message)

DEFAULT_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
TIMEOUT_S = 10.0
"""Time limit of a response, as other clients of kubelets have it."""

_OPERATION = "ask PodResources at"
_MAX_MESSAGE_BYTES = 16 << 20
_MAX_PATH_LENGTH = 107
_OPTIONS = (
    # Servers written in Rust reject the path of a socket as an authority.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_HINTS = {
    grpc.StatusCode.UNIMPLEMENTED: "the server does not implement PodResources v1",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "too many requests, or the response is too large",
}


class PodResourcesClient:
    """A client of a PodResources socket; each call opens a connection of its own."""

    def __init__(self, path: Path = DEFAULT_SOCKET, limit_s: float = TIMEOUT_S) -> None:
        self.path, self._limit_s = path, limit_s

    def pods(self) -> tuple[PodResources, ...]:
        """The active pods and their containers' resources, by name.

        Errors: HostError where no response comes in time, or the response is invalid.
        """
        response_type = self._call("List", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)
        resources = [self._converted(pod_from_message, resource) for resource in response_type.pod_resources]
        return tuple(sorted(resources, key=lambda pod: pod.full_name))

    def allocatable(self) -> AllocatableResources:
        """The allocatable resources; errors as `pods`."""
        request = v1.AllocatableResourcesRequest()
        return self._converted(
            allocatable_from_message,
            self._call("GetAllocatableResources", request, v1.AllocatableResourcesResponse),
        )

    def pod(self, namespace: str, name: str) -> PodResources:
        """One active pod; errors as `pods`, also for an unknown pod."""
        request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return self._converted(
            pod_from_message, self._call("Get", request, v1.GetPodResourcesResponse).pod_resources
        )

    def _call(self, call: str, request: Message, response_type: type[ResponseMessage]) -> ResponseMessage:
        _check_socket(self.path)
        with grpc.insecure_channel(f"unix:{self.path}", options=_OPTIONS) as channel:
            method = channel.unary_unary(
                f"/{SERVICE}/{call}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=_bytes,
            )
            try:
                content = method(request, timeout=self._limit_s)
            except grpc.RpcError as error:
                raise self._call_error(error, call) from None
        try:
            return response_type.FromString(content)
        except DecodeError as error:
            raise self._error(f"no answer of {call}: {error}") from None

    def _converted(self, read: Callable[[MessageT], ValueT], message: MessageT) -> ValueT:
        try:
            return read(message)
        except InvalidResponseError as error:
            raise self._error(str(error)) from None

    def _error(self, text: str) -> HostError:
        return HostError(_OPERATION, str(self.path), text)

    def _call_error(self, error: grpc.RpcError, call: str) -> HostError:
        # gRPC errors carry code and details, which the stubs declare for another class.
        code, details = error.code(), error.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._error(f"no answer to {call} within {self._limit_s:g} s")
        text = details or code.name
        if code is grpc.StatusCode.UNAVAILABLE:
            text = f"no kubelet answers: {text}"
        hint = _HINTS.get(code)
        return self._error(f"{text} ({hint})" if hint else text)


def _check_socket(path: Path) -> None:
    """Checks the socket first, for clearer errors than gRPC's.

    Errors: HostError.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise HostError(_OPERATION, str(path), "no such socket: is the kubelet running?") from None
    except OSError as error:
        raise HostError(_OPERATION, str(path), error.strerror or str(error)) from None
    if not stat.S_ISSOCK(mode):
        raise HostError(_OPERATION, str(path), "not a socket")
    if not os.access(path, os.W_OK):
        raise HostError(
            _OPERATION, str(path), "permission denied: most kubelets' sockets are accessible to root only"
        )
    if len(os.fsencode(path)) > _MAX_PATH_LENGTH:
        raise HostError(_OPERATION, str(path), f"socket paths have at most {_MAX_PATH_LENGTH} bytes")


def _bytes(content: bytes) -> bytes:
    return content
