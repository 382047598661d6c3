"""An agent that answers with other JSON than agents do: one line, never a traceback."""

import asyncio
import copy
import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.support.command_bench import PINNED, CommandBench, with_agent

from nodewright.cli.app import run
from nodewright.cluster.client.agent_client import PROFILE_ROUTE, AgentClient
from nodewright.documents.output.terminal import ERROR, YES

PODS, POD = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/pinned"
NODES, USAGE, EVENTS = "/api/v1/nodes", "/nodewright/v1/usage", "/api/v1/namespaces/default/events"
WHY, PROFILE = "/nodewright/v1/namespaces/default/pods/pinned/why", f"/{PROFILE_ROUTE}"
COMMANDS = {
    "get pods -o wide": (PODS,),
    "get pods pinned -o name": (POD,),
    "get node -o wide": (NODES,),
    "get node -o json": (NODES,),
    "get pods -o yaml": (PODS,),
    "get events": (EVENTS,),
    "get events -A": ("/api/v1/events",),
    "top pods --containers": (USAGE,),
    "top node": (USAGE,),
    "describe pod pinned": (POD, WHY, EVENTS),
    "describe node node1": (f"{NODES}/node1", PROFILE, "/api/v1/pods", "/api/v1/events"),
    "logs pinned": (POD,),
}
COUNT = 25
"""Values that are tried in each answer of each command."""
ODD: tuple[Any, ...] = (
    None,
    True,
    5,
    -1,
    1.5,
    10**400,
    "",
    "x",
    "9" * 30,
    [],
    [5],
    {},
    {"a": 5},
    float("nan"),
)


@contextmanager
def agent_with(path: Path, answers: Mapping[str, Any]) -> Iterator[None]:
    """A socket that gives these answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers.get(urlsplit(self.path).path, "")).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

        def address_string(self) -> str:
            return "socket"

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in the document."""
    yield path
    parts = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in parts:
        yield from places(value, (*path, key))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at the path."""
    if not path:
        return value
    changed = copy.deepcopy(document)
    part = changed
    for key in path[:-1]:
        part = part[key]
    if value == "" and isinstance(part, dict):
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return changed


@with_agent()
async def test_no_answer_of_an_agent_gives_a_traceback(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(PINNED))

    client = AgentClient(commands.path)
    routes = sorted({route for each in COMMANDS.values() for route in each})
    answers = {route: await asyncio.to_thread(client.get, route[1:]) for route in routes}
    random = Random(7)
    failed = []

    def try_all() -> None:
        odd = commands.folder / "odd.sock"
        served = dict(answers)
        with agent_with(odd, served):
            for command, read in COMMANDS.items():
                assert run([*command.split(), "--socket", str(odd)]) == YES, command
                for route in read:
                    found = list(places(answers[route]))
                    for path in random.sample(found, min(len(found), COUNT)):
                        value = random.choice(ODD)
                        served[route] = with_value(answers[route], path, value)
                        try:
                            assert run([*command.split(), "--socket", str(odd)]) in (YES, ERROR)
                        except Exception as error:  # noqa: BLE001 - every kind is a finding
                            failed.append((command, route, path, str(value)[:20], repr(error)[:200]))
                    served[route] = answers[route]

    await asyncio.to_thread(try_all)
    assert not failed, "\n".join(map(str, failed))
