"""The status of a pod in the API server: the kubelet's part from the agent's record, everything else as it is."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.agent.member.merge_patch import POD_LISTS, merge_patch
from nodewright.agent.rules.pod_status import (
    DISRUPTION_TARGET,
    KUBELET_CONDITIONS,
    STATUS_UNKNOWN,
    UNKNOWN_EXIT_CODE,
)
from nodewright.agent.state.agent_state import PodRecord, PodStage
from nodewright.model.kubernetes.objects import Container, ContainerState, ContainerStatus, PodStatus
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.values.instant import Instant

TERMINAL_PHASES = ("Succeeded", "Failed")
_OWNED_FIELDS = (
    "phase",
    "reason",
    "message",
    "conditions",
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
    "resources",
    "allocatedResources",
    "resize",
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
    runtime_status = record.runtime_status
    has_running = runtime_status is not None and any(
        container.phase is not ContainerPhase.EXITED for container in runtime_status.containers
    )
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
    was_terminal, is_terminal = (
        before.get("phase") in TERMINAL_PHASES,
        status.get("phase") in TERMINAL_PHASES,
    )
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
        members = {name: _plain(member) for name, member in value.items()}
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
