"""What of a turn people are told besides what it says itself: containers that start, end, and are held back."""

from collections.abc import Iterable, Iterator, Mapping

from nodewright.agent.advance import CRASH_LOOP
from nodewright.agent.values import EndPod, PodRecord, SyncPod, Tell, Work
from nodewright.core.lifecycle import KillReason
from nodewright.model.objects import Pod
from nodewright.model.running import ContainerFacts, ContainerPhase

STARTED, KILLING, BACK_OFF = "Started", "Killing", "BackOff"
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
    """
    for uid, record in after.items():
        old = before.get(uid)
        if old is record:
            continue
        yield from _started(old, record, since_ns)
        yield from _held_back(old, record)
    for work in works:
        match work:
            case EndPod(uid=uid):
                for name in _running(after.get(uid) or before.get(uid)):
                    yield _normal(uid, KILLING, f"Stopping container {name}")
            case SyncPod(uid=uid, plan=plan):
                for kill in plan.kills:
                    name, why = kill.container.name, _WHY.get(kill.reason)
                    message = (
                        f"Container {name} {why}, will be restarted" if why else f"Stopping container {name}"
                    )
                    yield _normal(uid, KILLING, message)
            case _:
                pass


def _started(old: PodRecord | None, record: PodRecord, since_ns: int) -> Iterator[Tell]:
    known = {one.id for one in _containers(old) if one.started_ns}
    for one in reversed(_containers(record)):
        if one.started_ns >= since_ns and one.id not in known:
            yield _normal(record.pod.uid, STARTED, f"Container started: {one.name}")


def _held_back(old: PodRecord | None, record: PodRecord) -> Iterator[Tell]:
    before = old.held_back if old is not None else {}
    for name, why in record.held_back.items():
        if why.reason == CRASH_LOOP and before.get(name) != why:
            message = f"Back-off restarting failed container {name} in pod {_title(record.pod)}"
            yield Tell(uid=record.pod.uid, is_warning=True, reason=BACK_OFF, message=message)


def _containers(record: PodRecord | None) -> tuple[ContainerFacts, ...]:
    return record.facts.containers if record is not None and record.facts is not None else ()


def _running(record: PodRecord | None) -> list[str]:
    return [one.name for one in _containers(record) if one.phase is ContainerPhase.RUNNING]


def _title(pod: Pod) -> str:
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"


def _normal(uid: str, reason: str, message: str) -> Tell:
    return Tell(uid=uid, is_warning=False, reason=reason, message=message)
