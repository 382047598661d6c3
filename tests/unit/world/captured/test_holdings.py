"""What state files say that pods hold: of pods that are known, that are not, and of files that are broken."""

from pathlib import Path

import pytest

from nodewright.core.cpu.state import CPUState
from nodewright.core.memory.state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.profile import ContainerAllocation, Device, MemoryBlock, Part
from nodewright.model.state_reasons import StateFile, StateFileDamaged
from nodewright.testing.objects import container, pod
from nodewright.values.idset import CPUSet, NUMASet
from nodewright.world.captured.holdings import BrokenStateError, Holdings, holdings
from nodewright.world.captured.pods import NodePods
from nodewright.world.captured.remarks import (
    ContainersStale,
    DevicesForgotten,
    DevicesPassedOver,
    PodsUnexplained,
)
from nodewright.world.kubelet_root import read_kubelet_root
from nodewright.world.state.cpu import cpu_state_file
from nodewright.world.state.devices import DeviceEntry, DeviceFile, device_state_file
from nodewright.world.state.memory import memory_state_file

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


def entry(uid: str, name: str, devices: dict[int, tuple[str, ...]], response: bytes = b"") -> DeviceEntry:
    return DeviceEntry(pod=uid, container=name, resource="a.b/gpu", devices=devices, response=response)


DEVICES = DeviceFile(
    (entry("u1", "app", {0: ("g0", "g1"), 1: ("g1",)}), entry("u2", "main", {-1: ("g9",)})),
    {"a.b/gpu": ("g0", "g1", "g2"), "a.b/nic": ("n0",)},
)
ONE = pod(container("app", "2/1Gi", "2/1Gi"), name="one", uid="u1")


def captured(directory: Path, *pods: object, devices: DeviceFile = DEVICES, **files: bytes) -> Holdings:
    contents = {
        "config.yaml": CONFIG.encode(),
        "cpu_manager_state": cpu_state_file(CPUS, "static", pod_level=True),
        "memory_manager_state": memory_state_file(MEMORY, "Static", pod_level=True),
        "device-plugins/kubelet_internal_checkpoint": device_state_file(devices),
        **files,
    }
    (directory / "device-plugins").mkdir()
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    known = NodePods(node="n", pods=pods, ended=frozenset({"u3"}))  # type: ignore[arg-type] # pods of tables
    return holdings(read_kubelet_root(directory), known)


def test_containers_hold_cpus_memory_and_devices_of_all_files(tmp_path: Path) -> None:
    found = captured(tmp_path, ONE)
    assert found.allocations[0] == ContainerAllocation(
        pod="default/one",
        container="app",
        cpus="1-2",
        memory=(MemoryBlock(numa_nodes=(0,), type="memory", size=512),),
        devices={"a.b/gpu": ("g0", "g1")},
    )


def test_devices_are_where_those_who_hold_them_have_them(tmp_path: Path) -> None:
    found = captured(tmp_path, ONE)
    assert found.devices == {
        "a.b/gpu": (
            Device(id="g0", numa_nodes=(0,)),
            Device(id="g1", numa_nodes=(0, 1)),
            Device(id="g2"),
            Device(id="g9", healthy=False),
        ),
        "a.b/nic": (Device(id="n0"),),
    }
    (unknown, _) = found.not_known
    assert (unknown.part, unknown.names) == (Part.DEVICES, ("a.b/gpu", "a.b/nic"))


def test_a_uid_that_nobody_explains_has_a_stand_in_with_what_it_holds_and_ended_pods_have_none(
    tmp_path: Path,
) -> None:
    found = captured(tmp_path, ONE)
    assert [one.full_name for one in found.pods] == ["default/one", "unknown/u2"]
    asked = found.pods[1].spec.containers[0].resources.requests
    assert {name: str(amount) for name, amount in asked.items()} == {"cpu": "1", "a.b/gpu": "1"}
    assert found.remarks == (PodsUnexplained(uids=("u2",)),)
    assert found.not_known[1].names == ("unknown/u2",)


def test_a_pod_that_only_holds_something_as_a_whole_has_a_stand_in_too(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "cpu_manager_state").write_bytes(cpu_state_file(CPUS, "static", pod_level=True))
    found = holdings(read_kubelet_root(tmp_path), NodePods(node="n"))
    assert [one.full_name for one in found.pods] == ["unknown/u1", "unknown/u2", "unknown/u3"]
    assert found.allocations[-1] == ContainerAllocation(pod="unknown/u3", container="", cpus="4-5")


def test_what_containers_hold_that_a_pod_does_not_have_is_left_out(tmp_path: Path) -> None:
    other = pod(container("renamed", "2/1Gi", "2/1Gi"), name="one", uid="u1")
    found = captured(tmp_path, other)
    assert found.remarks[1] == ContainersStale(names=("default/one, container app",))
    assert [one.pod for one in found.allocations] == ["unknown/u2"]


def test_devices_with_an_answer_that_cannot_be_read_are_nobodys(tmp_path: Path) -> None:
    lost = DeviceFile((entry("u1", "app", {0: ("g0",)}, b"\x07"),), {"a.b/gpu": ("g0",)})
    found = captured(tmp_path, ONE, devices=lost)
    assert found.allocations[0].devices == {}
    assert found.remarks[0] == DevicesPassedOver(names=("u1, container app, a.b/gpu",))
    because = "answers of plugins in the checkpoint cannot be read; the checkpoint says it of devices that pods hold only"
    assert found.not_known[0].because == because


def test_a_broken_device_file_leaves_all_devices_open(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "device-plugins" / "kubelet_internal_checkpoint").write_bytes(b"{")
    found = holdings(read_kubelet_root(tmp_path), NodePods(node="n"))
    assert isinstance(found.remarks[0], DevicesForgotten)
    assert [(one.part, one.names) for one in found.not_known] == [(Part.DEVICES, ())]


def test_all_files_that_the_kubelet_would_not_start_with_are_told(tmp_path: Path) -> None:
    with pytest.raises(BrokenStateError) as raised:
        captured(tmp_path, ONE, cpu_manager_state=b"{", allocated_pods_state=b"[")
    files = [reason.file for reason in raised.value.reasons if isinstance(reason, StateFileDamaged)]
    assert files == [StateFile.CPU, StateFile.ALLOCATED]
