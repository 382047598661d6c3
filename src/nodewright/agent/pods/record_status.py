"""The status of a pod, made from its record: probe results and postStart hooks included."""

from nodewright.agent.agent_state import AgentConstants, PodRecord, PodStage
from nodewright.core.lifecycle.pod_actions import ProbeResult, ProbeResults
from nodewright.core.lifecycle.pod_status import StatusContext, pod_status
from nodewright.core.lifecycle.probe_state import ProbeKind
from nodewright.core.requests.qos_and_priority import qos_class
from nodewright.kubernetes.objects import Pod, PodStatus
from nodewright.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus
from nodewright.reasons.status_evidence import REJECTION_PREFIX
from nodewright.values.instant import Instant


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
    return pod_status(
        record.pod,
        record.runtime_status,
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
    if record.runtime_status is None or not record.pending_post_start_hooks:
        return ()
    newest = (record.runtime_status.newest_attempt(name) for name in record.pending_post_start_hooks)
    return tuple(
        status
        for status in newest
        if status is not None
        and status.phase is ContainerPhase.RUNNING
        and status.attempt == record.pending_post_start_hooks[status.name]
        and has_post_start_hook(record.pod, status.name)
    )


def has_post_start_hook(pod: Pod, name: str) -> bool:
    """Whether the container has a postStart hook."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(
        container.name == name and "postStart" in (container.lifecycle or {}) for container in containers
    )
