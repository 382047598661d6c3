"""Nodes described in a few words: shape, memory and devices, or their Node object."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES
from nodewright.documents.profiles.machine_shapes import shape_profile, with_devices
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodePart

NODE = """apiVersion: v1
kind: Node
metadata: {name: ip-10-0-0-1, labels: {zone: a}}
spec: {taints: [{key: gpu, effect: NoSchedule}]}
status:
  capacity: {cpu: "96", memory: 400Gi, pods: "58", ephemeral-storage: 100Gi, nvidia.com/gpu: "8"}
  allocatable: {cpu: 95690m, memory: 395Gi, pods: "58", ephemeral-storage: 90Gi, nvidia.com/gpu: "8"}
  nodeInfo: {kubeletVersion: v1.33.4-eks-1, architecture: amd64}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: gpu}
spec: {containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 2}}}], tolerations: [{operator: Exists}]}
"""


@pytest.fixture
def pod(tmp_path: Path) -> str:
    path = tmp_path / "pod.yaml"
    path.write_text(POD)
    return str(path)


def test_a_shape_is_a_node() -> None:
    machine = shape_profile("2x2x16x2", 256 << 30).spec.machine_info
    assert (machine.num_sockets, len(machine.topology), machine.num_cores) == (2, 4, 128)
    assert machine.memory_capacity == 256 << 30
    assert {node.memory for node in machine.topology} == {64 << 30}


def test_the_default_memory_is_that_of_common_servers() -> None:
    assert shape_profile("1x1x4x2").spec.machine_info.memory_capacity == 32 << 30
    named = shape_profile("xeon-8480-2s").spec.machine_info
    assert named == find_profile("xeon-8480-2s").spec.machine_info


@pytest.mark.parametrize("shape", ["2x1x32", "no-such-machine", "96=2x1x24x2", "label:a", "vm-4,vm-4"])
def test_another_shape_is_an_error(shape: str) -> None:
    with pytest.raises(InputError, match="--shape: "):
        shape_profile(shape)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("nvidia.com/gpu=3", [None, None, None]),
        ("nvidia.com/gpu=4@numa", [(0,), (0,), (1,), (1,)]),
        ("nvidia.com/gpu=2@1", [(1,), (1,)]),
    ],
)
def test_devices_are_where_they_are_said_to_be(text: str, places: list[tuple[int, ...] | None]) -> None:
    devices = with_devices(shape_profile("2x1x8x2"), [text]).spec.devices["nvidia.com/gpu"]
    assert [device.numa_nodes for device in devices] == places
    assert [device.id for device in devices] == [f"gpu-{number}" for number in range(len(places))]


def test_devices_of_a_resource_add_up() -> None:
    profile = with_devices(shape_profile("2x1x8x2"), ["x.io/nic=1@0", "x.io/nic=1@1"])
    assert [(device.id, device.numa_nodes) for device in profile.spec.devices["x.io/nic"]] == [
        ("nic-0", (0,)),
        ("nic-1", (1,)),
    ]


@pytest.mark.parametrize(
    "text", ["gpu", "cpu=1", "x.io/a=1@7", "x.io/a=99999@0", "x.io/a=-1", "x.io/a=1@numa,b"]
)
def test_other_descriptions_of_devices_are_errors(text: str) -> None:
    with pytest.raises(InputError, match="must be RESOURCE=COUNT"):
        with_devices(shape_profile("2x1x8x2"), [text])


def test_a_node_object_of_a_cluster_is_a_node(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(NODE)
    spec = find_profile(str(path)).spec
    assert spec.kubernetes_version.startswith(("1.33", "v1.33"))
    assert spec.machine_info.num_cores == 96
    assert spec.taints[0].key == "gpu"
    assert {part.part for part in spec.not_judged} >= {
        NodePart.CONFIGURATION,
        NodePart.NUMA_NODES,
        NodePart.CPU_LAYOUT,
    }


def test_commands_take_a_node_object(pod: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "node.json"
    path.write_text(NODE)
    assert run(["admit", "-f", pod, "--node", str(path)]) == NO
    shown = capsys.readouterr().out
    assert "default/gpu: undecided" in shown
    assert "not judged: resource managers (the kubelet's configuration is assumed" in shown


def test_commands_take_a_shape(pod: str, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--shape", "2x1x32x2", "--memory", "512Gi", "--device", "nvidia.com/gpu=8@numa"]
    for command in ("admit", "explain", "preempt", "cgroups"):
        assert run([command, "-f", pod, *shape]) == YES
    assert "the node has no such resource" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--shape", "vm-4", "--node", "vm-4"], ["--memory", "1Gi"], ["--memory", "many", "--shape", "vm-4"]],
)
def test_options_that_do_not_go_together_are_a_usage_error(pod: str, arguments: list[str]) -> None:
    assert run(["admit", "-f", pod, *arguments]) == USAGE


def test_a_file_that_is_no_node_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n")
    assert run(["admit", "-f", str(path), "--node", str(path)]) == ERROR
    assert "error: " in capsys.readouterr().err
