"""Containers of a pod started one after the other, each with its hook, and held to what is right at that moment."""

import asyncio
from typing import NamedTuple, Protocol

from nodewright.agent.handing import Handing, HandingError
from nodewright.agent.hooks import HookError, post_start
from nodewright.agent.values import (
    CONFIG_ERROR,
    CREATE_ERROR,
    HOOK_ERROR,
    RUN_ERROR,
    Failure,
    SyncPod,
    TuneStart,
)
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.plan import Level
from nodewright.core.lifecycle import grace_period_s
from nodewright.model.objects import Container, Pod
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.world.errors import WorldError
from nodewright.world.ports import Asker, ContainerRuntime, ContainerWish, SandboxWish

REMOVE_ERROR = "RemoveContainerError"


class ConfigError(Exception):
    """A container's wish cannot be put together: something that the pod names is not there, an image, say."""

    def __init__(self, message: str, reason: str = CONFIG_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


class Composer(Protocol):
    """Puts together what a runtime is asked for: variables, volumes, images, devices."""

    async def sandbox(self, pod: Pod, attempt: int, cgroup: str) -> SandboxWish:
        """What holds the pod's containers together."""

    async def container(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[File, ...]],
        facts: PodFacts,
    ) -> ContainerWish:
        """What a container is to be.

        Errors: ConfigError; WorldError.
        """

    async def forget(self, pod: Pod) -> None:
        """Nothing is left of the pod's volumes and logs."""


class Means(NamedTuple):
    """What containers are started with."""

    runtime: ContainerRuntime
    composer: Composer
    asker: Asker
    handing: Handing


class Starts:
    """The starts of one work for a pod.

    While they last others may come and go, and what a container is to be held to changes with them: `retuned` says so,
    and whatever was made of older settings is told before it starts, or at once if it runs.
    """

    def __init__(self, work: SyncPod, means: Means) -> None:
        files = {group.container: group.files for group in work.groups if group.level is Level.CONTAINER}
        self._work, self._means = work, means
        self._wanted = {name: (work.settings[name], files[name]) for name in work.plan.starts}
        self._ids: dict[str, str] = {}
        """Of the containers that were made, by name."""
        self._held: dict[str, tuple[ContainerSettings, tuple[File, ...]]] = {}
        """What each of them was set to last, by name."""
        self._telling = asyncio.Lock()
        self.untold: set[str] = set()
        """The ids of containers that could not be told."""

    async def run(self, sandbox_id: str, facts: PodFacts) -> tuple[Failure, ...]:
        """Start them in order; an init container that fails holds up all others."""
        pod, failures = self._work.pod, list[Failure]()
        by_name = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
        for name in self._work.hooks:
            failures += await self._hooked_again(by_name[name], facts)
        for name in self._work.plan.starts:
            container = by_name[name]
            failure = await self._start(container, sandbox_id, facts)
            if failure is None:
                continue
            failures.append(failure)
            if container in pod.spec.init_containers and not container.is_sidecar:
                break
        return tuple(failures)

    async def retuned(self, told: TuneStart) -> None:
        """A container is to be held to this."""
        if told.container in self._wanted:
            self._wanted[told.container] = (told.settings, told.files)
            await self._brought_up_to_date(told.container)

    async def _start(self, container: Container, sandbox_id: str, facts: PodFacts) -> Failure | None:
        """One container, with its hook; older attempts but the last one are cleared away."""
        pod, name, runtime = self._work.pod, container.name, self._means.runtime
        step, wanted = CONFIG_ERROR, self._wanted[name]
        try:
            attempt = self._work.attempts[name]
            wish = await self._means.composer.container(pod, container, attempt, wanted, facts)
            wish = await self._means.handing.outfitted(wish, self._work.uses)
            step = CREATE_ERROR
            id_ = await runtime.create_container(sandbox_id, wish)
            self._ids[name], self._held[name] = id_, wanted
            step = RUN_ERROR
            await self._brought_up_to_date(name)
            await runtime.start_container(id_)
            await self._hooked(container, id_, facts)
            step = REMOVE_ERROR
            for old in _stale(facts, name):
                await runtime.remove_container(old.id)
        except HookError as error:
            return Failure(reason=HOOK_ERROR, message=str(error), container=name)
        except HandingError as error:
            return Failure(reason=CONFIG_ERROR, message=str(error), container=name)
        except ConfigError as error:
            return Failure(reason=error.reason, message=str(error), container=name)
        except (WorldError, TimeoutError) as error:
            return Failure(reason=step, message=str(error), container=name)
        return None

    async def _brought_up_to_date(self, name: str) -> None:
        """A container that was made of other settings than are wanted by now is told."""
        if name not in self._ids:
            return
        async with self._telling:
            id_ = self._ids[name]
            while self._held[name] != self._wanted[name]:
                self._held[name] = self._wanted[name]
                try:
                    await self._means.runtime.update_container(id_, *self._held[name])
                except (WorldError, TimeoutError):
                    self.untold.add(id_)
                else:
                    self.untold.discard(id_)

    async def _hooked_again(self, container: Container, facts: PodFacts) -> tuple[Failure, ...]:
        """The hook of a container that runs already."""
        running = facts.newest(container.name)
        if running is None or running.phase is not ContainerPhase.RUNNING:
            return ()
        try:
            await self._hooked(container, running.id, facts)
        except HookError as error:
            return (Failure(reason=HOOK_ERROR, message=str(error), container=container.name),)
        except (WorldError, TimeoutError) as error:
            return (Failure(reason=RUN_ERROR, message=str(error), container=container.name),)
        return ()

    async def _hooked(self, container: Container, id_: str, facts: PodFacts) -> None:
        """The hook has run well, or the container has ended.

        Errors: HookError; WorldError and TimeoutError where it could not be ended.
        """
        pod, ip = self._work.pod, ip_of(facts)
        try:
            await post_start(self._means.asker, pod, container, id_, ip)
        except HookError:
            await self._means.runtime.stop_container(id_, grace_period_s(pod, container))
            raise


def ip_of(facts: PodFacts) -> str:
    """The pod's address; empty: that of the host, or not known."""
    return facts.sandboxes[0].ip if facts.sandboxes else ""


def _stale(facts: PodFacts, name: str) -> tuple[ContainerFacts, ...]:
    """Attempts that nobody asks for any more: all that had ended but the newest, and those that never started."""
    mine = [one for one in facts.containers if one.name == name]
    ended = [one for one in mine if one.phase is ContainerPhase.EXITED]
    return (*ended[1:], *(one for one in mine if one.phase is ContainerPhase.CREATED))
