"""A runtime with time limits: an operation that takes too long fails."""

from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, TypeVar

from nodewright.agent.host.ports import (
    ContainerConfig,
    ContainerRuntime,
    ExecResult,
    PodSandboxConfig,
    RuntimeFacts,
)
from nodewright.cluster.tasks.timing import Clock, with_timeout
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus

T = TypeVar("T")
OPERATION_TIMEOUT_S = 120.0
"""The kubelet's default for runtimeRequestTimeout."""


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
