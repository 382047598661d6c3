"""A kubelet's root directory: its content, broken files and unreadable files; nothing is written."""

import os
from pathlib import Path

import pytest
from tests.support.pod_resource_files import resources_state_file

from nodewright.documents.formats.go_checkpoint import checksum, marshal
from nodewright.documents.formats.go_json import STRING
from nodewright.documents.profiles.kubelet_config_files import ConfigHost
from nodewright.documents.profiles.kubelet_root import KubeletRoot, RootReadOptions, read_kubelet_root
from nodewright.documents.profiles.state_files.cpu_manager_state import cpu_state_file
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    PodDevicesEntry,
    device_checkpoint_bytes,
)
from nodewright.documents.profiles.state_files.memory_manager_state import memory_state_file
from nodewright.documents.profiles.state_files.pod_resource_state import (
    PodResourceInfo,
    read_resources_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import ResourceRequirements
from nodewright.model.reasons.kubelet_start import (
    FormatTried,
    StateFile,
    StateFileDamaged,
    StatePolicyDiffers,
)
from nodewright.model.reasons.reason import kubelet_fatal_error
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.release_table import release_table
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity

CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
"""
CPUS = CPUState(CPUSet.of(0, 3), {"u1": {"app": CPUSet.of(1, 2)}})
DEVICES = DeviceCheckpoint(
    (PodDevicesEntry(pod="u1", container="app", resource="gpu.example/a", devices={0: ("a-0",)}),),
    {"gpu.example/a": ("a-0", "a-1")},
)
ONE_CPU = ResourceRequirements(requests={"cpu": Quantity.parse("1")}, limits={"cpu": Quantity.parse("1")})
ALLOCATED = {"u1": PodResourceInfo({"app": ONE_CPU}, ResourceRequirements(limits=ONE_CPU.limits))}
FILES = {
    "config.yaml": CONFIG.encode(),
    "cpu_manager_state": cpu_state_file(CPUS, "static"),
    "memory_manager_state": memory_state_file(MemoryState(), "None"),
    "device-plugins/kubelet_internal_checkpoint": device_checkpoint_bytes(DEVICES),
    "allocated_pods_state": resources_state_file(ALLOCATED),
    "actuated_pods_state": resources_state_file({}),
}


def write_files(directory: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def broken(directory: Path, name: str, content: bytes) -> KubeletRoot:
    return read_kubelet_root(write_files(directory, {**FILES, name: content}))


def test_each_file_is_read_where_the_kubelet_keeps_it(tmp_path: Path) -> None:
    (write_files(tmp_path, FILES) / "pods" / "u1").mkdir(parents=True)
    root = read_kubelet_root(tmp_path)
    assert root.configuration == {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    assert root.loaded.config.cpu_manager_policy == "static"
    assert root.cpu
    assert root.cpu.verdict == Granted(CPUS)
    assert root.memory
    assert root.memory.verdict == Granted(MemoryState())
    assert root.devices
    assert root.devices.verdict == Granted(DEVICES)
    assert root.allocated
    assert root.allocated.verdict == Granted(ALLOCATED)
    assert root.actuated
    assert root.actuated.verdict == Granted({})
    assert root.pods == ("u1",)


def test_an_empty_directory_is_a_kubelet_that_has_not_started_yet(tmp_path: Path) -> None:
    root = read_kubelet_root(tmp_path)
    assert (root.config_file, root.configuration, root.pods) == (None, {}, ())
    assert (root.cpu, root.memory, root.devices, root.allocated, root.actuated) == (None,) * 5
    assert root.loaded.config.cpu_manager_policy == "none"


def test_a_configuration_elsewhere_and_its_drop_ins_count(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    elsewhere = tmp_path / "kubelet.yaml"
    elsewhere.write_text(CONFIG.replace("static", "none"))
    drop_ins = tmp_path / "kubelet.conf.d"
    drop_ins.mkdir()
    (drop_ins / "10-cpus.conf").write_text(CONFIG)
    alone = read_kubelet_root(tmp_path, RootReadOptions(config=elsewhere))
    assert alone.cpu
    assert alone.cpu.verdict == Refused(
        (
            StatePolicyDiffers(
                file=StateFile.CPU, path=f"{tmp_path}/cpu_manager_state", configured="none", written="static"
            ),
        )
    )
    changed = read_kubelet_root(tmp_path, RootReadOptions(config=elsewhere, config_dir=drop_ins))
    assert changed.configuration["cpuManagerPolicy"] == "static"
    assert changed.cpu
    assert changed.cpu.verdict == Granted(CPUS)


@pytest.mark.parametrize("name", [name for name in FILES if name != "config.yaml"])
def test_a_truncated_file_is_rejected_as_in_the_kubelet(tmp_path: Path, name: str) -> None:
    torn = FILES[name][:-9]
    root = broken(tmp_path, name, torn)
    places = (root.cpu, root.memory, root.devices, root.allocated, root.actuated)
    refused = [place.verdict for place in places if place and isinstance(place.verdict, Refused)]
    assert len(refused) == 1
    assert isinstance(reason := refused[0].because[0], StateFileDamaged)
    assert reason.tried[-1].error == "unexpected end of JSON input"
    assert (tmp_path / name).read_bytes() == torn


def test_resources_that_were_edited_have_another_checksum(tmp_path: Path) -> None:
    content = FILES["allocated_pods_state"].replace(b'\\"1\\"', b'\\"2\\"')
    root = broken(tmp_path, "allocated_pods_state", content)
    assert root.allocated
    assert isinstance(root.allocated.verdict, Refused)
    (reason,) = root.allocated.verdict.because
    assert isinstance(reason, StateFileDamaged)
    assert reason.tried[0].error == "checkpoint is corrupted"
    assert reason.kubelet().message == (
        "could not restore state from checkpoint: checkpoint is corrupted, please drain this node and delete pod "
        f'resource information checkpoint file "{tmp_path}/allocated_pods_state" before restarting Kubelet'
    )
    assert "damaged or edited by hand" in reason.sentence()


def test_a_file_of_a_real_kubelet_is_read() -> None:
    # The checkpoint and checksum of allocation/state/state_checkpoint_test.go.
    data = (
        r"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\"}}}}}}"
    )
    data = data.replace(r"\"cpu\":\"1Ki\"", r"\"cpu\":\"1Ki\",\"memory\":\"1Ki\"")
    kibi = Quantity.parse("1Ki")
    held = PodResourceInfo({"container1": ResourceRequirements(requests={"cpu": kibi, "memory": kibi})})
    content = f'{{"data":"{data}","checksum":1178570812}}'.encode()
    assert read_resources_state(content, "f") == Granted({"pod1": held})


def on_1_32(directory: Path, content: bytes, *, gate: bool) -> KubeletRoot:
    """A directory of Kubernetes 1.32, where `allocated_pods_state` is a stray file."""
    gates = f"featureGates: {{InPlacePodVerticalScaling: {str(gate).lower()}}}\n"
    files = {"config.yaml": (CONFIG + gates).encode(), "allocated_pods_state": b"{"}
    write_files(directory, files | {"pod_status_manager_state": content})
    return read_kubelet_root(directory, RootReadOptions(host=ConfigHost(release=release_table("1.32"))))


def status_file(data: str) -> bytes:
    return f'{{"data":{marshal(data, STRING)},"checksum":{checksum("(string)" + data)}}}'.encode()


def test_the_status_managers_file_is_read_by_kubernetes_1_32_with_its_gate(tmp_path: Path) -> None:
    data = '{"allocationEntries":{"u1":{"app":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}}}}'
    root = on_1_32(tmp_path, status_file(data), gate=True)
    assert root.allocated
    assert root.allocated.verdict == Granted({"u1": PodResourceInfo({"app": ONE_CPU})})
    assert set(root.resource_files) == {StateFile.ALLOCATED, StateFile.STATUS_MANAGER}


def test_the_status_managers_file_is_not_read_without_its_gate(tmp_path: Path) -> None:
    root = on_1_32(tmp_path, b"{", gate=False)
    assert (root.allocated, root.actuated) == (None, None)


def test_faults_of_the_status_managers_file_are_worded_as_by_its_kubelet(tmp_path: Path) -> None:
    root = on_1_32(tmp_path, status_file("[]"), gate=True)
    assert root.allocated
    assert isinstance(root.allocated.verdict, Refused)
    (reason,) = root.allocated.verdict.because
    assert kubelet_fatal_error(reason) == (
        "could not restore state from checkpoint: failed to get pod resource allocation info: json: cannot unmarshal "
        "array into Go value of type state.PodResourceAllocationInfo, please drain this node and delete pod allocation "
        f'checkpoint file "{tmp_path}/pod_status_manager_state" before restarting Kubelet'
    )


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ('{"entries":', "unexpected end of JSON input"),
        ("[]", "json: cannot unmarshal array into Go value of type state.PodResourceCheckpointInfo"),
        ('"a"', "json: cannot unmarshal string into Go value of type state.PodResourceCheckpointInfo"),
        ("true", "json: cannot unmarshal bool into Go value of type state.PodResourceCheckpointInfo"),
        ("1", "json: cannot unmarshal number into Go value of type state.PodResourceCheckpointInfo"),
        (
            '{"entries":{"u":{"ContainerResources":{"c":{"limits":{"cpu":"much"}}}}}}',
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_faults_inside_the_data_string_are_reported(data: str, error: str) -> None:
    content = f'{{"data":{marshal(data, STRING)},"checksum":{checksum("(string)" + data)}}}'.encode()
    tried = FormatTried(version=1, error=f"failed to get pod resource information: {error}")
    refused = Refused((StateFileDamaged(file=StateFile.ALLOCATED, path="f", tried=(tried,)),))
    assert read_resources_state(content, "f") == refused


def test_all_unreadable_files_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        read_kubelet_root(tmp_path / "nowhere")
    (tmp_path / "cpu_manager_state").mkdir()
    (tmp_path / "pods").write_text("")
    (tmp_path / "config.yaml").write_text("kind: KubeletConfiguration")
    with pytest.raises(InputError) as raised:
        read_kubelet_root(tmp_path)
    text = str(raised.value)
    assert "cpu_manager_state: cannot be read: Is a directory" in text
    assert "pods: cannot be read: Not a directory" in text
    assert "Object 'apiVersion' is missing" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_without_permission_is_a_clear_error(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    (tmp_path / "memory_manager_state").chmod(0)
    with pytest.raises(
        InputError, match=r"Permission denied \(usually only root can read the kubelet's files\)"
    ):
        read_kubelet_root(tmp_path)
