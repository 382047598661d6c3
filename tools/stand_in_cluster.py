"""A cluster for loads of the extender: API server and exporters in one process, and nodes that decide by `step`."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import replace

from nodewright.engine import Node
from nodewright.formats.decode import decode
from nodewright.kubernetes.objects import Pod
from nodewright.profiles.node_export import URL_ANNOTATION, bytes_digest, profile_digest
from nodewright.profiles.node_lookup import catalogue_profile
from nodewright.profiles.node_shape import shape_document
from nodewright.profiles.profile_yaml import profile_document

MACHINES = ("m5.metal", "xeon-8480-2s", "xeon-8380-2s-snc2", "epyc-7742-2s-nps4", "dgx-a100")
MANAGERS = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
}
EXPORT_DELAY_S = 0.1


class LoadNode:
    """A node that decides, and its export."""

    def __init__(self, name: str, node: Node, document: dict[str, Any]) -> None:
        self.name, self.node, self.document = name, node, document
        self.pods: list[dict[str, Any]] = []
        self.generation = 1
        self.changed = asyncio.Event()

    def show(self) -> None:
        """Exports the state of now."""
        self.generation += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def export(self) -> bytes:
        """The NodeExport of now."""
        allocations = [
            {"pod": uid, "container": container, "cpus": str(cpus)}
            for uid, containers in self.node.state.held.cpu.assignments.items()
            for container, cpus in containers.items()
        ]
        spec = {**self.document["spec"], "pods": self.pods, "allocations": allocations}
        profile = {**self.document, "metadata": {"name": self.name}, "spec": spec}
        content = msgspec.json.encode(profile, order="sorted")
        return msgspec.json.encode(
            {
                "apiVersion": "nodewright.dev/v1alpha1",
                "kind": "NodeExport",
                "nodeName": self.name,
                "generation": self.generation,
                "digest": bytes_digest(content),
                "shapeDigest": profile_digest(shape_document(profile)),
                "observedTime": "2026-01-01T00:00:00Z",
                "profile": msgspec.Raw(content),
            }
        )


class StandIn:
    """The API server and the exporters of a cluster."""

    def __init__(self, count: int, port: int) -> None:
        self.nodes: dict[str, LoadNode] = {}
        self.port, self.version = port, 1
        self.admitted = self.rejected = 0
        self.pods: dict[str, dict[str, Any]] = {}
        self._watchers: list[asyncio.Queue[bytes]] = []
        started = []
        for machine in MACHINES:
            profile = catalogue_profile(machine)
            profile = replace(profile, spec=replace(profile.spec, kubelet_configuration=MANAGERS))
            started.append((Node.from_profile(profile), profile_document(profile)))
        for at in range(count):
            node, document = started[at % len(started)]
            self.nodes[f"node-{at:04d}"] = LoadNode(f"node-{at:04d}", node, document)

    def application(self) -> web.Application:
        """The routes that the extender uses."""
        app = web.Application()
        app.router.add_get("/api/v1/nodes", self.list_nodes)
        app.router.add_get("/api/v1/pods", self.list_pods)
        app.router.add_post("/api/v1/namespaces/{namespace}/pods/{name}/binding", self.bind)
        app.router.add_get("/export/{node}", self.export)
        return app

    async def list_nodes(self, request: web.Request) -> web.StreamResponse:
        """All nodes; a watch shows no changes."""
        if "watch" in request.query:
            return await self._watch(request, asyncio.Queue())
        items = [
            {
                "metadata": {
                    "name": name,
                    "uid": f"uid-{name}",
                    "resourceVersion": "1",
                    "annotations": {URL_ANNOTATION: f"http://127.0.0.1:{self.port}/export/{name}"},
                }
            }
            for name in self.nodes
        ]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def list_pods(self, request: web.Request) -> web.StreamResponse:
        """All pods, or their changes from now on."""
        if "watch" in request.query:
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            self._watchers.append(queue)
            return await self._watch(request, queue)
        items = list(self.pods.values())
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request: web.Request, queue: "asyncio.Queue[bytes]") -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(await queue.get())
        return response

    def store(self, pod: dict[str, Any]) -> None:
        """Stores a pod, and sends the change."""
        self.version += 1
        kind = "MODIFIED" if pod["metadata"]["name"] in self.pods else "ADDED"
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        self.pods[pod["metadata"]["name"]] = pod
        for queue in self._watchers:
            queue.put_nowait(msgspec.json.encode({"type": kind, "object": pod}) + b"\n")

    async def bind(self, request: web.Request) -> web.Response:
        """Binds a pod; its kubelet decides at once."""
        binding = msgspec.json.decode(await request.read())
        pod = self.pods[request.match_info["name"]]
        name = binding["target"]["name"]
        bound = {**pod, "spec": {**pod["spec"], "nodeName": name}}
        node = self.nodes[name]
        result = node.node.admit(decode(pod, Pod))
        if result.admitted:
            self.admitted += 1
            node.node = result.node
            node.pods.append({"metadata": pod["metadata"], "spec": pod["spec"]})
            asyncio.get_running_loop().call_later(EXPORT_DELAY_S, node.show)
            self.store({**bound, "status": {"phase": "Running"}})
        else:
            self.rejected += 1
            failed = {"phase": "Failed", "reason": result.reason, "message": result.message}
            self.store({**bound, "status": failed})
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def export(self, request: web.Request) -> web.Response:
        """The export, or the next one."""
        node = self.nodes[request.match_info["node"]]
        known = int(request.query.get("generation", "-1"))
        with suppress(TimeoutError):
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", "30"))):
                while known >= node.generation:
                    await node.changed.wait()
        if known >= node.generation:
            return web.Response(status=304)
        return web.Response(body=node.export(), content_type="application/json")
