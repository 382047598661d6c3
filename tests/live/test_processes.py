"""The runtime of plain processes on this machine: needs root and writable cgroups of version 1, or of version 2."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.live.containerd import stop_process
from tests.support.live_agent import ProcessBench, process_bench
from tests.support.runtime_port import RUNTIME_CHECKS, RuntimeCheck, RuntimeTestContainer

from nodewright.agent.host.ports import ContainerConfig, ContainerRuntime
from nodewright.agent.runtimes.processes.process_runtime import ProcessRuntime
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, ContainerSettings, MemoryCeiling
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.engine.core.requests.oom_adjust import NodeCritical, OOMScore
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container
from nodewright.model.kubernetes.runtime_status import OOM_KILLED, ContainerPhase
from nodewright.model.values.quantity import Bytes

pytestmark = pytest.mark.live


class Bench:
    """The bench of the port, and containers that run commands of ours."""

    def __init__(self, made: ProcessBench) -> None:
        self.made, self.cgroups, self.directory = made, made.cgroups, made.directory
        self.uid, self.facts, self.sandbox = made.uid, made.pod_facts, made.sandbox
        self.cgroup_parent, self.log_directory = made.cgroup_parent, made.log_directory

    @property
    def runtime(self) -> ContainerRuntime:
        return self.made.runtime

    def command(self, name: str, *command: str, **more: object) -> ContainerConfig:
        """A container that runs a command of ours."""
        container_config = self.made.container_config(RuntimeTestContainer.RUNS)
        settings = {
            "env": {**container_config.env},
            "cgroup_files": (),
            "attempt": 0,
            "container": Container(name=name),
            **more,
        }
        return ContainerConfig(
            pod=container_config.pod,
            spec_hash="1",
            command=command,
            log_path=f"{name}/0.log",
            settings=ContainerSettings(),
            **settings,  # type: ignore[arg-type] # by name
        )

    async def run(self, name: str, *command: str, **more: object) -> str:
        id_ = await self.runtime.create_container(await self.sandbox(), self.command(name, *command, **more))
        await self.runtime.start_container(id_)
        return id_

    async def end_of(self, name: str) -> tuple[int, str, str]:
        for _ in range(3000):
            container_status = (await self.facts()).newest_attempt(name)
            assert container_status is not None
            if container_status.phase is ContainerPhase.EXITED:
                return container_status.exit_code, container_status.reason, container_status.message
            await asyncio.sleep(0.01)
        raise AssertionError("it does not end")

    def log(self, name: str) -> list[str]:
        text = (Path(self.log_directory) / name / "0.log").read_text()
        return [line.split(" ", 1)[1] for line in text.splitlines()]

    def members(self, name: str) -> tuple[int, ...]:
        return self.cgroups.processes(f"{self.cgroup_parent}/{name}-0")


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    async with process_bench() as made:
        yield Bench(made)


def alone(check: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    """A test of a bench of its own."""

    def test() -> None:
        async def run() -> None:
            async with bench() as made:
                await asyncio.wait_for(check(made), 60)

        asyncio.run(run())

    return test


@pytest.mark.parametrize("check", RUNTIME_CHECKS, ids=lambda check: check.__name__)
def test_process_runtime(check: RuntimeCheck) -> None:
    alone(lambda bench: check(bench.made))()


@alone
async def test_log_lines_say_when_where_and_whether_they_are_whole(bench: Bench) -> None:
    await bench.run(
        "app", "sh", "-c", "echo out; echo err >&2; head -c 16385 /dev/zero | tr '\\0' x; echo; printf end"
    )
    await bench.end_of("app")
    log = bench.log("app")
    assert sorted(text for text in log if len(text) < 100) == [
        "stderr F err",
        "stdout F out",
        "stdout F x",
        "stdout P end",
    ]
    assert [len(text) for text in log if len(text) > 100] == [len("stdout P ") + 16384]


@alone
async def test_a_log_that_was_renamed_goes_on_under_its_name(bench: Bench) -> None:
    id_ = await bench.run(
        "app", "sh", "-c", "echo one; trap 'echo two; exit' USR1; while :; do sleep 0.02; done"
    )
    place = Path(bench.log_directory) / "app" / "0.log"
    while not place.exists() or "one" not in place.read_text():
        await asyncio.sleep(0.01)
    place.rename(place.with_suffix(".1"))
    await bench.runtime.reopen_log(id_)
    while not place.exists():
        await asyncio.sleep(0.01)
    os.kill(min(bench.members("app")), signal.SIGUSR1)
    assert (await bench.end_of("app"))[0] == 0
    assert bench.log("app") == ["stdout F two"]


@alone
async def test_a_log_that_cannot_be_written_does_not_keep_its_container_from_running(bench: Bench) -> None:
    Path(bench.log_directory).write_text("in the way")
    await bench.run("app", "sh", "-c", "echo lost; exit 5")
    assert (await bench.end_of("app"))[0] == 5


@alone
async def test_memory_beyond_the_limit_ends_a_container_as_oom_killed(bench: Bench) -> None:
    name = "memory.max" if bench.cgroups.version == 2 else "memory.limit_in_bytes"
    limit = CgroupFile(name, str(32 << 20), MemoryCeiling(Bytes(32 << 20), AmountOrigin.LIMIT))
    await bench.run("app", sys.executable, "-c", "x = b'x' * (200 << 20)", cgroup_files=(limit,))
    assert await bench.end_of("app") == (137, OOM_KILLED, "")


@alone
async def test_a_container_is_in_no_hurry_where_the_agent_is(bench: Bench) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    try:
        await bench.run("app", "nice")
        await bench.end_of("app")
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
    assert bench.log("app") == ["stdout F 0"]


@alone
async def test_who_is_left_behind_ends_with_the_container(bench: Bench) -> None:
    await bench.run("app", "sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & sleep 0.2; exit 7")
    assert (await bench.end_of("app"))[0] == 7
    assert bench.members("app") == ()


@alone
async def test_a_container_that_closes_its_streams_lives_on(bench: Bench) -> None:
    id_ = await bench.run("app", "sh", "-c", "exec >&- 2>&-; sleep 2; exit 6")
    await asyncio.sleep(0.2)
    assert id_ in await bench.runtime.usage()
    assert (await bench.end_of("app"))[0] == 6


def refused_forks(bench: Bench) -> int:
    """How often the limit of processes was met; a kernel counts it where the limit is, or where the process is."""
    paths = (bench.cgroup_parent, f"{bench.cgroup_parent}/app-0")
    files = [
        Path(f"{tree}{path}/pids.events")
        for tree in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
        for path in paths
    ]
    return sum(int(file.read_text("ascii").split()[1]) for file in files if file.exists())


@alone
async def test_a_fork_bomb_ends(bench: Bench) -> None:
    bench.cgroups.ensure(bench.cgroup_parent, (CgroupFile("pids.max", "100", None),))  # type: ignore[arg-type] # no fact
    bomb = "f() { f | f & f; }; (f) 2>/dev/null & while :; do :; done"
    id_ = await bench.run("app", "sh", "-c", bomb)
    # How many there are changes at every moment: shells that cannot fork end.
    while not refused_forks(bench):
        await asyncio.sleep(0.01)
    await bench.runtime.stop_container(id_, 0)
    assert (await bench.end_of("app"))[0] == 137
    assert bench.members("app") == ()


@alone
async def test_a_command_that_takes_too_long_ends_with_all_its_children(bench: Bench) -> None:
    id_ = await bench.run("app", "sleep", "1000")
    with pytest.raises(TimeoutError):
        await bench.runtime.execute(
            id_, ("sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & sleep 1000"), 0.5
        )
    assert len(bench.members("app")) == 1
    assert bench.cgroups.children(f"{bench.cgroup_parent}/app-0") == ()


@alone
async def test_a_command_that_talks_without_end_is_not_listened_to_for_ever(bench: Bench) -> None:
    id_ = await bench.run("app", "sleep", "1000")
    exec_result = await bench.runtime.execute(id_, ("sh", "-c", "yes | head -c 10000000; yes & exit 3"), 20)
    assert (exec_result.exit_code, len(exec_result.stdout)) == (3, 64 << 10)


@alone
async def test_a_container_whose_shim_is_killed_is_lost_and_leaves_nothing(bench: Bench) -> None:
    await bench.run("app", "sleep", "1000")
    changes = aiter(bench.runtime.changes())
    await anext(changes)
    (child,) = bench.members("app")
    shim = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shim, signal.SIGKILL)
    assert await asyncio.wait_for(anext(changes), 60) == bench.uid
    assert await bench.end_of("app") == (137, "Error", "its shim is gone")
    assert bench.members("app") == ()


@alone
async def test_a_shim_that_does_not_listen_is_ended_with_its_container(bench: Bench) -> None:
    id_ = await bench.run("app", "sleep", "1000")
    (child,) = bench.members("app")
    shim = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    stop_process(shim)
    await bench.runtime.stop_container(id_, 0)
    assert (await bench.end_of("app"))[0] == 137
    assert bench.members("app") == ()


@alone
async def test_what_cannot_be_run_says_why(bench: Bench) -> None:
    for name, command, why in (
        ("none", ("nonesuch",), "nonesuch: executable file not found in $PATH"),
        ("dir", ("/tmp",), "/tmp: Permission denied"),
        ("cwd", ("true",), "/nonesuch: No such file or directory"),
    ):
        with pytest.raises(HostError) as failed:
            await bench.run(name, *command, working_dir="/nonesuch" if name == "cwd" else "")
        assert failed.value.error == why
        assert await bench.end_of(name) == (128, "StartError", why)


@alone
async def test_a_container_runs_as_whom_it_says_and_leaves_its_last_words(bench: Bench) -> None:
    who = Container(name="app", security_context={"runAsUser": 12345, "runAsGroup": 2345})
    place = bench.directory / "runtime" / bench.uid / "app" / "0" / "termination-log"
    id_ = await bench.run("app", "sh", "-c", f"id -u; id -G; echo bye > {place}; sleep 1000", container=who)
    assert (await bench.runtime.execute(id_, ("sh", "-c", "id -u; id -G"), 20)).stdout == b"12345\n2345\n"
    while not place.read_text():
        await asyncio.sleep(0.01)
    await bench.runtime.stop_container(id_, 0)
    assert await bench.end_of("app") == (137, "Error", "bye\n")
    assert bench.log("app") == ["stdout F 12345", "stdout F 2345"]


@alone
async def test_a_container_and_its_commands_have_a_score_and_a_session_of_their_own(bench: Bench) -> None:
    say = "cat /proc/self/oom_score_adj; cut -d' ' -f6 /proc/self/stat"
    container_config = bench.command("app", "sh", "-c", f"{say}; sleep 1000")
    score = ContainerSettings(oom_score=OOMScore("app", 777, NodeCritical()))
    id_ = await bench.runtime.create_container(
        await bench.sandbox(), replace(container_config, settings=score)
    )
    await bench.runtime.start_container(id_)
    inside = (await bench.runtime.execute(id_, ("sh", "-c", say), 20)).stdout.decode().split()
    while len(bench.log("app")) < 2:
        await asyncio.sleep(0.01)
    await bench.runtime.stop_container(id_, 0)
    texts = [line.removeprefix("stdout F ") for line in bench.log("app")]
    assert [texts[0], inside[0]] == ["777", "777"]
    assert len({texts[1], inside[1], str(os.getsid(0))}) == 3


@alone
async def test_a_directory_has_one_agent(bench: Bench) -> None:
    with pytest.raises(HostError, match="another agent uses it"):
        ProcessRuntime(bench.directory / "runtime", bench.cgroups)


@alone
async def test_an_agent_that_dies_while_it_starts_a_container_starts_it_once(bench: Bench) -> None:
    for delay in (0.0, 0.005, 0.01, 0.02, 0.03):
        id_ = await bench.runtime.create_container(
            await bench.sandbox(), bench.command("app", "sleep", "1000")
        )
        task = asyncio.ensure_future(bench.runtime.start_container(id_))
        await asyncio.sleep(delay)
        task.cancel()
        bench.made.runtime = await bench.made.restart_agent()
        await asyncio.gather(bench.runtime.start_container(id_), bench.runtime.start_container(id_))
        assert len(bench.members("app")) == 1
        await bench.runtime.remove_container(id_)


@alone
async def test_torn_files_are_as_if_they_were_not_there(bench: Bench) -> None:
    await bench.run("app", "sleep", "1000")
    place = bench.directory / "runtime" / bench.uid / "app"
    (place / "1").mkdir()
    (place / "1" / "created.json").write_text("")
    assert [container.attempt for container in (await bench.facts()).containers] == [0]
    (place / "0" / "started").write_text("")
    assert [container.phase for container in (await bench.facts()).containers] == [ContainerPhase.RUNNING]
