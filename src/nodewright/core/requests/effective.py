"""What a pod as a whole asks for: its effective requests and limits."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from nodewright.model.objects import Container, ContainerStatus, Pod, ResourceList, ResourceRequirements
from nodewright.model.resource_names import is_pod_level
from nodewright.values.quantity import ZERO


class RequestOptions(msgspec.Struct, frozen=True, rename="camel"):
    """What counts besides the containers' own requests and limits.

    Follows: v1.36, component-helpers/resource/helpers.go, PodResourcesOptions.
    """

    exclude_overhead: bool = False
    """Leave `spec.overhead` out."""
    skip_pod_level_resources: bool = False
    """Pass over `spec.resources` of the pod."""
    skip_container_level_resources: bool = False
    """Requests: start from nothing instead of the containers. Limits do not look at it."""
    use_status_resources: bool = False
    """Count what the status says that containers have, while they are being resized."""
    in_place_pod_level_resources_vertical_scaling: bool = False
    """The same for the pod level; only together with `use_status_resources`."""
    use_dra_node_allocatable_resource_claim_status: bool = msgspec.field(
        default=False, name="useDRANodeAllocatableResourceClaimStatus"
    )
    """Add what resource claims take of the node's own resources to the requests."""
    non_missing_container_requests: ResourceList = {}
    """What a container requests that says nothing about these names."""


AS_IT_IS = RequestOptions()
"""The spec alone: containers, pod level and overhead."""

WITH_STATUS = RequestOptions(use_status_resources=True, in_place_pod_level_resources_vertical_scaling=True)
"""As the scheduler and the kubelet count a pod that runs, resizes in flight included."""


class Side(StrEnum):
    """Which of the two lists of a container."""

    REQUESTS = "requests"
    LIMITS = "limits"


class InUse(msgspec.Struct, frozen=True):
    """What is in use on a container's account: its own amounts; for an init container, what runs by then."""

    type: str
    """`regular` or `init`."""
    resources: ResourceList


@dataclass(frozen=True, slots=True)
class OwnLists:
    """What each container counts for by itself, in the order of the spec."""

    containers: tuple[ResourceList, ...]
    init_containers: tuple[ResourceList, ...]


def pod_requests(pod: Pod, options: RequestOptions = AS_IT_IS) -> ResourceList:
    """What the pod requests as a whole.

    Follows: v1.36, component-helpers/resource/helpers.go, PodRequests.
    Departs: the pod is never changed; there, adding overhead to a pod-level amount that is held as a big
        number changes the pod's spec.
    """
    total = {} if options.skip_container_level_resources else container_requests(pod, options)
    total.update(pod_level(pod, Side.REQUESTS, options))
    if not options.exclude_overhead and pod.spec.overhead:
        _add(total, pod.spec.overhead)
    return total


def pod_limits(pod: Pod, options: RequestOptions = AS_IT_IS) -> ResourceList:
    """The pod's limits as a whole. A resource that no container and no pod level limits is not in it.

    Follows: v1.36, component-helpers/resource/helpers.go, PodLimits.
    """
    total = container_limits(pod, options)
    total.update(pod_level(pod, Side.LIMITS, options))
    if not options.exclude_overhead:
        for name, amount in pod.spec.overhead.items():
            limit = total.get(name)
            if limit is not None and not limit.is_zero():
                total[name] = limit + amount
    return total


def container_requests(pod: Pod, options: RequestOptions = AS_IT_IS) -> ResourceList:
    """The requests of all containers together: no pod level, no overhead.

    Follows: v1.36, component-helpers/resource/helpers.go, AggregateContainerRequests.
    """
    total = _most_at_any_time(pod, own_lists(pod, Side.REQUESTS, options))
    if options.use_dra_node_allocatable_resource_claim_status:
        for claim in pod.status.node_allocatable_resource_claim_statuses:
            _add(total, claim.resources)
    return total


def container_limits(pod: Pod, options: RequestOptions = AS_IT_IS) -> ResourceList:
    """The limits of all containers together: no pod level, no overhead.

    Follows: v1.36, component-helpers/resource/helpers.go, AggregateContainerLimits.
    """
    return _most_at_any_time(pod, own_lists(pod, Side.LIMITS, options))


def per_container_requests(pod: Pod, options: RequestOptions = AS_IT_IS) -> tuple[InUse, ...]:
    """What is in use on each container's account: containers in order, then init containers.

    Follows: v1.36, component-helpers/resource/helpers.go, PodResourcesOptions.ContainerFn.
    """
    return _in_use(pod, own_lists(pod, Side.REQUESTS, options))


def per_container_limits(pod: Pod, options: RequestOptions = AS_IT_IS) -> tuple[InUse, ...]:
    """As `per_container_requests`, for limits."""
    return _in_use(pod, own_lists(pod, Side.LIMITS, options))


# ---------------------------------------------------------------- pod level


def pod_level_resources_set(pod: Pod) -> bool:
    """Whether the pod level requests or limits anything that counts there.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodLevelResourcesSet.
    """
    return pod_level_requests_set(pod) or pod_level_limits_set(pod)


def pod_level_requests_set(pod: Pod) -> bool:
    """Whether the pod level requests anything that counts there.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodLevelRequestsSet.
    """
    return pod.spec.resources is not None and any(map(is_pod_level, pod.spec.resources.requests))


def pod_level_limits_set(pod: Pod) -> bool:
    """Whether the pod level limits anything that counts there.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodLevelLimitsSet.
    """
    return pod.spec.resources is not None and any(map(is_pod_level, pod.spec.resources.limits))


def pod_level(pod: Pod, side: Side, options: RequestOptions = AS_IT_IS) -> ResourceList:
    """What the pod level puts in the place of the containers' sums; names that do not count there are left out."""
    spec, status = pod.spec.resources, pod.status.resources
    if spec is None or options.skip_pod_level_resources:
        return {}
    written = {name: amount for name, amount in _side(spec, side).items() if is_pod_level(name)}
    in_place = options.use_status_resources and options.in_place_pod_level_resources_vertical_scaling
    if not in_place or status is None:
        return written
    allocated = pod.status.allocated_resources
    resized = _resized(side, spec, status, allocated, infeasible=resize_is_infeasible(pod))
    # A name that a resize leaves out everywhere shows as nothing, not as the containers' sum.
    return {name: resized.get(name, ZERO) for name in written}


# ---------------------------------------------------------------- containers


def own_lists(pod: Pod, side: Side, options: RequestOptions = AS_IT_IS) -> OwnLists:
    """What each container counts for by itself, resizes and stand-ins for missing requests included."""
    spec = pod.spec
    if not options.use_status_resources:
        found = [_side(container.resources, side) for container in (*spec.containers, *spec.init_containers)]
    else:
        statuses = _statuses(pod)
        infeasible = resize_is_infeasible(pod)
        found = [
            _counted(container, statuses.get(container.name), side, infeasible=infeasible)
            for container in spec.containers
        ]
        # The status of an ordinary init container is not looked at.
        found += [
            _counted(
                container,
                statuses.get(container.name) if container.is_sidecar else None,
                side,
                infeasible=infeasible,
            )
            for container in spec.init_containers
        ]
    stand_ins = options.non_missing_container_requests
    if stand_ins and side is Side.REQUESTS:
        found = [_filled(own, stand_ins) for own in found]
    regular = len(spec.containers)
    return OwnLists(tuple(found[:regular]), tuple(found[regular:]))


def resize_is_infeasible(pod: Pod) -> bool:
    """Whether the pod waits for a resize that its node can never grant: then the spec does not count.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodResizeInfeasible. The first condition of
        the type decides.
    """
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _most_at_any_time(pod: Pod, own: OwnLists) -> ResourceList:
    """The most that is in use at any time: all that keep running, or an init container beside its sidecars."""
    running = _sum(own.containers)
    if not own.init_containers:
        return running
    sidecars: ResourceList = {}
    peak: ResourceList = {}
    for container, amounts in zip(pod.spec.init_containers, own.init_containers, strict=True):
        if container.is_sidecar:
            _add(running, amounts)
            _add(sidecars, amounts)
            _raise(peak, sidecars)
        else:
            _raise(peak, _sum((amounts, sidecars)))
    _raise(running, peak)
    return running


def _in_use(pod: Pod, own: OwnLists) -> tuple[InUse, ...]:
    found = [InUse("regular", amounts) for amounts in own.containers]
    sidecars: ResourceList = {}
    for container, amounts in zip(pod.spec.init_containers, own.init_containers, strict=True):
        if container.is_sidecar:
            sidecars = _sum((sidecars, amounts))
            found.append(InUse("init", sidecars))
        else:
            found.append(InUse("init", _sum((amounts, sidecars))))
    return tuple(found)


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    return {found.name: found for found in (*status.container_statuses, *status.init_container_statuses)}


def _counted(
    container: Container, status: ContainerStatus | None, side: Side, *, infeasible: bool
) -> ResourceList:
    if status is None or status.resources is None:
        return _side(container.resources, side)
    return _resized(
        side, container.resources, status.resources, status.allocated_resources, infeasible=infeasible
    )


def _resized(
    side: Side,
    spec: ResourceRequirements,
    actual: ResourceRequirements,
    allocated: ResourceList,
    *,
    infeasible: bool,
) -> ResourceList:
    """The greatest of what is wanted, what is there and, for requests, what was allocated.

    Follows: v1.36, component-helpers/resource/helpers.go, determineEffective{Requests,Limits}.
    """
    counted = [] if infeasible else [_side(spec, side)]
    counted.append(_side(actual, side))
    if side is Side.REQUESTS:
        counted.append(allocated)
    greatest: ResourceList = {}
    for amounts in counted:
        _raise(greatest, amounts)
    return greatest


def _filled(own: ResourceList, stand_ins: ResourceList) -> ResourceList:
    # The stand-in is added to nothing there, which makes its text afresh.
    return {**own, **{name: ZERO + amount for name, amount in stand_ins.items() if name not in own}}


def _side(resources: ResourceRequirements, side: Side) -> ResourceList:
    return resources.requests if side is Side.REQUESTS else resources.limits


def _sum(lists: Iterable[ResourceList]) -> ResourceList:
    total: ResourceList = {}
    for amounts in lists:
        _add(total, amounts)
    return total


def _add(total: ResourceList, amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        before = total.get(name)
        total[name] = amount if before is None else before + amount


def _raise(greatest: ResourceList, amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        before = greatest.get(name)
        if before is None or amount.compare(before) > 0:
            greatest[name] = amount
