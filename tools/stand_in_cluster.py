"""A cluster for loads of the extender: API server and exporters in one process, and nodes that decide by `step`.

It spends as little CPU time as it can beside what it measures: documents are encoded once, and HTTP is read by hand.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.cluster.exports.export_places import EXPORT_URL
from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.catalogue import catalogue_profile
from nodewright.documents.profiles.node_export import bytes_digest, profile_digest, shape_document
from nodewright.documents.profiles.profile_yaml import profile_document
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node

MACHINES = ("m5.metal", "xeon-8480-2s", "xeon-8380-2s-snc2", "epyc-7742-2s-nps4", "dgx-a100")
MANAGERS = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
}
CPUS = (1, 2, 4, 8, 16)
EXPORT_DELAY_S = 0.1
"""How long a kubelet takes to start a pod, until export and API server show it."""


def pod_document(name: str, cpus: int) -> dict[str, Any]:
    """A Guaranteed pod of so many exclusive CPUs."""
    amounts = {"cpu": str(cpus), "memory": "64Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}


class Machine(NamedTuple):
    """A kind of node: without pods, and its spec as JSON."""

    node: Node
    spec: dict[str, msgspec.Raw]
    cpus: int

    @classmethod
    def of(cls, name: str) -> "Machine":
        """The machine of the catalogue."""
        profile = catalogue_profile(name)
        profile = replace(profile, spec=replace(profile.spec, kubelet_configuration=MANAGERS))
        document = profile_document(profile)
        spec = {key: _canonical(value) for key, value in document["spec"].items()}
        node = Node.from_profile(profile)
        return cls(node, spec, int(node.state.config.resources.allocatable["cpu"].value()))


class LoadNode:
    """A node that decides, and its export."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name, self.machine, self.node, self.free_cpus = name, machine, machine.node, machine.cpus
        self.generation, self._pods, self._shape_digest = 1, list[msgspec.Raw](), ""
        self.waiting: Callable[[], None] | None = None
        """Answers the watch of the export."""
        self._profile = {
            "apiVersion": "nodewright.dev/v1alpha1",
            "kind": "NodeProfile",
            "metadata": {"name": name},
        }

    def admit(self, document: dict[str, Any], cpus: int) -> str:
        """Takes a pod in; why not, if its kubelet refuses it."""
        result = self.node.admit(decode(document, Pod))
        if not result.admitted:
            return result.reason
        self.node = result.node
        self.free_cpus -= cpus
        parts = {"metadata": document["metadata"], "spec": document["spec"]}
        self._pods.append(_canonical(parts))
        return ""

    def show(self) -> None:
        """Exports the state of now."""
        self.generation += 1
        if self.waiting is not None:
            self.waiting()

    def export(self) -> bytes:
        """The NodeExport of now."""
        allocations = [
            {"pod": uid, "container": container, "cpus": str(cpus)}
            for uid, containers in self.node.state.held.cpu.assignments.items()
            for container, cpus in containers.items()
        ]
        spec = {**self.machine.spec, "pods": self._pods, "allocations": allocations}
        content = _canonical({**self._profile, "spec": spec})
        if not self._shape_digest:
            # Readers compare it once, when they know nothing of the node.
            self._shape_digest = profile_digest(shape_document(msgspec.json.decode(content)))
        frame = {
            "apiVersion": "nodewright.dev/v1alpha1",
            "kind": "NodeExport",
            "nodeName": self.name,
            "generation": self.generation,
            "digest": bytes_digest(bytes(content)),
            "shapeDigest": self._shape_digest,
            "observedTime": "2026-01-01T00:00:00Z",
            "profile": content,
        }
        return msgspec.json.encode(frame)


def _canonical(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value, order="sorted"))


class StandIn:
    """The API server and the exporters of a cluster; nodes hold pods of their own for a share of their CPUs."""

    def __init__(self, count: int, *, filled: float = 0.0, seed: int = 0) -> None:
        self.nodes: dict[str, LoadNode] = {}
        self.port, self.version = 0, 1
        self.admitted, self.rejected = 0, list[str]()
        self.pods: dict[str, dict[str, Any]] = {}
        self.watchers: list[Connection] = []
        machines, draw = [Machine.of(name) for name in MACHINES], random.Random(seed)
        for at in range(count):
            node = LoadNode(f"node-{at:04d}", machines[at % len(machines)])
            self.nodes[node.name] = node
            # Node by node other pods, so that no two are alike.
            while node.free_cpus > (1 - filled) * node.machine.cpus:
                cpus = draw.choice(CPUS)
                if node.admit(pod_document(f"own-{at}-{node.free_cpus}", cpus), cpus):
                    break

    def list_nodes(self) -> bytes:
        """All nodes, with the addresses of their exports."""
        items = [
            {
                "metadata": {
                    "name": name,
                    "uid": f"uid-{name}",
                    "resourceVersion": "1",
                    "annotations": {EXPORT_URL: f"http://127.0.0.1:{self.port}/export/{name}"},
                }
            }
            for name in self.nodes
        ]
        return _list_of(items, self.version)

    def store(self, pod: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """Stores a pod with changes, and sends the change."""
        self.version += 1
        name = pod["metadata"]["name"]
        kind = "MODIFIED" if name in self.pods else "ADDED"
        metadata = {**pod["metadata"], "resourceVersion": str(self.version)}
        self.pods[name] = stored = {**pod, **changes, "metadata": metadata}
        line = msgspec.json.encode({"type": kind, "object": stored}) + b"\n"
        for watcher in self.watchers:
            watcher.write(b"%x\r\n%s\r\n" % (len(line), line))
        return stored

    def bind(self, pod_name: str, body: bytes) -> None:
        """Binds a pod; its kubelet decides at once, and shows it a moment later."""
        pod, node = self.pods[pod_name], self.nodes[msgspec.json.decode(body)["target"]["name"]]
        bound = self.store(pod, spec={**pod["spec"], "nodeName": node.name})
        cpus = int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        if reason := node.admit(pod, cpus):
            self.rejected.append(f"{pod_name} on {node.name}: {reason}")
            self.store(bound, status={"phase": "Failed", "reason": reason})
            return
        self.admitted += 1

        def show() -> None:
            node.show()
            self.store(bound, status={"phase": "Running"})

        asyncio.get_running_loop().call_later(EXPORT_DELAY_S, show)

    def answer(self, connection: "Connection", method: str, target: str, body: bytes) -> None:
        """Answers a request, now or when there is news."""
        path, _, query = target.partition("?")
        parts = path.split("/")
        if parts[1] == "export":
            parameters = dict(pair.split("=") for pair in query.split("&") if pair)
            connection.export(self.nodes[parts[2]], parameters)
        elif method == "POST":
            self.bind(parts[6], body)
            connection.respond("201 Created", b'{"kind":"Status","status":"Success"}')
        elif "watch=" in query:
            connection.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            if parts[-1] == "pods":
                self.watchers.append(connection)
        elif parts[-1] == "nodes":
            connection.respond("200 OK", self.list_nodes())
        else:
            connection.respond("200 OK", _list_of(list(self.pods.values()), self.version))


def _list_of(items: list[dict[str, Any]], version: int) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": str(version)}, "items": items})


class Connection(asyncio.Protocol):
    """One connection of the extender."""

    def __init__(self, cluster: StandIn) -> None:
        self._cluster, self._received = cluster, b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.write = transport.write

    def connection_lost(self, _error: Exception | None) -> None:
        """Ends a watch."""
        if self in self._cluster.watchers:
            self._cluster.watchers.remove(self)

    def data_received(self, data: bytes) -> None:
        """Answers complete requests."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].decode("ascii")
            length = next(
                (int(line[15:]) for line in head.split("\r\n") if line[:15].lower() == "content-length:"), 0
            )
            if len(self._received) < end + 4 + length:
                return
            body, self._received = (
                self._received[end + 4 : end + 4 + length],
                self._received[end + 4 + length :],
            )
            method, target, _ = head.split(" ", 2)
            self._cluster.answer(self, method, target, body)

    def respond(self, status: str, body: bytes) -> None:
        """Sends a response."""
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.write(head.encode("ascii") + body)

    def export(self, node: LoadNode, query: dict[str, str]) -> None:
        """Sends the export of a node, or the next one."""
        if int(query.get("generation", "-1")) < node.generation:
            self.respond("200 OK", node.export())
            return

        def answer() -> None:
            node.waiting = None
            timer.cancel()
            self.respond("200 OK", node.export())

        def end() -> None:
            node.waiting = None
            self.write(b"HTTP/1.1 304 Not Modified\r\n\r\n")

        timer = asyncio.get_running_loop().call_later(float(query["timeoutSeconds"]), end)
        node.waiting = answer
