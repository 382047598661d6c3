"""A fake API server on a real socket: lists with pages, watches, patches, conflicts, and every kind of bad answer."""

import base64
import json
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.support.fake_api_objects import (
    Document,
    FakeObjects,
    ResourcePath,
    StatusError,
    parse_path,
)
from tests.support.fake_api_patches import patched
from tests.support.fake_api_selectors import has_fields, has_labels

KINDS = {"nodes": "Node", "pods": "Pod", "configmaps": "ConfigMap", "leases": "Lease", "events": "Event"}


class ReceivedRequest(NamedTuple):
    """What a client sent."""

    verb: str
    path: str
    query: dict[str, str]
    headers: Message
    body: bytes


class CannedAnswer(NamedTuple):
    """An answer whatever is asked; ``raw`` is sent instead of a response, then the connection ends."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    raw: bytes | None = None
    hangs: bool = False
    """Nothing more is sent until the server stops."""


class FakeApiServer(FakeObjects):
    """The server; its attributes are the cluster, and what goes wrong."""

    def __init__(self, certificate: tuple[Path, Path] | None = None, authority: Path | None = None) -> None:
        super().__init__()
        self.requests: list[ReceivedRequest] = []
        self.users: dict[str, str] = {}
        """Users by the value of Authorization; empty: every request is allowed."""
        self.forbidden: set[tuple[str, str]] = set()
        """Verbs (`get`, `list`, ...) and resources, with their subresource, that are answered with 403."""
        self.forbidden_users: set[str] = set()
        """Users who may do nothing."""
        self.canned: dict[str, list[CannedAnswer]] = defaultdict(list)
        """Answers by path, the first of which the next request receives."""
        self.fixed: dict[str, CannedAnswer] = {}
        """Answers by path for every request, e.g. of a node's proxy."""
        self.stopped = threading.Event()
        self.watches = 0
        """How many watches are open."""
        self.connections = 0
        """How many connections were accepted so far."""
        self._epoch = 0
        self._is_broken = False
        self._bookmarks = 0
        self._sent_bookmarks = 0
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self.port = self._server.server_address[1]
        self.is_secure = certificate is not None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            if authority is not None:
                context.load_verify_locations(authority)
                context.verify_mode = ssl.CERT_OPTIONAL
            self._server.tls = context

    @property
    def url(self) -> str:
        return f"http{'s' if self.is_secure else ''}://127.0.0.1:{self.port}"

    def add(self, collection: str, *documents: Document) -> None:
        """Creates the objects in the collection of the path, e.g. `/api/v1/namespaces/shop/pods`."""
        path = parse_path(collection)
        assert path is not None
        for document in documents:
            self.create(path, document)

    def serve(
        self, path: str, body: Any, *, status: int = 200, content_type: str = "application/json"
    ) -> None:
        """Answers each request of the path with the body; a document as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.fixed[path] = CannedAnswer(status, content, (("Content-Type", content_type),))

    def bookmark(self) -> None:
        """Sends a bookmark with the current version to each watch that asked for them."""
        with self.changed:
            self._bookmarks += 1
            self.changed.notify_all()

    def wait_for_bookmarks(self, number: int = 1) -> None:
        """Waits until so many bookmarks were sent."""
        with self.changed:
            assert self.changed.wait_for(lambda: self._sent_bookmarks >= number, 30)

    def end_watches(self, *, is_broken: bool = False) -> None:
        """Ends each watch: with the end of the stream, or in the middle of a line."""
        with self.changed:
            self._epoch += 1
            self._is_broken = is_broken
            self.changed.notify_all()

    def wait_for_watches(self, number: int = 1) -> None:
        """Waits until so many watches are open."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.watches >= number, 30)

    def wait_for_requests(self, number: int) -> None:
        """Waits until so many requests were received."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= number, 30)

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def stop(self) -> None:
        self.stopped.set()
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def fake_api_server(
    certificate: tuple[Path, Path] | None = None, authority: Path | None = None
) -> Iterator[FakeApiServer]:
    """A running server."""
    server = FakeApiServer(certificate, authority)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    tls: ssl.SSLContext | None = None
    api: FakeApiServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no errors."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        with self.server.api.changed:
            self.server.api.connections += 1
        if self.server.tls is not None:  # Here, so that a slow handshake holds up one thread only.
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.request.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        api, parts = self.server.api, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = ReceivedRequest(self.command, parts.path, query, self.headers, body)
        with api.changed:
            api.requests.append(request)
            api.changed.notify_all()
            canned = api.canned[parts.path].pop(0) if api.canned[parts.path] else None
        try:
            if canned is None:
                self._authorize(request)
                canned = api.fixed.get(parts.path)
            if canned is not None:
                self._send_canned(canned)
                return
            path = parse_path(parts.path)
            if path is None:
                self._send(
                    404, StatusError(404, "NotFound", "the server could not find the requested resource").body
                )
                return
            if request.verb == "GET" and query.get("watch") in ("1", "true"):
                self._watch(path, query)
                return
            self._send(201 if request.verb == "POST" else 200, self._document(path, request))
        except StatusError as error:
            self._send(error.code, error.body)

    def _authorize(self, request: ReceivedRequest) -> None:
        api, path = self.server.api, parse_path(request.path)
        user = api.users.get(self.headers.get("Authorization", ""), "")
        certificate = self.request.getpeercert() if isinstance(self.request, ssl.SSLSocket) else None
        if certificate:
            subject: Any = certificate["subject"]
            user = dict(pair for part in subject for pair in part)["commonName"]
        if api.users and not user:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        user = self.headers.get("Impersonate-User") or user
        verb = {"POST": "create", "PUT": "update"}.get(request.verb, request.verb.lower())
        if verb == "get" and path is not None and not path.name:
            verb = "list"
        resource = "/".join(filter(None, (path.resource, path.subresource.split("/")[0]))) if path else ""
        is_forbidden = (verb, resource) in api.forbidden or user in api.forbidden_users
        if is_forbidden and path is not None:
            group = path.api_version.rpartition("/")[0]
            message = (
                f'{path.resource} {f"{json.dumps(path.name)} " if path.name else ""}is forbidden: User "{user}" cannot '
                f'{verb} resource "{resource}" in API group "{group}" at the cluster scope'
            )
            raise StatusError(403, "Forbidden", message)

    def _document(self, path: ResourcePath, request: ReceivedRequest) -> Document:
        api = self.server.api
        body = json.loads(request.body) if request.body else {}
        if request.verb == "GET":
            return api.find(path) if path.name else self._list(path, request.query)
        if request.verb == "POST":
            return api.create(path, body)
        if request.verb == "PUT":
            return api.replace(path, body)
        if request.verb == "DELETE":
            return api.delete(path, body.get("preconditions") or {})
        with api.changed:
            current = api.find(path)
            content_type = self.headers.get("Content-Type", "")
            document = patched(current, body, content_type)
            if isinstance(body, dict) and "resourceVersion" not in body.get("metadata", {}):
                document["metadata"].pop("resourceVersion", None)
            return api.replace(path, document)

    def _list(self, path: ResourcePath, query: dict[str, str]) -> Document:
        api, limit = self.server.api, int(query.get("limit", "0"))
        if token := query.get("continue"):
            version, remaining = api.rest_of_pages(token)
        else:
            with api.changed:
                version, remaining = (
                    api.version,
                    [
                        document
                        for document in api.objects(path)
                        if has_labels(document, query.get("labelSelector", ""))
                        and has_fields(document, query.get("fieldSelector", ""))
                    ],
                )
        page, token = api.page(remaining, version, limit)
        items = [
            {name: value for name, value in item.items() if name not in ("kind", "apiVersion")}
            for item in page
        ]
        metadata: Document = {"resourceVersion": str(version)}
        if token:
            metadata |= {"continue": token, "remainingItemCount": len(remaining) - len(page)}
        kind = f"{KINDS.get(path.resource, path.resource.removesuffix('s').capitalize())}List"
        return {"kind": kind, "apiVersion": path.api_version, "metadata": metadata, "items": items}

    def _watch(self, path: ResourcePath, query: dict[str, str]) -> None:
        api, version = self.server.api, int(query.get("resourceVersion") or 0)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with api.changed:
            if version < api.compacted:
                message = f"too old resource version: {version} ({api.compacted})"
                self._event("ERROR", StatusError(410, "Expired", message).body)
                self.wfile.write(b"0\r\n\r\n")
                return
            api.watches += 1
            api.changed.notify_all()
            try:
                with suppress(OSError):
                    self._stream(path, query, version)
            finally:
                api.watches -= 1
                api.changed.notify_all()

    def _stream(self, path: ResourcePath, query: dict[str, str], version: int) -> None:
        """Sends changes until the watch ends; with the lock, which waiting releases."""
        api = self.server.api
        epoch, bookmarks = api._epoch, api._bookmarks
        end_s = time.monotonic() + float(query.get("timeoutSeconds", "1800"))
        while api._epoch == epoch and time.monotonic() < end_s:
            for event in list(api.events_after(version, path)):
                version = event.version
                if has_labels(event.object, query.get("labelSelector", "")) and has_fields(
                    event.object, query.get("fieldSelector", "")
                ):
                    self._event(event.type, event.object)
            if api._bookmarks > bookmarks and query.get("allowWatchBookmarks") == "true":
                bookmarks = api._bookmarks
                kind = KINDS.get(path.resource, "")
                metadata = {"resourceVersion": str(api.version), "creationTimestamp": None}
                self._event("BOOKMARK", {"kind": kind, "apiVersion": path.api_version, "metadata": metadata})
                api._sent_bookmarks += 1
                api.changed.notify_all()
            api.changed.wait(end_s - time.monotonic())
        if api._is_broken:
            self.wfile.write(b'20\r\n{"type":"ADDED","object":{"meta')
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, kind: str, document: Document) -> None:
        line = json.dumps({"type": kind, "object": document}).encode() + b"\n"
        # Two chunks, so that no client takes a chunk for an event.
        for chunk in (line[: len(line) // 2], line[len(line) // 2 :]):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def _send_canned(self, canned: CannedAnswer) -> None:
        if canned.raw is None and not canned.hangs:
            self._send_bytes(canned.status, canned.body, canned.headers)
            return
        self.wfile.write(canned.raw or b"")
        if canned.hangs:
            self.server.api.stopped.wait()
        self.close_connection = True

    def _send(self, status: int, document: Document) -> None:
        self._send_bytes(status, json.dumps(document).encode(), (("Content-Type", "application/json"),))

    def _send_bytes(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def kubeconfig_text(server: FakeApiServer, authority: Path | None = None, **user: Any) -> str:
    """A kubeconfig for the server, as JSON; ``user``: the user's fields."""
    cluster: Document = {"server": server.url}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority.read_bytes()).decode()
    return json.dumps(
        {
            "kind": "Config",
            "apiVersion": "v1",
            "current-context": "test",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "tester", "user": user}],
            "contexts": [
                {"name": "test", "context": {"cluster": "fake", "user": "tester", "namespace": "shop"}}
            ],
        }
    )
