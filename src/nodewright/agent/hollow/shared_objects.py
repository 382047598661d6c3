"""One watch for many nodes: each node sees its own objects of a reflector as if it had one to itself."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from nodewright.cluster.client.reflector import Reflector, newest_object
from nodewright.cluster.tasks.supervision import error_text
from nodewright.model.errors import shortened
from nodewright.model.kubernetes.recorded_events import RecordEvent


class NodeObjects:
    """Fulfils `ObjectView` with the objects of one node."""

    def __init__(self, reflector: Reflector) -> None:
        self._reflector = reflector
        self.objects: dict[str, dict[str, Any]] = {}
        self.has_listed = False
        self.on_change: Callable[[str], None] = lambda _uid: None

    def put(self, document: dict[str, Any]) -> None:
        """Takes over an object that a write has returned, unless a newer one is known."""
        self._reflector.put(document)
        uid = str(document["metadata"]["uid"])
        if uid in self.objects:
            self.objects[uid] = newest_object(self.objects[uid], self._reflector.objects.get(uid, document))


class SharedObjects:
    """Passes on the objects of a reflector to the nodes that they belong to.

    ``name_of`` gives the name of an object's node. Of objects of other nodes only their metadata is kept.

    The nodes get one change in each round of the event loop. If the watch brings thousands of pods, they start one after
    the other, and requests that are answered meanwhile wait for the decision of one node, not of all.
    """

    def __init__(
        self, reflector: Reflector, names: frozenset[str], name_of: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self.reflector, self._name_of = reflector, name_of
        self._views = {name: NodeObjects(reflector) for name in names}
        self._name_by_uid: dict[str, str] = {}
        self._uids: dict[tuple[str, str], str] = {}
        """The uids of the nodes' objects, by namespace and name."""
        self._changes: dict[tuple[str, str], None] = {}
        """The changes that nodes have not got yet, by the node's name and the object's uid."""
        self.listed = asyncio.Event()
        """Set once a whole list has been received."""
        reflector.reduce, reflector.on_change = self._reduced, self._pass_on

    def of(self, name: str) -> NodeObjects:
        """The objects of a node."""
        return self._views[name]

    def node_with(self, namespace: str, name: str) -> str:
        """The name of the node that an object belongs to; empty: to none of the nodes."""
        return self._name_by_uid.get(self._uids.get((namespace, name), ""), "")

    def _reduced(self, document: dict[str, Any]) -> dict[str, Any]:
        """What is kept: thousands of pods take half the memory without the fields that only the API server uses."""
        meta = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
        if self._name_of(document) in self._views:
            return {**document, "metadata": meta}
        return {
            "metadata": {name: meta.get(name) for name in ("uid", "name", "namespace", "resourceVersion")}
        }

    def _pass_on(self, uid: str) -> None:
        if not uid:
            self._pass_on_list()
            return
        document = self.reflector.objects.get(uid)
        if document is None:
            name = self._name_by_uid.pop(uid, "")
        else:
            name = self._name_by_uid.get(uid) or self._name_of(document)
        view = self._views.get(name)
        if view is None:
            return
        if document is None:
            key = _key_of(view.objects.pop(uid))
            if self._uids.get(key) == uid:
                del self._uids[key]
        else:
            self._name_by_uid[uid], self._uids[_key_of(document)] = name, uid
            view.objects[uid] = document
        self._announce(name, uid)

    def _pass_on_list(self) -> None:
        by_name: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in self._views}
        self._name_by_uid, self._uids = {}, {}
        for uid, document in self.reflector.objects.items():
            name = self._name_of(document)
            if name in by_name:
                by_name[name][uid] = document
                self._name_by_uid[uid], self._uids[_key_of(document)] = name, uid
        for name, view in self._views.items():
            view.objects, view.has_listed = by_name[name], True
            self._announce(name, "")
        self.listed.set()

    def _announce(self, name: str, uid: str) -> None:
        if not self._changes:
            asyncio.get_running_loop().call_soon(self._announce_next)
        self._changes[name, uid] = None

    def _announce_next(self) -> None:
        name, uid = next(iter(self._changes))
        del self._changes[name, uid]
        if self._changes:
            asyncio.get_running_loop().call_soon(self._announce_next)
        try:
            self._views[name].on_change(uid)
        except Exception as error:  # noqa: BLE001 - what one node cannot read concerns no other node
            text = shortened(f"node {name}: {error_text(error)}")
            self.reflector.record_event(RecordEvent.warning("ObjectNotRead", text))


def _key_of(document: Mapping[str, Any]) -> tuple[str, str]:
    meta = document["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])


def node_of_pod(document: Mapping[str, Any]) -> str:
    """The name of the node that a pod is bound to."""
    return str((document.get("spec") or {}).get("nodeName") or "")


def name_of_node(document: Mapping[str, Any]) -> str:
    """The name of a Node."""
    return str(document["metadata"]["name"])
