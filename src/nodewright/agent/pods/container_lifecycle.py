"""Starts and stops the containers of a pod, each with its hooks, its current resources and its grace period; runs probes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.device_allocation import DeviceAllocationError, DeviceAllocator
from nodewright.agent.host.ports import (
    ContainerConfig,
    ContainerRuntime,
    PodSandboxConfig,
    Prober,
    ProbeWarning,
)
from nodewright.agent.pods.log_rotation import LogLinks
from nodewright.agent.rules.environment_variables import probe_handler, resolved_handler
from nodewright.agent.rules.pod_actions import (
    MIN_GRACE_PERIOD_S,
    KillReason,
    ProbeResult,
    grace_period_s,
    termination_ordering,
)
from nodewright.agent.rules.value_sources import UnresolvedReference
from nodewright.agent.state.effects import RunProbe, SyncPod, UpdateStartingContainer
from nodewright.agent.state.observations import (
    CONFIG_ERROR,
    CREATE_ERROR,
    HOOK_ERROR,
    RUN_ERROR,
    EffectFailure,
    ProbeCompleted,
)
from nodewright.cluster.tasks.supervision import error_text
from nodewright.cluster.tasks.timing import Clock, elapsed_s, gather_all
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, CgroupLevel
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)

REMOVE_ERROR = "RemoveContainerError"


class ContainerConfigError(Exception):
    """A config cannot be built: something that the pod refers to is missing, an image for example."""

    def __init__(self, message: str, reason: str = CONFIG_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


class ConfigBuilder(Protocol):
    """Builds sandbox and container configs: variables, volumes, images, devices."""

    async def prepare_pod(self, pod: Pod) -> None:
        """Sets up the pod's volumes.

        Errors: ContainerConfigError; HostError.
        """

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """The config of the pod's sandbox."""

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[CgroupFile, ...]],
        runtime_status: RuntimePodStatus,
    ) -> ContainerConfig:
        """The config of a container.

        Errors: ContainerConfigError; HostError.
        """

    async def remove_pod_files(self, pod: Pod) -> None:
        """Removes the pod's volumes and logs."""


class StartDependencies(NamedTuple):
    """What starting a container needs."""

    runtime: ContainerRuntime
    config_builder: ConfigBuilder
    prober: Prober
    device_allocator: DeviceAllocator
    claim_manager: ClaimManager | None
    """None: no pod has claims."""
    log_links: LogLinks | None
    """None: the logs are not linked to."""


class ContainerStarter:
    """Starts the containers of one SyncPod effect.

    Other pods may be admitted or end meanwhile and change the containers' resources: `update_resources` takes the
    change, and a container that was created with older values is updated before it starts, or at once if it runs.
    """

    def __init__(self, effect: SyncPod, dependencies: StartDependencies) -> None:
        files = {
            group.container: group.files for group in effect.cgroups if group.level is CgroupLevel.CONTAINER
        }
        self._effect, self._dependencies = effect, dependencies
        self._target_resources = {
            name: (effect.settings[name], files[name]) for name in effect.plan.containers_to_start
        }
        self._ids: dict[str, str] = {}
        """Ids of the created containers, by name."""
        self._applied_resources: dict[str, tuple[ContainerSettings, tuple[CgroupFile, ...]]] = {}
        """What each of them was last given, by name."""
        self._update_lock = asyncio.Lock()
        self.failed_updates: set[str] = set()
        """The ids of containers that could not be updated."""

    async def run(self, sandbox_id: str, runtime_status: RuntimePodStatus) -> tuple[EffectFailure, ...]:
        """Starts them in order; an init container that fails stops the sequence."""
        pod, failures = self._effect.pod, list[EffectFailure]()
        by_name = {container.name: container for container in pod.spec.all_containers}
        for name in self._effect.post_start_retries:
            failures += await self._rerun_post_start(by_name[name], runtime_status)
        for name in self._effect.plan.containers_to_start:
            container = by_name[name]
            failure = await self._start(container, sandbox_id, runtime_status)
            if failure is None:
                continue
            failures.append(failure)
            if container in pod.spec.init_containers and not container.is_sidecar:
                break
        return tuple(failures)

    async def update_resources(self, update: UpdateStartingContainer) -> None:
        """Sets the resources of a container that is being started, or has just started."""
        if update.container in self._target_resources:
            self._target_resources[update.container] = (update.settings, update.files)
            await self._apply_target_resources(update.container)

    async def _start(
        self, container: Container, sandbox_id: str, runtime_status: RuntimePodStatus
    ) -> EffectFailure | None:
        """Starts one container with its hook; its outdated attempts are removed, also where it does not start."""
        failure = await self._start_attempt(container, sandbox_id, runtime_status)
        try:
            for old in _outdated_attempts(runtime_status, container.name):
                await self._dependencies.runtime.remove_container(old.id)
        except Exception as error:  # noqa: BLE001 - as below
            return failure or EffectFailure(
                reason=REMOVE_ERROR, message=error_text(error), container=container.name
            )
        return failure

    async def _start_attempt(
        self, container: Container, sandbox_id: str, runtime_status: RuntimePodStatus
    ) -> EffectFailure | None:
        pod, name, runtime = self._effect.pod, container.name, self._dependencies.runtime
        step, resources = CONFIG_ERROR, self._target_resources[name]
        try:
            attempt = self._effect.attempts[name]
            config = await self._dependencies.config_builder.container_config(
                pod, container, attempt, resources, runtime_status
            )
            config = await self._dependencies.device_allocator.with_devices(config, self._effect.devices)
            config = self._with_claims(config)
            step = CREATE_ERROR
            id_ = await runtime.create_container(sandbox_id, config)
            self._ids[name], self._applied_resources[name] = id_, resources
            step = RUN_ERROR
            await self._apply_target_resources(name)
            await runtime.start_container(id_)
            if self._dependencies.log_links is not None:
                self._dependencies.log_links.add(config, id_)
            await self._run_post_start(container, id_, runtime_status)
        except HookError as error:
            return EffectFailure(reason=HOOK_ERROR, message=str(error), container=name)
        except DeviceAllocationError as error:
            return EffectFailure(reason=CONFIG_ERROR, message=str(error), container=name)
        except ContainerConfigError as error:
            return EffectFailure(reason=error.reason, message=str(error), container=name)
        except Exception as error:  # noqa: BLE001 - the other containers start all the same
            return EffectFailure(reason=step, message=error_text(error), container=name)
        return None

    def _with_claims(self, config: ContainerConfig) -> ContainerConfig:
        """The config with the CDI devices of the container's claims.

        Errors: DeviceAllocationError.
        """
        manager = self._dependencies.claim_manager
        if manager is None:
            return config
        try:
            return self._dependencies.device_allocator.with_cdi_devices(
                config, manager.cdi_devices(self._effect.pod, config.container)
            )
        except HostError as error:
            raise DeviceAllocationError(error.error) from None

    async def _apply_target_resources(self, name: str) -> None:
        """Updates a created container until its resources are the target resources."""
        if name not in self._ids:
            return
        async with self._update_lock:
            id_ = self._ids[name]
            while self._applied_resources[name] != self._target_resources[name]:
                self._applied_resources[name] = self._target_resources[name]
                try:
                    await self._dependencies.runtime.update_container(id_, *self._applied_resources[name])
                except (HostError, TimeoutError):
                    self.failed_updates.add(id_)
                else:
                    self.failed_updates.discard(id_)

    async def _rerun_post_start(
        self, container: Container, runtime_status: RuntimePodStatus
    ) -> tuple[EffectFailure, ...]:
        """Runs the postStart hook of a container that already runs."""
        running = runtime_status.newest_attempt(container.name)
        if running is None or running.phase is not ContainerPhase.RUNNING:
            return ()
        try:
            await self._run_post_start(container, running.id, runtime_status)
        except HookError as error:
            return (EffectFailure(reason=HOOK_ERROR, message=str(error), container=container.name),)
        except Exception as error:  # noqa: BLE001 - as for a start
            return (EffectFailure(reason=RUN_ERROR, message=error_text(error), container=container.name),)
        return ()

    async def _run_post_start(self, container: Container, id_: str, runtime_status: RuntimePodStatus) -> None:
        """Runs the postStart hook; if it fails, stops the container.

        Errors: HookError; HostError and TimeoutError where the container could not be stopped.
        """
        pod, ip = self._effect.pod, pod_ip(runtime_status)
        try:
            target = (id_, ip, _POST_START_TIMEOUT_S)
            await run_hook("postStart", self._dependencies.prober, pod, container, target)
        except HookError:
            await self._dependencies.runtime.stop_container(id_, grace_period_s(pod, container))
            raise


def pod_ip(runtime_status: RuntimePodStatus) -> str:
    """The pod's IP address; empty: the host's, or unknown."""
    return runtime_status.sandboxes[0].ip if runtime_status.sandboxes else ""


def _outdated_attempts(runtime_status: RuntimePodStatus, name: str) -> tuple[RuntimeContainerStatus, ...]:
    """Attempts that are no longer needed: the ended ones except the newest, and those that never started."""
    attempts = [container for container in runtime_status.containers if container.name == name]
    ended = [attempt for attempt in attempts if attempt.phase is ContainerPhase.EXITED]
    created = (attempt for attempt in attempts if attempt.phase is ContainerPhase.CREATED)
    return (*ended[1:], *created)


# ---------------------------------------------------------------- stop


_HOOK_EXTRA_S = 1.0
"""A hook that is still running when its time is up has not failed."""


class ContainerStopper:
    """Stops containers; ``record_event`` gets the hooks that failed."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        prober: Prober,
        clock: Clock,
        record_event: Callable[[RecordEvent], None],
    ) -> None:
        self._runtime, self._prober, self._clock, self._record_event = runtime, prober, clock, record_event

    async def stop_all(self, pod: Pod, runtime_status: RuntimePodStatus, override_s: int | None) -> None:
        """Stops all containers at once, except for sidecars, which stop after the containers that they serve.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, killContainersWithSyncResult.
        """
        alive = (ContainerPhase.RUNNING, ContainerPhase.UNKNOWN, ContainerPhase.CREATED)
        running = {
            container.name: container
            for container in reversed(runtime_status.containers)
            if container.phase in alive
        }
        waits = termination_ordering(pod, running.keys())
        ended = {name: asyncio.Event() for name in running}

        async def stop(container: RuntimeContainerStatus) -> None:
            try:
                before = [ended[name] for name in waits.get(container.name, ())]
                await self.stop(pod, container, None, override_s, before)
            finally:
                ended[container.name].set()

        await gather_all(stop(container) for container in running.values())

    async def stop(
        self,
        pod: Pod,
        runtime_status: RuntimeContainerStatus,
        reason: KillReason | None,
        override_s: int | None,
        before: Iterable[asyncio.Event] = (),
    ) -> None:
        """Stops one container within its grace period: its preStop hook, the containers before it, the container itself.

        A hook that takes longer than the grace period runs on until the container has ended.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, killContainer, executePreStopHook.
        """
        container = container_named(pod, runtime_status.name)
        left_s = float(grace_period_s(pod, container, reason, override_s))
        handler, hook = (container.lifecycle or {}).get("preStop"), None
        try:
            if handler is not None and left_s > 0 and runtime_status.phase is ContainerPhase.RUNNING:
                hook = asyncio.create_task(self._pre_stop(pod, container, runtime_status, left_s))
                left_s -= await elapsed_s(self._clock, _finished(hook), left_s)
            for event in before:
                if left_s > 0:
                    left_s -= int(await elapsed_s(self._clock, event.wait(), left_s))
            await self._runtime.stop_container(runtime_status.id, max(left_s, MIN_GRACE_PERIOD_S))
        finally:
            if hook is not None:
                hook.cancel()
                await asyncio.gather(hook, return_exceptions=True)

    async def _pre_stop(
        self, pod: Pod, container: Container, runtime_status: RuntimeContainerStatus, left_s: float
    ) -> None:
        timeout_s = left_s + MIN_GRACE_PERIOD_S + _HOOK_EXTRA_S
        try:
            pod_status = await self._runtime.pod(pod.uid)
            ip = pod_ip(pod_status) if pod_status is not None else ""
            await run_hook("preStop", self._prober, pod, container, (runtime_status.id, ip, timeout_s))
        except (HookError, HostError):
            # A failed hook does not keep its container from stopping. Its output may be secret.
            reason, message = "FailedPreStopHook", "PreStopHook failed"
            self._record_event(RecordEvent.warning(reason, message, uid=pod.uid))


async def _finished(hook: asyncio.Task[None]) -> None:
    """Waits for a hook, which goes on if the wait is cancelled."""
    await asyncio.wait((hook,))


# ---------------------------------------------------------------- hooks and probes


_POST_START_TIMEOUT_S = 120.0


class HookError(Exception):
    """A hook failed."""


async def run_probe(prober: Prober, effect: RunProbe, container: Container, clock: Clock) -> ProbeCompleted:
    """The result of a probe."""
    result: ProbeResult | None = None
    output = ""
    started_s = clock.monotonic_s()
    handler = probe_handler(effect.probe.handler, container)
    try:
        if isinstance(handler, UnresolvedReference):
            output = handler.message
        else:
            is_success, output = await prober.probe(
                handler, effect.container_id, effect.pod_ip, effect.probe.timeout_s
            )
            result = ProbeResult.SUCCESS if is_success else ProbeResult.FAILURE
    except TimeoutError:
        result, output = ProbeResult.FAILURE, "timed out"
    except Exception as error:  # noqa: BLE001 - a probe without a result would never run again
        output = error_text(error)
    return ProbeCompleted(
        uid=effect.uid,
        container=effect.container,
        container_id=effect.container_id,
        probe=effect.probe,
        health=result,
        output=str(output),
        is_warning=isinstance(output, ProbeWarning),
        duration_s=clock.monotonic_s() - started_s,
    )


def container_named(pod: Pod, name: str) -> Container:
    """The pod's container of this name; an empty one if the spec no longer has it."""
    by_name = {container.name: container for container in pod.spec.all_containers}
    return by_name.get(name, Container(name=name))


async def run_hook(
    kind: str, prober: Prober, pod: Pod, container: Container, target: tuple[str, str, float]
) -> None:
    """Runs the hook, `postStart` or `preStop`, if the container has it; ``target``: its id, IP and time limit.

    Errors: HookError where it failed.
    """
    handler = (container.lifecycle or {}).get(kind)
    if handler is None:
        return
    resolved = resolved_handler(handler, container)
    if isinstance(resolved, UnresolvedReference):
        raise HookError(resolved.message)
    try:
        is_success, output = await prober.run_hook(resolved, *target, _container_description(pod, container))
    except Exception as error:  # noqa: BLE001 - a hook that cannot be run has failed
        raise HookError(error_text(error)) from None
    if not is_success:
        raise HookError(output)


def _container_description(pod: Pod, container: Container) -> str:
    """The container as the kubelet's messages about hooks name it."""
    pod_name = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
    return f'Container "{container.name}" in Pod "{pod_name}"'
