"""Nodes described in a few words: shape, memory and devices, or their Node object."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES
from nodewright.documents.profiles.machine_shapes import (
    chosen_machine,
    default_shape,
    parse_shape_rules,
    resized,
    shape_machine,
    shape_profile,
    with_devices,
    with_memory,
    with_system_core,
)
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodePart

GIB = 1 << 30

CHOICES = """
    rules 2x1x16x2                          cpus 64  labels -          ->  2x1x16x2
    rules 2x1x16x2                          cpus 32  labels -          ->  1x1x16x2*
    rules 64=1x4x8x2,vm-4                   cpus 64  labels -          ->  1x4x8x2
    rules 64=1x4x8x2,vm-4                   cpus 4   labels -          ->  vm-4
    rules label:type=big:2x2x8x2            cpus 64  labels type=big   ->  2x2x8x2
    rules label:type=big:2x2x8x2            cpus 64  labels type=small ->  2x1x16x2*
    rules label:type                        cpus 4   labels type=vm-4  ->  vm-4
    rules label:type                        cpus 4   labels -          ->  1x1x2x2*
"""


@pytest.mark.parametrize("line", CHOICES.strip().splitlines())
def test_the_first_matching_rule_determines_the_machine_otherwise_one_of_its_size_is_assumed(
    line: str,
) -> None:
    _, rules, _, cpus, _, labels, _, wanted = line.split()
    known = dict([labels.split("=")]) if labels != "-" else {}
    chosen = chosen_machine(parse_shape_rules([rules]), known, int(cpus))
    assert not isinstance(chosen, Fault)
    assert chosen.name + "*" * chosen.is_assumed == wanted
    assert chosen.machine.num_cores == int(cpus)


def test_every_size_has_a_usual_shape_of_that_size() -> None:
    assert all(shape_machine(default_shape(cpus)).num_cores == cpus for cpus in range(1, 300))


def test_all_invalid_rules_are_reported_together() -> None:
    with pytest.raises(InputError) as exception_info:
        parse_shape_rules(["vm-5", "64=vm-4", "label:type=x:nothing"])
    rules = [fault.rule for fault in exception_info.value.faults]
    assert rules[0].startswith(
        "'vm-5' is neither a name of `nodewright node catalogue` nor SOCKETSxNUMAxCORESxTHREADS"
    )
    assert rules[1] == "vm-4 has 4 CPUs"
    assert rules[2].startswith("'nothing' is neither a name")


def test_a_label_that_names_what_does_not_fit_the_node_is_a_fault() -> None:
    strange = chosen_machine(parse_shape_rules(["label:type"]), {"type": "m5.tiny"}, 4)
    large = chosen_machine(parse_shape_rules(["label:type=m5:vm-4"]), {"type": "m5"}, 8)
    assert isinstance(strange, Fault)
    assert str(strange) == (
        'metadata.labels[type]: Invalid value: "m5.tiny": --shapes label:type: no such shape exists'
    )
    assert isinstance(large, Fault)
    assert "vm-4 has 4 CPUs" in large.rule


def test_memory_and_huge_pages_are_distributed_as_in_the_shape() -> None:
    machine = resized(shape_machine("2x1x4x1"), 10 * GIB + 5000, {2048: 3})
    assert [node.memory for node in machine.topology] == [5 * GIB + 4096 + 904, 5 * GIB]
    assert sum(node.memory for node in machine.topology) == machine.memory_capacity
    assert [node.hugepages[0].num_pages for node in machine.topology] == [2, 1]


def test_resources_for_the_system_are_added_on_the_first_numa_node() -> None:
    machine, cpus = with_system_core(with_memory(shape_machine("2x1x2x2"), GIB))
    assert cpus == (8, 9)
    assert [len(node.cores) for node in machine.topology] == [3, 2]
    assert (machine.num_cores, machine.num_physical_cores) == (10, 3)
    assert machine.topology[0].memory == 2 * GIB
    assert machine.memory_capacity == 3 * GIB


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


def test_blanks_around_a_shape_are_ignored() -> None:
    assert shape_profile(" vm-4\n") == shape_profile("vm-4")
    assert shape_profile("\r1x1x4x2") == shape_profile("1x1x4x2")


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
    assert "does not offer it" not in capsys.readouterr().out


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
