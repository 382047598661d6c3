"""Logs that have grown are set aside, compressed and in the end removed."""

import asyncio
import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.host.ports import ContainerConfig, PodSandboxConfig
from nodewright.agent.pods.log_rotation import (
    LogLinks,
    LogRotatePolicy,
    log_directory,
    remove_logs_of_removed_pods,
    rotate_logs,
    rotate_once,
)
from nodewright.agent.runtimes.simulated import FakeRuntime
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.values.quantity import QuantityError
from nodewright.testing.objects import a_pod

RULE = LogRotatePolicy(max_bytes=10, max_files=3)
POD = a_pod()


class Bench:
    """A container that writes to a log below a directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, FakeClock()
        self.runtime = FakeRuntime(self.clock)
        self.log = log_directory(root, "default", "web", "web") / "main" / "0.log"
        self.log.parent.mkdir(parents=True)

    async def begin(self, attempt: int = 0) -> None:
        sandbox = PodSandboxConfig(
            pod=POD, attempt=0, cgroup_parent="", log_directory=str(self.log.parent.parent)
        )
        id_ = await self.runtime.run_sandbox(sandbox)
        config = ContainerConfig(
            pod=POD,
            container=POD.spec.containers[0],
            attempt=attempt,
            spec_hash="",
            log_path=f"main/{attempt}.log",
            settings=ContainerSettings(),
            cgroup_files=(),
        )
        await self.runtime.start_container(await self.runtime.create_container(id_, config))

    async def turn(self, text: str) -> None:
        """So much is written, and a second later somebody looks."""
        self.log.write_text(text)
        await self.clock.advance(1)
        await rotate_once(self.runtime, await self.runtime.pods(), self.root, RULE, self.clock)

    @property
    def files(self) -> dict[str, str]:
        """What is in the files, the oldest first; the stamps in their names left out."""
        result = {}
        for number, path in enumerate(sorted(self.log.parent.iterdir())):
            text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
            result[f"{number}{path.suffix if path.suffix in ('.gz', '.tmp') else ''}"] = text
        return result

    @property
    def reopened(self) -> int:
        return sum(name == "reopen_log" for name, _ in self.runtime.operations)


def test_a_kubelets_configuration_sets_the_policy() -> None:
    assert LogRotatePolicy.from_config(KubeletConfiguration()) == LogRotatePolicy()
    with pytest.raises(QuantityError, match="invalid max log size"):
        LogRotatePolicy.from_config(KubeletConfiguration(container_log_max_size="100m"))


def test_a_log_that_has_grown_is_set_aside_and_older_ones_compressed(tmp_path: Path) -> None:
    async def run() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        await bench.turn("short")
        assert bench.files == {"0": "short"}
        await bench.turn("first, too long")
        assert bench.files == {"0": "first, too long"}
        assert not bench.log.exists()
        await bench.turn("second, too long")
        assert bench.files == {"0.gz": "first, too long", "1": "second, too long"}
        await bench.turn("third, too long")
        assert bench.files == {"0.gz": "second, too long", "1": "third, too long"}
        assert bench.reopened == 3

    asyncio.run(run())


def test_what_was_left_unfinished_is_removed(tmp_path: Path) -> None:
    async def run() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        for name in ("0.log.20260101-000000", "0.log.20260101-000000.gz", "0.log.20260102-000000.tmp"):
            (bench.log.parent / name).write_bytes(gzip.compress(b"old"))
        await bench.turn("now, too long")
        assert bench.files == {"0.gz": "old", "1": "now, too long"}

    asyncio.run(run())


def test_nothing_is_lost_when_the_runtime_does_not_obey(tmp_path: Path) -> None:
    async def run() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        bench.runtime.fail("reopen_log", "busy")
        with pytest.raises(HostError, match="busy"):
            await bench.turn("first, too long")
        assert bench.log.read_text() == "first, too long"
        await bench.turn("first, too long")
        assert not bench.log.exists()

    asyncio.run(run())


def test_a_log_that_is_not_there_is_begun_and_those_of_the_dead_are_left_alone(tmp_path: Path) -> None:
    async def run() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        await rotate_once(bench.runtime, await bench.runtime.pods(), tmp_path, RULE, bench.clock)
        assert bench.reopened == 1
        bench.runtime.end("main-web-0", 0)
        await bench.turn("too long, but it has ended")
        assert bench.files == {"0": "too long, but it has ended"}

    asyncio.run(run())


def test_logs_are_looked_at_again_and_again_whatever_happens(tmp_path: Path) -> None:
    async def run() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        texts: list[str] = []
        bench.runtime.fail("pods", "busy")
        task = asyncio.create_task(rotate_logs(bench.runtime, tmp_path, RULE, bench.clock, texts.append))
        await settle()
        assert texts == ["pods : busy"]
        bench.log.write_text("first, too long")
        await bench.clock.advance(10)
        while bench.log.exists():  # noqa: ASYNC110 - another thread compresses
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(texts) == 1

    asyncio.run(run())


def test_with_a_negative_size_nothing_is_rotated_and_logs_of_removed_containers_are_removed(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        bench, cleaned = Bench(tmp_path), asyncio.Event()
        await bench.begin(attempt=2)
        for name in ("0.log", "1.log", "1.log.20260101-000000.gz", "2.log.20260101-000000", "notes.log"):
            (bench.log.parent / name).write_text("old")
        (bench.log.parent / "2.log").write_text("now, too long")
        never = LogRotatePolicy(max_bytes=-1)
        loop = asyncio.get_running_loop()

        def clean_up(_pods: object) -> None:
            # In another thread.
            loop.call_soon_threadsafe(cleaned.set)

        task = asyncio.create_task(
            rotate_logs(
                bench.runtime,
                tmp_path,
                never,
                bench.clock,
                pytest.fail,
                clean_up,
            )
        )
        await cleaned.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        names = {path.name for path in bench.log.parent.iterdir()}
        assert names == {"2.log", "2.log.20260101-000000", "notes.log"}

    asyncio.run(run())


ID = "c0ffee1234567890"


class LinkBench:
    """A directory of links beside the logs of one container."""

    def __init__(self, root: Path, name: str = "web") -> None:
        pod = a_pod(name)
        pod = replace(pod, metadata=replace(pod.metadata, uid="web"))
        self.config = ContainerConfig(
            pod=pod,
            container=pod.spec.containers[0],
            attempt=0,
            spec_hash="",
            log_path="main/0.log",
            settings=ContainerSettings(),
            cgroup_files=(),
        )
        self.log = root / "pods" / f"default_{name}_{pod.uid}" / "main" / "0.log"
        self.log.parent.mkdir(parents=True)
        self.log.write_text("hello")
        self.directory, self.errors = root / "containers", list[str]()
        self.links = LogLinks(self.directory, root / "pods", self.errors.append)

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


def a_pod_status(phase: ContainerPhase) -> RuntimePodStatus:
    container = RuntimeContainerStatus(id=ID, name="main", attempt=0, phase=phase)
    return RuntimePodStatus(uid="web", namespace="default", name="web", containers=(container,))


def test_a_started_container_has_a_link_to_its_log(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.links.add(bench.config, ID)
    assert bench.names == [f"web_default_main-{ID}.log"]
    assert (bench.directory / bench.names[0]).read_text() == "hello"
    bench.links.add(bench.config, ID)
    assert bench.errors == []


def test_a_container_without_a_log_has_no_link(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.log.unlink()
    bench.links.add(bench.config, ID)
    assert not bench.directory.exists()


def test_a_link_has_a_name_that_file_systems_take(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path, "w" * 200)
    bench.links.add(bench.config, "1" * 64)
    (name,) = bench.names
    assert (len(name), name[-5:]) == (255, "1.log")


def test_a_link_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.directory.write_text("a file")
    bench.links.add(bench.config, ID)
    assert len(bench.errors) == 1
    assert "link" in bench.errors[0]


@pytest.mark.parametrize(
    ("phase", "remains"), [(ContainerPhase.RUNNING, True), (ContainerPhase.EXITED, False)]
)
def test_a_dead_link_is_removed_unless_the_log_is_being_rotated(
    tmp_path: Path, phase: ContainerPhase, *, remains: bool
) -> None:
    bench = LinkBench(tmp_path)
    bench.links.add(bench.config, ID)
    bench.links.remove_dead(())
    assert len(bench.names) == 1
    bench.log.rename(bench.log.with_name("0.log.20260101-000000"))
    bench.links.remove_dead([a_pod_status(phase)])
    assert bool(bench.names) is remains


def test_dead_links_to_other_places_and_files_are_left_alone(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.directory.mkdir()
    (bench.directory / "other-1.log").symlink_to(tmp_path / "elsewhere.log")
    (bench.directory / "file.log").write_text("kept")
    bench.links.remove_dead(())
    assert bench.names == ["file.log", "other-1.log"]


def test_logs_of_pods_that_nobody_has_are_removed(tmp_path: Path) -> None:
    for name in ("default_web_a", "default_web_b", "default_web_c", "other"):
        (tmp_path / name / "main").mkdir(parents=True)
    (tmp_path / "default_web_d").symlink_to(tmp_path / "other")
    pods = [RuntimePodStatus(uid="a", name="web", namespace="default")]
    remove_logs_of_removed_pods(tmp_path, pods, lambda: None)
    assert len(list(tmp_path.iterdir())) == 5
    remove_logs_of_removed_pods(tmp_path, pods, lambda: {"b"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "default_web_a",
        "default_web_b",
        "default_web_d",
        "other",
    ]
