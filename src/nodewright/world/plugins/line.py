"""A line to one device plugin, over gRPC on its socket."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode
from grpc import aio as grpc_aio

from nodewright.model.device_reasons import PreferenceWanted
from nodewright.model.profile import Device
from nodewright.world.errors import WorldError
from nodewright.world.grpc_line import LineClosedError, UnreadableError, answer, answers
from nodewright.world.plugins import deviceplugin_pb2 as api
from nodewright.world.plugins.port import PluginOptions

Reply = TypeVar("Reply", bound=Message)
HEALTHY = "Healthy"
_FAILURES = (grpc_aio.AioRpcError, LineClosedError, UnreadableError)
_SERVICE = "/v1beta1.DevicePlugin/"
_MOST_BYTES = 16 << 20
_HANGS_UP_AFTER_S = 1.0
"""So long, what is just being said may still be answered."""
OPTIONS = (
    # Servers written in Rust refuse the path of a socket as an authority.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # Two plugins may follow one another on the same path.
    ("grpc.use_local_subchannel_pool", 1),
)


class SocketLine:
    """A line to the plugin that listens on ``socket``: fulfils `PluginLine`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel = grpc_aio.insecure_channel(f"unix:{socket}", options=OPTIONS)

    async def options(self) -> PluginOptions:
        """As PluginLine."""
        said = await self._ask("GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions, waits=True)
        return PluginOptions(said.pre_start_required, said.get_preferred_allocation_available)

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        """As PluginLine."""
        method = self._channel.unary_stream(
            f"{_SERVICE}ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=bytes,
        )
        stream = method(api.Empty())
        try:
            async for said in answers(stream, api.ListAndWatchResponse):
                yield tuple(map(_device, said.devices))
        except _FAILURES as error:
            raise _failed("ListAndWatch", self.socket, error) from None
        finally:
            stream.cancel()

    async def preferred(self, question: PreferenceWanted) -> tuple[str, ...]:
        """As PluginLine."""
        asked = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=question.available,
                    must_include_deviceIDs=question.must_include,
                    allocation_size=question.size,
                )
            ]
        )
        said = await self._ask("GetPreferredAllocation", asked, api.PreferredAllocationResponse)
        return tuple(said.container_responses[0].deviceIDs) if said.container_responses else ()

    async def allocate(self, devices: tuple[str, ...]) -> bytes:
        """As PluginLine."""
        wanted = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=devices)])
        said = await self._ask("Allocate", wanted, api.AllocateResponse)
        if not said.container_responses:
            raise WorldError(
                "Allocate", str(self.socket), f"no containers return in allocation response {said}"
            )
        return said.container_responses[0].SerializeToString(deterministic=True)

    async def before_start(self, devices: tuple[str, ...]) -> None:
        """As PluginLine."""
        wanted = api.PreStartContainerRequest(devices_ids=devices)
        await self._ask("PreStartContainer", wanted, api.PreStartContainerResponse)

    async def close(self) -> None:
        """As PluginLine."""
        await self._channel.close(_HANGS_UP_AFTER_S)

    async def _ask(self, call: str, question: Message, reply: type[Reply], *, waits: bool = False) -> Reply:
        line = PluginChannel(self._channel, self.socket, _SERVICE)
        return await line.ask(call, question, reply, waits=waits)


class PluginChannel(NamedTuple):
    """A channel to a plugin's socket, for the calls of one service; ``service`` is their path up to the name."""

    channel: grpc_aio.Channel
    socket: Path
    service: str

    async def ask(self, call: str, question: Message, reply: type[Reply], *, waits: bool = False) -> Reply:
        """The answer to a call.

        Errors: WorldError, whose `error` is as Go words it.
        """
        method: Any = self.channel.unary_unary(
            self.service + call,
            request_serializer=type(question).SerializeToString,
            response_deserializer=bytes,
        )
        try:
            return await answer(method(question, wait_for_ready=waits), reply)
        except _FAILURES as error:
            raise _failed(call, self.socket, error) from None


def _failed(call: str, socket: Path, error: Exception) -> WorldError:
    """One of the failures of a call to a plugin, as Go words it."""
    match error:
        case grpc_aio.AioRpcError():
            text = rpc_error(error.code(), error.details() or "")
        case LineClosedError():
            text = rpc_error(StatusCode.CANCELLED, "grpc: the client connection is closing")
        case _:
            text = str(error)
    return WorldError(call, str(socket), text)


def rpc_error(code: StatusCode, details: str) -> str:
    """A failed call as Go words it.

    >>> rpc_error(StatusCode.DEADLINE_EXCEEDED, "too late")
    'rpc error: code = DeadlineExceeded desc = too late'
    """
    name = {StatusCode.OK: "OK", StatusCode.CANCELLED: "Canceled"}.get(
        code, "".join(part.capitalize() for part in code.name.split("_"))
    )
    return f"rpc error: code = {name} desc = {details}"


def _device(said: api.Device) -> Device:
    nodes = tuple(node.ID for node in said.topology.nodes) if said.HasField("topology") else None
    return Device(id=said.ID, numa_nodes=nodes or None, healthy=said.health == HEALTHY)
