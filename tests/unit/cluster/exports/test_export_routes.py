"""GET /v1/state: the export, 304 for what the client has, long polls, and errors."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.routing import Router

from nodewright.cluster.exports.export_routes import (
    ExportFeed,
    ExportMetricsRoutes,
    ExportReading,
    ExportRoutes,
    HealthRoutes,
    SourceReading,
)
from nodewright.cluster.serving.middleware import RefusalLog
from nodewright.cluster.serving.routes import bare_routes
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.profiles.node_export import SourceState, read_node_export
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.testing.nodes import a_profile

SOURCES = (SourceReading(name="pods", state=SourceState.READ, read_s=0.0, is_watched=True),)


class Counters:
    def counts(self) -> tuple[tuple[str, str, int], ...]:
        return (("readings", "How often the sources were read.", 3),)


def served(*, is_empty: bool = False) -> ExportFeed:
    feed = ExportFeed(HostClock())
    if not is_empty:
        feed.publish(named(cpus=2))
    return feed


def named(cpus: int) -> ExportReading:
    profile = a_profile(1, cpus)

    return ExportReading(profile=replace(profile, metadata=ObjectMeta(name="n1")), sources=SOURCES)


async def get(feed: ExportFeed, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Asks the application without a network."""
    entries = [
        *ExportRoutes(feed).authorized_routes(),
        *HealthRoutes(feed).authorized_routes(),
        *ExportMetricsRoutes(feed, RefusalLog(print), Counters()).authorized_routes(),
    ]
    app, messages = Router(routes=bare_routes(entries)), list[Any]()
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    fields = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], fields, b"".join(message.get("body", b"") for message in messages[1:])


def test_the_export_has_its_digest_as_etag() -> None:
    feed = served()
    code, headers, body = asyncio.run(get(feed, "/v1/state"))
    assert code == 200
    assert headers["etag"] == f'"{read_node_export(body).digest}"'
    for tag in (headers["etag"], f'"other", W/{headers["etag"]}', "*"):
        assert asyncio.run(get(feed, "/v1/state", if_none_match=tag))[0] == 304
    assert asyncio.run(get(feed, "/v1/state", if_none_match='"other"'))[0] == 200


def test_a_watch_answers_at_the_next_generation_or_the_time_out() -> None:
    async def watch() -> None:
        feed = served()
        old = f"/v1/state?watch=true&generation={feed.generation}"
        assert (await get(feed, f"{old}&timeoutSeconds=0"))[0] == 304
        assert (await get(feed, "/v1/state?watch=true&generation=5"))[0] == 200
        waiting = asyncio.create_task(get(feed, old))
        await asyncio.sleep(0)
        feed.publish(named(cpus=4))
        code, _, body = await waiting
        assert code == 200
        assert read_node_export(body).profile.spec.machine_info.num_cores == 4

    asyncio.run(watch())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "watch=true&generation=x",
            'generation: Invalid value: "x": must be a whole number, 0 to 9223372036854775807',
        ),
        ("watch=2", 'watch: Invalid value: "2": must be true or false'),
        (
            "watch=true&timeoutSeconds=301",
            'timeoutSeconds: Invalid value: "301": must be a whole number, 0 to 300',
        ),
    ],
)
def test_invalid_parameters_are_refused(query: str, message: str) -> None:
    code, _, body = asyncio.run(get(served(), f"/v1/state?{query}"))
    assert (code, json.loads(body)["message"]) == (400, message)


def test_without_an_export_the_reason_is_the_answer() -> None:
    code, _, body = asyncio.run(get(served(is_empty=True), "/v1/state"))
    assert (code, json.loads(body)["message"]) == (503, "the node has not been read yet")
    assert asyncio.run(get(served(is_empty=True), "/readyz"))[0] == 503
    assert asyncio.run(get(served(), "/readyz"))[0] == 200
    assert asyncio.run(get(served(is_empty=True), "/healthz"))[0] == 200


def test_metrics_have_the_age_and_the_state_of_each_source() -> None:
    text = asyncio.run(get(served(), "/metrics"))[2].decode()
    assert 'nodewright_export_source_age_seconds{source="pods"} 0' in text
    assert 'nodewright_export_source_state{source="pods",state="read"} 1' in text
    assert "nodewright_export_readings_total 3" in text
    assert "process_resident_memory_bytes" in text
