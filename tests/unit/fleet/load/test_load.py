import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.fleet import run
from nodewright.fleet.load.fleet_input import FleetFiles, FleetInput, load_fleet
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.workload import FleetPod
from nodewright.model.errors import InputError

NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{kubernetes.io/hostname: {name}, zone: a}}
status:
  allocatable: {{cpu: "8", memory: 32Gi, pods: "110", example.com/gpu-count: "2", example.com/gpu-milli: 2k}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: ml
  annotations: {{example.com/gpu-count: "1", example.com/gpu-milli: "{milli}"{more}}}
spec:
  containers:
  - name: main
    image: main
    resources: {{requests: {{cpu: 1500m, memory: 1Gi}}}}
"""


def fleet(tmp_path: Path, nodes: str, pods: str, gpu_annotation: str = "") -> FleetInput:
    (tmp_path / "nodes.yaml").write_text(nodes)
    (tmp_path / "pods.yaml").write_text(pods)
    paths = [(str(tmp_path / name),) for name in ("nodes.yaml", "pods.yaml")]
    return load_fleet(FleetFiles(nodes=paths[0], pods=paths[1], gpu_annotation=gpu_annotation))


def several(text: str, names: list[str], **more: str) -> str:
    return "---\n".join(text.format(name=name, **more) for name in names)


def test_nodes_and_pods_that_differ_only_in_name_are_parsed_once_and_keep_their_locations(
    tmp_path: Path,
) -> None:
    pods = several(POD, ["train-0", "train-1", "train-2"], milli="1000", more="")
    fleet_input = fleet(tmp_path, several(NODE, ["node-0", "node-1"]), pods)
    first, second = fleet_input.nodes
    assert first.profile is second.profile
    assert second.labels["kubernetes.io/hostname"] == "node-1"
    assert second.source.endswith("nodes.yaml:9")
    read = list(fleet_input.pods())
    assert [fleet_pod.full_name for fleet_pod in read] == ["ml/train-0", "ml/train-1", "ml/train-2"]
    assert read[0].pod is read[2].pod
    assert read[2].source.endswith("pods.yaml:25")
    assert list(fleet_input.pods()) == read


def test_annotations_become_whole_devices_and_shares_are_accounted_for(tmp_path: Path) -> None:
    pods = (
        POD.format(name="whole", milli="1000", more="")
        + "---\n"
        + POD.format(name="part", milli="460", more="")
    )
    whole, part = fleet(tmp_path, NODE.format(name="n1"), pods, "example.com/gpu-count").pods()
    requests = [fleet_pod.pod.spec.containers[0].resources.requests for fleet_pod in (whole, part)]
    assert {name: str(amount) for name, amount in requests[0].items() if "gpu" in name} == {
        "example.com/gpu-count": "1",
        "example.com/gpu-milli": "1k",
    }
    assert {name: str(amount) for name, amount in requests[1].items() if "gpu" in name} == {
        "example.com/gpu-milli": "460"
    }
    assert (whole.gpu_milli, part.gpu_milli) == (0, 460)
    many = POD.format(name="many", milli="9" * 5000, more="")
    (pod,) = fleet(tmp_path, NODE.format(name="n1"), many, "example.com/gpu-count").pods()
    assert pod.pod.spec.containers[0].resources.requests["example.com/gpu-milli"].value() == 1000


def test_an_annotation_that_is_not_a_resource_of_a_node_is_an_error(tmp_path: Path) -> None:
    fleet_input = fleet(
        tmp_path, NODE.format(name="n1"), POD.format(name="pod-1", milli="1", more=""), "example.com/tpu"
    )
    with pytest.raises(InputError, match=r"no node has this resource; .*example\.com/gpu-count"):
        fleet_input.pods()


def test_arrivals_and_run_times_come_from_annotations_and_order_the_pods(tmp_path: Path) -> None:
    late = ', nodewright.dev/arrives: 1m30s, nodewright.dev/runs: "2h"'
    pods = (
        POD.format(name="late", milli="1", more=late) + "---\n" + POD.format(name="early", milli="1", more="")
    )
    early, found = fleet(tmp_path, NODE.format(name="n1"), pods).pods()
    assert (early.name, early.arrives_s, early.runs_s) == ("early", 0, None)
    assert (found.name, found.arrives_s, found.runs_s) == ("late", 90, 7200)
    assert found.pod is not early.pod or found.pod.spec == early.pod.spec


def test_all_faults_of_nodes_and_pods_are_reported_together_with_their_lines(tmp_path: Path) -> None:
    bare = "apiVersion: v1\nkind: Node\nmetadata:\n  name: bare\nstatus:\n  capacity: {cpu: 1, memory: 1Gi}\n"
    wrong = POD.format(name="pod-1", milli="1", more=', nodewright.dev/runs: "-1s"').replace("1500m", "1GB2")
    with pytest.raises(InputError) as exception_info:
        fleet(
            tmp_path,
            bare + "---\n" + NODE.format(name="n1"),
            POD.format(name="p0", milli="1", more="") + "---\n" + wrong,
        )
    texts = [str(fault).replace(str(tmp_path), "") for fault in exception_info.value.faults]
    assert texts[0].startswith("/nodes.yaml:5:1, Node bare: status.allocatable[cpu]: Required value")
    assert any("/pods.yaml:23:28, Pod ml/pod-1: " in text and "requests[cpu]" in text for text in texts)


@pytest.mark.parametrize(
    ("nodes", "rule"),
    [
        ("", "no nodes found"),
        (several(NODE, ["n1", "n1"]), r"nodes.yaml:9: .* a node of this name exists already \(.*:1\)"),
    ],
)
def test_a_fleet_has_nodes_with_unique_names(tmp_path: Path, nodes: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        fleet(tmp_path, nodes, "")


def test_controllers_create_their_replicas_and_daemon_sets_one_pod_per_matching_node(
    tmp_path: Path,
) -> None:
    template = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: main}]}}, selector: {matchLabels: {a: b}}"
    made = (
        f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: 3, {template}}}}}\n---\n"
        f"{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: log}}, spec: {{{template}}}}}\n"
    )
    tainted = NODE.format(name="n2") + "spec: {taints: [{key: only, effect: NoSchedule}]}\n"
    pods = list(fleet(tmp_path, several(NODE, ["n1", "n3"]) + "---\n" + tainted, made).pods())
    assert [(pod.name, pod.required_node, pod.has_controller) for pod in pods] == [
        ("log-0", "n1", True),
        ("log-1", "n3", True),
        ("web-0", "", True),
        ("web-1", "", True),
        ("web-2", "", True),
    ]


def test_daemon_sets_select_labels_that_nodes_have_and_are_named_where_none_has_them(tmp_path: Path) -> None:
    pod_spec = "{nodeSelector: {kubernetes.io/os: linux}, containers: [{name: main, image: main}]}"
    daemon_set = (
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: log}, "
        f"spec: {{selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {pod_spec}}}}}}}"
    )
    unlabelled = fleet(tmp_path, NODE.format(name="n1"), daemon_set)
    assert list(unlabelled.pods()) == []
    assert [text for text in unlabelled.warnings if text.startswith("DaemonSet default/log creates no pod")]
    (tmp_path / "nodes.csv").write_text("name,cpu,memory\nn1,4,8Gi\n")
    pods = (str(tmp_path / "pods.yaml"),)
    labelled = load_fleet(FleetFiles(nodes=(str(tmp_path / "nodes.csv"),), pods=pods))
    assert [pod.required_node for pod in labelled.pods()] == ["n1"]
    assert not labelled.warnings


def test_pods_that_the_api_server_refuses_are_left_out_and_quotas_are_named(tmp_path: Path) -> None:
    pod = POD.format(name="big", milli="1", more="").replace(
        "cpu: 1500m", "cpu: 1500m, ephemeral-storage: 1Gi"
    )
    objects = (
        f"{pod}---\n{POD.format(name='small', milli='1', more='')}---\n"
        "{apiVersion: v1, kind: LimitRange, metadata: {name: r, namespace: ml}, "
        "spec: {limits: [{type: Container, max: {ephemeral-storage: 1Mi}, default: {ephemeral-storage: 1Mi}}]}}\n"
        "---\n{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ml}, spec: {hard: {pods: 0}}}\n"
    )
    loaded = fleet(tmp_path, NODE.format(name="n1"), objects)
    assert [pod.full_name for pod in loaded.pods()] == ["ml/small"]
    refused, unapplied = loaded.warnings
    assert refused.startswith("Pod ml/big is left out: the API server refuses the pod: ")
    assert unapplied.startswith("ResourceQuotas (1) are not applied")


def test_a_pod_goes_to_a_node_that_has_its_image(tmp_path: Path) -> None:
    images = "  images: [{names: [main@sha256:1, 'main:latest'], sizeBytes: 900000000}, {names: [other]}]\n"
    nodes = f"{NODE.format(name='n1')}---\n{NODE.format(name='n2')}{images}"
    loaded = fleet(tmp_path, nodes, POD.format(name="pod", milli="1", more=""))
    assert [node.images.get("main:latest") for node in loaded.nodes] == [None, 900_000_000]
    assert [record.node for record in run(loaded.nodes, loaded.pods()).pods] == [1]


def test_a_dump_of_a_cluster_holds_nodes_and_pods_where_they_run(tmp_path: Path) -> None:
    meta = {"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}]}
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    spec = {"containers": [{"name": "main", "image": "main", "newField": 1}], "nodeName": "n1"}
    items = [
        {
            "kind": "Node",
            "metadata": {"name": "n1", **meta},
            "status": {"allocatable": amounts, "images": []},
        },
        *(
            {"kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec, "status": {"phase": phase}}
            for name, phase in (("a", "Running"), ("b", "Running"), ("c", "Succeeded"))
        ),
    ]
    dump = {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", **item} for item in items]}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    fleet_input = load_fleet(FleetFiles(both=(str(tmp_path / "dump.json"),)))
    pods: list[FleetPod] = list(fleet_input.pods())
    assert [(pod.name, pod.node) for pod in pods] == [("a", "n1"), ("b", "n1")]
    assert pods[0].pod is pods[1].pod
    assert fleet_input.warnings == (
        "unknown fields of pods are ignored: spec.containers[0].newField",
        "1 pod that ended: left out",
    )


def test_what_of_pods_does_not_count_is_named(tmp_path: Path) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    statuses: list[Any] = [
        {"resize": "Deferred"},
        {"conditions": [{"type": "PodResizeInProgress", "status": "True"}]},
        {"conditions": [{"type": "PodScheduled", "status": "True"}, 1]},
        {"conditions": 1},
    ]
    stored = [
        {**pod, "metadata": {"name": f"p{index}", "uid": str(index)}, "status": status}
        for index, status in enumerate(statuses)
    ]
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {**pod["spec"], "schedulingGates": [{"name": "g"}]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    gated = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    (tmp_path / "more.yaml").write_text("---\n".join(json.dumps(each) + "\n" for each in (*stored, gated)))
    loaded = fleet(tmp_path, NODE.format(name="n1"), (tmp_path / "more.yaml").read_text())
    assert len(list(loaded.pods())) == 7
    assert loaded.warnings == (
        "2 pods with an incomplete resize: counted as specified",
        "3 pods with scheduling gates: placed as if without",
    )


@pytest.mark.parametrize(
    "text",
    [
        "metadata: []",
        "spec: []",
        "metadata: {name: pod-1, annotations: [], ownerReferences: {}}",
        "metadata: {name: pod-1, uid: x}\nspec: []",
    ],
)
def test_malformed_pods_are_faults_and_not_crashes(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"pods.yaml:\d+:\d+"):
        fleet(tmp_path, NODE.format(name="n1"), f"apiVersion: v1\nkind: Pod\n{text}\n")


def test_a_pod_with_a_resource_that_no_node_has_waits(tmp_path: Path) -> None:
    pod = POD.format(name="pod-1", milli="1", more="").replace("cpu: 1500m", "cpu: 1, example.com/tpu: 1")
    pod = pod.replace("memory: 1Gi}", "memory: 1Gi}, limits: {example.com/tpu: 1}")
    loaded = fleet(
        tmp_path, NODE.format(name="n1"), f"{pod}---\n{POD.format(name='pod-2', milli='1', more='')}"
    )
    result = run(loaded.nodes, loaded.pods())
    assert [record.outcome for record in result.pods] == [PodOutcome.WAITING, PodOutcome.RUNNING]
    (rejection,) = result.pods[0].filter_rejections
    assert (rejection.plugin, rejection.detail) == ("NodeResourcesFit", "example.com/tpu")


def bound_pod(name: str, node: str, owner: str = "") -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "of", "uid": "o", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **({"ownerReferences": [reference]} if owner else {})},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "main"}]},
    }


def test_pods_of_nodes_that_do_not_exist_are_named(tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": bound_pod("web", "gone")["spec"]}
    pinned = json.loads(json.dumps(template).replace("gone", "n0"))
    deployments = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": each},
        }
        for name, each in (("lost", template), ("pinned", pinned))
    ]
    pods = [
        bound_pod("stays", "n0"),
        bound_pod("bare", "gone"),
        bound_pod("daemon", "gone", "DaemonSet"),
        bound_pod("mirror", "gone", "Node"),
        bound_pod("replaced", "gone", "ReplicaSet"),
        *deployments,
    ]
    node, path = tmp_path / "nodes.yaml", tmp_path / "pods.json"
    node.write_text(several(NODE, ["n0", "n1"]))
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": pods}))
    both = load_fleet(FleetFiles(both=(str(node), str(path))))
    outcomes = [(pod.name, pod.node) for pod in both.pods()]
    assert outcomes == [("stays", "n0"), ("replaced", ""), ("pinned-0", "n0"), ("pinned-1", "n0")]
    assert both.warnings == (
        (
            "5 pods on nodes that do not exist, left out: they stay Pending until pod garbage collection deletes them: "
            "default/bare (gone), default/daemon (gone), default/mirror (gone), ..."
        ),
        (
            "1 pod on nodes that do not exist, placed as their controllers' replacements, once pod garbage collection "
            "deletes them: default/replaced (gone)"
        ),
    )
    assert {pod.name for shard in both.shards("zone") for pod in shard.pods()} == {
        name for name, _ in outcomes
    }
    separate = load_fleet(FleetFiles(nodes=(str(node),), pods=(str(path),)))
    assert len(list(separate.pods())) == 9
    (warning,) = separate.warnings
    assert warning.startswith(
        "6 pods on nodes that do not exist, placed as if on none: default/bare (gone), "
    )
