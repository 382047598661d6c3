"""The objects of a large cluster as an API server sends them: nodes of a few machine types, and pods of controllers."""

import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]
_SHAPES = ((16, 64), (32, 128), (64, 256), (96, 384))
"""CPUs and GiB."""
_REQUESTS = (("100m", "128Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("2", "4Gi"))


def node_document(number: int) -> Document:
    """A node as large as those of a cloud, with labels, images and managed fields."""
    cpus, memory_gib = _SHAPES[number % len(_SHAPES)]
    name = f"node-{number}"
    amounts = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    allocatable = amounts | {"cpu": f"{cpus * 1000 - 110}m", "memory": f"{memory_gib * 1024 - 1124}Mi"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "node.kubernetes.io/instance-type": f"machine-{cpus}",
    }
    tainted = number % 50 == 0
    return {
        "metadata": {"name": name, "uid": f"node-{number}", "labels": labels, "resourceVersion": str(number)},
        "spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}] if tainted else []},
        "status": {
            "capacity": amounts,
            "allocatable": allocatable,
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-05-01T00:00:00Z"},
                {"type": "MemoryPressure", "status": "False"},
            ],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "architecture": "amd64", "operatingSystem": "linux"},
            "images": [
                {
                    "names": [f"registry.example.com/team/image-{image}@sha256:{'0' * 64}"],
                    "sizeBytes": 1 << 27,
                }
                for image in range(20)
            ],
        },
    }


def pod_document(number: int, node: str, random: Random) -> Document:
    """A pod with what controllers, admission plugins and a kubelet add to it; about 6 KiB."""
    cpu, memory = random.choice(_REQUESTS)
    owner, uid = f"app-{number % 2000}", f"{number:08x}-0000-4000-8000-000000000000"
    resources: Document = {"requests": {"cpu": cpu, "memory": memory}}
    if number % 3 == 0:
        resources["limits"] = dict(resources["requests"])
    environment = [{"name": f"SETTING_{index}", "value": "x" * 40} for index in range(12)]
    mounts = [{"name": "kube-api-access", "mountPath": "/var/run/secrets/token", "readOnly": True}]
    container = {
        "name": "main",
        "image": f"registry.example.com/team/{owner}:1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "env": environment,
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": resources,
        "volumeMounts": mounts,
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "periodSeconds": 10,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    status = {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-04-01T00:00:00Z",
        "podIP": "10.0.0.1",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-04-01T00:00:00Z"}
            for kind in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "image": container["image"],
                "imageID": f"sha256:{'0' * 64}",
                "containerID": f"containerd://{number:064x}",
                "state": {"running": {"startedAt": "2026-04-01T00:00:05Z"}},
            }
        ],
    }
    managed: Document = {f"f:field-{index}": {} for index in range(40)}
    return {
        "metadata": {
            "name": f"{owner}-{number:x}",
            "namespace": f"team-{number % 50}",
            "uid": uid,
            "resourceVersion": str(number + 10_000),
            "creationTimestamp": "2026-04-01T00:00:00Z",
            "labels": {"app": owner, "pod-template-hash": "6d5c8f7b9"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": owner,
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsV1": managed}
            ],
        },
        "spec": {
            "nodeName": node,
            "containers": [container],
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "volumes": [
                {
                    "name": "kube-api-access",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                }
            ],
        },
        "status": status,
    }


@contextmanager
def serve_large_cluster(node_count: int, pod_count: int) -> Iterator[str]:
    """The address of an API server in a process of its own that lists these nodes and pods in pages and has nothing else."""
    random = Random(1)
    lists = {
        "/api/v1/nodes": [json.dumps(node_document(number)) for number in range(node_count)],
        "/api/v1/pods": [
            json.dumps(pod_document(number, f"node-{number % node_count}", random))
            for number in range(pod_count)
        ],
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_ListHandler,), {"lists": lists}))
    process = multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        process.kill()
        process.join()
        server.server_close()


class _ListHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lists: dict[str, list[str]]

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        objects = self.lists.get(address.path)
        if objects is None:
            self._answer(404, '{"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}')
            return
        query = parse_qs(address.query)
        start = int(query.get("continue", ["0"])[0])
        end = start + int(query.get("limit", [str(len(objects))])[0])
        metadata = {"resourceVersion": "9"} | ({"continue": str(end)} if end < len(objects) else {})
        kind = "NodeList" if address.path.endswith("nodes") else "PodList"
        items = ",".join(objects[start:end])
        self._answer(
            200,
            f'{{"kind": "{kind}", "apiVersion": "v1", "metadata": {json.dumps(metadata)}, "items": [{items}]}}',
        )

    def _answer(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
