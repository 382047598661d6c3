"""An API server in memory that binds pods, with schedulers' calls of an extender over it."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec
from tests.support.memory_cluster import NODES, PODS, Document, MemoryCluster

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.scheduling.extender.cluster_feed import ClusterFeed
from nodewright.scheduling.extender.extender_service import ApiBinder, ExtenderService, ServiceOptions
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster


class BindingCluster(MemoryCluster):
    """A `MemoryCluster` whose pods begin without a node."""

    def create_free_pod(self, name: str, cpu: int, **spec: Any) -> Document:
        """A pod without a node."""
        amounts = {"cpu": str(cpu), "memory": "16Mi"}
        container = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"containers": [container], **spec},
            "status": {"phase": "Pending"},
        }
        self.put(f"{PODS}/{name}", document)
        return deepcopy(self.objects[f"{PODS}/{name}"])

    def create_node(self, name: str, **metadata: Any) -> None:
        """A Node object."""
        self.put(f"{NODES}/{name}", {"metadata": {"name": name, "uid": f"uid-of-{name}", **metadata}})

    async def create(self, path: str, document: Mapping[str, Any]) -> Document:
        """Creates an object, or binds a pod."""
        if not path.endswith("/binding"):
            return await super().create(path, document)
        await self._travel("POST", path)
        place = path.removesuffix("/binding")
        pod = deepcopy(self._found("POST", place))
        if pod["metadata"]["uid"] != document["metadata"]["uid"]:
            raise ApiError("POST", path, "the UID in the precondition differs", status=409, reason="Conflict")
        if pod["spec"].get("nodeName"):
            text = f"pod is already assigned to node {pod['spec']['nodeName']}"
            raise ApiError("POST", path, text, status=409, reason="Conflict")
        pod["spec"]["nodeName"] = document["target"]["name"]
        self._store("MODIFIED", place, pod)
        await self._return("POST", path)
        return {"kind": "Status", "status": "Success"}


class ExtenderBench:
    """An extender over an API server in memory, called as a scheduler does."""

    def __init__(self, api: BindingCluster, clock: Clock, **options: Any) -> None:
        self.api, self.clock = api, clock
        self.cluster = TrackedCluster()
        self.feed = ClusterFeed(api, self.cluster, clock)
        self.service = ExtenderService(
            self.cluster, self.feed, ApiBinder(api), clock, ServiceOptions(**options)
        )

    def put_export(self, name: str, profile: NodeProfile, generation: int = 1) -> None:
        """An export of a node."""
        named = msgspec.structs.replace(
            profile, metadata=msgspec.structs.replace(profile.metadata, name=name)
        )
        self.cluster.put_export(name, named, generation=generation, now_s=self.clock.monotonic_s())

    def filter(self, pod: Document, *names: str) -> Document:
        """The answer to filter."""
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        return dict(msgspec.json.decode(self.service.filter(body)))

    async def bind(self, pod: Document, node: str) -> str:
        """The error of bind; empty if the pod is bound."""
        meta = pod["metadata"]
        call = {
            "PodName": meta["name"],
            "PodNamespace": meta["namespace"],
            "PodUID": meta["uid"],
            "Node": node,
        }
        return str(msgspec.json.decode(await self.service.bind(msgspec.json.encode(call)))["Error"])
