"""The cluster of `shop_cluster` on a real API server, with kubelets that answer behind its node proxy."""

import copy
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.example_cluster import NODES, TOPOLOGIES
from tests.support.fake_api_certificates import Authority
from tests.support.real_api_server import RealAPIServer
from tests.support.shop_cluster import Document, KubeletAnswers, shop_cluster

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ESTABLISHED_S = 30


def machine_address() -> str:
    """An address of this machine that an API server may connect to; empty: it has only loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


@contextmanager
def populated(server: RealAPIServer, folder: Path) -> Iterator[None]:
    """The server with the objects of the cluster, while its kubelets answer."""
    cluster, address = shop_cluster(), machine_address()
    _define_topologies(server)
    for namespace in {
        collection.split("/")[4] for collection in cluster.objects if "/namespaces/" in collection
    }:
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    with ExitStack() as stack:
        kubelets: dict[str, _Kubelet] = {}
        for node in cluster.objects[NODES]:
            name = node["metadata"]["name"]
            port = 1
            if name in cluster.kubelets:
                kubelets[name] = stack.enter_context(_kubelet(Authority(folder), address))
                port = kubelets[name].port
            node["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
            node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
            _create(server, NODES, node)
            # The server taints new nodes until a controller finds them ready.
            taints = {"spec": {"taints": node["spec"].get("taints")}}
            assert server.request("PATCH", f"{NODES}/{name}", taints).code == 200
        uids: dict[str, str] = {}
        for collection, documents in cluster.objects.items():
            if collection != NODES:
                for document in documents:
                    written_uid = document["metadata"].get("uid", "")
                    uids[written_uid] = _create(server, collection, document)
        for name, kubelet in kubelets.items():
            text = json.dumps(cluster.kubelets[name])
            for before, after in uids.items():
                text = text.replace(f'"uid": "{before}"', f'"uid": "{after}"') if before else text
            kubelet.answers = json.loads(text)
        yield


def _create(server: RealAPIServer, collection: str, document: Document) -> str:
    """Creates the object and then its status, which the server takes from a second request; the uid."""
    document = copy.deepcopy(document)
    status = document.pop("status", None)
    for field in ("uid", "creationTimestamp", "resourceVersion", "managedFields"):
        document["metadata"].pop(field, None)
    answer = server.request("POST", collection, document, strict=False)
    assert answer.code == 201, (document["metadata"], answer.message)
    if status is not None and collection != TOPOLOGIES:
        path = f"{collection}/{document['metadata']['name']}/status"
        patched = server.request("PATCH", path, {"status": status}, strict=False)
        assert patched.code == 200, (path, patched.message)
    return str(answer.body["metadata"]["uid"])


def _define_topologies(server: RealAPIServer) -> None:
    define_kind(server, "topology.node.k8s.io/v1alpha2", "NodeResourceTopology", "noderesourcetopologies")


def define_kind(server: RealAPIServer, group_version: str, kind: str, plural: str) -> str:
    """The path of the objects of a kind without namespaces, of which every field is stored, once it is served."""
    group, _, version = group_version.partition("/")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"
            },
        },
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }
    answer = server.request("POST", _CRDS, definition)
    assert answer.code == 201, answer.message
    path, deadline = f"/apis/{group_version}/{plural}", time.monotonic() + _ESTABLISHED_S
    while server.request("GET", path).code != 200:
        assert time.monotonic() < deadline, "the CustomResourceDefinition is not served"
        time.sleep(0.1)
    return path


class _Kubelet(ThreadingHTTPServer):
    """The answers of a kubelet by path."""

    daemon_threads = True
    answers: KubeletAnswers = {}

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no errors."""


class _KubeletHandler(BaseHTTPRequestHandler):
    server: _Kubelet

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Nothing is printed."""

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.strip("/"))
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def _kubelet(authority: Authority, address: str) -> Iterator[_Kubelet]:
    server = _Kubelet((address, 0), _KubeletHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.pair("kubelet"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
