"""What the API server fills into a pod's resources, and where it took it from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import is_
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.core.requests.effective import container_limits, container_requests
from nodewright.model.objects import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.resource_names import CPU, MEMORY, in_order, is_huge_page, is_pod_level
from nodewright.values.quantity import Quantity

_MILLI = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFromLimit:
    """A limit without a request gave the request."""

    container: str
    """Empty: the pod level."""
    resource: str
    amount: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequestFromContainers:
    """The containers' requests together gave the pod level's request."""

    resource: str
    amount: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLimitFromContainers:
    """The containers' limits on huge pages together gave the pod level's limit."""

    resource: str
    amount: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedUp:
    """An amount finer than a thousandth was rounded up."""

    container: str
    """Empty: the pod level, or the overhead."""
    field: str
    """`requests`, `limits` or `overhead`."""
    resource: str
    before: Quantity
    amount: Quantity


Default: TypeAlias = RequestFromLimit | PodRequestFromContainers | PodLimitFromContainers | RoundedUp


@dataclass(frozen=True, slots=True)
class Defaulted:
    """The pod as the API server stores it, and what it filled in."""

    pod: Pod
    applied: tuple[Default, ...]


def with_defaults(pod: Pod) -> Pod:
    """The pod with the resources that the API server fills in.

    Follows: v1.36, pkg/apis/core/v1/{zz_generated.defaults,defaults}.go, SetObjectDefaults_Pod; resources
        only.
    """
    spec = _requests_from_limits(pod.spec)
    if spec.resources is not None:
        spec = replace(spec, resources=_pod_level(replace(pod, spec=spec)))
    # Sums are taken of amounts as written; only then is everything rounded.
    spec = _spec_in_milli(spec)
    status = _status_in_milli(pod.status)
    return pod if spec is pod.spec and status is pod.status else replace(pod, spec=spec, status=status)


def defaulted(pod: Pod) -> Defaulted:
    """The pod with its defaults, and what they are."""
    after = with_defaults(pod)
    return Defaulted(after, tuple(_applied(pod, after)))


# ---------------------------------------------------------------- the rules


def _requests_from_limits(spec: PodSpec) -> PodSpec:
    containers = tuple(map(_request_from_limit, spec.containers))
    init_containers = tuple(map(_request_from_limit, spec.init_containers))
    if _same(containers, spec.containers) and _same(init_containers, spec.init_containers):
        return spec
    return replace(spec, containers=containers, init_containers=init_containers)


def _request_from_limit(container: Container) -> Container:
    resources = container.resources
    if resources.limits.keys() <= resources.requests.keys():
        return container
    requests = _filled(resources.requests, resources.limits)
    return replace(container, resources=replace(resources, requests=requests))


def _pod_level(pod: Pod) -> ResourceRequirements:
    """The pod level with huge page limits and then requests filled in.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, defaultHugePagePodLimits and defaultPodRequests.
    """
    resources = pod.spec.resources
    assert resources is not None
    requests, limits = resources.requests, resources.limits
    if requests or limits:
        found = container_limits(pod)
        limits = _filled(
            limits,
            {name: found[name] for name in found if is_huge_page(name) and name not in requests},
        )
    if limits:
        found = container_requests(pod)
        requests = _filled(requests, {name: found[name] for name in (CPU, MEMORY) if name in found})
        requests = _filled(requests, {name: limits[name] for name in limits if is_pod_level(name)})
    return replace(resources, requests=requests, limits=limits)


def _filled(amounts: ResourceList, stand_ins: ResourceList) -> ResourceList:
    missing = {name: amount for name, amount in stand_ins.items() if name not in amounts}
    return {**amounts, **missing} if missing else amounts


# ---------------------------------------------------------------- rounding


def _spec_in_milli(spec: PodSpec) -> PodSpec:
    containers = tuple(map(_container_in_milli, spec.containers))
    init_containers = tuple(map(_container_in_milli, spec.init_containers))
    overhead = in_milli(spec.overhead)
    resources = None if spec.resources is None else _resources_in_milli(spec.resources)
    same = _same(containers, spec.containers) and _same(init_containers, spec.init_containers)
    if same and overhead is spec.overhead and resources is spec.resources:
        return spec
    return replace(
        spec,
        containers=containers,
        init_containers=init_containers,
        overhead=overhead,
        resources=resources,
    )


def _status_in_milli(status: PodStatus) -> PodStatus:
    statuses = tuple(map(_container_status_in_milli, status.container_statuses))
    init_statuses = tuple(map(_container_status_in_milli, status.init_container_statuses))
    allocated = in_milli(status.allocated_resources)
    resources = None if status.resources is None else _resources_in_milli(status.resources)
    same = _same(statuses, status.container_statuses) and _same(init_statuses, status.init_container_statuses)
    if same and allocated is status.allocated_resources and resources is status.resources:
        return status
    return replace(
        status,
        container_statuses=statuses,
        init_container_statuses=init_statuses,
        allocated_resources=allocated,
        resources=resources,
    )


def _container_in_milli(container: Container) -> Container:
    resources = _resources_in_milli(container.resources)
    return container if resources is container.resources else replace(container, resources=resources)


def _container_status_in_milli(status: ContainerStatus) -> ContainerStatus:
    resources = None if status.resources is None else _resources_in_milli(status.resources)
    allocated = in_milli(status.allocated_resources)
    if resources is status.resources and allocated is status.allocated_resources:
        return status
    return replace(status, resources=resources, allocated_resources=allocated)


def _resources_in_milli(resources: ResourceRequirements) -> ResourceRequirements:
    requests, limits = in_milli(resources.requests), in_milli(resources.limits)
    if requests is resources.requests and limits is resources.limits:
        return resources
    return replace(resources, requests=requests, limits=limits)


def in_milli(amounts: ResourceList) -> ResourceList:
    """The amounts as the API server keeps them: none finer than a thousandth.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_ResourceList.
    """
    rounded = {name: amount.rounded_up(_MILLI)[0] for name, amount in amounts.items()}
    return amounts if _same(rounded.values(), amounts.values()) else rounded


def _same(left: Iterable[object], right: Iterable[object]) -> bool:
    return all(map(is_, left, right))


# ---------------------------------------------------------------- what was applied


def _applied(before: Pod, after: Pod) -> Iterator[Default]:
    old, new = before.spec, after.spec
    for was, now in zip(
        (*old.containers, *old.init_containers), (*new.containers, *new.init_containers), strict=True
    ):
        for name in sorted(now.resources.requests.keys() - was.resources.requests.keys(), key=in_order):
            yield RequestFromLimit(container=was.name, resource=name, amount=now.resources.requests[name])
        yield from _rounded(was.name, was.resources, now.resources)
    if old.resources is not None and new.resources is not None:
        yield from _applied_to_pod_level(before, old.resources, new.resources)
        yield from _rounded("", old.resources, new.resources)
    yield from _rounded_list("", "overhead", old.overhead, new.overhead)


def _applied_to_pod_level(
    before: Pod, was: ResourceRequirements, now: ResourceRequirements
) -> Iterator[Default]:
    for name in sorted(now.limits.keys() - was.limits.keys(), key=in_order):
        yield PodLimitFromContainers(resource=name, amount=now.limits[name])
    found = container_requests(replace(before, spec=_requests_from_limits(before.spec)))
    for name in sorted(now.requests.keys() - was.requests.keys(), key=in_order):
        if name in found and not is_huge_page(name):
            yield PodRequestFromContainers(resource=name, amount=now.requests[name])
        else:
            yield RequestFromLimit(container="", resource=name, amount=now.requests[name])


def _rounded(container: str, was: ResourceRequirements, now: ResourceRequirements) -> Iterator[RoundedUp]:
    yield from _rounded_list(container, "requests", was.requests, now.requests)
    yield from _rounded_list(container, "limits", was.limits, now.limits)


def _rounded_list(container: str, field: str, was: ResourceList, now: ResourceList) -> Iterator[RoundedUp]:
    for name in sorted(was, key=in_order):
        if was[name] != now[name]:
            yield RoundedUp(
                container=container, field=field, resource=name, before=was[name], amount=now[name]
            )
