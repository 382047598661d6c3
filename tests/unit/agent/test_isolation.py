"""Faults stay where they are: a pod, a task, a source or a probe that fails does so alone."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, FakeConfigBuilder, async_test
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.decide import pod_sources
from nodewright.agent.host.volumes import Volumes
from nodewright.agent.observe import manifest_sources
from nodewright.agent.observe.manifest_sources import ManifestDirectory, SourceListener
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_config import NodeContext, ProcessConfigBuilder
from nodewright.agent.state.agent_state import PodSource, PodStage
from nodewright.agent.state.observations import Observation, SourcePodsListed
from nodewright.cluster.client.http_get import HTTPFailure, HTTPRequest, http_get
from nodewright.cluster.tasks.supervision import (
    BackgroundTask,
    LoopErrors,
    error_text,
    report_failure,
    run_supervised,
)
from nodewright.documents.files.regular_files import read_stamped_file
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.testing.objects import a_pod

MANIFEST = "{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {containers: [{name: app, image: x}]}}"


# ---------------------------------------------------------------- tasks


@async_test
async def test_a_task_that_fails_is_reported_and_run_again_with_a_growing_delay() -> None:
    clock, events, runs = FakeClock(), list[str](), list[float]()

    async def run() -> None:
        runs.append(clock.monotonic_s())
        raise KeyError("name")

    task = asyncio.create_task(
        run_supervised(BackgroundTask("watch", run), lambda event: events.append(event.message), clock)
    )
    for _ in range(8):
        await clock.advance(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    began = runs[0]
    assert [at - began for at in runs] == [0, 1, 3, 7]
    assert events[0].startswith("watch: unexpected KeyError: 'name' (test_isolation.py:")
    assert "next attempt in 1 s" in events[0]


@async_test
async def test_the_error_of_a_task_that_nobody_awaits_is_reported() -> None:
    events: list[RecordEvent] = []

    async def run() -> None:
        raise OSError(24, "Too many open files")

    task = asyncio.create_task(run())
    report_failure(task, "query", events.append)
    await asyncio.wait((task,))
    await settle()
    assert [event.reason for event in events] == ["TaskFailed"]
    assert "Too many open files" in events[0].message


@async_test
async def test_an_error_of_the_event_loop_is_recorded_once_a_minute() -> None:
    clock, events = FakeClock(), list[str]()
    errors = LoopErrors(lambda event: events.append(event.message), clock)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(errors)
    for _ in range(1000):
        loop.call_exception_handler({"message": "accept", "exception": OSError(24, "Too many open files")})
    assert len(events) == 1
    await clock.advance(61)
    loop.call_exception_handler({"message": "accept", "exception": OSError(24, "Too many open files")})
    assert events == ["accept: unexpected OSError: [Errno 24] Too many open files"] * 2


def test_the_text_of_an_error_is_one_line_and_bounded() -> None:
    assert error_text(HostError("read", "/x", "a\nb")) == "read /x: a; b"
    group = ExceptionGroup("many", [ValueError("x" * 5000)])
    assert error_text(group).startswith("unexpected ValueError: x")
    assert len(error_text(group)) < 600


# ---------------------------------------------------------------- pods


class FailingConfigBuilder(FakeConfigBuilder):
    """Fails for some pods in a way that nobody expects."""

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> Any:
        if pod.metadata.name == "bad":
            raise OverflowError("Python int too large to convert to C long")
        return await super().sandbox_config(pod, attempt, cgroup)


@async_test
async def test_an_unexpected_error_of_one_pod_is_its_event_and_it_can_be_deleted() -> None:
    async with AgentBench() as bench:
        bench.loop.effect_runner.config_builder = FailingConfigBuilder()
        await bench.add_pods(a_pod("bad"), a_pod("good"))
        assert bench.phase("good") == "Running"
        assert any("OverflowError" in event.message for event in bench.event_recorder.events)
        await bench.remove_pod("bad")
        assert "bad" not in bench.loop.state.pods


def test_a_pod_that_cannot_be_decided_on_is_reported_and_the_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., None] = pod_sources.apply_pod

    def apply(iteration: Any, source: PodSource, pod: Pod) -> None:
        if pod.metadata.name == "bad":
            raise KeyError("name")
        real(iteration, source, pod)

    @async_test
    async def run() -> None:
        async with AgentBench() as bench:
            await bench.set_source_pods(a_pod("bad"), a_pod("good"))
            assert bench.phase("good") == "Running"
            events = bench.event_recorder.events
            assert [event.reason for event in events if "KeyError" in event.message] == ["PodNotApplied"]

    monkeypatch.setattr(pod_sources, "apply_pod", apply)
    run()


@async_test
async def test_a_pod_that_cannot_be_synced_is_retried_later_and_the_others_run() -> None:
    async with AgentBench() as bench:
        # No cgroup can have this name: a record of an older version.
        await bench.add_pods(a_pod("good"))
        record = bench.loop.state.pods["good"]
        bad = replace(record.pod, metadata=replace(record.pod.metadata, name="bad", uid="a_b"))
        stuck = replace(
            record,
            pod=bad,
            stage=PodStage.TERMINATING,
            runtime_status=None,
            has_running_effect=False,
            retry_at_ns=0,
        )
        bench.loop.state = replace(bench.loop.state, pods={**bench.loop.state.pods, "a_b": stuck})
        await bench.add_pods(a_pod("late"))
        assert bench.phase("late") == "Running"
        events = bench.event_recorder.events
        assert [event.reason for event in events if event.uid == "a_b"] == ["FailedSync"]


def test_a_pod_with_names_that_no_path_can_have_is_cleaned_up(tmp_path: Path) -> None:
    context = NodeContext(log_root=tmp_path / "logs")
    builder = ProcessConfigBuilder(context, Volumes(tmp_path / "volumes", None), ConfigObjectCache())
    victim = tmp_path / "victim"
    victim.mkdir()
    pod = a_pod("web")
    for uid in ("..", "../victim", str(victim), "a\0", ""):
        bad = replace(
            pod,
            metadata=replace(pod.metadata, uid=uid, name="../victim"),
            spec=replace(pod.spec, volumes=({"emptyDir": {}}, {"name": "../../victim"}, {"configMap": {}})),
        )
        asyncio.run(builder.remove_pod_files(bad))
        assert dict(builder.storage_paths(bad).volumes) == {}
        asyncio.run(_refreshed(builder, bad))
    assert victim.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]


async def _refreshed(builder: ProcessConfigBuilder, pod: Pod) -> None:
    with suppress(HostError):
        await builder.refresh_volumes([pod])


@async_test
async def test_a_long_list_is_applied_over_several_decisions_and_completely() -> None:
    async with AgentBench() as bench:
        pods = tuple(
            replace(pod, spec=replace(pod.spec, node_selector={"a": "b"}))
            for pod in (a_pod(f"p{number:03}") for number in range(90))
        )
        bench.loop.observe(SourcePodsListed(PodSource.FILE, pods))
        await settle()
        assert not bench.loop.state.waiting_pods
        assert {record.stage for record in bench.loop.state.pods.values()} == {PodStage.REJECTED}
        assert len(bench.loop.state.pods) == 90
        bench.loop.observe(SourcePodsListed(PodSource.FILE, pods[:1]))
        await settle()
        assert list(bench.loop.state.pods) == ["p000"]


# ---------------------------------------------------------------- sources


class Bench:
    def __init__(self, directory: Path, read_timeout_s: float = 5.0) -> None:
        self.names: list[str] = []
        self.warnings: list[str] = []
        listener = SourceListener(
            "node-a", self._observe, lambda event: self.warnings.append(event.message), ConfigObjectCache()
        )
        self.manifests = ManifestDirectory(directory, PodSource.WORKLOAD, listener, read_timeout_s)

    def _observe(self, observation: Observation) -> None:
        assert isinstance(observation, SourcePodsListed)
        self.names = [pod.metadata.name for pod in observation.pods]


@pytest.mark.parametrize("kind", ["Service", "Pod", "Widget"])
@pytest.mark.parametrize("metadata", ["3", "text", "[1]", "true"])
def test_a_manifest_with_odd_metadata_is_refused_and_the_others_are_taken(
    tmp_path: Path, kind: str, metadata: str
) -> None:
    (tmp_path / "good.yaml").write_text(MANIFEST.replace("NAME", "good"))
    for version in ("v1", "example.com/v1"):
        (tmp_path / f"{version[:2]}.yaml").write_text(
            f"apiVersion: {version}\nkind: {kind}\nmetadata: {metadata}\n"
        )
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    bench = Bench(tmp_path)
    asyncio.run(bench.manifests.poll())
    assert bench.names == ["good"]
    assert bench.warnings


def test_files_that_are_no_regular_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(MANIFEST.replace("NAME", "good"))
    os.mkfifo(tmp_path / "fifo.yaml")
    for name, target in (
        ("zero", "/dev/zero"),
        ("loop", "loop.yaml"),
        ("fifo-link", "fifo.yaml"),
        ("dir", "/etc"),
    ):
        (tmp_path / f"{name}.yaml").symlink_to(target)
    bench = Bench(tmp_path)
    asyncio.run(bench.manifests.poll())
    assert bench.names == ["good"]


def test_a_link_to_a_file_in_proc_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(MANIFEST.replace("NAME", "good"))
    (tmp_path / "mounts.yaml").symlink_to("/proc/self/mountinfo")
    bench = Bench(tmp_path)
    asyncio.run(bench.manifests.poll())
    assert bench.names == ["good"]


def test_a_file_that_is_never_read_to_its_end_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forever, hanging = threading.Event(), list[str]()

    def read(path: Path, max_bytes: int) -> object:
        if path.name.startswith("hangs"):
            hanging.append(path.name)
            forever.wait()
        return read_stamped_file(path, max_bytes)

    monkeypatch.setattr(manifest_sources, "read_stamped_file", read)
    for number in range(6):
        (tmp_path / f"hangs{number}.yaml").write_text("x")
    (tmp_path / "also.yaml").write_text(MANIFEST.replace("NAME", "also"))
    bench = Bench(tmp_path, read_timeout_s=0.05)
    for _ in range(3):
        asyncio.run(bench.manifests.poll())
    assert bench.names == ["also"]
    assert hanging == [f"hangs{number}.yaml" for number in range(4)]
    assert any("cannot be read to its end within 0.05 s" in warning for warning in bench.warnings)
    forever.set()


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "big.yaml").open("wb") as file:
        file.truncate(11 << 20)
    os.utime(tmp_path / "big.yaml", (1, 1))
    bench = Bench(tmp_path)
    asyncio.run(bench.manifests.poll())
    assert bench.warnings == [f"{tmp_path}/big.yaml: 11534336 bytes, at most 10485760"]


# ---------------------------------------------------------------- HTTP


@pytest.mark.parametrize(
    "location", ["http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:x/", "//[/"]
)
def test_a_redirect_that_is_no_url_is_a_failed_request(location: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 x\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async def request() -> object:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await http_get(HTTPRequest("http", "127.0.0.1", port, "/"), 5)

    response = asyncio.run(request())
    assert isinstance(response, HTTPFailure)
    assert "failed to parse Location header" in response.error


@pytest.mark.parametrize(
    "request_",
    [
        HTTPRequest("http", "a\0b", 80, "/"),
        HTTPRequest("http", "x" * 300 + ".example", 80, "/"),
        HTTPRequest("http", "127.0.0.1", 99999, "/"),
        HTTPRequest("http", "127.0.0.1", -1, "/"),
        HTTPRequest("http", "127.0.0.1", 80, "/", (("X", "a\r\nHost: b"),)),
    ],
)
def test_a_request_that_cannot_be_made_is_a_failure(request_: HTTPRequest) -> None:
    assert isinstance(asyncio.run(http_get(request_, 5)), HTTPFailure)


@pytest.mark.parametrize("url", ["http://[::1/", "http://127.0.0.1:99999/", "file:///etc", "http://"])
def test_a_manifest_url_that_is_none_is_no_request(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        HTTPRequest.from_url(url, {})
