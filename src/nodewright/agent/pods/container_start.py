"""Starts the containers of a pod one after the other, each with its hook and its current resources."""

import asyncio
from typing import NamedTuple, Protocol

from nodewright.agent.devices.device_allocation import DeviceAllocationError, DeviceAllocator
from nodewright.agent.host.ports import ContainerConfig, ContainerRuntime, PodSandboxConfig, Prober
from nodewright.agent.pods.container_lifecycle import HookError, run_post_start
from nodewright.agent.pods.log_rotation import LogLinks
from nodewright.agent.rules.pod_actions import grace_period_s
from nodewright.agent.state.effects import SyncPod, UpdateStartingContainer
from nodewright.agent.state.observations import (
    CONFIG_ERROR,
    CREATE_ERROR,
    HOOK_ERROR,
    RUN_ERROR,
    EffectFailure,
)
from nodewright.cluster.tasks.supervision import error_text
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, CgroupLevel
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod
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
        """Starts one container with its hook, and removes its outdated attempts."""
        pod, name, runtime = self._effect.pod, container.name, self._dependencies.runtime
        step, resources = CONFIG_ERROR, self._target_resources[name]
        try:
            attempt = self._effect.attempts[name]
            config = await self._dependencies.config_builder.container_config(
                pod, container, attempt, resources, runtime_status
            )
            config = await self._dependencies.device_allocator.with_devices(config, self._effect.devices)
            step = CREATE_ERROR
            id_ = await runtime.create_container(sandbox_id, config)
            self._ids[name], self._applied_resources[name] = id_, resources
            step = RUN_ERROR
            await self._apply_target_resources(name)
            await runtime.start_container(id_)
            if self._dependencies.log_links is not None:
                self._dependencies.log_links.add(config, id_)
            await self._run_post_start(container, id_, runtime_status)
            step = REMOVE_ERROR
            for old in _outdated_attempts(runtime_status, name):
                await runtime.remove_container(old.id)
        except HookError as error:
            return EffectFailure(reason=HOOK_ERROR, message=str(error), container=name)
        except DeviceAllocationError as error:
            return EffectFailure(reason=CONFIG_ERROR, message=str(error), container=name)
        except ContainerConfigError as error:
            return EffectFailure(reason=error.reason, message=str(error), container=name)
        except Exception as error:  # noqa: BLE001 - the other containers start all the same
            return EffectFailure(reason=step, message=error_text(error), container=name)
        return None

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
            await run_post_start(self._dependencies.prober, pod, container, id_, ip)
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
