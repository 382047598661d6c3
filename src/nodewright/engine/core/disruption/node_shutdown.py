"""In which order, and with which grace periods, are pods terminated when their node shuts down?"""

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from nodewright.engine.core.requests.qos_and_priority import SYSTEM_CRITICAL_PRIORITY
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import DEFAULT_GRACE_PERIOD_S, Pod
from nodewright.model.releases.feature_gates import FeatureGates


class ShutdownGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are terminated together; the next group follows when all have ended or the time is up.

    Units: seconds.
    """

    priority: int
    """The lowest priority of the group; pods below the first group belong to it, too."""
    grace_period_s: int
    """The time for the whole group."""
    pod_grace_periods_s: tuple[tuple[str, int], ...]
    """The grace period of each pod, by uid."""


class ShutdownPeriod(msgspec.Struct, frozen=True):
    """The grace period of pods from a priority up to the next one.

    Units: seconds.
    """

    priority: int
    grace_period_s: int


def shutdown_periods(config: KubeletConfiguration, gates: FeatureGates) -> tuple[ShutdownPeriod, ...]:
    """The configured periods, lowest priority first; empty: the kubelet terminates no pods at shutdown.

    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, newPodManager, migrateConfig.
    """
    if gates["GracefulNodeShutdownBasedOnPodPriority"] and config.shutdown_grace_period_by_pod_priority:
        periods = (
            ShutdownPeriod(entry.priority, entry.shutdown_grace_period_seconds)
            for entry in config.shutdown_grace_period_by_pod_priority
        )
        return tuple(sorted(periods, key=lambda period: period.priority))
    total_ns = config.shutdown_grace_period.nanoseconds
    critical_ns = config.shutdown_grace_period_critical_pods.nanoseconds
    if total_ns == 0 or total_ns < critical_ns or critical_ns < 0:
        return ()
    second = 10**9
    return ShutdownPeriod(0, (total_ns - critical_ns) // second), ShutdownPeriod(
        SYSTEM_CRITICAL_PRIORITY, critical_ns // second
    )


def shutdown_groups(periods: tuple[ShutdownPeriod, ...], pods: Iterable[Pod]) -> tuple[ShutdownGroup, ...]:
    """The groups in the order of termination, lowest priority first; groups without pods are left out.

    Without periods every pod has its own grace period, critical pods after all others.
    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, groupByPriority, killPods.
    """
    effective_periods = periods or (ShutdownPeriod(0, -1), ShutdownPeriod(SYSTEM_CRITICAL_PRIORITY, -1))
    members: list[list[Pod]] = [[] for _ in effective_periods]
    for pod in pods:
        members[_group_index(effective_periods, pod.spec.priority or 0)].append(pod)
    return tuple(
        _group(period, group) for period, group in zip(effective_periods, members, strict=True) if group
    )


def _group_index(periods: tuple[ShutdownPeriod, ...], priority: int) -> int:
    """The last group with a priority that is not above the pod's; the first one for pods below all groups."""
    index = bisect_left(periods, priority, key=lambda period: period.priority)
    if index == len(periods):
        return index - 1
    return index - 1 if index > 0 and periods[index].priority > priority else index


def _group(period: ShutdownPeriod, pods: Iterable[Pod]) -> ShutdownGroup:
    limit_s, grace_periods = period.grace_period_s, []
    for pod in pods:
        own_s = pod.spec.termination_grace_period_seconds
        if own_s is None:
            own_s = DEFAULT_GRACE_PERIOD_S if limit_s < 0 else limit_s
        grace_periods.append((pod.uid, own_s if limit_s < 0 else min(own_s, limit_s)))
    group_period_s = limit_s if limit_s >= 0 else max(grace for _, grace in grace_periods)
    return ShutdownGroup(
        priority=period.priority, grace_period_s=group_period_s, pod_grace_periods_s=tuple(grace_periods)
    )
