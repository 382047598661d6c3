"""What ordinary pods need of a cluster, with a real API server that checks rights and a real containerd."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.containerd import APP, Containerd, lacking
from tests.support.cluster_bench import PODS, ClusterBench, cluster_bench
from tests.support.real_api_server import ASSETS

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
    pytest.mark.skipif(not ASSETS, reason="KUBEBUILDER_ASSETS names no kube-apiserver and etcd"),
]
CORE = "/api/v1/namespaces/default"
SHELL = ["/bin/busybox", "sh", "-c"]
TOKEN_VOLUME = {
    "name": "access",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                }
            },
        ]
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        Containerd() as containerd,
        cluster_bench(folder, "--container-runtime-endpoint", containerd.endpoint) as bench,
    ):
        server = bench.server
        accounts = {"metadata": {"name": "default"}}
        assert server.create(f"{CORE}/serviceaccounts", accounts).code == 201
        authority = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "authority"}}
        assert server.create(f"{CORE}/configmaps", authority).code == 201
        bench.agent.start()
        bench.wait_until(bench.is_ready)
        yield bench
        for pod in server.request("GET", PODS).body["items"]:
            server.request("DELETE", f"{PODS}/{pod['metadata']['name']}")
        # Their volumes are in memory: the agent has to unmount them.
        bench.wait_until(lambda: not bench.agent.pods())


def create(cluster: ClusterBench, name: str, script: str, output: Path, **spec: Any) -> None:
    """A pod whose script can write below `/out`."""
    container = {
        "name": "main",
        "image": APP,
        "command": [*SHELL, f"{script}; sleep 1000000"],
        "imagePullPolicy": "Never",
        "volumeMounts": [{"name": "out", "mountPath": "/out"}, *spec.pop("mounts", ())],
        **spec.pop("container", {}),
    }
    volumes = [{"name": "out", "hostPath": {"path": str(output)}}, *spec.pop("volumes", ())]
    cluster.create_pod(
        name, "", containers=[container], volumes=volumes, terminationGracePeriodSeconds=0, **spec
    )


def events(cluster: ClusterBench) -> str:
    return json.dumps(cluster.agent.client.get("api/v1/events"))


def test_a_pod_has_a_token_that_is_its_own(cluster: ClusterBench, tmp_path: Path) -> None:
    script = "cat /access/ca.crt /access/namespace > /out/rest; ls -l /access/..data/ > /out/modes; grep ' /access ' /proc/mounts > /out/mounts; cat /access/token > /out/token"
    mounts = [{"name": "access", "mountPath": "/access"}]
    create(
        cluster,
        "reader",
        script,
        tmp_path,
        mounts=mounts,
        volumes=[TOKEN_VOLUME],
        serviceAccountName="default",
        securityContext={"fsGroup": 1000},
    )
    cluster.wait_until(lambda: (tmp_path / "token").exists() and (tmp_path / "token").read_text() != "")
    token = (tmp_path / "token").read_text()
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    bound = claims["kubernetes.io"]
    assert bound["pod"] == {"name": "reader", "uid": cluster.pod("reader")["metadata"]["uid"]}
    assert bound["serviceaccount"]["name"] == "default"
    assert claims["exp"] - claims["iat"] in (3607, 365 * 86400)
    assert (tmp_path / "mounts").read_text().startswith("tmpfs ")
    assert (tmp_path / "rest").read_text() == "authoritydefault"
    assert [
        line
        for line in (tmp_path / "modes").read_text().splitlines()
        if "-rw-r-----" in line and "token" in line
    ]


def test_config_objects_reach_variables_and_volumes_and_follow_changes(
    cluster: ClusterBench, tmp_path: Path
) -> None:
    server = cluster.server
    assert server.create(f"{CORE}/configmaps", {"metadata": {"name": "conf"}, "data": {"a": "1"}}).code == 201
    secret = {"metadata": {"name": "key"}, "stringData": {"b": "two"}}
    assert server.create(f"{CORE}/secrets", secret).code == 201
    address = server.request("GET", f"{CORE}/services/kubernetes").body["spec"]["clusterIP"]
    env = [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "b"}}}]
    env += [{"name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST)"}]
    create(
        cluster,
        "configured",
        'echo "$A $B $URL" > /out/env; while :; do cat /conf/a > /out/now; sleep 0.1; done',
        tmp_path,
        mounts=[{"name": "conf", "mountPath": "/conf"}],
        volumes=[{"name": "conf", "configMap": {"name": "conf"}}],
        container={
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}}, *env]
        },
    )
    now = tmp_path / "now"
    cluster.wait_until(lambda: now.exists() and now.read_text() == "1")
    assert (tmp_path / "env").read_text() == f"1 two https://{address}\n"
    assert server.request("PATCH", f"{CORE}/configmaps/conf", {"data": {"a": "changed"}}).code == 200
    cluster.wait_until(lambda: now.read_text() == "changed")
    cluster.agent.kill()
    assert server.request("PATCH", f"{CORE}/configmaps/conf", {"data": {"a": "meanwhile"}}).code == 200
    cluster.agent.start()
    cluster.wait_until(lambda: now.read_text() == "meanwhile")
    (container,) = cluster.pod("configured")["status"]["containerStatuses"]
    assert container["restartCount"] == 0


def test_a_pod_waits_for_an_object_and_starts_once_it_is_there(cluster: ClusterBench, tmp_path: Path) -> None:
    volumes = [{"name": "late", "configMap": {"name": "late"}}]
    mounts = [{"name": "late", "mountPath": "/late"}]
    create(cluster, "early", "cat /late/a > /out/a", tmp_path, mounts=mounts, volumes=volumes)
    cluster.wait_until(lambda: 'configmap \\"late\\" not found' in events(cluster))
    (container,) = cluster.pod("early")["status"]["containerStatuses"]
    assert container["state"]["waiting"]["reason"] == "ContainerCreating"
    created = cluster.server.create(
        f"{CORE}/configmaps", {"metadata": {"name": "late"}, "data": {"a": "here"}}
    )
    assert created.code == 201
    cluster.wait_until(lambda: (tmp_path / "a").exists() and (tmp_path / "a").read_text() == "here")


def test_labels_in_a_volume_follow_the_pods(cluster: ClusterBench, tmp_path: Path) -> None:
    item = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    create(
        cluster,
        "labelled",
        "while :; do cat /me/labels > /out/labels; sleep 0.1; done",
        tmp_path,
        mounts=[{"name": "me", "mountPath": "/me"}],
        volumes=[{"name": "me", "downwardAPI": {"items": [item]}}],
    )
    cluster.wait_until((tmp_path / "labels").exists)
    labels = {"metadata": {"labels": {"color": "blue"}}}
    assert cluster.server.request("PATCH", f"{PODS}/labelled", labels).code == 200
    cluster.wait_until(lambda: 'color="blue"' in (tmp_path / "labels").read_text())


def test_events_are_a_kubelets(cluster: ClusterBench, tmp_path: Path) -> None:
    create(cluster, "eventful", "true", tmp_path)
    cluster.wait_until(lambda: cluster.phase("eventful") == "Running")
    uid = cluster.pod("eventful")["metadata"]["uid"]
    path = f"{CORE}/events?fieldSelector=involvedObject.kind=Pod,involvedObject.uid={uid},source=kubelet"

    def reasons() -> set[str]:
        return {event["reason"] for event in cluster.server.request("GET", path).body["items"]}

    cluster.wait_until(lambda: {"Created", "Started"} <= reasons())
    events_of_node = f"{CORE}/events?fieldSelector=involvedObject.kind=Node,involvedObject.name=worker"
    cluster.wait_until(
        lambda: any(
            event["reason"] == "Starting"
            for event in cluster.server.request("GET", events_of_node).body["items"]
        )
    )


def test_an_ephemeral_container_looks_into_a_running_pod(cluster: ClusterBench, tmp_path: Path) -> None:
    create(cluster, "debugged", "true", tmp_path)
    cluster.wait_until(lambda: cluster.phase("debugged") == "Running")
    debugger = {
        "name": "debugger",
        "image": APP,
        "imagePullPolicy": "Never",
        "command": [*SHELL, "tr '\\0' ' ' < /proc/1/cmdline; exit 4"],
        "targetContainerName": "main",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    added = {"spec": {"ephemeralContainers": [debugger]}}
    answer = cluster.server.request("PATCH", f"{PODS}/debugged/ephemeralcontainers", added)
    assert answer.code == 200, answer.message

    def terminated() -> dict[str, Any]:
        (status,) = cluster.pod("debugged")["status"].get("ephemeralContainerStatuses") or [{}]
        return dict(status.get("state", {}).get("terminated", {}))

    cluster.wait_until(lambda: bool(terminated()))
    assert terminated()["exitCode"] == 4
    # The first process that it sees is the target's.
    assert terminated()["message"].strip() == "sleep 1000000"
    pod = cluster.pod("debugged")
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"]


def test_a_claim_is_mounted_once_it_is_bound(cluster: ClusterBench, tmp_path: Path) -> None:
    server, disk = cluster.server, tmp_path / "disk"
    disk.mkdir()
    (disk / "known").write_text("kept", "utf-8")
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "disk",
    }
    claims = f"{CORE}/persistentvolumeclaims"
    claim = server.create(
        claims, {"metadata": {"name": "data"}, "spec": {**spec, "storageClassName": ""}}
    ).body
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    create(
        cluster,
        "claimant",
        "cat /data/known > /out/known; echo > /data/new",
        tmp_path,
        mounts=mounts,
        volumes=volumes,
    )
    cluster.wait_until(lambda: "error processing PVC default/data: PVC is not bound" in events(cluster))
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data"}
    worker = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker"]}]}
    persistent = {
        "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": str(disk)},
            "claimRef": {**reference, "uid": claim["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [worker]}},
        },
    }
    answer = server.create("/api/v1/persistentvolumes", persistent)
    assert answer.code == 201, answer.message
    bound = server.request("PATCH", f"{claims}/data/status", {"status": {"phase": "Bound"}})
    assert bound.code == 200, bound.message
    cluster.wait_until(lambda: (tmp_path / "known").exists() and (tmp_path / "known").read_text() == "kept")
    cluster.wait_until((disk / "new").exists)
