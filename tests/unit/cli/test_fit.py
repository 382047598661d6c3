"""The command `nodewright fit`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.example_cluster import example_cluster

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, UNSCHEDULABLE, USAGE, YES

FOLDER = Path(__file__).parents[3] / "examples" / "fit"
KUBELET = ["--kubelet-config", str(FOLDER / "single-numa-node.yaml")]
TRAP = ["--node", "p5.48xlarge", *KUBELET, "--pods", str(FOLDER / "pods.yaml")]
FOUR = ["-f", str(FOLDER / "four-gpus.yaml")]
EIGHT_NUMA = ["--shape", "2x4x16x2", "--memory", "2Ti", "--device", "nvidia.com/gpu=8@numa"]
CLUSTER = ["--nodes", str(FOLDER / "cluster.yaml"), *KUBELET]


def report(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = YES) -> Any:
    assert run(["fit", *arguments, "-o", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_node_that_small_pods_hold_open_strands_what_a_large_one_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (group,) = report(capsys, *FOUR, *TRAP, code=NO)["groups"]
    (node,) = group["now"]
    (pod,) = node["pods"]
    assert (pod["copiesNow"], pod["copiesByAmounts"], pod["copiesEmpty"]) == (0, 1, 2)
    assert pod["stranded"] == {"cpu": 88_000, "memory": 900 << 30, "nvidia.com/gpu": 4}
    assert [(move["frees"], [each["name"] for each in move["pods"]]) for move in node["toMove"]] == [
        ("NUMA node 1", ["test-h100-1-b"]),
        ("room for ci/test-h100-4", ["test-h100-1-b"]),
    ]
    assert all(move["isSmallest"] for move in node["toMove"])
    assert [numa["isHeldOpen"] for numa in node["numaNodes"]] == [True, True]
    assert group["bestPolicy"] == "best-effort"


def test_what_fits_beside_the_pods_of_a_node_is_admitted_and_what_is_stranded_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["admit", *FOUR, *TRAP]) == NO
    capsys.readouterr()
    assert run(["admit", *FOUR, "--node", "p5.48xlarge", *KUBELET]) == YES


def test_equal_nodes_are_one_group_with_an_answer_each(capsys: pytest.CaptureFixture[str]) -> None:
    (group,) = report(capsys, *FOUR, *CLUSTER)["groups"]
    assert group["nodes"] == ["h100-1", "h100-2", "h100-3", "h100-4"]
    assert [node["pods"][0]["copiesNow"] for node in group["now"]] == [0, 1, 0, 2]
    assert run(["fit", *CLUSTER]) == YES
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "4 equal nodes: h100-1, h100-2, h100-3, h100-4: topology manager policy single-numa-node"
    )
    assert [line for line in lines if line.endswith(" now")] == [f"h100-{at} now" for at in (1, 2, 3, 4)]


def test_different_nodes_are_groups_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (FOLDER / "cluster.yaml").read_text()
    path = tmp_path / "nodes.yaml"
    path.write_text(text.replace('cpu: "192"', 'cpu: "96"', 1).replace('cpu: "190"', 'cpu: "94"', 1))
    groups = report(capsys, *FOUR, "--nodes", str(path), *KUBELET)["groups"]
    assert [group["nodes"] for group in groups] == [["h100-2", "h100-3", "h100-4"], ["h100-1"]]


def test_more_devices_need_more_cpus_under_restricted(capsys: pytest.CaptureFixture[str]) -> None:
    kubelet = ["--kubelet-config", str(FOLDER / "restricted.yaml")]
    (group,) = report(capsys, *EIGHT_NUMA, *kubelet)["groups"]
    (own,) = (fit for fit in group["policies"] if fit["policy"] == group["topologyPolicy"])
    whole = {
        shape["devices"]: (shape["fewestCPUs"], shape["cpus"])
        for shape in own["shapes"]
        if shape["placement"] == "whole node"
    }
    assert whole[1] == (1, 32)
    assert whole[8] == (225, 254)
    sockets = {
        shape["devices"]: shape["cpus"] for shape in own["shapes"] if shape["placement"] == "one socket"
    }
    assert sockets == {0: 127, 1: 32, 2: 64, 3: 96, 4: 127}


def test_five_gpus_need_as_many_numa_nodes_of_cpus(capsys: pytest.CaptureFixture[str]) -> None:
    kubelet = ["--kubelet-config", str(FOLDER / "align-by-socket.yaml")]
    pods = ["-f", str(FOLDER / "five-gpus.yaml")]
    (group,) = report(capsys, *pods, *EIGHT_NUMA, *kubelet, code=NO)["groups"]
    (pod,) = group["now"][0]["pods"]
    alone = {each.get("resource"): each["now"] for each in pod["largest"]}
    assert alone["cpu"]["amounts"][0]["now"] == 160_000
    assert alone["memory"] is None
    assert alone["nvidia.com/gpu"]["amounts"][0]["now"] == 4
    counts = {fit["policy"]: fit["admittedNow"] for fit in group["policies"]}
    assert counts == {"none": 1, "best-effort": 1, "restricted": 0, "single-numa-node": None}


POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeSelector: {disk: ssd}
  containers:
    - {name: web, image: web, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: "1", memory: 2Gi}}}
"""


def test_limits_above_requests_grow_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD.replace("  nodeSelector: {disk: ssd}\n", ""))
    (group,) = report(capsys, "-f", str(path), "--node", "vm-4")["groups"]
    (pod,) = group["now"][0]["pods"]
    largest = {each.get("resource"): each["now"] for each in pod["largest"]}
    assert largest["cpu"]["amounts"][0]["now"] == 4000
    assert (pod["copiesNow"], largest[None]["factor"], largest[None]["parts"]) == (8, 4000, 500)


def test_a_pod_that_the_scheduler_does_not_bind_has_no_copies_and_strands_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD.replace("  nodeSelector: {disk: ssd}\n", "  tolerations: []\n"))
    node = tmp_path / "node.yaml"
    run(["node", "show", "--node", "vm-4", "-o", "yaml"])
    node.write_text(
        capsys.readouterr().out.replace("spec:\n", "spec:\n  taints: [{key: gpu, effect: NoSchedule}]\n", 1)
    )
    given = ("-f", str(path), "--node", str(node))
    (pod,) = report(capsys, *given, code=UNSCHEDULABLE)["groups"][0]["now"][0]["pods"]
    assert (pod["verdict"], pod["copiesNow"], pod["stranded"]) == ("unschedulable", 0, {})
    assert run(["fit", *given]) == UNSCHEDULABLE
    assert "the scheduler does not choose the node" in capsys.readouterr().out
    (pod,) = report(capsys, *given, "--kubelet-only")["groups"][0]["now"][0]["pods"]
    assert pod["copiesNow"] == 8


def test_a_given_configuration_replaces_those_of_node_profiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["node", "catalogue", "p5.48xlarge"])
    path = tmp_path / "node.yaml"
    path.write_text(capsys.readouterr().out)
    groups = report(capsys, *FOUR, "--nodes", str(path), *CLUSTER)["groups"]
    assert sorted(map(len, (group["nodes"] for group in groups))) == [1, 4]
    assert {group["topologyPolicy"] for group in groups} == {"single-numa-node"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--nodes", "x.yaml", "--node", "vm-4"], USAGE, "--nodes cannot be combined"),
        (
            [*CLUSTER, "--replicas", "--release", "1.36"],
            USAGE,
            "about one node, which --node names: --replicas, --release",
        ),
        (["--nodes", str(FOLDER / "four-gpus.yaml")], ERROR, "no nodes"),
        (["--node", "vm-4", "--resource", "example.com/fpga"], ERROR, "--resource"),
        ([*CLUSTER, "-f", str(FOLDER / "restricted.yaml")], ERROR, "no pods found"),
    ],
)
def test_bad_input_is_named(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", *arguments]) == code
    assert message in capsys.readouterr().err


def test_pods_that_the_api_server_refuses_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD.replace("requests: {cpu: 500m", "requests: {cpu: 3"))
    assert run(["fit", "-f", str(path), "--node", "vm-4"]) in (NO, ERROR)
    assert "web" in capsys.readouterr().err


def test_pods_with_claims_have_as_many_copies_as_devices_are_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    claims = FOLDER.parent / "claims"
    given = ("-f", str(claims / "cluster.yaml"), "-f", str(claims / "two-gpus.yaml"), "--node", "dgx-h100")
    (pod,) = report(capsys, *given)["groups"][0]["now"][0]["pods"]
    assert (pod["copiesNow"], pod["copiesByAmounts"]) == (1, 28)
    assert "device" in " ".join(pod["why"])


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with example_cluster(tmp_path) as (_, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_all_nodes_of_a_cluster_answer_as_each_alone(capsys: pytest.CaptureFixture[str]) -> None:
    pods = ("-f", "examples/worker-3/new-pods.yaml")
    assert run(["fit", *pods, "--node", "nodes", "-o", "json"]) in (YES, NO)
    together = {
        node["node"]: [pod["copiesNow"] for pod in node["pods"]]
        for group in json.loads(capsys.readouterr().out)["groups"]
        for node in group["now"]
    }
    assert together
    for name, counts in together.items():
        run(["fit", *pods, "--node", f"node/{name}", "-o", "json"])
        (alone,) = json.loads(capsys.readouterr().out)["groups"]
        assert [pod["copiesNow"] for pod in alone["now"][0]["pods"]] == counts


@pytest.mark.usefixtures("cluster")
def test_the_plugin_is_about_all_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit"], prog_name="kubectl nodewright") == YES
    assert "topology manager policy" in capsys.readouterr().out


@pytest.mark.usefixtures("cluster")
def test_shapes_of_all_nodes_of_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "--node", "nodes"]) == YES
    out, err = capsys.readouterr()
    assert "topology manager policy" in out
    assert "2 nodes" in err
