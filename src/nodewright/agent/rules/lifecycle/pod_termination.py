"""Pod termination: grace periods, the order in which containers stop, and the active deadline."""

from collections.abc import Collection, Mapping

from nodewright.agent.rules.pod_actions import KillReason
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.model.kubernetes.objects import Container, Pod, PodStatus
from nodewright.model.values.instant import Instant, InstantError

MIN_GRACE_PERIOD_S = 2
"""The shortest grace period of a container."""


def grace_period_s(
    pod: Pod, container: Container, reason: KillReason | None = None, override_s: int | None = None
) -> int:
    """The time between a container's stop signal and its kill.

    Units:   seconds.
    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, setTerminationGracePeriod.

    >>> grace_period_s(Pod(), Container())
    2
    """
    if override_s is not None:
        return override_s
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    pod_period_s = pod.spec.termination_grace_period_seconds
    if pod_period_s is None:
        return MIN_GRACE_PERIOD_S
    probes = {KillReason.STARTUP: container.startup_probe, KillReason.LIVENESS: container.liveness_probe}
    probe = probes.get(reason) if reason is not None else None
    probe_period_s = probe.get("terminationGracePeriodSeconds") if probe is not None else None
    return pod_period_s if probe_period_s is None else int(probe_period_s)


def termination_ordering(pod: Pod, running: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """For each running container, those that must stop before it: main containers and the next sidecar for a sidecar.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_termination_order.go, newTerminationOrdering.

    >>> proxy, log = (Container(name=name, restart_policy="Always") for name in ("proxy", "log"))
    >>> from nodewright.model.kubernetes.objects import PodSpec
    >>> pod = Pod(spec=PodSpec(containers=(Container(name="app"),), init_containers=(proxy, log)))
    >>> termination_ordering(pod, {"app", "proxy", "log"})
    {'app': (), 'proxy': ('app', 'log'), 'log': ('app',)}
    """
    mains = tuple(container.name for container in pod.spec.containers if container.name in running)
    sidecars = [
        container.name
        for container in pod.spec.init_containers
        if container.is_sidecar and container.name in running
    ]
    ordering: dict[str, tuple[str, ...]] = dict.fromkeys(mains, ())
    for index, name in enumerate(sidecars):
        ordering[name] = (*mains, *sidecars[index + 1 : index + 2])
    for container in (*pod.spec.init_containers, *pod.spec.ephemeral_containers):
        if container.name in running:
            ordering.setdefault(container.name, ())
    return ordering


def deadline_exceeded_status(pod: Pod, status: PodStatus, now: Instant) -> StatusOverride | None:
    """The status of a pod that exceeds its active deadline; None while it does not.

    Follows: v1.36, kubelet/active_deadline.go.
    """
    deadline_s = pod.spec.active_deadline_seconds
    if deadline_s is None or not status.start_time:
        return None
    try:
        since = Instant.parse(status.start_time)
    except InstantError:
        return None
    if now.nanoseconds - since.nanoseconds < deadline_s * 10**9:
        return None
    message = "Pod was active on the node longer than the specified deadline"
    return StatusOverride(phase="Failed", reason="DeadlineExceeded", message=message)
