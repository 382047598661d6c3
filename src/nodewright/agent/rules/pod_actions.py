"""The next actions for a pod: containers to start, to kill and in which order, and whether a new sandbox is needed."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Container, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import (
    OOM_KILLED,
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.duration import Duration
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
    runtime_status = runtime_status or no_runtime_status(pod)
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


def no_runtime_status(pod: Pod) -> RuntimePodStatus:
    """The status of a pod that the runtime does not know."""
    return RuntimePodStatus(uid=pod.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)


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
        self.kills.append(ContainerToKill(container=status, reason=reason))
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


# ---------------------------------------------------------------- restart policy and back-off


RESTART_ALL = "RestartAllContainers"
"""The action of a restart rule that restarts all containers of the pod."""

_RESET_AFTER_NS = 600 * 10**9


class BackOff(msgspec.Struct, frozen=True):
    """A restart delay after a container's exit, and when it was set.

    Units: nanoseconds, the second since 1970.
    """

    delay_ns: int
    updated_ns: int


class BackOffRule(msgspec.Struct, frozen=True):
    """The first restart delay and the longest one.

    Units:   nanoseconds.
    Follows: v1.36, kubelet/kubelet.go, newCrashLoopBackOff.
    """

    initial_ns: int = 10 * 10**9
    max_ns: int = 300 * 10**9

    @classmethod
    def of(cls, kubelet: KubeletConfiguration, gates: FeatureGates) -> "BackOffRule":
        """The rule of a configuration."""
        reduced = gates["ReduceDefaultCrashLoopBackOffDecay"]
        first, longest = (Duration.seconds(1), Duration.seconds(60)) if reduced else _DEFAULT_DELAYS
        if gates["KubeletCrashLoopBackOffMax"]:
            longest = kubelet.crash_loop_back_off.max_container_restart_period or longest
        return cls(min(first, longest).nanoseconds, longest.nanoseconds)

    def remaining_ns(self, current: BackOff | None, finished_ns: int, now_ns: int) -> int:
        """The remaining delay; 0: the container may start now.

        Follows: v1.36, client-go/util/flowcontrol/backoff.go, IsInBackOffSince.
        Departs: never longer than the delay, even if the clock has been set back in between.
        """
        if current is None or finished_ns - current.updated_ns > _RESET_AFTER_NS:
            return 0
        return min(current.delay_ns, max(0, current.delay_ns - (now_ns - finished_ns)))

    def next(self, current: BackOff | None, finished_ns: int, now_ns: int) -> BackOff:
        """The back-off for the next exit, set when the container restarts.

        Follows: v1.36, client-go/util/flowcontrol/backoff.go, Next: doubles each time, until the container
            has run for ten minutes.

        >>> rule = BackOffRule(initial_ns=10, max_ns=30)
        >>> first = rule.next(None, 0, 0)
        >>> second = rule.next(first, 5, 15)
        >>> first.delay_ns, second.delay_ns, rule.next(second, 20, 40).delay_ns
        (10, 20, 30)
        """
        if current is None or finished_ns - current.updated_ns > _RESET_AFTER_NS:
            return BackOff(self.initial_ns, now_ns)
        return BackOff(min(2 * current.delay_ns, self.max_ns), now_ns)


_DEFAULT_DELAYS = (Duration.seconds(10), Duration.seconds(300))


def should_restart(container: Container, spec: PodSpec, exit_code: int) -> bool:
    """Whether a container restarts after this exit code.

    Follows: v1.36, pkg/api/v1/pod/util.go, ContainerShouldRestart.

    >>> should_restart(Container(), PodSpec(restart_policy="OnFailure"), 0)
    False
    """
    if container.restart_policy is not None:
        rule = matching_restart_rule(container, exit_code)
        if rule is not None and rule.get("action") in ("Restart", RESTART_ALL):
            return True
    policy = container.restart_policy or spec.restart_policy or "Always"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def matching_restart_rule(container: Container, exit_code: int) -> Mapping[str, Any] | None:
    """The first of the container's restart rules that matches the exit code.

    Follows: v1.36, pkg/api/v1/pod/util.go, FindMatchingContainerRestartRule.
    """
    for rule in container.restart_policy_rules:
        codes = rule.get("exitCodes")
        if codes is None:
            continue
        is_listed = exit_code in codes.get("values", ())
        if (codes.get("operator"), is_listed) in (("In", True), ("NotIn", False)):
            return rule
    return None


def should_be_started(pod: Pod, container: Container, newest: RuntimeContainerStatus | None) -> bool:
    """Whether a container that does not run is to be started.

    Follows: v1.36, kubelet/container/helpers.go, ShouldContainerBeRestarted.
    """
    if pod.metadata.deletion_timestamp is not None:
        return False
    if newest is None or newest.phase in (ContainerPhase.UNKNOWN, ContainerPhase.CREATED):
        return True
    if newest.phase is ContainerPhase.RUNNING:
        return False
    return should_restart(container, pod.spec, newest.exit_code)


def restarts_all_containers(pod: Pod, newest: Iterable[RuntimeContainerStatus]) -> bool:
    """Whether an exit triggers the restart of all containers of the pod.

    Follows: v1.36, kubelet/container/helpers.go, ShouldAllContainersRestart.
    Departs: considers only the runtime's containers, not an earlier status.
    """
    by_name = {container.name: container for container in (*pod.spec.init_containers, *pod.spec.containers)}
    for status in newest:
        container = by_name.get(status.name)
        if container is None or status.phase is not ContainerPhase.EXITED:
            continue
        rule = matching_restart_rule(container, status.exit_code)
        if rule is not None and rule.get("action") == RESTART_ALL:
            return True
    return False


def is_init_container_failed(status: RuntimeContainerStatus) -> bool:
    """Whether an init container has failed.

    Follows: v1.36, kubelet/kuberuntime/helpers.go, isInitContainerFailed.
    """
    has_failed = status.phase is ContainerPhase.EXITED and status.exit_code != 0
    return status.reason == OOM_KILLED or has_failed or status.phase is ContainerPhase.UNKNOWN


# ---------------------------------------------------------------- termination


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
