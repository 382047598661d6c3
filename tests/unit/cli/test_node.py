import json
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, USAGE, YES
from nodewright.documents.profiles.node_profiles import profile_from_bytes

Captured = pytest.CaptureFixture[str]


def test_capture_prints_a_profile_of_this_machine_that_reads_back(capsys: Captured) -> None:
    assert run(["node", "capture"]) == YES
    printed = capsys.readouterr()
    profile = profile_from_bytes(printed.out.encode(), "stdout")
    assert printed.out.startswith("# yaml-language-server: $schema=node-profile.json ")
    assert profile.spec.machine_info.num_cores > 0
    assert "kubelet configuration: none given" in printed.err


def test_capture_prints_the_same_in_json(capsys: Captured) -> None:
    assert run(["node", "capture", "-o", "json"]) == YES
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "NodeProfile"
    on_v1 = document["spec"]["cgroupVersion"] == 1
    assert document["spec"]["kubeletConfiguration"] == ({"failCgroupV1": False} if on_v1 else {})


def test_capture_includes_the_kubelet_configuration(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\nfoo: 1\n"
    )
    assert run(["node", "capture", "--kubelet-config", str(config)]) == YES
    printed = capsys.readouterr()
    profile = profile_from_bytes(printed.out.encode(), "stdout")
    assert profile.spec.kubelet_configuration == {"cpuManagerPolicy": "static", "foo": 1}
    assert f'{config}: unknown field "foo"' in printed.err
    assert "kubelet configuration" not in printed.err


def test_capture_refuses_another_kind_of_configuration(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text("apiVersion: v1\nkind: Pod\n")
    assert run(["node", "capture", "--kubelet-config", str(config)]) == ERROR
    assert 'no kind "Pod" is registered' in capsys.readouterr().err


def test_sources_exclude_one_another(tmp_path: Path, capsys: Captured) -> None:
    described = tmp_path / "machine.json"
    described.write_text("{}")
    arguments = ["node", "capture", "--sysfs", str(tmp_path), "--machine-info", str(described)]
    assert run(arguments) == USAGE
    assert "exclude each other" in capsys.readouterr().err


def test_a_directory_without_sysfs_is_an_error_with_its_path(tmp_path: Path, capsys: Captured) -> None:
    assert run(["node", "capture", "--sysfs", str(tmp_path)]) == ERROR
    assert f"{tmp_path}: must be a directory with a copy of /sys" in capsys.readouterr().err


def test_show_draws_without_frames_of_unicode_off_a_terminal(capsys: Captured) -> None:
    assert run(["node", "show", "--node", "vm-4"]) == YES
    drawn = capsys.readouterr().out
    assert drawn.isascii()
    assert "[0-1] [2-3]" in drawn


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_show_prints_the_profile_as_a_document(output: str, capsys: Captured) -> None:
    assert run(["node", "show", "--node", "vm-4", "-o", output]) == YES
    assert profile_from_bytes(capsys.readouterr().out.encode(), "stdout").metadata.name == "vm-4"


def test_show_warns_of_irregular_machines(capsys: Captured) -> None:
    assert run(["node", "show", "--node", "odd-numa-ids-0-8"]) == YES
    assert "warning: spec.machineInfo.topology[0].distances" in capsys.readouterr().err


def test_a_profile_that_contradicts_itself_is_refused_with_every_fault(
    tmp_path: Path, capsys: Captured
) -> None:
    profile = tmp_path / "node.yaml"
    profile.write_text(
        "apiVersion: nodewright.dev/v1alpha1\nkind: NodeProfile\nspec:\n  machineInfo:\n    num_cores: 4\n"
        "    memory_capacity: 1024\n    topology:\n"
        "    - {node_id: 0, memory: 1024, distances: [10, 20], cores: [{thread_ids: [0, 1]}, {core_id: 1, thread_ids: [1]}]}\n"
    )
    assert run(["node", "show", "--node", str(profile)]) == ERROR
    err = capsys.readouterr().err
    assert "spec.machineInfo.num_cores: Invalid value: 4" in err
    assert (
        "spec.machineInfo.topology[0].cores[1].thread_ids: Invalid value: 1: a thread belongs to one core"
        in err
    )
    assert "spec.machineInfo.topology[0].distances: Invalid value: [10, 20]" in err


def test_the_catalogue_is_a_table(capsys: Captured) -> None:
    assert run(["node", "catalogue"]) == YES
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["NAME", "CPUS", "CORES"]
    assert len(rows) == 104


@pytest.mark.parametrize("output", ["json", "yaml", "name"])
def test_the_catalogue_is_a_document(output: str, capsys: Captured) -> None:
    assert run(["node", "catalogue", "-o", output]) == YES
    assert "epyc-9654-2s-nps4" in capsys.readouterr().out


def test_an_entry_of_the_catalogue_is_a_profile_and_its_own_name(capsys: Captured) -> None:
    assert run(["node", "catalogue", "gb200", "-o", "name"]) == YES
    assert capsys.readouterr().out == "gb200\n"
    assert run(["node", "catalogue", "gb200"]) == YES
    assert (
        len(profile_from_bytes(capsys.readouterr().out.encode(), "stdout").spec.machine_info.topology) == 34
    )


def test_a_name_that_the_catalogue_lacks_is_an_error(capsys: Captured) -> None:
    assert run(["node", "catalogue", "gb200x"]) == ERROR
    assert "similar names: gb200" in capsys.readouterr().err


def test_show_lists_the_resources_of_pods(capsys: Captured) -> None:
    assert run(["node", "show", "--node", "examples/numa/split-node.yaml"]) == YES
    _, pods, shared, amounts = capsys.readouterr().out.rsplit("\n\n", 3)
    assert [line.split() for line in pods.splitlines()] == [
        ["POD", "CONTAINER", "CPUS", "NUMA"],
        ["shop/cart", "main", "1-2", "0"],
        ["shop/search", "main", "4-6", "1"],
    ]
    assert [line.split() for line in shared.splitlines()[1:]] == [["0", "0,3"], ["1", "7"]]
    assert amounts.splitlines()[1].split() == ["cpu", "7", "5", "2"]


def test_a_node_whose_kubelet_does_not_start_is_drawn_before_the_error(
    tmp_path: Path, capsys: Captured
) -> None:
    text = Path("examples/numa/split-node.yaml").read_text()
    node = tmp_path / "node.yaml"
    node.write_text(text.replace("cpuManagerPolicy: static", "cpuManagerPolicy: dynamic"))
    assert run(["node", "show", "--node", str(node)]) == ERROR
    shown = capsys.readouterr()
    assert "socket 1" in shown.out
    assert "the kubelet does not start" in shown.err
