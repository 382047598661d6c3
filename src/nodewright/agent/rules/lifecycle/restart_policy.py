"""Container restarts: whether a container that has exited restarts, and after which delay."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Container, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import OOM_KILLED, ContainerPhase, RuntimeContainerStatus
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.duration import Duration

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
