"""A runtime that always comes back: what takes too long has failed."""

from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, TypeVar

from nodewright.agent.timing import within
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.model.running import PodFacts
from nodewright.world.ports import (
    Clock,
    ContainerRuntime,
    ContainerUsage,
    ContainerWish,
    Executed,
    RuntimeFacts,
    SandboxWish,
)

T = TypeVar("T")
LIMIT_S = 120.0
"""What the kubelet's runtimeRequestTimeout is by default."""


class PatientRuntime:
    """A container runtime, each of whose operations has its time. One that is over time may yet take effect.

    Errors: TimeoutError, which names the operation; else those of the runtime.
    Follows: v1.36, cri-client/pkg/remote_runtime.go: stopping has the grace period on top, executing its own limit.
    """

    def __init__(self, runtime: ContainerRuntime, clock: Clock, limit_s: float = LIMIT_S) -> None:
        self._runtime, self._clock, self._limit_s = runtime, clock, limit_s

    async def facts(self) -> RuntimeFacts:
        """Which runtime it is."""
        return await self._within("facts", self._runtime.facts())

    async def pods(self) -> tuple[PodFacts, ...]:
        """All pods that it holds."""
        return await self._within("list pods", self._runtime.pods())

    async def pod(self, uid: str) -> PodFacts | None:
        """One pod."""
        return await self._within(f"look at pod {uid}", self._runtime.pod(uid))

    async def run_sandbox(self, wish: SandboxWish) -> str:
        """The id of a sandbox that is ready."""
        return await self._within("run sandbox", self._runtime.run_sandbox(wish))

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Nothing in it runs any more."""
        await self._within(f"stop sandbox {sandbox_id}", self._runtime.stop_sandbox(sandbox_id))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """It is gone."""
        await self._within(f"remove sandbox {sandbox_id}", self._runtime.remove_sandbox(sandbox_id))

    async def create_container(self, sandbox_id: str, wish: ContainerWish) -> str:
        """The id of a container."""
        doing = self._runtime.create_container(sandbox_id, wish)
        return await self._within(f"create container {wish.container.name}", doing)

    async def start_container(self, container_id: str) -> None:
        """Its command runs."""
        await self._within(f"start container {container_id}", self._runtime.start_container(container_id))

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """It has ended."""
        doing = self._runtime.stop_container(container_id, grace_period_s)
        await self._within(f"stop container {container_id}", doing, grace_period_s)

    async def remove_container(self, container_id: str) -> None:
        """It is gone."""
        await self._within(f"remove container {container_id}", self._runtime.remove_container(container_id))

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[File, ...]
    ) -> None:
        """It is held to other settings."""
        doing = self._runtime.update_container(container_id, settings, files)
        await self._within(f"update container {container_id}", doing)

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> Executed:
        """What a command gave."""
        doing = self._runtime.execute(container_id, command, timeout_s)
        return await self._within(f"execute in container {container_id}", doing, timeout_s)

    async def reopen_log(self, container_id: str) -> None:
        """Its log goes on in a new file."""
        await self._within(f"reopen log of container {container_id}", self._runtime.reopen_log(container_id))

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """What each container uses."""
        return await self._within("usage", self._runtime.usage())

    def changes(self) -> AsyncIterator[str]:
        """Changes come when they come."""
        return self._runtime.changes()

    async def close(self) -> None:
        """Let go of it."""
        await self._runtime.close()

    async def _within(self, what: str, doing: Coroutine[Any, Any, T], more_s: float = 0) -> T:
        return await within(self._clock, what, doing, self._limit_s + more_s)
