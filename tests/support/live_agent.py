"""Parts of this machine for live tests: each test has its own, and leaves nothing behind.

A real agent on this machine, for live tests: plain processes, real cgroups, real time; nothing is kept.
"""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_bench import FakeConfigBuilder, FakeEventRecorder, FakeProber, FakeStore
from tests.support.runtime_port import RuntimeBench

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.ports import ContainerConfig, PodSandboxConfig
from nodewright.agent.loop import AgentLoop
from nodewright.agent.pods.cgroup_reconcile import ReconcileResult, reconcile_cgroups
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.runtimes.processes.process_runtime import ProcessRuntime
from nodewright.agent.state.agent_state import AgentConstants, AgentState, PodRecord, PodSource
from nodewright.agent.state.observations import PodApplied, PodDeletionRequested
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.profiles.machine.captured_machine import capture_this_machine
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.runtime_status import RuntimeContainerStatus, RuntimePodStatus
from nodewright.predict.node import Node

_NUMBERS = itertools.count()


@dataclass(slots=True, kw_only=True)
class ProcessBench(RuntimeBench):
    """The runtime of plain processes, and where it has its things."""

    cgroups: CgroupFS
    directory: Path


@contextmanager
def private_cgroups() -> Iterator[CgroupFS]:
    """A separate cgroup tree; skips the test, with the reason, where it cannot be created."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make cgroups")
    cgroups = CgroupFS(f"/nodewright-test-{os.getpid()}-{next(_NUMBERS)}")
    try:
        cgroups.ensure(cgroups.root, ())
    except HostError as error:
        pytest.skip(f"needs writable cgroups: {error}")
    try:
        yield cgroups
    finally:
        cgroups.kill(cgroups.root)
        cgroups.remove(cgroups.root)


@asynccontextmanager
async def process_bench(inside: str | None = None) -> AsyncIterator[ProcessBench]:
    """A runtime of plain processes with a pod's group to put containers into; its files are inside a directory."""
    with private_cgroups() as cgroups:
        directory = Path(tempfile.mkdtemp(dir=inside))
        # Containers may run as others.
        directory.chmod(0o755)
        runtimes = [ProcessRuntime(directory / "runtime", cgroups)]

        async def reopened() -> ProcessRuntime:
            await runtimes[-1].close()
            runtimes.append(ProcessRuntime(directory / "runtime", cgroups))
            return runtimes[-1]

        try:
            cgroups.ensure(f"{cgroups.root}/pod1", ())
            yield ProcessBench(
                runtime=runtimes[0],
                cgroup_parent=f"{cgroups.root}/pod1",
                log_directory=str(directory / "logs"),
                restart_agent=reopened,
                cgroups=cgroups,
                directory=directory,
            )
            for pod in await runtimes[-1].pods():
                for sandbox in pod.sandboxes:
                    await runtimes[-1].stop_sandbox(sandbox.id)
                    await runtimes[-1].remove_sandbox(sandbox.id)
        finally:
            await runtimes[-1].close()
            shutil.rmtree(directory)


_LIMIT_S = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandConfigBuilder(FakeConfigBuilder):
    """Configs of containers with their own command."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """A sandbox with a directory for logs."""
        return PodSandboxConfig(
            pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory=str(self.logs / pod.uid)
        )

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[CgroupFile, ...]],
        facts: RuntimePodStatus,
    ) -> ContainerConfig:
        """A container with its command, or one that sleeps."""
        made = await super().container_config(pod, container, attempt, settings, facts)
        return ContainerConfig(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=made.spec_hash,
            command=(*container.command, *container.args) or ("sleep", "1000"),
            env={"PATH": _PATH},
            log_path=made.log_path,
            settings=settings[0],
            cgroup_files=settings[1],
        )


class LiveAgent:
    """An agent that runs, and what it has to do with."""

    def __init__(
        self, loop: AgentLoop, runtime: ProcessRuntime, cgroups: CgroupFS, ears: FakeEventRecorder
    ) -> None:
        self.loop, self.runtime, self.cgroups, self.ears = loop, runtime, cgroups, ears

    async def run_pod(self, pod: Pod) -> RuntimeContainerStatus:
        """Ask for a pod; its first container, once it runs."""
        self.loop.observe(PodApplied(PodSource.API, pod))
        await self.wait_until(lambda: self._is_settled(pod.uid))
        facts = self.record(pod.uid).runtime_status
        assert facts is not None
        return facts.containers[0]

    def _is_settled(self, uid: str) -> bool:
        record = self.record(uid)
        return record.status.phase == "Running" and not record.has_running_effect

    async def delete_pod(self, uid: str) -> None:
        """Ask for a pod to go, and wait until nothing is left of it."""
        self.loop.observe(PodDeletionRequested(uid, 1))
        await self.wait_until(lambda: uid not in self.loop.state.pods)

    def reconcile_cgroups(self) -> ReconcileResult:
        """The cgroup values that another process changed and the agent restored."""
        return reconcile_cgroups(self.loop.state, self.cgroups)

    def record(self, uid: str) -> PodRecord:
        """What the agent knows of a pod."""
        return self.loop.state.pods[uid]

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is so; what is not there yet is not so yet."""
        async with asyncio.timeout(_LIMIT_S):
            while True:
                with suppress(KeyError):
                    if holds():
                        return
                await asyncio.sleep(0.005)

    def cgroup_file_text(self, path: str, name: str) -> str:
        """What a file of a group says."""
        files = self.cgroups.read_files(path, (name,))
        assert files is not None, path
        return files[name]


@asynccontextmanager
async def live_agent(configuration: Mapping[str, Any]) -> AsyncIterator[LiveAgent]:
    """An agent on this machine with a kubelet's configuration; its pods end with it."""
    with private_cgroups() as cgroups:
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp))
        runtime = ProcessRuntime(directory / "runtime", cgroups)
        captured = capture_this_machine(
            {**configuration, "cgroupRoot": cgroups.root, "cgroupDriver": "cgroupfs", "failCgroupV1": False}
        )
        clock, ears = HostClock(), FakeEventRecorder()
        performer = EffectRunner(
            runtime, cgroups, CommandConfigBuilder(directory / "logs"), FakeProber(), clock
        )
        mind = AgentState(node=Node.from_profile(captured.profile).state)
        rules = AgentConstants.of(mind.node.config, clock.now_ns())
        loop = AgentLoop(mind, performer, FakeStore(), ears, clock, rules)
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
