"""Every request of the socket that changes something is answered once the change is stored."""

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from tests.support.agent_bench import AgentBench
from tests.support.fake_clock import settle

from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.agent_server import agent_application
from nodewright.agent.serving.api_objects import NodeSystemInfo

SLOW_S = 3
PODS = "/api/v1/namespaces/default/pods"


def a_body(name: str, cpu: str = "1m") -> bytes:
    container = {"name": "main", "image": "a", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default"}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    ).encode()


class Served(NamedTuple):
    """An agent with its application."""

    bench: AgentBench
    app: Starlette

    async def answer(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        """Status and body of an answer."""
        sent: list[dict[str, Any]] = []
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [],
            "query_string": query.encode(),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def served(bench: AgentBench, deletion_error: str = "") -> Served:
    recorder = EventRecorder(bench.loop.state, bench.clock)
    bench.loop.subscriber = recorder
    agent = AgentInterface(
        event_recorder=recorder,
        observe=bench.loop.observe,
        runtime=bench.runtime,
        clock=bench.clock,
        system_info=NodeSystemInfo(kubelet_version="", started_ns=0, container_runtime_version=""),
        log_root=Path("/logs"),
        storage_error=lambda: bench.loop.write_queue.error,
        deletion_error=lambda: deletion_error,
    )
    return Served(bench, agent_application(agent))


CHANGES = {
    ("POST", PODS): ("POST", PODS, a_body("new")),
    ("PUT", f"{PODS}/old/resize"): ("PUT", f"{PODS}/old/resize", a_body("old", "2m")),
    ("DELETE", f"{PODS}/old"): ("DELETE", f"{PODS}/old?gracePeriodSeconds=5", b""),
}


async def is_answered_once_stored(node: Served, request: Awaitable[tuple[int, dict[str, Any]]]) -> int:
    answer = asyncio.ensure_future(request)
    await settle()
    assert not answer.done()
    # An earlier write may have to end first.
    await node.bench.clock.advance(2 * SLOW_S)
    assert answer.done()
    return answer.result()[0]


@pytest.mark.parametrize("change", CHANGES.values(), ids=[method for method, _ in CHANGES])
def test_a_change_is_answered_once_it_is_stored(change: tuple[str, str, bytes]) -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            node = served(bench)
            assert (await node.answer("POST", PODS, a_body("old")))[0] == 201
            await settle()
            bench.use_slow_disk(SLOW_S)
            assert await is_answered_once_stored(node, node.answer(*change)) in (200, 201)

    asyncio.run(scenario())


def test_a_deletion_with_a_shorter_grace_period_is_stored_as_well() -> None:
    async def scenario() -> None:
        async with AgentBench(main=ContainerScript(ignores_sigterm=True)) as bench:
            node = served(bench)
            await node.answer("POST", PODS, a_body("old"))
            await settle()
            bench.use_slow_disk(SLOW_S)
            for grace_period_s in (30, 5):
                request = node.answer("DELETE", f"{PODS}/old?gracePeriodSeconds={grace_period_s}")
                assert await is_answered_once_stored(node, request) == 200
                (record,) = bench.fake_store.pods.values()
                assert (record.grace_period_s, record.is_in_source) == (grace_period_s, False)

    asyncio.run(scenario())


@pytest.mark.parametrize(("error", "status"), [("", 200), ("rename: read-only file system", 500)])
def test_a_deletion_on_a_full_disk_is_confirmed_only_where_it_is_stored(error: str, status: int) -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            node = served(bench, error)
            await node.answer("POST", PODS, a_body("old"))
            bench.fake_store.is_full = True
            code, document = await node.answer("DELETE", f"{PODS}/old")
            assert code == status
            assert error in json.dumps(document)

    asyncio.run(scenario())


def test_no_other_route_of_the_socket_changes_anything() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            routes = [route for route in served(bench).app.routes if isinstance(route, Route)]
            writing = {
                (method, route.path.format(namespace="default", name="old"))
                for route in routes
                for method in (route.methods or set()) - {"GET", "HEAD"}
            }
            assert writing == set(CHANGES)

    asyncio.run(scenario())
