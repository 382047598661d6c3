"""A server that answers as an API server or an agent would, out of bytes that need not make sense."""

import json
import os
import socketserver
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class _Handler(BaseHTTPRequestHandler):
    """Lists and single objects of the content, whatever the API group and namespace; else all of it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = answer(AnsweringServer.content, urlsplit(self.path).path)
        self.send_response(200 if body is not None else 404)
        body = body if body is not None else b'{"kind": "Status", "code": 404, "reason": "NotFound"}'
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - as the library calls them

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as the library calls it
        """Nothing is logged."""

    def address_string(self) -> str:
        """Clients of unix sockets have no address."""
        return ""


def answer(content: bytes, path: str) -> bytes | None:
    """The body for the path; None: there is no such object."""
    words = path.strip("/").split("/")
    if words[-1] in ("api", "apis", "v1") or (len(words) <= 3 and words[0] == "apis"):
        return None
    try:
        document = json.loads(content)
        items = document["items"]
        kinds = [(str(item["kind"]).lower() + "s", item) for item in items]
    except (ValueError, TypeError, KeyError, RecursionError):
        return content
    plurals: dict[str, list[Any]] = {}
    for plural, item in kinds:
        plurals.setdefault(plural, []).append(item)
    if len(words) > 1 and words[-2] in plurals and words[-1] != "namespaces":
        return json.dumps(plurals[words[-2]][0]).encode()
    if words[-1] in ("usage", "why", "log", "profile"):
        return None  # of an agent alone
    named = plurals.get(words[-1], [])
    if words[-1] == "configz":
        return json.dumps(
            {"kubeletconfig": {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}}}
        ).encode()
    return json.dumps(
        {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": named}
    ).encode()


class AnsweringServer:
    """The servers of this process: on a port, and on a unix socket."""

    content = b""
    """What their answers are made of."""

    def __init__(self, directory: Path) -> None:
        class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.socket = directory / f"agent-{os.getpid()}.sock"
        tcp = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        tcp.daemon_threads = True
        self.url = f"http://127.0.0.1:{tcp.server_port}"
        for server in (tcp, UnixServer(str(self.socket), _Handler)):
            threading.Thread(target=server.serve_forever, daemon=True).start()


@cache
def server_of_process(_pid: int, directory: Path) -> AnsweringServer:
    """The servers of this process; a process that was forked has none of its parent's threads."""
    return AnsweringServer(directory)
