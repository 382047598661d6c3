"""What an exporter follows and writes in its cluster: the node's pods and its Node object; annotations and topology."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from nodewright.cluster.client.access import AccessOptions
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ClusterAPI, api_path
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.exports.export_feed import ExportFeed
from nodewright.cluster.exports.export_places import EXPORT_URL
from nodewright.cluster.objects.node_owned_objects import write_topology
from nodewright.cluster.objects.object_names import name_selector
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.output.terminal import print_log_line
from nodewright.model.errors import HostError
from nodewright.scheduling.exporter.export_options import ExportOptions
from nodewright.scheduling.exporter.node_reader import PodList

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
DIGEST_ANNOTATION = "nodewright.dev/export-digest"
MIN_WRITE_PERIOD_S = 5.0
_LONGEST_RETRY_S = 300.0


class ClusterPods:
    """The pods of the node and its Node object, as the API server has them."""

    def __init__(self, api: ClusterAPI, node_name: str, clock: Clock) -> None:
        self._pods = Reflector(api, PODS, f"spec.nodeName={node_name}", clock)
        self._node = Reflector(api, NODES, name_selector(node_name), clock)
        self._node_name = node_name
        self.on_change: Callable[[], None] = lambda: None
        for reflector in (self._pods, self._node):
            reflector.on_change = self._notice
            reflector.record_event = lambda event: print_log_line(event.message)

    @property
    def node(self) -> dict[str, Any] | None:
        """The Node object."""
        return next(iter(self._node.objects.values()), None)

    async def pod_list(self) -> PodList:
        """The pods and the Node object.

        Errors: HostError until both have been listed.
        """
        node = self.node
        if not self._pods.has_listed or node is None:
            raise HostError(
                "list the pods and the Node of", self._node_name, "no answer from the API server yet"
            )
        items = list(self._pods.objects.values())
        content = msgspec.json.encode({"kind": "PodList", "apiVersion": "v1", "items": items})
        typed_node = {"kind": "Node", "apiVersion": "v1", **_without_reports(node)}
        return PodList(content=content, is_watched=True, may_lag=True, node=msgspec.json.encode(typed_node))

    def routines(self) -> list[Coroutine[Any, Any, None]]:
        """What follows the objects, until it is cancelled."""
        return [self._pods.run(), self._node.run()]

    def _notice(self, _uid: str) -> None:
        self.on_change()


def _without_reports(node: dict[str, Any]) -> dict[str, Any]:
    """The Node without what kubelets renew and what the exporter itself writes, so that these are no changes."""
    metadata, status = dict(node.get("metadata") or {}), dict(node.get("status") or {})
    for name in ("resourceVersion", "annotations", "managedFields"):
        metadata.pop(name, None)
    for name in ("conditions", "images", "volumesInUse", "volumesAttached"):
        status.pop(name, None)
    return {**node, "metadata": metadata, "status": status}


class Publisher:
    """Writes summaries of the export to the API server, not more often than every five seconds."""

    def __init__(
        self, api: ClusterAPI, options: ExportOptions, pods: ClusterPods, feed: ExportFeed, clock: Clock
    ) -> None:
        self._api, self._options, self._pods, self._feed, self._clock = api, options, pods, feed, clock
        self._errors: dict[str, str] = {}

    async def run(self) -> None:
        """Publishes each change until it is cancelled."""
        generation = 0
        while True:
            if not await self._feed.wait_after(generation, _LONGEST_RETRY_S):
                generation = 0
                continue
            generation = self._feed.generation
            for name in self._options.publish:
                write = self._write_annotations if name == "annotation" else self._write_topology
                await self._attempt(name, write)
            await self._clock.sleep(MIN_WRITE_PERIOD_S)

    async def _attempt(self, name: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Writes; reports an error when it begins and when it ends."""
        try:
            await write()
        except Exception as error:  # noqa: BLE001 - an odd answer must not end the export
            if self._errors.get(name) != str(error):
                print_log_line(f"the {name} is not published: {error}")
            self._errors[name] = str(error)
        else:
            if self._errors.pop(name, None) is not None:
                print_log_line(f"the {name} is published again")

    async def _write_annotations(self) -> None:
        node, digest = self._pods.node, self._feed.digest
        annotations = {DIGEST_ANNOTATION: digest}
        if self._options.advertise:
            annotations[EXPORT_URL] = self._options.advertise
        if node is None:
            return
        known = (node.get("metadata") or {}).get("annotations") or {}
        if any(known.get(key) != text for key, text in annotations.items()):
            path = api_path(NODES, node["metadata"]["name"])
            await self._api.patch(path, {"metadata": {"annotations": annotations}})

    async def _write_topology(self) -> None:
        served, node = self._feed.current(), self._pods.node
        if served is None or node is None:
            return
        from nodewright.predict.node import Node  # noqa: PLC0415 - 2 MiB, for this alone
        from nodewright.predict.node_report.node_resource_topology import (  # noqa: PLC0415 - with the engine
            node_resource_topology,
            topology_source,
        )

        profile = served.export.profile
        topology = node_resource_topology(topology_source(Node.from_profile(profile).state))
        await write_topology(self._api, topology, node)


class ExportMember:
    """The exporter's tasks in its cluster."""

    def __init__(self, pods: ClusterPods, publisher: Publisher | None) -> None:
        self.pods, self._publisher = pods, publisher

    def tasks(self) -> list["asyncio.Future[None]"]:
        """Starts the tasks; to be cancelled by the caller."""
        routines = self.pods.routines()
        if self._publisher is not None:
            routines.append(self._publisher.run())
        return [asyncio.ensure_future(routine) for routine in routines]


@asynccontextmanager
async def export_member(
    options: ExportOptions, node_name: str, feed: ExportFeed, clock: Clock
) -> AsyncIterator[ExportMember]:
    """The exporter in its cluster.

    Errors: InputError with the faults of the kubeconfig.
    """
    access = load_access(AccessOptions(kubeconfig=options.kubeconfig), os.environ)
    async with ApiClient(access) as api:
        pods = ClusterPods(api, node_name, clock)
        publisher = Publisher(api, options, pods, feed, clock) if options.publish else None
        yield ExportMember(pods, publisher)
