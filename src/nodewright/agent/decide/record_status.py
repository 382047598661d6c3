"""The status of a pod, made from its record: probe results and postStart hooks included."""

from msgspec.structs import replace

from nodewright.agent.rules.pod_actions import ProbeResult, ProbeResults
from nodewright.agent.rules.pod_status import StatusContext, StatusOverride, pod_level_status, pod_status
from nodewright.agent.rules.probe_state import ProbeKind
from nodewright.agent.state.agent_state import AgentConstants, PodRecord, PodStage
from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.engine.core.requests.qos_and_priority import qos_class
from nodewright.model.kubernetes.objects import ContainerStatus, Pod, PodStatus
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.reasons.reason import Reason, kubelet_text
from nodewright.model.reasons.status_evidence import REJECTION_PREFIX
from nodewright.model.values.instant import Instant


def record_status(record: PodRecord, now: Instant, constants: AgentConstants) -> PodStatus:
    """The pod's status at this moment.

    Follows: v1.36, kubelet/kubelet.go, rejectPod: a rejected pod's status lists no containers.
    """
    if record.stage is PodStage.REJECTED and record.status_override is not None:
        return PodStatus(
            phase=record.status_override.phase,
            reason=record.status_override.reason,
            message=REJECTION_PREFIX + record.status_override.message,
            qos_class=str(qos_class(record.pod)),
            start_time=record.status.start_time or str(now.whole_second),
        )
    status = pod_status(
        record.pod,
        _reported_runtime_status(record),
        record.status,
        StatusContext(
            now=now,
            probe_results=probe_results(record),
            waiting=record.container_waiting,
            is_terminal=record.stage is PodStage.TERMINATED,
            is_static=record.source.is_static_pod_source,
            override=record.status_override,
            host_ip=constants.host_ip,
            resizing=record.resizing,
            awaiting_post_start=frozenset(status.id for status in containers_awaiting_hook(record)),
        ),
    )
    is_running = status.phase == "Running"
    resources = pod_level_status(record.pod, is_running=is_running)
    if is_running and record.resizing.is_in_progress and record.status.resources is not None:
        # A resize is reported once it is applied.
        resources = record.status.resources
    return replace(status, resources=resources, allocated_resources=pod_requests(record.pod))


def status_before_restart(status: PodStatus) -> PodStatus:
    """What the status of a pod that starts again takes over: how often its containers have started, and their end."""
    return PodStatus(
        container_statuses=tuple(map(_before_restart, status.container_statuses)),
        init_container_statuses=tuple(map(_before_restart, status.init_container_statuses)),
    )


def _before_restart(status: ContainerStatus) -> ContainerStatus:
    return ContainerStatus(
        name=status.name,
        last_state=status.state if status.state.terminated is not None else status.last_state,
        restart_count=status.restart_count + bool(status.container_id),
    )


def _reported_runtime_status(record: PodRecord) -> RuntimePodStatus | None:
    """The runtime's status in which containers that are stopped to be started again run until then.

    An API server does not take a container that has terminated for good back to running.

    Follows: v1.36, kubelet/pod_workers.go, podWorkerLoop: no status is made while a sync stops and starts containers.
    """
    runtime_status = record.runtime_status
    if runtime_status is None or not record.has_running_effect:
        return runtime_status
    statuses = (*record.status.container_statuses, *record.status.init_container_statuses)
    replaced_ids = {
        status.container_id
        for status in statuses
        if status.name in record.starting_resources and status.state.running is not None
    }
    containers = []
    for container in runtime_status.containers:
        if container.id in replaced_ids and container.phase is ContainerPhase.EXITED:
            started = any(
                other.name == container.name and other.started_ns and other.attempt > container.attempt
                for other in runtime_status.containers
            )
            containers.append(
                container if started else replace(container, phase=ContainerPhase.RUNNING, finished_ns=0)
            )
        elif container.phase is not ContainerPhase.CREATED or not any(
            other.id in replaced_ids and other.name == container.name for other in runtime_status.containers
        ):
            containers.append(container)
    return replace(runtime_status, containers=tuple(containers))


def probe_results(record: PodRecord) -> ProbeResults:
    """The results of a pod's probes, by container id."""
    results: dict[ProbeKind, dict[str, ProbeResult]] = {kind: {} for kind in ProbeKind}
    for (_, kind), state in record.probes.items():
        if state.result is not None:
            results[kind][state.container_id] = state.result
    return ProbeResults(
        liveness=results[ProbeKind.LIVENESS],
        startup=results[ProbeKind.STARTUP],
        readiness=results[ProbeKind.READINESS],
    )


def containers_awaiting_hook(record: PodRecord) -> tuple[RuntimeContainerStatus, ...]:
    """The running containers with a postStart hook that is running, or was interrupted by the end of an agent.

    Departs: the kubelet takes any container that runs when it starts for one with a completed hook; its documentation
        promises delivery at least once, so an interrupted hook is run again.
    """
    running = (record.running_container(name) for name in record.pending_post_start_hooks)
    return tuple(
        status
        for status in running
        if status is not None
        and status.attempt == record.pending_post_start_hooks[status.name]
        and has_post_start_hook(record.pod, status.name)
    )


def has_post_start_hook(pod: Pod, name: str) -> bool:
    """Whether the container has a postStart hook."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(
        container.name == name and "postStart" in (container.lifecycle or {}) for container in containers
    )


def rejected_status(because: tuple[Reason, ...]) -> StatusOverride:
    """The status of a rejected pod: its first reason."""
    text = kubelet_text(because[0])
    return StatusOverride(phase="Failed", reason=text.reason, message=text.message)
