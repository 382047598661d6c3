"""How readily the kernel ends each container when memory runs out: oom_score_adj, with its arithmetic."""

from dataclasses import dataclass
from typing import TypeAlias

from nodewright.core.requests.criticality import is_node_critical
from nodewright.core.requests.effective import container_requests, pod_level_requests_set
from nodewright.core.requests.qos import QOSClass, qos_class
from nodewright.model.objects import Container, Pod, ResourceList
from nodewright.model.resource_names import MEMORY
from nodewright.values.quantity import ZERO
from nodewright.values.units import wrap_int64

PROTECTED = -997
UNPROTECTED = 1000
LOWEST_BURSTABLE = UNPROTECTED + PROTECTED
HIGHEST_BURSTABLE = UNPROTECTED - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCritical:
    """The pod is of class system-node-critical: last to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedByClass:
    """All containers of Guaranteed and of BestEffort pods have the same."""

    qos_class: QOSClass


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRequest:
    """1000 - 1000 x (request + share) / capacity, the division cut toward zero.

    Units: bytes.
    """

    request: int
    share: int
    """The container's share of what the pod level requests beyond the containers; 0 without a pod level."""
    capacity: int
    score: int
    """What the formula gives, before anything else."""
    sidecar_score: int | None
    """For a sidecar: what the smallest request of a regular container gives; the lesser of the two counts."""


OOMReason: TypeAlias = NodeCritical | FixedByClass | ByRequest


@dataclass(frozen=True, slots=True)
class OOMScore:
    """A container's oom_score_adj and where it comes from."""

    container: str
    adj: int
    because: OOMReason


def oom_score_adjs(pod: Pod, memory_capacity: int) -> dict[str, int]:
    """The oom_score_adj of each container and init container by name.

    Units:   bytes of the node's memory, at least 1.
    Follows: v1.36, pkg/kubelet/qos/policy.go, GetContainerOOMScoreAdjust.
    """
    return {score.container: score.adj for score in oom_scores(pod, memory_capacity)}


def oom_scores(pod: Pod, memory_capacity: int) -> tuple[OOMScore, ...]:
    """As `oom_score_adjs`, in the order of the spec, with the arithmetic."""
    everyone = (*pod.spec.containers, *pod.spec.init_containers)
    if is_node_critical(pod):
        return tuple(OOMScore(container.name, PROTECTED, NodeCritical()) for container in everyone)
    decided = qos_class(pod)
    if decided is not QOSClass.BURSTABLE:
        adj = PROTECTED if decided is QOSClass.GUARANTEED else UNPROTECTED
        because = FixedByClass(qos_class=decided)
        return tuple(OOMScore(container.name, adj, because) for container in everyone)
    share = _share(pod)
    smallest = min((_memory(container.resources.requests) for container in pod.spec.containers), default=0)
    sidecar_score = _score(smallest + share, memory_capacity)
    return (
        *(_burstable(container, share, memory_capacity) for container in pod.spec.containers),
        *(
            _burstable(container, share, memory_capacity, sidecar_score if container.is_sidecar else None)
            for container in pod.spec.init_containers
        ),
    )


def _burstable(container: Container, share: int, capacity: int, sidecar_score: int | None = None) -> OOMScore:
    request = _memory(container.resources.requests)
    score = _score(request + share, capacity)
    adj = score if sidecar_score is None else min(score, sidecar_score)
    # It stays between Guaranteed and BestEffort; what a pod level that is too small brings beyond 1000 stays.
    adj = HIGHEST_BURSTABLE if adj == UNPROTECTED else max(adj, LOWEST_BURSTABLE)
    reason = ByRequest(
        request=request, share=share, capacity=capacity, score=score, sidecar_score=sidecar_score
    )
    return OOMScore(container.name, adj, reason)


def _score(memory: int, capacity: int) -> int:
    return UNPROTECTED - _toward_zero(wrap_int64(1000 * memory), capacity)


def _share(pod: Pod) -> int:
    """What each container gets of the memory that the pod level requests and no container does."""
    resources = pod.spec.resources
    if resources is None or not pod_level_requests_set(pod):
        return 0
    wanted = resources.requests.get(MEMORY, ZERO)
    if wanted.is_zero():
        return 0
    unclaimed = wanted.value() - _memory(container_requests(pod))
    return _toward_zero(unclaimed, len(pod.spec.containers) + len(pod.spec.init_containers))


def _memory(requests: ResourceList) -> int:
    return requests.get(MEMORY, ZERO).value()


def _toward_zero(dividend: int, divisor: int) -> int:
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient
