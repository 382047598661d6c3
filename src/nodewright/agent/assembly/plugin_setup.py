"""The agent's device plugins: where they register, and the endpoints that the agent calls."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.assembly.runtime_setup import runtime_endpoint
from nodewright.agent.devices.device_allocation import DeviceAllocator
from nodewright.agent.devices.plugin_endpoints import PluginEndpoints
from nodewright.agent.devices.plugin_watcher import PluginWatcher
from nodewright.agent.devices.protocols import (
    DevicePluginClient,
    PluginRegistration,
    PluginRegistrationClient,
)
from nodewright.agent.devices.registration import RegistrationServer
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised
from nodewright.cluster.tasks.timing import HostClock
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.idset import NUMASet


def plugin_directory(settings: AgentSettings) -> Path:
    """The directory where device plugins register."""
    return settings.device_plugin_dir or settings.root_dir / "device-plugins"


def plugins_registry_directory(settings: AgentSettings) -> Path:
    """The directory where plugins wait to be found: beside `device-plugins`, otherwise below --root-dir."""
    directory = plugin_directory(settings)
    return (
        directory.parent if directory.name == "device-plugins" else settings.root_dir
    ) / "plugins_registry"


def create_plugin_endpoints(
    settings: AgentSettings, loop: AgentLoop, event_recorder: EventRecorder
) -> PluginEndpoints:
    """The agent's device plugin endpoints, connected to its loop; none is registered yet."""
    config = loop.state.node.config
    machine, sees_host = config.parts.machine, runtime_endpoint(settings, config) is None
    numa = NUMASet.from_ids(node.node_id for node in machine.topology)
    plugins = PluginEndpoints(_plugin_client, loop.clock, loop.observe, event_recorder.record, numa)
    loop.effect_runner.device_allocator = DeviceAllocator(plugins, sees_host=sees_host)
    return plugins


@asynccontextmanager
async def serve_registration(
    settings: AgentSettings, plugins: PluginEndpoints, event_recorder: EventRecorder
) -> AsyncIterator[None]:
    """Serves registration, and watches for plugins, until the context is left.

    If registration cannot be served, an event reports it and the agent runs without device plugins.
    """
    server = RegistrationServer(plugin_directory(settings), plugins.register)
    watcher = PluginWatcher(
        plugins_registry_directory(settings),
        plugins,
        _registration_client,
        HostClock(),
        event_recorder.record,
    )
    watching: asyncio.Task[None] | None = None
    error_text = await _start_error(server)
    if error_text:
        # The socket's owner, a kubelet or another agent, also uses the registry directory.
        event_recorder.record(
            RecordEvent(uid="", is_warning=True, reason="DevicePluginsOff", message=error_text)
        )
    else:
        task = BackgroundTask(f"watch the device plugins in {watcher.directory}", watcher.run)
        watching = asyncio.create_task(run_supervised(task, event_recorder.record, HostClock()))
    plugins.expect_reregistration(event_recorder.state.node.held.devices.device_lists)
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await server.stop()
        await plugins.close()


async def _start_error(server: RegistrationServer) -> str:
    """Why the server cannot start; empty: it is running."""
    if importlib.util.find_spec("grpc") is None:
        return (
            f"{server.directory}: the Python package grpcio is not installed: pip install 'nodewright[agent]'"
        )
    try:
        await server.start()
    except HostError as error:
        return str(error)
    return ""


def _registration_client(socket: Path) -> PluginRegistrationClient:
    from nodewright.agent.devices.plugin_client import GRPCPluginRegistrationClient  # noqa: PLC0415 - as below

    return GRPCPluginRegistrationClient(socket)


def _plugin_client(registration: PluginRegistration) -> DevicePluginClient:
    from nodewright.agent.devices.plugin_client import GRPCDevicePluginClient  # noqa: PLC0415 - with gRPC, which few nodes need

    return GRPCDevicePluginClient(registration.socket)
