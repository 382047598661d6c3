"""What of a turn people are told: what it says itself, and containers that start, end, and are held back."""

from collections.abc import Iterable, Iterator, Mapping

from nodewright.agent.advance import CRASH_LOOP
from nodewright.agent.values import (
    CONFIG_ERROR,
    CREATE_ERROR,
    GROUP_ERROR,
    HOOK_ERROR,
    KILL_ERROR,
    RUN_ERROR,
    SANDBOX_ERROR,
    EndPod,
    Failure,
    PodRecord,
    SyncPod,
    Tell,
    Work,
)
from nodewright.core.images import NOT_FETCHED
from nodewright.core.lifecycle import KillReason
from nodewright.model.objects import Pod
from nodewright.model.running import ContainerFacts, ContainerPhase

CREATED, STARTED, KILLING, BACK_OFF = "Created", "Started", "Killing", "BackOff"
FAILED = "Failed"
_WHY = {
    KillReason.LIVENESS: "failed liveness probe",
    KillReason.STARTUP: "failed startup probe",
}


def news(
    before: Mapping[str, PodRecord], after: Mapping[str, PodRecord], works: Iterable[Work], since_ns: int
) -> Iterator[Tell]:
    """What is worth telling of the step from one mind to the next; what had started before ``since_ns`` is not.

    Units:   since_ns in nanoseconds since 1970.
    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go and kuberuntime_manager.go: reasons and messages.
    Departs: names the container, where the kubelet's event has a reference to it.
    """
    for uid, record in after.items():
        old = before.get(uid)
        if old is record:
            continue
        yield from _started(old, record, since_ns)
        yield from _held_back(old, record)
    for work in works:
        match work:
            case Tell():
                yield work
            case EndPod(uid=uid):
                for name in _running(after.get(uid) or before.get(uid)):
                    yield _normal(uid, KILLING, f"Stopping container {name}")
            case SyncPod(uid=uid, plan=plan):
                if plan.sandbox_attempt:
                    what = "Pod sandbox changed, it will be killed and re-created."
                    yield _normal(uid, "SandboxChanged", what)
                for kill in plan.kills:
                    name, why = kill.container.name, _WHY.get(kill.reason)
                    message = (
                        f"Container {name} {why}, will be restarted" if why else f"Stopping container {name}"
                    )
                    yield _normal(uid, KILLING, message)
            case _:
                pass


def failed(record: PodRecord, failure: Failure) -> Iterator[Tell]:
    """What of a failure people are told: what a hook said may be secret, and ids say nothing to anybody.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, startContainer, recordContainerEvent; kubelet.go, SyncPod.
    """
    uid, message = record.pod.uid, failure.message
    for one in _containers(record):
        message = message.replace(one.id, one.name)
    match failure.reason:
        case reason if reason in (CONFIG_ERROR, CREATE_ERROR, RUN_ERROR):
            yield _warning(uid, FAILED, f"Error: {message}")
        case reason if reason in NOT_FETCHED:
            yield _warning(uid, FAILED, f"Error: {reason}")
        case reason if reason == SANDBOX_ERROR:
            yield _warning(uid, reason, f"Failed to create pod sandbox: {message}")
        case reason if reason == GROUP_ERROR:
            yield _warning(uid, reason, f"unable to ensure pod container exists: {message}")
        case reason if reason == HOOK_ERROR:
            yield _warning(uid, "FailedPostStartHook", "PostStartHook failed")
            yield _normal(uid, KILLING, "FailedPostStartHook")
        case reason if reason == KILL_ERROR:
            yield _warning(uid, "FailedKillPod", f"error killing pod: {message}")
        case reason:
            yield _warning(uid, reason, message)


def _started(old: PodRecord | None, record: PodRecord, since_ns: int) -> Iterator[Tell]:
    """Containers that are new, or run by now, the oldest first."""
    before = {one.id: one for one in _containers(old)}
    for one in reversed(_containers(record)):
        known = before.get(one.id)
        if known is None and one.created_ns >= since_ns:
            yield _normal(record.pod.uid, CREATED, f"Container created: {one.name}")
        if one.started_ns >= since_ns and (known is None or not known.started_ns):
            yield _normal(record.pod.uid, STARTED, f"Container started: {one.name}")


def _held_back(old: PodRecord | None, record: PodRecord) -> Iterator[Tell]:
    before = old.held_back if old is not None else {}
    for name, why in record.held_back.items():
        if why.reason == CRASH_LOOP and before.get(name) != why:
            message = f"Back-off restarting failed container {name} in pod {_title(record.pod)}"
            yield _warning(record.pod.uid, BACK_OFF, message)


def _containers(record: PodRecord | None) -> tuple[ContainerFacts, ...]:
    return record.facts.containers if record is not None and record.facts is not None else ()


def _running(record: PodRecord | None) -> list[str]:
    return [one.name for one in _containers(record) if one.phase is ContainerPhase.RUNNING]


def _title(pod: Pod) -> str:
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"


def _normal(uid: str, reason: str, message: str) -> Tell:
    return Tell(uid=uid, is_warning=False, reason=reason, message=message)


def _warning(uid: str, reason: str, message: str) -> Tell:
    return Tell(uid=uid, is_warning=True, reason=reason, message=message)
