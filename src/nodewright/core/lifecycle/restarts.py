"""Does a container run once more when it has ended, and after how long?"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nodewright.model.gates import FeatureGates
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.objects import Container, Pod, PodSpec
from nodewright.model.running import OOM_KILLED, ContainerFacts, ContainerPhase
from nodewright.values.duration import Duration

RESTART_ALL = "RestartAllContainers"
"""The action of a restart rule that begins the whole pod anew."""

_FORGOTTEN_AFTER_NS = 600 * 10**9


class BackOff(msgspec.Struct, frozen=True):
    """How long a container has to wait after its end, and when that was decided.

    Units: nanoseconds, the second since 1970.
    """

    delay_ns: int
    updated_ns: int


class BackOffRule(msgspec.Struct, frozen=True):
    """The first delay and the longest one.

    Units:   nanoseconds.
    Follows: v1.36, kubelet/kubelet.go, newCrashLoopBackOff.
    """

    first_ns: int = 10 * 10**9
    longest_ns: int = 300 * 10**9

    @classmethod
    def of(cls, kubelet: KubeletConfiguration, gates: FeatureGates) -> "BackOffRule":
        """The rule of a configuration."""
        reduced = gates["ReduceDefaultCrashLoopBackOffDecay"]
        first, longest = (Duration.seconds(1), Duration.seconds(60)) if reduced else _USUAL
        if gates["KubeletCrashLoopBackOffMax"]:
            longest = kubelet.crash_loop_back_off.max_container_restart_period or longest
        return cls(min(first, longest).nanoseconds, longest.nanoseconds)

    def remaining_ns(self, held: BackOff | None, finished_ns: int, now_ns: int) -> int:
        """How long it has to wait yet; 0: it may start now.

        Follows: v1.36, client-go/util/flowcontrol/backoff.go, IsInBackOffSince.
        Departs: never longer than the delay, should the clock have been set back meanwhile.
        """
        if held is None or finished_ns - held.updated_ns > _FORGOTTEN_AFTER_NS:
            return 0
        return min(held.delay_ns, max(0, held.delay_ns - (now_ns - finished_ns)))

    def after(self, held: BackOff | None, finished_ns: int, now_ns: int) -> BackOff:
        """What it will have to wait the next time, decided when it is started again.

        Follows: v1.36, client-go/util/flowcontrol/backoff.go, Next: twice as long each time, until it ran for
            ten minutes.

        >>> rule = BackOffRule(first_ns=10, longest_ns=30)
        >>> first = rule.after(None, 0, 0)
        >>> second = rule.after(first, 5, 15)
        >>> first.delay_ns, second.delay_ns, rule.after(second, 20, 40).delay_ns
        (10, 20, 30)
        """
        if held is None or finished_ns - held.updated_ns > _FORGOTTEN_AFTER_NS:
            return BackOff(self.first_ns, now_ns)
        return BackOff(min(2 * held.delay_ns, self.longest_ns), now_ns)


_USUAL = (Duration.seconds(10), Duration.seconds(300))


def restarts_after(container: Container, spec: PodSpec, exit_code: int) -> bool:
    """Whether a container runs again that ended so.

    Follows: v1.36, pkg/api/v1/pod/util.go, ContainerShouldRestart.

    >>> restarts_after(Container(), PodSpec(restart_policy="OnFailure"), 0)
    False
    """
    if container.restart_policy is not None:
        rule = matching_rule(container, exit_code)
        if rule is not None and rule.get("action") in ("Restart", RESTART_ALL):
            return True
    policy = container.restart_policy or spec.restart_policy or "Always"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def matching_rule(container: Container, exit_code: int) -> Mapping[str, Any] | None:
    """The first of the container's restart rules that the exit code meets.

    Follows: v1.36, pkg/api/v1/pod/util.go, FindMatchingContainerRestartRule.
    """
    for rule in container.restart_policy_rules:
        codes = rule.get("exitCodes")
        if codes is None:
            continue
        meets = exit_code in codes.get("values", ())
        if (codes.get("operator"), meets) in (("In", True), ("NotIn", False)):
            return rule
    return None


def may_start(pod: Pod, container: Container, newest: ContainerFacts | None) -> bool:
    """Whether a container that does not run is to be started.

    Follows: v1.36, kubelet/container/helpers.go, ShouldContainerBeRestarted.
    """
    if pod.metadata.deletion_timestamp is not None:
        return False
    if newest is None or newest.phase in (ContainerPhase.UNKNOWN, ContainerPhase.CREATED):
        return True
    if newest.phase is ContainerPhase.RUNNING:
        return False
    return restarts_after(container, pod.spec, newest.exit_code)


def begins_anew(pod: Pod, newest: Iterable[ContainerFacts]) -> bool:
    """Whether an exit has asked for the whole pod to begin anew.

    Follows: v1.36, kubelet/container/helpers.go, ShouldAllContainersRestart.
    Departs: goes by what the runtime holds alone, not by an earlier status.
    """
    by_name = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    for facts in newest:
        container = by_name.get(facts.name)
        if container is None or facts.phase is not ContainerPhase.EXITED:
            continue
        rule = matching_rule(container, facts.exit_code)
        if rule is not None and rule.get("action") == RESTART_ALL:
            return True
    return False


def init_failed(facts: ContainerFacts) -> bool:
    """Whether an init container did not do what it was for.

    Follows: v1.36, kubelet/kuberuntime/helpers.go, isInitContainerFailed.
    """
    has_failed = facts.phase is ContainerPhase.EXITED and facts.exit_code != 0
    return facts.reason == OOM_KILLED or has_failed or facts.phase is ContainerPhase.UNKNOWN
