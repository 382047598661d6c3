"""gRPC with device plugins: clients of their services, and the service on which they register."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import StatusCode
from grpc import aio as grpc_aio

from nodewright.agent.devices import deviceplugin_pb2 as api
from nodewright.agent.devices import dra_pb2 as dra_api
from nodewright.agent.devices import pluginregistration_pb2 as registration_api
from nodewright.agent.devices.protocols import (
    MAX_DEVICES,
    DevicePluginOptions,
    PluginInfo,
    PluginRegistration,
    PluginRegistrationError,
    RegisterPlugin,
)
from nodewright.cluster.pod_resources.grpc_calls import (
    ChannelClosedError,
    MalformedResponseError,
    request_message,
    stream_responses,
    unary_response,
)
from nodewright.engine.core.claims.device_health import HEALTHY, UNHEALTHY, UNKNOWN, DeviceHealth
from nodewright.engine.core.claims.device_health import MAX_DEVICES as MAX_HEALTHS
from nodewright.engine.core.claims.prepared_claims import ClaimAnswer, DriverCall, PreparedDevice
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.reasons.devices import PreferenceWanted

Response = TypeVar("Response", bound=Message)
_FAILURES = (grpc_aio.AioRpcError, ChannelClosedError, MalformedResponseError)
_SERVICE = "/v1beta1.DevicePlugin/"
_MAX_MESSAGE_BYTES = 4 << 20
"""Follows: grpc-go 1.79.3, server.go and clientconn.go, the default, which the kubelet keeps for plugins."""
_MAX_ALLOCATION_BYTES = 1 << 20
_CLOSE_GRACE_PERIOD_S = 1.0
"""Grace period of calls that are running when the channel is closed."""
CHANNEL_OPTIONS = (
    # Servers written in Rust reject the path of a socket as an authority.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # Two plugins may use the same path one after the other.
    ("grpc.use_local_subchannel_pool", 1),
)


class GRPCDevicePluginClient:
    """A client of the plugin that listens on ``socket``: implements `DevicePluginClient`."""

    def __init__(self, socket: Path) -> None:
        channel = grpc_aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
        self._channel = PluginChannel(channel, socket, _SERVICE)

    async def options(self) -> DevicePluginOptions:
        """As `DevicePluginClient`."""
        response = await self._channel.call(
            "GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions, wait_for_ready=True
        )
        return DevicePluginOptions(response.pre_start_required, response.get_preferred_allocation_available)

    async def list_and_watch(self) -> AsyncIterator[tuple[Device, ...]]:
        """As `DevicePluginClient`."""
        responses = self._channel.stream("ListAndWatch", api.Empty(), api.ListAndWatchResponse)
        async with aclosing(responses):
            async for response in responses:
                # A message has room for two million devices, which are not made into values to be refused.
                yield tuple(map(_device, islice(response.devices, MAX_DEVICES + 1)))

    async def preferred_allocation(self, query: PreferenceWanted) -> tuple[str, ...]:
        """As `DevicePluginClient`."""
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=query.available,
                    must_include_deviceIDs=query.must_include,
                    allocation_size=query.size,
                )
            ]
        )
        response = await self._channel.call(
            "GetPreferredAllocation", request, api.PreferredAllocationResponse
        )
        return tuple(response.container_responses[0].deviceIDs) if response.container_responses else ()

    async def allocate(self, devices: tuple[str, ...]) -> bytes:
        """As `DevicePluginClient`.

        Departs: the kubelet takes answers of 4 MiB; no program can be started with so many variables.
        """
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=devices)])
        response = await self._channel.call(
            "Allocate", request, api.AllocateResponse, max_bytes=_MAX_ALLOCATION_BYTES
        )
        if not response.container_responses:
            raise HostError(
                "Allocate",
                str(self._channel.socket),
                f"no containers return in allocation response {response}",
            )
        return response.container_responses[0].SerializeToString(deterministic=True)

    async def pre_start_container(self, devices: tuple[str, ...]) -> None:
        """As `DevicePluginClient`."""
        request = api.PreStartContainerRequest(devices_ids=devices)
        await self._channel.call("PreStartContainer", request, api.PreStartContainerResponse)

    async def close(self) -> None:
        """As `DevicePluginClient`."""
        await self._channel.channel.close(_CLOSE_GRACE_PERIOD_S)


class PluginChannel(NamedTuple):
    """A channel to a plugin's socket, for the calls of one service; ``service`` is the path before the call's name."""

    channel: grpc_aio.Channel
    socket: Path
    service: str

    async def call(
        self,
        call: str,
        request: Message,
        response_type: type[Response],
        *,
        wait_for_ready: bool = False,
        max_bytes: int | None = None,
    ) -> Response:
        """The response to a call.

        Errors: HostError, with Go's text in `error`.
        """
        method: Any = self.channel.unary_unary(
            self.service + call,
            request_serializer=type(request).SerializeToString,
            response_deserializer=bytes,
        )
        try:
            response = method(request, wait_for_ready=wait_for_ready)
            return await unary_response(response, response_type, max_bytes)
        except _FAILURES as error:
            raise _go_error(call, self.socket, error) from None

    async def stream(
        self, call: str, request: Message, response_type: type[Response]
    ) -> AsyncGenerator[Response]:
        """The responses to a call, as they arrive.

        Errors: HostError, with Go's text in `error`.
        """
        method: Any = self.channel.unary_stream(
            self.service + call,
            request_serializer=type(request).SerializeToString,
            response_deserializer=bytes,
        )
        stream = method(request)
        try:
            async for response in stream_responses(stream, response_type):
                yield response
        except _FAILURES as error:
            raise _go_error(call, self.socket, error) from None
        finally:
            stream.cancel()


def _go_error(call: str, socket: Path, error: Exception) -> HostError:
    """The error of a failed call, with Go's text."""
    match error:
        case grpc_aio.AioRpcError():
            text = rpc_error(error.code(), error.details() or "")
        case ChannelClosedError():
            text = rpc_error(StatusCode.CANCELLED, "grpc: the client connection is closing")
        case _:
            text = str(error)
    return HostError(call, str(socket), text)


def rpc_error(code: StatusCode, details: str) -> str:
    """Go's text of a failed call.

    >>> rpc_error(StatusCode.DEADLINE_EXCEEDED, "too late")
    'rpc error: code = DeadlineExceeded desc = too late'
    """
    name = {StatusCode.OK: "OK", StatusCode.CANCELLED: "Canceled"}.get(
        code, "".join(part.capitalize() for part in code.name.split("_"))
    )
    return f"rpc error: code = {name} desc = {details}"


def _device(response: api.Device) -> Device:
    nodes = tuple(node.ID for node in response.topology.nodes) if response.HasField("topology") else None
    return Device(id=response.ID, numa_nodes=nodes or None, healthy=response.health == HEALTHY)


# ---------------------------------------------------------------- plugins of DRA drivers


class GRPCDRAPluginClient:
    """A client of the plugin that listens on ``socket``: implements `DRAPluginClient`; ``service`` is the path of its calls."""

    def __init__(self, socket: Path, service: str) -> None:
        channel = grpc_aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
        self._channel = PluginChannel(channel, socket, service)

    async def prepare(self, call: DriverCall) -> Mapping[str, ClaimAnswer]:
        """As `DRAPluginClient`."""
        request = dra_api.NodePrepareResourcesRequest(claims=_claims(call))
        response = await self._channel.call(
            "NodePrepareResources", request, dra_api.NodePrepareResourcesResponse, wait_for_ready=True
        )
        return {
            uid: ClaimAnswer(tuple(map(_prepared_device, answer.devices)), answer.error)
            for uid, answer in response.claims.items()
        }

    async def unprepare(self, call: DriverCall) -> Mapping[str, ClaimAnswer]:
        """As `DRAPluginClient`."""
        request = dra_api.NodeUnprepareResourcesRequest(claims=_claims(call))
        response = await self._channel.call(
            "NodeUnprepareResources", request, dra_api.NodeUnprepareResourcesResponse, wait_for_ready=True
        )
        return {uid: ClaimAnswer(error=answer.error) for uid, answer in response.claims.items()}

    async def watch_health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """As `DRAPluginClient`."""
        responses = self._channel._replace(service=_HEALTH_SERVICE).stream(
            "NodeWatchResources", dra_api.NodeWatchResourcesRequest(), dra_api.NodeWatchResourcesResponse
        )
        async with aclosing(responses):
            async for response in responses:
                yield tuple(map(_device_health, islice(response.devices, MAX_HEALTHS)))

    async def watch_connection(self) -> AsyncIterator[bool]:
        """As `DRAPluginClient`."""
        channel = self._channel.channel
        while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.SHUTDOWN:
            yield state is grpc.ChannelConnectivity.READY
            await channel.wait_for_state_change(state)

    async def close(self) -> None:
        """As `DRAPluginClient`."""
        await self._channel.channel.close(_CLOSE_GRACE_PERIOD_S)


_HEALTH_SERVICE = "/v1alpha1.DRAResourceHealth/"
_HEALTHS = {dra_api.HEALTHY: HEALTHY, dra_api.UNHEALTHY: UNHEALTHY}


def _device_health(device: dra_api.DeviceHealth) -> DeviceHealth:
    return DeviceHealth(
        pool=device.device.pool_name,
        device=device.device.device_name,
        health=_HEALTHS.get(device.health, UNKNOWN),
        message=device.message,
        timeout_s=device.health_check_timeout_seconds,
    )


def _claims(call: DriverCall) -> list[dra_api.Claim]:
    return [dra_api.Claim(namespace=each.namespace, uid=each.uid, name=each.name) for each in call.claims]


def _prepared_device(device: dra_api.Device) -> PreparedDevice:
    return PreparedDevice(
        pool=device.pool_name,
        device=device.device_name,
        share_id=device.share_id if device.HasField("share_id") else None,
        requests=tuple(device.request_names) or None,
        cdi_devices=tuple(device.cdi_device_ids) or None,
    )


# ---------------------------------------------------------------- plugins in plugins_registry


_REGISTRATION_SERVICE = "/pluginregistration.Registration/"


class GRPCPluginRegistrationClient:
    """A client of the registration service on ``socket``: implements `PluginRegistrationClient`."""

    def __init__(self, socket: Path) -> None:
        channel = grpc_aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
        self._channel = PluginChannel(channel, socket, _REGISTRATION_SERVICE)

    async def get_info(self) -> PluginInfo:
        """As `PluginRegistrationClient`."""
        response = await self._channel.call(
            "GetInfo", registration_api.InfoRequest(), registration_api.PluginInfo
        )
        return PluginInfo(response.type, response.name, response.endpoint, tuple(response.supported_versions))

    async def notify_registration_status(self, error: str) -> None:
        """As `PluginRegistrationClient`."""
        status = registration_api.RegistrationStatus(plugin_registered=not error, error=error)
        await self._channel.call(
            "NotifyRegistrationStatus", status, registration_api.RegistrationStatusResponse
        )

    async def close(self) -> None:
        """As `PluginRegistrationClient`."""
        await self._channel.channel.close(None)


# ---------------------------------------------------------------- the service on which plugins register


_MAX_REGISTRATION_BYTES = 64 << 10
_MAX_CONCURRENT_CALLS = 64


async def start_registration_service(
    socket: Path, directory: Path, register: RegisterPlugin
) -> grpc_aio.Server:
    """Starts a server for registrations on ``socket``; plugins' own sockets are in ``directory``."""
    server = grpc_aio.server(
        options=(
            ("grpc.max_receive_message_length", _MAX_REGISTRATION_BYTES),
            ("grpc.max_concurrent_streams", _MAX_CONCURRENT_CALLS),
        ),
        maximum_concurrent_rpcs=_MAX_CONCURRENT_CALLS,
    )
    handlers = {
        "Register": grpc.unary_unary_rpc_method_handler(
            _Registrar(directory, register).answer,
            request_deserializer=bytes,
            response_serializer=api.Empty.SerializeToString,
        )
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    try:
        await server.start()
    except BaseException:
        await server.stop(None)
        raise
    return server


class _Registrar:
    def __init__(self, directory: Path, register: RegisterPlugin) -> None:
        self._directory, self._register = directory, register

    async def answer(
        self,
        data: bytes,
        context: "grpc_aio.ServicerContext[bytes, api.Empty]",
    ) -> api.Empty:
        """Registers the plugin; as from Go, every error has the code Unknown."""
        request = await request_message(data, api.RegisterRequest, context)
        registration = PluginRegistration(
            resource=request.resource_name,
            versions=(request.version,),
            directory=self._directory,
            endpoint=request.endpoint,
        )
        try:
            await self._register(registration)
        except PluginRegistrationError as error:
            await _reject(context, str(error))
        return api.Empty()


async def _reject(context: "grpc_aio.ServicerContext[bytes, api.Empty]", text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.UNKNOWN, text)
    raise AssertionError("abort always raises")
