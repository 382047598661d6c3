"""Nodes of a cluster that decide as kubelets: `step` on the pods that the API server binds, statuses, and exports.

They are the smallest thing that is true to `step`: no containers, no probes; a pod runs once it is admitted.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.exports.export_places import EXPORT_URL
from nodewright.cluster.serving.http_server import ListenAddress, TLSContextSource, serve_network
from nodewright.cluster.serving.middleware import RefusalLog
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.node_export import encode_node_export, node_export
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import current_profile

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_WRITERS = 16


class DecidingNode:
    """A node, the pods that it has seen, and its export."""

    def __init__(self, name: str, profile: NodeProfile) -> None:
        self.profile = replace(profile, metadata=replace(profile.metadata, name=name))
        self.node = Node.from_profile(self.profile)
        self.generation = 1
        self.changed = asyncio.Event()
        self._export: bytes | None = None

    def show(self) -> None:
        """Exports the state of now."""
        self._export = None
        self.generation += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def profile_now(self) -> NodeProfile:
        """The profile with the pods and what they hold."""
        return current_profile(self.profile, self.node.state)

    def export(self) -> bytes:
        """The NodeExport of now."""
        if self._export is None:
            observed = Instant.parse("2026-01-01T00:00:00Z")
            document = node_export(self.profile_now(), generation=self.generation, observed_time=observed)
            self._export = encode_node_export(document)
        return self._export


class DecidingNodes:
    """Nodes that follow one API server.

    Units: export_delay_s in seconds from a decision to its export.
    """

    def __init__(
        self,
        api: ClusterAPI,
        profiles: Mapping[str, NodeProfile],
        clock: Clock,
        *,
        export_delay_s: float = 0.0,
    ) -> None:
        self.nodes = {name: DecidingNode(name, profile) for name, profile in profiles.items()}
        self.admitted: list[str] = []
        self.rejected: list[tuple[str, str, str]] = []
        """Pod, node and reason of each rejection."""
        self.export_delay_s, self.is_closed = export_delay_s, False
        self._api, self._clock = api, clock
        self._pods = Reflector(api, _PODS, "", clock)
        self._pods.on_change = self._notice
        self._decided: dict[str, str] = {}
        self._writes: asyncio.Queue[tuple[str, dict[str, Any] | None]] = asyncio.Queue()

    async def register(self, export_url: str = "") -> None:
        """Creates the Node objects; exports are at `URL/NODE/v1/state`."""
        for name, deciding in self.nodes.items():
            resources = deciding.node.config.resources
            annotations = {EXPORT_URL: f"{export_url}/{name}/v1/state"} if export_url else {}
            metadata = {"name": name, "annotations": annotations, "labels": {"kubernetes.io/hostname": name}}
            await self._api.create(_NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
            status = {
                "capacity": {key: str(amount) for key, amount in resources.capacity.items()},
                "allocatable": {key: str(amount) for key, amount in resources.allocatable.items()},
                "conditions": [ready],
            }
            await self._api.patch(f"{_NODES}/{name}/status", {"status": status})
            # An admission plugin taints new nodes, which no controller removes here.
            await self._api.patch(f"{_NODES}/{name}", {"spec": {"taints": None}})

    async def run(self) -> None:
        """Decides until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            for _ in range(_WRITERS):
                group.create_task(self._write())

    def _notice(self, uid: str) -> None:
        objects = self._pods.objects
        for changed in [uid] if uid else sorted({*objects, *self._decided}):
            document = objects.get(changed)
            if document is None:
                self._remove(changed)
            elif document["metadata"].get("deletionTimestamp"):
                self._remove(changed)
                self._writes.put_nowait((_path(document), None))
            elif document["spec"].get("nodeName") in self.nodes and changed not in self._decided:
                self._decide(document["spec"]["nodeName"], document)
            elif document["status"].get("phase") in ("Failed", "Succeeded"):
                self._remove(changed)

    def _decide(self, name: str, document: dict[str, Any]) -> None:
        pod, deciding = decode(document, Pod), self.nodes[name]
        self._decided[pod.uid] = name
        if pod.is_terminal:
            return
        result = deciding.node.admit(pod)
        if result.decision is Decision.REFUSED:
            self.rejected.append((pod.full_name, name, result.reason))
            # The kubelet keeps the state without the pod.
            deciding.node = replace(deciding.node, state=result.state_when_decided.without_stale())
            status: dict[str, Any] = {"phase": "Failed", "reason": result.reason, "message": result.message}
        else:
            self.admitted.append(pod.full_name)
            deciding.node = result.node
            asyncio.get_running_loop().call_later(self.export_delay_s, self._show, name)
            running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            containers = [
                {"name": each.name, "state": running, "ready": True, "started": True}
                | {"image": "", "imageID": "", "restartCount": 0}
                for each in pod.spec.containers
            ]
            ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "Initialized")]
            status = {"phase": "Running", "containerStatuses": containers, "conditions": ready}
        self._writes.put_nowait((_path(document), {"metadata": {"uid": pod.uid}, "status": status}))

    def _remove(self, uid: str) -> None:
        name = self._decided.pop(uid, "")
        deciding = self.nodes.get(name)
        if deciding is not None and uid in deciding.node.state.pods:
            deciding.node = deciding.node.without_pod(uid)
            asyncio.get_running_loop().call_later(self.export_delay_s, self._show, name)

    def _show(self, name: str) -> None:
        self.nodes[name].show()

    async def _write(self) -> None:
        while True:
            path, status = await self._writes.get()
            with suppress(ApiError):  # the pod is gone
                if status is not None:
                    await self._api.patch(f"{path}/status", status)
                else:
                    await self._api.delete(path, {"gracePeriodSeconds": 0})


def _path(document: Mapping[str, Any]) -> str:
    meta = document["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


@asynccontextmanager
async def served_exports(
    nodes: DecidingNodes, context: TLSContextSource | None = None
) -> AsyncIterator[ListenAddress]:
    """Serves the exports of all nodes at a port of this machine."""

    async def state(request: Request) -> Response:
        deciding = nodes.nodes.get(request.path_params["node"])
        if deciding is None:
            return Response(status_code=404)
        known = request.query_params.get("generation", "-1")
        limit_s = float(request.query_params.get("timeoutSeconds", "30"))
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while int(known) >= deciding.generation and not nodes.is_closed:
                    await deciding.changed.wait()
        if int(known) >= deciding.generation:
            return Response(status_code=304)
        return Response(deciding.export(), media_type="application/json")

    app = Starlette(routes=[Route("/{node}/v1/state", state)])
    refusals = RefusalLog(lambda _text: None)
    async with serve_network(app, ListenAddress("127.0.0.1", 0), context, refusals) as address:
        try:
            yield address
        finally:
            nodes.is_closed = True
            for deciding in nodes.nodes.values():
                deciding.changed.set()
