"""When a pod counts as started, and what its start leaves out."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.fake_clock import FakeClock

from nodewright.agent.member.pod_start_times import PodStartTimes
from nodewright.agent.observe.metric_names import CallMetrics, HistogramMetric

RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}}
INIT = {"state": {"terminated": {"startedAt": "2026-01-01T00:00:03Z", "finishedAt": "2026-01-01T00:00:05Z"}}}
PENDING: dict[str, Any] = {"phase": "Pending"}
UNSCHEDULABLE = {**PENDING, "conditions": [{"type": "PodScheduled", "status": "False"}]}
STARTING = {**PENDING, "startTime": "2026-01-01T00:00:01Z", "containerStatuses": [RUNNING, {"state": {}}]}
STARTED = {
    "phase": "Running",
    "startTime": "2026-01-01T00:00:01Z",
    "initContainerStatuses": [INIT],
    "containerStatuses": [RUNNING, RUNNING],
}
STATELESS = ({"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}, "hostPath": None})
STATEFUL = (*STATELESS, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}})


def observed(*statuses: dict[str, Any], volumes: tuple[Any, ...] = STATELESS) -> tuple[list[float], ...]:
    """The times since creation, and those of the indicator, of a pod that is seen 10 s later with these statuses."""

    async def run() -> CallMetrics:
        calls, clock = CallMetrics(), FakeClock()
        times = PodStartTimes(calls, clock)
        created = datetime.fromtimestamp(clock.now_ns() / 10**9, UTC).isoformat()
        for number, status in enumerate(statuses):
            if number == len(statuses) - 1:
                times.record_pull("web", clock.now_ns() / 10**9, 3.0, 1)
                times.record_pull("web", clock.now_ns() / 10**9 + 1, 3.0, 1)
                await clock.advance(10)
            metadata = {"name": "web", "creationTimestamp": created}
            times.observe_object(
                "web", {"metadata": metadata, "spec": {"volumes": list(volumes)}, "status": status}
            )
        return calls

    calls = asyncio.run(run())
    assert calls.histograms[HistogramMetric.PULL_DURATION, ("0-10MB",)].total == 6
    return tuple(
        [round(buckets.total, 3) for _, buckets in calls.histograms_of(metric)]
        for metric in (HistogramMetric.POD_START_TOTAL_DURATION, HistogramMetric.POD_START_SLI_DURATION)
    )


@pytest.mark.parametrize(
    ("statuses", "times"),
    [
        ((PENDING, STARTING, STARTED), ([10], [4])),
        ((PENDING, STARTED, STARTED), ([0], [-2])),
        ((PENDING, STARTING), ([], [])),
        ((STARTING, STARTED), ([], [])),
        ((UNSCHEDULABLE, PENDING, STARTED), ([], [])),
        ((PENDING, UNSCHEDULABLE, STARTED), ([], [])),
        ((PENDING, {"phase": "Failed"}, STARTED), ([], [])),
        ((PENDING, {**STARTED, "containerStatuses": []}), ([], [])),
    ],
)
def test_pods_that_are_seen_to_start_are_timed_once(
    statuses: tuple[dict[str, Any], ...], times: tuple[list[float], list[float]]
) -> None:
    assert observed(*statuses) == times


def test_the_indicator_leaves_out_pods_with_state() -> None:
    assert observed(PENDING, STARTED, volumes=STATEFUL) == ([10], [])


def test_a_pod_that_is_gone_is_forgotten() -> None:
    times = PodStartTimes(CallMetrics(), FakeClock())
    for status in (PENDING, UNSCHEDULABLE):
        times.observe_object("web", {"metadata": {}, "status": status})
    times.observe_object("web", None)
    assert not times._starting
    assert not times._excluded
