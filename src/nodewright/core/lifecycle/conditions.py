"""The conditions of a pod: initialized, ready, scheduled, and since when."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from nodewright.core.lifecycle.resizing import IN_PROGRESS, PENDING
from nodewright.model.objects import ContainerStatus, Pod, PodCondition, PodStatus
from nodewright.values.instant import Instant

DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that was ended for somebody else's sake."""
_OURS = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    PENDING,
    IN_PROGRESS,
)


def conditions(pod: Pod, status: PodStatus, *, has_sandbox: bool) -> tuple[PodCondition, ...]:
    """What the kubelet says of a pod with such a status, in its order.

    Follows: v1.36, kubelet/status/generate.go.
    Departs: readiness gates are not looked at: there is nobody to set their conditions.
    """
    ready = _containers_ready(pod, status)
    return (
        PodCondition(type="PodReadyToStartContainers", status=str(has_sandbox)),
        _initialized(pod, status),
        replace(ready, type="Ready"),
        ready,
        PodCondition(type="PodScheduled", status="True"),
    )


def since(
    found: Iterable[PodCondition],
    before: Iterable[PodCondition],
    now: Instant,
    disruption_target: str | None = None,
) -> tuple[PodCondition, ...]:
    """The conditions with the moment at which each became what it is, after those that others have set."""
    known = {one.type: one for one in before}
    others = [one for one in known.values() if one.type not in _OURS]
    if disruption_target is not None and DISRUPTION_TARGET not in known:
        others.append(
            PodCondition(
                type=DISRUPTION_TARGET,
                status="True",
                reason="TerminationByKubelet",
                message=disruption_target,
                last_transition_time=now,
            )
        )
    dated = []
    for one in found:
        old = known.get(one.type)
        is_same = old is not None and old.status == one.status and old.last_transition_time is not None
        moment = old.last_transition_time if old is not None and is_same else now
        dated.append(replace(one, last_transition_time=moment))
    return (*others, *dated)


def _containers_ready(pod: Pod, status: PodStatus) -> PodCondition:
    """Whether all that is to run is ready.

    Follows: v1.36, kubelet/status/generate.go, GenerateContainersReadyCondition.
    """
    by_name = _by_name(status)
    wanted = [
        *(one.name for one in pod.spec.init_containers if one.is_sidecar),
        *(one.name for one in pod.spec.containers),
    ]
    unknown = [name for name in wanted if name not in by_name]
    unready = [name for name in wanted if name in by_name and not by_name[name].ready]
    if status.phase == "Failed" or (status.phase == "Succeeded" and not unknown):
        reason = "PodFailed" if status.phase == "Failed" else "PodCompleted"
        return PodCondition(type="ContainersReady", status="False", reason=reason)
    message = ", ".join(_lacking(unknown, unready, "unready"))
    if message:
        return PodCondition(
            type="ContainersReady", status="False", reason="ContainersNotReady", message=message
        )
    return PodCondition(type="ContainersReady", status="True")


def _initialized(pod: Pod, status: PodStatus) -> PodCondition:
    """Whether init containers have done what they are for.

    Follows: v1.36, kubelet/status/generate.go, GeneratePodInitializedCondition.
    """
    by_name = _by_name(status)
    names = [one.name for one in pod.spec.init_containers]
    unknown = [name for name in names if name not in by_name]
    incomplete = [
        one.name
        for one in pod.spec.init_containers
        if one.name in by_name and not _is_initialized(by_name[one.name], is_sidecar=one.is_sidecar)
    ]
    if status.phase == "Succeeded" and not unknown:
        return PodCondition(type="Initialized", status="True", reason="PodCompleted")
    mains = (by_name.get(one.name) for one in pod.spec.containers)
    if any(one is not None and (one.state.running or one.state.terminated) for one in mains):
        return PodCondition(type="Initialized", status="True")
    message = ", ".join(_lacking(unknown, incomplete, "incomplete"))
    if not message or any(one.type == "Initialized" and one.status == "True" for one in status.conditions):
        return PodCondition(type="Initialized", status="True")
    return PodCondition(
        type="Initialized", status="False", reason="ContainersNotInitialized", message=message
    )


def _lacking(unknown: list[str], others: list[str], what: str) -> Iterator[str]:
    if unknown:
        yield f"containers with unknown status: [{' '.join(unknown)}]"
    if others:
        yield f"containers with {what} status: [{' '.join(others)}]"


def _is_initialized(status: ContainerStatus, *, is_sidecar: bool) -> bool:
    return bool(status.started) if is_sidecar else status.ready


def _by_name(status: PodStatus) -> dict[str, ContainerStatus]:
    return {one.name: one for one in (*status.container_statuses, *status.init_container_statuses)}
