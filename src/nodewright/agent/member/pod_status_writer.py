"""Writes the statuses of pods to the API server, as patches of the kubelet's part; deletes the objects of pods that are cleaned up."""

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from operator import is_
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.member.merge_patch import POD_LISTS, merge_patch
from nodewright.agent.rules.pod_status import (
    DISRUPTION_TARGET,
    KUBELET_CONDITIONS,
    STATUS_UNKNOWN,
    UNKNOWN_EXIT_CODE,
)
from nodewright.agent.serving.api_objects import pod_status_document
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.client.reflector import BackOffDelay, ObjectView
from nodewright.cluster.tasks.timing import Clock
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.objects import Container, ContainerState, ContainerStatus, PodStatus
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.values.instant import Instant

_MAX_WRITES = 4
"""Requests at the same time; those for one pod follow each other."""
_GONE = (404, 409)
"""No such pod, or one of another uid: the watch brings the news."""


class _Origin(NamedTuple):
    """What a status is made from: values that are replaced where something changes."""

    record: PodRecord
    config: NodeConfig
    devices: DeviceState


class _SettledStatus(NamedTuple):
    origin: _Origin
    digest: bytes
    """That of what was asked for: the status itself would double the memory of a pod."""
    stored: dict[str, Any]
    """What was then stored."""


class _PlannedWrite(NamedTuple):
    origin: _Origin
    document: dict[str, Any]
    """The object as it was observed."""
    digest: bytes
    """That of the status that it should have."""
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
        self, api: ClusterAPI, reflector: ObjectView, state: Callable[[], AgentState], clock: Clock
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
        self._settled: dict[str, _SettledStatus] = {}
        """By uid of the record."""
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
        origin = _Origin(record, state.node.config, state.node.held.devices)
        settled = self._settled.get(uid)
        if settled is not None and settled.stored != before:
            settled = None
        digest, patch = b"", None
        if settled is None or not all(map(is_, settled.origin, origin)):
            reported = pod_status_document(record, state.node, self.runtime_name)
            status = merged_status(before, reported, record)
            digest = sha256(msgspec.json.encode(status)).digest()
            if settled is not None and settled.digest == digest:
                # Nothing keeps the record of before alive.
                self._settled[uid] = settled._replace(origin=origin)
            else:
                patch = pod_status_patch(document["metadata"]["uid"], before, status)
        if patch is None and not can_be_deleted(document, record):
            return None
        return _PlannedWrite(origin, document, digest, patch)

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
        path = api_path("/api/v1", "namespaces", metadata["namespace"], "pods", metadata["name"])
        if planned.patch is not None:
            self.requests += 1
            document = await self._api.patch(f"{path}/status", planned.patch)
            self._settled[uid] = _SettledStatus(planned.origin, planned.digest, document.get("status") or {})
            self._reflector.put(document)
        if can_be_deleted(document, planned.origin.record):
            self.requests += 1
            await self._api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
        return planned.patch is not None

    def _report(self, uid: str, error: ApiError) -> None:
        if uid not in self._delays:
            self.record_event(RecordEvent.warning("StatusNotReported", str(error), uid=uid))


def _own_object(record: PodRecord) -> str:
    return record.pod.uid if record.source is PodSource.CLUSTER else ""


# ---------------------------------------------------------------- patches


TERMINAL_PHASES = ("Succeeded", "Failed")
_OWNED_FIELDS = (
    *("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses"),
    *("ephemeralContainerStatuses", "resources", "allocatedResources", "resize"),
)
"""The fields that the agent clears when it has nothing for them; addresses of ended pods stay, as with a kubelet."""
_CONTAINER_FIELDS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_MAX_MESSAGE_BYTES = 12 * 1024
"""The termination messages of all containers together.

Follows: v1.36, kubelet/container/runtime.go, MaxPodTerminationMessageLogLength.
"""
_TIMES = frozenset({"startTime", "startedAt", "finishedAt", "lastTransitionTime"})
_LOST_CONTAINER = {
    "terminated": {
        "reason": STATUS_UNKNOWN,
        "message": "The container could not be located when the pod was terminated",
        "exitCode": UNKNOWN_EXIT_CODE,
        "startedAt": None,
        "finishedAt": None,
    }
}


def may_run(record: PodRecord) -> bool:
    """Whether a container of the pod may run, or may be started."""
    has_running = any(container.phase is not ContainerPhase.EXITED for container in record.containers)
    return has_running or record.stage not in (PodStage.TERMINATED, PodStage.REJECTED)


def merged_status(
    before: Mapping[str, Any], reported: Mapping[str, Any], record: PodRecord
) -> dict[str, Any]:
    """The status to store: what the agent reports, over what the API server has.

    No phase is terminal while a container may run, and a terminal phase never changes. The observed generation is that
    of the record, on which the agent has decided: the API server may have a newer one.

    Follows: v1.36, kubelet/status/status_manager.go, mergePodStatus, updateStatusInternal, TerminatePod.
    """
    running = may_run(record)
    status = _normalized(_whole_seconds(dict(reported)), record)
    if not running and not record.source.is_static_pod_source:
        status = _ended(status)
    was_terminal, is_terminal = (each.get("phase") in TERMINAL_PHASES for each in (before, status))
    if (is_terminal and not was_terminal and running) or (was_terminal and not is_terminal):
        status |= {name: before.get(name) for name in ("phase", "reason", "message")}
    becomes_terminal = is_terminal and not was_terminal and not running
    generation = max(record.pod.metadata.generation, before.get("observedGeneration") or 0)
    if record.source.is_static_pod_source:
        # The generation of a mirror pod's object is no generation of the static pod.
        generation = 0
    status["conditions"] = [
        _behind_gates(condition, record, before) for condition in status.get("conditions") or ()
    ]
    conditions = _conditions(before, status, generation, with_disruption=becomes_terminal)
    if status.get("phase") in TERMINAL_PHASES:
        conditions = [_not_ready(condition, status["phase"]) for condition in conditions]
    status["conditions"] = conditions
    if before.get("startTime"):
        status["startTime"] = before["startTime"]
    status["observedGeneration"] = generation or None
    kept = {name: value for name, value in before.items() if name not in _OWNED_FIELDS}
    return {name: value for name, value in {**kept, **status}.items() if value is not None}


def _normalized(status: dict[str, Any], record: PodRecord) -> dict[str, Any]:
    """The status with containers by name, their mounts, and messages that are together not too long.

    Follows: v1.36, kubelet/status/status_manager.go, normalizeStatus; kubelet_pods.go, convertToAPIContainerStatuses.
    """
    spec = record.pod.spec
    containers = spec.all_containers
    mounts = {container.name: _mounts(container) for container in containers}
    longest = _MAX_MESSAGE_BYTES // max(1, len(containers))
    for field in _CONTAINER_FIELDS:
        if status.get(field):
            statuses = [
                _with_resources(_with_bounded_messages(container, longest)) for container in status[field]
            ]
            if field != "initContainerStatuses":
                statuses.sort(key=lambda container: str(container["name"]))
            status[field] = [
                {**container, "volumeMounts": mounts[container["name"]]}
                if mounts.get(container["name"])
                else container
                for container in statuses
            ]
    return status


def _mounts(container: Container) -> list[dict[str, Any]]:
    """What is mounted into a container; no read-only mount is recursively read-only."""
    mounts = []
    for mount in container.volume_mounts:
        status = {"name": mount.get("name"), "mountPath": mount.get("mountPath")}
        if mount.get("readOnly"):
            status |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
        mounts.append(status)
    return mounts


def _with_resources(container: dict[str, Any]) -> dict[str, Any]:
    """The status of a container; one that was created has resources, which may be none."""
    return {"resources": {}, **container} if container.get("containerID") else container


def without_runtime_name(status: PodStatus) -> PodStatus:
    """The status of a pod of the API server with container ids as the runtime has them."""
    return replace(
        status,
        container_statuses=tuple(map(_without_runtime_name, status.container_statuses)),
        init_container_statuses=tuple(map(_without_runtime_name, status.init_container_statuses)),
        ephemeral_container_statuses=tuple(map(_without_runtime_name, status.ephemeral_container_statuses)),
    )


def _without_runtime_name(container: ContainerStatus) -> ContainerStatus:
    def bare(state: ContainerState) -> ContainerState:
        if state.terminated is None:
            return state
        id_ = state.terminated.container_id.rpartition("://")[2]
        return replace(state, terminated=replace(state.terminated, container_id=id_))

    return replace(
        container,
        container_id=container.container_id.rpartition("://")[2],
        state=bare(container.state),
        last_state=bare(container.last_state),
    )


def _with_bounded_messages(container: dict[str, Any], longest: int) -> dict[str, Any]:
    bounded = dict(container)
    for field in ("state", "lastState"):
        message = ((container.get(field) or {}).get("terminated") or {}).get("message") or ""
        if len(message.encode()) > longest:
            text = message.encode()[:longest].decode(errors="ignore")
            bounded[field] = {"terminated": {**container[field]["terminated"], "message": text}}
    return bounded


def _ended(status: dict[str, Any]) -> dict[str, Any]:
    """The status of a pod of which nothing runs or will run: without a terminal phase it has failed."""
    if status.get("phase") in TERMINAL_PHASES and "containerStatuses" not in status:
        return status
    has_initialized = not status.get("initContainerStatuses") or any(
        container.get("lastState", {}).get("terminated") or "waiting" not in container.get("state", {})
        for container in status.get("containerStatuses") or ()
    )
    if has_initialized and status.get("containerStatuses"):
        status["containerStatuses"] = [
            container
            if "terminated" in container.get("state", {})
            else {**container, "state": _LOST_CONTAINER}
            for container in status["containerStatuses"]
        ]
    if status.get("phase") not in TERMINAL_PHASES:
        status["phase"] = "Failed"
    return status


def _conditions(
    before: Mapping[str, Any], status: Mapping[str, Any], generation: int, *, with_disruption: bool
) -> list[dict[str, Any]]:
    """Others' conditions first, then the kubelet's; a disruption is added only with the phase that it explains."""
    old = {condition["type"]: condition for condition in before.get("conditions") or ()}
    reported = {condition["type"]: condition for condition in status.get("conditions") or ()}
    conditions = {name: condition for name, condition in old.items() if name not in KUBELET_CONDITIONS}
    if with_disruption and DISRUPTION_TARGET in reported:
        conditions[DISRUPTION_TARGET] = reported[DISRUPTION_TARGET]
    for name, condition in reported.items():
        if name in KUBELET_CONDITIONS:
            conditions[name] = _dated(condition, old.get(name), generation)
    return list(conditions.values())


def _behind_gates(condition: dict[str, Any], record: PodRecord, before: Mapping[str, Any]) -> dict[str, Any]:
    """The condition; `Ready` is false while a readiness gate is not open.

    Follows: v1.36, kubelet/status/generate.go, GeneratePodReadyCondition.
    """
    names = [str(gate.get("conditionType")) for gate in record.pod.spec.readiness_gates]
    if condition["type"] != "Ready" or condition.get("status") != "True" or not names:
        return condition
    others = {each["type"]: each for each in before.get("conditions") or ()}
    messages = []
    for name in names:
        gate = others.get(name)
        if gate is None:
            messages.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif gate.get("status") != "True":
            messages.append(
                f'the status of pod readiness gate "{name}" is not "True", but {gate.get("status")}'
            )
    times = [str((others.get(name) or {}).get("lastTransitionTime") or "") for name in names]
    dated = {**condition, "lastTransitionTime": max(str(condition.get("lastTransitionTime") or ""), *times)}
    if not messages:
        return dated
    return {**dated, "status": "False", "reason": "ReadinessGatesNotReady", "message": ", ".join(messages)}


def _dated(condition: Mapping[str, Any], before: Mapping[str, Any] | None, generation: int) -> dict[str, Any]:
    dated = dict(condition)
    if before is not None and before.get("status") == condition.get("status"):
        since = before.get("lastTransitionTime")
        dated["lastTransitionTime"] = since or condition.get("lastTransitionTime")
    if generation:
        dated["observedGeneration"] = generation
    return dated


def _not_ready(condition: dict[str, Any], phase: str) -> dict[str, Any]:
    """The condition, with which no ended pod is ready.

    Follows: v1.36, kubelet/status/generate.go, generatePodReadyConditionForTerminalPhase.
    """
    if condition["type"] not in ("Ready", "ContainersReady") or condition.get("status") != "True":
        return condition
    reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    return {**condition, "status": "False", "reason": reason}


def _whole_seconds(value: Any) -> Any:
    """The document with times as the API server stores them."""
    if isinstance(value, dict):
        return {
            name: str(Instant.parse(member).whole_second)
            if name in _TIMES and isinstance(member, str)
            else member
            if isinstance(member, str)
            else _whole_seconds(member)
            for name, member in value.items()
        }
    return [_whole_seconds(item) for item in value] if isinstance(value, list | tuple) else value


def pod_status_patch(uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any] | None:
    """The patch of a pod's status, which is refused for a pod of another uid; None: nothing differs."""
    patch = merge_patch({"status": _plain(before)}, {"status": _plain(after)}, POD_LISTS)
    return {"metadata": {"uid": uid}, **patch} if patch else None


def _plain(value: Any) -> Any:
    """The document without nulls and empty members, which the API server omits or adds at will."""
    if isinstance(value, dict):
        members = {
            name: member if isinstance(member, str) else _plain(member) for name, member in value.items()
        }
        return {
            name: member for name, member in members.items() if member is not None and member not in ([], "")
        }
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def can_be_deleted(pod: Mapping[str, Any], record: PodRecord) -> bool:
    """Whether the object of a pod may be deleted: it is to be, nothing is left of the pod, and its end is stored.

    Follows: v1.36, kubelet/status/status_manager.go, canBeDeleted.
    """
    is_deleted = bool((pod.get("metadata") or {}).get("deletionTimestamp"))
    has_ended = (pod.get("status") or {}).get("phase") in TERMINAL_PHASES
    return is_deleted and has_ended and record.is_cleaned_up and not may_run(record)
