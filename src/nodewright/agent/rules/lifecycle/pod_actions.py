"""The next actions for a pod: containers to start and to kill, and whether a new sandbox is needed."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.agent.rules.pod_actions import (
    is_init_container_failed,
    restarts_all_containers,
    should_be_started,
)
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.values.golang import fnv1a_32


class ProbeResult(StrEnum):
    """The result of a container's probe; a container without the probe has no result."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class ProbeResults(msgspec.Struct, frozen=True):
    """Probe results by container id."""

    liveness: Mapping[str, ProbeResult] = {}
    startup: Mapping[str, ProbeResult] = {}
    readiness: Mapping[str, ProbeResult] = {}


NO_PROBE_RESULTS = ProbeResults()


class KillReason(StrEnum):
    """Why a container is killed while its pod keeps running."""

    LIVENESS = "liveness"
    STARTUP = "startup"
    CHANGED = "changed"
    UNKNOWN = "unknown"


class ContainerToKill(msgspec.Struct, frozen=True, kw_only=True):
    """A container to kill, and why."""

    container: RuntimeContainerStatus
    reason: KillReason
    is_init: bool = False
    restarts: bool = True


class PodActions(msgspec.Struct, frozen=True, kw_only=True):
    """The actions for a pod, in this order."""

    kill_pod: bool = False
    """Whether to kill everything that runs in the pod."""
    sandbox_attempt: int | None = None
    """The attempt number of a new sandbox to create; None: keep the present one, or none is needed."""
    sandbox_id: str = ""
    """The present sandbox."""
    containers_to_kill: tuple[ContainerToKill, ...] = ()
    containers_to_reset: tuple[RuntimeContainerStatus, ...] = ()
    """Containers to kill at once and remove, because all containers of the pod restart."""
    containers_to_start: tuple[str, ...] = ()
    """Names of the containers to start: init containers in order, then the others."""
    is_initialized: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return (
            not (
                self.kill_pod
                or self.containers_to_kill
                or self.containers_to_reset
                or self.containers_to_start
            )
            and self.sandbox_attempt is None
        )


def pod_actions(
    pod: Pod, runtime_status: RuntimePodStatus | None, probe_results: ProbeResults = NO_PROBE_RESULTS
) -> PodActions:
    """The next actions for the pod, back-offs not considered: they only delay starts.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, computePodActions.
    Departs: in-place resizes are planned elsewhere.
    """
    runtime_status = runtime_status or RuntimePodStatus(
        uid=pod.uid, namespace=pod.metadata.namespace, name=pod.metadata.name
    )
    sandbox_attempt, sandbox_id = _sandbox_decision(runtime_status)
    newest = _newest_attempts(pod, runtime_status)
    if restarts_all_containers(pod, newest.values()):
        return PodActions(
            sandbox_id=sandbox_id, containers_to_reset=_containers_to_reset(pod, runtime_status)
        )
    if sandbox_attempt is not None:
        return _actions_in_new_sandbox(
            pod, newest, PodActions(kill_pod=True, sandbox_attempt=sandbox_attempt, sandbox_id=sandbox_id)
        )
    actions = _with_init_containers(pod, newest, probe_results, PodActions(sandbox_id=sandbox_id))
    if not actions.kill_pod and actions.is_initialized:
        actions = _with_main_containers(pod, newest, probe_results, actions)
    return actions if actions.kill_pod else _with_ephemeral_containers(pod, runtime_status, actions)


def _with_ephemeral_containers(pod: Pod, runtime_status: RuntimePodStatus, actions: PodActions) -> PodActions:
    """Starts the ephemeral containers that were never started, before all others."""
    starts = tuple(
        container.name
        for container in pod.spec.ephemeral_containers
        if runtime_status.newest_attempt(container.name) is None
    )
    return (
        replace(actions, containers_to_start=(*starts, *actions.containers_to_start)) if starts else actions
    )


def spec_hash(container: Container) -> str:
    """The hash that decides whether a container is recreated: only a change of the image does that.

    Follows: v1.36, kubelet/container/helpers.go, HashContainer.

    >>> spec_hash(Container(name="app", image="a")) == spec_hash(Container(name="app", image="b"))
    False
    """
    text = f"{container.name}\0{container.image}"
    return f"{fnv1a_32(text):08x}"


def _sandbox_decision(runtime_status: RuntimePodStatus) -> tuple[int | None, str]:
    """The attempt number of the sandbox to create, None if the present one serves; and the id of the newest one.

    Follows: v1.36, kubelet/kuberuntime/util/util.go, PodSandboxChanged.
    Departs: a sandbox without an IP address is kept: a runtime that assigns none reports the sandbox as not ready.
    """
    if not runtime_status.sandboxes:
        return 0, ""
    newest = runtime_status.sandboxes[0]
    if not newest.is_ready or sum(sandbox.is_ready for sandbox in runtime_status.sandboxes) > 1:
        return newest.attempt + 1, newest.id
    return None, newest.id


def _newest_attempts(pod: Pod, runtime_status: RuntimePodStatus) -> dict[str, RuntimeContainerStatus]:
    names = (container.name for container in (*pod.spec.init_containers, *pod.spec.containers))
    return {name: status for name in names if (status := runtime_status.newest_attempt(name)) is not None}


def _actions_in_new_sandbox(
    pod: Pod, newest: Mapping[str, RuntimeContainerStatus], actions: PodActions
) -> PodActions:
    """Starts the pod in a new sandbox, unless it has completed."""
    never = pod.spec.restart_policy == "Never"
    if never and actions.sandbox_attempt and newest:
        return replace(actions, sandbox_attempt=None)
    starts = tuple(
        container.name
        for container in pod.spec.containers
        if not (_restarts_on_failure_only(container, pod) and _has_succeeded(newest.get(container.name)))
    )
    if not starts and _any_main_created(pod, newest):
        return replace(actions, sandbox_attempt=None)
    if pod.spec.init_containers:
        starts = (pod.spec.init_containers[0].name,)
    return replace(actions, containers_to_start=starts)


def _restarts_on_failure_only(container: Container, pod: Pod) -> bool:
    return (container.restart_policy or pod.spec.restart_policy) == "OnFailure"


def _has_succeeded(status: RuntimeContainerStatus | None) -> bool:
    return status is not None and status.phase is ContainerPhase.EXITED and status.exit_code == 0


def _any_main_created(pod: Pod, newest: Mapping[str, RuntimeContainerStatus]) -> bool:
    statuses = (newest.get(container.name) for container in pod.spec.containers)
    return any(status is not None and status.phase is not ContainerPhase.UNKNOWN for status in statuses)


class _InitContainerWalk:
    """Walks the init containers from the last to the first: the first one with a status decides the next action.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, computeInitContainerActions.
    """

    def __init__(
        self, pod: Pod, newest: Mapping[str, RuntimeContainerStatus], probe_results: ProbeResults
    ) -> None:
        self.pod, self.newest, self.probe_results = pod, newest, probe_results
        self.starts: list[int] = []
        self.kills: list[ContainerToKill] = []
        self.has_failed = False
        self.is_done = any(
            (status := newest.get(container.name)) is not None
            and status.phase in (ContainerPhase.CREATED, ContainerPhase.RUNNING)
            for container in pod.spec.containers
        )

    def run(self) -> None:
        was_done = self.is_done
        for index in reversed(range(len(self.pod.spec.init_containers))):
            container = self.pod.spec.init_containers[index]
            status = self.newest.get(container.name)
            if status is None:
                # The runtime may have removed the container; a sidecar has to run all the same.
                if was_done and container.is_sidecar:
                    self.starts.append(index)
                continue
            if was_done and not container.is_sidecar:
                continue
            self._visit(index, container, status, was_done=was_done)
            if self.has_failed:
                return
            was_done = True
        if not was_done:
            self.starts.append(0)

    def _visit(
        self, index: int, container: Container, status: RuntimeContainerStatus, *, was_done: bool
    ) -> None:
        match status.phase:
            case ContainerPhase.CREATED:
                self.starts.append(index)
            case ContainerPhase.RUNNING:
                if container.is_sidecar:
                    self._visit_running_sidecar(index, container, status, was_done=was_done)
            case ContainerPhase.EXITED:
                self._visit_exited(index, container, status)
            case ContainerPhase.UNKNOWN:
                policy = container.restart_policy or self.pod.spec.restart_policy
                if policy == "Never":
                    self.has_failed = True
                else:
                    self._restart(index, status, KillReason.UNKNOWN)

    def _visit_running_sidecar(
        self, index: int, container: Container, status: RuntimeContainerStatus, *, was_done: bool
    ) -> None:
        if container.startup_probe is not None:
            startup = self.probe_results.startup.get(status.id)
            if startup is ProbeResult.FAILURE:
                self._restart(index, status, KillReason.STARTUP)
            if startup is not ProbeResult.SUCCESS:
                return
        self._start_next(index, only_first=was_done)
        if status.spec_hash and status.spec_hash != spec_hash(container):
            self._restart(index, status, KillReason.CHANGED)
        elif container.liveness_probe and self.probe_results.liveness.get(status.id) is ProbeResult.FAILURE:
            self._restart(index, status, KillReason.LIVENESS)

    def _visit_exited(self, index: int, container: Container, status: RuntimeContainerStatus) -> None:
        if container.is_sidecar:
            self.starts.append(index)
        elif not is_init_container_failed(status):
            self._start_next(index, only_first=False)
        elif should_be_started(self.pod, container, status):
            self.starts.append(index)
        else:
            self.has_failed = True

    def _start_next(self, index: int, *, only_first: bool) -> None:
        if index == len(self.pod.spec.init_containers) - 1:
            self.is_done = True
        elif not only_first:
            self.starts.append(index + 1)

    def _restart(self, index: int, status: RuntimeContainerStatus, reason: KillReason) -> None:
        self.kills.append(ContainerToKill(container=status, reason=reason, is_init=True))
        self.starts.append(index)


def _with_init_containers(
    pod: Pod, newest: Mapping[str, RuntimeContainerStatus], probe_results: ProbeResults, actions: PodActions
) -> PodActions:
    if not pod.spec.init_containers:
        return replace(actions, is_initialized=True)
    walk = _InitContainerWalk(pod, newest, probe_results)
    walk.run()
    if walk.has_failed:
        return replace(actions, kill_pod=True)
    names = tuple(pod.spec.init_containers[index].name for index in reversed(walk.starts))
    return replace(
        actions, containers_to_start=names, containers_to_kill=tuple(walk.kills), is_initialized=walk.is_done
    )


def _with_main_containers(
    pod: Pod, newest: Mapping[str, RuntimeContainerStatus], probe_results: ProbeResults, actions: PodActions
) -> PodActions:
    kept_count, starts, kills = 0, [], []
    for container in pod.spec.containers:
        status = newest.get(container.name)
        if status is None or status.phase is not ContainerPhase.RUNNING:
            if should_be_started(pod, container, status):
                starts.append(container.name)
                if status is not None and status.phase is ContainerPhase.UNKNOWN:
                    kills.append(ContainerToKill(container=status, reason=KillReason.UNKNOWN))
            continue
        reason = _kill_reason(container, status, probe_results)
        if reason is None:
            kept_count += 1
            continue
        policy = container.restart_policy or pod.spec.restart_policy
        restarts = reason is KillReason.CHANGED or policy != "Never"
        if restarts:
            starts.append(container.name)
        kills.append(ContainerToKill(container=status, reason=reason, restarts=restarts))
    if not kept_count and not starts:
        # Sidecars alone do not keep a pod alive.
        return replace(
            actions,
            kill_pod=True,
            containers_to_start=(),
            containers_to_kill=(*actions.containers_to_kill, *kills),
        )
    return replace(
        actions,
        containers_to_start=(*actions.containers_to_start, *starts),
        containers_to_kill=(*actions.containers_to_kill, *kills),
    )


def _kill_reason(
    container: Container, status: RuntimeContainerStatus, probe_results: ProbeResults
) -> KillReason | None:
    """Why a running container is killed; None: it keeps running."""
    if status.spec_hash and status.spec_hash != spec_hash(container):
        return KillReason.CHANGED
    if probe_results.liveness.get(status.id) is ProbeResult.FAILURE:
        return KillReason.LIVENESS
    if probe_results.startup.get(status.id) is ProbeResult.FAILURE:
        return KillReason.STARTUP
    return None


def _containers_to_reset(pod: Pod, runtime_status: RuntimePodStatus) -> tuple[RuntimeContainerStatus, ...]:
    """All containers of the pod at the runtime; last those with an exit that triggers the restart.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, getContainersToReset.
    """
    sources: list[RuntimeContainerStatus] = []
    targets: list[RuntimeContainerStatus] = []
    for group in (pod.spec.containers, pod.spec.init_containers):
        for container in group:
            for status in runtime_status.containers:
                if status.name == container.name:
                    is_source = restarts_all_containers(pod, (status,))
                    (sources if is_source else targets).append(status)
    return (*targets, *sources)
