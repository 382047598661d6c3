"""Which pods of manifests and clusters arrive at a node, and what is noted about the others."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.manifests import workloads_from
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Taint
from nodewright.predict.admit.admission_report import MAX_PODS, ArrivingPods, arriving_pods
from nodewright.predict.node import Node

NODE = Node.open("vm-4")
CONTAINERS = "containers: [{name: a, image: x}]"


def arriving(text: str, *, node: Node = NODE, all_replicas: bool = False) -> ArrivingPods:
    loaded = workloads_from(text.encode(), "test.yaml")
    return arriving_pods(loaded.workloads, node, all_replicas=all_replicas)


def controller(kind: str, name: str, spec: str = "", pod: str = "") -> str:
    return f"""---
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}}}
spec: {{{spec} selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{{pod} {CONTAINERS}}}}}}}
"""


def cluster_pod(name: str, node: str, *, meta: str = "", status: str = "phase: Running") -> str:
    return f"""---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: uid-of-{name}, namespace: default, {meta}}}
spec: {{nodeName: {node}, {CONTAINERS}}}
status: {{{status}}}
"""


def names(arrived: ArrivingPods) -> list[str]:
    return [workload.pod.metadata.name for workload in arrived.workloads]


def test_one_pod_of_several_is_judged_and_the_answer_tells_so() -> None:
    arrived = arriving(controller("Deployment", "web", "replicas: 3,"))
    assert names(arrived) == ["web-0"]
    assert arrived.notes == ("1 of 3 pods of Deployment default/web is judged; --replicas judges all",)


def test_notes_on_many_workloads_are_one() -> None:
    text = controller("Deployment", "web", "replicas: 3,") + controller("StatefulSet", "db", "replicas: 2,")
    assert arriving(text).notes == ("2 of 5 pods of 2 workloads are judged; --replicas judges all",)


def test_all_replicas_are_judged_on_request() -> None:
    text = controller("StatefulSet", "db", "replicas: 3, ordinals: {start: 5},") + controller(
        "Deployment", "web"
    )
    arrived = arriving(text, all_replicas=True)
    assert names(arrived) == ["db-5", "db-6", "db-7", "web-0"]
    assert len({workload.pod.uid for workload in arrived.workloads}) == 4
    assert arrived.notes == ()


def test_the_number_of_replicas_is_limited() -> None:
    with pytest.raises(InputError, match=f"at most {MAX_PODS} pods are judged"):
        arriving(controller("Deployment", "web", f"replicas: {MAX_PODS + 1},"), all_replicas=True)


def test_a_daemon_set_without_a_pod_on_the_node_is_noted() -> None:
    arrived = arriving(controller("DaemonSet", "gpu", pod="nodeSelector: {gpu: yes-please},"))
    assert names(arrived) == []
    assert arrived.notes == (
        "DaemonSet default/gpu creates no pod on vm-4: node selector gpu=yes-please: the node has no such label",
    )


def test_a_daemon_set_needs_to_tolerate_the_taints() -> None:
    profile: Any = NODE.config
    view = replace(profile.view, taints=(Taint(key="gpu", effect="NoSchedule"),))
    tainted = replace(NODE, state=replace(NODE.state, config=replace(profile, view=view)))
    (note,) = arriving(controller("DaemonSet", "all"), node=tainted).notes
    assert note == "DaemonSet default/all creates no pod on vm-4: not tolerated: gpu:NoSchedule"
    tolerant = controller("DaemonSet", "all", pod="tolerations: [{operator: Exists}],")
    assert names(arriving(tolerant, node=tainted)) == ["all-0"]


def test_pods_of_other_nodes_arrive_as_new_ones() -> None:
    arrived = arriving(
        cluster_pod("a", "elsewhere") + cluster_pod("b", "elsewhere") + cluster_pod("c", "vm-4")
    )
    assert names(arrived) == ["a", "b", "c"]
    assert [workload.pod.spec.node_name for workload in arrived.workloads] == ["", "", "vm-4"]
    assert arrived.notes == ("2 pods of other nodes: judged as new pods of vm-4",)


def test_a_manifest_that_names_another_node_is_left_as_it_is() -> None:
    pod = cluster_pod("a", "elsewhere").replace("uid: uid-of-a, ", "")
    arrived = arriving(pod)
    assert arrived.notes == ()
    assert arrived.workloads[0].pod.spec.node_name == "elsewhere"


def test_pods_that_ended_or_belong_to_daemon_sets_of_other_nodes_do_not_arrive() -> None:
    owner = "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: d, controller: true}]"
    text = cluster_pod("done", "elsewhere", status="phase: Succeeded") + cluster_pod(
        "d", "elsewhere", meta=owner
    )
    assert arriving(text) == ArrivingPods(
        workloads=(),
        notes=("1 pod that ended: left out", "1 pod of DaemonSets for other nodes: left out"),
    )


def test_pods_that_the_node_runs_do_not_arrive_twice() -> None:
    loaded = workloads_from(cluster_pod("a", "vm-4").encode(), "test.yaml")
    node = NODE.admit(loaded.workloads[0].pod).node
    assert arriving(cluster_pod("a", "vm-4"), node=node).notes == ("1 pod that vm-4 already has: left out",)


def test_what_a_cluster_prints_is_judged_on_a_node_of_the_catalogue(tmp_path: Path) -> None:
    arrived = arriving(cluster_pod("a", "elsewhere"))
    assert NODE.admit(arrived.workloads[0].pod).admitted
