"""`nodewright node capture` of running nodes: from the kubelet's directory, and from the cluster alone."""

import json
import shutil
from pathlib import Path

import pytest
from tests.support.state_files import change_members, rewrite_state_files

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, USAGE, YES
from nodewright.documents.profiles.node_profiles import profile_from_bytes
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.node_profile import NodePart, NodeProfile
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.objects import container, pod
from tools.source import ROOT

Captured = pytest.CaptureFixture[str]

EXAMPLE = ROOT / "examples" / "worker-3"
MACHINE = "2s-2n-8c-smt2-adjacent"
OF_CLUSTER = ("--configz", f"{EXAMPLE}/configz.json", "--pods", f"{EXAMPLE}/pods.json")
TOPOLOGY, NODE = ("--nrt", f"{EXAMPLE}/topology.yaml"), ("--node-object", f"{EXAMPLE}/node.json")
ROOT_OF_KUBELET = ("--kubelet-root", f"{EXAMPLE}/kubelet", "--catalogue", MACHINE)


def captured(capsys: Captured, *arguments: str) -> tuple[NodeProfile, str]:
    assert run(["node", "capture", *arguments]) == YES
    printed = capsys.readouterr()
    return profile_from_bytes(printed.out.encode(), "stdout"), printed.err


def test_a_node_without_cpus_is_captured_without_a_comparison_of_its_allocatable(
    tmp_path: Path, capsys: Captured
) -> None:
    # Its static policy does not start, so there is no allocatable to compare with.
    node = json.loads((EXAMPLE / "node.json").read_bytes())
    del node["status"]["capacity"]["cpu"]
    (tmp_path / "node.json").write_text(json.dumps(node))
    _, messages = captured(capsys, *OF_CLUSTER, "--node-object", str(tmp_path / "node.json"))
    assert "the kubelet sees no CPU; its static CPU policy does not start" in messages


def parts(profile: NodeProfile) -> list[str]:
    return [unknown_node_part.part for unknown_node_part in profile.spec.not_judged]


def held(profile: NodeProfile) -> dict[str, tuple[str | None, int]]:
    """The CPUs of each pod, and the NUMA node of its memory."""
    return {
        allocation.pod: (allocation.cpus, allocation.memory[0].numa_nodes[0])
        for allocation in profile.spec.allocations or ()
    }


def test_the_kubelets_directory_has_the_actual_allocations(capsys: Captured) -> None:
    pods = ("--pods", f"{EXAMPLE}/pods.json", "--node-name", "worker-3")
    profile, said = captured(capsys, *ROOT_OF_KUBELET, *pods)
    assert profile.metadata.name == "worker-3"
    assert held(profile) == {"telco/forwarder-0": ("2-5", 0), "ml/trainer-x7k2p": ("6-13", 0)}
    assert parts(profile) == [NodePart.DEVICES]
    assert "left out, because they have terminated: jobs/report-28991" in said
    assert Node.from_profile(profile).warnings == ()


def test_without_pods_there_are_stand_ins(capsys: Captured) -> None:
    profile, said = captured(capsys, *ROOT_OF_KUBELET)
    assert sorted(cpus or "" for cpus, _ in held(profile).values()) == ["2-5", "6-13"]
    assert {pod.metadata.namespace for pod in profile.spec.pods} == {"unknown"}
    assert parts(profile) == [NodePart.DEVICES, NodePart.PODS]
    assert "no given pod has these uids" in said


def test_cluster_objects_give_what_the_topology_object_has(capsys: Captured) -> None:
    profile, _ = captured(capsys, *OF_CLUSTER, *TOPOLOGY, *NODE)
    assert held(profile) == {"telco/forwarder-0": ("2-5", 0), "ml/trainer-x7k2p": ("6-13", 0)}
    assert parts(profile) == [NodePart.CPU_LAYOUT]
    assert profile.spec.kubernetes_version == "v1.36.2"


def test_with_the_machine_nothing_is_open(capsys: Captured) -> None:
    profile, said = captured(capsys, *OF_CLUSTER, *TOPOLOGY, *NODE, "--catalogue", MACHINE)
    assert parts(profile) == []
    own = pod(container("app", "4/1Gi", "4/1Gi"), name="own", uid="own")
    assert Node.from_profile(profile).admit(own).decision is Decision.ADMITTED
    assert said.splitlines()[0] == "left out: 1 pod not on worker-3"


def test_without_a_topology_object_only_amounts_are_known(capsys: Captured) -> None:
    profile, _ = captured(capsys, *OF_CLUSTER, *NODE)
    assert parts(profile) == [
        NodePart.CPU_LAYOUT,
        NodePart.NUMA_NODES,
        NodePart.CPUS,
        NodePart.MEMORY,
        NodePart.DEVICES,
    ]
    node = Node.from_profile(profile)
    shared = pod(container("app", "1/1Gi"), name="shared", uid="shared")
    own = pod(container("app", "4/1Gi", "4/1Gi"), name="own", uid="own")
    assert node.admit(shared).decision is Decision.ADMITTED
    assert node.admit(own).decision is Decision.UNDECIDED


def test_without_a_configuration_the_node_object_gives_the_reservation(capsys: Captured) -> None:
    profile, said = captured(capsys, "--pods", f"{EXAMPLE}/pods.json", *TOPOLOGY, *NODE)
    assert parts(profile) == [NodePart.CONFIGURATION, NodePart.CPU_LAYOUT]
    configured = profile.spec.kubelet_configuration
    assert (configured["cpuManagerPolicy"], configured["memoryManagerPolicy"]) == ("static", "Static")
    assert "with systemReserved: cpu 2, memory 2Gi" in said
    node = json.loads(Path(NODE[1]).read_text())
    allocatable = Node.from_profile(profile).allocatable
    assert {name: str(allocatable[name]) for name in ("cpu", "memory", "pods")} == {
        name: node["status"]["allocatable"][name] for name in ("cpu", "memory", "pods")
    }


def test_a_node_object_alone_is_a_node_of_assumptions(capsys: Captured) -> None:
    profile, _ = captured(capsys, *NODE)
    assert parts(profile)[:3] == [NodePart.CONFIGURATION, NodePart.CPU_LAYOUT, NodePart.NUMA_NODES]
    assert NodePart.CPUS in parts(profile)
    profile, _ = captured(capsys, *TOPOLOGY)
    assert (profile.metadata.name, profile.spec.machine_info.num_cores) == ("worker-3", 32)


def test_a_version_that_is_no_release_is_not_copied(tmp_path: Path, capsys: Captured) -> None:
    node = json.loads(Path(NODE[1]).read_text())
    node["status"]["nodeInfo"]["kubeletVersion"] = "fargate"
    (tmp_path / "node.json").write_text(json.dumps(node))
    profile, messages = captured(capsys, "--node-object", str(tmp_path / "node.json"))
    assert "kubeletVersion: fargate is no Kubernetes release; 1.37 is assumed" in messages
    assert profile.spec.kubernetes_version == "1.37"


def test_differences_between_the_sources_are_reported(tmp_path: Path, capsys: Captured) -> None:
    other = tmp_path / "kubelet.yaml"
    text = (EXAMPLE / "kubelet" / "config.yaml").read_text().replace("single-numa-node", "restricted")
    other.write_text(text.replace("memory: 2Gi", "memory: 3Gi").replace("1124Mi", "2148Mi"))
    given = ("--kubelet-config", str(other), *TOPOLOGY, *NODE, "--catalogue", MACHINE)
    profile, said = captured(capsys, *given)
    assert "topologyManagerPolicy: the NodeResourceTopology object reports single-numa-node" in said
    assert "allocatable of memory: the Node object reports" in said
    # Admission compares with the Node object until the kubelet starts with another configuration.
    reported = json.loads(Path(NODE[1]).read_text())["status"]["allocatable"]["memory"]
    assert {name: str(amount) for name, amount in profile.spec.allocatable.items()} == {"memory": reported}
    assert str(Node.from_profile(profile).allocatable["memory"]) == reported
    changed, _ = node_parts(profile, kubelet_config=str(other))
    assert str(changed.resources.allocatable["memory"]) != reported


def test_pods_that_do_not_explain_what_is_in_use_leave_places_open(tmp_path: Path, capsys: Captured) -> None:
    pods = json.loads((EXAMPLE / "pods.json").read_text())
    pods["items"] = [each for each in pods["items"] if each["metadata"]["name"] != "forwarder-0"]
    fewer = tmp_path / "pods.json"
    fewer.write_text(json.dumps(pods))
    profile, said = captured(capsys, "--configz", OF_CLUSTER[1], "--pods", str(fewer), *TOPOLOGY, *NODE)
    assert profile.spec.allocations is None
    assert parts(profile) == [NodePart.CPU_LAYOUT, NodePart.CPUS, NodePart.MEMORY, NodePart.DEVICES]
    assert (
        "the pods do not account for the resources in use that the NodeResourceTopology object reports"
        in said
    )


def test_state_files_beside_a_topology_object_leave_cpus_open(capsys: Captured) -> None:
    profile, _ = captured(capsys, *ROOT_OF_KUBELET[:2], "--pods", OF_CLUSTER[3], *TOPOLOGY)
    assert parts(profile) == [NodePart.CPU_LAYOUT, NodePart.CPUS, NodePart.DEVICES]


def test_the_configuration_of_a_directory_may_come_from_configz(tmp_path: Path, capsys: Captured) -> None:
    shutil.copytree(EXAMPLE / "kubelet", tmp_path / "kubelet")
    (tmp_path / "kubelet" / "config.yaml").unlink()
    given = ("--kubelet-root", f"{tmp_path}/kubelet", "--catalogue", MACHINE)
    profile, _ = captured(capsys, *given, "--configz", OF_CLUSTER[1], *NODE)
    assert len(held(profile)) == 2
    assert profile.spec.extended_resources == {}
    assert run(["node", "capture", *given]) == ERROR
    assert "written under the policy static, the kubelet is configured to none" in capsys.readouterr().err


def test_a_broken_state_file_is_reported_with_the_kubelets_text_and_kept(
    tmp_path: Path, capsys: Captured
) -> None:
    shutil.copytree(EXAMPLE / "kubelet", tmp_path / "kubelet")
    file = tmp_path / "kubelet" / "cpu_manager_state"
    file.write_text(edited := file.read_text().replace("6-13", "6-15"))
    assert run(["node", "capture", "--kubelet-root", f"{tmp_path}/kubelet", "--catalogue", MACHINE]) == ERROR
    err = capsys.readouterr().err
    assert "damaged, edited by hand" in err
    assert "please drain this node and delete the CPU manager checkpoint file" in err
    assert file.read_text() == edited


def test_a_machine_that_is_not_the_nodes_is_refused(capsys: Captured) -> None:
    given = ("--kubelet-root", f"{EXAMPLE}/kubelet", "--catalogue", "vm-4")
    assert run(["node", "capture", *given]) == ERROR
    assert "the machine has no CPU 4-5" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--catalogue", "vm-4", "--sysfs", str(EXAMPLE)),
        ("--configz", OF_CLUSTER[1], "--kubelet-config", f"{EXAMPLE}/kubelet/config.yaml"),
    ],
)
def test_sources_that_exclude_one_another_are_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert run(["node", "capture", *arguments]) == USAGE


def test_the_examples_profile_is_what_capture_prints(capsys: Captured) -> None:
    profile, _ = captured(capsys, *OF_CLUSTER, *TOPOLOGY, *NODE)
    assert profile_from_bytes((EXAMPLE / "from-the-cluster.yaml").read_bytes(), "example") == profile


def test_static_pods_are_recognised_by_their_manifests(capsys: Captured) -> None:
    static = ("--static-pods", f"{EXAMPLE}/manifests", "--node-name", "worker-3")
    profile, _ = captured(capsys, *ROOT_OF_KUBELET, *static)
    names = [pod.full_name for pod in profile.spec.pods]
    assert "kube-system/haproxy-worker-3" in names
    assert len(names) == 4


def test_timestamps_of_the_cluster_are_kept(capsys: Captured) -> None:
    for form in ("yaml", "json"):
        profile, _ = captured(capsys, *OF_CLUSTER, *NODE, "-o", form)
        assert {str(pod.metadata.creation_timestamp)[:7] for pod in profile.spec.pods} == {"2026-03"}


def test_a_directory_of_1_37_is_captured_by_data_and_refused_where_that_is_damaged(
    tmp_path: Path, capsys: Captured
) -> None:
    root = Path(shutil.copytree(EXAMPLE / "kubelet", tmp_path / "kubelet"))
    rewrite_state_files(root, "1.37")
    change_members(root / "cpu_manager_state", entries={}, checksum=1)
    capture = ["node", "capture", "--kubelet-root", str(root), "--catalogue", MACHINE]
    assert run(capture) == YES
    assert "cpus: 6-13" in capsys.readouterr().out
    change_members(root / "cpu_manager_state", dataChecksum=1)
    assert run(capture) == ERROR
    err = capsys.readouterr().err
    assert "could not load v4 checkpoint: checkpoint is corrupted" in err
    assert "the dataChecksum is 1" in err
