"""An API server in memory, with faults of the network; what it stores is checked by whoever looks at the machine."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from copy import deepcopy
from typing import Any

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.values.instant import Instant

PODS_OF_ALL, PODS, NODES = "/api/v1/pods", "/api/v1/namespaces/default/pods", "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
TERMINAL_PHASES = ("Succeeded", "Failed")
_MERGED_LISTS = {"conditions": "type", "podIPs": "ip", "hostIPs": "ip"}

Document = dict[str, Any]


class MemoryCluster:
    """Fulfils `ClusterAPI`; objects are created and deleted by the test with the methods of its second half."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self._clock, self._random = clock, random.Random(seed)
        self.objects: dict[str, Document] = {}
        """Objects by path."""
        self.is_reachable = True
        self.failure_rate = 0.0
        """The share of requests that fail; of writes half are carried out all the same."""
        self.refused = ""
        """Writes to paths that begin so are forbidden; empty: none."""
        self.delay_s = 0.0
        """The longest delay of an answer."""
        self.on_end: Callable[[str, str], None] = lambda _uid, _how: None
        """Called when the agent has a pod count as ended: with a terminal phase, or without its object."""
        self.requests: list[tuple[str, str]] = []
        """The verbs and paths of all writes."""
        self.reads: list[str] = []
        """The paths of all reads and lists, with the name that a list selects."""
        self.watched: list[str] = []
        """The paths that are being watched, likewise."""
        self.tokens: list[Document] = []
        """All requests for tokens."""
        self.oldest_version = 0
        """Watches from before this version have expired."""
        self._version = 0
        self._history: list[tuple[int, str, str, Document]] = []
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ as the agent uses it

    async def read(self, path: str, query: Mapping[str, str]) -> Document:
        """An object or a list."""
        self.reads.append(_described(path, query))
        await self._travel("GET", path)
        await self._return("GET", path)
        if "limit" in query:
            items = [document for place, document in self.objects.items() if _is_selected(place, path, query)]
            return {"metadata": {"resourceVersion": str(self._version)}, "items": deepcopy(items)}
        return deepcopy(self._found("GET", path))

    async def create(self, path: str, document: Mapping[str, Any]) -> Document:
        """Creates an object."""
        await self._travel("POST", path)
        if path.endswith("/token"):
            return self._token(document)
        place = f"{path}/{document['metadata']['name']}"
        if place in self.objects:
            raise ApiError("POST", path, "already exists", status=409, reason="AlreadyExists")
        created = deepcopy(dict(document))
        created["metadata"] = {"uid": f"uid-of-{document['metadata']['name']}", **created["metadata"]}
        if path == PODS:
            # A pod of the node itself has no status of its own.
            created["metadata"] |= {"uid": f"mirror-{self._version}", "namespace": "default"}
            created["status"] = {"phase": "Pending"}
        self._store("ADDED", place, created)
        await self._return("POST", path)
        return deepcopy(self.objects.get(place, created))

    async def update(self, path: str, document: Mapping[str, Any]) -> Document:
        """Replaces an object."""
        await self._travel("PUT", path)
        result = self._found("PUT", path)
        if result["metadata"]["resourceVersion"] != document["metadata"].get("resourceVersion"):
            raise ApiError("PUT", path, "the object has been modified", status=409, reason="Conflict")
        self._store("MODIFIED", path, deepcopy(dict(document)))
        await self._return("PUT", path)
        return deepcopy(self._found("PUT", path))

    async def patch(self, path: str, document: Mapping[str, Any]) -> Document:
        """Applies a strategic merge patch to the status and the metadata."""
        await self._travel("PATCH", path)
        place = path.removesuffix("/status")
        result = self._found("PATCH", place)
        uid = document.get("metadata", {}).get("uid", result["metadata"]["uid"])
        if uid != result["metadata"]["uid"]:
            raise ApiError(
                "PATCH", path, "the UID in the precondition differs", status=409, reason="Conflict"
            )
        patched = merged_document(result, document)
        was, phase = result.get("status", {}).get("phase"), patched.get("status", {}).get("phase")
        if phase in TERMINAL_PHASES and was not in TERMINAL_PHASES:
            self.on_end(uid, phase)
        assert was not in TERMINAL_PHASES or phase == was, f"{place}: {was} became {phase}"
        self._store("MODIFIED", place, patched)
        await self._return("PATCH", path)
        return deepcopy(patched)

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Deletes an object at once: the agent has no other way."""
        await self._travel("DELETE", path)
        document = self._found("DELETE", path)
        assert options["gracePeriodSeconds"] == 0
        if options["preconditions"]["uid"] != document["metadata"]["uid"]:
            raise ApiError(
                "DELETE", path, "the UID in the precondition differs", status=409, reason="Conflict"
            )
        self.on_end(document["metadata"]["uid"], "deleted")
        self._remove(path)
        await self._return("DELETE", path)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Document]:
        """The events since a version."""
        await self._travel("WATCH", path)
        version = int(query["resourceVersion"])
        if version < self.oldest_version:
            yield {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
            return
        self.watched.append(_described(path, query))
        try:
            async for event in self._events(path, query, version):
                yield event
        finally:
            self.watched.remove(_described(path, query))

    async def _events(self, path: str, query: Mapping[str, str], version: int) -> AsyncIterator[Document]:
        while True:
            self._require_reachable(path)
            later = [entry for entry in self._history if entry[0] > version]
            for number, kind, place, document in later:
                version = number
                # Events arrive one by one.
                await self._clock.sleep(self.delay_s * self._random.random())
                self._require_reachable(path)
                if _is_selected(place, path, query):
                    yield {"type": kind, "object": deepcopy(document)}
            if not later:
                await self._changed.wait()

    def _token(self, request: Mapping[str, Any]) -> Document:
        self.tokens.append(deepcopy(dict(request)))
        expires = Instant(self._clock.now_ns() + request["spec"]["expirationSeconds"] * 10**9)
        status = {"token": f"token-{len(self.tokens)}", "expirationTimestamp": str(expires.whole_second)}
        return {**request, "status": status}

    def _require_reachable(self, path: str) -> None:
        if not self.is_reachable:
            raise ApiError("WATCH", path, "connection reset")

    async def _travel(self, verb: str, path: str) -> None:
        """The way of a request to the server."""
        if verb not in ("GET", "WATCH"):
            self.requests.append((verb, path))
        await self._clock.sleep(self.delay_s * self._random.random())
        if not self.is_reachable or self._random.random() < self.failure_rate / 2:
            raise ApiError(verb, path, "connection refused")
        if self.refused and path.startswith(self.refused):
            raise ApiError(verb, path, "forbidden", status=403, reason="Forbidden")

    async def _return(self, verb: str, path: str) -> None:
        """The way of an answer from the server."""
        await self._clock.sleep(self.delay_s * self._random.random())
        if not self.is_reachable or self._random.random() < self.failure_rate / 2:
            raise ApiError(verb, path, "connection reset")

    def _found(self, verb: str, path: str) -> Document:
        if path not in self.objects:
            raise ApiError(verb, path, "not found", status=404, reason="NotFound")
        return self.objects[path]

    # ------------------------------------------------------------ as others use it

    def partition(self, *, is_reachable: bool) -> None:
        """Separates the agent from the server, or joins them again."""
        self.is_reachable = is_reachable
        self._wake()

    def create_pod(self, name: str, uid: str, container: str, **spec: Any) -> None:
        """A pod that is bound to the node."""
        metadata = {"name": name, "namespace": "default", "uid": uid, "generation": 1}
        metadata["creationTimestamp"] = "2027-01-15T08:00:00Z"
        full = {
            "nodeName": "node1",
            "containers": [{"name": container, "image": "none"}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 3,
            **spec,
        }
        document = {"metadata": metadata, "spec": full, "status": {"phase": "Pending"}}
        self._store("ADDED", f"{PODS}/{name}", document)

    def delete_pod(self, name: str, *, is_forced: bool = False) -> None:
        """Deletes a pod as kubectl does, or at once."""
        place = f"{PODS}/{name}"
        if is_forced:
            self._remove(place)
            return
        document = deepcopy(self.objects[place])
        document["metadata"] |= {
            "deletionTimestamp": "2027-01-15T09:00:00Z",
            "deletionGracePeriodSeconds": document["spec"]["terminationGracePeriodSeconds"],
            "generation": 2,
        }
        self._store("MODIFIED", place, document)

    def pods(self) -> dict[str, Document]:
        """All pods by name."""
        return {
            document["metadata"]["name"]: document
            for place, document in self.objects.items()
            if _is_listed(place, PODS_OF_ALL)
        }

    def expire_watches(self) -> None:
        """Watches from before now have to list again."""
        self.oldest_version = self._version
        self._wake()

    def put(self, path: str, document: Document) -> None:
        """Stores any object, as another client does."""
        self._store("MODIFIED" if path in self.objects else "ADDED", path, deepcopy(document))

    def remove(self, path: str) -> None:
        """Removes any object, as another client does."""
        self._remove(path)

    def _store(self, kind: str, path: str, document: Document) -> None:
        self._version += 1
        document["metadata"] = {**document["metadata"], "resourceVersion": str(self._version)}
        self.objects[path] = document
        self._history.append((self._version, kind, path, deepcopy(document)))
        self._wake()

    def _remove(self, path: str) -> None:
        document = self.objects.pop(path)
        self._version += 1
        document["metadata"] = {**document["metadata"], "resourceVersion": str(self._version)}
        self._history.append((self._version, "DELETED", path, document))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _is_listed(place: str, path: str) -> bool:
    return place.startswith(f"{PODS}/" if path == PODS_OF_ALL else f"{path}/")


def _is_selected(place: str, path: str, query: Mapping[str, str]) -> bool:
    name = _selected_name(query)
    return _is_listed(place, path) and (not name or place == f"{path}/{name}")


def _selected_name(query: Mapping[str, str]) -> str:
    field, _, name = query.get("fieldSelector", "").partition("=")
    return name if field == "metadata.name" else ""


def _described(path: str, query: Mapping[str, str]) -> str:
    return "/".join(filter(None, (path, _selected_name(query))))


def merged_document(document: Any, patch: Any) -> Any:
    """The document after a strategic merge patch."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        elif name in _MERGED_LISTS and isinstance(value, list):
            key = _MERGED_LISTS[name]
            items = {item[key]: item for item in merged.get(name) or ()}
            for item in value:
                if item.get("$patch") == "delete":
                    items.pop(item[key], None)
                else:
                    items[item[key]] = merged_document(items.get(item[key]), item)
            merged[name] = list(items.values())
        elif isinstance(value, list):
            merged[name] = [item for item in value if item != {"$patch": "replace"}]
        else:
            merged[name] = merged_document(merged.get(name), value)
    return merged
