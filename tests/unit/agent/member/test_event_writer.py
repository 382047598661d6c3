"""Events reach the API server as a kubelet's do: counted, combined, limited."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import MemoryCluster
from tests.unit.agent.member.test_pod_objects import a_record

from nodewright.agent.host.token_bucket import TokenBucket
from nodewright.agent.member.event_writer import (
    EventCorrelator,
    EventObject,
    EventWriter,
    ObjectEvent,
    pod_object,
)
from nodewright.agent.state.agent_state import PodRecord, PodSource
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.testing.objects import a_pod

EVENTS = "/api/v1/namespaces/default/events"
SECOND = 10**9
POD = EventObject("Pod", "default", "web", "u1")


def an_event(message: str, reason: str = "Failed", about: EventObject = POD) -> ObjectEvent:
    return ObjectEvent(involved_object=about, is_warning=True, reason=reason, message=message)


# ---------------------------------------------------------------- correlation


def test_an_event_that_recurs_is_counted() -> None:
    correlator = EventCorrelator()
    first = correlator.correlate(an_event("a"), 1000 * SECOND)
    again = correlator.correlate(an_event("a"), 1007 * SECOND)
    other = correlator.correlate(an_event("b"), 1008 * SECOND)
    assert first is not None
    assert again is not None
    assert other is not None
    assert (first.count, again.count, other.count) == (1, 2, 1)
    assert first.name == again.name == f"web.{1000 * SECOND:x}"
    assert other.name != first.name
    assert (again.first_s, again.last_s) == (1000, 1007)


def test_the_tenth_similar_event_stands_for_all_until_ten_minutes_pass() -> None:
    correlator = EventCorrelator()
    events = [correlator.correlate(an_event(f"m{number}"), number * SECOND) for number in range(12)]
    messages = [event.event.message for event in events if event is not None]
    assert messages[8:] == ["m8", *(f"(combined from similar events): m{number}" for number in (9, 10, 11))]
    assert [event.count for event in events if event is not None][9:] == [1, 2, 3]
    later = correlator.correlate(an_event("late"), (12 + 600) * SECOND)
    assert later is not None
    assert later.event.message == "late"


def test_containers_of_a_pod_share_the_similar_events_and_the_limit() -> None:
    correlator = EventCorrelator()
    for number in range(25):
        about = replace(POD, field_path=f"spec.containers{{c{number}}}")
        assert correlator.correlate(an_event("m", f"Reason{number}", about), SECOND) is not None
    assert correlator.correlate(an_event("m", "Another"), SECOND) is None
    normal = replace(an_event("m", "Another"), is_warning=False)
    assert correlator.correlate(normal, SECOND) is not None
    assert correlator.correlate(an_event("m", about=replace(POD, uid="u2")), SECOND) is not None
    assert correlator.correlate(an_event("m", "Another"), 299 * SECOND) is None
    permitted = correlator.correlate(an_event("m", "Another"), 302 * SECOND)
    assert permitted is not None
    assert permitted.count == 3


@pytest.mark.parametrize(
    ("rate", "burst", "seconds", "permitted"), [(50, 100, 2, 200), (1 / 300, 25, 900, 28)]
)
def test_a_bucket_permits_its_burst_and_its_rate(
    rate: float, burst: int, seconds: int, permitted: int
) -> None:
    bucket, taken = TokenBucket(rate, burst), 0
    for moment in range(seconds * 100 + 1):
        while bucket.take(moment / 100):
            taken += 1
    assert taken == permitted


# ---------------------------------------------------------------- writing

Scenario = Callable[["EventBench"], Awaitable[None]]


class EventBench:
    """A writer of events."""

    def __init__(self, rate: int = 50, burst: int = 100) -> None:
        self.clock = FakeClock()
        self.cluster = MemoryCluster(self.clock)
        self.writer = EventWriter(self.cluster, "node1", (rate, burst), self.clock)
        self.errors: list[str] = []
        self.writer.on_error = self.errors.append

    async def record(self, reason: str = "Started", record: PodRecord | None = None, **more: Any) -> None:
        """Something happens."""
        uid = record.pod.uid if record is not None else ""
        event = {"uid": uid, "is_warning": False, "reason": reason, "message": "m", **more}
        self.writer.record(RecordEvent(**event), record)
        await settle()

    def written(self) -> list[dict[str, Any]]:
        """The events in the API server."""
        return [document for path, document in self.cluster.objects.items() if path.startswith(EVENTS)]


def run(scenario: Scenario, **limits: int) -> None:
    async def run_scenario() -> None:
        bench = EventBench(**limits)
        task = asyncio.create_task(bench.writer.run())
        await scenario(bench)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run_scenario())


def test_an_event_names_the_pod_the_container_and_the_node() -> None:
    async def scenario(bench: EventBench) -> None:
        await bench.record(record=a_record(a_pod("web")), container="main")
        (event,) = bench.written()
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": "web",
            "fieldPath": "spec.containers{main}",
        }
        assert event["source"] == {"component": "kubelet", "host": "node1"}
        assert (event["type"], event["reason"], event["message"], event["count"]) == (
            "Normal",
            "Started",
            "m",
            1,
        )
        assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"

    run(scenario)


def test_the_container_is_named_beside_the_message() -> None:
    async def scenario(bench: EventBench) -> None:
        await bench.record(record=a_record(a_pod("web")), container="main", message="Container started: main")
        (event,) = bench.written()
        assert event["message"] == "Container started"

    run(scenario)


def test_events_of_the_node_are_in_the_default_namespace() -> None:
    async def scenario(bench: EventBench) -> None:
        await bench.record("Starting")
        (event,) = bench.written()
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "node1",
            "uid": "node1",
        }
        assert event["metadata"]["namespace"] == "default"

    run(scenario)


@pytest.mark.parametrize(
    ("source", "number"),
    [(PodSource.CLUSTER, 1), (PodSource.FILE, 1), (PodSource.WORKLOAD, 0), (PodSource.API, 0)],
)
def test_only_pods_that_the_api_server_shows_have_events_there(source: PodSource, number: int) -> None:
    async def scenario(bench: EventBench) -> None:
        await bench.record(record=a_record(a_pod("web"), source=source))
        assert len(bench.written()) == number

    run(scenario)


def test_a_repeated_event_is_patched_and_created_again_once_it_is_gone() -> None:
    async def scenario(bench: EventBench) -> None:
        record = a_record(a_pod("web"))
        await bench.record(record=record)
        await bench.clock.advance(5)
        await bench.record(record=record)
        (event,) = bench.written()
        assert event["count"] == 2
        assert event["lastTimestamp"] > event["firstTimestamp"]
        bench.cluster.remove(f"{EVENTS}/{event['metadata']['name']}")
        await bench.record(record=record)
        assert [written["count"] for written in bench.written()] == [3]
        verbs = [verb for verb, _ in bench.cluster.requests]
        assert verbs == ["POST", "PATCH", "PATCH", "POST"]

    run(scenario)


def test_no_more_events_are_written_a_second_than_configured() -> None:
    async def scenario(bench: EventBench) -> None:
        for number in range(5):
            await bench.record(record=a_record(a_pod(f"pod-{number}")))
        assert len(bench.written()) == 2
        await bench.clock.advance(1)
        assert len(bench.written()) == 3
        await bench.clock.advance(2)
        assert len(bench.written()) == 5

    run(scenario, rate=1, burst=2)


def test_events_wait_for_a_server_that_is_away_but_not_for_one_that_refuses() -> None:
    async def scenario(bench: EventBench) -> None:
        bench.cluster.partition(is_reachable=False)
        for number in range(3):
            await bench.record(record=a_record(a_pod(f"pod-{number}")))
        await bench.clock.advance(30)
        assert bench.written() == []
        bench.cluster.partition(is_reachable=True)
        await bench.clock.advance(10)
        assert len(bench.written()) == 3
        assert bench.errors == []
        bench.cluster.refused = EVENTS
        for number in range(3, 5):
            await bench.record(record=a_record(a_pod(f"pod-{number}")))
        bench.cluster.refused = ""
        await bench.record(record=a_record(a_pod("last")))
        assert len(bench.written()) == 4
        (error,) = bench.errors
        assert "forbidden" in error

    run(scenario)


def test_a_container_is_named_by_its_list() -> None:
    pod = a_pod("web", initContainers=[{"name": "first"}])
    assert pod_object(pod, "first").field_path == "spec.initContainers{first}"
    assert pod_object(pod, "unknown").field_path == ""
