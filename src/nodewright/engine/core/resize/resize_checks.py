"""Checks of a resize: infeasibility at the kubelet, admission at the API server, container restarts."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import msgspec

from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, is_critical, qos_class
from nodewright.engine.core.resize.resize_allocation import (
    RESIZABLE,
    comparable_resources,
    resizable_containers,
)
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
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

RESTART_CONTAINER = "RestartContainer"


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


def _needed(desired: Pod, current: Pod) -> Iterator[str]:
    if desired.spec.resources != current.spec.resources:
        yield POD_LEVEL_GATE
    init_containers = zip(desired.spec.init_containers, current.spec.init_containers, strict=True)
    if any(not old.is_sidecar and new.resources != old.resources for new, old in init_containers):
        yield INIT_CONTAINERS_GATE


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
            is_cpu = name == CPU
            excesses.append(
                Excess(
                    resource=name,
                    requested=requested.milli_value() if is_cpu else requested.value(),
                    allocatable=available.milli_value() if is_cpu else available.value(),
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
