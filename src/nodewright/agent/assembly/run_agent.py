"""The agent on this machine: all its parts, put together, from its start to its end."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from nodewright.agent.assembly.agent_node import (
    WATCHED_SOURCES,
    AgentNode,
    host_address,
    node_address,
    node_system_info,
    watch_sources,
)
from nodewright.agent.assembly.agent_settings import AgentSettings, NodeCredentials, pod_resources_socket
from nodewright.agent.assembly.node_shutdown import drain, run_unless_stopped
from nodewright.agent.assembly.runtime_setup import (
    RunningParts,
    RuntimeParts,
    create_plugin_endpoints,
    create_runtime_parts,
    log_root,
    log_rotate_policy,
    serve_registration,
    wait_for_runtime,
)
from nodewright.agent.devices.plugin_endpoints import PluginEndpoints
from nodewright.agent.host.agent_process import (
    is_shutting_down,
    notify,
    notify_watchdog,
    raise_descriptor_limit,
)
from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.on_demand_server import ServerFactory
from nodewright.agent.host.prober import HostProber
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.observe.manifest_sources import SourceListener
from nodewright.agent.observe.pressure_monitor import MonitoredParts, PressureMonitor
from nodewright.agent.observe.usage_samples import UsageSampler
from nodewright.agent.pods.cgroup_reconcile import run_cgroup_reconciler
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.pods.log_rotation import LogRotatePolicy, remove_logs_of_removed_pods, rotate_logs
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.agent_server import serve_agent_api, serve_on_demand
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.serving.dashboard.agent_view import AgentView
from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes
from nodewright.agent.serving.pod_routes import ProfileRoutes
from nodewright.agent.state.agent_state import AgentConstants, PodSource, PodStage
from nodewright.agent.state.effects import event_line
from nodewright.agent.store.agent_store import AgentStore, OpenedStore, open_store
from nodewright.agent.store.store_files import JOURNAL
from nodewright.cluster.serving.http_server import log_to_stderr
from nodewright.cluster.serving.routes import AuthorizedRoute
from nodewright.cluster.tasks.supervision import BackgroundTask, LoopErrors, run_supervised, stop_event
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.files.process_tuning import ShortCollections, return_memory_regularly
from nodewright.documents.files.root_directory import prepare_root_directory
from nodewright.documents.output.terminal import ERROR, YES, print_log_line, print_message
from nodewright.documents.profiles.scenario_files import journal_header
from nodewright.engine.core.eviction.eviction_policy import POLICIES
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.model.reasons.reason import kubelet_start_error
from nodewright.model.reasons.verdict import Refused
from nodewright.predict.replay.scenario_journal import JournalEncoder
from nodewright.version import install_command

if TYPE_CHECKING:
    from nodewright.agent.serving.kubelet_routes import KubeletServingConfig


NICE_VALUE = -10
"""The agent's nice value, where it may set one."""


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running agent."""

    settings: AgentSettings
    loop: AgentLoop
    event_recorder: EventRecorder
    pressure: PressureMonitor
    object_cache: ConfigObjectCache
    agent_interface: AgentInterface
    runtime_parts: RuntimeParts
    log_rotate_policy: LogRotatePolicy
    profile: NodeProfile
    """The node without pods."""
    plugin_endpoints: PluginEndpoints
    dashboard: AgentView


async def run_agent(settings: AgentSettings, agent_node: AgentNode) -> int:
    """Runs the agent until it is asked to stop."""
    with suppress(OSError):
        # A pod that uses all CPUs must not keep the agent from terminating it.
        os.setpriority(os.PRIO_PROCESS, 0, NICE_VALUE)
    ShortCollections().install()
    prepare_root_directory(settings.root_dir)
    raise_descriptor_limit()
    credentials = cluster_credentials(settings, agent_node.node.config.parts.kubelet)
    kubelet_api = _kubelet_serving_config(settings, agent_node, credentials)
    opened_store = _opened_store(settings, agent_node)
    if opened_store is None:
        return ERROR
    log_to_stderr()
    stop = stop_event()
    parts = await run_unless_stopped(stop, _assembled_parts(settings, agent_node, opened_store))
    if parts is None:
        return YES
    record_event = parts.event_recorder.record
    asyncio.get_running_loop().set_exception_handler(LoopErrors(record_event, parts.loop.clock))
    started = RecordEvent.normal("Starting", "Starting nodewright agent.")
    for event in (started, *opened_store.events):
        record_event(event)
    await _run_until_stopped(parts, kubelet_api, credentials, stop)
    await parts.loop.effect_runner.runtime.close()
    return YES


async def _run_until_stopped(
    parts: AgentParts,
    kubelet_api: "KubeletServingConfig | None",
    credentials: NodeCredentials | None,
    stop: asyncio.Event,
) -> None:
    """Runs the loop and the tasks beside it until the agent is asked to stop."""
    settings, record_event = parts.settings, parts.event_recorder.record
    cluster = cluster_tasks(
        settings,
        credentials,
        RunningParts(parts.loop, parts.event_recorder, parts.runtime_parts),
        parts.agent_interface,
    )
    # If a server cannot start, no pod does either.
    async with _servers(parts, kubelet_api), cluster as tasks_of_cluster, asyncio.TaskGroup() as group:
        background = (*_background_tasks(parts), *tasks_of_cluster)
        supervised = (run_supervised(task, record_event, parts.loop.clock) for task in background)
        tasks = [group.create_task(routine) for routine in (parts.loop.run(), *supervised)]
        notify("READY=1\nSTATUS=ready")
        print_log_line(f"node {parts.agent_interface.node_name} is ready; API socket {settings.socket}")
        await stop.wait()
        notify("STOPPING=1")
        if settings.drain_on_exit or await asyncio.to_thread(is_shutting_down):
            print_log_line("terminating all pods, by priority")
            await drain(parts.event_recorder, parts.loop.observe, parts.loop.clock)
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def _servers(parts: AgentParts, kubelet_api: "KubeletServingConfig | None") -> AsyncIterator[None]:
    """All servers; to be entered before the first iteration of the loop, so that the metrics count it."""
    settings, agent = parts.settings, parts.agent_interface
    profile_routes = ProfileRoutes(agent, parts.profile).authorized_routes()
    routes = (*profile_routes, *DashboardRoutes(parts.dashboard).authorized_routes())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            serve_registration(settings, parts.plugin_endpoints, parts.loop, parts.event_recorder)
        )
        if kubelet_api is not None:
            await _serve_kubelet_api(stack, parts, kubelet_api, routes)
        await stack.enter_async_context(
            serve_agent_api(agent, settings.socket, group=settings.socket_group, additional_routes=routes)
        )
        await _serve_pod_resources(stack, parts)
        # Event streams must end before the servers that serve them.
        stack.callback(parts.event_recorder.close)
        yield


def _kubelet_serving_config(
    settings: AgentSettings, agent_node: AgentNode, credentials: NodeCredentials | None
) -> "KubeletServingConfig | None":
    """The settings of the kubelet's HTTP API; None: it is not served.

    Errors: InputError, HostError.
    """
    if not settings.kubelet_api:
        return None
    from nodewright.agent.assembly.kubelet_serving_config import serving_config  # noqa: PLC0415 - 3 MiB, if it is not used

    document = agent_node.profile.spec.kubelet_configuration
    host, access = (agent_node.node.name, host_address()), credentials.access if credentials else None
    return serving_config(settings, document, agent_node.node.config.parts.kubelet, host, access)


async def _serve_kubelet_api(
    stack: AsyncExitStack,
    parts: AgentParts,
    kubelet_api: "KubeletServingConfig",
    routes: Sequence[AuthorizedRoute],
) -> None:
    from nodewright.agent.serving.kubelet_routes import LoopMetrics, agent_export_routes, serve_kubelet_api  # noqa: PLC0415 - as above

    routes = (*routes, *agent_export_routes(parts.agent_interface, parts.profile))
    metrics = LoopMetrics(parts.loop, parts.pressure, parts.settings.root_dir / JOURNAL)
    metrics.volume_plugin = parts.runtime_parts.config_builder.volume_setup.plugin
    addresses = await serve_kubelet_api(stack, kubelet_api, parts.agent_interface, metrics, routes)
    print_log_line(f"kubelet API at {', '.join(map(str, addresses))}")


async def _serve_pod_resources(stack: AsyncExitStack, parts: AgentParts) -> None:
    """Serves PodResources, if it is enabled and gRPC is installed."""
    path = pod_resources_socket(parts.settings)
    if path is None:
        return
    if find_spec("grpc") is None:
        parts.event_recorder.record_warning(
            "PodResourcesNotServed",
            f"no module named 'grpc': {install_command('agent')}",
        )
        return
    server = serve_on_demand(
        path, "--pod-resources-socket", partial(_pod_resources_factory, parts.agent_interface)
    )
    try:
        await stack.enter_async_context(server)
    except HostError as error:
        if parts.settings.pod_resources_socket is not None:
            raise
        # Enabled by default only: the agent runs without it.
        parts.event_recorder.record_warning("PodResourcesNotServed", str(error))


def _pod_resources_factory(agent: AgentInterface) -> ServerFactory:
    from nodewright.agent.serving.pod_resources_server import serve_pod_resources  # noqa: PLC0415 - 16 MiB, if it is not used

    return partial(serve_pod_resources, agent)


def _opened_store(settings: AgentSettings, agent_node: AgentNode) -> OpenedStore | None:
    """The agent's store; None, after printing the reasons, where a kubelet would not start on it either."""
    journal_encoder = JournalEncoder(agent_node.profile, journal_header())
    sources = WATCHED_SOURCES if settings.kubeconfig is None else WATCHED_SOURCES | {PodSource.CLUSTER}
    opened = open_store(settings.root_dir, agent_node.node.state, journal_encoder, sources)
    if isinstance(opened, Refused):
        for reason in opened.because:
            print_message(f"error: {settings.root_dir}: {kubelet_start_error(reason)}")
        return None
    return opened.value


async def _assembled_parts(
    settings: AgentSettings, agent_node: AgentNode, opened_store: OpenedStore
) -> AgentParts:
    clock, config = HostClock(), agent_node.node.config
    event_recorder, object_cache = EventRecorder(opened_store.state, clock), ConfigObjectCache()
    event_recorder.on_event, event_recorder.on_pods_updated = _print_event, object_cache.note_change
    cgroups = CgroupFS(agent_node.own_cgroup)
    cgroups.lock()
    runtime_parts = create_runtime_parts(
        settings, config, object_cache, (cgroups, clock, event_recorder.record)
    )
    started_ns = clock.now_ns()
    runtime_facts, image_fs_path = await wait_for_runtime(
        runtime_parts, clock, partial(_report_wait, event_recorder)
    )
    _report_limitations(event_recorder, runtime_facts.limitations)
    system_info = node_system_info(started_ns, runtime_facts, config.release.rules_of, node_address(settings))
    loop = _create_loop(opened_store, event_recorder, runtime_parts, cgroups, system_info)
    storage_paths, image_manager = runtime_parts.config_builder.storage_paths, runtime_parts.image_manager
    monitored_parts = MonitoredParts.of_this_host(
        config, settings.root_dir, storage_paths, image_fs_path, image_manager
    )
    pressure = PressureMonitor(loop, monitored_parts, POLICIES[settings.eviction_policy])
    event_recorder.on_reclaim = pressure.reclaim
    plugin_endpoints = create_plugin_endpoints(settings, loop, event_recorder)
    recording = (event_recorder, opened_store.store)
    agent = _agent_interface(settings, loop, runtime_parts, recording, object_cache, system_info)
    return AgentParts(
        settings=settings,
        loop=loop,
        event_recorder=event_recorder,
        pressure=pressure,
        object_cache=object_cache,
        agent_interface=agent,
        runtime_parts=runtime_parts,
        log_rotate_policy=log_rotate_policy(config.parts.kubelet),
        profile=agent_node.profile,
        plugin_endpoints=plugin_endpoints,
        dashboard=AgentView(agent, pressure.gauges, cgroups),
    )


def _report_limitations(event_recorder: EventRecorder, limitations: Iterable[str]) -> None:
    """Records what the runtime or the machine does not support."""
    for limitation in limitations:
        text = f"this machine or its runtime does not support {limitation}"
        event_recorder.record_warning("RuntimeLacks", text)


def _create_loop(
    opened_store: OpenedStore,
    event_recorder: EventRecorder,
    runtime_parts: RuntimeParts,
    cgroups: CgroupFS,
    system_info: NodeSystemInfo,
) -> AgentLoop:
    clock, runtime = HostClock(), runtime_parts.runtime
    prober = HostProber(runtime, clock)
    effect_runner = EffectRunner(runtime, cgroups, runtime_parts.config_builder, prober, clock)
    effect_runner.log_links = runtime_parts.log_links
    config = opened_store.state.node.config
    constants = AgentConstants.of(config, system_info.started_ns, system_info.host_ip)
    return AgentLoop(opened_store.state, effect_runner, opened_store.store, event_recorder, clock, constants)


def _agent_interface(
    settings: AgentSettings,
    loop: AgentLoop,
    runtime_parts: RuntimeParts,
    recording: tuple[EventRecorder, AgentStore],
    object_cache: ConfigObjectCache,
    system_info: NodeSystemInfo,
) -> AgentInterface:
    event_recorder, store = recording
    claim_manager = loop.effect_runner.claim_manager
    assert claim_manager is not None
    return AgentInterface(
        event_recorder=event_recorder,
        observe=loop.observe,
        runtime=runtime_parts.runtime,
        streaming_server=runtime_parts.streaming_server,
        process_streams=runtime_parts.process_streams,
        clock=loop.clock,
        system_info=system_info,
        log_root=log_root(settings, loop.state.node.config),
        runtime_classes=object_cache.runtime_classes,
        storage_error=lambda: loop.write_queue.error,
        deletion_error=lambda: store.deletion_error,
        claims_of_container=claim_manager.of_container,
        metric_sources=[runtime_parts.calls.text],
    )


def _background_tasks(parts: AgentParts) -> Iterator[BackgroundTask]:
    """The tasks that run beside the loop, each isolated from the others."""
    loop, event_recorder = parts.loop, parts.event_recorder
    kubelet = loop.state.node.config.parts.kubelet
    cgroups, clock = loop.effect_runner.cgroups, loop.clock
    yield BackgroundTask("watch for pressure", parts.pressure.run)
    if loop.constants.predictor is not None:
        sampler = UsageSampler(loop, parts.settings.root_dir)
        yield BackgroundTask("sample the usage of pods", sampler.run)
    yield BackgroundTask("sample for the dashboard", parts.dashboard.keep_history)
    yield BackgroundTask("notify the watchdog", partial(notify_watchdog, clock))
    yield BackgroundTask("return free memory", partial(return_memory_regularly, clock.sleep))
    yield BackgroundTask(
        "reconcile the cgroups",
        partial(run_cgroup_reconciler, lambda: loop.state, cgroups, event_recorder.record, clock),
    )
    yield _log_task(parts)
    if parts.runtime_parts.image_manager is not None:
        yield BackgroundTask("collect unused images", parts.runtime_parts.image_manager.run)
    yield BackgroundTask(
        "refresh the volumes of config objects",
        partial(
            parts.runtime_parts.config_builder.watch_config_objects,
            partial(_active_pods, loop),
            partial(event_recorder.record_warning, "VolumeNotWritten"),
        ),
    )
    listener = SourceListener(
        node_name=parts.agent_interface.node_name,
        observe=loop.observe,
        record_event=event_recorder.record,
        object_cache=parts.object_cache,
    )
    yield from watch_sources(parts.settings, kubelet, listener)
    yield from _claim_tasks(parts)


def _claim_tasks(parts: AgentParts) -> Iterator[BackgroundTask]:
    manager, event_recorder = parts.loop.effect_runner.claim_manager, parts.event_recorder
    if manager is not None:
        on_error = partial(event_recorder.record_warning, "FailedUnprepareDynamicResources")
        run = partial(manager.run, on_error)
        yield BackgroundTask("give back the claims of pods that are gone", run)


def _log_task(parts: AgentParts) -> BackgroundTask:
    """Rotates logs, and removes those of pods and containers that are gone."""
    loop, log_root = parts.loop, parts.agent_interface.log_root

    def remove_unused_logs(pods: Iterable[RuntimePodStatus]) -> None:
        remove_logs_of_removed_pods(log_root, pods, partial(_known_uids, loop))
        if loop.effect_runner.log_links is not None:
            loop.effect_runner.log_links.remove_dead(pods)

    on_error = partial(parts.event_recorder.record_warning, "LogNotRotated")
    rotate = partial(rotate_logs, loop.effect_runner.runtime, log_root, parts.log_rotate_policy, loop.clock)
    return BackgroundTask("rotate logs", partial(rotate, on_error, remove_unused_logs))


def _known_uids(loop: AgentLoop) -> Collection[str] | None:
    """The pods that the agent has a record of; None as long as not every source has listed its pods."""
    state = loop.state
    return None if state.unready_sources or state.waiting_pods else {*state.pods, *state.orphans}


def _active_pods(loop: AgentLoop) -> list[Pod]:
    return [pod.pod for pod in loop.state.pods.values() if pod.stage is PodStage.ACTIVE]


def _report_wait(event_recorder: EventRecorder, reason: str) -> None:
    """Reports the wait for the runtime, also in the service's status."""
    notify(f"STATUS=waiting for the container runtime: {reason}")
    event_recorder.record_warning("RuntimeUnavailable", reason)


def _print_event(event: RecordEvent, name: str) -> None:
    # `get events` lists what the log loses.
    print_log_line(event_line(event, name))


# ---------------------------------------------------------------- the cluster; what it needs is imported only where the agent joins one


def cluster_credentials(settings: AgentSettings, kubelet: KubeletConfiguration) -> NodeCredentials | None:
    """How the API server is reached; None: the agent joins no cluster.

    Errors: InputError with the faults of the kubeconfig; HostError.
    """
    if settings.kubeconfig is None:
        if settings.bootstrap_kubeconfig:
            rule = "needs --kubeconfig: the file that is written once there is a certificate"
            value = settings.bootstrap_kubeconfig
            raise InputError([Fault(source="--bootstrap-kubeconfig", value=value, rule=rule)])
        return None
    from nodewright.cluster.client.access import AccessOptions  # noqa: PLC0415 - for nodes of a cluster only
    from nodewright.cluster.client.kubeconfig import load_access  # noqa: PLC0415 - as above

    if not (settings.bootstrap_kubeconfig or kubelet.rotate_certificates or kubelet.server_tls_bootstrap):
        return NodeCredentials(access=load_access(AccessOptions(kubeconfig=settings.kubeconfig), os.environ))
    _require("cryptography", settings.kubeconfig)
    from nodewright.agent.assembly.tls_bootstrap import node_credentials  # noqa: PLC0415 - 3 MiB, if it is not used

    return node_credentials(settings, rotates=kubelet.rotate_certificates, now_s=time.time())


def _require(module: str, kubeconfig: str) -> None:
    if find_spec(module) is None:
        rule = f"no module named '{module}': {install_command('agent')}"
        raise InputError([Fault(source="--kubeconfig", value=kubeconfig, rule=rule)])


@asynccontextmanager
async def cluster_tasks(
    settings: AgentSettings,
    credentials: NodeCredentials | None,
    parts: RunningParts,
    agent: AgentInterface,
) -> AsyncIterator[tuple[BackgroundTask, ...]]:
    """The tasks that make the agent a Node of its cluster; none without one.

    Errors: InputError for the options of the Node.
    """
    if credentials is None:
        yield ()
        return
    from nodewright.agent.assembly.cluster_setup import cluster_member, node_identity  # noqa: PLC0415 - needs the extra

    has_process_streams = parts.runtime.process_streams is not None and settings.kubelet_api
    config = parts.loop.state.node.config
    identity = node_identity(settings, config, agent.system_info, has_process_streams=has_process_streams)
    async with cluster_member(credentials.access, identity, parts, settings.root_dir) as member:
        agent.metric_sources.append(member.mirrors.metrics_text)
        tasks = member.tasks
        kubelet = parts.loop.state.node.config.parts.kubelet
        if not (credentials.is_issued or kubelet.server_tls_bootstrap):
            yield tasks
            return
        from nodewright.agent.assembly import tls_bootstrap  # noqa: PLC0415 - 3 MiB, if it is not used

        yield tls_bootstrap.with_certificate_tasks(
            settings, credentials, (tasks, lambda: member.registration.node), parts, agent.metric_sources
        )
