"""In-place resize: desired and allocated resources of a pod, the order in which pending resizes are tried, and checks.

The checks: infeasibility at the kubelet, admission at the API server, container restarts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, is_critical, qos_class
from nodewright.model.kubernetes.objects import (
    Container,
    ContainerStatus,
    Pod,
    PodStatus,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, counted_amount
from nodewright.model.reasons.resize import (
    Excess,
    PodLevelResizeDisabled,
    ResizeBeyondNode,
    ResizeFeaturesMissing,
    ResizeInfeasible,
    ResizeOnOtherSystem,
    StaticPolicyInTheWay,
    SwapInTheWay,
)
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.quantity import ZERO

RESIZABLE = (CPU, MEMORY)
"""The resources that can be resized."""

RESTART_CONTAINER = "RestartContainer"


def merged_resize(written: Pod, current: Pod) -> Pod:
    """The pod that the API server stores for a resize request: only resources change.

    A container without a resize policy keeps its current one. Added, removed or renamed containers are taken
    as written; validation rejects them.

    Follows: v1.36, pkg/registry/core/pod/strategy.go, dropNonResizeUpdates; gate
        InPlacePodLevelResourcesVerticalScaling on.
    """
    new, old = written.spec, current.spec
    spec = replace(
        old,
        containers=_merged(new.containers, old.containers),
        init_containers=_merged(new.init_containers, old.init_containers),
        resources=new.resources,
    )
    return replace(current, spec=spec)


def has_resource_changes(desired: Pod, current: Pod, *, init_containers: bool) -> bool:
    """Whether any resizable resources differ from the allocated ones.

    ``init_containers``: the gate InPlacePodVerticalScalingInitContainers, without which those of init containers
    other than sidecars do not count.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, updatePodFromAllocation, IsResizableContainer.
    """
    return desired.spec.resources != current.spec.resources or any(
        new.resources != old.resources
        for new, old in resizable_containers(desired, current, init_containers=init_containers)
    )


def resizable_containers(
    desired: Pod, current: Pod, *, init_containers: bool
) -> Iterator[tuple[Container, Container]]:
    """The containers that can be resized, desired and current; init containers first."""
    before = {
        container.name: container for container in (*current.spec.init_containers, *current.spec.containers)
    }
    for container in desired.spec.init_containers:
        if (container.is_sidecar or init_containers) and container.name in before:
            yield container, before[container.name]
    for container in desired.spec.containers:
        if container.name in before:
            yield container, before[container.name]


def comparable_resources(pod: Pod, container: Container) -> dict[str, tuple[int, int]]:
    """Request and limit of each resource as the kubelet compares them; the pod-level limit where the container has none.

    Units:   cpu in thousandths, memory in bytes; 0: none.
    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, containerResourcesFromRequirements.
    """
    requests, limits = container.resources.requests, container.resources.limits
    pod_level = pod.spec.resources.limits if pod.spec.resources else {}
    amounts = {}
    for name in RESIZABLE:
        request, limit = requests.get(name, ZERO), limits.get(name, ZERO)
        if limit.is_zero():
            limit = pod_level.get(name, ZERO)
        amounts[name] = counted_amount(name, request), counted_amount(name, limit)
    return amounts


def increases_requests(desired: Pod, current: Pod) -> bool:
    """Whether the desired pod requests more of any resource.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, isResizeIncreasingRequests.
    """
    desired_requests, current_requests = pod_requests(desired), pod_requests(current)
    return any(desired_requests.get(name, ZERO) > current_requests.get(name, ZERO) for name in RESIZABLE)


def as_allocated(desired: Pod) -> Pod:
    """The pod after the resize: its status has the resources of its spec.

    Departs: at once; in the kubelet, it takes as long as the runtime needs.
    """
    status = desired.status
    resources = {
        container.name: container.resources
        for container in (*desired.spec.containers, *desired.spec.init_containers)
    }
    conditions = tuple(
        condition
        for condition in status.conditions
        if condition.type not in ("PodResizePending", "PodResizeInProgress")
    )
    updated = replace(
        status,
        conditions=conditions,
        container_statuses=_with_resources(status.container_statuses, resources),
        init_container_statuses=_with_resources(status.init_container_statuses, resources),
    )
    return replace(desired, status=_with_pod_level(updated, desired))


class PendingResize(msgspec.Struct, frozen=True, kw_only=True):
    """A pending resize."""

    desired: Pod
    current: Pod
    """The pod as allocated."""
    deferred_since: int | None = None
    """When it was first deferred, as an increasing number; None: it has not been tried yet."""


def sorted_pending_resizes(waiting: Iterable[PendingResize]) -> tuple[PendingResize, ...]:
    """The resizes in the order in which the kubelet tries them.

    Resizes without an increase are first, then by priority, class (Guaranteed before all others), and by the time
    since they were deferred; an untried one is the last of its equals.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, sortPendingResizes.
    Departs: those without an increase keep their order; in the kubelet, they are in any.
    """
    return tuple(sorted(waiting, key=_rank))


def infeasibility(
    desired: Pod, current: Pod, *, gates: FeatureGates, static: tuple[str, ...], has_swap: bool
) -> ResizeInfeasible | None:
    """Why the kubelet finds the resize infeasible, whatever the free resources; None if it does not.

    ``static`` are the resources whose manager has a static policy; ``has_swap``: whether the kubelet gives swap
    to containers at all (`swapBehavior: LimitedSwap`, with which it starts on cgroups of version 2 alone).

    Follows: v1.36, pkg/kubelet/allocation/handlers.go, podResizesAdmitHandler.Admit. The gate
        InPlacePodVerticalScaling is locked to on.
    """
    swapping = next(_swap_conflicts(desired, current), None) if has_swap else None
    if swapping is not None:
        return swapping
    if (
        desired.spec.resources != current.spec.resources
        and not gates["InPlacePodLevelResourcesVerticalScaling"]
    ):
        return PodLevelResizeDisabled()
    if qos_class(desired) is not QOSClass.GUARANTEED:
        return None
    resources: tuple[Literal["cpu", "memory"], ...] = ("cpu", "memory")
    include_init = gates["InPlacePodVerticalScalingInitContainers"]
    for resource in resources:
        names = tuple(
            new.name
            for new, old in resizable_containers(desired, current, init_containers=include_init)
            if new.resources.requests.get(resource, ZERO) != old.resources.requests.get(resource, ZERO)
        )
        conflict = StaticPolicyInTheWay(resource=resource, containers=names)
        if names and resource in static and not gates[conflict.gate]:
            return conflict
    return None


OS_LABEL = "kubernetes.io/os"
INIT_CONTAINERS_GATE = "InPlacePodVerticalScalingInitContainers"
POD_LEVEL_GATE = "InPlacePodLevelResourcesVerticalScaling"


def missing_resize_features(
    desired: Pod, current: Pod, *, node: str, declared: Collection[str]
) -> ResizeFeaturesMissing | None:
    """The features that the resize needs and the node does not declare; None if it declares all.

    Follows: v1.36, plugin/pkg/admission/nodedeclaredfeatures/admission.go, validatePodUpdate;
        component-helpers/nodedeclaredfeatures/features/inplacepodresize.
    """
    missing = tuple(name for name in sorted(_needed(desired, current)) if name not in declared)
    return ResizeFeaturesMissing(node=node, features=missing) if missing else None


def unsupported_os(labels: Mapping[str, str], *, node: str) -> ResizeOnOtherSystem | None:
    """The operating system of a node that cannot resize; None: Linux, or not labelled.

    Follows: v1.36, plugin/pkg/admission/podresize/admission.go, validateLinuxNode.
    """
    system = labels.get(OS_LABEL, "linux")
    return None if system == "linux" else ResizeOnOtherSystem(node=node, os=system)


def exceeded_allocatable(desired: Pod, allocatable: ResourceList) -> ResizeBeyondNode | None:
    """The requests beyond the node's allocatable resources; None if there are none.

    On a node that is only full, the kubelet defers the resize instead.

    Follows: v1.36, plugin/pkg/admission/podresize/admission.go, validateRequestsWithinAllocatable.
    """
    requests = pod_requests(desired)
    excesses = []
    for name in RESIZABLE:
        requested, available = requests.get(name, ZERO), allocatable.get(name, ZERO)
        if requested > available:
            excesses.append(
                Excess(
                    resource=name,
                    requested=counted_amount(name, requested),
                    allocatable=counted_amount(name, available),
                )
            )
    return ResizeBeyondNode(excesses=tuple(excesses)) if excesses else None


class ResizeRestart(msgspec.Struct, frozen=True, kw_only=True):
    """A container that restarts because of the resize policy of these resources."""

    container: str
    resources: tuple[str, ...]


def container_restarts(desired: Pod, current: Pod) -> tuple[ResizeRestart, ...]:
    """The containers that restart; init containers other than sidecars have ended by then.

    A container without a limit has that of the pod level, so a pod-level resize can change it.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodResizeAction.
    """
    return tuple(_container_restarts(desired, current))


def _merged(new: tuple[Container, ...], old: tuple[Container, ...]) -> tuple[Container, ...]:
    if [container.name for container in new] != [container.name for container in old]:
        return new
    return tuple(
        replace(before, resources=after.resources, resize_policy=after.resize_policy or before.resize_policy)
        for after, before in zip(new, old, strict=True)
    )


def _with_resources(
    statuses: tuple[ContainerStatus, ...], resources: dict[str, ResourceRequirements]
) -> tuple[ContainerStatus, ...]:
    """The statuses with these resources, where they report resources at all."""
    updated = []
    for status in statuses:
        allocated = resources.get(status.name)
        if allocated is not None and status.resources is not None:
            amounts = allocated.requests if status.allocated_resources else {}
            updated.append(replace(status, resources=allocated, allocated_resources=amounts))
        else:
            updated.append(status)
    return tuple(updated)


def _with_pod_level(status: PodStatus, desired: Pod) -> PodStatus:
    if desired.spec.resources is None or status.resources is None:
        return status
    amounts: ResourceList = pod_requests(desired) if status.allocated_resources else {}
    return replace(status, resources=desired.spec.resources, allocated_resources=amounts)


def _rank(resize: PendingResize) -> tuple[bool, int, bool, float]:
    if not increases_requests(resize.desired, resize.current):
        return (False, 0, False, 0)
    since = float("inf") if resize.deferred_since is None else resize.deferred_since
    is_guaranteed = qos_class(resize.desired) is QOSClass.GUARANTEED
    return (True, -(resize.desired.spec.priority or 0), not is_guaranteed, since)


def _swap_conflicts(desired: Pod, current: Pod) -> Iterator[SwapInTheWay]:
    """The containers with swap that would have to be resized with their memory; restarting ones are excluded.

    Follows: v1.36, pkg/kubelet/allocation/handlers.go, disallowResizeForSwappableContainers.
    """
    before = {
        container.name: container for container in (*current.spec.containers, *current.spec.init_containers)
    }
    for container in (*desired.spec.containers, *desired.spec.init_containers):
        other = before.get(container.name)
        if other is None or _restarts(other):
            continue
        if container.resources.requests.get(MEMORY, ZERO) == other.resources.requests.get(MEMORY, ZERO):
            continue
        if _may_swap(desired, container) or _may_swap(current, other):
            yield SwapInTheWay(container=container.name)


def _restarts(container: Container) -> bool:
    policies = {policy.resource_name: policy.restart_policy for policy in reversed(container.resize_policy)}
    return policies.get(MEMORY) == RESTART_CONTAINER


def _may_swap(pod: Pod, container: Container) -> bool:
    """Whether the kubelet gives the container swap, if it gives any.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior.
    """
    if is_critical(pod) or qos_class(pod) is not QOSClass.BURSTABLE:
        return False
    request = container.resources.requests.get(MEMORY, ZERO)
    limit = container.resources.limits.get(MEMORY, ZERO)
    return request != limit


def _needed(desired: Pod, current: Pod) -> Iterator[str]:
    if desired.spec.resources != current.spec.resources:
        yield POD_LEVEL_GATE
    init_containers = zip(desired.spec.init_containers, current.spec.init_containers, strict=True)
    if any(not old.is_sidecar and new.resources != old.resources for new, old in init_containers):
        yield INIT_CONTAINERS_GATE


def _container_restarts(desired: Pod, current: Pod) -> Iterator[ResizeRestart]:
    for new, old in resizable_containers(desired, current, init_containers=False):
        now, before = comparable_resources(desired, new), comparable_resources(current, old)
        # The first of several policies for a resource counts.
        policies = {policy.resource_name: policy.restart_policy for policy in reversed(new.resize_policy)}
        names = tuple(
            name
            for name in RESIZABLE
            if now[name] != before[name] and policies.get(name) == RESTART_CONTAINER
        )
        if names:
            yield ResizeRestart(container=new.name, resources=names)
