"""The storage of the fake API server: objects by resource, versions, pages and the events of watches."""

import copy
import json
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

Document = dict[str, Any]


class ResourcePath(NamedTuple):
    """The parts of a path of the API."""

    api_version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def parse_path(path: str) -> ResourcePath | None:
    """The parts; None for a path that names no resource."""
    parts = path.strip("/").split("/")
    if parts[:1] == ["api"] and len(parts) >= 3:
        api_version, rest = parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        api_version, rest = "/".join(parts[1:3]), parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    return ResourcePath(api_version, rest[0], namespace, rest[1] if len(rest) > 1 else "", "/".join(rest[2:]))


class StatusError(Exception):
    """An answer with a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


class StoredEvent(NamedTuple):
    """A change, as watches report it."""

    version: int
    type: str
    api_version: str
    resource: str
    object: Document


class FakeObjects:
    """Objects and their history; safe for threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 1
        self.history: list[StoredEvent] = []
        self.compacted = 0
        """Watches and pages of this version and before are too old."""
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Document]] = {}
        self._pages: dict[str, tuple[int, list[Document]]] = {}

    def objects(self, path: ResourcePath) -> list[Document]:
        """The objects of a collection, sorted as etcd's keys."""
        stored = self._objects.get((path.api_version, path.resource), {})
        return [document for key, document in sorted(stored.items()) if path.namespace in ("", key[0])]

    def find(self, path: ResourcePath) -> Document:
        """The object of a path."""
        document = self._objects.get((path.api_version, path.resource), {}).get(path.key)
        if document is None:
            raise StatusError(404, "NotFound", f'{path.resource} "{path.name}" not found')
        return document

    def create(self, path: ResourcePath, document: Document) -> Document:
        """The stored object."""
        with self.changed:
            metadata = document.setdefault("metadata", {})
            if "generateName" in metadata and "name" not in metadata:
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            if path.namespace:
                metadata["namespace"] = path.namespace
            path = path._replace(name=metadata["name"], namespace=metadata.get("namespace", ""))
            stored = self._objects.setdefault((path.api_version, path.resource), {})
            if path.key in stored:
                raise StatusError(409, "AlreadyExists", f'{path.resource} "{path.name}" already exists')
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            return self._store(path, "ADDED", document)

    def replace(self, path: ResourcePath, document: Document) -> Document:
        """The stored object instead of the current one, unless its version is another."""
        with self.changed:
            current = self.find(path)
            metadata = document.setdefault("metadata", {})
            version, uid = metadata.get("resourceVersion"), metadata.get("uid")
            if version and version != current["metadata"]["resourceVersion"]:
                message = (
                    f'Operation cannot be fulfilled on {path.resource} "{path.name}": the object has been modified; '
                    "please apply your changes to the latest version and try again"
                )
                raise StatusError(409, "Conflict", message)
            if uid and uid != current["metadata"]["uid"]:
                raise StatusError(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
            for name in ("uid", "creationTimestamp", "name", "namespace"):
                if name in current["metadata"]:
                    metadata[name] = current["metadata"][name]
            if path.subresource == "status":
                document = copy.deepcopy(current) | {"status": document.get("status", {})}
            return self._store(path, "MODIFIED", document)

    def delete(self, path: ResourcePath, preconditions: Document) -> Document:
        """The object that was deleted, unless it is another than the preconditions name."""
        with self.changed:
            current = self.find(path)
            for name, value in preconditions.items():
                if current["metadata"].get(name) != value:
                    raise StatusError(409, "Conflict", f"Precondition failed: {name}: {value}")
            del self._objects[path.api_version, path.resource][path.key]
            return self._record(path, "DELETED", current)

    def compact(self) -> None:
        """Makes all versions before now too old for watches and pages."""
        with self.changed:
            self.compacted = self.version
            self._pages.clear()

    def page(self, remaining: list[Document], version: int, limit: int) -> tuple[list[Document], str]:
        """The objects of a page, and the token of the next; empty after the last."""
        with self.changed:
            if not limit or len(remaining) <= limit:
                return remaining, ""
            token = uuid.uuid4().hex
            self._pages[token] = version, remaining[limit:]
            return remaining[:limit], token

    def rest_of_pages(self, token: str) -> tuple[int, list[Document]]:
        """The version of a list and its objects that no page has had yet."""
        with self.changed:
            if token not in self._pages:
                message = "The provided continue parameter is too old to display a consistent list result."
                raise StatusError(410, "Expired", message)
            return self._pages[token]

    def events_after(self, version: int, path: ResourcePath) -> Iterator[StoredEvent]:
        """The changes of a collection after a version."""
        for event in self.history:
            is_of_collection = (event.api_version, event.resource) == path[:2]
            is_of_namespace = path.namespace in ("", event.object["metadata"].get("namespace"))
            if event.version > version and is_of_collection and is_of_namespace:
                yield event

    def _store(self, path: ResourcePath, kind: str, document: Document) -> Document:
        document = self._record(path, kind, document)
        self._objects[path.api_version, path.resource][path.key] = document
        return document

    def _record(self, path: ResourcePath, kind: str, document: Document) -> Document:
        self.version += 1
        document = json.loads(json.dumps(document))
        document["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(StoredEvent(self.version, kind, path.api_version, path.resource, document))
        self.changed.notify_all()
        return document
