"""Writes the statuses of pods to the API server, and deletes the objects of pods of which nothing is left."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.member.pod_status_writer import (
    can_be_deleted,
    merged_status,
    pod_status_patch,
)
from nodewright.agent.serving.api_objects import pod_status_document
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI
from nodewright.cluster.client.reflector import BackOffDelay, Reflector
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.kubernetes.recorded_events import RecordEvent

_MAX_WRITES = 4
"""Requests at the same time; those for one pod follow each other."""
_GONE = (404, 409)
"""No such pod, or one of another uid: the watch brings the news."""


class _PlannedWrite(NamedTuple):
    record: PodRecord
    document: dict[str, Any]
    """The object as it was observed."""
    status: dict[str, Any]
    """The status that it should have."""
    patch: dict[str, Any] | None
    """What makes it so; None: it has this status."""


class PodStatusWriter:
    """Keeps the status of each pod in the API server equal to the agent's; of several statuses the newest is written.

    ``state`` is the published state: what it says has been persisted. ``target_of`` gives the uid of the object that
    shows a record; empty: there is none.

    Follows: v1.36, kubelet/status/status_manager.go, syncPod, needsReconcile.
    Departs: reads no pod before it patches it: the watch and the answers to patches have its newest version.
    """

    def __init__(
        self, api: ClusterAPI, reflector: Reflector, state: Callable[[], AgentState], clock: Clock
    ) -> None:
        self._api, self._reflector, self._state, self._clock = api, reflector, state, clock
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.target_of: Callable[[PodRecord], str] = _own_object
        self.is_ready: Callable[[], bool] = lambda: True
        self.runtime_name = "nodewright"
        """The scheme of container ids."""
        self._dirty: dict[str, None] = {}
        self._busy: set[str] = set()
        self._delays: dict[str, BackOffDelay] = {}
        self._settled: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        """By uid of the record: the status that was asked for, and the one that was then stored."""
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = 0
        """Number of writes so far."""
        self.on_sync: Callable[[float], None] = lambda _duration_s: None
        """Gets how long it took from a change until its status was written, in seconds."""
        self._changed_s: dict[str, float] = {}
        """By uid of the record: since when a change of it waits to be written."""

    def publish(self, result: IterationResult) -> None:
        """Notes the pods that an iteration has changed."""
        known = self._published
        pods = result.state.pods
        for uid, record in pods.items():
            if known.get(uid) is not record:
                self._dirty[uid] = None
                self._changed_s.setdefault(uid, self._clock.monotonic_s())
        self._published = pods
        if self._dirty:
            self._wake.set()

    _published: Mapping[str, PodRecord] = {}

    def reconcile(self, uid: str) -> None:
        """Notes a pod whose object has changed; without a uid: all pods."""
        self._dirty |= dict.fromkeys([uid] if uid else self._state().pods)
        self._wake.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        try:
            while True:
                self._start_writes()
                self._wake.clear()
                await self._wake.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_writes(self) -> None:
        if not self.is_ready():
            return
        for uid in [uid for uid in self._dirty if uid not in self._busy]:
            if len(self._busy) >= _MAX_WRITES:
                return
            del self._dirty[uid]
            planned = self._planned(uid)
            if planned is None:
                self._changed_s.pop(uid, None)
                continue
            self._busy.add(uid)
            task = asyncio.create_task(self._write(uid, planned))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _planned(self, uid: str) -> "_PlannedWrite | None":
        """What is to be written for a pod; None: nothing."""
        state = self._state()
        record = state.pods.get(uid)
        if record is None:
            for known in (self._settled, self._delays, self._changed_s):
                known.pop(uid, None)
            return None
        document = self._reflector.objects.get(self.target_of(record))
        if document is None:
            return None
        before = document.get("status") or {}
        status = merged_status(before, pod_status_document(record, state.node, self.runtime_name), record)
        is_settled = self._settled.get(uid) == (status, before)
        patch = None if is_settled else pod_status_patch(document["metadata"]["uid"], before, status)
        if patch is None and not can_be_deleted(document, record):
            return None
        return _PlannedWrite(record, document, status, patch)

    async def _write(self, uid: str, planned: "_PlannedWrite") -> None:
        changed_s = self._changed_s.pop(uid, None)
        try:
            is_written = await self._write_status(uid, planned)
        except ApiError as error:
            if error.status not in _GONE:
                if changed_s is not None:
                    self._changed_s[uid] = changed_s
                self._report(uid, error)
                delay = self._delays.setdefault(uid, BackOffDelay(0.2, 10.0))
                await self._clock.sleep(delay.next_s())
                self._dirty[uid] = None
        else:
            self._delays.pop(uid, None)
            if is_written and changed_s is not None:
                self.on_sync(self._clock.monotonic_s() - changed_s)
        finally:
            self._busy.discard(uid)
            self._wake.set()

    async def _write_status(self, uid: str, planned: "_PlannedWrite") -> bool:
        """Patches the status, then deletes the object if the pod is to be deleted and nothing is left of it.

        Whether there was a status to patch.

        Errors: ApiError.
        """
        document, metadata = planned.document, planned.document["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if planned.patch is not None:
            self.requests += 1
            document = await self._api.patch(f"{path}/status", planned.patch)
            self._settled[uid] = (planned.status, document.get("status") or {})
            self._reflector.put(document)
        if can_be_deleted(document, planned.record):
            self.requests += 1
            await self._api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
        return planned.patch is not None

    def _report(self, uid: str, error: ApiError) -> None:
        if uid not in self._delays:
            self.record_event(
                RecordEvent(uid=uid, is_warning=True, reason="StatusNotReported", message=str(error))
            )


def _own_object(record: PodRecord) -> str:
    return record.pod.uid if record.source is PodSource.CLUSTER else ""
