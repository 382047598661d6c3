"""In which order do pods end when the machine goes down, and how long does each have?"""

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from nodewright.model.gates import FeatureGates
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.objects import USUAL_GRACE_PERIOD_S, Pod

CRITICAL_PRIORITY = 2_000_000_000
REASON = "Terminated"
MESSAGE = "Pod was terminated in response to imminent node shutdown."
NO_MORE_PODS = "Pod was rejected as the node is shutting down."


class ShutdownGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that end together; the next group follows when they are gone, or when the time is up.

    Units: seconds.
    """

    priority: int
    """That of the least of them; pods below the first group are in it, too."""
    time_s: int
    """How long the group has as a whole."""
    graces_s: tuple[tuple[str, int], ...]
    """How long each pod has, by uid."""


class Period(msgspec.Struct, frozen=True):
    """How long pods of a priority have, and of all above it up to the next.

    Units: seconds.
    """

    priority: int
    seconds: int


def shutdown_periods(config: KubeletConfiguration, gates: FeatureGates) -> tuple[Period, ...]:
    """What the configuration says, the lowest priority first; empty: nothing, and the kubelet ends no pods.

    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, newPodManager, migrateConfig.
    """
    if gates["GracefulNodeShutdownBasedOnPodPriority"] and config.shutdown_grace_period_by_pod_priority:
        found = (
            Period(one.priority, one.shutdown_grace_period_seconds)
            for one in config.shutdown_grace_period_by_pod_priority
        )
        return tuple(sorted(found, key=lambda one: one.priority))
    whole = config.shutdown_grace_period.nanoseconds
    critical = config.shutdown_grace_period_critical_pods.nanoseconds
    if whole == 0 or whole < critical or critical < 0:
        return ()
    second = 10**9
    return Period(0, (whole - critical) // second), Period(CRITICAL_PRIORITY, critical // second)


def shutdown_groups(periods: tuple[Period, ...], pods: Iterable[Pod]) -> tuple[ShutdownGroup, ...]:
    """Who ends when, the lowest priority first; groups without pods are left out.

    Without periods every pod has as long as it says itself, critical pods after all others.
    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, groupByPriority, killPods.
    """
    known = periods or (Period(0, -1), Period(CRITICAL_PRIORITY, -1))
    members: list[list[Pod]] = [[] for _ in known]
    for pod in pods:
        members[_place(known, pod.spec.priority or 0)].append(pod)
    return tuple(_group(period, found) for period, found in zip(known, members, strict=True) if found)


def _place(periods: tuple[Period, ...], priority: int) -> int:
    """The last group whose priority is not above; of pods below all of them the first."""
    index = bisect_left(periods, priority, key=lambda one: one.priority)
    if index == len(periods):
        return index - 1
    return index - 1 if index > 0 and periods[index].priority > priority else index


def _group(period: Period, pods: Iterable[Pod]) -> ShutdownGroup:
    graces = []
    for pod in pods:
        own = pod.spec.termination_grace_period_seconds
        if period.seconds < 0:
            graces.append((pod.uid, USUAL_GRACE_PERIOD_S if own is None else own))
        else:
            graces.append((pod.uid, period.seconds if own is None else min(own, period.seconds)))
    time_s = period.seconds if period.seconds >= 0 else max(grace for _, grace in graces)
    return ShutdownGroup(priority=period.priority, time_s=time_s, graces_s=tuple(graces))
