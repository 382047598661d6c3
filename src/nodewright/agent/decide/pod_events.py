"""Events of an iteration: those that it records, and those about containers that start, stop or back off."""

from collections.abc import Iterable, Iterator, Mapping

from nodewright.agent.decide.pod_sync import CRASH_LOOP
from nodewright.agent.rules.image_policy import IMAGE_MISSING_REASONS
from nodewright.agent.rules.pod_actions import KillReason
from nodewright.agent.state.agent_state import PodRecord
from nodewright.agent.state.effects import Effect, SyncPod, TerminatePod
from nodewright.agent.state.observations import (
    CGROUP_ERROR,
    CONFIG_ERROR,
    CREATE_ERROR,
    HOOK_ERROR,
    KILL_ERROR,
    RUN_ERROR,
    SANDBOX_ERROR,
    EffectFailure,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus

CREATED, STARTED, KILLING, BACK_OFF = "Created", "Started", "Killing", "BackOff"
FAILED = "Failed"
_PROBE_FAILURES = {
    KillReason.LIVENESS: "failed liveness probe",
    KillReason.STARTUP: "failed startup probe",
}


def pod_events(
    before: Mapping[str, PodRecord], after: Mapping[str, PodRecord], effects: Iterable[Effect], since_ns: int
) -> Iterator[RecordEvent]:
    """The events of the step from one state to the next; containers started before ``since_ns`` have none.

    Units:   since_ns in nanoseconds since 1970.
    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go and kuberuntime_manager.go: reasons and messages.
    Departs: names the container, where the kubelet's event has a reference to it.
    """
    for uid, record in after.items():
        record_before = before.get(uid)
        if record_before is record:
            continue
        yield from _start_events(record_before, record, since_ns)
        yield from _back_off_events(record_before, record)
    for effect in effects:
        match effect:
            case RecordEvent():
                yield effect
            case TerminatePod(uid=uid):
                for name in _running(after.get(uid) or before.get(uid)):
                    yield _normal(uid, KILLING, f"Stopping container {name}", name)
            case SyncPod(uid=uid, plan=plan):
                if plan.sandbox_attempt:
                    what = "Pod sandbox changed, it will be killed and re-created."
                    yield _normal(uid, "SandboxChanged", what)
                for kill in plan.containers_to_kill:
                    name, reason_text = kill.container.name, _PROBE_FAILURES.get(kill.reason)
                    message = (
                        f"Container {name} {reason_text}, will be restarted"
                        if reason_text
                        else f"Stopping container {name}"
                    )
                    yield _normal(uid, KILLING, message, name)
            case _:
                pass


def failure_events(record: PodRecord, failure: EffectFailure) -> Iterator[RecordEvent]:
    """The events for a failure; they omit hook output, which may be secret, and show container names, not ids.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, startContainer, recordContainerEvent; kubelet.go, SyncPod.
    """
    uid, message, name = record.pod.uid, failure.message, failure.container
    for container in _containers(record):
        message = message.replace(container.id, container.name)
    match failure.reason:
        case reason if reason in (CONFIG_ERROR, CREATE_ERROR, RUN_ERROR):
            yield _warning(uid, FAILED, f"Error: {message}", name)
        case reason if reason in IMAGE_MISSING_REASONS:
            yield _warning(uid, FAILED, f"Error: {reason}", name)
        case reason if reason == SANDBOX_ERROR:
            yield _warning(uid, reason, f"Failed to create pod sandbox: {message}")
        case reason if reason == CGROUP_ERROR:
            yield _warning(uid, reason, f"unable to ensure pod container exists: {message}")
        case reason if reason == HOOK_ERROR:
            yield _warning(uid, "FailedPostStartHook", "PostStartHook failed", name)
            yield _normal(uid, KILLING, "FailedPostStartHook", name)
        case reason if reason == KILL_ERROR:
            yield _warning(uid, "FailedKillPod", f"error killing pod: {message}")
        case reason:
            yield _warning(uid, reason, message)


def _start_events(record_before: PodRecord | None, record: PodRecord, since_ns: int) -> Iterator[RecordEvent]:
    """Events for containers that are new or have started, oldest first."""
    before = {container.id: container for container in _containers(record_before)}
    for container in reversed(_containers(record)):
        known = before.get(container.id)
        if known is None and container.created_ns >= since_ns:
            yield _normal(record.pod.uid, CREATED, f"Container created: {container.name}", container.name)
        if container.started_ns >= since_ns and (known is None or not known.started_ns):
            yield _normal(record.pod.uid, STARTED, f"Container started: {container.name}", container.name)


def _back_off_events(record_before: PodRecord | None, record: PodRecord) -> Iterator[RecordEvent]:
    before = record_before.container_waiting if record_before is not None else {}
    for name, reason_text in record.container_waiting.items():
        if reason_text.reason == CRASH_LOOP and before.get(name) != reason_text:
            message = f"Back-off restarting failed container {name} in pod {_title(record.pod)}"
            yield _warning(record.pod.uid, BACK_OFF, message, name)


def _containers(record: PodRecord | None) -> tuple[RuntimeContainerStatus, ...]:
    return record.containers if record is not None else ()


def _running(record: PodRecord | None) -> list[str]:
    return [container.name for container in _containers(record) if container.phase is ContainerPhase.RUNNING]


def _title(pod: Pod) -> str:
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"


def _normal(uid: str, reason: str, message: str, container: str = "") -> RecordEvent:
    return RecordEvent.normal(reason, message, uid=uid, container=container)


def _warning(uid: str, reason: str, message: str, container: str = "") -> RecordEvent:
    return RecordEvent.warning(reason, message, uid=uid, container=container)
