"""The fakes do what they are told, so that what is tested with them is tested."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.host.ports import ContainerConfig, ContainerRuntime, ExecResult, PodSandboxConfig
from nodewright.agent.runtimes.simulated import ContainerScript, FakeCgroups, FakeRuntime
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.cgroup_files import CgroupManager
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, ContainerSettings, CPUShares
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.quantity import MilliCPU

APP = Container(name="app")
POD = Pod(ObjectMeta(name="web", namespace="default", uid="u1"), PodSpec(containers=(APP,)))
SANDBOX = PodSandboxConfig(pod=POD, attempt=0, cgroup_parent="/kubepods/podu1", log_directory="/logs")
WISH = ContainerConfig(
    pod=POD,
    container=APP,
    attempt=0,
    spec_hash="1",
    log_path="app/0.log",
    settings=ContainerSettings(),
    cgroup_files=(),
)
WEIGHT = CPUShares(Shares(2), MilliCPU(0), AmountOrigin.UNSET)


def test_fakes_fulfil_their_ports() -> None:
    runtime: ContainerRuntime = FakeRuntime(FakeClock())
    cgroups: CgroupManager = FakeCgroups()
    clock: Clock = FakeClock()
    assert cgroups.version == 2
    assert clock.monotonic_s() == 0
    assert asyncio.run(runtime.facts()).name == "fake"


def test_a_container_runs_for_the_time_in_its_script() -> None:
    async def run() -> None:
        clock = FakeClock()
        runtime = FakeRuntime(clock, {"app": ContainerScript(runs_for_s=2, exit_code=3)})
        sandbox = await runtime.run_sandbox(SANDBOX)
        app = await runtime.create_container(sandbox, WISH)
        assert app == await runtime.create_container(sandbox, WISH)
        await runtime.start_container(app)
        await settle()
        await clock.advance(1)
        assert await _phase(runtime) is ContainerPhase.RUNNING
        assert app in await runtime.usage()
        await clock.advance(1)
        assert await _phase(runtime) is ContainerPhase.EXITED
        (pod,) = await runtime.pods()
        assert (pod.containers[0].exit_code, pod.containers[0].reason) == (3, "Error")

    asyncio.run(run())


def test_who_ignores_sigterm_is_killed_when_the_time_is_up() -> None:
    async def run() -> None:
        clock = FakeClock()
        runtime = FakeRuntime(clock, {"app": ContainerScript(ignores_sigterm=True)})
        app = await runtime.create_container(await runtime.run_sandbox(SANDBOX), WISH)
        await runtime.start_container(app)
        stopping = asyncio.create_task(runtime.stop_container(app, 5))
        await settle()
        await clock.advance(4)
        assert await _phase(runtime) is ContainerPhase.RUNNING
        await clock.advance(1)
        await stopping
        pod = await runtime.pod("u1")
        assert pod is not None
        assert pod.containers[0].exit_code == 137

    asyncio.run(run())


def test_a_failure_occurs_once_as_a_host_error() -> None:
    async def run() -> None:
        runtime = FakeRuntime(FakeClock())
        runtime.fail("run_sandbox", "no space left on device")
        with pytest.raises(HostError, match="no space left"):
            await runtime.run_sandbox(SANDBOX)
        sandbox = await runtime.run_sandbox(SANDBOX)
        runtime.lose_sandbox(sandbox)
        pod = await runtime.pod("u1")
        assert pod is not None
        assert not pod.sandboxes[0].is_ready
        await runtime.remove_sandbox(sandbox)
        assert await runtime.pods() == ()

    asyncio.run(run())


def test_commands_return_the_results_in_the_script() -> None:
    async def run() -> None:
        exec_result = ExecResult(1, b"no")
        runtime = FakeRuntime(FakeClock(), {"app": ContainerScript(commands={("check",): exec_result})})
        app = await runtime.create_container(await runtime.run_sandbox(SANDBOX), WISH)
        with pytest.raises(HostError, match="does not run"):
            await runtime.execute(app, ("check",), 1)
        await runtime.start_container(app)
        assert await runtime.execute(app, ("check",), 1) == exec_result
        assert await runtime.execute(app, ("true",), 1) == ExecResult(0)

    asyncio.run(run())


def test_a_group_with_processes_cannot_be_removed() -> None:
    tree = FakeCgroups()
    tree.ensure("/kubepods/podu1", (CgroupFile("cpu.weight", "1", WEIGHT),))
    tree.ensure("/kubepods/podu1/app", ())
    tree.pids["/kubepods/podu1/app"] = {7}
    with pytest.raises(HostError, match="busy"):
        tree.remove("/kubepods/podu1")
    tree.kill("/kubepods/podu1")
    tree.remove("/kubepods/podu1")
    assert tree.groups == {}


async def _phase(runtime: FakeRuntime) -> ContainerPhase:
    pod = await runtime.pod("u1")
    assert pod is not None
    return pod.containers[0].phase


def test_a_script_ends_a_container_for_its_reason_and_takes_its_time_to_stop() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        scripts = {"app": ContainerScript(runs_for_s=10, exit_code=137, reason="OOMKilled", stops_after_s=2)}
        runtime = FakeRuntime(clock, scripts)
        for attempt in range(3):
            sandbox = await runtime.run_sandbox(SANDBOX)
            id_ = await runtime.create_container(sandbox, replace(WISH, attempt=attempt))
            await runtime.start_container(id_)
        ended, stopped, killed = runtime.containers.values()
        stopping = [
            asyncio.create_task(runtime.stop_container(stopped.status.id, 5)),
            asyncio.create_task(runtime.stop_container(killed.status.id, 1)),
        ]
        await settle()
        await clock.advance(1)
        assert (stopped.status.phase, killed.status.exit_code) == (ContainerPhase.RUNNING, 137)
        await clock.advance(1)
        assert stopped.status.exit_code == 143
        await clock.advance(8)
        assert (ended.status.reason, ended.status.exit_code) == ("OOMKilled", 137)
        assert stopped.status.exit_code == 143, "an end that was due is not carried out twice"
        await asyncio.gather(*stopping)

    asyncio.run(scenario())
