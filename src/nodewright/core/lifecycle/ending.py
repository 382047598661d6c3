"""How a pod ends: how long each container has, who waits for whom, and when its time is up."""

from collections.abc import Collection, Mapping

from nodewright.core.lifecycle.plan import KillReason
from nodewright.core.lifecycle.status import Override
from nodewright.model.objects import Container, Pod, PodStatus
from nodewright.values.instant import Instant, InstantError

LEAST_GRACE_S = 2
"""What a container is given at least, whatever was asked for."""


def grace_period_s(
    pod: Pod, container: Container, reason: KillReason | None = None, override_s: int | None = None
) -> int:
    """How long a container has from being asked to end until it is made to.

    Units:   seconds.
    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, setTerminationGracePeriod.

    >>> grace_period_s(Pod(), Container())
    2
    """
    if override_s is not None:
        return override_s
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    own = pod.spec.termination_grace_period_seconds
    if own is None:
        return LEAST_GRACE_S
    probes = {KillReason.STARTUP: container.startup_probe, KillReason.LIVENESS: container.liveness_probe}
    probe = probes.get(reason) if reason is not None else None
    told = probe.get("terminationGracePeriodSeconds") if probe is not None else None
    return own if told is None else int(told)


def waits_for(pod: Pod, running: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Whom each running container waits for before it is asked to end: sidecars for all main containers and later sidecars.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_termination_order.go, newTerminationOrdering.

    >>> proxy, log = (Container(name=name, restart_policy="Always") for name in ("proxy", "log"))
    >>> from nodewright.model.objects import PodSpec
    >>> pod = Pod(spec=PodSpec(containers=(Container(name="app"),), init_containers=(proxy, log)))
    >>> waits_for(pod, {"app", "proxy", "log"})
    {'app': (), 'proxy': ('app', 'log'), 'log': ('app',)}
    """
    mains = tuple(one.name for one in pod.spec.containers if one.name in running)
    sidecars = [one.name for one in pod.spec.init_containers if one.is_sidecar and one.name in running]
    found: dict[str, tuple[str, ...]] = dict.fromkeys(mains, ())
    for place, name in enumerate(sidecars):
        found[name] = (*mains, *sidecars[place + 1 : place + 2])
    for one in pod.spec.init_containers:
        if one.name in running:
            found.setdefault(one.name, ())
    return found


def overdue(pod: Pod, status: PodStatus, now: Instant) -> Override | None:
    """What is said of a pod that has been active for longer than it may; None: it may go on.

    Follows: v1.36, kubelet/active_deadline.go.
    """
    limit = pod.spec.active_deadline_seconds
    if limit is None or not status.start_time:
        return None
    try:
        since = Instant.parse(status.start_time)
    except InstantError:
        return None
    if now.nanoseconds - since.nanoseconds < limit * 10**9:
        return None
    message = "Pod was active on the node longer than the specified deadline"
    return Override(phase="Failed", reason="DeadlineExceeded", message=message)
