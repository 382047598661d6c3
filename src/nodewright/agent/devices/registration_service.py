"""The gRPC service on which device plugins register."""

from pathlib import Path
from typing import NoReturn

import grpc
from grpc import aio as grpc_aio

from nodewright.agent.devices import deviceplugin_pb2 as api
from nodewright.agent.devices.protocols import PluginRegistration, PluginRegistrationError, RegisterPlugin

_MAX_MESSAGE_BYTES = 64 << 10
_MAX_CONCURRENT_CALLS = 64


async def start_registration_service(
    socket: Path, directory: Path, register: RegisterPlugin
) -> grpc_aio.Server:
    """Starts a server for registrations on ``socket``; plugins' own sockets are in ``directory``."""
    server = grpc_aio.server(
        options=(
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_concurrent_streams", _MAX_CONCURRENT_CALLS),
        ),
        maximum_concurrent_rpcs=_MAX_CONCURRENT_CALLS,
    )
    handlers = {
        "Register": grpc.unary_unary_rpc_method_handler(
            _Registrar(directory, register).answer,
            request_deserializer=api.RegisterRequest.FromString,
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
        request: api.RegisterRequest,
        context: "grpc_aio.ServicerContext[api.RegisterRequest, api.Empty]",
    ) -> api.Empty:
        """Registers the plugin; as from Go, every error has the code Unknown."""
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


async def _reject(context: "grpc_aio.ServicerContext[api.RegisterRequest, api.Empty]", text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.UNKNOWN, text)
    raise AssertionError("abort always raises")
