"""How long pods take from their creation until the API server shows their containers as running."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodewright.agent.observe.metric_names import CallMetrics, HistogramMetric
from nodewright.cluster.tasks.timing import Clock

_STATELESS = frozenset(("name", "secret", "configMap", "downwardAPI", "emptyDir", "projected"))
"""Volumes that leave a pod stateless, beside their name."""

Interval = tuple[float, float]
"""Start and end, in seconds since 1970."""


class PodStartTimes:
    """Times the starts of pods that are seen before they have a status, once each.

    Follows: v1.36, kubelet/util/pod_startup_latency_tracker.go, ObservedPodOnWatch.
    Departs: the answer to the agent's own patch counts as an observation, as the event of the watch does; times of init
             containers are those of the status, in whole seconds.
    """

    def __init__(self, calls: CallMetrics, clock: Clock) -> None:
        self._calls, self._clock = calls, clock
        self._starting: dict[str, list[Interval]] = {}
        """By uid the pulls for each pod that has not started."""
        self._excluded: set[str] = set()
        """Pods that waited for the scheduler: the indicator leaves them out."""

    def record_pull(self, uid: str, started_s: float, duration_s: float, size_bytes: int) -> None:
        """Notes a pull for a pod, and counts it.

        Units: started_s since 1970.
        """
        self._calls.record_pull(uid, started_s, duration_s, size_bytes)
        if uid in self._starting:
            self._starting[uid].append((started_s, started_s + duration_s))

    def observe_object(self, uid: str, document: Mapping[str, Any] | None) -> None:
        """Observes a pod's object; None: it is gone."""
        status = (document or {}).get("status") or {}
        if document is None or status.get("phase") in ("Failed", "Succeeded"):
            self._starting.pop(uid, None)
            if document is None:
                self._excluded.discard(uid)
        elif _is_unschedulable(status):
            if uid in self._starting or not status.get("startTime"):
                self._starting.pop(uid, None)
                self._excluded.add(uid)
        elif uid not in self._starting:
            if not status.get("startTime") and uid not in self._excluded:
                self._starting[uid] = []
        elif _has_started(status):
            self._record(document, self._starting.pop(uid))

    def _record(self, document: Mapping[str, Any], pulls: list[Interval]) -> None:
        created_s = _seconds(document["metadata"].get("creationTimestamp"))
        total_s = self._clock.now_ns() / 10**9 - created_s
        self._calls.observe(HistogramMetric.POD_START_TOTAL_DURATION, total_s)
        if not _is_stateful(document):
            init_s = sum(
                _run_s(container) for container in document["status"].get("initContainerStatuses") or ()
            )
            indicator_s = total_s - covered_s(pulls) - init_s
            self._calls.observe(HistogramMetric.POD_START_SLI_DURATION, indicator_s)


def covered_s(intervals: list[Interval]) -> float:
    """The time that the intervals cover together.

    >>> covered_s([(4.0, 6.0), (1.0, 2.0), (5.0, 9.0)])
    6.0
    """
    total_s, end_s = 0.0, float("-inf")
    for first_s, last_s in sorted(intervals):
        total_s += max(0.0, last_s - max(first_s, end_s))
        end_s = max(end_s, last_s)
    return total_s


def _has_started(status: Mapping[str, Any]) -> bool:
    containers = status.get("containerStatuses") or ()
    running = [(container.get("state") or {}).get("running") or {} for container in containers]
    return bool(running) and all(state.get("startedAt") for state in running)


def _is_unschedulable(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(each.get("type") == "PodScheduled" and each.get("status") == "False" for each in conditions)


def _is_stateful(document: Mapping[str, Any]) -> bool:
    """Whether a volume of the pod may outlive it."""
    volumes = (document.get("spec") or {}).get("volumes") or ()
    return any(
        source is not None and kind not in _STATELESS for volume in volumes for kind, source in volume.items()
    )


def _run_s(container: Mapping[str, Any]) -> float:
    """How long an init container ran; 0: it has not ended."""
    ended = (container.get("state") or {}).get("terminated") or {}
    if not (ended.get("startedAt") and ended.get("finishedAt")):
        return 0.0
    return max(0.0, _seconds(ended["finishedAt"]) - _seconds(ended["startedAt"]))


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0
