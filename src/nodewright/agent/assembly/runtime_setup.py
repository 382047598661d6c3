"""The container runtime and the device plugins of an agent, from its settings."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from nodewright.agent.assembly.agent_node import node_address
from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.device_allocation import DeviceAllocator
from nodewright.agent.devices.dra_plugins import DRA_PLUGIN_TYPE, DRAPluginClient, DRAPlugins
from nodewright.agent.devices.plugin_endpoints import PluginEndpoints
from nodewright.agent.devices.plugin_watcher import PluginWatcher
from nodewright.agent.devices.protocols import (
    DevicePluginClient,
    PluginRegistration,
    PluginRegistrationClient,
)
from nodewright.agent.devices.registration import PLUGIN_TYPE, RegistrationServer
from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.ports import (
    ContainerRuntime,
    ImageStore,
    ProcessStreams,
    RuntimeFacts,
    RuntimeHealth,
    StreamingServer,
)
from nodewright.agent.host.volumes import KernelMounter, Volumes
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.observe.metric_names import CallMetrics
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_config import ContainerConfigBuilder, NodeContext, ProcessConfigBuilder
from nodewright.agent.pods.image_manager import ImageManager, PullSecrets
from nodewright.agent.pods.log_rotation import CONTAINER_LOGS, LogLinks, LogRotatePolicy
from nodewright.agent.runtimes.processes.exec_session import PlainProcessStreams
from nodewright.agent.runtimes.processes.process_runtime import ProcessRuntime
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised
from nodewright.cluster.tasks.timing import Clock, HostClock
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import QuantityError
from nodewright.version import install_command

_UNIX_SCHEME, _VOLUMES = "unix://", "volumes"
_RETRY_PERIOD_S = 1.0


class RuntimeParts(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime, and what builds configs and images for it."""

    runtime: ContainerRuntime
    config_builder: ProcessConfigBuilder | ContainerConfigBuilder
    streaming_server: StreamingServer | None = None
    process_streams: ProcessStreams | None = None
    health: Callable[[], Awaitable[RuntimeHealth]] | None = None
    """None: the runtime is the machine itself."""
    image_store: ImageStore | None = None
    image_manager: ImageManager | None = None
    log_links: LogLinks | None = None
    """None: the logs of containers are not linked to."""
    calls: CallMetrics = msgspec.field(default_factory=CallMetrics)


class RunningParts(NamedTuple):
    """The loop of an agent, its events, and its runtime."""

    loop: AgentLoop
    event_recorder: EventRecorder
    runtime: RuntimeParts


def log_root(settings: AgentSettings, config: NodeConfig) -> Path:
    """The root of the pod log directories."""
    return Path(config.parts.kubelet.pod_logs_dir) if settings.is_kubelet else settings.root_dir / "logs"


def runtime_endpoint(settings: AgentSettings, config: NodeConfig) -> str | None:
    """The endpoint of the container runtime; None: containers are plain processes."""
    if settings.endpoint is None and settings.is_kubelet:
        return config.parts.kubelet.container_runtime_endpoint
    return settings.endpoint


def create_runtime_parts(
    settings: AgentSettings,
    config: NodeConfig,
    object_cache: ConfigObjectCache,
    parts: tuple[CgroupFS, Clock, Callable[[RecordEvent], None]],
) -> RuntimeParts:
    """The runtime that the command line chooses.

    Errors: InputError for an invalid endpoint; HostError.
    """
    cgroups, clock, record_event = parts
    endpoint = runtime_endpoint(settings, config)
    if endpoint is None:
        volumes = Volumes(settings.root_dir / _VOLUMES, None)
        runtime = ProcessRuntime(settings.root_dir / "containers", cgroups)
        runtime_parts = RuntimeParts(
            runtime=runtime,
            process_streams=PlainProcessStreams(runtime),
            config_builder=ProcessConfigBuilder(_node_context(settings, config), volumes, object_cache),
        )
    else:
        runtime_parts = _cri_runtime_parts(settings, endpoint, config, object_cache, (clock, record_event))
    calls = runtime_parts.calls
    if runtime_parts.image_manager is not None:
        runtime_parts.image_manager.on_pull = calls.record_pull
    cgroups.on_operation = calls.record_cgroup_operation
    runtime_parts.config_builder.volume_setup.on_operation = calls.record_storage_operation
    return runtime_parts


def _cri_runtime_parts(
    settings: AgentSettings,
    endpoint: str,
    config: NodeConfig,
    object_cache: ConfigObjectCache,
    parts: tuple[Clock, Callable[[RecordEvent], None]],
) -> RuntimeParts:
    if not endpoint.removeprefix(_UNIX_SCHEME).startswith("/"):
        raise _endpoint_error(settings, "must be unix:///PATH")
    try:
        from nodewright.agent.runtimes import cri  # noqa: PLC0415 - 20 MiB, if it is not used
    except ImportError as error:
        raise _endpoint_error(settings, f"{error}: {install_command('agent')}") from error
    clock, record_event = parts
    channel, calls = cri.CRIChannel(endpoint), CallMetrics()
    image_store, volumes = cri.CRIImageStore(channel), Volumes(settings.root_dir / _VOLUMES, KernelMounter())
    pull_secrets = PullSecrets(object_cache, settings.root_dir, record_event)
    image_manager = ImageManager.from_config(
        image_store, clock, record_event, config.parts.kubelet, pull_secrets
    )
    # The owner is the root directory: pods of an agent with another directory are not this agent's.
    runtime = cri.CRIRuntime(
        channel,
        owner=str(settings.root_dir),
        handlers=lambda: {
            name: runtime_class.handler for name, runtime_class in object_cache.runtime_classes().items()
        },
    )
    channel.on_call, runtime.on_relist = calls.record_operation, calls.record_relist
    context, ensure_image = _node_context(settings, config), image_manager.ensure_image_exists
    return RuntimeParts(
        runtime=runtime,
        config_builder=ContainerConfigBuilder(context, volumes, object_cache, ensure_image, record_event),
        streaming_server=cri.CRIStreamingServer(channel),
        health=partial(cri.runtime_health, channel),
        image_store=image_store,
        image_manager=image_manager,
        log_links=_log_links(settings, config, record_event),
        calls=calls,
    )


def _log_links(
    settings: AgentSettings, config: NodeConfig, record_event: Callable[[RecordEvent], None]
) -> LogLinks | None:
    """The links to the logs of containers, which `nodewright kubelet` makes as a kubelet does."""
    if not settings.is_kubelet:
        return None

    def report(message: str) -> None:
        record_event(RecordEvent.warning("LogNotLinked", message))

    return LogLinks(CONTAINER_LOGS, log_root(settings, config), report)


async def wait_for_runtime(
    parts: RuntimeParts, clock: Clock, on_wait: Callable[[str], None]
) -> tuple[RuntimeFacts, Path | None]:
    """The runtime's facts, and where it keeps images; repeated until the runtime answers.

    ``on_wait`` gets each new reason for the delay.

    Errors:  HostError for plain processes, which have no other runtime to wait for.
    Departs: a kubelet exits.
    """
    if parts.image_store is None:
        return await parts.runtime.facts(), None
    reported = ""
    while True:
        try:
            return await parts.runtime.facts(), Path(await parts.image_store.image_fs_path())
        except HostError as error:
            if str(error) != reported:
                reported = str(error)
                on_wait(reported)
        await clock.sleep(_RETRY_PERIOD_S)


def _endpoint_error(settings: AgentSettings, rule: str) -> InputError:
    return InputError([Fault(source="--container-runtime-endpoint", value=settings.endpoint, rule=rule)])


def _node_context(settings: AgentSettings, config: NodeConfig) -> NodeContext:
    address, kubelet = node_address(settings), config.parts.kubelet
    return NodeContext(
        host_ips=(address,) if address else ("127.0.0.1",),
        log_root=log_root(settings, config),
        allocatable=config.resources.allocatable,
        cluster_domain=kubelet.cluster_domain,
        cluster_dns=kubelet.cluster_dns,
        resolv_conf=kubelet.resolver_config,
        has_stop_signals=config.gates["ContainerStopSignals"],
    )


def log_rotate_policy(kubelet: KubeletConfiguration) -> LogRotatePolicy:
    """The log rotation of the configuration.

    Errors: InputError for an invalid size: a kubelet accepts it in the file, and then does not start.
    """
    try:
        return LogRotatePolicy.from_config(kubelet)
    except QuantityError as error:
        value = kubelet.container_log_max_size
        raise InputError([Fault(path="containerLogMaxSize", value=value, rule=str(error))]) from None


# ---------------------------------------------------------------- device plugins


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
    """The agent's device plugin endpoints and what prepares claims, connected to its loop; no plugin is registered yet."""
    config = loop.state.node.config
    machine, sees_host = config.parts.machine, runtime_endpoint(settings, config) is None
    numa = NUMASet.from_ids(node.node_id for node in machine.topology)
    plugins = PluginEndpoints(_plugin_client, loop.clock, loop.observe, event_recorder.record, numa)
    loop.effect_runner.device_allocator = DeviceAllocator(plugins, sees_host=sees_host)
    dra_plugins = DRAPlugins(_dra_plugin_client, loop.clock)
    dra_plugins.record_event = event_recorder.record
    claim_manager = ClaimManager(settings.root_dir, dra_plugins, config.gates, loop.clock)
    claim_manager.state, claim_manager.observe = lambda: event_recorder.state, loop.observe
    loop.effect_runner.claim_manager = claim_manager
    return plugins


@asynccontextmanager
async def serve_registration(
    settings: AgentSettings,
    plugins: PluginEndpoints,
    loop: AgentLoop,
    event_recorder: EventRecorder,
) -> AsyncIterator[None]:
    """Serves registration, and watches for plugins, until the context is left.

    If registration cannot be served, an event reports it and the agent runs without device plugins.
    """
    manager = loop.effect_runner.claim_manager
    assert manager is not None
    dra_plugins = manager.plugins
    server = RegistrationServer(plugin_directory(settings), plugins.register)
    watcher = PluginWatcher(
        plugins_registry_directory(settings),
        {PLUGIN_TYPE: plugins, DRA_PLUGIN_TYPE: dra_plugins},
        _registration_client,
        HostClock(),
        event_recorder.record,
    )
    watching: asyncio.Task[None] | None = None
    error_text = await _start_error(server)
    if error_text:
        # The socket's owner, a kubelet or another agent, also uses the registry directory.
        event_recorder.record(RecordEvent.warning("DevicePluginsOff", error_text))
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
        await dra_plugins.close()


async def _start_error(server: RegistrationServer) -> str:
    """Why the server cannot start; empty: it is running."""
    if importlib.util.find_spec("grpc") is None:
        return f"{server.directory}: the Python package grpcio is not installed: {install_command('agent')}"
    try:
        await server.start()
    except HostError as error:
        return str(error)
    return ""


def _registration_client(socket: Path) -> PluginRegistrationClient:
    from nodewright.agent.devices.plugin_client import GRPCPluginRegistrationClient  # noqa: PLC0415 - as below

    return GRPCPluginRegistrationClient(socket)


def _dra_plugin_client(registration: PluginRegistration, service: str) -> DRAPluginClient:
    from nodewright.agent.devices.plugin_client import GRPCDRAPluginClient  # noqa: PLC0415 - as below

    return GRPCDRAPluginClient(registration.socket, service)


def _plugin_client(registration: PluginRegistration) -> DevicePluginClient:
    from nodewright.agent.devices.plugin_client import GRPCDevicePluginClient  # noqa: PLC0415 - with gRPC, which few nodes need

    return GRPCDevicePluginClient(registration.socket)
