"""The oom_score_adj of each container, with its arithmetic.

Also a model of the kernel's OOM killer, in which a container counts as one process.
"""

from collections.abc import Sequence
from math import isqrt
from typing import TypeAlias

import msgspec

from nodewright.engine.core.requests.effective_resources import (
    container_requests,
    pod_level_requests_set,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, is_node_critical, qos_class
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.kubernetes.resource_names import MEMORY
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.quantity import ZERO, wrap_int64

GUARANTEED_ADJ = -997
BEST_EFFORT_ADJ = 1000
MIN_BURSTABLE_ADJ = BEST_EFFORT_ADJ + GUARANTEED_ADJ
MAX_BURSTABLE_ADJ = BEST_EFFORT_ADJ - 1

OOM_SCORE_ADJ_MIN = -1000
"""The oom_score_adj of processes that are never killed."""
PAGE_BYTES = 4096
_LEAST_FREE_KIB, _MOST_FREE_KIB = 128, 262_144


class NodeCritical(msgspec.Struct, frozen=True, kw_only=True):
    """The pod has the class system-node-critical: killed last."""


class FixedByClass(msgspec.Struct, frozen=True, kw_only=True):
    """The value is the same for all containers of Guaranteed and of BestEffort pods."""

    qos_class: QOSClass


class ByRequest(msgspec.Struct, frozen=True, kw_only=True):
    """1000 - 1000 x (request + share) / capacity, the division cut toward zero.

    Units: bytes.
    """

    request: int
    share: int
    """The container's share of the pod-level request beyond the containers' requests; 0 without a pod level."""
    capacity: int
    score: int
    """The result of the formula before any bounds."""
    sidecar_score: int | None
    """For a sidecar: the score of the smallest request of a regular container; the lower of the two counts."""


OOMReason: TypeAlias = NodeCritical | FixedByClass | ByRequest


class OOMScore(msgspec.Struct, frozen=True):
    """A container's oom_score_adj and its reason."""

    container: str
    adj: int
    because: OOMReason


def oom_score_adjs(pod: Pod, memory_capacity: int, gates: FeatureGates = DEFAULT_GATES) -> dict[str, int]:
    """The oom_score_adj of each container by name.

    Units:   bytes of the node's memory, at least 1.
    Follows: v1.36, pkg/kubelet/qos/policy.go, GetContainerOOMScoreAdjust.
    """
    return {score.container: score.adj for score in oom_scores(pod, memory_capacity, gates)}


def oom_scores(pod: Pod, memory_capacity: int, gates: FeatureGates = DEFAULT_GATES) -> tuple[OOMScore, ...]:
    """As `oom_score_adjs`, in the order of the spec, with the arithmetic."""
    containers = (*pod.spec.containers, *pod.spec.init_containers, *pod.spec.ephemeral_containers)
    if is_node_critical(pod):
        return tuple(OOMScore(container.name, GUARANTEED_ADJ, NodeCritical()) for container in containers)
    pod_class = qos_class(pod, gates.pod_level_qos)
    if pod_class is not QOSClass.BURSTABLE:
        adj = GUARANTEED_ADJ if pod_class is QOSClass.GUARANTEED else BEST_EFFORT_ADJ
        because = FixedByClass(qos_class=pod_class)
        return tuple(OOMScore(container.name, adj, because) for container in containers)
    pod_level_share = _pod_level_share(pod) if gates["PodLevelResources"] else 0
    smallest = min((_memory(container.resources.requests) for container in pod.spec.containers), default=0)
    sidecar_score = _score(smallest + pod_level_share, memory_capacity)
    sidecars = [
        container
        for container in pod.spec.init_containers
        if gates["SidecarContainers"] and container.is_sidecar
    ]
    return tuple(
        _burstable(
            container,
            pod_level_share,
            memory_capacity,
            sidecar_score if any(container is sidecar for sidecar in sidecars) else None,
        )
        for container in containers
    )


class OOMCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A container, or a process outside the pods, as the OOM killer scores it.

    Units: bytes in memory and swap, without page cache.
    """

    pod: str
    """The pod's uid; empty: a process outside the pods."""
    container: str = ""
    oom_score_adj: int = 0
    used_bytes: int = 0


def oom_badness(process: OOMCandidate, total_bytes: int) -> int | None:
    """The kernel's badness: the process with the highest is killed; None: it is never killed.

    ``total_bytes`` is memory and swap of the node, or of the cgroup whose limit was reached.

    Units:   pages of 4 KiB.
    Follows: Linux 6.12, mm/oom_kill.c, oom_badness.
    Departs: page tables are not counted.

    >>> oom_badness(OOMCandidate(pod="a", oom_score_adj=1000, used_bytes=8192), 4096 * 100_000)
    100002
    """
    if process.oom_score_adj <= OOM_SCORE_ADJ_MIN:
        return None
    return process.used_bytes // PAGE_BYTES + process.oom_score_adj * (total_bytes // PAGE_BYTES // 1000)


def oom_victim(processes: Sequence[OOMCandidate], total_bytes: int) -> OOMCandidate | None:
    """The process that the kernel kills; None: there is no candidate.

    Units:   bytes.
    Follows: Linux 6.12, mm/oom_kill.c, select_bad_process.
    Departs: of several with equal badness, the first of the list; the kernel picks the last one that it scans.
    """
    scored = [
        (-badness, index)
        for index, process in enumerate(processes)
        if (badness := oom_badness(process, total_bytes)) is not None
    ]
    return processes[min(scored)[1]] if scored else None


def min_free_bytes(memory_bytes: int) -> int:
    """The memory that the kernel keeps free: the default of `vm.min_free_kbytes`.

    Units:   bytes.
    Follows: Linux 6.12, mm/page_alloc.c, calculate_min_free_kbytes.
    Departs: of all memory; the kernel uses what is free at boot, and transparent huge pages may raise it.

    >>> min_free_bytes(16 << 30) >> 20
    16
    """
    wanted_kib = isqrt(memory_bytes // 1024 * 16)
    return min(max(wanted_kib, _LEAST_FREE_KIB), _MOST_FREE_KIB) * 1024


def _burstable(container: Container, share: int, capacity: int, sidecar_score: int | None = None) -> OOMScore:
    request = _memory(container.resources.requests)
    score = _score(request + share, capacity)
    adj = score if sidecar_score is None else min(score, sidecar_score)
    # Bounded to the range between Guaranteed and BestEffort; values above 1000, from a pod level that is too small, stay.
    adj = MAX_BURSTABLE_ADJ if adj == BEST_EFFORT_ADJ else max(adj, MIN_BURSTABLE_ADJ)
    reason = ByRequest(
        request=request, share=share, capacity=capacity, score=score, sidecar_score=sidecar_score
    )
    return OOMScore(container.name, adj, reason)


def _score(memory: int, capacity: int) -> int:
    return BEST_EFFORT_ADJ - _toward_zero(wrap_int64(1000 * memory), capacity)


def _pod_level_share(pod: Pod) -> int:
    """Each container's share of the pod-level memory request beyond the containers' requests."""
    resources = pod.spec.resources
    if resources is None or not pod_level_requests_set(pod):
        return 0
    request = resources.requests.get(MEMORY, ZERO)
    if request.is_zero():
        return 0
    unclaimed = request.value() - _memory(container_requests(pod))
    return _toward_zero(unclaimed, len(pod.spec.containers) + len(pod.spec.init_containers))


def _memory(requests: ResourceList) -> int:
    return requests.get(MEMORY, ZERO).value()


def _toward_zero(dividend: int, divisor: int) -> int:
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient
