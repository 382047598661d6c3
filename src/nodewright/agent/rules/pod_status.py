"""A pod's status: container statuses, phase, conditions, addresses and pod-level resources."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat

import msgspec
from msgspec.structs import replace

from nodewright.agent.rules.pod_actions import (
    ProbeResult,
    ProbeResults,
    no_runtime_status,
    should_be_started,
    should_restart,
)
from nodewright.engine.core.requests.effective_resources import pod_limits, pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.kubernetes.objects import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.values.instant import Instant, InstantError


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


class _ContainerCounts:
    """Counts the containers of a pod by state."""

    def __init__(self, spec: PodSpec) -> None:
        self.spec = spec
        self.pending_inits = self.pending_sidecars = 0
        self.has_failed = False
        self.unknown = self.running = self.waiting = self.stopped = self.ended = self.succeeded = 0

    def init(self, container: Container, status: ContainerStatus | None) -> None:
        """Counts an init container that is not a sidecar."""
        state = status.state if status is not None else None
        last = status.last_state.terminated if status is not None else None
        terminated = None
        if state is not None:
            terminated = state.terminated or (last if state.waiting is not None else None)
        if terminated is None:
            self.pending_inits += 1
        elif terminated.exit_code != 0:
            self.has_failed = self.has_failed or not should_restart(
                container, self.spec, terminated.exit_code
            )

    def sidecar(self, status: ContainerStatus | None) -> None:
        """Counts a sidecar."""
        if status is None:
            self.unknown += 1
        elif status.state.running is not None:
            self.running += 1
            self.pending_sidecars += not status.started
        elif status.state.terminated is not None:
            return
        elif status.state.waiting is not None:
            if status.last_state.terminated is None:
                self.pending_sidecars += 1
                self.waiting += 1
        else:
            self.pending_sidecars += 1
            self.unknown += 1

    def main(self, container: Container, status: ContainerStatus | None) -> None:
        """Counts a main container."""
        if status is None:
            self.unknown += 1
            return
        state, last = status.state, status.last_state.terminated
        if state.running is not None:
            self.running += 1
        elif state.terminated is not None:
            self._count_stopped(container, state.terminated.exit_code)
            self.succeeded += state.terminated.exit_code == 0
        elif state.waiting is None:
            self.unknown += 1
        elif last is not None:
            self._count_stopped(container, last.exit_code)
        else:
            self.waiting += 1

    def _count_stopped(self, container: Container, exit_code: int) -> None:
        self.stopped += 1
        self.ended += not should_restart(container, self.spec, exit_code)


def pod_phase(
    spec: PodSpec, statuses: Iterable[ContainerStatus], *, is_terminal: bool, has_initialized: bool
) -> str:
    """The phase: `Pending`, `Running`, `Succeeded` or `Failed`.

    ``is_terminal``: no container runs or will run again. ``has_initialized``: a main container was created.

    Follows: v1.36, kubelet/kubelet_pods.go, getPhase.
    """
    by_name = {status.name: status for status in statuses}
    counts = _ContainerCounts(spec)
    for container in spec.init_containers:
        if container.is_sidecar:
            counts.sidecar(by_name.get(container.name))
        else:
            counts.init(container, by_name.get(container.name))
    for container in spec.containers:
        counts.main(container, by_name.get(container.name))
    if counts.has_failed:
        return "Failed"
    if counts.pending_inits or (counts.pending_sidecars and not has_initialized) or counts.waiting:
        return "Pending"
    if counts.unknown or not (counts.running or counts.stopped):
        return "Pending"
    if counts.running or (not is_terminal and counts.stopped != counts.ended):
        return "Running"
    return "Succeeded" if counts.stopped == counts.succeeded else "Failed"


CONTAINER_CREATING, POD_INITIALIZING = "ContainerCreating", "PodInitializing"
STATUS_UNKNOWN = "ContainerStatusUnknown"
UNKNOWN_EXIT_CODE = 137
"""The exit code of a container that ran and that the runtime no longer knows: as if it had been killed."""

_LOST = "The container could not be located when the pod was terminated"
_GONE = "The container could not be located when the pod was deleted.  The container used to be Running"
_FORGOTTEN = (
    "Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally"
)


class StatusOverride(msgspec.Struct, frozen=True, kw_only=True):
    """The phase of a pod that its containers did not decide: it was evicted or rejected."""

    phase: str
    reason: str
    message: str
    disruption_target: str | None = None


class StatusContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a status depends on besides the pod and the runtime's status."""

    now: Instant
    probe_results: ProbeResults = ProbeResults()
    waiting: Mapping[str, ContainerStateWaiting] = {}
    """Why containers are not started, by name: back-off, image, runtime error."""
    is_terminal: bool = False
    """Whether no container runs or will run again."""
    is_static: bool = False
    override: StatusOverride | None = None
    host_ip: str = ""
    resizing: PodResizeStatus = NO_RESIZE
    awaiting_post_start: frozenset[str] = frozenset()
    """The ids of containers with a postStart hook in progress, which are not reported as started yet."""


def pod_status(
    pod: Pod, runtime_status: RuntimePodStatus | None, previous: PodStatus, context: StatusContext
) -> PodStatus:
    """The status that the kubelet reports; ``previous`` is the last one that it reported.

    Follows: v1.36, kubelet/kubelet_pods.go, generateAPIPodStatus.
    """
    runtime_status = runtime_status or no_runtime_status(pod)
    builder = _StatusBuilder(pod, runtime_status, context)
    mains = builder.statuses(pod.spec.containers, previous.container_statuses)
    inits = builder.statuses(pod.spec.init_containers, previous.init_container_statuses)
    phase = pod_phase(
        pod.spec,
        (*mains, *inits),
        is_terminal=context.is_terminal and not context.is_static,
        has_initialized=builder.any_main_is_active(),
    )
    if phase not in ("Failed", "Succeeded") and previous.phase in ("Failed", "Succeeded"):
        phase = previous.phase
    reason, message = (previous.reason, previous.message) if phase == previous.phase else ("", "")
    if context.override is not None:
        phase, reason, message = context.override.phase, context.override.reason, context.override.message
    results = repeat(context.probe_results)
    mains = tuple(map(_with_probe_results, mains, pod.spec.containers, results))
    inits = tuple(map(_with_init_probe_results, inits, pod.spec.init_containers, results))
    status = PodStatus(
        phase=phase,
        reason=reason,
        message=message,
        qos_class=str(qos_class(pod)),
        start_time=previous.start_time or str(context.now.whole_second),
        conditions=previous.conditions,
        host_ip=context.host_ip,
        container_statuses=mains,
        init_container_statuses=inits,
        ephemeral_container_statuses=builder.statuses(
            pod.spec.ephemeral_containers, previous.ephemeral_container_statuses
        ),
    )
    status = with_addresses(status, pod, runtime_status)
    has_sandbox = any(sandbox.is_ready for sandbox in runtime_status.sandboxes)
    conditions = pod_conditions(pod, status, has_sandbox=has_sandbox)
    return replace(status, conditions=_dated_conditions(conditions, previous, context))


def _dated_conditions(
    conditions: tuple[PodCondition, ...], previous: PodStatus, context: StatusContext
) -> tuple[PodCondition, ...]:
    """The conditions with their transition times, after those of a resize."""
    disruption_target = context.override.disruption_target if context.override is not None else None
    resize = resize_conditions(context.resizing, previous.conditions, context.now)
    dated = with_transition_times(conditions, previous.conditions, context.now, disruption_target)
    return (*resize, *dated)


class _StatusBuilder(msgspec.Struct, frozen=True):
    """Builds container statuses."""

    pod: Pod
    runtime_status: RuntimePodStatus
    context: StatusContext

    def statuses(
        self, containers: tuple[Container, ...], previous: Iterable[ContainerStatus]
    ) -> tuple[ContainerStatus, ...]:
        """The statuses of these containers, in the order of the spec.

        Follows: v1.36, kubelet/kubelet_pods.go, convertToAPIContainerStatuses.
        """
        old_statuses = {status.name: status for status in previous}
        attempts: dict[str, list[RuntimeContainerStatus]] = {}
        for attempt in self.runtime_status.containers:
            if attempt.id not in self.context.awaiting_post_start:
                attempts.setdefault(attempt.name, []).append(attempt)
        return tuple(
            self._status(container, attempts.get(container.name, ()), old_statuses.get(container.name))
            for container in containers
        )

    def _status(
        self, container: Container, attempts: Sequence[RuntimeContainerStatus], old: ContainerStatus | None
    ) -> ContainerStatus:
        status = (
            _status_of_attempts(container, attempts, old)
            if attempts
            else _status_without_attempt(self.pod, container, old)
        )
        newest = attempts[0] if attempts else None
        if self.context.resizing.is_in_progress:
            status = _with_old_resources(status, old)
        if container in self.pod.spec.init_containers:
            if newest is not None and newest.phase is ContainerPhase.EXITED and newest.exit_code == 0:
                return status
            if newest is None and not container.is_sidecar and self._has_initialized():
                ended = status.state.terminated
                if status.state.waiting is not None:
                    ended = ContainerStateTerminated(0, "Completed", _FORGOTTEN)
                elif self.context.is_static and ended is not None and ended.exit_code == 0:
                    # A kubelet that has restarted knows no more; here the times and the id stay known.
                    ended = replace(ended, message=ended.message or _FORGOTTEN)
                if ended is not None and ended.exit_code == 0:
                    return replace(status, state=ContainerState(terminated=ended))
        return self._with_waiting_reason(container, newest, status)

    def _with_waiting_reason(
        self, container: Container, newest: RuntimeContainerStatus | None, status: ContainerStatus
    ) -> ContainerStatus:
        """The status with the reason why the container is not started, if there is one."""
        waiting = self.context.waiting.get(container.name)
        if waiting is None or not should_be_started(self.pod, container, newest):
            return status
        last = status.state if status.state.terminated is not None else status.last_state
        return replace(status, state=ContainerState(waiting=waiting), last_state=last)

    def _has_initialized(self) -> bool:
        """Whether any main container was ever created."""
        mains = {container.name for container in self.pod.spec.containers}
        statuses = (status for status in self.runtime_status.containers if status.name in mains)
        return any(status.phase is not ContainerPhase.UNKNOWN for status in statuses)

    def any_main_is_active(self) -> bool:
        """Whether a main container was created in the present sandbox."""
        mains = {container.name for container in self.pod.spec.containers}
        sandbox = self.runtime_status.sandboxes[0].id if self.runtime_status.sandboxes else None
        return any(
            container.sandbox_id == sandbox and container.name in mains
            for container in self.runtime_status.containers
        )


def _status_of_attempts(
    container: Container, attempts: Sequence[RuntimeContainerStatus], old: ContainerStatus | None
) -> ContainerStatus:
    """The status of a container that the runtime knows."""
    newest = attempts[0]
    state, restart_count = _state(newest, old)
    last = old.last_state if old is not None and old.last_state.terminated is not None else ContainerState()
    if old is not None and old.container_id != newest.id and old.state.terminated is not None:
        last = ContainerState(terminated=old.state.terminated)
    if len(attempts) > 1:
        last, _ = _state(attempts[1], None)
    current = old if old is not None and old.container_id == newest.id else ContainerStatus()
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=last,
        ready=current.ready,
        started=current.started,
        restart_count=max(restart_count, old.restart_count if old is not None else 0),
        image=newest.image or container.image,
        image_id=newest.image_id,
        container_id=newest.id,
        resources=container.resources,
        allocated_resources=container.resources.requests,
    )


def _with_old_resources(status: ContainerStatus, old: ContainerStatus | None) -> ContainerStatus:
    """The status with the old resources while a resize is not applied yet."""
    is_same = old is not None and old.state.running is not None and old.container_id == status.container_id
    return replace(status, resources=old.resources) if old is not None and is_same else status


def _state(status: RuntimeContainerStatus, old: ContainerStatus | None) -> tuple[ContainerState, int]:
    """The container's state and restart count."""
    started, finished = _instant(status.started_ns), _instant(status.finished_ns)
    match status.phase:
        case ContainerPhase.RUNNING:
            return ContainerState(running=ContainerStateRunning(started)), status.attempt
        case ContainerPhase.EXITED:
            terminated = ContainerStateTerminated(
                status.exit_code, status.reason, status.message, started, finished, status.id
            )
            return ContainerState(terminated=terminated), status.attempt
        case ContainerPhase.UNKNOWN if old is not None and old.state.running is not None:
            lost = ContainerStateTerminated(UNKNOWN_EXIT_CODE, STATUS_UNKNOWN, _LOST)
            return ContainerState(terminated=lost), old.restart_count + 1
        case _:
            return ContainerState(waiting=ContainerStateWaiting()), status.attempt


def _status_without_attempt(pod: Pod, container: Container, old: ContainerStatus | None) -> ContainerStatus:
    """The status of a container that the runtime does not know."""
    reason = POD_INITIALIZING if pod.spec.init_containers else CONTAINER_CREATING
    waiting = ContainerState(waiting=ContainerStateWaiting(reason))
    status = ContainerStatus(name=container.name, image=container.image, state=waiting)
    if old is None:
        return status
    if old.state.terminated is not None:
        return old
    status = replace(status, restart_count=old.restart_count, last_state=old.last_state)
    if old.state.running is None or old.last_state.terminated is not None:
        return status
    lost = ContainerState(terminated=ContainerStateTerminated(UNKNOWN_EXIT_CODE, STATUS_UNKNOWN, _GONE))
    is_restarted = pod.metadata.deletion_timestamp is None
    return replace(status, last_state=lost, restart_count=old.restart_count + is_restarted)


def _with_probe_results(
    status: ContainerStatus, container: Container, probe_results: ProbeResults
) -> ContainerStatus:
    """The status with `started` and `ready` from probe results.

    Follows: v1.36, kubelet/prober/prober_manager.go, UpdatePodStatus.
    """
    if status.state.running is None:
        return replace(status, started=False, ready=False)
    startup = probe_results.startup.get(status.container_id)
    has_started = bool(status.started) or container.startup_probe is None
    if startup is not None:
        has_started = startup is ProbeResult.SUCCESS
    # A probe without a result has not run since the agent started: the earlier status still holds.
    readiness = probe_results.readiness.get(
        status.container_id, ProbeResult.SUCCESS if status.ready else None
    )
    is_ready = container.readiness_probe is None or readiness is ProbeResult.SUCCESS
    return replace(status, started=has_started, ready=has_started and is_ready)


def _with_init_probe_results(
    status: ContainerStatus, container: Container, probe_results: ProbeResults
) -> ContainerStatus:
    """The same for an init container: one that is not a sidecar is ready once it has succeeded."""
    probed = _with_probe_results(status, container, probe_results)
    if container.is_sidecar:
        return probed
    terminated = status.state.terminated
    return replace(probed, ready=terminated is not None and terminated.exit_code == 0)


def _instant(nanoseconds: int) -> Instant | None:
    return Instant(nanoseconds) if nanoseconds else None


RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
# ---------------------------------------------------------------- conditions


RESIZE_ERROR = "Error"


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
    *("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"),
    *(RESIZE_PENDING, RESIZE_IN_PROGRESS),
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
        and not (by_name[container.name].started if container.is_sidecar else by_name[container.name].ready)
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


def _by_name(status: PodStatus) -> dict[str, ContainerStatus]:
    return {
        container.name: container
        for container in (*status.container_statuses, *status.init_container_statuses)
    }


# ---------------------------------------------------------------- addresses


def sorted_pod_ips(addresses: Iterable[str], node_ip: str) -> tuple[str, ...]:
    """At most one address of each family, that of the node's family first.

    Follows: v1.36, kubelet/kubelet_pods.go, sortPodIPs.

    >>> sorted_pod_ips(["fd00::7", "10.0.0.7", "10.0.0.8"], "192.0.2.1")
    ('10.0.0.7', 'fd00::7')
    """
    by_family: dict[bool, str] = {}
    for address in addresses:
        by_family.setdefault(_is_ipv6(address), address)
    first = _is_ipv6(node_ip)
    return tuple(by_family[family] for family in (first, not first) if family in by_family)


def with_addresses(status: PodStatus, pod: Pod, runtime_status: RuntimePodStatus) -> PodStatus:
    """The status with the pod's addresses.

    Follows: v1.36, kubelet/kubelet_pods.go, generateAPIPodStatus, convertStatusToAPIStatus.
    """
    of_sandboxes = (sandbox.ips for sandbox in runtime_status.sandboxes if sandbox.is_ready and sandbox.ips)
    addresses = sorted_pod_ips(next(of_sandboxes, ()), status.host_ip)
    if not addresses and pod.spec.host_network and status.host_ip:
        addresses = (status.host_ip,)
    if not addresses:
        return status
    return replace(status, pod_ip=addresses[0], pod_ips=tuple({"ip": address} for address in addresses))


def _is_ipv6(address: str) -> bool:
    return ":" in address


# ---------------------------------------------------------------- pod-level resources


_CGROUP_RESOURCES = (CPU, MEMORY)


def pod_level_status(pod: Pod, *, is_running: bool) -> ResourceRequirements:
    """The resources that a pod has as a whole: before it runs its effective ones, then those of its cgroup.

    Follows: v1.36, kubelet/kubelet_pods.go, convertToAPIPodLevelResourcesStatus, getEffectiveAllocatedResources.
    Departs: amounts are those of the spec, where the kubelet converts them to values of the cgroup and back.
    """
    requests, limits = pod_requests(pod), pod_limits(pod)
    written = pod.spec.resources or ResourceRequirements()
    if not is_running:
        return ResourceRequirements(requests=requests, limits=limits, claims=written.claims)
    in_cgroup = [name for name in _CGROUP_RESOURCES if _is_limit_in_cgroup(pod, name)]
    return ResourceRequirements(
        requests={**written.requests, **_chosen(requests, _CGROUP_RESOURCES)},
        limits={**written.limits, **_chosen(limits, in_cgroup)},
        claims=written.claims,
    )


def _is_limit_in_cgroup(pod: Pod, name: str) -> bool:
    """Whether the pod's cgroup limits a resource: the pod level does, or all containers do.

    Follows: v1.36, kubelet/cm/helpers_linux.go, ResourceConfigForPod.
    """
    if qos_class(pod) is QOSClass.GUARANTEED:
        return True
    if pod.spec.resources is not None and name in pod.spec.resources.limits:
        return True
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return all(name in container.resources.limits for container in containers)


def _chosen(amounts: ResourceList, names: Iterable[str]) -> ResourceList:
    return {name: amounts[name] for name in names if name in amounts}


# ---------------------------------------------------------------- active deadline


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
