"""A line to a plugin that waits on a socket of its own to be registered, over gRPC."""

from pathlib import Path

from grpc import aio as grpc_aio

from nodewright.world.plugins import pluginregistration_pb2 as api
from nodewright.world.plugins.line import OPTIONS, PluginChannel
from nodewright.world.plugins.port import PluginInfo

_SERVICE = "/pluginregistration.Registration/"


class SocketRegistryLine:
    """A line to the plugin that waits on ``socket``: fulfils `RegistryLine`."""

    def __init__(self, socket: Path) -> None:
        channel = grpc_aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._line = PluginChannel(channel, socket, _SERVICE)

    async def info(self) -> PluginInfo:
        """As RegistryLine."""
        said = await self._line.ask("GetInfo", api.InfoRequest(), api.PluginInfo)
        return PluginInfo(said.type, said.name, said.endpoint, tuple(said.supported_versions))

    async def notify(self, error: str) -> None:
        """As RegistryLine."""
        status = api.RegistrationStatus(plugin_registered=not error, error=error)
        await self._line.ask("NotifyRegistrationStatus", status, api.RegistrationStatusResponse)

    async def close(self) -> None:
        """As RegistryLine."""
        await self._line.channel.close(None)
