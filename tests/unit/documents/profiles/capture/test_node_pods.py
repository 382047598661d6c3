"""The pods of a node, in the output of kubectl or the kubelet."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.capture.node_pods import (
    NodePods,
    admitted_pods,
    matched_static_pods,
    placeholder_pod,
    read_pods,
    read_static_pods,
)
from nodewright.documents.profiles.capture.warnings import (
    PodsBeingResized,
    PodsEnded,
    PodsNotAdmitted,
    PodsOfOtherNodes,
    UnknownPodFields,
)
from nodewright.documents.profiles.state_files.cpu_manager_state import ContainerName
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod, PodCondition, ResourceRequirements, Toleration
from nodewright.testing.objects import amounts, container, pod

HASH = "3f8a1c0be2f64f5f9f0d5a3b1c7e2d90"


def a_pod(name: str, node: str = "n1", **more: Any) -> dict[str, Any]:
    container = {"name": "app", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"u-{name}", **more.pop("metadata", {})},
        "spec": {"nodeName": node, "priority": 0, "containers": [container]},
        "status": {"phase": "Running", **more.pop("status", {})},
    }


def read(directory: Path, *pods: dict[str, Any], node: str = "n1") -> NodePods:
    path = directory / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    return read_pods(path, node)


def names(pods: NodePods) -> list[str]:
    return [pod.full_name for pod in pods.pods]


def test_terminated_pods_and_pods_of_other_nodes_are_left_out(tmp_path: Path) -> None:
    done = a_pod("done", status={"phase": "Succeeded"})
    node_pods = read(tmp_path, a_pod("web"), done, a_pod("far", "n2"), a_pod("pending", ""))
    assert names(node_pods) == ["default/web"]
    assert node_pods.ended == {"u-done"}
    assert node_pods.warnings == (PodsOfOtherNodes(count=2, node="n1"), PodsEnded(names=("default/done",)))


def test_pods_are_in_the_order_in_which_they_started(tmp_path: Path) -> None:
    late = a_pod("a", status={"startTime": "2026-03-10T06:40:27Z"})
    early = a_pod("b", status={"startTime": "2026-03-02T06:40:27Z"})
    assert names(read(tmp_path, late, early)) == ["default/b", "default/a"]


def test_the_spec_of_an_infeasible_resize_counts_no_more_in_a_capture_than_in_the_cluster(
    tmp_path: Path,
) -> None:
    time = "2026-03-10T06:40:27Z"
    conditions = [
        {"type": "Ready", "status": "True", "lastTransitionTime": time},
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "m"},
    ]
    has = [{"name": "app", "resources": {"requests": {"cpu": "250m"}}}]
    document = a_pod("web", status={"conditions": conditions, "containerStatuses": has})
    (captured,) = read(tmp_path, document).pods
    assert captured.status.conditions == (
        PodCondition(type="PodResizePending", status="True", reason="Infeasible"),
    )
    assert [scheduler_usage(each)["cpu"] for each in (captured, decode(document, Pod))] == [250, 250]


def test_a_mirror_pod_has_the_uid_of_the_static_pod(tmp_path: Path) -> None:
    annotations = {"kubernetes.io/config.mirror": HASH, "kubernetes.io/config.source": "file"}
    node_pods = read(tmp_path, a_pod("proxy", metadata={"annotations": annotations}))
    assert [pod.uid for pod in node_pods.pods] == [HASH]


def test_the_output_of_the_kubelets_pods_endpoint_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    bare = {name: value for name, value in a_pod("web").items() if name not in ("apiVersion", "kind")}
    path.write_text(json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [bare]}))
    assert names(read_pods(path, "")) == ["default/web"]


def test_without_a_name_there_must_be_one_node(tmp_path: Path) -> None:
    assert read(tmp_path, a_pod("web"), node="").node == "n1"
    with pytest.raises(InputError, match=r"choose one with --node-name \(n1, n2\)"):
        read(tmp_path, a_pod("web"), a_pod("far", "n2"), node="")
    with pytest.raises(InputError, match="no pod is on a node"):
        read(tmp_path, a_pod("pending", ""), node="")
    with pytest.raises(InputError, match=r"n4, n5, \.\.\."):
        read(tmp_path, *(a_pod(f"p{n}", f"n{n}") for n in range(1, 8)), node="")


def test_containers_are_known_by_the_runtimes_ids(tmp_path: Path) -> None:
    statuses = [{"name": "app", "containerID": "containerd://abc"}, {"name": "waiting"}]
    node_pods = read(tmp_path, a_pod("web", status={"containerStatuses": statuses}))
    assert node_pods.container_names == {"abc": ContainerName("u-web", "app")}


def test_pods_that_are_not_admitted_are_left_out_and_resized_ones_have_their_allocated_resources(
    tmp_path: Path,
) -> None:
    pods = read(tmp_path, a_pod("big"), a_pod("holds"), a_pod("new"), a_pod("same"))
    one, two = (ResourceRequirements(requests=amounts({"cpu": count})) for count in ("1", "2"))
    allocated = {"u-big": PodResourceInfo({"app": two}), "u-same": PodResourceInfo({"app": one, "gone": two})}
    node_pods = admitted_pods(pods, allocated, ["u-holds"])
    assert {
        pod.metadata.name: str(pod.spec.containers[0].resources.requests["cpu"]) for pod in node_pods.pods
    } == {
        "big": "2",
        "holds": "1",
        "same": "1",
    }
    assert node_pods.warnings == (
        PodsNotAdmitted(names=("default/new",)),
        PodsBeingResized(names=("default/big",)),
    )


def test_pod_level_allocations_count_only_for_pods_with_pod_level_resources() -> None:
    asked, given = (ResourceRequirements(limits=amounts({"cpu": count})) for count in ("1", "2"))
    pods = NodePods(node="n", pods=(placeholder_pod("u", PodResourceInfo({"c": asked}, asked)),))
    (pod,) = admitted_pods(pods, {"u": PodResourceInfo({}, given)}, ()).pods
    assert pod.spec.resources == given


def test_a_placeholder_has_the_known_containers() -> None:
    resource_requirements = ResourceRequirements(requests=amounts({"cpu": "1"}))
    pod = placeholder_pod(
        "u", PodResourceInfo({"b": resource_requirements, "a": resource_requirements}), {"a"}
    )
    assert pod.full_name == "unknown/u"
    assert [each.name for each in pod.spec.containers] == ["b"]
    assert [each.name for each in pod.spec.init_containers] == ["a"]


def test_fields_of_later_releases_are_ignored_with_a_warning(tmp_path: Path) -> None:
    later = a_pod("later", status={"warp": 9})
    later["spec"]["warpCore"] = True
    node_pods = read(tmp_path, later)
    assert names(node_pods) == ["default/later"]
    assert node_pods.warnings == (UnknownPodFields(names=("spec.warpCore", "status.warp")),)


def test_pods_that_an_api_server_would_reject_are_rejected(tmp_path: Path) -> None:
    bad = a_pod("bad")
    bad["spec"]["containers"] = "many"
    with pytest.raises(InputError, match=r"pods.json:1:\d+: spec.containers: Invalid value"):
        read(tmp_path, a_pod("good"), bad)
    path = tmp_path / "list.json"
    path.write_text("[]\n")
    with pytest.raises(InputError, match="expected pods"):
        read_pods(path, "")


STATIC_POD_HASH, OTHER = "3f8a1c0be2f64f5f9f0d5a3b1c7e2d90", "0" * 32
ONE = ResourceRequirements(requests=amounts({"cpu": "1"}), limits=amounts({"cpu": "1"}))
PROXY = pod(container("proxy", "", {"cpu": "1"}), name="proxy-n1")
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: proxy}
spec:
  containers: [{name: proxy, image: x, resources: {limits: {cpu: "1"}}}]
"""


def uids(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.uid for pod in pods]


def test_a_manifest_becomes_a_pod_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "proxy.manifest").write_text(MANIFEST)
    (tmp_path / ".hidden.yaml").write_text(MANIFEST)
    (tmp_path / "notes.txt").write_text("- buy milk")
    (tmp_path / "two.yaml").write_text(f"{MANIFEST}---\n{MANIFEST.replace('proxy}', 'other}')}")
    (tmp_path / "below").mkdir()
    static_pods = read_static_pods(tmp_path, "Node-1")
    assert [pod.full_name for pod in static_pods.pods] == ["default/proxy-node-1"]
    assert static_pods.pods[0].spec.node_name == "Node-1"
    assert static_pods.pods[0].spec.tolerations[-1] == Toleration(operator="Exists", effect="NoExecute")
    assert static_pods.pods[0].metadata.annotations == {"kubernetes.io/config.source": "file"}
    assert static_pods.ignored_files == ("notes.txt", "two.yaml")


def test_static_pods_are_read_from_one_file_but_not_from_a_missing_directory(tmp_path: Path) -> None:
    (tmp_path / "proxy.yaml").write_text(MANIFEST)
    assert len(read_static_pods(tmp_path / "proxy.yaml", "n1").pods) == 1
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        read_static_pods(tmp_path / "nowhere", "n1")


def test_a_static_pod_is_matched_by_its_containers() -> None:
    allocated = {STATIC_POD_HASH: PodResourceInfo({"proxy": ONE}), OTHER: PodResourceInfo({"another": ONE})}
    assert uids(matched_static_pods([PROXY], allocated, [])) == [STATIC_POD_HASH]


def test_the_uid_of_a_manifest_is_the_kubelets(tmp_path: Path) -> None:
    (tmp_path / "proxy.yaml").write_text(MANIFEST.replace("name: proxy}", "name: proxy, uid: fixed}"))
    static = read_static_pods(tmp_path / "proxy.yaml", "n1").pods
    twice = {"fixed": PodResourceInfo({"proxy": ONE}), STATIC_POD_HASH: PodResourceInfo({"proxy": ONE})}
    assert uids(matched_static_pods(static, twice, [])) == ["fixed"]


def test_an_ambiguous_static_pod_is_not_matched() -> None:
    twice = {STATIC_POD_HASH: PodResourceInfo({"proxy": ONE}), OTHER: PodResourceInfo({"proxy": ONE})}
    assert matched_static_pods([PROXY], twice, []) == ()
    assert matched_static_pods([PROXY, PROXY], {STATIC_POD_HASH: PodResourceInfo({"proxy": ONE})}, []) == ()
    # What a pod that is known explains is no answer.
    known = pod(container("proxy"), name="known", uid=OTHER)
    assert uids(matched_static_pods([PROXY], twice, [known])) == [STATIC_POD_HASH]


def test_uids_of_the_api_server_are_not_those_of_static_pods() -> None:
    allocated = {"1d2c3b4a-7e6f-4a5b-8c9d-0e1f2a3b4c5d": PodResourceInfo({"proxy": ONE})}
    assert matched_static_pods([PROXY], allocated, []) == ()
