"""The conditions of a pod, those of a resize included, with their transition times."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.objects import ContainerStatus, Pod, PodCondition, PodStatus
from nodewright.model.values.instant import Instant

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
RESIZE_ERROR = "Error"


class PodResizeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The resize of a pod; without fields set: the pod has the resources of its spec."""

    desired: Pod | None = None
    """The pod with the desired resources, where they are not allocated."""
    reason: str = ""
    """Why they are not allocated: `Deferred`, `Infeasible`."""
    message: str = ""
    is_in_progress: bool = False
    """Whether the allocated resources are not applied yet."""
    restarts: tuple[str, ...] = ()
    """Containers that the resize restarts."""
    error: str = ""
    """Why the resources could not be applied."""


NO_RESIZE = PodResizeStatus()


def resize_conditions(
    resizing: PodResizeStatus, before: Iterable[PodCondition], now: Instant
) -> Iterator[PodCondition]:
    """The conditions of a pod's resize, each with the time since when it holds for this reason.

    Follows: v1.36, pkg/kubelet/status/status_manager.go, GetPodResizeConditions.
    """
    old_conditions = {condition.type: condition for condition in before}
    active = []
    if resizing.reason:
        active.append((RESIZE_PENDING, resizing.reason, resizing.message))
    if resizing.is_in_progress:
        active.append((RESIZE_IN_PROGRESS, RESIZE_ERROR if resizing.error else "", resizing.error))
    for type_, reason, message in active:
        old = old_conditions.get(type_)
        since = old.last_transition_time if old is not None and old.reason == reason else None
        yield PodCondition(
            type=type_, status="True", reason=reason, message=message, last_transition_time=since or now
        )


DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that was terminated by a disruption such as preemption or eviction."""
KUBELET_CONDITIONS = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    RESIZE_PENDING,
    RESIZE_IN_PROGRESS,
)
"""The conditions that only the kubelet sets."""


def pod_conditions(pod: Pod, status: PodStatus, *, has_sandbox: bool) -> tuple[PodCondition, ...]:
    """The conditions that the kubelet derives from the status, in its order.

    Follows: v1.36, kubelet/status/generate.go.
    Departs: readiness gates are left to the pod's object in the API server, which alone has their conditions.
    """
    ready = _containers_ready(pod, status)
    return (
        PodCondition(type="PodReadyToStartContainers", status=str(has_sandbox)),
        _initialized(pod, status),
        replace(ready, type="Ready"),
        ready,
        PodCondition(type="PodScheduled", status="True"),
    )


def with_transition_times(
    conditions: Iterable[PodCondition],
    before: Iterable[PodCondition],
    now: Instant,
    disruption_target: str | None = None,
) -> tuple[PodCondition, ...]:
    """The conditions with their transition times, after the conditions that other components have set."""
    old_conditions = {condition.type: condition for condition in before}
    others = [condition for condition in old_conditions.values() if condition.type not in KUBELET_CONDITIONS]
    if disruption_target is not None and DISRUPTION_TARGET not in old_conditions:
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
    for condition in conditions:
        old = old_conditions.get(condition.type)
        is_same = old is not None and old.status == condition.status and old.last_transition_time is not None
        since = old.last_transition_time if old is not None and is_same else now
        dated.append(replace(condition, last_transition_time=since))
    return (*others, *dated)


def _containers_ready(pod: Pod, status: PodStatus) -> PodCondition:
    """The condition ContainersReady: sidecars and main containers are ready.

    Follows: v1.36, kubelet/status/generate.go, GenerateContainersReadyCondition.
    """
    by_name = _by_name(status)
    names = [
        *(container.name for container in pod.spec.init_containers if container.is_sidecar),
        *(container.name for container in pod.spec.containers),
    ]
    unknown = [name for name in names if name not in by_name]
    unready = [name for name in names if name in by_name and not by_name[name].ready]
    if status.phase == "Failed" or (status.phase == "Succeeded" and not unknown):
        reason = "PodFailed" if status.phase == "Failed" else "PodCompleted"
        return PodCondition(type="ContainersReady", status="False", reason=reason)
    message = ", ".join(_message_parts(unknown, unready, "unready"))
    if message:
        return PodCondition(
            type="ContainersReady", status="False", reason="ContainersNotReady", message=message
        )
    return PodCondition(type="ContainersReady", status="True")


def _initialized(pod: Pod, status: PodStatus) -> PodCondition:
    """The condition Initialized: all init containers have completed, sidecars have started.

    Follows: v1.36, kubelet/status/generate.go, GeneratePodInitializedCondition.
    """
    by_name = _by_name(status)
    names = [container.name for container in pod.spec.init_containers]
    unknown = [name for name in names if name not in by_name]
    incomplete = [
        container.name
        for container in pod.spec.init_containers
        if container.name in by_name
        and not _is_initialized(by_name[container.name], is_sidecar=container.is_sidecar)
    ]
    if status.phase == "Succeeded" and not unknown:
        return PodCondition(type="Initialized", status="True", reason="PodCompleted")
    mains = (by_name.get(container.name) for container in pod.spec.containers)
    if any(main is not None and (main.state.running or main.state.terminated) for main in mains):
        return PodCondition(type="Initialized", status="True")
    message = ", ".join(_message_parts(unknown, incomplete, "incomplete"))
    if not message or any(
        condition.type == "Initialized" and condition.status == "True" for condition in status.conditions
    ):
        return PodCondition(type="Initialized", status="True")
    return PodCondition(
        type="Initialized", status="False", reason="ContainersNotInitialized", message=message
    )


def _message_parts(unknown: list[str], others: list[str], what: str) -> Iterator[str]:
    if unknown:
        yield f"containers with unknown status: [{' '.join(unknown)}]"
    if others:
        yield f"containers with {what} status: [{' '.join(others)}]"


def _is_initialized(status: ContainerStatus, *, is_sidecar: bool) -> bool:
    return bool(status.started) if is_sidecar else status.ready


def _by_name(status: PodStatus) -> dict[str, ContainerStatus]:
    return {
        container.name: container
        for container in (*status.container_statuses, *status.init_container_statuses)
    }
