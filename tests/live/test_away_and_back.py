"""A joined agent whose API server, Node object or machine is away for a while: pods go on, once, and all is reported later."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_bench import NODE, PODS, ClusterBench, cluster_bench
from tests.support.partition_proxy import Link, PartitionProxy
from tests.support.real_api_server import ASSETS

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(not ASSETS, reason="KUBEBUILDER_ASSETS names no kube-apiserver and etcd"),
]
AWAY_S = float(os.environ.get("AWAY_SECONDS") or 8)
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker"


@pytest.fixture(scope="module")
def proxy() -> Iterator[PartitionProxy]:
    with PartitionProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def cluster(proxy: PartitionProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    with cluster_bench(tmp_path_factory.mktemp("cluster"), proxy=proxy) as bench:
        bench.agent.start()
        bench.wait_until(bench.is_ready)
        yield bench


@pytest.fixture(autouse=True)
def remove_pods(cluster: ClusterBench) -> Iterator[None]:
    yield
    for pod in cluster.server.request("GET", PODS).body["items"]:
        cluster.delete_pod(pod["metadata"]["name"])
    cluster.wait_until(lambda: not cluster.server.request("GET", PODS).body["items"])


def run_pod(cluster: ClusterBench, name: str, folder: Path, script: str = FOREVER, **spec: Any) -> str:
    """A pod that runs; its container's id."""
    cluster.create_pod(name, f"echo >> {folder}/{name}; {script}", **spec)
    cluster.wait_until(lambda: cluster.phase(name) == "Running")
    return container_id(cluster, name)


def container_id(cluster: ClusterBench, name: str) -> str:
    return str(cluster.pod(name)["status"]["containerStatuses"][0]["containerID"])


def starts(folder: Path, name: str) -> int:
    """How often the pod's container has started."""
    return len((folder / name).read_text("utf-8").splitlines())


def test_what_happens_while_the_api_server_is_away_is_reported_afterwards(
    cluster: ClusterBench, proxy: PartitionProxy, tmp_path: Path
) -> None:
    steady = run_pod(cluster, "steady", tmp_path)
    run_pod(cluster, "job", tmp_path, "sleep 2", restartPolicy="Never")
    run_pod(cluster, "restarts", tmp_path, "sleep 2")
    run_pod(cluster, "leaves", tmp_path)
    proxy.set_link(Link.REFUSED)
    cluster.delete_pod("leaves")
    cluster.create_pod("arrives", FOREVER)
    time.sleep(AWAY_S)
    assert cluster.phase("job") == "Running"
    assert starts(tmp_path, "restarts") > 1
    assert cluster.pod("leaves")
    # An agent that starts meanwhile ends nothing, and starts nothing that is not known to be there still.
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_until(cluster.agent.is_ready)
    proxy.set_link(Link.WHOLE)
    cluster.wait_until(lambda: cluster.phase("job") == "Succeeded")
    cluster.wait_until(lambda: cluster.phase("arrives") == "Running")
    cluster.wait_until(lambda: not cluster.pod("leaves"))
    count = cluster.pod("restarts")["status"]["containerStatuses"][0]["restartCount"]
    assert count in (starts(tmp_path, "restarts") - 1, starts(tmp_path, "restarts") - 2)
    assert (container_id(cluster, "steady"), starts(tmp_path, "steady")) == (steady, 1)
    assert starts(tmp_path, "job") == 1


def test_a_node_object_that_is_deleted_is_created_by_the_next_agent_and_pods_go_on(
    cluster: ClusterBench, tmp_path: Path
) -> None:
    steady = run_pod(cluster, "steady", tmp_path)
    before = cluster.server.request("GET", NODE).body["metadata"]["uid"]
    assert cluster.server.request("DELETE", NODE).code == 200
    cluster.server.request("DELETE", LEASE)
    time.sleep(2)
    assert cluster.server.request("GET", NODE).code == 404
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_until(cluster.is_ready)
    after = cluster.server.request("GET", NODE).body["metadata"]["uid"]
    assert after != before
    cluster.wait_until(lambda: cluster.server.request("GET", LEASE).code == 200)
    owners = cluster.server.request("GET", LEASE).body["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == [after]
    assert (container_id(cluster, "steady"), starts(tmp_path, "steady")) == (steady, 1)


def test_a_node_object_with_another_uid_is_taken_over_by_the_running_agent(
    cluster: ClusterBench, tmp_path: Path
) -> None:
    steady = run_pod(cluster, "steady", tmp_path)
    assert cluster.server.request("DELETE", NODE).code == 200
    labels = {"team": "blue"}
    created = cluster.server.create("/api/v1/nodes", {"metadata": {"name": "worker", "labels": labels}})
    assert created.code == 201
    cluster.wait_until(cluster.is_ready)
    node = cluster.server.request("GET", NODE).body["metadata"]
    assert node["uid"] == created.body["metadata"]["uid"]
    assert node["labels"]["team"] == "blue"
    cluster.create_pod("picky", FOREVER, nodeSelector={"team": "blue"})
    cluster.wait_until(lambda: cluster.phase("picky") == "Running")
    assert (container_id(cluster, "steady"), starts(tmp_path, "steady")) == (steady, 1)


def test_pods_of_a_machine_that_was_rebooted_start_again_or_fail(
    cluster: ClusterBench, tmp_path: Path
) -> None:
    run_pod(cluster, "steady", tmp_path)
    run_pod(cluster, "once", tmp_path, restartPolicy="Never")
    cluster.agent.kill()
    # Of a machine that is rebooted, no process and no cgroup is left.
    cluster.cgroups.kill(cluster.cgroups.root)
    for path in cluster.cgroups.children(cluster.cgroups.root):
        cluster.cgroups.remove(path)
    cluster.agent.start()
    cluster.wait_until(lambda: cluster.phase("once") == "Failed")
    cluster.wait_until(lambda: cluster.pod("steady")["status"]["containerStatuses"][0]["restartCount"] == 1)
    cluster.wait_until(lambda: cluster.phase("steady") == "Running")
    # It runs before it has written.
    cluster.wait_until(lambda: starts(tmp_path, "steady") == 2)
    assert starts(tmp_path, "once") == 1
