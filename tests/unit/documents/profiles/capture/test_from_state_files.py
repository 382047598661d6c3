"""Allocations in state files: of given pods, of unknown pods, and with broken files."""

import json
from pathlib import Path

import pytest

from nodewright.documents.profiles.capture.from_state_files import (
    BrokenStateError,
    CapturedAllocations,
    allocations_from_state_files,
)
from nodewright.documents.profiles.capture.node_pods import NodePods
from nodewright.documents.profiles.capture.warnings import (
    ContainersStale,
    DeviceCheckpointCorrupt,
    DeviceEntriesUnreadable,
    PodsRemoved,
    PodsUndescribed,
)
from nodewright.documents.profiles.kubelet_config_files import ConfigHost
from nodewright.documents.profiles.kubelet_root import RootReadOptions, read_kubelet_root
from nodewright.documents.profiles.state_files.cpu_manager_state import cpu_state_file
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    PodDevicesEntry,
    device_checkpoint_bytes,
)
from nodewright.documents.profiles.state_files.memory_manager_state import memory_state_file
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.kubernetes.node_profile import ContainerAllocation, Device, MemoryBlock, NodePart
from nodewright.model.reasons.kubelet_start import StateFile, StateFileDamaged
from nodewright.model.reasons.reason import kubelet_start_error
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.testing.objects import container, pod

CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
memoryManagerPolicy: Static
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
featureGates: {PodLevelResourceManagers: true, PodLevelResources: true}
topologyManagerPolicy: restricted
"""
BLOCKS = (Block((0,), "memory", 512),)
CPUS = CPUState(
    CPUSet.of(0), {"u1": {"app": CPUSet.of(1, 2)}, "u2": {"main": CPUSet.of(3)}}, {"u3": CPUSet.of(4, 5)}
)
MEMORY = MemoryState(
    {0: NUMAMemory(2, NUMASet.of(0), {"memory": MemoryTable(4096, 0, 4096, 1024, 3072)})},
    {"u1": {"app": BLOCKS}},
    {"u3": BLOCKS},
)


def entry(uid: str, name: str, devices: dict[int, tuple[str, ...]], response: bytes = b"") -> PodDevicesEntry:
    return PodDevicesEntry(pod=uid, container=name, resource="a.b/gpu", devices=devices, response=response)


DEVICES = DeviceCheckpoint(
    (entry("u1", "app", {0: ("g0", "g1"), 1: ("g1",)}), entry("u2", "main", {-1: ("g9",)})),
    {"a.b/gpu": ("g0", "g1", "g2"), "a.b/nic": ("n0",)},
)
ONE = pod(container("app", "2/1Gi", "2/1Gi"), name="one", uid="u1")


def captured(
    directory: Path,
    *pods: object,
    devices: DeviceCheckpoint = DEVICES,
    is_complete: bool = False,
    **files: bytes,
) -> CapturedAllocations:
    contents = {
        "config.yaml": CONFIG.encode(),
        "cpu_manager_state": cpu_state_file(CPUS, "static", pod_level=True),
        "memory_manager_state": memory_state_file(MEMORY, "Static", pod_level=True),
        "device-plugins/kubelet_internal_checkpoint": device_checkpoint_bytes(devices),
        **files,
    }
    (directory / "device-plugins").mkdir()
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    ended = frozenset({"u3"})
    known = NodePods(node="n", pods=pods, ended=ended, is_complete=is_complete)  # type: ignore[arg-type] # pods of tables
    return allocations_from_state_files(read_kubelet_root(directory), known)


def test_containers_hold_cpus_memory_and_devices_of_all_files(tmp_path: Path) -> None:
    captured_allocations = captured(tmp_path, ONE)
    assert captured_allocations.allocations[0] == ContainerAllocation(
        pod="default/one",
        container="app",
        cpus="1-2",
        memory=(MemoryBlock(numa_nodes=(0,), type="memory", size=512),),
        devices={"a.b/gpu": ("g0", "g1")},
    )


def test_held_devices_have_the_numa_nodes_of_the_checkpoint(tmp_path: Path) -> None:
    captured_allocations = captured(tmp_path, ONE)
    assert captured_allocations.devices == {
        "a.b/gpu": (
            Device(id="g0", numa_nodes=(0,)),
            Device(id="g1", numa_nodes=(0, 1)),
            Device(id="g2"),
            Device(id="g9", healthy=False),
        ),
        "a.b/nic": (Device(id="n0"),),
    }
    (unknown, _) = captured_allocations.not_judged
    assert (unknown.part, unknown.names) == (NodePart.DEVICES, ("a.b/gpu", "a.b/nic"))


def test_unknown_uids_get_placeholders_and_terminated_pods_do_not(
    tmp_path: Path,
) -> None:
    captured_allocations = captured(tmp_path, ONE)
    assert [pod.full_name for pod in captured_allocations.pods] == ["default/one", "unknown/u2"]
    requests = captured_allocations.pods[1].spec.containers[0].resources.requests
    assert {name: str(amount) for name, amount in requests.items()} == {"cpu": "1", "a.b/gpu": "1"}
    assert captured_allocations.warnings == (PodsUndescribed(names=("u2",)),)
    assert captured_allocations.not_judged[1].names == ("unknown/u2",)


def test_pods_that_a_complete_list_does_not_have_are_removed(tmp_path: Path) -> None:
    capture = captured(tmp_path, ONE, is_complete=True)
    assert [pod.full_name for pod in capture.pods] == ["default/one"]
    assert {allocation.pod for allocation in capture.allocations} == {"default/one"}
    assert capture.warnings == (PodsRemoved(names=("u2",)),)
    assert NodePart.PODS not in {unknown.part for unknown in capture.not_judged}


def test_a_static_pod_that_a_complete_list_does_not_have_gets_a_placeholder(tmp_path: Path) -> None:
    uid = "0123456789abcdef" * 2
    state = CPUState(default=CPUSet.parse("0-3"), assignments={uid: {"app": CPUSet.parse("4-5")}})
    file = cpu_state_file(state, "static", pod_level=True)
    capture = captured(tmp_path, ONE, is_complete=True, cpu_manager_state=file)
    assert [pod.full_name for pod in capture.pods] == ["default/one", f"unknown/{uid}"]


def test_a_pod_with_only_a_pod_level_allocation_gets_a_placeholder_too(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "cpu_manager_state").write_bytes(cpu_state_file(CPUS, "static", pod_level=True))
    captured_allocations = allocations_from_state_files(read_kubelet_root(tmp_path), NodePods(node="n"))
    assert [pod.full_name for pod in captured_allocations.pods] == ["unknown/u1", "unknown/u2", "unknown/u3"]
    assert captured_allocations.allocations[-1] == ContainerAllocation(
        pod="unknown/u3", container="", cpus="4-5"
    )


def test_allocations_of_containers_that_the_pod_does_not_have_are_left_out(tmp_path: Path) -> None:
    other = pod(container("renamed", "2/1Gi", "2/1Gi"), name="one", uid="u1")
    captured_allocations = captured(tmp_path, other)
    assert captured_allocations.warnings[1] == ContainersStale(names=("default/one, container app",))
    assert [allocation.pod for allocation in captured_allocations.allocations] == ["unknown/u2"]


def test_devices_with_an_unreadable_response_have_no_allocation(tmp_path: Path) -> None:
    lost = DeviceCheckpoint((entry("u1", "app", {0: ("g0",)}, b"\x07"),), {"a.b/gpu": ("g0",)})
    captured_allocations = captured(tmp_path, ONE, devices=lost)
    assert captured_allocations.allocations[0].devices == {}
    assert captured_allocations.warnings[0] == DeviceEntriesUnreadable(names=("u1, container app, a.b/gpu",))
    because = "responses of plugins in the checkpoint cannot be decoded; the checkpoint has the NUMA nodes only of devices that pods hold"
    assert captured_allocations.not_judged[0].because == because


def test_a_corrupt_device_checkpoint_leaves_all_devices_unknown(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "device-plugins" / "kubelet_internal_checkpoint").write_bytes(b"{")
    captured_allocations = allocations_from_state_files(read_kubelet_root(tmp_path), NodePods(node="n"))
    assert isinstance(captured_allocations.warnings[0], DeviceCheckpointCorrupt)
    assert [
        (unknown_node_part.part, unknown_node_part.names)
        for unknown_node_part in captured_allocations.not_judged
    ] == [(NodePart.DEVICES, ())]


def test_all_files_that_prevent_a_start_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BrokenStateError) as raised:
        captured(tmp_path, ONE, cpu_manager_state=b"{", allocated_pods_state=b"[")
    files = [reason.file for reason in raised.value.reasons if isinstance(reason, StateFileDamaged)]
    assert files == [StateFile.CPU, StateFile.ALLOCATED]


@pytest.mark.parametrize("release", ["1.37", "1.36"])
def test_each_release_captures_its_part_of_a_file_of_1_37(tmp_path: Path, release: str) -> None:
    held = {"u1": {"app": CPUSet.of(1, 2)}}
    data = json.loads(
        cpu_state_file(CPUState(CPUSet.of(0), held, {"u3": CPUSet.of(4)}), "static", pod_level=True)
    )
    moved = json.loads(cpu_state_file(CPUState(CPUSet.of(0), {"u1": {"app": CPUSet.of(6, 7)}}), "static"))
    file = {**moved, "data": data["data"], "dataChecksum": data["dataChecksum"]}
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "cpu_manager_state").write_text(json.dumps(file))
    options = RootReadOptions(host=ConfigHost(release=RELEASE_TABLES[release]))
    capture = allocations_from_state_files(read_kubelet_root(tmp_path, options), NodePods(node="n"))
    found = {(each.pod, each.container): each.cpus for each in capture.allocations}
    if release == "1.37":
        assert found == {("unknown/u1", "app"): "1-2", ("unknown/u3", ""): "4"}
    else:
        assert found == {("unknown/u1", "app"): "6-7"}


def test_a_wrong_checksum_of_data_is_a_file_with_which_1_37_does_not_start(tmp_path: Path) -> None:
    for name, content in (
        ("cpu_manager_state", cpu_state_file(CPUS, "static")),
        ("memory_manager_state", memory_state_file(MEMORY, "Static")),
    ):
        (tmp_path / name).write_text(json.dumps({**json.loads(content), "dataChecksum": 1}))
    (tmp_path / "config.yaml").write_text(CONFIG)
    with pytest.raises(BrokenStateError) as broken:
        allocations_from_state_files(read_kubelet_root(tmp_path), NodePods(node="n"))
    assert [kubelet_start_error(reason).split(", please")[0] for reason in broken.value.reasons] == [
        f"could not restore state from checkpoint: could not load {version} checkpoint: checkpoint is corrupted"
        for version in ("v4", "v3")
    ]
