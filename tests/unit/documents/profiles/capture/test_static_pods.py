"""Static pods: the kubelet's defaults and uids."""

from pathlib import Path

import pytest

from nodewright.documents.profiles.capture.node_pods import matched_static_pods, read_static_pods
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod, ResourceRequirements, Toleration
from nodewright.testing.objects import amounts, container, pod

HASH, OTHER = "3f8a1c0be2f64f5f9f0d5a3b1c7e2d90", "0" * 32
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
    allocated = {HASH: PodResourceInfo({"proxy": ONE}), OTHER: PodResourceInfo({"another": ONE})}
    assert uids(matched_static_pods([PROXY], allocated, [])) == [HASH]


def test_the_uid_of_a_manifest_is_the_kubelets(tmp_path: Path) -> None:
    (tmp_path / "proxy.yaml").write_text(MANIFEST.replace("name: proxy}", "name: proxy, uid: fixed}"))
    static = read_static_pods(tmp_path / "proxy.yaml", "n1").pods
    twice = {"fixed": PodResourceInfo({"proxy": ONE}), HASH: PodResourceInfo({"proxy": ONE})}
    assert uids(matched_static_pods(static, twice, [])) == ["fixed"]


def test_an_ambiguous_static_pod_is_not_matched() -> None:
    twice = {HASH: PodResourceInfo({"proxy": ONE}), OTHER: PodResourceInfo({"proxy": ONE})}
    assert matched_static_pods([PROXY], twice, []) == ()
    assert matched_static_pods([PROXY, PROXY], {HASH: PodResourceInfo({"proxy": ONE})}, []) == ()
    # What a pod that is known explains is no answer.
    known = pod(container("proxy"), name="known", uid=OTHER)
    assert uids(matched_static_pods([PROXY], twice, [known])) == [HASH]


def test_uids_of_the_api_server_are_not_those_of_static_pods() -> None:
    allocated = {"1d2c3b4a-7e6f-4a5b-8c9d-0e1f2a3b4c5d": PodResourceInfo({"proxy": ONE})}
    assert matched_static_pods([PROXY], allocated, []) == ()
