"""The export of a kubelet's directory: what it reads, when it changes, and what it says of sources that fail."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.pod_resource_files import resources_state_file
from tests.support.state_files import change_members

from nodewright.cluster.exports.export_feed import ExportFeed, ExportReading, SourceReading
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.profiles.capture.from_pod_resources import PodResourcesSnapshot
from nodewright.documents.profiles.machine.captured_machine import CapturedMachine
from nodewright.documents.profiles.node_export import SourceState
from nodewright.documents.profiles.state_files.cpu_manager_state import cpu_state_file
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    device_checkpoint_bytes,
)
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.objects import ResourceRequirements
from nodewright.model.kubernetes.pod_resources_api import AllocatableResources, ContainerDevices
from nodewright.model.values.idset import CPUSet
from nodewright.scheduling.exporter import node_reader
from nodewright.scheduling.exporter.exporter import Exporter
from nodewright.scheduling.exporter.node_reader import LAG_S, ExportSettings, NodeReader, PodList
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import amounts

GPU = "vendor.example/gpu"
ONE_CPU = ResourceRequirements(requests=amounts("1/1Gi"), limits=amounts("1/1Gi"))
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}


class FakeClock(HostClock):
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def now_ns(self) -> int:
        return int(self.now_s * 10**9)

    def monotonic_s(self) -> float:
        return self.now_s


class FakePods:
    """A list of pods by name; each has its name as its uid, and one CPU."""

    def __init__(self, *names: str, may_lag: bool = False) -> None:
        self.names, self.may_lag, self.error = names, may_lag, ""

    async def pod_list(self) -> PodList:
        if self.error:
            raise HostError("list", "pods", self.error)
        items = [
            {
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {
                    "nodeName": "n1",
                    "containers": [
                        {"name": "main", "image": "a", "resources": {kind: {"cpu": "1", "memory": "1Gi"}}}
                        for kind in ("limits",)
                    ],
                },
                "status": {"phase": "Running"},
            }
            for name in self.names
        ]
        content = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": items}).encode()
        return PodList(content=content, is_watched=False, may_lag=self.may_lag)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubelet's directory on a machine of four CPUs."""
    machine = CapturedMachine(profile=a_profile(1, 4))
    monkeypatch.setattr(node_reader, "capture_this_machine", lambda: machine)
    (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "pods").mkdir()
    (tmp_path / "pod-resources").mkdir()
    hold(tmp_path, {})
    return tmp_path


def put(path: Path, content: bytes) -> None:
    """Replaces a file as the kubelet does."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.replace(path)


def hold(root: Path, cpus: dict[str, int]) -> None:
    """Has pods hold these CPUs."""
    state = CPUState(
        CPUSet.of(0, 1, 2, 3) - CPUSet.from_ids(cpus.values()),
        {uid: {"main": CPUSet.of(cpu)} for uid, cpu in cpus.items()},
    )
    put(root / "cpu_manager_state", cpu_state_file(state, "static"))
    allocated = {uid: PodResourceInfo({"main": ONE_CPU}) for uid in cpus}
    put(root / "allocated_pods_state", resources_state_file(allocated))


def reader(root: Path, pods: FakePods | None = None, clock: FakeClock | None = None) -> NodeReader:
    settings = ExportSettings(
        node_name="n1", kubelet_root=root, pod_resources=root / "pod-resources" / "kubelet.sock"
    )
    return NodeReader(settings, clock or FakeClock(), None, pods)


def read(from_reader: NodeReader) -> ExportReading:
    return asyncio.run(from_reader.read(are_files_watched=True))


def held(reading: ExportReading) -> dict[str, str | None]:
    return {allocation.pod: allocation.cpus for allocation in reading.profile.spec.allocations or ()}


def source(reading: ExportReading, name: str) -> SourceReading:
    return next(source for source in reading.sources if source.name == name)


def test_a_node_has_the_allocations_of_its_state_files(root: Path) -> None:
    hold(root, {"a": 2})
    reading = read(reader(root, FakePods("a")))
    assert held(reading) == {"default/a": "2"}
    assert reading.profile.metadata.name == "n1"
    assert source(reading, "cpu_manager_state").state is SourceState.READ
    assert source(reading, "memory_manager_state").state is SourceState.ABSENT


def test_without_pods_placeholders_hold_the_resources(root: Path) -> None:
    hold(root, {"a": 2})
    reading = read(reader(root))
    assert held(reading) == {"unknown/a": "2"}
    assert any("placeholders" in text for text in (*reading.warnings, *reading.assumed))


def test_pods_that_cannot_be_read_stay_as_they_were(root: Path) -> None:
    hold(root, {"a": 2})
    pods = FakePods("a")
    from_reader = reader(root, pods)
    read(from_reader)
    pods.error = "connection refused"
    hold(root, {"a": 2, "b": 3})
    reading = read(from_reader)
    assert held(reading) == {"default/a": "2", "unknown/b": "3"}
    assert source(reading, "pods").state is SourceState.FAILED
    assert "connection refused" in source(reading, "pods").error


def test_a_pod_that_a_lagging_list_does_not_have_counts_until_the_lag_is_over(root: Path) -> None:
    hold(root, {"a": 2, "b": 3})
    clock = FakeClock()
    from_reader = reader(root, FakePods("a", may_lag=True), clock)
    assert held(read(from_reader)) == {"default/a": "2", "unknown/b": "3"}
    clock.now_s += LAG_S
    assert held(read(from_reader)) == {"default/a": "2"}


def test_a_pod_that_the_kubelet_no_longer_has_holds_nothing(root: Path) -> None:
    hold(root, {"a": 2, "b": 3})
    assert held(read(reader(root, FakePods("a")))) == {"default/a": "2"}


def test_devices_have_the_numa_nodes_that_pod_resources_reports(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(
        root / "device-plugins" / "kubelet_internal_checkpoint",
        device_checkpoint_bytes(DeviceCheckpoint((), {GPU: ("g0", "g1")})),
    )
    calls = []

    async def snapshot(_socket: Path) -> PodResourcesSnapshot:
        calls.append(1)
        devices = (ContainerDevices(GPU, ("g0",), (0,)), ContainerDevices(GPU, ("g1",), None))
        return PodResourcesSnapshot(pods=(), allocatable=AllocatableResources(devices=devices))

    monkeypatch.setattr(node_reader, "read_snapshot_apart", snapshot)
    from_reader = reader(root, FakePods())
    places = {device.id: device.numa_nodes for device in read(from_reader).profile.spec.devices[GPU]}
    assert places == {"g0": (0,), "g1": None}
    read(from_reader)
    assert len(calls) == 1
    assert not read(from_reader).assumed


def test_a_damaged_file_keeps_the_last_export_and_is_reported(root: Path) -> None:
    feed = ExportFeed(FakeClock())
    feed.publish(read(reader(root, FakePods())))
    put(root / "cpu_manager_state", b"{")
    with pytest.raises(InputError) as refused:
        read(reader(root, FakePods()))
    generation = feed.generation
    feed.fail(str(refused.value), [SourceReading(name="node", state=SourceState.FAILED, error="damaged")])
    served = feed.current()
    assert served is not None
    assert feed.generation > generation
    assert [source.name for source in served.export.sources] == ["node"]


def test_generations_grow_also_where_the_clock_does_not() -> None:
    clock = FakeClock()
    feed = ExportFeed(clock)
    profile = a_profile()
    assert feed.publish(ExportReading(profile=profile))
    assert not feed.publish(ExportReading(profile=profile))
    first = feed.generation
    assert first == 1_000_000
    clock.now_s -= 500
    assert feed.publish(ExportReading(profile=replace(profile, spec=replace(profile.spec, pid_max=7))))
    assert feed.generation == first + 1


def test_the_age_of_a_watched_source_is_zero() -> None:
    polled = SourceReading(name="pods", state=SourceState.READ, read_s=10.0)
    assert polled.at(12.5).age_milliseconds == 2500
    assert replace(polled, is_watched=True).at(12.5).age_milliseconds == 0
    assert replace(polled, is_watched=True, state=SourceState.FAILED).at(12.5).age_milliseconds == 2500
    assert replace(polled, read_s=None).at(12.5).age_milliseconds is None


def run(routine: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await routine()

    asyncio.run(bounded())


def test_a_change_of_a_state_file_is_published(root: Path) -> None:
    async def follow() -> None:
        pods = FakePods()
        clock = HostClock()
        settings = ExportSettings(node_name="n1", kubelet_root=root, pod_resources=None)
        feed = ExportFeed(clock)
        exporter = Exporter(settings, NodeReader(settings, clock, None, pods), feed, poll_period_s=1000)
        task = asyncio.create_task(exporter.run())
        assert await feed.wait_after(0, 20)
        pods.names = ("a",)
        hold(root, {"a": 2})
        while not (served := feed.current()) or not served.export.profile.spec.allocations:
            assert await feed.wait_after(feed.generation, 20)
        assert served.export.profile.spec.allocations[0].cpus == "2"
        assert {source.age_milliseconds for source in served.export.sources if source.name != "pods"} <= {
            0,
            None,
        }
        task.cancel()

    run(follow)


def test_an_exporter_that_cannot_read_says_why_and_goes_on(root: Path) -> None:
    async def follow() -> None:
        (root / "cpu_manager_state").write_bytes(b"{")
        clock, lines = HostClock(), list[str]()
        settings = ExportSettings(node_name="n1", kubelet_root=root, pod_resources=None)
        feed = ExportFeed(clock)
        exporter = Exporter(settings, NodeReader(settings, clock, None, FakePods()), feed, poll_period_s=1000)
        has_failed = asyncio.Event()

        def record(line: str) -> None:
            lines.append(line)
            has_failed.set()

        exporter.log = record
        task = asyncio.create_task(exporter.run())
        await has_failed.wait()
        assert "cpu_manager_state" in feed.error
        assert feed.current() is None
        hold(root, {})
        assert await feed.wait_after(0, 20)
        assert not feed.error
        task.cancel()

    run(follow)


@pytest.mark.parametrize(("release", "is_read"), [("1.37", False), ("1.36", True)])
def test_a_wrong_checksum_of_data_stops_the_export_of_a_kubelet_that_reads_it(
    root: Path, release: str, *, is_read: bool
) -> None:
    hold(root, {"u1": 2})
    change_members(root / "cpu_manager_state", dataChecksum=1)
    settings = ExportSettings(
        node_name="n1",
        kubelet_root=root,
        pod_resources=root / "pod-resources" / "kubelet.sock",
        kubernetes_version=release,
    )
    exporter = NodeReader(settings, FakeClock(), None, FakePods("u1"))
    if is_read:
        assert held(read(exporter)) == {"default/u1": "2"}
    else:
        with pytest.raises(InputError, match="could not load v4 checkpoint: checkpoint is corrupted"):
            read(exporter)
