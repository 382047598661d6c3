"""A cluster on the fake API server: worker-3 of the examples with its kubelet's answers, two more nodes, and their pods."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.support import fake_api_server as fake
from tests.support.fake_api_server import FakeApiServer, fake_api_server

EXAMPLES = Path(__file__).parents[2] / "examples"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/{}/pods"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
CONTEXT = "shop"
Document = dict[str, Any]
FORBIDDEN: Document = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": 'nodes "worker-4" is forbidden: User "reader" cannot get resource "nodes/proxy" in API group "" at the '
    "cluster scope",
    "reason": "Forbidden",
    "code": 403,
}

fake.KINDS.update(
    deployments="Deployment",
    statefulsets="StatefulSet",
    daemonsets="DaemonSet",
    replicasets="ReplicaSet",
    jobs="Job",
    cronjobs="CronJob",
    poddisruptionbudgets="PodDisruptionBudget",
    resourcequotas="ResourceQuota",
    limitranges="LimitRange",
    persistentvolumeclaims="PersistentVolumeClaim",
    persistentvolumes="PersistentVolume",
    noderesourcetopologies="NodeResourceTopology",
    deviceclasses="DeviceClass",
    resourceslices="ResourceSlice",
    resourceclaims="ResourceClaim",
    resourceclaimtemplates="ResourceClaimTemplate",
)


def document(path: str) -> Any:
    """A document of the examples."""
    return yaml.safe_load((EXAMPLES / path).read_text())


def proxy(node: str, path: str) -> str:
    """The path of a kubelet's endpoint."""
    return f"{NODES}/{node}/proxy/{path}"


def node_object(name: str, *, heartbeat: str = "2026-05-04T09:12:07Z", **changes: Any) -> Document:
    """A node like worker-3."""
    node: Document = copy.deepcopy(document("worker-3/node.json"))
    node["metadata"]["name"] = name
    node["metadata"]["labels"]["kubernetes.io/hostname"] = name
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]
    node["spec"] |= changes
    return node


def add_pod(server: FakeApiServer, pod: Document) -> None:
    """Creates a pod with its own uid."""
    server.add(PODS.format(pod["metadata"].get("namespace", "default")), pod)


def add_example_nodes(server: FakeApiServer) -> None:
    """Adds worker-3, whose kubelet answers, and worker-4, a node like it whose kubelet's proxy is forbidden."""
    server.add(NODES, node_object("worker-3"), node_object("worker-4"))
    pods = [
        pod for pod in document("worker-3/pods.json")["items"] if pod["spec"].get("nodeName") == "worker-3"
    ]
    for pod in pods:
        add_pod(server, pod)
    server.add(TOPOLOGIES, document("worker-3/topology.yaml"))
    server.serve(proxy("worker-3", "configz"), document("worker-3/configz.json"))
    kubelet_pods = [
        {name: part for name, part in pod.items() if name not in ("kind", "apiVersion")} for pod in pods
    ]
    server.serve(proxy("worker-3", "pods"), {"kind": "PodList", "apiVersion": "v1", "items": kubelet_pods})
    server.serve(proxy("worker-3", "stats/summary"), summary("worker-3", pods))
    for path in ("configz", "pods", "stats/summary"):
        server.serve(proxy("worker-4", path), FORBIDDEN, status=403)


def summary(node: str, pods: list[Document]) -> Document:
    """A kubelet's summary in which the n-th pod uses n times 256Mi."""
    return {
        "node": {
            "nodeName": node,
            "memory": {"availableBytes": 100 << 30, "workingSetBytes": 28 << 30},
            "fs": {
                "availableBytes": 300 << 30,
                "capacityBytes": 500 << 30,
                "inodesFree": 900,
                "inodes": 1000,
            },
        },
        "pods": [
            {
                "podRef": {name: pod["metadata"].get(name, "") for name in ("name", "namespace", "uid")},
                "containers": [
                    {
                        "name": pod["spec"]["containers"][0]["name"],
                        "memory": {"workingSetBytes": number * (256 << 20)},
                    }
                ],
                "memory": {"workingSetBytes": number * (256 << 20)},
            }
            for number, pod in enumerate(pods, 1)
        ],
    }


def kubeconfig(server: FakeApiServer, *, namespace: str = "shop") -> Document:
    """The kubeconfig of the server."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": {"server": server.url}}],
        "users": [{"name": CONTEXT, "user": {"token": "reader"}}],
        "contexts": [
            {"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}}
        ],
    }


@contextmanager
def example_cluster(directory: Path) -> Iterator[tuple[FakeApiServer, Path]]:
    """The running server of the example cluster, and its kubeconfig."""
    with fake_api_server() as server:
        add_example_nodes(server)
        path = directory / "kubeconfig"
        path.write_text(json.dumps(kubeconfig(server)))
        yield server, path
