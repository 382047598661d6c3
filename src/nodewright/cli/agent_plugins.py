"""Device plugins of the agent: the directory where they register, and what is asked of them."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nodewright.agent.board import Board
from nodewright.agent.handing import Handing
from nodewright.agent.loop import Loop
from nodewright.agent.plugin_registry import PluginRegistry
from nodewright.agent.plugins import Plugins
from nodewright.agent.values import Tell
from nodewright.cli.agent_settings import Settings
from nodewright.values.idset import NUMASet
from nodewright.world.clock import HostClock
from nodewright.world.errors import WorldError
from nodewright.world.plugins.door import Door
from nodewright.world.plugins.port import PluginLine, Registration, RegistryLine


def plugin_directory(told: Settings) -> Path:
    """Where device plugins register."""
    return told.device_plugin_dir or told.root_dir / "device-plugins"


def registry_directory(told: Settings) -> Path:
    """Where plugins wait to be found: beside where they register, where that has the kubelet's name."""
    place = plugin_directory(told)
    return (place.parent if place.name == "device-plugins" else told.root_dir) / "plugins_registry"


def plugins_of(told: Settings, loop: Loop, board: Board) -> Plugins:
    """The device plugins of an agent, none of which has registered yet; its containers get what they say."""
    machine = loop.mind.node.config.parts.machine
    numa = NUMASet.from_ids(node.node_id for node in machine.topology)
    plugins = Plugins(_line, loop.clock, loop.see, board.tell, numa)
    loop.performer.handing = Handing(plugins, sees_machine=told.endpoint is None)
    return plugins


@asynccontextmanager
async def registering(told: Settings, plugins: Plugins, board: Board) -> AsyncIterator[None]:
    """Device plugins can register, and are found, while this is entered.

    Where they cannot, that is told, and all else goes on.
    """
    door = Door(plugin_directory(told), plugins.register)
    registry = PluginRegistry(registry_directory(told), plugins, _registry_line, HostClock(), board.tell)
    finding: asyncio.Task[None] | None = None
    why = await _opened(door)
    if why:
        # Who listens there is the kubelet or an agent of its registry, too.
        board.tell(Tell(uid="", is_warning=True, reason="DevicePluginsOff", message=why))
    else:
        finding = asyncio.create_task(registry.run())
    plugins.expect(board.mind.node.held.devices.lists)
    try:
        yield
    finally:
        if finding is not None:
            finding.cancel()
            await asyncio.gather(finding, return_exceptions=True)
        await door.close()
        await plugins.close()


async def _opened(door: Door) -> str:
    """Why the door does not open; empty: it is open."""
    if importlib.util.find_spec("grpc") is None:
        return (
            f"{door.directory}: the Python package grpcio is not installed: pip install 'nodewright[agent]'"
        )
    try:
        await door.open()
    except WorldError as error:
        return str(error)
    return ""


def _registry_line(socket: Path) -> RegistryLine:
    from nodewright.world.plugins.registry_line import SocketRegistryLine  # noqa: PLC0415 - as below

    return SocketRegistryLine(socket)


def _line(told: Registration) -> PluginLine:
    from nodewright.world.plugins.line import SocketLine  # noqa: PLC0415 - with gRPC, which few nodes need

    return SocketLine(told.socket)
