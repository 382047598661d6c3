"""A line to a container runtime: calls with a time limit each, whose failures are `WorldError`s."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode
from grpc import aio as grpc_aio

from nodewright.world.cri import api_pb2 as cri
from nodewright.world.errors import WorldError
from nodewright.world.grpc_line import LineClosedError, UnreadableError, answer, answers

Question = TypeVar("Question", bound=Message)
Reply = TypeVar("Reply", bound=Message)

READ_S, CHANGE_S, SANDBOX_S, PULL_S = 10.0, 120.0, 240.0, 3600.0
"""How long a runtime has for what it only tells, for what it does, for a sandbox with its network, for an image."""

_MOST_BYTES = 16 << 20
_ABOUT_S = 0.05
_AROUND = re.compile(r"^failed to connect to all addresses; last error: [A-Z_]+: (unix:\S+: )?")
_ADDRESS = re.compile(r"\baddr: \S+ error: ")
_CLOSED = "the line to the runtime was closed"


class Call(NamedTuple, Generic[Question, Reply]):
    """One call of a service: its path, its reply, and how long it may take.

    Units: seconds.
    """

    path: str
    reply: type[Reply]
    limit_s: float
    question: type[Question]

    @property
    def name(self) -> str:
        """The call without its service."""
        return self.path.rpartition("/")[2]


_RUNTIME, _IMAGES = "/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"

VERSION = Call(f"{_RUNTIME}Version", cri.VersionResponse, READ_S, cri.VersionRequest)
STATUS = Call(f"{_RUNTIME}Status", cri.StatusResponse, READ_S, cri.StatusRequest)
CONFIG = Call(f"{_RUNTIME}RuntimeConfig", cri.RuntimeConfigResponse, READ_S, cri.RuntimeConfigRequest)
EVENTS = Call(f"{_RUNTIME}GetContainerEvents", cri.ContainerEventResponse, READ_S, cri.GetEventsRequest)

RUN_SANDBOX = Call(f"{_RUNTIME}RunPodSandbox", cri.RunPodSandboxResponse, SANDBOX_S, cri.RunPodSandboxRequest)
STOP_SANDBOX = Call(
    f"{_RUNTIME}StopPodSandbox", cri.StopPodSandboxResponse, CHANGE_S, cri.StopPodSandboxRequest
)
REMOVE_SANDBOX = Call(
    f"{_RUNTIME}RemovePodSandbox", cri.RemovePodSandboxResponse, CHANGE_S, cri.RemovePodSandboxRequest
)
LIST_SANDBOXES = Call(
    f"{_RUNTIME}ListPodSandbox", cri.ListPodSandboxResponse, READ_S, cri.ListPodSandboxRequest
)
SANDBOX = Call(
    f"{_RUNTIME}PodSandboxStatus", cri.PodSandboxStatusResponse, READ_S, cri.PodSandboxStatusRequest
)

CREATE = Call(f"{_RUNTIME}CreateContainer", cri.CreateContainerResponse, CHANGE_S, cri.CreateContainerRequest)
START = Call(f"{_RUNTIME}StartContainer", cri.StartContainerResponse, CHANGE_S, cri.StartContainerRequest)
STOP = Call(f"{_RUNTIME}StopContainer", cri.StopContainerResponse, CHANGE_S, cri.StopContainerRequest)
REMOVE = Call(f"{_RUNTIME}RemoveContainer", cri.RemoveContainerResponse, CHANGE_S, cri.RemoveContainerRequest)
LIST = Call(f"{_RUNTIME}ListContainers", cri.ListContainersResponse, READ_S, cri.ListContainersRequest)
CONTAINER = Call(
    f"{_RUNTIME}ContainerStatus", cri.ContainerStatusResponse, READ_S, cri.ContainerStatusRequest
)
UPDATE = Call(
    f"{_RUNTIME}UpdateContainerResources",
    cri.UpdateContainerResourcesResponse,
    CHANGE_S,
    cri.UpdateContainerResourcesRequest,
)
EXECUTE = Call(f"{_RUNTIME}ExecSync", cri.ExecSyncResponse, CHANGE_S, cri.ExecSyncRequest)
REOPEN_LOG = Call(
    f"{_RUNTIME}ReopenContainerLog", cri.ReopenContainerLogResponse, READ_S, cri.ReopenContainerLogRequest
)
STATS = Call(
    f"{_RUNTIME}ListContainerStats", cri.ListContainerStatsResponse, READ_S, cri.ListContainerStatsRequest
)

IMAGE = Call(f"{_IMAGES}ImageStatus", cri.ImageStatusResponse, READ_S, cri.ImageStatusRequest)
LIST_IMAGES = Call(f"{_IMAGES}ListImages", cri.ListImagesResponse, READ_S, cri.ListImagesRequest)
PULL = Call(f"{_IMAGES}PullImage", cri.PullImageResponse, PULL_S, cri.PullImageRequest)
REMOVE_IMAGE = Call(f"{_IMAGES}RemoveImage", cri.RemoveImageResponse, CHANGE_S, cri.RemoveImageRequest)
IMAGE_ROOM = Call(f"{_IMAGES}ImageFsInfo", cri.ImageFsInfoResponse, READ_S, cri.ImageFsInfoRequest)


class NotThere(WorldError):  # noqa: N818 - named for what it says
    """The runtime knows nothing of this name."""


class NotImplementedThere(WorldError):  # noqa: N818 - named for what it says
    """The runtime does not have this call."""


class TooLate(WorldError):  # noqa: N818 - named for what it says
    """No answer came in time: it may have been done, or be done later."""


class Channel:
    """The line to the runtime at ``endpoint``; it mends itself when the runtime comes back.

    ``patience`` multiplies the time limits of all calls.
    """

    def __init__(self, endpoint: str, *, patience: float = 1.0) -> None:
        self.endpoint, self._patience = endpoint, patience
        self._line: grpc_aio.Channel | None = None

    async def ask(
        self,
        call: Call[Question, Reply],
        question: Question,
        place: str,
        *,
        limit_s: float | None = None,
    ) -> Reply:
        """The reply to one call; ``place`` is what it is about.

        Errors: WorldError; NotThere, NotImplementedThere and TooLate where it is that.
        """
        limit_s = self._patience * (call.limit_s if limit_s is None else limit_s)
        method = self._open().unary_unary(
            call.path,
            request_serializer=call.question.SerializeToString,
            response_deserializer=bytes,
        )
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            return await answer(method(question, timeout=limit_s), call.reply)
        except grpc_aio.AioRpcError as error:
            if error.code() is StatusCode.CANCELLED and now_s() - began_s >= limit_s - _ABOUT_S:
                # The runtime was a moment faster to give up than we were.
                raise TooLate(call.name, place or self.endpoint, _no_answer(limit_s)) from error
            raise _told(call, place or self.endpoint, error, limit_s) from error
        except (LineClosedError, UnreadableError) as error:
            raise WorldError(call.name, place or self.endpoint, str(error) or _CLOSED) from error

    async def listen(self, call: Call[Question, Reply], question: Question) -> AsyncGenerator[Reply, None]:
        """The replies to a call that has many, as they come, for ever.

        Errors: as for `ask`.
        """
        method = self._open().unary_stream(
            call.path,
            request_serializer=call.question.SerializeToString,
            response_deserializer=bytes,
        )
        stream = method(question)
        try:
            async for reply in answers(stream, call.reply):
                yield reply
        except grpc_aio.AioRpcError as error:
            raise _told(call, self.endpoint, error, 0) from error
        except (LineClosedError, UnreadableError) as error:
            raise WorldError(call.name, self.endpoint, str(error) or _CLOSED) from error
        finally:
            stream.cancel()

    async def close(self) -> None:
        """Hang up."""
        line, self._line = self._line, None
        if line is not None:
            await line.close(None)

    def _open(self) -> grpc_aio.Channel:
        # Made when it is used first: it belongs to the event loop that runs then.
        if self._line is None:
            self._line = grpc_aio.insecure_channel(
                _target(self.endpoint),
                options=(
                    # Servers written in Rust refuse the path of a socket as an authority.
                    ("grpc.default_authority", "localhost"),
                    ("grpc.max_receive_message_length", _MOST_BYTES),
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    # How long a runtime has to say hello.
                    ("grpc.min_reconnect_backoff_ms", 10_000),
                    ("grpc.max_reconnect_backoff_ms", 2000),
                    ("grpc.enable_http_proxy", 0),
                ),
            )
        return self._line


def _target(endpoint: str) -> str:
    """What gRPC calls the socket.

    >>> _target("/run/containerd/containerd.sock"), _target("unix:///run/crio/crio.sock")
    ('unix:///run/containerd/containerd.sock', 'unix:///run/crio/crio.sock')
    """
    return f"unix://{endpoint}" if endpoint.startswith("/") else endpoint


def _plain(said: str) -> str:
    """What went wrong, without what gRPC says around it where there is but one address.

    >>> _plain("failed to connect to all addresses; last error: UNAVAILABLE: unix:/x.sock: recvmsg:Connection reset")
    'recvmsg:Connection reset'
    >>> _plain("failed to connect to all addresses; last error: FAILED_PRECONDITION: unix:/x.sock: connect failed: "
    ...     "addr: unix:/x.sock error: No such file or directory")
    'connect failed: No such file or directory'
    >>> _plain("image not found")
    'image not found'
    """
    return _ADDRESS.sub("", _AROUND.sub("", said))


def _no_answer(limit_s: float) -> str:
    return f"no answer within {limit_s:g} s"


def _told(call: Call[Question, Reply], place: str, error: grpc_aio.AioRpcError, limit_s: float) -> WorldError:
    said = _plain(error.details() or error.code().name)
    match error.code():
        case StatusCode.NOT_FOUND:
            return NotThere(call.name, place, said)
        case StatusCode.UNIMPLEMENTED:
            return NotImplementedThere(call.name, place, said)
        case StatusCode.DEADLINE_EXCEEDED if said == "Deadline Exceeded":
            return TooLate(call.name, place, _no_answer(limit_s))
        case StatusCode.DEADLINE_EXCEEDED:
            return TooLate(call.name, place, said)
        case _:
            return WorldError(call.name, place, said)
