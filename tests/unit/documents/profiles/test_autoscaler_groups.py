"""The nodes by which groups of the cluster autoscaler can grow."""

from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, YES
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.model.errors import InputError

EXAMPLE = "examples/other-systems/machine-deployments.yaml"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
MAX_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"


def group(tmp_path: Path, annotations: dict[str, Any], replicas: int = 0) -> Any:
    import yaml

    value = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineSet",
        "metadata": {"name": "g", "namespace": "m", "annotations": annotations},
        "spec": {"replicas": replicas},
    }
    path = tmp_path / "group.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    return load_fleet(FleetFiles(nodes=(str(path),)))


def test_the_example_grows_by_what_the_autoscaler_reports() -> None:
    fleet = load_fleet(FleetFiles(nodes=(EXAMPLE,)))
    assert [node.name for node in fleet.nodes] == ["gpu-planned-0", "gpu-planned-1"]
    (first, _) = fleet.node_entries
    assert (str(first.allocatable["memory"]), str(first.allocatable["nvidia.com/gpu"])) == ("512Gi", "4")
    assert (first.labels["accelerator"], first.taints[0].key, first.taints[0].effect) == (
        "a100",
        "gpu",
        "NoSchedule",
    )
    assert [warning.partition(":")[0] for warning in fleet.planned] == [
        "MachineDeployment/machines/gpu",
        "MachineDeployment/machines/general",
        "cluster-autoscaler-status",
    ]
    assert "eks-spot-9f2 can grow by 6, but nothing tells what its nodes are" in fleet.planned[2]


def test_without_a_report_a_group_grows_up_to_its_largest_size(tmp_path: Path) -> None:
    annotations = {MAX_SIZE: "3", f"{CAPACITY}cpu": "8", f"{CAPACITY}memory": "32Gi"}
    fleet = group(tmp_path, annotations, replicas=1)
    assert [node.name for node in fleet.nodes] == ["g-planned-0", "g-planned-1"]
    assert str(fleet.node_entries[0].allocatable["pods"]) == "110"


@pytest.mark.parametrize(
    ("annotations", "path"),
    [
        ({f"{CAPACITY}cpu": "many"}, f"metadata.annotations[{CAPACITY}cpu]"),
        ({f"{CAPACITY}cpu": "1", f"{CAPACITY}taints": "a=b:Foo"}, f"metadata.annotations[{CAPACITY}taints]"),
        ({f"{CAPACITY}taints": "gpu"}, f"metadata.annotations[{CAPACITY}taints]"),
        ({MAX_SIZE: "-1"}, f"metadata.annotations[{MAX_SIZE}]"),
        ({MAX_SIZE: "9" * 5000}, f"metadata.annotations[{MAX_SIZE}]"),
    ],
)
def test_a_faulty_annotation_is_reported_with_its_path(
    tmp_path: Path, annotations: dict[str, str], path: str
) -> None:
    with pytest.raises(InputError) as error:
        group(tmp_path, {MAX_SIZE: "3", f"{CAPACITY}cpu": "8", f"{CAPACITY}memory": "32Gi", **annotations})
    assert error.value.faults[0].path == path


def test_a_report_that_is_no_yaml_of_the_autoscaler_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "status.yaml"
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cluster-autoscaler-status}\ndata: {status: '[1]'}\n"
    path.write_text(text, encoding="utf-8")
    assert run(["fit", "--nodes", str(path)]) == ERROR
    assert "data[status]" in capsys.readouterr().err


def test_planned_nodes_are_places_for_the_pods_of_a_drained_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        """
apiVersion: v1
kind: Node
metadata: {name: old}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "110"}, allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]}
spec:
  nodeName: old
  tolerations: [{operator: Exists}]
  containers: [{name: web, image: nginx, resources: {requests: {cpu: "2"}}}]
""",
        encoding="utf-8",
    )
    assert run(["drain", "-f", str(path), "-f", EXAMPLE, "node/old"]) == YES
    assert "gpu-planned-" in capsys.readouterr().out


def test_a_group_grows_by_a_thousand_nodes_at_most_and_says_so(tmp_path: Path) -> None:
    fleet = group(tmp_path, {MAX_SIZE: "5000", f"{CAPACITY}cpu": "8", f"{CAPACITY}memory": "32Gi"})
    assert len(fleet.node_entries) == 1000
    assert "1000 nodes of the " in fleet.planned[0]


TAINT = "taints: [{key: a, effect: Foo}]"
AMOUNTS = "{cpu: 4, memory: 8Gi, pods: 10}"
NODES_WITH_TAINTS = [
    (
        (
            f"{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: c}}, spec: {{{TAINT}}}, "
            f"status: {{capacity: {AMOUNTS}, allocatable: {AMOUNTS}}}}}"
        ),
        "spec.taints[0].effect",
    ),
    (
        (
            "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: c}, "
            f"spec: {{template: {{spec: {{{TAINT}}}}}}}}}"
        ),
        "spec.template.spec.taints[0].effect",
    ),
    (
        (
            "{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, metadata: {name: c}, "
            f"spec: {{template: {{spec: {{{TAINT}}}}}}}}}"
        ),
        "spec.template.spec.taints[0].effect",
    ),
    (
        (
            f"{{apiVersion: v1, kind: Node, metadata: {{name: c}}, spec: {{{TAINT}}}, "
            f"status: {{capacity: {AMOUNTS}, allocatable: {AMOUNTS}}}}}"
        ),
        "spec.taints[0].effect",
    ),
]


@pytest.mark.parametrize(("node", "path"), NODES_WITH_TAINTS)
def test_no_node_has_a_taint_with_an_unknown_effect(node: str, path: str, tmp_path: Path) -> None:
    (file := tmp_path / "nodes.yaml").write_text(node)
    with pytest.raises(InputError) as caught:
        load_fleet(FleetFiles(nodes=(str(file),)))
    assert [fault.path for fault in caught.value.faults] == [path]
    if "kind: Node," in node:
        with pytest.raises(InputError) as caught:
            find_profile(str(file))
        assert [fault.path for fault in caught.value.faults] == [path]
