"""A gRPC channel to a container runtime: calls with time limits, failures as `HostError`, and the runtime's health."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode
from grpc import aio as grpc_aio

from nodewright.agent.host.ports import RuntimeHandler, RuntimeHealth
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.cluster.pod_resources.grpc_calls import (
    ChannelClosedError,
    MalformedResponseError,
    stream_responses,
    unary_response,
)
from nodewright.model.errors import HostError

RequestMessage = TypeVar("RequestMessage", bound=Message)
ResponseMessage = TypeVar("ResponseMessage", bound=Message)

READ_TIMEOUT_S, CHANGE_TIMEOUT_S, SANDBOX_TIMEOUT_S, PULL_TIMEOUT_S = 10.0, 120.0, 240.0, 3600.0
"""Time limits: of calls that read, of calls that change something, of a sandbox with its network, of a pull."""

_MAX_MESSAGE_BYTES = 16 << 20
_DEADLINE_TOLERANCE_S = 0.05
_GRPC_PREFIX = re.compile(r"^failed to connect to all addresses; last error: [A-Z_]+: (unix:\S+: )?")
_GRPC_ADDRESS = re.compile(r"\baddr: \S+ error: ")
_CLOSED = "the connection to the runtime was closed"


_RUNTIME, _IMAGES = "/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"


class RuntimeCall(NamedTuple, Generic[RequestMessage, ResponseMessage]):
    """One call of a service: its messages, and its time limit.

    Units: seconds.
    """

    request_type: type[RequestMessage]
    response_type: type[ResponseMessage]
    timeout_s: float
    service: str = _RUNTIME
    method: str = ""
    """Empty: the request's type is named after it."""

    @property
    def name(self) -> str:
        """The call's name without its service."""
        return self.method or self.request_type.__name__.removesuffix("Request")

    @property
    def path(self) -> str:
        """The call's name with its service."""
        return self.service + self.name


VERSION = RuntimeCall(cri.VersionRequest, cri.VersionResponse, READ_TIMEOUT_S)
STATUS = RuntimeCall(cri.StatusRequest, cri.StatusResponse, READ_TIMEOUT_S)
RUNTIME_CONFIG = RuntimeCall(cri.RuntimeConfigRequest, cri.RuntimeConfigResponse, READ_TIMEOUT_S)
GET_CONTAINER_EVENTS = RuntimeCall(
    cri.GetEventsRequest, cri.ContainerEventResponse, READ_TIMEOUT_S, method="GetContainerEvents"
)

RUN_POD_SANDBOX = RuntimeCall(cri.RunPodSandboxRequest, cri.RunPodSandboxResponse, SANDBOX_TIMEOUT_S)
STOP_POD_SANDBOX = RuntimeCall(cri.StopPodSandboxRequest, cri.StopPodSandboxResponse, CHANGE_TIMEOUT_S)
REMOVE_POD_SANDBOX = RuntimeCall(cri.RemovePodSandboxRequest, cri.RemovePodSandboxResponse, CHANGE_TIMEOUT_S)
LIST_POD_SANDBOX = RuntimeCall(cri.ListPodSandboxRequest, cri.ListPodSandboxResponse, READ_TIMEOUT_S)
POD_SANDBOX_STATUS = RuntimeCall(cri.PodSandboxStatusRequest, cri.PodSandboxStatusResponse, READ_TIMEOUT_S)

CREATE_CONTAINER = RuntimeCall(cri.CreateContainerRequest, cri.CreateContainerResponse, CHANGE_TIMEOUT_S)
START_CONTAINER = RuntimeCall(cri.StartContainerRequest, cri.StartContainerResponse, CHANGE_TIMEOUT_S)
STOP_CONTAINER = RuntimeCall(cri.StopContainerRequest, cri.StopContainerResponse, CHANGE_TIMEOUT_S)
REMOVE_CONTAINER = RuntimeCall(cri.RemoveContainerRequest, cri.RemoveContainerResponse, CHANGE_TIMEOUT_S)
LIST_CONTAINERS = RuntimeCall(cri.ListContainersRequest, cri.ListContainersResponse, READ_TIMEOUT_S)
CONTAINER_STATUS = RuntimeCall(cri.ContainerStatusRequest, cri.ContainerStatusResponse, READ_TIMEOUT_S)
UPDATE_CONTAINER_RESOURCES = RuntimeCall(
    cri.UpdateContainerResourcesRequest, cri.UpdateContainerResourcesResponse, CHANGE_TIMEOUT_S
)
EXEC_SYNC = RuntimeCall(cri.ExecSyncRequest, cri.ExecSyncResponse, CHANGE_TIMEOUT_S)
EXEC = RuntimeCall(cri.ExecRequest, cri.ExecResponse, READ_TIMEOUT_S)
ATTACH = RuntimeCall(cri.AttachRequest, cri.AttachResponse, READ_TIMEOUT_S)
PORT_FORWARD = RuntimeCall(cri.PortForwardRequest, cri.PortForwardResponse, READ_TIMEOUT_S)
REOPEN_CONTAINER_LOG = RuntimeCall(
    cri.ReopenContainerLogRequest, cri.ReopenContainerLogResponse, READ_TIMEOUT_S
)
LIST_CONTAINER_STATS = RuntimeCall(
    cri.ListContainerStatsRequest, cri.ListContainerStatsResponse, READ_TIMEOUT_S
)

IMAGE_STATUS = RuntimeCall(cri.ImageStatusRequest, cri.ImageStatusResponse, READ_TIMEOUT_S, _IMAGES)
LIST_IMAGES = RuntimeCall(cri.ListImagesRequest, cri.ListImagesResponse, READ_TIMEOUT_S, _IMAGES)
PULL_IMAGE = RuntimeCall(cri.PullImageRequest, cri.PullImageResponse, PULL_TIMEOUT_S, _IMAGES)
REMOVE_IMAGE = RuntimeCall(cri.RemoveImageRequest, cri.RemoveImageResponse, CHANGE_TIMEOUT_S, _IMAGES)
IMAGE_FS_INFO = RuntimeCall(cri.ImageFsInfoRequest, cri.ImageFsInfoResponse, READ_TIMEOUT_S, _IMAGES)


class NotFoundError(HostError):
    """The runtime has no object of this id."""


class UnimplementedError(HostError):
    """The runtime does not implement this call."""


class DeadlineExceededError(HostError):
    """No response came in time; the operation may have been done, or be done later."""


class CRIChannel:
    """The connection to the runtime at ``endpoint``; it reconnects when the runtime comes back.

    ``timeout_factor`` multiplies the time limits of all calls.
    """

    def __init__(self, endpoint: str, *, timeout_factor: float = 1.0) -> None:
        self.endpoint, self._timeout_factor = endpoint, timeout_factor
        self._channel: grpc_aio.Channel | None = None
        self.on_call: Callable[[str, str, float, bool], None] = lambda _name, _handler, _s, _failed: None
        """Gets the name of each call of CRI, the runtime handler that it names, its duration, and whether it failed."""

    async def call(
        self,
        call: RuntimeCall[RequestMessage, ResponseMessage],
        request: RequestMessage,
        target: str,
        *,
        limit_s: float | None = None,
    ) -> ResponseMessage:
        """The response to one call; ``target`` is the object that it concerns.

        Errors: HostError; NotFoundError, UnimplementedError and DeadlineExceededError for these codes.
        """
        limit_s = self._timeout_factor * (call.timeout_s if limit_s is None else limit_s)
        started_s, has_failed = time.monotonic(), True
        try:
            response = await self._response(call, request, target or self.endpoint, limit_s)
            has_failed = False
        finally:
            if call.service in (_RUNTIME, _IMAGES):
                handler = getattr(request, "runtime_handler", "")
                self.on_call(call.name, handler, time.monotonic() - started_s, has_failed)
        return response

    async def _response(
        self,
        call: RuntimeCall[RequestMessage, ResponseMessage],
        request: RequestMessage,
        target: str,
        limit_s: float,
    ) -> ResponseMessage:
        method = self._open().unary_unary(
            call.path,
            request_serializer=call.request_type.SerializeToString,
            response_deserializer=bytes,
        )
        now_s = asyncio.get_running_loop().time
        started_s = now_s()
        try:
            return await unary_response(method(request, timeout=limit_s), call.response_type)
        except grpc_aio.AioRpcError as error:
            if (
                error.code() is StatusCode.CANCELLED
                and now_s() - started_s >= limit_s - _DEADLINE_TOLERANCE_S
            ):
                # The runtime gave up a moment before the client did.
                raise DeadlineExceededError(call.name, target, _timeout_text(limit_s)) from error
            raise _host_error(call, target, error, limit_s) from error
        except (ChannelClosedError, MalformedResponseError) as error:
            raise HostError(call.name, target, str(error) or _CLOSED) from error

    async def stream(
        self, call: RuntimeCall[RequestMessage, ResponseMessage], request: RequestMessage
    ) -> AsyncGenerator[ResponseMessage, None]:
        """The responses of a streaming call, as they arrive.

        Errors: as for `call`.
        """
        method = self._open().unary_stream(
            call.path,
            request_serializer=call.request_type.SerializeToString,
            response_deserializer=bytes,
        )
        stream = method(request)
        try:
            async for response in stream_responses(stream, call.response_type):
                yield response
        except grpc_aio.AioRpcError as error:
            raise _host_error(call, self.endpoint, error, 0) from error
        except (ChannelClosedError, MalformedResponseError) as error:
            raise HostError(call.name, self.endpoint, str(error) or _CLOSED) from error
        finally:
            stream.cancel()

    async def close(self) -> None:
        """Closes the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    def _open(self) -> grpc_aio.Channel:
        # Created at its first use: it belongs to the event loop that runs then.
        if self._channel is None:
            self._channel = grpc_aio.insecure_channel(
                _grpc_target(self.endpoint),
                options=(
                    # Servers written in Rust reject the path of a socket as an authority.
                    ("grpc.default_authority", "localhost"),
                    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    # Time limit of a connection attempt.
                    ("grpc.min_reconnect_backoff_ms", 10_000),
                    ("grpc.max_reconnect_backoff_ms", 2000),
                    ("grpc.enable_http_proxy", 0),
                ),
            )
        return self._channel


def _grpc_target(endpoint: str) -> str:
    """GRPC's name of the socket.

    >>> _grpc_target("/run/containerd/containerd.sock"), _grpc_target("unix:///run/crio/crio.sock")
    ('unix:///run/containerd/containerd.sock', 'unix:///run/crio/crio.sock')
    """
    return f"unix://{endpoint}" if endpoint.startswith("/") else endpoint


def _without_grpc_prefix(text: str) -> str:
    """The error without the text that gRPC adds around it for a single address.

    >>> _without_grpc_prefix("failed to connect to all addresses; last error: UNAVAILABLE: unix:/x.sock: recvmsg:Connection reset")
    'recvmsg:Connection reset'
    >>> _without_grpc_prefix("failed to connect to all addresses; last error: FAILED_PRECONDITION: unix:/x.sock: connect failed: "
    ...     "addr: unix:/x.sock error: No such file or directory")
    'connect failed: No such file or directory'
    >>> _without_grpc_prefix("image not found")
    'image not found'
    """
    return _GRPC_ADDRESS.sub("", _GRPC_PREFIX.sub("", text))


def _timeout_text(limit_s: float) -> str:
    return f"no answer within {limit_s:g} s"


def _host_error(
    call: RuntimeCall[RequestMessage, ResponseMessage],
    target: str,
    error: grpc_aio.AioRpcError,
    limit_s: float,
) -> HostError:
    text = _without_grpc_prefix(error.details() or error.code().name)
    match error.code():
        case StatusCode.NOT_FOUND:
            return NotFoundError(call.name, target, text)
        case StatusCode.UNIMPLEMENTED:
            return UnimplementedError(call.name, target, text)
        case StatusCode.DEADLINE_EXCEEDED if text == "Deadline Exceeded":
            return DeadlineExceededError(call.name, target, _timeout_text(limit_s))
        case StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceededError(call.name, target, text)
        case _:
            return HostError(call.name, target, text)


# ---------------------------------------------------------------- health


_CONDITIONS = (
    ("RuntimeReady", "container runtime not ready"),
    ("NetworkReady", "container runtime network not ready"),
)


async def runtime_health(channel: CRIChannel) -> RuntimeHealth:
    """The health of the runtime behind a channel.

    Errors: HostError.
    """
    return health_of(await channel.call(STATUS, cri.StatusRequest(), ""))


def health_of(response: cri.StatusResponse) -> RuntimeHealth:
    """The health that a response reports; a condition that is missing counts as false.

    Follows: v1.36, kubelet/kubelet.go, updateRuntimeUp; kubelet/container/runtime.go, RuntimeCondition.String.
    """
    conditions = {condition.type: condition for condition in response.status.conditions}
    errors = [
        f"{text}: {_condition_text(conditions.get(kind))}"
        for kind, text in _CONDITIONS
        if kind not in conditions or not conditions[kind].status
    ]
    return RuntimeHealth(
        errors=tuple(errors),
        handlers=tuple(
            RuntimeHandler(
                name=handler.name,
                has_recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
                has_user_namespaces=handler.features.user_namespaces,
            )
            for handler in response.runtime_handlers
        ),
        has_supplemental_groups_policy=(
            response.features.supplemental_groups_policy if response.HasField("features") else None
        ),
    )


def _condition_text(condition: cri.RuntimeCondition | None) -> str:
    if condition is None:
        return "<nil>"
    status = str(condition.status).lower()
    return f"{condition.type}={status} reason:{condition.reason} message:{condition.message}"
