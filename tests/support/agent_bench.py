"""An agent on a simulated machine: every part is a fake, and the clock is advanced by hand.

Also the evidence of an audit that such an agent leaves behind.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace
from tests.support.disks import SlowDisk
from tests.support.fake_clock import FakeClock, settle
from tests.support.fake_host import FakeLocalStorage, FakeMemoryReadings, FakePressureEvents, run_inline

from nodewright.agent.decide.iteration import IterationResult, StateChanges
from nodewright.agent.host.ports import ContainerConfig, ImageStore, PodSandboxConfig
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.pressure_monitor import MonitoredParts, PressureMonitor
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.pods.image_manager import ImageManager
from nodewright.agent.rules.image_policy import ImageGCPolicy
from nodewright.agent.rules.pod_actions import spec_hash
from nodewright.agent.runtimes.simulated import ContainerScript, FakeCgroups, FakeRuntime
from nodewright.agent.state.agent_state import (
    AgentConstants,
    AgentState,
    PodRecord,
    PodSource,
    next_due_ns,
    pod_index,
)
from nodewright.agent.state.effects import ReclaimNodeResources
from nodewright.agent.state.observations import (
    Observation,
    PodApplied,
    PodDeletionRequested,
    SourcePodsListed,
)
from nodewright.agent.store.write_queue import StateWriter
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.engine.core.eviction.eviction_policy import ADAPTIVE, EvictionPolicy
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import NodeStep
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile


def async_test(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """The test as a synchronous function."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class FakeConfigBuilder:
    """Builds configs with the given values only."""

    async def prepare_pod(self, pod: Pod) -> None:
        """Does nothing: there are no volumes."""

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """A sandbox config."""
        return PodSandboxConfig(
            pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory=f"/logs/{pod.uid}"
        )

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[CgroupFile, ...]],
        facts: RuntimePodStatus,  # noqa: ARG002 - the port has it
    ) -> ContainerConfig:
        """A container config."""
        return ContainerConfig(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=spec_hash(container),
            log_path=f"{container.name}/{attempt}.log",
            image=container.image,
            settings=settings[0],
            cgroup_files=settings[1],
        )

    async def remove_pod_files(self, pod: Pod) -> None:
        """Does nothing: there are no files."""


class FakeProber:
    """Fails for the given containers, and succeeds for all others."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        """Names of the containers with failing probes and hooks."""
        self.requests: list[tuple[str, str]] = []
        """The container's id and the kind of handler, in order."""
        self.completed_hooks: list[str] = []
        """The ids of the containers with completed hooks, failed ones included."""
        self.hooks_may_run = asyncio.Event()
        """While it is not set, hooks block."""
        self.hooks_may_run.set()

    async def probe(
        self,
        handler: Mapping[str, Any],
        container_id: str,
        address: str,  # noqa: ARG002 - the port has it
        timeout_s: float,  # noqa: ARG002 - the port has it
    ) -> tuple[bool, str]:
        """The result."""
        self.requests.append((container_id, next(iter(handler), "")))
        is_bad = container_id.split("-", maxsplit=1)[0] in self.failing
        return not is_bad, "no" if is_bad else "yes"

    async def run_hook(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float, who: str
    ) -> tuple[bool, str]:
        """The result of the hook."""
        await self.hooks_may_run.wait()
        is_success, output = await self.probe(handler, container_id, address, timeout_s)
        self.completed_hooks.append(container_id)
        return is_success, "" if is_success else f"{who}: {output}"


class FakeStore:
    """Stores changes in memory, unless the disk is full."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.node: NodeState | None = None
        self.stepped: list[NodeStep] = []
        self.is_full = False

    def write(self, changes: StateChanges) -> None:
        """Stores all of the changes or none."""
        if self.is_full:
            raise HostError("write", "memory", "no space left on device")
        self.stepped += changes.node_steps
        for uid, record in changes.pods.items():
            if record is None:
                self.pods.pop(uid, None)
            else:
                self.pods[uid] = record
        self.node = changes.node


class CheckedLoop(AgentLoop):
    """Checks after each iteration that the index is that of its pods, and that the next due moment is not in the past."""

    def iterate(self, observation: Observation) -> bool:
        """Decides on one observation."""
        is_urgent = super().iterate(observation)
        kept, due_ns = pod_index(self.state), next_due_ns(self.state)
        made = pod_index(replace(self.state, index=None))
        assert kept.moments_ns == made.moments_ns
        assert {name: set(uids) for name, uids in kept.uids_by_name.items()} == {
            name: set(uids) for name, uids in made.uids_by_name.items()
        }
        assert due_ns is None or due_ns > self.clock.monotonic_s() * 10**9, (
            "the loop would wake up at once, for ever"
        )
        return is_urgent


class FakeEventRecorder:
    """Collects events and reclaim requests."""

    def __init__(self) -> None:
        self.events: list[RecordEvent] = []
        self.reclaims: list[ReclaimNodeResources] = []
        self.on_reclaim: Callable[[ReclaimNodeResources], None] = lambda _: None

    def record(self, event: RecordEvent) -> None:
        """Collects an event."""
        self.events.append(event)

    def publish(self, result: IterationResult) -> None:
        """Collects the events of an iteration."""
        self.events += [effect for effect in result.effects if isinstance(effect, RecordEvent)]

    def reclaim(self, effect: ReclaimNodeResources) -> None:
        """Collects a reclaim request."""
        self.reclaims.append(effect)
        self.on_reclaim(effect)


class AgentBench:
    """An agent on a simulated node, for `async with`."""

    def __init__(
        self,
        profile: NodeProfile | None = None,
        unready_sources: Collection[PodSource] = (),
        clock: FakeClock | None = None,
        **scripts: ContainerScript,
    ) -> None:
        self.clock = clock or FakeClock()
        self.runtime = FakeRuntime(self.clock, scripts)
        self.cgroups, self.prober = FakeCgroups(), FakeProber()
        self.fake_store, self.event_recorder = FakeStore(), FakeEventRecorder()
        self.store: StateWriter = self.fake_store
        self.node = Node.from_profile(profile or a_profile()).state
        self.loop = self._loop(AgentState(node=self.node, unready_sources=frozenset(unready_sources)))
        self.memory_readings, self.storage, self.pressure_events = (
            FakeMemoryReadings(),
            FakeLocalStorage(),
            FakePressureEvents(),
        )
        self.pressure: PressureMonitor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._disk: SlowDisk | None = None

    def replace_state(self, state: AgentState, store: StateWriter) -> None:
        """Makes the agent start with this state, before it runs."""
        self.store = store
        self.loop = self._loop(state)

    def use_slow_disk(self, seconds: float) -> None:
        """Makes every write to the store take this long."""
        self._disk = SlowDisk(self.clock, seconds)
        self.loop.write_queue.run_in_thread = self._disk

    def adopt(self, runtime: FakeRuntime, cgroups: FakeCgroups) -> None:
        """Uses the runtime and cgroups of an earlier agent, before this one starts."""
        runtime.clock = self.clock
        self.runtime, self.cgroups = runtime, cgroups
        self.loop = self._loop(self.loop.state)

    async def add_pods(self, *pods: Pod, source: PodSource = PodSource.API) -> None:
        """Adds pods, and runs what can run at once."""
        for pod in pods:
            self.loop.observe(PodApplied(source, pod))
        await settle()

    async def set_source_pods(self, *pods: Pod, source: PodSource = PodSource.WORKLOAD) -> None:
        """Makes these the pods of a source."""
        self.loop.observe(SourcePodsListed(source, pods))
        await settle()

    async def remove_pod(self, uid: str, grace_period_s: int | None = None) -> None:
        """Deletes a pod."""
        self.loop.observe(PodDeletionRequested(uid, grace_period_s))
        await settle()

    async def watch_pressure(
        self, policy: EvictionPolicy = ADAPTIVE, images: ImageStore | None = None
    ) -> PressureMonitor:
        """Starts to watch the pressure that the fake readings show."""
        gc_policy = ImageGCPolicy(min_age_ns=0)
        image_manager = None
        if images is not None:
            image_manager = ImageManager(images, self.clock, self.event_recorder.record, policy=gc_policy)
        parts = MonitoredParts(
            gauges=self.memory_readings,
            storage=self.storage,
            alarms=self.pressure_events,
            image_manager=image_manager,
            run_in_thread=run_inline,
        )
        self.pressure = PressureMonitor(self.loop, parts, policy)
        self.event_recorder.on_reclaim = self.pressure.reclaim
        self._tasks.append(asyncio.create_task(self.pressure.run()))
        await settle()
        return self.pressure

    def record(self, uid: str) -> PodRecord:
        """The record of a pod."""
        return self.loop.state.pods[uid]

    def phase(self, uid: str) -> str:
        """The phase of a pod; empty: no such pod."""
        record = self.loop.state.pods.get(uid)
        return record.status.phase if record is not None else ""

    def runtime_operations(self) -> list[str]:
        """The runtime's operations, as text."""
        return [f"{name} {target}" for name, target in self.runtime.operations]

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self.loop.run()))
        await settle()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._disk is not None:
            self._disk.hurry.set()
        failed = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in failed:
            task.result()

    def _loop(self, state: AgentState) -> AgentLoop:
        effect_runner = EffectRunner(self.runtime, self.cgroups, FakeConfigBuilder(), self.prober, self.clock)
        effect_runner.run_in_thread = run_inline
        constants = AgentConstants.of(state.node.config, self.clock.now_ns())
        loop = CheckedLoop(state, effect_runner, self.store, self.event_recorder, self.clock, constants)
        loop.write_queue.run_in_thread = run_inline
        return loop
