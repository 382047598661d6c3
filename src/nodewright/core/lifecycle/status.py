"""A pod's status: what each container is up to, the phase of the pod, its conditions."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.core.lifecycle.conditions import conditions, since
from nodewright.core.lifecycle.phase import phase_of
from nodewright.core.lifecycle.plan import Health, Probed
from nodewright.core.lifecycle.resizing import NO_RESIZE, Resizing, resize_conditions
from nodewright.core.lifecycle.restarts import may_start
from nodewright.core.requests import qos_class
from nodewright.model.objects import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodStatus,
    Running,
    Terminated,
    Waiting,
)
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.values.instant import Instant

CONTAINER_CREATING, POD_INITIALIZING = "ContainerCreating", "PodInitializing"
STATUS_UNKNOWN = "ContainerStatusUnknown"
LOST_EXIT_CODE = 137
"""Of a container that ran and is nowhere to be found: as if it had been killed."""

_LOST = "The container could not be located when the pod was terminated"
_GONE = "The container could not be located when the pod was deleted.  The container used to be Running"
_FORGOTTEN = (
    "Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally"
)


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod's status says because something else than its containers decided: it was evicted, or turned away."""

    phase: str
    reason: str
    message: str
    disruption_target: str | None = None


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What a status depends on besides the pod and what the runtime says."""

    now: Instant
    probed: Probed = Probed()
    waiting: Mapping[str, Waiting] = {}
    """Why containers could not be started, by name: back-off, image, error of the runtime."""
    is_terminal: bool = False
    """Nothing runs in it any more, and nothing will."""
    is_static: bool = False
    override: Override | None = None
    host_ip: str = ""
    resizing: Resizing = NO_RESIZE
    unhooked: frozenset[str] = frozenset()
    """The ids of containers whose postStart hooks have not come back: they have not started yet, as far as anybody hears."""


def pod_status(pod: Pod, facts: PodFacts | None, previous: PodStatus, when: Circumstances) -> PodStatus:
    """The status that the kubelet would report; ``previous`` is the one that it reported last.

    Follows: v1.36, kubelet/kubelet_pods.go, generateAPIPodStatus.
    """
    facts = facts or PodFacts(uid=pod.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)
    view = _View(pod, facts, when)
    mains = view.statuses(pod.spec.containers, previous.container_statuses)
    inits = view.statuses(pod.spec.init_containers, previous.init_container_statuses)
    phase = phase_of(
        pod.spec,
        (*mains, *inits),
        is_terminal=when.is_terminal and not when.is_static,
        has_initialized=view.any_main_is_active(),
    )
    if phase not in ("Failed", "Succeeded") and previous.phase in ("Failed", "Succeeded"):
        phase = previous.phase
    reason, message = (previous.reason, previous.message) if phase == previous.phase else ("", "")
    if when.override is not None:
        phase, reason, message = when.override.phase, when.override.reason, when.override.message
    mains = tuple(_probed(one, pod.spec.containers, when.probed) for one in mains)
    inits = tuple(_probed_init(one, pod.spec.init_containers, when.probed) for one in inits)
    address = next((one.ip for one in facts.sandboxes if one.is_ready and one.ip), "")
    status = PodStatus(
        phase=phase,
        reason=reason,
        message=message,
        qos_class=str(qos_class(pod)),
        start_time=previous.start_time or str(when.now.whole_second),
        conditions=previous.conditions,
        host_ip=when.host_ip,
        pod_ip=address or (when.host_ip if pod.spec.host_network else ""),
        container_statuses=mains,
        init_container_statuses=inits,
    )
    disrupted = when.override.disruption_target if when.override is not None else None
    found = conditions(pod, status, has_sandbox=any(one.is_ready for one in facts.sandboxes))
    resizes = resize_conditions(when.resizing, previous.conditions, when.now)
    dated = since(found, previous.conditions, when.now, disrupted)
    return replace(status, conditions=(*resizes, *dated))


class _View(msgspec.Struct, frozen=True):
    """What the status of a container depends on besides the container."""

    pod: Pod
    facts: PodFacts
    when: Circumstances

    def statuses(
        self, containers: tuple[Container, ...], previous: Iterable[ContainerStatus]
    ) -> tuple[ContainerStatus, ...]:
        """Of these containers, in the order of the spec.

        Follows: v1.36, kubelet/kubelet_pods.go, convertToAPIContainerStatuses.
        """
        before = {one.name: one for one in previous}
        return tuple(self._status(one, before.get(one.name)) for one in containers)

    def _status(self, container: Container, old: ContainerStatus | None) -> ContainerStatus:
        known = tuple(
            one
            for one in self.facts.containers
            if one.name == container.name and one.id not in self.when.unhooked
        )
        status = _seen(container, known, old) if known else _unseen(self.pod, container, old)
        newest = known[0] if known else None
        if self.when.resizing.is_in_progress:
            status = _as_before(status, old)
        if container in self.pod.spec.init_containers:
            if newest is not None and newest.phase is ContainerPhase.EXITED and newest.exit_code == 0:
                return status
            is_waiting = status.state.waiting is not None
            if newest is None and not container.is_sidecar and is_waiting and self._has_initialized():
                done = Terminated(0, "Completed", _FORGOTTEN)
                return replace(status, state=ContainerState(terminated=done))
        return self._held_back(container, newest, status)

    def _held_back(
        self, container: Container, newest: ContainerFacts | None, status: ContainerStatus
    ) -> ContainerStatus:
        """The status with why the container does not start, if something keeps it from doing so."""
        why = self.when.waiting.get(container.name)
        if why is None or not may_start(self.pod, container, newest):
            return status
        last = status.state if status.state.terminated is not None else status.last_state
        return replace(status, state=ContainerState(waiting=why), last_state=last)

    def _has_initialized(self) -> bool:
        """Whether any main container was ever made."""
        mains = {one.name for one in self.pod.spec.containers}
        known = (one for one in self.facts.containers if one.name in mains)
        return any(one.phase is not ContainerPhase.UNKNOWN for one in known)

    def any_main_is_active(self) -> bool:
        """Whether a main container was made in the sandbox that is there now."""
        mains = {one.name for one in self.pod.spec.containers}
        sandbox = self.facts.sandboxes[0].id if self.facts.sandboxes else None
        return any(one.sandbox_id == sandbox and one.name in mains for one in self.facts.containers)


def _seen(
    container: Container, known: tuple[ContainerFacts, ...], old: ContainerStatus | None
) -> ContainerStatus:
    """Of a container that the runtime holds."""
    newest = known[0]
    state, count = _state(newest, old)
    last = old.last_state if old is not None and old.last_state.terminated is not None else ContainerState()
    if old is not None and old.container_id != newest.id and old.state.terminated is not None:
        last = ContainerState(terminated=old.state.terminated)
    if len(known) > 1:
        last, _ = _state(known[1], None)
    same = old if old is not None and old.container_id == newest.id else ContainerStatus()
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=last,
        ready=same.ready,
        started=same.started,
        restart_count=max(count, old.restart_count if old is not None else 0),
        image=newest.image or container.image,
        image_id=newest.image_id,
        container_id=newest.id,
        resources=container.resources,
        allocated_resources=container.resources.requests,
    )


def _as_before(status: ContainerStatus, old: ContainerStatus | None) -> ContainerStatus:
    """Of a container whose resize the machine has not been told yet: it has what it had."""
    is_same = old is not None and old.state.running is not None and old.container_id == status.container_id
    return replace(status, resources=old.resources) if old is not None and is_same else status


def _state(facts: ContainerFacts, old: ContainerStatus | None) -> tuple[ContainerState, int]:
    """How a container is, and how often it was started again."""
    started, finished = _instant(facts.started_ns), _instant(facts.finished_ns)
    match facts.phase:
        case ContainerPhase.RUNNING:
            return ContainerState(running=Running(started)), facts.attempt
        case ContainerPhase.EXITED:
            ended = Terminated(facts.exit_code, facts.reason, facts.message, started, finished, facts.id)
            return ContainerState(terminated=ended), facts.attempt
        case ContainerPhase.UNKNOWN if old is not None and old.state.running is not None:
            lost = Terminated(LOST_EXIT_CODE, STATUS_UNKNOWN, _LOST)
            return ContainerState(terminated=lost), old.restart_count + 1
        case _:
            return ContainerState(waiting=Waiting()), facts.attempt


def _unseen(pod: Pod, container: Container, old: ContainerStatus | None) -> ContainerStatus:
    """Of a container that the runtime knows nothing of."""
    reason = POD_INITIALIZING if pod.spec.init_containers else CONTAINER_CREATING
    waiting = ContainerState(waiting=Waiting(reason))
    status = ContainerStatus(name=container.name, image=container.image, state=waiting)
    if old is None:
        return status
    if old.state.terminated is not None:
        return old
    status = replace(status, restart_count=old.restart_count, last_state=old.last_state)
    if old.state.running is None or old.last_state.terminated is not None:
        return status
    lost = ContainerState(terminated=Terminated(LOST_EXIT_CODE, STATUS_UNKNOWN, _GONE))
    again = pod.metadata.deletion_timestamp is None
    return replace(status, last_state=lost, restart_count=old.restart_count + again)


def _probed(status: ContainerStatus, containers: tuple[Container, ...], probed: Probed) -> ContainerStatus:
    """The status with what probes say.

    Follows: v1.36, kubelet/prober/prober_manager.go, UpdatePodStatus.
    """
    container = next(one for one in containers if one.name == status.name)
    if status.state.running is None:
        return replace(status, started=False, ready=False)
    startup = probed.startup.get(status.container_id)
    has_started = bool(status.started) or container.startup_probe is None
    if startup is not None:
        has_started = startup is Health.SUCCESS
    # A probe without a result has not come round since the agent started: what was said before still holds.
    readiness = probed.readiness.get(status.container_id, Health.SUCCESS if status.ready else None)
    is_ready = container.readiness_probe is None or readiness is Health.SUCCESS
    return replace(status, started=has_started, ready=has_started and is_ready)


def _probed_init(
    status: ContainerStatus, containers: tuple[Container, ...], probed: Probed
) -> ContainerStatus:
    """The same for an init container: one that ends is ready once it has ended well."""
    found = _probed(status, containers, probed)
    if next(one for one in containers if one.name == status.name).is_sidecar:
        return found
    ended = status.state.terminated
    return replace(found, ready=ended is not None and ended.exit_code == 0)


def _instant(nanoseconds: int) -> Instant | None:
    return Instant(nanoseconds) if nanoseconds else None
