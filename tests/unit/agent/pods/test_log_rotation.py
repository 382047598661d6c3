"""Logs that have grown are set aside, compressed and in the end removed."""

import asyncio
import gzip
from pathlib import Path

import pytest

from nodewright.agent.host.ports import ContainerConfig, PodSandboxConfig
from nodewright.agent.pods.log_rotation import LogRotatePolicy, log_directory, rotate_logs, rotate_once
from nodewright.agent.runtimes.simulated import FakeClock, FakeRuntime, settle
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
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
