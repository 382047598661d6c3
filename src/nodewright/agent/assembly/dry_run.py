"""A dry run of the agent: real decisions, effects that are only printed."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from nodewright.agent.assembly.agent_node import WATCHED_SOURCES, node_system_info, watch_sources
from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.decide.iteration import IterationResult, StateChanges
from nodewright.agent.host.eviction_readings import HostStatsProvider
from nodewright.agent.host.ports import ContainerConfig, PodSandboxConfig
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.observe.manifest_sources import SourceListener
from nodewright.agent.observe.pressure_monitor import pods_cgroup
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.rules.pod_actions import spec_hash
from nodewright.agent.runtimes.simulated import FakeCgroups, FakeRuntime
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.state.agent_state import AgentConstants, AgentState, PodStage
from nodewright.agent.state.effects import effect_lines, event_line
from nodewright.cluster.tasks.supervision import run_supervised, stop_event
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.output.terminal import NO, YES, print_line, print_message
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.engine.node.eviction_pass import hidden_huge_pages
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.predict.node import Node

_POLL_PERIOD_S = 0.01


async def dry_run(settings: AgentSettings, node: Node) -> int:
    """Shows what the agent would do.

    Exit code: 3 if a pod is rejected.
    """
    clock = HostClock()
    runtime, cgroups = FakeRuntime(clock), FakeCgroups(node.config.facts.cgroup_version)
    effect_runner = EffectRunner(runtime, cgroups, SimulatedConfigBuilder(), PassingProber(), clock)
    constants = AgentConstants.of(node.config, clock.now_ns())
    state = AgentState(node=node.state, unready_sources=WATCHED_SOURCES)
    event_recorder = EventRecorder(state, clock)
    event_recorder.on_result = _print_effects
    event_recorder.on_event = _print_event
    loop = AgentLoop(state, effect_runner, NoStore(), event_recorder, clock, constants)
    listener = SourceListener(
        node_name=node.name,
        observe=loop.observe,
        record_event=event_recorder.record,
        object_cache=ConfigObjectCache(),
    )
    async with contextlib.AsyncExitStack() as stack:
        running = asyncio.create_task(loop.run())
        stack.callback(running.cancel)
        for source in watch_sources(settings, node.config.parts.kubelet, listener):
            task = asyncio.create_task(run_supervised(source, event_recorder.record, clock))
            stack.callback(task.cancel)
        if settings.dry_run == "once":
            await _wait_until_idle(loop, running)
        else:
            agent = AgentInterface(
                event_recorder=event_recorder,
                observe=loop.observe,
                runtime=runtime,
                clock=clock,
                system_info=node_system_info(clock.now_ns(), None, node.config.release.rules_of),
                log_root=settings.root_dir / "logs",
            )
            await stack.enter_async_context(_served_api(agent, settings, node))
            print_message(f"dry run: nothing is carried out; API socket {settings.socket}")
            await stop_event().wait()
            return YES
    refused = any(pod.stage is PodStage.REJECTED for pod in loop.state.pods.values())
    return NO if refused else YES


def _served_api(
    agent: AgentInterface, settings: AgentSettings, node: Node
) -> contextlib.AbstractAsyncContextManager[None]:
    from nodewright.agent.serving.agent_server import serve_agent_api  # noqa: PLC0415 - needs the extra `agent`
    from nodewright.agent.serving.dashboard.agent_view import AgentView  # noqa: PLC0415 - as above
    from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes  # noqa: PLC0415 - as above

    # The stats of this machine say nothing about another node.
    gauges = None
    if not settings.node:
        pages = hidden_huge_pages(node.config)
        gauges = HostStatsProvider(pods_cgroup(node.config), nodefs=settings.root_dir, huge_page_bytes=pages)
    routes = DashboardRoutes(AgentView(agent, gauges)).authorized_routes()
    return serve_agent_api(agent, settings.socket, group=settings.socket_group, additional_routes=routes)


def _print_effects(result: IterationResult) -> None:
    """Prints effects; events are printed when they are recorded."""
    for effect in result.effects:
        for line in () if isinstance(effect, RecordEvent) else effect_lines(effect, result.state.pods):
            print_line(line)


def _print_event(event: RecordEvent, name: str) -> None:
    print_line(event_line(event, name))


async def _wait_until_idle(loop: AgentLoop, running: "asyncio.Task[None]") -> None:
    """Waits until no effect runs and every observation is decided on."""
    while not running.done():
        await asyncio.sleep(_POLL_PERIOD_S)
        if loop.state.unready_sources or not loop.is_idle:
            continue
        if not any(pod.has_running_effect for pod in loop.state.pods.values()):
            return
    await running


class NoStore:
    """Persists nothing."""

    def write(self, changes: StateChanges) -> None:
        """Does nothing: a dry run leaves no state."""


class PassingProber:
    """Succeeds always: no container runs that could be probed."""

    async def probe(
        self, _handler: Mapping[str, Any], _container_id: str, _address: str, _timeout_s: float
    ) -> tuple[bool, str]:
        """Success."""
        return True, ""

    async def run_hook(
        self,
        _handler: Mapping[str, Any],
        _container_id: str,
        _address: str,
        _timeout_s: float,
        _container: str,
    ) -> tuple[bool, str]:
        """Success."""
        return True, ""


class SimulatedConfigBuilder:
    """Builds configs without volumes, variables and logs, which would have to be created."""

    async def prepare_pod(self, pod: Pod) -> None:
        """Does nothing: no volume is created."""

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """The config of the pod's sandbox."""
        return PodSandboxConfig(pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory="")

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[CgroupFile, ...]],
        _runtime_status: RuntimePodStatus,
    ) -> ContainerConfig:
        """The config of a container."""
        return ContainerConfig(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=spec_hash(container),
            log_path=f"{container.name}/{attempt}.log",
            settings=settings[0],
            cgroup_files=settings[1],
        )

    async def remove_pod_files(self, pod: Pod) -> None:
        """Does nothing: there are no files."""
