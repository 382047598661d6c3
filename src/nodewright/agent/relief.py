"""Pods that were evicted and are still there: nobody else goes in their stead, unless they take too long."""

from collections.abc import Mapping

from nodewright.agent.values import PodRecord, Stage

KILL_TIMEOUT_S, CLEANUP_TIMEOUT_S = 10, 30
"""How long the kubelet waits at least for an evicted pod to be killed, and then for what is left of it.

Follows: v1.36, kubelet/pod_workers.go, killPodNow; eviction/eviction_manager.go, podCleanupTimeout.
"""


def patience_ns(grace_period_s: int) -> int:
    """How long nobody else goes after a pod was evicted, if it does not end.

    >>> patience_ns(1) // 10**9, patience_ns(600) // 10**9
    (40, 930)
    """
    return (kill_timeout_s(grace_period_s) + CLEANUP_TIMEOUT_S) * 10**9


def kill_timeout_s(grace_period_s: int) -> int:
    """How long the end of a pod may take that has so much time itself."""
    return max(grace_period_s + grace_period_s // 2, KILL_TIMEOUT_S)


def still_leaving(leaving: Mapping[str, int], pods: Mapping[str, PodRecord], now_ns: int) -> frozenset[str]:
    """The uids of evicted pods that are waited for.

    Units: ``leaving`` and ``now_ns`` in nanoseconds on the steady clock.
    """
    return frozenset(
        uid
        for uid, until_ns in leaving.items()
        if until_ns > now_ns and uid in pods and pods[uid].stage is Stage.ENDING
    )


def stuck(leaving: Mapping[str, int], pods: Mapping[str, PodRecord], now_ns: int) -> frozenset[str]:
    """The uids of evicted pods that did not end in time: others go in their stead.

    Departs: the kubelet would choose the same pod again and again.
    """
    return frozenset(
        uid
        for uid, until_ns in leaving.items()
        if until_ns <= now_ns and uid in pods and pods[uid].stage is Stage.ENDING
    )
