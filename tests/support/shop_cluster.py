"""A cluster of five nodes whose kubelets rejected, evicted and keep pods: for the guide, and for a real API server."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.example_cluster import (
    FORBIDDEN,
    NODES,
    PODS,
    TOPOLOGIES,
    document,
    kubeconfig,
    node_object,
    proxy,
    summary,
)
from tests.support.fake_api_server import FakeApiServer, fake_api_server

Document = dict[str, Any]
KubeletAnswers = dict[str, Document]
KUBELET_PATHS = ("configz", "pods", "stats/summary")
_AGE = timedelta(seconds=40)
"""Of the last heartbeats."""


class ShopCluster(NamedTuple):
    """The objects of the cluster with their statuses, by collection, and what its kubelets answer, by node and path."""

    objects: dict[str, list[Document]]
    kubelets: dict[str, KubeletAnswers]
    """Of worker-4 there is none: who reads may not use its proxy."""


def shop_cluster() -> ShopCluster:
    """worker-1 and worker-2 are small, worker-3 aligns NUMA nodes, worker-4 is closed, worker-5 is for GPUs."""
    now = (datetime.now(UTC) - _AGE).strftime("%Y-%m-%dT%H:%M:%SZ")
    nodes = [
        _small_node("worker-1", now),
        _small_node("worker-2", now),
        node_object("worker-3", heartbeat=now),
        node_object("worker-4", heartbeat=now),
        _small_node("worker-5", now, taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]),
    ]
    pods = [*_running_pods(), *_troubled_pods()]
    topology = document("worker-3/topology.yaml") | {}
    topology["metadata"]["managedFields"] = [{"manager": "updater", "operation": "Update", "time": now}]
    objects = {NODES: nodes, TOPOLOGIES: [topology]}
    for pod in pods:
        objects.setdefault(PODS.format(pod["metadata"]["namespace"]), []).append(pod)
    objects["/api/v1/namespaces/shop/resourcequotas"] = [_quota()]
    objects["/apis/apps/v1/namespaces/shop/deployments"] = [_deployment()]
    kubelets = {name: _kubelet(name, pods) for name in ("worker-1", "worker-2", "worker-3", "worker-5")}
    return ShopCluster(objects, kubelets)


def _small_node(name: str, heartbeat: str, **spec: Any) -> Document:
    node = node_object(name, heartbeat=heartbeat, **spec)
    amounts = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    node["status"]["capacity"] = amounts
    # The kubelet keeps a tenth of the storage and 100Mi of memory for its eviction thresholds.
    node["status"]["allocatable"] = amounts | {
        "cpu": "3500m",
        "memory": "8092Mi",
        "ephemeral-storage": "96636764000",
    }
    return node


def _kubelet(name: str, pods: list[Document]) -> KubeletAnswers:
    configuration = document("worker-3/configz.json")
    if name == "worker-3":
        configuration["kubeletconfig"].pop("cpuManagerPolicyOptions")
    else:
        configuration = {"kubeletconfig": {"systemReserved": {"cpu": "500m"}}}
    on_node = [pod for pod in pods if pod["spec"].get("nodeName") == name]
    items = [
        {field: part for field, part in pod.items() if field not in ("kind", "apiVersion")} for pod in on_node
    ]
    for item in items:
        if item["metadata"]["name"] == "resize-deferred":  # The kubelet reports what it has allocated.
            item["spec"] = copy.deepcopy(item["spec"])
            item["spec"]["containers"][0]["resources"] = item["status"]["containerStatuses"][0]["resources"]
    running = [pod for pod in on_node if pod["status"]["phase"] == "Running"]
    return {
        "configz": configuration,
        "pods": {"kind": "PodList", "apiVersion": "v1", "items": items},
        "stats/summary": summary(name, running),
    }


def _running_pods() -> Iterator[Document]:
    for pod in document("worker-3/pods.json")["items"]:
        if pod["spec"].get("nodeName") == "worker-3" and pod["status"]["phase"] == "Running":
            yield pod
    for number in (1, 2):
        name = f"api-{number}"
        container = {
            "name": "api",
            "image": "api:7",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "api"}},
            "spec": {"nodeName": f"worker-{number}", "containers": [container]},
            "status": {"phase": "Running"},
        }


def _troubled_pods() -> Iterator[Document]:
    resources = {"cpu": "18", "memory": "8Gi"}
    container = {"name": "main", "image": "web:7", "resources": {"requests": resources, "limits": resources}}
    yield {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "web-0"},
        "spec": {"nodeName": "worker-3", "containers": [container]},
        "status": {
            "phase": "Failed",
            "reason": "TopologyAffinityError",
            "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
        },
    }
    for name, node in (("out-of-cpu", "worker-1"), ("evicted", "worker-2"), ("unschedulable", "")):
        pod = copy.deepcopy(document(f"failed/{name}.yaml"))
        pod["metadata"] |= {"uid": name}
        pod["spec"] |= {"nodeName": node} if node else {}
        yield pod
    pod = copy.deepcopy(document("failed/resize-deferred.yaml"))
    pod["metadata"] |= {"uid": "resize-deferred"}
    pod["spec"]["nodeName"] = "worker-2"
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    pod["status"]["containerStatuses"] = [
        {
            "name": "app",
            "image": "app:7",
            "resources": {"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        }
    ]
    yield pod


def _quota() -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "compute", "namespace": "shop"},
        "spec": {"hard": {"requests.cpu": "40", "pods": "10"}},
        "status": {
            "hard": {"requests.cpu": "40", "pods": "10"},
            "used": {"requests.cpu": "25", "pods": "6"},
        },
    }


def _deployment() -> Document:
    container = {"name": "api", "image": "api:7", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"metadata": {"labels": {"app": "api"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "api", "namespace": "shop"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "api"}}, "template": template},
    }


@contextmanager
def fake_shop_cluster(directory: Path) -> Iterator[tuple[FakeApiServer, Path]]:
    """The cluster on a fake API server, and its kubeconfig."""
    cluster = shop_cluster()
    with fake_api_server() as server:
        for collection, documents in cluster.objects.items():
            server.add(collection, *documents)
        for name, answers in cluster.kubelets.items():
            for path, answer in answers.items():
                server.serve(proxy(name, path), answer)
        for path in KUBELET_PATHS:
            server.serve(proxy("worker-4", path), FORBIDDEN, status=403)
        file = directory / "kubeconfig"
        file.write_text(json.dumps(kubeconfig(server)))
        yield server, file
