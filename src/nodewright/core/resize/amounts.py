"""What a pod is allocated, what it is to have, and whether that is more."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodewright.core.requests import pod_requests
from nodewright.model.objects import (
    Container,
    ContainerStatus,
    Pod,
    PodStatus,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.values.quantity import ZERO

RESIZABLE = (CPU, MEMORY)
"""The resources that can be resized."""


def merged(written: Pod, current: Pod) -> Pod:
    """The pod as the API server makes it of what was written: everything but resources is as it was.

    A container that says nothing about its resize policy keeps the one that it has. Containers that are others
    than before are taken as written, for the checks to find.

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


def _merged(new: tuple[Container, ...], old: tuple[Container, ...]) -> tuple[Container, ...]:
    if [one.name for one in new] != [one.name for one in old]:
        return new
    return tuple(
        replace(before, resources=after.resources, resize_policy=after.resize_policy or before.resize_policy)
        for after, before in zip(new, old, strict=True)
    )


def differs(desired: Pod, current: Pod, *, init_containers: bool) -> bool:
    """Whether any resources that can be resized are other than those allocated.

    ``init_containers``: the gate InPlacePodVerticalScalingInitContainers, without which those of init containers
    that end do not count.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, updatePodFromAllocation, IsResizableContainer.
    """
    return desired.spec.resources != current.spec.resources or any(
        one.resources != other.resources
        for one, other in pairs(desired, current, init_containers=init_containers)
    )


def pairs(desired: Pod, current: Pod, *, init_containers: bool) -> Iterator[tuple[Container, Container]]:
    """The containers that can be resized, as they are to be and as they are; init containers first."""
    before = {one.name: one for one in (*current.spec.init_containers, *current.spec.containers)}
    for one in desired.spec.init_containers:
        if (one.is_sidecar or init_containers) and one.name in before:
            yield one, before[one.name]
    for one in desired.spec.containers:
        if one.name in before:
            yield one, before[one.name]


def counted(pod: Pod, container: Container) -> dict[str, tuple[int, int]]:
    """Request and limit of each resource as the kubelet compares them; no limit of its own: that of the pod level.

    Units:   cpu in thousandths, memory in bytes; 0: none.
    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, containerResourcesFromRequirements.
    """
    requests, limits = container.resources.requests, container.resources.limits
    level = pod.spec.resources.limits if pod.spec.resources else {}
    found = {}
    for name in RESIZABLE:
        request, limit = requests.get(name, ZERO), limits.get(name, ZERO)
        if limit.is_zero():
            limit = level.get(name, ZERO)
        milli = name == CPU
        found[name] = (
            request.milli_value() if milli else request.value(),
            limit.milli_value() if milli else limit.value(),
        )
    return found


def increases(desired: Pod, current: Pod) -> bool:
    """Whether the pod would request more of any resource.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, isResizeIncreasingRequests.
    """
    wants, has = pod_requests(desired), pod_requests(current)
    return any(wants.get(name, ZERO) > has.get(name, ZERO) for name in RESIZABLE)


def allocated(desired: Pod) -> Pod:
    """The pod once the resize is done: its status says of its containers what its spec does.

    Departs: at once; there, it takes as long as the runtime needs to carry it out.
    """
    status = desired.status
    resources = {one.name: one.resources for one in (*desired.spec.containers, *desired.spec.init_containers)}
    conditions = tuple(
        one for one in status.conditions if one.type not in ("PodResizePending", "PodResizeInProgress")
    )
    told = replace(
        status,
        conditions=conditions,
        container_statuses=_told(status.container_statuses, resources),
        init_container_statuses=_told(status.init_container_statuses, resources),
    )
    return replace(desired, status=_with_pod_level(told, desired.spec.resources))


def _told(
    statuses: tuple[ContainerStatus, ...], resources: dict[str, ResourceRequirements]
) -> tuple[ContainerStatus, ...]:
    """The statuses with these resources, each as far as it says anything about them."""
    found = []
    for status in statuses:
        given = resources.get(status.name)
        if given is not None and status.resources is not None:
            amounts = given.requests if status.allocated_resources else {}
            found.append(replace(status, resources=given, allocated_resources=amounts))
        else:
            found.append(status)
    return tuple(found)


def _with_pod_level(status: PodStatus, resources: ResourceRequirements | None) -> PodStatus:
    if resources is None or status.resources is None:
        return status
    amounts: ResourceList = resources.requests if status.allocated_resources else {}
    return replace(status, resources=resources, allocated_resources=amounts)
