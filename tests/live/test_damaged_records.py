"""Records of plain processes that are damaged, removed or replaced while they run: no container runs twice."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.live.test_processes import Bench, alone
from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import ContainerPhase

pytestmark = pytest.mark.live

Damage = Callable[[Path], object]
"""What happens to the directory of the runtime's records."""


def junk(*names: str) -> Damage:
    def write(place: Path) -> None:
        for name in names:
            for file in place.glob(f"port-*/{name}"):
                file.write_text("junk")

    return write


def without(*names: str) -> Damage:
    def remove(place: Path) -> None:
        for name in names:
            for file in place.glob(name):
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    return remove


def a_directory_in_place_of(name: str) -> Damage:
    def replace_file(place: Path) -> None:
        for file in place.glob(name):
            file.unlink()
            file.mkdir()

    return replace_file


def started_long_ago_without_a_record(place: Path) -> None:
    for lock in place.glob("*/app/0/lock"):
        os.utime(lock, (0, 0))
        lock.with_name("started").unlink()


DAMAGES: dict[str, Damage] = {
    "created.json is junk": junk("app/0/created.json"),
    "created.json is deep": lambda place: [
        file.write_text("[" * 100_000) for file in place.glob("*/app/0/created.json")
    ],
    "created.json is a directory": a_directory_in_place_of("*/app/0/created.json"),
    "started is gone": started_long_ago_without_a_record,
    "started and lock are gone": without("*/app/0/started", "*/app/0/lock"),
    "lock is gone": without("*/app/0/lock"),
    "all of the container is junk": junk("app/0/created.json", "app/0/started", "app/0/lock"),
    "the container is gone": without("*/app"),
    "pod.json is junk": junk("pod.json"),
    "pod.json is a directory": a_directory_in_place_of("*/pod.json"),
    "the pod is gone": without("port-*"),
    "all is gone": without("*", ".*"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("attempt", [0, 1])
def test_no_container_runs_twice_whatever_happens_to_the_records(damage: Damage, attempt: int) -> None:
    """An agent that knows what ran before starts the next attempt; one that lost its state, too, the same one."""

    @alone
    async def check(bench: Bench) -> None:
        def processes() -> int:
            return len(bench.cgroups.processes(bench.cgroup_parent))

        for name in ("app", "beside"):
            await bench.run(name, "sleep", "1000")
        damage(bench.directory / "runtime")
        bench.made.runtime = await bench.made.restart_agent()
        with suppress(HostError):
            await bench.run("app", "sleep", "1000", attempt=attempt)
        assert processes() <= 2
        if not await running(bench, "app"):
            await bench.run("app", "sleep", "1000", attempt=attempt + 1)
        if not await running(bench, "beside"):
            await bench.run("beside", "sleep", "1000", attempt=1)
        assert processes() == 2

    check()


async def running(bench: Bench, name: str) -> int:
    runtime_pod_status = await bench.runtime.pod(bench.uid)
    containers = runtime_pod_status.containers if runtime_pod_status is not None else ()
    return sum(each.name == name and each.phase is ContainerPhase.RUNNING for each in containers)


@alone
async def test_an_older_copy_of_the_records_does_not_bring_a_second_process(bench: Bench) -> None:
    records, copy = bench.directory / "runtime", bench.directory / "copy"
    await bench.run("app", "sh", "-c", "exit 3")
    await bench.end_of("app")
    shutil.copytree(records, copy, ignore=shutil.ignore_patterns("ctl"))
    for attempt in (1, 2):
        await bench.run("app", "sleep", "1000", attempt=attempt)
    shutil.rmtree(records)
    copy.rename(records)
    bench.made.runtime = await bench.made.restart_agent()
    await bench.run("app", "sleep", "1000", attempt=1)
    assert len(bench.cgroups.processes(bench.cgroup_parent)) == 1


@alone
async def test_a_container_that_runs_keeps_running_when_another_of_its_pod_is_started(bench: Bench) -> None:
    await bench.run("beside", "sleep", "1000")
    before = bench.members("beside")
    await bench.run("app", "sleep", "1000")
    assert bench.members("beside") == before
    assert len(bench.cgroups.processes(bench.cgroup_parent)) == 2


@alone
async def test_a_record_that_never_ends_is_read_like_a_damaged_one(bench: Bench) -> None:
    await bench.run("app", "sleep", "1000")
    place = bench.directory / "runtime" / bench.uid / "app" / "0" / "created.json"
    place.unlink()
    os.mkfifo(place)
    assert (await bench.facts()).containers == ()
    place.unlink()
    place.symlink_to("/dev/zero")
    assert (await bench.facts()).containers == ()


# The same with the real command, killed in between.

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: main, image: none, command: [sleep, "100011"]}}]
"""
POD_NAMES = ("one", "two")


class Machine:
    """An agent with two pods."""

    def __init__(self, directory: Path, cgroups: CgroupFS) -> None:
        self.root, self.cgroups = directory / "root", cgroups
        (directory / "pods").mkdir()
        for name in POD_NAMES:
            (directory / "pods" / f"{name}.yaml").write_text(POD.format(name=name))
        self.agent = AgentCommand(directory, cgroups.root, "--workload-dir", str(directory / "pods"))

    def run_until_both_run(self) -> None:
        """Starts an agent, waits for its pods and kills it; two processes are left, and never more are there.

        An agent that starts shows pods as it stored them, and may notice only then that a record is lost: killed while
        it replaces a process, it leaves fewer.
        """
        count = 0
        while count != len(POD_NAMES):
            self.agent.start()
            self.agent.wait_until(self._both_run)
            assert len(self.sleepers()) <= len(POD_NAMES), self.agent.log_tail()
            self.agent.kill()
            count = len(self.sleepers())
            assert count <= len(POD_NAMES), self.agent.log_tail()

    def sleepers(self) -> list[int]:
        return [
            int(place.parent.name)
            for place in Path("/proc").glob("[0-9]*/cmdline")
            if _content(place) == b"sleep\x00100011\x00" and self._is_ours(place.parent)
        ]

    def _is_ours(self, process: Path) -> bool:
        return self.cgroups.root.encode() in _content(process / "cgroup")

    def _both_run(self) -> bool:
        statuses = [
            status for pod in self.agent.pods() for status in pod["status"].get("containerStatuses", ())
        ]
        # A container whose loss has been noticed is started again in a moment.
        return [status["ready"] for status in statuses] == [True, True] and len(self.sleepers()) == 2


def _content(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError:
        return b""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with private_cgroups() as cgroups:
        made = Machine(tmp_path, cgroups)
        try:
            yield made
        finally:
            made.agent.stop()


def _remove(*places: Path) -> None:
    for place in places:
        shutil.rmtree(place) if place.is_dir() else place.unlink()


AGENT_DAMAGES: dict[str, Callable[[Path], object]] = {
    "records are junk": lambda root: [
        file.write_text("junk") for file in root.glob("containers/*/main/*/created.json")
    ],
    "records of pods are gone": lambda root: _remove(*root.glob("containers/*")),
    "everything is gone": lambda root: _remove(*root.glob("*")),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root")
def test_two_pods_stay_two_processes_whatever_is_lost_while_no_agent_runs(
    machine: Machine, tmp_path: Path
) -> None:
    machine.run_until_both_run()
    copy = tmp_path / "copy"
    shutil.copytree(machine.root, copy, ignore=shutil.ignore_patterns("ctl", "*.sock"))
    for damage in AGENT_DAMAGES.values():
        damage(machine.root)
        machine.run_until_both_run()
    _remove(machine.root)
    copy.rename(machine.root)
    machine.run_until_both_run()
    assert "StrayProcesses" in machine.agent.log()
    assert "Traceback" not in machine.agent.log()


def test_an_agent_does_not_start_in_the_cgroup_of_another(machine: Machine, tmp_path: Path) -> None:
    machine.agent.start()
    machine.agent.wait_until(lambda: len(machine.sleepers()) == 2)
    (tmp_path / "other").mkdir()
    second = AgentCommand(tmp_path / "other", machine.cgroups.root)
    second.start()
    assert second.wait() == 1
    assert "another agent uses it: give one of them another --cgroup-root" in second.log()
    assert len(machine.sleepers()) == 2
