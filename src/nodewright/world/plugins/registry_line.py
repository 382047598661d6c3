"""A line to a plugin that waits on a socket of its own to be registered, over gRPC."""

from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc import aio as grpc_aio

from nodewright.world.grpc_line import answer
from nodewright.world.plugins import pluginregistration_pb2 as api
from nodewright.world.plugins.line import FAILURES, OPTIONS, failed
from nodewright.world.plugins.port import PluginInfo

Reply = TypeVar("Reply", bound=Message)
_SERVICE = "/pluginregistration.Registration/"


class SocketRegistryLine:
    """A line to the plugin that waits on ``socket``: fulfils `RegistryLine`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel = grpc_aio.insecure_channel(f"unix:{socket}", options=OPTIONS)

    async def info(self) -> PluginInfo:
        """As RegistryLine."""
        said = await self._ask("GetInfo", api.InfoRequest(), api.PluginInfo)
        return PluginInfo(said.type, said.name, said.endpoint, tuple(said.supported_versions))

    async def notify(self, error: str) -> None:
        """As RegistryLine."""
        status = api.RegistrationStatus(plugin_registered=not error, error=error)
        await self._ask("NotifyRegistrationStatus", status, api.RegistrationStatusResponse)

    async def close(self) -> None:
        """As RegistryLine."""
        await self._channel.close(None)

    async def _ask(self, call: str, question: Message, reply: type[Reply]) -> Reply:
        method: Any = self._channel.unary_unary(
            _SERVICE + call,
            request_serializer=type(question).SerializeToString,
            response_deserializer=bytes,
        )
        try:
            return await answer(method(question), reply)
        except FAILURES as error:
            raise failed(call, self.socket, error) from None
