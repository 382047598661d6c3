"""The socket on which device plugins register, as gRPC has it."""

from pathlib import Path
from typing import NoReturn

import grpc
from grpc import aio as grpc_aio

from nodewright.world.plugins import deviceplugin_pb2 as api
from nodewright.world.plugins.port import Register, Registration, RegistrationError

_MOST_BYTES = 64 << 10
_MOST_AT_ONCE = 64


async def serve(socket: Path, directory: Path, register: Register) -> grpc_aio.Server:
    """A server that takes registrations on ``socket``; plugins name their own sockets inside ``directory``."""
    server = grpc_aio.server(
        options=(
            ("grpc.max_receive_message_length", _MOST_BYTES),
            ("grpc.max_concurrent_streams", _MOST_AT_ONCE),
        ),
        maximum_concurrent_rpcs=_MOST_AT_ONCE,
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
    def __init__(self, directory: Path, register: Register) -> None:
        self._directory, self._register = directory, register

    async def answer(
        self,
        asked: api.RegisterRequest,
        context: "grpc_aio.ServicerContext[api.RegisterRequest, api.Empty]",
    ) -> api.Empty:
        """Whether the plugin is taken; as from Go, every refusal has the code Unknown."""
        told = Registration(
            resource=asked.resource_name,
            versions=(asked.version,),
            directory=self._directory,
            endpoint=asked.endpoint,
        )
        try:
            await self._register(told)
        except RegistrationError as error:
            await _refuse(context, str(error))
        return api.Empty()


async def _refuse(context: "grpc_aio.ServicerContext[api.RegisterRequest, api.Empty]", text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.UNKNOWN, text)
    raise AssertionError("abort comes back to nobody")
