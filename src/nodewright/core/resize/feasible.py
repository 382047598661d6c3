"""Would the kubelet ever do it? What it turns down for good, before it looks whether there is room."""

from collections.abc import Iterator
from typing import Literal

from nodewright.core.requests import QOSClass, is_critical, qos_class
from nodewright.core.resize.amounts import pairs
from nodewright.model.gates import FeatureGates
from nodewright.model.objects import Container, Pod
from nodewright.model.resize_reasons import (
    PodLevelResizeDisabled,
    ResizeInfeasible,
    StaticPolicyInTheWay,
    SwapInTheWay,
)
from nodewright.model.resource_names import MEMORY
from nodewright.values.quantity import ZERO

RESTART = "RestartContainer"


def infeasible(
    desired: Pod, current: Pod, *, gates: FeatureGates, static: tuple[str, ...], has_swap: bool
) -> ResizeInfeasible | None:
    """What the kubelet turns the resize down for, whatever room there is; None: nothing.

    ``static`` are the resources whose manager has a static policy; ``has_swap``: whether the kubelet gives swap
    to containers at all (`swapBehavior: LimitedSwap`, with which it starts on cgroups of version 2 alone).

    Follows: v1.36, pkg/kubelet/allocation/handlers.go, podResizesAdmitHandler.Admit. The gate
        InPlacePodVerticalScaling is locked to on.
    """
    swapping = next(_swapping(desired, current), None) if has_swap else None
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
    init = gates["InPlacePodVerticalScalingInitContainers"]
    for resource in resources:
        names = tuple(
            one.name
            for one, other in pairs(desired, current, init_containers=init)
            if one.resources.requests.get(resource, ZERO) != other.resources.requests.get(resource, ZERO)
        )
        found = StaticPolicyInTheWay(resource=resource, containers=names)
        if names and resource in static and not gates[found.gate]:
            return found
    return None


def _swapping(desired: Pod, current: Pod) -> Iterator[SwapInTheWay]:
    """The containers whose swap would have to follow their memory; those that start again need not.

    Follows: v1.36, pkg/kubelet/allocation/handlers.go, disallowResizeForSwappableContainers.
    """
    before = {one.name: one for one in (*current.spec.containers, *current.spec.init_containers)}
    for one in (*desired.spec.containers, *desired.spec.init_containers):
        other = before.get(one.name)
        if other is None or _restarts(other):
            continue
        if one.resources.requests.get(MEMORY, ZERO) == other.resources.requests.get(MEMORY, ZERO):
            continue
        if _may_swap(desired, one) or _may_swap(current, other):
            yield SwapInTheWay(container=one.name)


def _restarts(container: Container) -> bool:
    policies = {one.resource_name: one.restart_policy for one in reversed(container.resize_policy)}
    return policies.get(MEMORY) == RESTART


def _may_swap(pod: Pod, container: Container) -> bool:
    """Whether the kubelet gives the container swap where it gives any.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior.
    """
    if is_critical(pod) or qos_class(pod) is not QOSClass.BURSTABLE:
        return False
    request = container.resources.requests.get(MEMORY, ZERO)
    limit = container.resources.limits.get(MEMORY, ZERO)
    return request != limit
