"""The effective requests and limits of a pod as a whole, and a cache for functions of spec and status."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from nodewright.engine.core.requests.request_options import SPEC_ONLY, RequestOptions
from nodewright.model.kubernetes.objects import (
    Container,
    ContainerStatus,
    Pod,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.kubernetes.resource_names import is_supported_pod_level
from nodewright.model.values.quantity import ZERO


class ResourceField(StrEnum):
    """Requests or limits."""

    REQUESTS = "requests"
    LIMITS = "limits"


class ContainerConsumption(msgspec.Struct, frozen=True):
    """A container's resources; for an init container those of the sidecars that run by then included."""

    type: str
    """`regular` or `init`."""
    resources: ResourceList


class ContainerResourceLists(msgspec.Struct, frozen=True):
    """The resources of each container by itself, in the order of the spec."""

    containers: tuple[ResourceList, ...]
    init_containers: tuple[ResourceList, ...]


def pod_requests(pod: Pod, options: RequestOptions = SPEC_ONLY) -> ResourceList:
    """The requests of the pod as a whole.

    Follows: v1.36, component-helpers/resource/helpers.go, PodRequests.
    Departs: the pod is never changed; there, adding overhead to a pod-level amount that is stored as a big
        number changes the pod's spec.
    """
    total = {} if options.skip_container_level_resources else container_requests(pod, options)
    if pod.spec.resources is not None:
        total.update(pod_level_overrides(pod, ResourceField.REQUESTS, options))
    if not options.exclude_overhead and pod.spec.overhead:
        _add(total, pod.spec.overhead)
    return total


def pod_limits(pod: Pod, options: RequestOptions = SPEC_ONLY) -> ResourceList:
    """The limits of the pod as a whole, without resources that neither a container nor the pod level limits.

    Follows: v1.36, component-helpers/resource/helpers.go, PodLimits.
    """
    total = container_limits(pod, options)
    total.update(pod_level_overrides(pod, ResourceField.LIMITS, options))
    if not options.exclude_overhead:
        for name, amount in (pod.spec.overhead or {}).items():
            limit = total.get(name)
            if limit is not None and not limit.is_zero():
                total[name] = limit + amount
    return total


def container_requests(pod: Pod, options: RequestOptions = SPEC_ONLY) -> ResourceList:
    """The requests of all containers together, without pod level and overhead.

    Follows: v1.36, component-helpers/resource/helpers.go, AggregateContainerRequests.
    """
    spec = pod.spec
    if spec.init_containers or options.use_status_resources or options.non_missing_container_requests:
        total = _peak(pod, container_resource_lists(pod, ResourceField.REQUESTS, options))
    else:
        total = _sum([container.resources.requests for container in spec.containers])
    if options.use_dra_node_allocatable_resource_claim_status:
        for claim in pod.status.node_allocatable_resource_claim_statuses:
            _add(total, claim.resources)
    return total


def container_limits(pod: Pod, options: RequestOptions = SPEC_ONLY) -> ResourceList:
    """The limits of all containers together, without pod level and overhead.

    Follows: v1.36, component-helpers/resource/helpers.go, AggregateContainerLimits.
    """
    return _peak(pod, container_resource_lists(pod, ResourceField.LIMITS, options))


def per_container_requests(pod: Pod, options: RequestOptions = SPEC_ONLY) -> tuple[ContainerConsumption, ...]:
    """The requests of each container: containers in order, then init containers.

    Follows: v1.36, component-helpers/resource/helpers.go, PodResourcesOptions.ContainerFn.
    """
    return _consumptions(pod, container_resource_lists(pod, ResourceField.REQUESTS, options))


def per_container_limits(pod: Pod, options: RequestOptions = SPEC_ONLY) -> tuple[ContainerConsumption, ...]:
    """As `per_container_requests`, for limits."""
    return _consumptions(pod, container_resource_lists(pod, ResourceField.LIMITS, options))


# ---------------------------------------------------------------- pod level


def pod_level_resources_set(pod: Pod, *, huge_pages: bool = True) -> bool:
    """Whether the pod level has requests or limits of a supported resource; ``huge_pages``: they are supported.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodLevelResourcesSet.
    """
    return pod.spec.resources is not None and (
        pod_level_requests_set(pod, huge_pages=huge_pages) or pod_level_limits_set(pod, huge_pages=huge_pages)
    )


def pod_level_requests_set(pod: Pod, *, huge_pages: bool = True) -> bool:
    """Whether the pod level has requests of a supported resource.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodLevelRequestsSet.
    """
    resources = pod.spec.resources
    return resources is not None and any(
        is_supported_pod_level(name, huge_pages=huge_pages) for name in resources.requests
    )


def pod_level_limits_set(pod: Pod, *, huge_pages: bool = True) -> bool:
    """Whether the pod level has limits of a supported resource.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodLevelLimitsSet.
    """
    resources = pod.spec.resources
    return resources is not None and any(
        is_supported_pod_level(name, huge_pages=huge_pages) for name in resources.limits
    )


def pod_level_overrides(pod: Pod, side: ResourceField, options: RequestOptions = SPEC_ONLY) -> ResourceList:
    """The pod-level amounts that replace the containers' sums; unsupported names are left out."""
    spec, status = pod.spec.resources, pod.status.resources
    if spec is None or options.skip_pod_level_resources:
        return {}
    spec_amounts = {
        name: amount
        for name, amount in _amounts(spec, side).items()
        if is_supported_pod_level(name, huge_pages=options.pod_level_huge_pages)
    }
    in_place = options.use_status_resources and options.in_place_pod_level_resources_vertical_scaling
    if not in_place or status is None:
        return spec_amounts
    allocated = pod.status.allocated_resources
    resized = _resized(side, spec, status, allocated, infeasible=resize_is_infeasible(pod))
    # A name that a resize omits everywhere is zero, not the containers' sum.
    return {name: resized.get(name, ZERO) for name in spec_amounts}


# ---------------------------------------------------------------- containers


def container_resource_lists(
    pod: Pod, side: ResourceField, options: RequestOptions = SPEC_ONLY
) -> ContainerResourceLists:
    """The resources of each container by itself, resizes and defaults for missing requests included."""
    spec = pod.spec
    if not options.use_status_resources:
        lists = [
            _amounts(container.resources, side) for container in (*spec.containers, *spec.init_containers)
        ]
    else:
        lists = _resized_lists(pod, side, in_conditions=options.resize_in_conditions)
    defaults = options.non_missing_container_requests
    if defaults and side is ResourceField.REQUESTS:
        lists = [_filled(amounts, defaults) for amounts in lists]
    regular = len(spec.containers)
    return ContainerResourceLists(tuple(lists[:regular]), tuple(lists[regular:]))


def _resized_lists(pod: Pod, side: ResourceField, *, in_conditions: bool) -> list[ResourceList]:
    """The resources of each container with a resize in progress; ``in_conditions`` as in `ReleaseRules`."""
    statuses = (
        _statuses(pod) if in_conditions else {each.name: each for each in pod.status.container_statuses}
    )
    infeasible = resize_is_infeasible(pod, in_conditions=in_conditions)
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    # The status of an init container that is not a sidecar is ignored; without conditions, that of a sidecar as well.
    return [
        _effective_amounts(
            container,
            statuses.get(container.name)
            if index < len(pod.spec.containers) or (in_conditions and container.is_sidecar)
            else None,
            side,
            infeasible=infeasible,
            with_allocated=in_conditions,
        )
        for index, container in enumerate(containers)
    ]


def resize_is_infeasible(pod: Pod, *, in_conditions: bool = True) -> bool:
    """Whether the pod's pending resize is infeasible on its node: then the spec does not count.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodResizeInfeasible. The first condition of
        the type decides. Without ``in_conditions``: v1.32, the field `resize`.
    """
    if not in_conditions:
        return pod.status.resize == "Infeasible"
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _peak(pod: Pod, lists: ContainerResourceLists) -> ResourceList:
    """The maximum over time: all long-running containers, or an init container beside earlier sidecars."""
    running = _sum(lists.containers)
    if not lists.init_containers:
        return running
    sidecars: ResourceList = {}
    init_peak: ResourceList = {}
    for container, amounts in zip(pod.spec.init_containers, lists.init_containers, strict=True):
        if container.is_sidecar:
            _add(running, amounts)
            _add(sidecars, amounts)
            _raise_to(init_peak, sidecars)
        else:
            _raise_to(init_peak, _sum((amounts, sidecars)))
    _raise_to(running, init_peak)
    return running


def _consumptions(pod: Pod, lists: ContainerResourceLists) -> tuple[ContainerConsumption, ...]:
    consumptions = [ContainerConsumption("regular", amounts) for amounts in lists.containers]
    sidecars: ResourceList = {}
    for container, amounts in zip(pod.spec.init_containers, lists.init_containers, strict=True):
        if container.is_sidecar:
            sidecars = _sum((sidecars, amounts))
            consumptions.append(ContainerConsumption("init", sidecars))
        else:
            consumptions.append(ContainerConsumption("init", _sum((amounts, sidecars))))
    return tuple(consumptions)


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    return {
        container.name: container
        for container in (*status.container_statuses, *status.init_container_statuses)
    }


def _effective_amounts(
    container: Container,
    status: ContainerStatus | None,
    side: ResourceField,
    *,
    infeasible: bool,
    with_allocated: bool,
) -> ResourceList:
    if status is None or status.resources is None:
        return _amounts(container.resources, side)
    if not with_allocated:
        # Of equal amounts the text in the status stays.
        return _raised(
            _amounts(status.resources, side), {} if infeasible else _amounts(container.resources, side)
        )
    return _resized(
        side, container.resources, status.resources, status.allocated_resources, infeasible=infeasible
    )


def _resized(
    side: ResourceField,
    spec: ResourceRequirements,
    actual: ResourceRequirements,
    allocated: ResourceList,
    *,
    infeasible: bool,
) -> ResourceList:
    """The maximum of desired, actual and, for requests, allocated amounts.

    Follows: v1.36, component-helpers/resource/helpers.go, determineEffective{Requests,Limits}.
    """
    lists = [] if infeasible else [_amounts(spec, side)]
    lists.append(_amounts(actual, side))
    if side is ResourceField.REQUESTS:
        lists.append(allocated)
    return _raised(*lists)


def _raised(*lists: ResourceList) -> ResourceList:
    """The maximum by name; of equal amounts the first."""
    maximum: ResourceList = {}
    for amounts in lists:
        _raise_to(maximum, amounts)
    return maximum


def _filled(amounts: ResourceList, defaults: ResourceList) -> ResourceList:
    # The kubelet adds the default to zero, which normalizes its text.
    missing = {name: ZERO + amount for name, amount in defaults.items() if name not in amounts}
    return {**amounts, **missing}


def _amounts(resources: ResourceRequirements, side: ResourceField) -> ResourceList:
    return resources.requests if side is ResourceField.REQUESTS else resources.limits


def _sum(lists: Iterable[ResourceList]) -> ResourceList:
    total: ResourceList = {}
    for amounts in lists:
        if total:
            _add(total, amounts)
        else:
            total.update(amounts)
    return total


def _add(total: ResourceList, amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        before = total.get(name)
        total[name] = amount if before is None else before + amount


def _raise_to(greatest: ResourceList, amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        before = greatest.get(name)
        if before is None or amount.compare(before) > 0:
            greatest[name] = amount
