"""A real agent on this machine, for live tests: plain processes, real cgroups, real time; nothing is kept."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from nodewright.agent.loop import Loop
from nodewright.agent.perform import Performer
from nodewright.agent.reconcile import Reasserted, reasserted
from nodewright.agent.values import Mind, PodRecord, PodUnwanted, PodWanted, Rules, Source
from nodewright.ask import Node
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.model.objects import Container, Pod
from nodewright.model.running import ContainerFacts, PodFacts
from nodewright.render.words import KubeletWords
from nodewright.testing.agents import FakeAsker, FakeComposer, FakeEars, FakeMemory
from nodewright.testing.machine import own_cgroups
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.clock import HostClock
from nodewright.world.machine.capture import capture_here
from nodewright.world.ports import ContainerWish, SandboxWish
from nodewright.world.processes.runtime import ProcessRuntime

_LIMIT_S = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandComposer(FakeComposer):
    """Wishes for containers that say their command."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs

    async def sandbox(self, pod: Pod, attempt: int, cgroup: str) -> SandboxWish:
        """A sandbox with a directory for logs."""
        return SandboxWish(
            pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory=str(self.logs / pod.uid)
        )

    async def container(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[File, ...]],
        facts: PodFacts,
    ) -> ContainerWish:
        """A container with its command, or one that sleeps."""
        made = await super().container(pod, container, attempt, settings, facts)
        return ContainerWish(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=made.spec_hash,
            command=(*container.command, *container.args) or ("sleep", "1000"),
            env={"PATH": _PATH},
            log_path=made.log_path,
            settings=settings[0],
            files=settings[1],
        )


class LiveAgent:
    """An agent that runs, and what it has to do with."""

    def __init__(self, loop: Loop, runtime: ProcessRuntime, cgroups: CgroupFS, ears: FakeEars) -> None:
        self.loop, self.runtime, self.cgroups, self.ears = loop, runtime, cgroups, ears

    async def want(self, pod: Pod) -> ContainerFacts:
        """Ask for a pod; its first container, once it runs."""
        self.loop.see(PodWanted(Source.API, pod))
        await self.until(lambda: self._is_settled(pod.uid))
        facts = self.record(pod.uid).facts
        assert facts is not None
        return facts.containers[0]

    def _is_settled(self, uid: str) -> bool:
        record = self.record(uid)
        return record.status.phase == "Running" and not record.is_busy

    async def drop(self, uid: str) -> None:
        """Ask for a pod to go, and wait until nothing is left of it."""
        self.loop.see(PodUnwanted(uid, 1))
        await self.until(lambda: uid not in self.loop.mind.pods)

    def reasserted(self) -> Reasserted:
        """What somebody else changed in the groups, now set back."""
        return reasserted(self.loop.mind, self.cgroups)

    def record(self, uid: str) -> PodRecord:
        """What the agent knows of a pod."""
        return self.loop.mind.pods[uid]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is so; what is not there yet is not so yet."""
        async with asyncio.timeout(_LIMIT_S):
            while True:
                with suppress(KeyError):
                    if holds():
                        return
                await asyncio.sleep(0.005)

    def text(self, path: str, name: str) -> str:
        """What a file of a group says."""
        found = self.cgroups.texts(path, (name,))
        assert found is not None, path
        return found[name]


@asynccontextmanager
async def live_agent(configuration: Mapping[str, Any]) -> AsyncIterator[LiveAgent]:
    """An agent on this machine with a kubelet's configuration; its pods end with it."""
    with own_cgroups() as cgroups:
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp))
        runtime = ProcessRuntime(directory / "runtime", cgroups)
        captured = capture_here(
            {**configuration, "cgroupRoot": cgroups.root, "cgroupDriver": "cgroupfs", "failCgroupV1": False}
        )
        clock, ears = HostClock(), FakeEars()
        performer = Performer(runtime, cgroups, CommandComposer(directory / "logs"), FakeAsker(), clock)
        rules = Rules(words=KubeletWords(), started_ns=clock.now_ns())
        mind = Mind(node=Node.of(captured.profile).state)
        loop = Loop(mind, performer, FakeMemory(), ears, clock, rules)
        task = asyncio.create_task(loop.run())
        try:
            yield LiveAgent(loop, runtime, cgroups, ears)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for pod in await runtime.pods():
                for sandbox in pod.sandboxes:
                    await runtime.stop_sandbox(sandbox.id)
            await runtime.close()
            await asyncio.to_thread(shutil.rmtree, directory)
