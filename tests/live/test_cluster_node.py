"""The agent as a Node of a real API server that checks rights: needs root, cgroups and `KUBEBUILDER_ASSETS`."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_bench import PODS, ClusterBench, cluster_bench
from tests.support.real_api_server import ASSETS
from tests.support.real_scheduler import running_component

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(not ASSETS, reason="KUBEBUILDER_ASSETS names no kube-apiserver and etcd"),
]
STATIC = """
apiVersion: v1
kind: Pod
metadata: {name: front}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: [sleep, "1000"]}]
"""
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "static").mkdir()
    with cluster_bench(folder, "--pod-manifest-path", str(folder / "static")) as bench:
        bench.agent.start()
        bench.wait_until(bench.is_ready)
        yield bench


def starts(folder: Path) -> int:
    """How often the pod's container has started."""
    return len((folder / "starts").read_text("utf-8").splitlines()) if (folder / "starts").exists() else 0


def renewal(cluster: ClusterBench) -> str:
    """When the lease was renewed last; empty: there is none yet."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker"
    return str(cluster.server.request("GET", path).body.get("spec", {}).get("renewTime", ""))


def test_the_node_has_what_a_scheduler_needs(cluster: ClusterBench) -> None:
    status = cluster.node_status()
    assert status["capacity"].keys() >= {"cpu", "memory", "pods", "ephemeral-storage"}
    assert status["allocatable"].keys() == status["capacity"].keys()
    assert status["nodeInfo"]["operatingSystem"] == "linux"
    assert status["nodeInfo"]["bootID"]
    assert [address["type"] for address in status["addresses"]] == ["InternalIP", "Hostname"]
    cluster.wait_until(lambda: bool(renewal(cluster)))
    first = renewal(cluster)
    cluster.wait_until(lambda: renewal(cluster) > first)


def test_a_pod_runs_is_deleted_and_a_new_one_takes_its_name(cluster: ClusterBench) -> None:
    uids = set()
    for _ in range(2):
        cluster.create_pod("web", FOREVER)
        cluster.wait_until(lambda: cluster.phase("web") == "Running")
        conditions = {each["type"]: each["status"] for each in cluster.pod("web")["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        uids.add(cluster.pod("web")["metadata"]["uid"])
        cluster.delete_pod("web")
        cluster.wait_until(lambda: not cluster.pod("web"))
    assert len(uids) == 2


def test_jobs_end_with_their_phase_and_rejected_pods_fail(cluster: ClusterBench) -> None:
    cluster.create_pod("good", "exit 0", restartPolicy="Never")
    cluster.create_pod("bad", "exit 3", restartPolicy="Never")
    cluster.create_pod("elsewhere", "exit 0", nodeSelector={"disk": "fast"})
    cluster.wait_until(lambda: cluster.phase("good") == "Succeeded")
    cluster.wait_until(lambda: cluster.phase("bad") == "Failed")
    cluster.wait_until(lambda: cluster.phase("elsewhere") == "Failed")
    (container,) = cluster.pod("bad")["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3
    assert cluster.pod("elsewhere")["status"]["reason"] == "NodeAffinity"
    for name in ("good", "bad", "elsewhere"):
        cluster.delete_pod(name)
    cluster.wait_until(lambda: not any(map(cluster.pod, ("good", "bad", "elsewhere"))))


def test_labels_of_the_node_object_count_for_admission_also_after_a_restart(cluster: ClusterBench) -> None:
    labels = {"metadata": {"labels": {"disk": "fast"}}}
    assert cluster.server.request("PATCH", "/api/v1/nodes/worker", labels).code == 200
    cluster.wait_until(
        lambda: '"disk":"fast"' in (cluster.agent.folder / "root/node-object.json").read_text("utf-8")
    )
    cluster.create_pod("picky", FOREVER, nodeSelector={"disk": "fast"})
    cluster.wait_until(lambda: cluster.phase("picky") == "Running")
    container = cluster.pod("picky")["status"]["containerStatuses"][0]["containerID"]
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_until(cluster.agent.is_ready)
    time.sleep(1)
    assert cluster.phase("picky") == "Running"
    assert cluster.pod("picky")["status"]["containerStatuses"][0]["containerID"] == container
    cluster.delete_pod("picky")
    cluster.wait_until(lambda: not cluster.pod("picky"))


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.5])
def test_a_killed_agent_starts_no_pod_twice_and_forgets_no_deletion(
    cluster: ClusterBench, tmp_path: Path, delay_s: float
) -> None:
    cluster.create_pod("steady", f"echo >> {tmp_path}/starts; {FOREVER}")
    time.sleep(delay_s)
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_until(lambda: cluster.phase("steady") == "Running")
    assert starts(tmp_path) == 1
    cluster.delete_pod("steady")
    time.sleep(delay_s)
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_until(lambda: not cluster.pod("steady"))
    assert starts(tmp_path) == 1


def test_a_pod_that_is_deleted_while_no_agent_runs_is_ended_by_the_next(
    cluster: ClusterBench, tmp_path: Path
) -> None:
    cluster.create_pod("orphan", f"echo >> {tmp_path}/starts; {FOREVER}")
    cluster.wait_until(lambda: cluster.phase("orphan") == "Running")
    cluster.agent.kill()
    cluster.create_pod("late", f"echo >> {tmp_path}/starts; {FOREVER}")
    cluster.delete_pod("orphan")
    answer = cluster.server.request("DELETE", f"{PODS}/late?gracePeriodSeconds=0")
    assert answer.code == 200
    cluster.agent.start()
    cluster.wait_until(lambda: not cluster.pod("orphan"))
    assert starts(tmp_path) == 1


def test_a_static_pod_has_a_mirror_pod_with_its_status(cluster: ClusterBench) -> None:
    manifest = cluster.agent.folder / "static/front.yaml"
    manifest.write_text(STATIC, "utf-8")
    cluster.wait_until(lambda: cluster.phase("front-worker") == "Running")
    mirror = cluster.pod("front-worker")
    assert mirror["metadata"]["ownerReferences"][0]["kind"] == "Node"
    cluster.delete_pod("front-worker")
    first = mirror["metadata"]["uid"]
    cluster.wait_until(lambda: cluster.pod("front-worker").get("metadata", {}).get("uid", first) != first)
    cluster.wait_until(lambda: cluster.phase("front-worker") == "Running")
    again = cluster.pod("front-worker")
    containers = [each["status"]["containerStatuses"][0]["containerID"] for each in (mirror, again)]
    assert containers[0] == containers[1]
    manifest.unlink()
    cluster.wait_until(lambda: not cluster.pod("front-worker"))


@pytest.mark.skipif(
    not all(os.access(f"{ASSETS}/{name}", os.X_OK) for name in ("kube-scheduler", "kubectl")),
    reason="KUBEBUILDER_ASSETS has no kube-scheduler and kubectl",
)
def test_the_scheduler_chooses_the_node_and_kubectl_shows_and_deletes_its_pods(
    cluster: ClusterBench, tmp_path: Path
) -> None:
    def kubectl(*words: str) -> str:
        command = [f"{ASSETS}/kubectl", f"--kubeconfig={tmp_path}/kubeconfig", *words]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    with running_component(
        cluster.server, tmp_path, "kube-scheduler", "--leader-elect=false", "--secure-port=0"
    ):
        # Without a controller manager nobody removes this taint of new nodes.
        taints: dict[str, object] = {"spec": {"taints": []}}
        assert cluster.server.request("PATCH", "/api/v1/nodes/worker", taints).code == 200
        cluster.create_pod("free", FOREVER, nodeName=None)
        cluster.wait_until(lambda: cluster.phase("free") == "Running")
        assert "worker" in kubectl("get", "pods", "-o", "wide")
        assert "Ready" in kubectl("get", "nodes")
        kubectl("delete", "pod", "free", "--timeout=30s")
        assert not cluster.pod("free")
