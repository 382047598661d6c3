"""The QoS class of a pod with the containers that decide it, critical pods, and preemption by priority."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.model.kubernetes.objects import Pod, ResourceList, ResourceRequirements, cached_by_spec
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.model.values.quantity import ZERO, Quantity

QOS_RESOURCES = (CPU, MEMORY)
"""The resources that determine the class. A limit of zero is no limit."""


class QOSClass(StrEnum):
    """The QoS class, best protected first."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_CLASSES = frozenset(QOSClass)


class ClassInStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status has the class; the spec is ignored."""


class NothingAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Neither requests nor limits on cpu or memory."""

    pod_level: bool
    """Whether only the pod level counted, because `spec.resources` is set."""


class SomethingAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The first container with requests or limits on cpu or memory: the pod is not BestEffort."""

    container: str
    """Empty: the pod level."""
    resources: tuple[str, ...]


class LimitsMissing(msgspec.Struct, frozen=True, kw_only=True):
    """A container without a limit on cpu or memory: the pod is not Guaranteed."""

    container: str
    """Empty: the pod level."""
    resources: tuple[str, ...]
    """The resources without a limit."""
    sidecar: bool = False
    init: bool = False


class RequestsDiffer(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of requests and limits differ: the pod is not Guaranteed."""

    resource: str
    requests: Quantity
    limits: Quantity
    containers: tuple[str, ...]
    """Containers with a request that differs from the limit; those without a limit are in `LimitsMissing`."""


class RequestsEqualLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Requests equal limits, on cpu and memory, everywhere."""

    pod_level: bool


QOSFact = ClassInStatus | NothingAsked | SomethingAsked | LimitsMissing | RequestsDiffer | RequestsEqualLimits


class QOSVerdict(msgspec.Struct, frozen=True):
    """The class and the facts that decided it, the deciding one first."""

    qos_class: QOSClass
    because: tuple[QOSFact, ...]


class _ResourceOwner(msgspec.Struct, frozen=True):
    """A container, or the pod level, with its resources."""

    name: str
    resources: ResourceRequirements
    sidecar: bool = False
    init: bool = False


@cached_by_spec
def qos_class(pod: Pod, pod_level: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED) -> QOSClass:
    """The class in the pod's status, or the one computed from its spec.

    Follows: v1.36, pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS.
    Departs: an unknown class in the status is ignored; the kubelet would pass it on.
    """
    return _in_status(pod) or computed_qos_class(pod, pod_level)


def computed_qos_class(pod: Pod, pod_level: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED) -> QOSClass:
    """The class computed from the spec, API defaults not applied.

    Follows: v1.36, pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS.
    """
    lists = _lists(pod, pod_level)
    if not lists or not all(map(_has_limits, lists)):
        return QOSClass.BURSTABLE if any(map(_has_amounts, lists)) else QOSClass.BEST_EFFORT
    # If requests equal limits in each container, the sums are equal, too.
    if all(map(_requests_equal_limits, lists)):
        return QOSClass.GUARANTEED
    requests, limits = _positive_sums(lists)
    return QOSClass.GUARANTEED if requests == limits else QOSClass.BURSTABLE


def qos_verdict(pod: Pod, rule: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED) -> QOSVerdict:
    """The pod's class and the facts that decided it."""
    if in_status := _in_status(pod):
        return QOSVerdict(in_status, (ClassInStatus(),))
    pod_class = computed_qos_class(pod, rule)
    pod_level = _decides(pod, rule)
    if pod_class is QOSClass.BEST_EFFORT:
        return QOSVerdict(pod_class, (NothingAsked(pod_level=pod_level),))
    if pod_class is QOSClass.GUARANTEED:
        return QOSVerdict(pod_class, (RequestsEqualLimits(pod_level=pod_level),))
    owners = (
        [_ResourceOwner("", pod.spec.resources)] if pod.spec.resources and pod_level else _containers(pod)
    )
    return QOSVerdict(pod_class, (*_missing_limits(owners), *_differences(owners), _first_amounts(owners)))


def _in_status(pod: Pod) -> QOSClass | None:
    written = pod.status.qos_class
    return QOSClass(written) if written in _CLASSES else None


def _decides(pod: Pod, rule: PodLevelQOS) -> bool:
    """Whether the pod level decides the class instead of the containers."""
    if pod.spec.resources is None or rule is PodLevelQOS.NEVER:
        return False
    return rule is PodLevelQOS.WHERE_SET or pod_level_resources_set(pod)


def _lists(pod: Pod, rule: PodLevelQOS) -> list[ResourceRequirements]:
    spec = pod.spec
    if spec.resources is not None and _decides(pod, rule):
        return [spec.resources]
    return [container.resources for container in (*spec.containers, *spec.init_containers)]


def _containers(pod: Pod) -> list[_ResourceOwner]:
    return [
        *(_ResourceOwner(container.name, container.resources) for container in pod.spec.containers),
        *(
            _ResourceOwner(container.name, container.resources, container.is_sidecar, init=True)
            for container in pod.spec.init_containers
        ),
    ]


def _has_amounts(resources: ResourceRequirements) -> bool:
    for amounts in (resources.requests, resources.limits):
        for name in QOS_RESOURCES:
            amount = amounts.get(name)
            if amount is not None and amount.unscaled > 0:
                return True
    return False


def _has_limits(resources: ResourceRequirements) -> bool:
    limits = resources.limits
    return limits.get(CPU, ZERO).unscaled > 0 and limits.get(MEMORY, ZERO).unscaled > 0


def _requests_equal_limits(resources: ResourceRequirements) -> bool:
    requests, limits = resources.requests, resources.limits
    # Tuples compare identical members, which equal texts have, without a call.
    return (requests.get(CPU, ZERO), requests.get(MEMORY, ZERO)) == (limits[CPU], limits[MEMORY])


def _positive_sums(lists: Iterable[ResourceRequirements]) -> tuple[ResourceList, ResourceList]:
    requests: ResourceList = {}
    limits: ResourceList = {}
    for resources in lists:
        for total, amounts in ((requests, resources.requests), (limits, resources.limits)):
            for name in QOS_RESOURCES:
                amount = amounts.get(name)
                if amount is not None and amount.unscaled > 0:
                    total[name] = total[name] + amount if name in total else amount
    return requests, limits


def _names_without_limit(resources: ResourceRequirements) -> tuple[str, ...]:
    limits = resources.limits
    return tuple([name for name in QOS_RESOURCES if name not in limits or limits[name].unscaled <= 0])


def _missing_limits(owners: list[_ResourceOwner]) -> list[LimitsMissing]:
    return [
        LimitsMissing(container=owner.name, resources=names, sidecar=owner.sidecar, init=owner.init)
        for owner in owners
        if (names := _names_without_limit(owner.resources))
    ]


def _differences(owners: list[_ResourceOwner]) -> list[RequestsDiffer]:
    requests, limits = _positive_sums(owner.resources for owner in owners)
    return [
        RequestsDiffer(
            resource=name,
            requests=requests.get(name, ZERO),
            limits=limits.get(name, ZERO),
            containers=containers,
        )
        for name in QOS_RESOURCES
        if requests.get(name, ZERO) != limits.get(name, ZERO)
        if (containers := tuple(owner.name for owner in owners if _differs(owner.resources, name)))
    ]


def _differs(resources: ResourceRequirements, name: str) -> bool:
    if name in _names_without_limit(resources):
        return False
    return resources.requests.get(name, ZERO) != resources.limits[name]


def _first_amounts(owners: list[_ResourceOwner]) -> SomethingAsked:
    sums = ((owner.name, *_positive_sums([owner.resources])) for owner in owners)
    name, requests, limits = next(entry for entry in sums if entry[1] or entry[2])
    return SomethingAsked(container=name, resources=tuple(sorted(requests.keys() | limits.keys())))


CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
SYSTEM_NODE_CRITICAL = "system-node-critical"


def is_critical(pod: Pod) -> bool:
    """Whether the pod is critical: a static pod, a mirror pod, or of critical priority.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsCriticalPod.
    """
    return is_static(pod) or is_mirror(pod) or _has_critical_priority(pod)


def is_node_critical(pod: Pod) -> bool:
    """Whether the pod is critical and has the priority class `system-node-critical`.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsNodeCriticalPod.
    """
    return pod.spec.priority_class_name == SYSTEM_NODE_CRITICAL and is_critical(pod)


def is_static(pod: Pod) -> bool:
    """Whether the pod's source is a file or a URL and not the API server.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsStaticPod.
    """
    return pod.metadata.annotations.get(CONFIG_SOURCE, "api") != "api"


def is_mirror(pod: Pod) -> bool:
    """Whether the pod is the mirror pod of a static pod.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsMirrorPod.
    """
    return CONFIG_MIRROR in pod.metadata.annotations


def can_preempt(preemptor: Pod, other: Pod) -> bool:
    """Whether the first pod may preempt the other one.

    An unset priority does not count as zero.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, Preemptable.
    """
    if is_critical(preemptor) and not is_critical(other):
        return True
    own_priority, other_priority = preemptor.spec.priority, other.spec.priority
    return own_priority is not None and other_priority is not None and own_priority > other_priority


def _has_critical_priority(pod: Pod) -> bool:
    return pod.spec.priority is not None and pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY
