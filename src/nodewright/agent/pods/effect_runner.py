"""Runs effects through the ports: one task for each pod; results go back to the loop as observations.

Every operation of the runtime has a time limit. A resize raises the pod's cgroup before its containers, and lowers it after
them.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from nodewright.agent.decide.pod_resize import RESIZE_ERROR
from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.device_allocation import DeviceAllocator
from nodewright.agent.devices.protocols import SimulatedDevicePlugins
from nodewright.agent.host.agent_process import release_memory
from nodewright.agent.host.ports import (
    ContainerConfig,
    ContainerRuntime,
    ExecResult,
    PodSandboxConfig,
    Prober,
    RuntimeFacts,
)
from nodewright.agent.pods.container_lifecycle import (
    ConfigBuilder,
    ContainerConfigError,
    ContainerStarter,
    ContainerStopper,
    StartDependencies,
    container_named,
    run_probe,
)
from nodewright.agent.pods.log_rotation import LogLinks
from nodewright.agent.rules.pod_actions import no_runtime_status
from nodewright.agent.state.effects import (
    AllocateDevices,
    CancelEffect,
    CleanUpPod,
    PodEffect,
    QueryEffect,
    QueryPreferredAllocation,
    RunProbe,
    SyncPod,
    TerminatePod,
    UpdateContainerResources,
    UpdateStartingContainer,
    WriteCgroups,
)
from nodewright.agent.state.observations import (
    CGROUP_ERROR,
    CLAIMS_ERROR,
    KILL_ERROR,
    MOUNT_ERROR,
    SANDBOX_ERROR,
    ContainerUpdateFailed,
    EffectFailure,
    Observation,
    PodEffectCompleted,
)
from nodewright.cluster.tasks.supervision import error_text, report_failure
from nodewright.cluster.tasks.timing import Clock, ThreadRunner, monotonic_ns, with_timeout
from nodewright.documents.files.cgroup_files import CgroupManager, ContainerUsage
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    BorrowerCeiling,
    ContainerSettings,
    MemoryCeiling,
)
from nodewright.engine.core.cgroups.cgroup_plan import UNLIMITED, CgroupFile, CgroupLevel, PlannedCgroup
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus

T = TypeVar("T")


OPERATION_TIMEOUT_S = 120.0
"""The kubelet's default for runtimeRequestTimeout."""


_STATUS_RETRY_S = 5.0


class EffectRunner:
    """Runs effects; ``observe`` gets their results."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        cgroups: CgroupManager,
        config_builder: ConfigBuilder,
        prober: Prober,
        clock: Clock,
    ) -> None:
        self.runtime: ContainerRuntime = TimeLimitedRuntime(runtime, clock)
        self.cgroups, self.config_builder, self.prober, self.clock = cgroups, config_builder, prober, clock
        self._stopper = ContainerStopper(self.runtime, prober, clock, self._record)
        self.observe: Callable[[Observation], None] = lambda _: None
        self.record_event: Callable[[RecordEvent], None] = lambda _: None
        """Publishes failures that change no state."""
        self.device_allocator = DeviceAllocator(SimulatedDevicePlugins())
        """Allocates devices; without plugins every allocation succeeds."""
        self.claim_manager: ClaimManager | None = None
        """Prepares the claims of pods; None: no pod has any."""
        self.log_links: LogLinks | None = None
        self._is_closed = False
        self._pod_tasks: dict[str, asyncio.Task[None]] = {}
        self._starters: dict[str, ContainerStarter] = {}
        """The starter of each pod's latest sync."""
        self._other_tasks: set[asyncio.Task[None]] = set()
        self.run_in_thread: ThreadRunner = asyncio.to_thread
        self._ceilings: tuple[str, tuple[CgroupFile, ...]] | None = None
        """The cgroup of borrowers and its newest ceiling of memory, until it is written."""
        self._ceiling_task: asyncio.Task[None] | None = None

    def start(
        self,
        effect: PodEffect | CancelEffect | UpdateContainerResources | UpdateStartingContainer | QueryEffect,
    ) -> None:
        """Starts an effect, or cancels one."""
        match effect:
            case AllocateDevices() | SyncPod() | TerminatePod() | CleanUpPod():
                assert effect.uid not in self._pod_tasks, effect.uid
                self._starters.pop(effect.uid, None)
                if isinstance(effect, SyncPod):
                    dependencies = StartDependencies(
                        self.runtime,
                        self.config_builder,
                        self.prober,
                        self.device_allocator,
                        self.claim_manager,
                        self.log_links,
                    )
                    self._starters[effect.uid] = ContainerStarter(effect, dependencies)
                self._pod_tasks[effect.uid] = asyncio.create_task(self._run_pod_effect(effect))
            case CancelEffect(uid):
                if uid in self._pod_tasks:
                    # After the task has begun: a task that never began could not report its end.
                    asyncio.get_running_loop().call_soon(self._pod_tasks[uid].cancel)
            case UpdateContainerResources():
                self._start_task(effect, self._update_container(effect))
            case UpdateStartingContainer():
                self._start_task(effect, self._update_starting_container(effect))
            case RunProbe():
                self._start_task(effect, self._run_probe(effect))
            case QueryPreferredAllocation():
                self._start_task(effect, self._query_preference(effect))

    def write_cgroups(self, effect: WriteCgroups) -> tuple[EffectFailure, ...]:
        """Writes the cgroups above those of pods, from the top down; the failures."""
        failures = []
        for cgroup in effect.cgroups:
            ceilings = tuple(file for file in cgroup.files if _limits_borrowers(file))
            try:
                self.cgroups.ensure(cgroup.path, tuple(file for file in cgroup.files if file not in ceilings))
            except HostError as error:
                failures.append(EffectFailure(reason="CgroupNotWritten", message=str(error)))
            if ceilings:
                self._ceilings = (cgroup.path, ceilings)
                if self._ceiling_task is None or self._ceiling_task.done():
                    self._ceiling_task = self._start_task(effect, self._write_ceilings())
        return tuple(failures)

    async def _write_ceilings(self) -> None:
        """Writes the newest ceiling of borrowed memory beside the loop: the kernel reclaims before such a write returns."""
        while self._ceilings is not None:
            (path, files), self._ceilings = self._ceilings, None
            try:
                await self.run_in_thread(partial(self.cgroups.ensure, path, files))
            except HostError as error:
                self.record_event(RecordEvent.warning("CgroupNotWritten", str(error)))

    def _record(self, event: RecordEvent) -> None:
        self.record_event(event)

    async def close(self) -> None:
        """Stops all effects; running containers keep running."""
        self._is_closed = True
        tasks = [*self._pod_tasks.values(), *self._other_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_task(self, effect: object, operation: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(operation)
        report_failure(task, type(effect).__name__, self.record_event)
        self._other_tasks.add(task)
        task.add_done_callback(self._other_tasks.discard)
        return task

    async def _run_pod_effect(self, effect: PodEffect) -> None:
        failures: list[EffectFailure] = []
        reason = SANDBOX_ERROR if isinstance(effect, SyncPod) else KILL_ERROR
        is_cancelled, allocation = False, None
        try:
            if isinstance(effect, AllocateDevices):
                allocation = await self.device_allocator.allocate(effect)
            else:
                await self._run_effect(effect, failures)
        except asyncio.CancelledError:
            if self._is_closed:
                raise
            is_cancelled = True
        except ContainerConfigError as error:
            failures.append(EffectFailure(reason=reason, message=str(error)))
        except Exception as error:  # noqa: BLE001 - a pod whose effect never ends could not even be deleted
            failures.append(EffectFailure(reason=reason, message=error_text(error)))
        runtime_status, observed_at_ns, was_cancelled = await self._uncancelled_status(effect.uid)
        del self._pod_tasks[effect.uid]
        self.observe(
            PodEffectCompleted(
                uid=effect.uid,
                effect=effect,
                runtime_status=runtime_status,
                observed_at_ns=observed_at_ns,
                failures=tuple(failures),
                is_cancelled=is_cancelled or was_cancelled,
                device_allocation=allocation,
            )
        )
        self._report_failed_updates(effect.uid)

    async def _run_effect(
        self, effect: SyncPod | TerminatePod | CleanUpPod, failures: list[EffectFailure]
    ) -> None:
        match effect:
            case SyncPod():
                await self._sync(effect, self._starters[effect.uid], failures)
            case TerminatePod():
                await self._terminate(effect)
            case CleanUpPod():
                await self._clean_up(effect)

    async def _uncancelled_status(self, uid: str) -> tuple[RuntimePodStatus | None, int, bool]:
        """As `_latest_status`, and whether the effect was cancelled meanwhile; only `close` ends it early."""
        is_cancelled, status_task = False, asyncio.ensure_future(self._latest_status(uid))
        while not status_task.done():
            try:
                await asyncio.wait((status_task,))
            except asyncio.CancelledError:
                if self._is_closed:
                    status_task.cancel()
                    raise
                is_cancelled = True
        return *status_task.result(), is_cancelled

    async def _latest_status(self, uid: str) -> tuple[RuntimePodStatus | None, int]:
        """The runtime's status of a pod, repeated until the runtime answers; and when it was requested."""
        is_reported = False
        while True:
            observed_at_ns = monotonic_ns(self.clock)
            try:
                return await self.runtime.pod(uid), observed_at_ns
            except Exception as error:  # noqa: BLE001 - as for the effect
                if not is_reported:
                    # Nothing else is reported about this pod until the runtime answers.
                    message = error_text(error)
                    self.record_event(RecordEvent.warning("RuntimeUnavailable", message, uid=uid))
                is_reported = True
            await self.clock.sleep(_STATUS_RETRY_S)

    # ------------------------------------------------------------ sync

    async def _sync(self, effect: SyncPod, starter: ContainerStarter, failures: list[EffectFailure]) -> None:
        """Cgroups, kills, sandbox, starts.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, SyncPod.
        """
        pod, plan = effect.pod, effect.plan
        cgroup = _pod_cgroup(effect.cgroups)
        if effect.is_resize:
            failures += await apply_resize(self.runtime, self.cgroups, cgroup, effect.updates)
        elif cgroup is not None:
            try:
                self.cgroups.ensure(cgroup.path, cgroup.files)
            except HostError as error:
                failures.append(EffectFailure(reason=CGROUP_ERROR, message=str(error)))
                return
        runtime_status = await self.runtime.pod(pod.uid) or no_runtime_status(pod)
        if plan.kill_pod:
            await self._stopper.stop_all(pod, runtime_status, None)
        for kill in plan.containers_to_kill:
            await self._stopper.stop(pod, kill.container, kill.reason, None)
        for container in plan.containers_to_reset:
            await self._stopper.stop(pod, container, None, 0)
            await self.runtime.remove_container(container.id)
        if not await self._prepare_pod(effect, failures):
            return
        sandbox_id = plan.sandbox_id
        if plan.sandbox_attempt is not None:
            path = cgroup.path if cgroup is not None else ""
            sandbox_id = await self._recreate_sandbox(effect, path, runtime_status)
            runtime_status = await self.runtime.pod(pod.uid) or no_runtime_status(pod)
        failures += await starter.run(sandbox_id, runtime_status)

    async def _prepare_pod(self, effect: SyncPod, failures: list[EffectFailure]) -> bool:
        """Sets up what the containers to start need; whether they may start."""
        try:
            if effect.plan.containers_to_start:
                await self.config_builder.prepare_pod(effect.pod)
                if effect.plan.sandbox_attempt is not None:
                    return await self._prepare_claims(effect.pod, failures)
        except ContainerConfigError as error:
            failures.append(EffectFailure(reason=error.reason, message=str(error)))
            return False
        except HostError as error:
            failures.append(EffectFailure(reason=MOUNT_ERROR, message=str(error)))
            return False
        return True

    async def _prepare_claims(self, pod: Pod, failures: list[EffectFailure]) -> bool:
        """Has the pod's claims prepared; whether they are.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, SyncPod.
        """
        if self.claim_manager is not None:
            try:
                await self.claim_manager.prepare(pod)
            except HostError as error:
                text = f"Failed to prepare dynamic resources: {error.error}"
                failures.append(EffectFailure(reason=CLAIMS_ERROR, message=text))
                return False
        return True

    async def _recreate_sandbox(self, effect: SyncPod, path: str, runtime_status: RuntimePodStatus) -> str:
        """Stops what is left of the old sandboxes and creates another one, in which all init containers run again.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, purgeInitContainers.
        """
        for sandbox in runtime_status.sandboxes:
            await self.runtime.stop_sandbox(sandbox.id)
        init_names = {container.name for container in effect.pod.spec.init_containers}
        for container in runtime_status.containers:
            if container.name in init_names:
                await self.runtime.remove_container(container.id)
        assert effect.plan.sandbox_attempt is not None
        await self._kill_unknown_processes(effect.uid, path)
        return await self.runtime.run_sandbox(
            await self.config_builder.sandbox_config(effect.pod, effect.plan.sandbox_attempt, path)
        )

    async def _kill_unknown_processes(self, uid: str, path: str) -> None:
        """Kills what still runs in the pod's cgroup although the runtime has stopped, or lost, all that it knows.

        Errors: HostError if processes remain.
        """
        count = len(self.cgroups.processes(path)) if path else 0
        if count:
            await asyncio.to_thread(self.cgroups.kill, path)
            message = f"{count} processes in {path} that the runtime does not know were killed"
            self.record_event(RecordEvent.warning("StrayProcesses", message, uid=uid))

    # ------------------------------------------------------------ termination

    async def _terminate(self, effect: TerminatePod) -> None:
        """Stops all containers in their order, then the sandboxes, and removes the cgroup."""
        is_over = threading.Event()
        pids = self.cgroups.processes(effect.cgroup) if effect.is_eviction and effect.cgroup else ()
        if pids:
            self._start_task(effect, asyncio.to_thread(release_memory, pids, is_over.is_set))
        try:
            await self._stop_pod(effect)
        finally:
            is_over.set()
        if self.claim_manager is not None:
            await self.claim_manager.unprepare(effect.pod)
        self._remove_cgroup(effect.cgroup)

    async def _stop_pod(self, effect: TerminatePod) -> None:
        runtime_status = await self.runtime.pod(effect.uid)
        if runtime_status is not None:
            await self._stopper.stop_all(effect.pod, runtime_status, effect.grace_period_s)
            for sandbox in runtime_status.sandboxes:
                await self.runtime.stop_sandbox(sandbox.id)

    async def _clean_up(self, effect: CleanUpPod) -> None:
        runtime_status = await self.runtime.pod(effect.uid)
        for sandbox in runtime_status.sandboxes if runtime_status is not None else ():
            await self.runtime.stop_sandbox(sandbox.id)
            await self.runtime.remove_sandbox(sandbox.id)
        self._remove_cgroup(effect.cgroup)
        await self.config_builder.remove_pod_files(effect.pod)

    def _remove_cgroup(self, path: str) -> None:
        """Kills what runs in a pod's cgroup and removes it; an empty path: the pod has none."""
        if path:
            self.cgroups.kill(path)
            self.cgroups.remove(path)

    # ------------------------------------------------------------ other effects

    async def _update_container(self, effect: UpdateContainerResources) -> None:
        try:
            await self.runtime.update_container(effect.container_id, effect.settings, effect.files)
        except Exception:  # noqa: BLE001 - the update is repeated after any error
            self.observe(ContainerUpdateFailed(uid=effect.uid, container_id=effect.container_id))

    async def _update_starting_container(self, effect: UpdateStartingContainer) -> None:
        """Updates a container that is being started, or has just started."""
        if effect.uid in self._starters:
            await self._starters[effect.uid].update_resources(effect)
            if effect.uid not in self._pod_tasks:
                self._report_failed_updates(effect.uid)

    def _report_failed_updates(self, uid: str) -> None:
        """Reports the containers that could not be updated, once their starts are over."""
        starter = self._starters.get(uid)
        while starter is not None and starter.failed_updates:
            self.observe(ContainerUpdateFailed(uid=uid, container_id=starter.failed_updates.pop()))

    async def _query_preference(self, effect: QueryPreferredAllocation) -> None:
        self.observe(await self.device_allocator.query_preference(effect))

    async def _run_probe(self, effect: RunProbe) -> None:
        self.observe(
            await run_probe(self.prober, effect, container_named(effect.pod, effect.container), self.clock)
        )


def _limits_borrowers(file: CgroupFile) -> bool:
    fact = file.because
    return isinstance(fact, BorrowerCeiling) or (
        isinstance(fact, MemoryCeiling) and fact.origin is AmountOrigin.LENT
    )


def _pod_cgroup(cgroups: Iterable[PlannedCgroup]) -> PlannedCgroup | None:
    return next((cgroup for cgroup in cgroups if cgroup.level is CgroupLevel.POD), None)


# ---------------------------------------------------------------- resize


async def apply_resize(
    runtime: ContainerRuntime,
    cgroups: CgroupManager,
    cgroup: PlannedCgroup | None,
    updates: tuple[UpdateContainerResources, ...],
) -> list[EffectFailure]:
    """The failures; `container` holds the container's id, or is empty for the pod's cgroup.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, doPodResizeAction.
    """
    failures: list[EffectFailure] = []
    path, files = (cgroup.path, cgroup.files) if cgroup is not None else ("", ())
    texts = cgroups.read_files(path, tuple(file.name for file in files)) if files else None
    raised_files = tuple(file for file in files if raises_limit(file, (texts or {}).get(file.name, "")))
    try:
        if raised_files:
            cgroups.ensure(path, raised_files)
        for update in updates:
            try:
                await runtime.update_container(update.container_id, update.settings, update.files)
            except (HostError, TimeoutError) as error:
                failures.append(_failure(error, update.container_id))
        if files and not failures:
            cgroups.ensure(path, files)
    except HostError as error:
        failures.append(_failure(error, ""))
    return failures


def raises_limit(file: CgroupFile, current: str) -> bool:
    """Whether the new value of a file is larger than its current text.

    >>> from nodewright.engine.core.cgroups.cgroup_facts import MemoryCeiling, AmountOrigin
    >>> def is_raised(current: str, value: str) -> bool:
    ...     return raises_limit(CgroupFile("f", value, MemoryCeiling(0, AmountOrigin.LIMIT)), current)
    >>> is_raised("50000 100000", "60000 100000"), is_raised("max 100000", "50000 100000")
    (True, False)
    >>> is_raised("-1", "5"), is_raised("5", "-1")
    (False, True)
    """
    return _amount(file.value) > _amount(current)


def _amount(text: str) -> float:
    """The first number in a file's text; infinity for no limit."""
    word = (text.split() or ["0"])[0]
    if word in (UNLIMITED, "-1"):
        return float("inf")
    try:
        return float(word)
    except ValueError:
        return 0.0


def _failure(error: Exception, container_id: str) -> EffectFailure:
    return EffectFailure(reason=RESIZE_ERROR, message=str(error), container=container_id)


# ---------------------------------------------------------------- time limits


class TimeLimitedRuntime:
    """A container runtime with a time limit for each operation. An operation that timed out may still take effect.

    Errors: TimeoutError, which names the operation; otherwise those of the runtime.
    Follows: v1.36, cri-client/pkg/remote_runtime.go: stopping has the grace period on top, executing its own limit.
    """

    def __init__(self, runtime: ContainerRuntime, clock: Clock, limit_s: float = OPERATION_TIMEOUT_S) -> None:
        self._runtime, self._clock, self._limit_s = runtime, clock, limit_s

    async def facts(self) -> RuntimeFacts:
        """The runtime's name and version."""
        return await self._run_within("facts", self._runtime.facts())

    async def pods(self) -> tuple[RuntimePodStatus, ...]:
        """All pods of the runtime."""
        return await self._run_within("list pods", self._runtime.pods())

    async def pod(self, uid: str) -> RuntimePodStatus | None:
        """One pod; None: unknown to the runtime."""
        return await self._run_within(f"look at pod {uid}", self._runtime.pod(uid))

    async def run_sandbox(self, config: PodSandboxConfig) -> str:
        """Runs a sandbox; its id."""
        return await self._run_within("run sandbox", self._runtime.run_sandbox(config))

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stops a sandbox and its containers."""
        await self._run_within(f"stop sandbox {sandbox_id}", self._runtime.stop_sandbox(sandbox_id))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox."""
        await self._run_within(f"remove sandbox {sandbox_id}", self._runtime.remove_sandbox(sandbox_id))

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        """Creates a container; its id."""
        operation = self._runtime.create_container(sandbox_id, config)
        return await self._run_within(f"create container {config.container.name}", operation)

    async def start_container(self, container_id: str) -> None:
        """Starts a container."""
        await self._run_within(f"start container {container_id}", self._runtime.start_container(container_id))

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """Stops a container."""
        operation = self._runtime.stop_container(container_id, grace_period_s)
        await self._run_within(f"stop container {container_id}", operation, grace_period_s)

    async def remove_container(self, container_id: str) -> None:
        """Removes a container."""
        await self._run_within(
            f"remove container {container_id}", self._runtime.remove_container(container_id)
        )

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
    ) -> None:
        """Changes a container's resources."""
        operation = self._runtime.update_container(container_id, settings, files)
        await self._run_within(f"update container {container_id}", operation)

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> ExecResult:
        """The result of a command in a container."""
        operation = self._runtime.execute(container_id, command, timeout_s)
        return await self._run_within(f"execute in container {container_id}", operation, timeout_s)

    async def reopen_log(self, container_id: str) -> None:
        """Has the runtime continue a container's log in a new file."""
        await self._run_within(
            f"reopen log of container {container_id}", self._runtime.reopen_log(container_id)
        )

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """Each container's resource usage."""
        return await self._run_within("usage", self._runtime.usage())

    def changes(self) -> AsyncIterator[str]:
        """The uids of pods as they change; without a time limit."""
        return self._runtime.changes()

    async def close(self) -> None:
        """Closes the connection to the runtime."""
        await self._runtime.close()

    async def _run_within(self, name: str, operation: Coroutine[Any, Any, T], extra_s: float = 0) -> T:
        return await with_timeout(self._clock, name, operation, self._limit_s + extra_s)
