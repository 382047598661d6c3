"""Hollow nodes in a real cluster: API server, scheduler and controller manager, and kubelets that decide."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.hollow_bench import DEPLOYMENTS, NODES, HollowBench, deployment, hollow_bench
from tests.support.kubelet_api import CertificateAuthority
from tests.support.real_api_server import ASSETS, free_port, needs_real
from tests.support.real_shop_cluster import define_kind

from nodewright.agent.assembly.agent_node import host_address
from nodewright.cli.app import run
from nodewright.cluster.serving.key_pair import ensure_key_pair
from nodewright.documents.output.terminal import NO, YES

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    needs_real("kube-scheduler", "kube-controller-manager", "kubectl"),
]
COUNT = 20
TOPOLOGIES = "noderesourcetopologies"
DRIVER, DRA = "gpu.example.com", "/apis/resource.k8s.io/v1"
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "worker-gpus"},
    "spec": {
        "driver": DRIVER,
        "nodeName": "worker",
        "pool": {"name": "worker", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    },
}
"""Two GPUs of a node."""
STAGES: dict[str, dict[str, Any]] = {
    "fragile-fails": {
        "selector": {
            "matchLabels": {"app": "fragile"},
            "matchExpressions": [{"key": ".status.phase", "operator": "In", "values": ["Running"]}],
        },
        "delay": {"durationMilliseconds": 100, "jitterDurationMilliseconds": 200},
        "next": {"statusTemplate": "containerStatuses:\n- exitCode: 7\nphase: Failed\n"},
    },
    "deleted-soon": {"selector": {}, "next": {"delete": True}},
}
"""Stages of kwok: one that is read, one that is not."""
START = (f"--nodes={COUNT}*epyc-7742-2s-nps4", "--node-labels=topology.kubernetes.io/zone=z{n%2}")
BY_NUMA = {"cpu": "20", "memory": "1Gi"}
"""More than half of the CPUs of a NUMA node: two pods on it do not fit, though 7 fit by the sum of CPUs."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HollowBench]:
    folder = Path(tmp_path_factory.mktemp("hollow"))
    authority = CertificateAuthority(folder, "authority")
    client = authority.client_certificate("kube-apiserver-kubelet-client", "system:masters")
    addresses = ("127.0.0.1", "::1", host_address())
    server_pair = ensure_key_pair(folder / "root" / "pki", "hollow", addresses)
    flags = (
        f"--kubelet-client-certificate={client.certificate}",
        f"--kubelet-client-key={client.key}",
        f"--kubelet-certificate-authority={server_pair.certificate}",
        "--kubelet-preferred-address-types=InternalIP",
    )
    with hollow_bench(folder, flags=flags) as running:
        with (folder / "kubelet.yaml").open("a") as config:
            config.write(f"port: {free_port()}\n")
            config.write(f"authentication: {{x509: {{clientCAFile: {authority.file}}}}}\n")
        define_kind(running.server, "topology.node.k8s.io/v1alpha2", "NodeResourceTopology", TOPOLOGIES)
        stages = define_kind(running.server, "kwok.x-k8s.io/v1alpha1", "Stage", "stages")
        for name, stage in STAGES.items():
            spec = {"resourceRef": {"kind": "Pod"}, **stage}
            kind = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage"}
            running.create(stages, {**kind, "metadata": {"name": name}, "spec": spec})
        (folder / "slices.json").write_text(json.dumps(SLICE), "utf-8")
        options = ("--kubelet-api", "--publish=topology", f"--resource-slices={folder}/slices.json")
        running.start(*START, f"--root-dir={folder}/root", *options)
        running.wait_until(lambda: running.ready_nodes() == COUNT)
        yield running


def phases(bench: HollowBench, name: str, phase: str) -> list[dict[str, Any]]:
    return [pod for pod in bench.pods(f"app={name}") if pod["status"].get("phase") == phase]


def remove(bench: HollowBench, name: str) -> None:
    assert bench.server.request("DELETE", f"{DEPLOYMENTS}/{name}").code == 200
    bench.wait_until(lambda: not bench.pods(f"app={name}"))


def kubectl(bench: HollowBench, *words: str) -> str:
    command = [f"{ASSETS}/kubectl", f"--kubeconfig={bench.kubeconfig}", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def free_cpus(bench: HollowBench) -> list[int]:
    """The free CPUs of each NUMA node, as the NodeResourceTopologies say."""
    topologies = json.loads(kubectl(bench, "get", TOPOLOGIES, "-o", "json"))["items"]
    zones = [zone for topology in topologies for zone in topology["zones"]]
    return [
        int(amount["available"]) for zone in zones for amount in zone["resources"] if amount["name"] == "cpu"
    ]


def test_a_deployment_runs_and_a_drain_moves_its_pods(bench: HollowBench) -> None:
    bench.create(DEPLOYMENTS, deployment("web", 100, {"requests": {"cpu": "2"}}))
    bench.wait_until(lambda: len(phases(bench, "web", "Running")) == 100)
    assert "Ready" in kubectl(bench, "get", "nodes", "-l", "topology.kubernetes.io/zone=z1")
    assert len({pod["status"]["podIP"] for pod in bench.pods("app=web")}) == 100
    kubectl(bench, "drain", "hollow-3", "--timeout=90s")
    bench.wait_until(lambda: len(phases(bench, "web", "Running")) == 100)
    assert "hollow-3" not in {pod["spec"]["nodeName"] for pod in bench.pods("app=web")}
    kubectl(bench, "uncordon", "hollow-3")
    remove(bench, "web")


def test_pods_that_fit_the_sum_but_no_numa_node_are_rejected_as_by_a_kubelet(bench: HollowBench) -> None:
    resources = {"requests": BY_NUMA, "limits": BY_NUMA}
    bench.create(DEPLOYMENTS, deployment("numa", 9 * COUNT, resources))
    bench.wait_until(lambda: len(phases(bench, "numa", "Running")) >= 5 * COUNT)
    bench.wait_until(lambda: bool(phases(bench, "numa", "Failed")))
    bench.wait_until(lambda: all(cpus < 20 for cpus in free_cpus(bench)))
    rejected = phases(bench, "numa", "Failed")[0]["status"]
    assert rejected["reason"] == "TopologyAffinityError"
    assert rejected["message"].startswith("Pod was rejected: Resources cannot be allocated with Topology")
    remove(bench, "numa")


def test_logs_and_commands_answer_what_the_annotations_say(bench: HollowBench) -> None:
    annotations = {
        "nodewright.dev/logs": "ready to serve\nport 80\n",
        "nodewright.dev/exec": "all is well\n",
        "nodewright.dev/exec-code": "7",
    }
    bench.create(DEPLOYMENTS, deployment("talker", 3, {"requests": {"cpu": "1"}}, annotations))
    bench.wait_until(lambda: len(phases(bench, "talker", "Running")) == 3)
    for pod in bench.pods("app=talker"):
        name = pod["metadata"]["name"]
        assert kubectl(bench, "logs", name) == annotations["nodewright.dev/logs"]
        assert kubectl(bench, "logs", "--tail=1", "--timestamps", name).endswith("Z port 80\n")
        command = [f"{ASSETS}/kubectl", f"--kubeconfig={bench.kubeconfig}", "exec", name, "--", "ls", "-l"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (ran.returncode, ran.stdout) == (7, "all is well\n"), ran.stderr
    remove(bench, "talker")


def test_stages_of_kwok_end_pods_and_those_without_an_equal_are_named(bench: HollowBench) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
    pod = {"metadata": {"name": "fragile", "labels": {"app": "fragile"}}, "spec": spec}
    bench.create("/api/v1/namespaces/default/pods", pod)
    bench.wait_until(lambda: bool(phases(bench, "fragile", "Failed")))
    (failed,) = bench.pods("app=fragile")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert "Stage deleted-soon of kwok is not read: spec.next.delete: Invalid value: true" in bench.log()
    assert "Stage fragile-fails" not in bench.log()
    kubectl(bench, "delete", "pod", "fragile")


def test_claims_are_allocated_from_the_slices_of_the_nodes_and_prepared(bench: HollowBench) -> None:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    bench.create(f"{DRA}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    ]
    template = {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    bench.create(f"{DRA}/namespaces/default/resourceclaimtemplates", template)
    document = deployment("claims", 2 * COUNT + 3, {"claims": [{"name": "gpu"}]})
    document["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    ]
    bench.create(DEPLOYMENTS, document)
    bench.wait_until(lambda: len(phases(bench, "claims", "Running")) == 2 * COUNT)
    assert len(phases(bench, "claims", "Pending")) == 3, "two GPUs on each node"
    remove(bench, "claims")


def test_an_eviction_storm_follows_the_annotated_usage(bench: HollowBench) -> None:
    # Between the threshold and the limit of the cgroup of all pods, which has 511Gi.
    annotations = {"nodewright.dev/memory": "0s=1Gi,10s=523200Mi"}
    bench.create(DEPLOYMENTS, deployment("greedy", 2, {"requests": {"cpu": "1"}}, annotations))
    bench.wait_until(lambda: bool(phases(bench, "greedy", "Failed")), 90)
    evicted = phases(bench, "greedy", "Failed")[0]["status"]
    assert (evicted["reason"], evicted["message"][:37]) == (
        "Evicted",
        "The node was low on resource: memory.",
    )
    remove(bench, "greedy")


def test_the_journal_of_a_node_replays_to_the_same_decisions(
    bench: HollowBench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, repeated = bench.folder / "root/hollow-0/journal.json", tmp_path / "again.json"
    assert run(["replay", str(journal), "--journal", str(repeated)]) in (YES, NO)
    capsys.readouterr()
    events, again = (json.loads(path.read_text("utf-8"))["spec"]["events"] for path in (journal, repeated))
    assert len(events) > 10
    assert [event["actions"] for event in again] == [event["actions"] for event in events]


def test_the_next_process_takes_over_and_removes_its_nodes_at_the_end(bench: HollowBench) -> None:
    bench.create(DEPLOYMENTS, deployment("kept", 20, {"requests": {"cpu": "1"}}))
    bench.wait_until(lambda: len(phases(bench, "kept", "Running")) == 20)
    before = {pod["metadata"]["uid"]: pod["status"]["containerStatuses"] for pod in bench.pods("app=kept")}
    assert bench.stop() == 0
    bench.start(*START, f"--root-dir={bench.folder}/root", "--remove-on-exit")
    bench.wait_until(lambda: bench.log().count("hollow nodes are registered") == 2)
    bench.wait_until(lambda: bench.ready_nodes() == COUNT)
    after = {pod["metadata"]["uid"]: pod["status"]["containerStatuses"] for pod in bench.pods("app=kept")}
    assert after == before
    assert bench.stop() == 0
    assert not bench.nodes()


def test_a_node_that_is_not_hollow_is_left_alone(bench: HollowBench) -> None:
    bench.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hollow-0"}})
    bench.start("--nodes=2*epyc-7742-2s-nps4")
    assert bench.process is not None
    assert bench.process.wait(60) == 1
    bench.process = None
    assert "node/hollow-0: this Node exists and is not hollow" in bench.log()
    assert [node["metadata"]["name"] for node in bench.nodes()] == ["hollow-0"]
