"""What every container runtime behind the port does alike: one check a promise, for fakes and real ones."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from nodewright.agent.host.ports import ContainerConfig, ContainerRuntime, ExecResult, PodSandboxConfig
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import (
    COMPLETED,
    ERROR,
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)

_LIMIT_S = 30.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RuntimeTestContainer(StrEnum):
    """What a container does; also its name."""

    RUNS = "runs"
    FAILS = "fails"
    SUCCEEDS = "succeeds"
    DEAF = "deaf"
    """It does not end when it is asked to."""


EXPECTED_OUTPUT = ("sh", "-c", "echo hi; echo ho >&2; exit 4")
EXPECTED_LINES = ExecResult(4, b"hi\n", b"ho\n")
FOREVER = ("sleep", "1000")

COMMANDS = {
    RuntimeTestContainer.RUNS: ("sleep", "1000"),
    RuntimeTestContainer.FAILS: ("sh", "-c", "exit 3"),
    RuntimeTestContainer.SUCCEEDS: ("true",),
    RuntimeTestContainer.DEAF: ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"),
}
"""How a real container does it."""

SCRIPTS: Mapping[str, ContainerScript] = {
    RuntimeTestContainer.RUNS: ContainerScript(commands={EXPECTED_OUTPUT: EXPECTED_LINES}),
    RuntimeTestContainer.FAILS: ContainerScript(runs_for_s=0, exit_code=3),
    RuntimeTestContainer.SUCCEEDS: ContainerScript(runs_for_s=0),
    RuntimeTestContainer.DEAF: ContainerScript(ignores_sigterm=True),
}
"""How the fake does it."""


@dataclass(slots=True, kw_only=True)
class RuntimeBench:
    """A runtime to try."""

    runtime: ContainerRuntime
    cgroup_parent: str = ""
    log_directory: str = ""
    image: str = ""
    spec: PodSpec = field(default_factory=PodSpec)
    """Of the pod; its containers do not have to stand there."""
    uid: str = field(default_factory=lambda: f"port-{os.getpid()}")
    restart_agent: Callable[[], Awaitable[ContainerRuntime]]
    """The runtime after a restart of the agent."""
    pass_time: Callable[[float], Awaitable[None]] = asyncio.sleep
    """So many seconds go by."""

    @property
    def pod(self) -> Pod:
        """The pod that all is about."""
        return Pod(ObjectMeta(name="web", namespace="default", uid=self.uid), self.spec)

    async def sandbox(self, attempt: int = 0) -> str:
        """A sandbox of the pod."""
        return await self.runtime.run_sandbox(
            PodSandboxConfig(
                pod=self.pod,
                attempt=attempt,
                cgroup_parent=self.cgroup_parent,
                log_directory=self.log_directory,
            )
        )

    def container_config(self, kind: RuntimeTestContainer, attempt: int = 0) -> ContainerConfig:
        """A container of a kind."""
        return ContainerConfig(
            pod=self.pod,
            container=Container(name=kind.value),
            attempt=attempt,
            spec_hash=f"hash-{kind}",
            command=COMMANDS[kind],
            env={"PATH": _PATH},
            log_path=f"{kind}/{attempt}.log",
            image=self.image,
            settings=ContainerSettings(),
            cgroup_files=(),
        )

    async def start_container(self, kind: RuntimeTestContainer, attempt: int = 0) -> str:
        """A container of a kind that has been started, in the pod's sandbox."""
        id_ = await self.runtime.create_container(await self.sandbox(), self.container_config(kind, attempt))
        await self.runtime.start_container(id_)
        return id_

    async def pod_facts(self) -> RuntimePodStatus:
        """The pod."""
        runtime_pod_status = await self.runtime.pod(self.uid)
        assert runtime_pod_status is not None
        return runtime_pod_status

    async def newest(self, kind: RuntimeTestContainer) -> RuntimeContainerStatus:
        """The newest container of a kind."""
        container_status = (await self.pod_facts()).newest_attempt(kind)
        assert container_status is not None
        return container_status

    async def wait_exited(self, kind: RuntimeTestContainer) -> RuntimeContainerStatus:
        """The newest container of a kind, once it has ended."""
        async with asyncio.timeout(_LIMIT_S):
            while (container_status := await self.newest(kind)).phase is not ContainerPhase.EXITED:
                await self.pass_time(0.01)
        return container_status

    async def run_while_time_passes(self, doing: Awaitable[None], seconds: float) -> None:
        """Awaits an operation while the clock advances."""
        task = asyncio.ensure_future(doing)
        await self.pass_time(seconds)
        await asyncio.wait_for(task, _LIMIT_S)


RuntimeCheck: TypeAlias = Callable[[RuntimeBench], Awaitable[None]]


async def missing_objects_can_be_stopped_and_removed(bench: RuntimeBench) -> None:
    """Nothing is known, and nothing has to be done."""
    assert await bench.runtime.pod(bench.uid) is None
    for gone in ("nothing", f"{bench.uid}_runs_0", "a_b_c"):
        await bench.runtime.stop_sandbox(gone)
        await bench.runtime.remove_sandbox(gone)
        await bench.runtime.stop_container(gone, 0)
        await bench.runtime.remove_container(gone)


async def a_sandbox_is_made_once_and_stopped_and_removed(bench: RuntimeBench) -> None:
    """The same attempt is the same sandbox."""
    id_ = await bench.sandbox()
    assert await bench.sandbox() == id_
    facts = await bench.pod_facts()
    assert (facts.uid, facts.namespace, facts.name) == (bench.uid, "default", "web")
    assert [(sandbox.id, sandbox.attempt, sandbox.is_ready) for sandbox in facts.sandboxes] == [
        (id_, 0, True)
    ]
    assert bench.uid in [pod.uid for pod in await bench.runtime.pods()]
    await bench.runtime.stop_sandbox(id_)
    await bench.runtime.stop_sandbox(id_)
    assert not (await bench.pod_facts()).sandboxes[0].is_ready
    await bench.runtime.remove_sandbox(id_)
    assert await bench.runtime.pod(bench.uid) is None


async def a_later_sandbox_comes_first(bench: RuntimeBench) -> None:
    """And what ends the older one leaves it alone."""
    old = await bench.sandbox()
    await bench.runtime.stop_sandbox(old)
    new = await bench.sandbox(1)
    first = (await bench.pod_facts()).sandboxes[0]
    assert (first.id, first.attempt, first.is_ready) == (new, 1, True)
    await bench.runtime.stop_sandbox(old)
    assert (await bench.pod_facts()).sandboxes[0].is_ready


async def a_container_is_created_once(bench: RuntimeBench) -> None:
    """The same attempt is the same container."""
    sandbox = await bench.sandbox()
    id_ = await bench.runtime.create_container(sandbox, bench.container_config(RuntimeTestContainer.RUNS))
    assert (
        await bench.runtime.create_container(sandbox, bench.container_config(RuntimeTestContainer.RUNS))
        == id_
    )
    (container,) = (await bench.pod_facts()).containers
    assert (container.id, container.name, container.attempt, container.sandbox_id) == (
        id_,
        "runs",
        0,
        sandbox,
    )
    assert (container.phase, container.spec_hash) == (ContainerPhase.CREATED, "hash-runs")
    assert container.created_ns > 0 == container.started_ns
    # CPUs may change hands before it starts.
    await bench.runtime.update_container(container.id, ContainerSettings(), ())
    await bench.runtime.start_container(container.id)
    assert (await bench.newest(RuntimeTestContainer.RUNS)).phase is ContainerPhase.RUNNING


async def a_container_is_started_once_and_used(bench: RuntimeBench) -> None:
    """It runs, and can be looked at and changed."""
    id_ = await bench.start_container(RuntimeTestContainer.RUNS)
    await bench.runtime.start_container(id_)
    container_status = await bench.newest(RuntimeTestContainer.RUNS)
    assert (container_status.phase, container_status.finished_ns) == (ContainerPhase.RUNNING, 0)
    assert container_status.started_ns >= container_status.created_ns
    assert id_ in await bench.runtime.usage()
    await bench.runtime.update_container(id_, ContainerSettings(), ())
    await bench.runtime.reopen_log(id_)


async def exit_codes_and_reasons_are_reported(bench: RuntimeBench) -> None:
    """Exit codes and reasons."""
    await bench.start_container(RuntimeTestContainer.FAILS)
    await bench.start_container(RuntimeTestContainer.SUCCEEDS)
    failed, succeeded = (
        await bench.wait_exited(RuntimeTestContainer.FAILS),
        await bench.wait_exited(RuntimeTestContainer.SUCCEEDS),
    )
    assert (failed.exit_code, failed.reason) == (3, ERROR)
    assert (succeeded.exit_code, succeeded.reason) == (0, COMPLETED)
    assert failed.finished_ns >= failed.started_ns > 0
    assert failed.id not in await bench.runtime.usage()


async def an_exit_is_reported(bench: RuntimeBench) -> None:
    """A change wakes a waiting observer."""
    changes = aiter(bench.runtime.changes())
    first = asyncio.ensure_future(anext(changes))
    await bench.pass_time(0)
    await bench.start_container(RuntimeTestContainer.FAILS)
    async with asyncio.timeout(_LIMIT_S):
        assert await first == bench.uid
        while (await bench.newest(RuntimeTestContainer.FAILS)).phase is not ContainerPhase.EXITED:
            await bench.pass_time(0)
            assert await anext(changes) == bench.uid


async def a_container_stops_on_request(bench: RuntimeBench) -> None:
    """At once, and only once."""
    id_ = await bench.start_container(RuntimeTestContainer.RUNS)
    await bench.runtime.stop_container(id_, 30)
    container_status = await bench.newest(RuntimeTestContainer.RUNS)
    assert (container_status.phase, container_status.exit_code, container_status.reason) == (
        ContainerPhase.EXITED,
        143,
        ERROR,
    )
    await bench.runtime.stop_container(id_, 30)
    assert await bench.newest(RuntimeTestContainer.RUNS) == container_status


async def a_container_that_ignores_sigterm_is_killed(bench: RuntimeBench) -> None:
    """By a signal that none escapes."""
    id_ = await bench.start_container(RuntimeTestContainer.DEAF)
    # It has to get to where it stops listening.
    await bench.pass_time(0.3)
    await bench.run_while_time_passes(bench.runtime.stop_container(id_, 0.3), 0.3)
    container_status = await bench.newest(RuntimeTestContainer.DEAF)
    assert (container_status.phase, container_status.exit_code) == (ContainerPhase.EXITED, 137)


async def attempts_are_held_the_newest_first_until_they_are_removed(bench: RuntimeBench) -> None:
    """Each for itself."""
    ids = []
    for attempt in (0, 1, 10):
        ids.append(await bench.start_container(RuntimeTestContainer.FAILS, attempt))
        await bench.wait_exited(RuntimeTestContainer.FAILS)
    assert [container.attempt for container in (await bench.pod_facts()).containers] == [10, 1, 0]
    await bench.runtime.remove_container(ids[1])
    await bench.runtime.remove_container(ids[1])
    assert [container.id for container in (await bench.pod_facts()).containers] == [ids[2], ids[0]]


async def commands_run_in_a_container(bench: RuntimeBench) -> None:
    """They give what they say, and are ended when they take too long."""
    id_ = await bench.start_container(RuntimeTestContainer.RUNS)
    assert await bench.runtime.execute(id_, EXPECTED_OUTPUT, 20) == EXPECTED_LINES
    task = asyncio.ensure_future(bench.runtime.execute(id_, FOREVER, 0.3))
    await bench.pass_time(0.3)
    assert isinstance(await _error(task), TimeoutError)
    assert (await bench.newest(RuntimeTestContainer.RUNS)).phase is ContainerPhase.RUNNING
    await bench.runtime.stop_container(id_, 0)
    assert isinstance(await _error(bench.runtime.execute(id_, EXPECTED_OUTPUT, 20)), HostError)


async def a_sandbox_ends_with_its_containers(bench: RuntimeBench) -> None:
    """Those that run."""
    await bench.start_container(RuntimeTestContainer.RUNS)
    await bench.start_container(RuntimeTestContainer.DEAF)
    sandbox = await bench.sandbox()
    await bench.runtime.stop_sandbox(sandbox)
    facts = await bench.pod_facts()
    assert {container.phase for container in facts.containers} == {ContainerPhase.EXITED}
    assert {container.exit_code for container in facts.containers} == {137}
    await bench.runtime.remove_sandbox(sandbox)
    assert await bench.runtime.pod(bench.uid) is None


async def a_container_that_runs_can_be_removed(bench: RuntimeBench) -> None:
    """It ends first."""
    id_ = await bench.start_container(RuntimeTestContainer.RUNS)
    await bench.runtime.remove_container(id_)
    assert (await bench.pod_facts()).containers == ()
    assert id_ not in await bench.runtime.usage()


async def invalid_requests_are_errors(bench: RuntimeBench) -> None:
    """Of the port, not of the system."""
    runtime = bench.runtime
    for doing in (
        runtime.create_container("nothing", bench.container_config(RuntimeTestContainer.RUNS)),
        runtime.start_container(f"{bench.uid}_runs_7"),
        runtime.update_container(f"{bench.uid}_runs_7", ContainerSettings(), ()),
        runtime.execute(f"{bench.uid}_runs_7", EXPECTED_OUTPUT, 1),
    ):
        assert isinstance(await _error(doing), HostError)


async def containers_outlive_the_agent(bench: RuntimeBench) -> None:
    """A restarted agent finds the container, observes its end, and can stop it."""
    id_ = await bench.start_container(RuntimeTestContainer.RUNS)
    before = await bench.pod_facts()
    bench.runtime = await bench.restart_agent()
    assert await bench.pod_facts() == before
    changes = aiter(bench.runtime.changes())
    task = asyncio.ensure_future(anext(changes))
    await bench.pass_time(0)
    await bench.runtime.start_container(id_)
    await bench.runtime.stop_container(id_, 30)
    assert (await bench.newest(RuntimeTestContainer.RUNS)).exit_code == 143
    assert await asyncio.wait_for(task, _LIMIT_S) == bench.uid


async def _error(doing: Awaitable[object]) -> BaseException | None:
    (value,) = await asyncio.gather(doing, return_exceptions=True)
    return value if isinstance(value, BaseException) else None


RUNTIME_CHECKS: tuple[RuntimeCheck, ...] = (
    missing_objects_can_be_stopped_and_removed,
    a_sandbox_is_made_once_and_stopped_and_removed,
    a_later_sandbox_comes_first,
    a_container_is_created_once,
    a_container_is_started_once_and_used,
    exit_codes_and_reasons_are_reported,
    an_exit_is_reported,
    a_container_stops_on_request,
    a_container_that_ignores_sigterm_is_killed,
    attempts_are_held_the_newest_first_until_they_are_removed,
    commands_run_in_a_container,
    a_sandbox_ends_with_its_containers,
    a_container_that_runs_can_be_removed,
    invalid_requests_are_errors,
    containers_outlive_the_agent,
)
