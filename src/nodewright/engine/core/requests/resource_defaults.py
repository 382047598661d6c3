"""The API server's defaults for a pod's resources, with the source of each."""

from collections.abc import Iterable, Iterator
from operator import is_
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import container_limits, container_requests
from nodewright.model.kubernetes.objects import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.kubernetes.resource_names import (
    CPU,
    MEMORY,
    is_huge_page,
    is_supported_pod_level,
    resource_sort_key,
)
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.releases.release_rules import HugePageDefaults, ReleaseRules
from nodewright.model.values.quantity import Quantity

ContainerT = TypeVar("ContainerT", bound=Container)
_MILLI = -3


class RequestFromLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A request set from the limit."""

    container: str
    """Empty: the pod level."""
    resource: str
    amount: Quantity


class PodRequestFromContainers(msgspec.Struct, frozen=True, kw_only=True):
    """A pod-level request set from the sum of the containers' requests."""

    resource: str
    amount: Quantity


class PodLimitFromContainers(msgspec.Struct, frozen=True, kw_only=True):
    """A pod-level limit set from the sum of the containers' limits."""

    resource: str
    amount: Quantity
    from_request: bool = False
    """The pod level's request is larger than the sum, and is the limit."""


class RoundedUp(msgspec.Struct, frozen=True, kw_only=True):
    """An amount rounded up to thousandths."""

    container: str
    """Empty: the pod level, or the overhead."""
    field: str
    """`requests`, `limits` or `overhead`."""
    resource: str
    before: Quantity
    amount: Quantity


AppliedDefault: TypeAlias = RequestFromLimit | PodRequestFromContainers | PodLimitFromContainers | RoundedUp


class PodWithDefaults(msgspec.Struct, frozen=True):
    """The pod as the API server stores it, and the defaults that were applied."""

    pod: Pod
    defaults: tuple[AppliedDefault, ...]


def with_defaults(pod: Pod, gates: FeatureGates = DEFAULT_GATES, *, spec: PodSpec | None = None) -> Pod:
    """The pod with the default resources of an API server with these gates.

    ``spec``: its spec with these defaults, if it is known.
    Follows: v1.36, pkg/apis/core/v1/{zz_generated.defaults,defaults}.go, SetObjectDefaults_Pod; resources
        only.
    """
    spec = spec or _spec_with_defaults(pod.spec, gates)
    status = _status_in_milli(pod.status)
    return pod if spec is pod.spec and status is pod.status else replace(pod, spec=spec, status=status)


def with_pod_level_defaults(pod: Pod, gates: FeatureGates) -> Pod:
    """The pod with the amounts of the pod level that an API server fills in after admission's changes, when it is created.

    A pod level that asks for something requests what the containers request, and limits a request where every
    container has a limit: to the larger of the request and of what the containers together may use.

    Follows: v1.37, pkg/api/pod/util.go, DefaultPodLevelResources (PR 140514).
    """
    resources = pod.spec.resources
    is_on = gates["PodLevelResources"] and gates["PodLevelResourcesFixDefaulting"]
    if not is_on or resources is None or not (resources.requests or resources.limits):
        return pod
    filled = _pod_level(pod, gates.rules, from_containers=True)
    missing = {
        name: request
        for name, request in filled.requests.items()
        if is_supported_pod_level(name) and name not in filled.limits
        if all(name in container.resources.limits for container in pod.spec.all_containers)
    }
    sums = container_limits(pod) if missing else {}
    # A pod without containers, which is invalid, has no sums.
    limits = {name: max(sums.get(name, request), request) for name, request in missing.items()}
    filled = replace(filled, limits=_filled(filled.limits, limits))
    return pod if filled == resources else replace(pod, spec=replace(pod.spec, resources=filled))


def rounded_pod(pod: Pod) -> Pod:
    """The pod of a template with its amounts rounded up to thousandths; templates get no other default amounts.

    Follows: v1.36, pkg/apis/apps/v1/zz_generated.defaults.go, SetObjectDefaults_Deployment.
    """
    spec = _spec_in_milli(pod.spec)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def defaulted_pod(pod: Pod, gates: FeatureGates = DEFAULT_GATES) -> PodWithDefaults:
    """The pod with its defaults, and the list of them."""
    after = with_pod_level_defaults(with_defaults(pod, gates), gates)
    return PodWithDefaults(after, tuple(_applied(pod, after)))


# ---------------------------------------------------------------- the rules


def _spec_with_defaults(spec: PodSpec, gates: FeatureGates) -> PodSpec:
    spec = _requests_from_limits(spec)
    if spec.resources is not None and gates["PodLevelResources"]:
        spec = replace(spec, resources=_pod_level(Pod(spec=spec), gates.rules))
    # The sums are computed from the amounts as written; rounding comes last.
    return _spec_in_milli(spec)


def _requests_from_limits(spec: PodSpec) -> PodSpec:
    if not any(map(_lacks_requests, spec.containers)) and not any(map(_lacks_requests, spec.init_containers)):
        return spec
    containers = tuple(map(_request_from_limit, spec.containers))
    init_containers = tuple(map(_request_from_limit, spec.init_containers))
    return replace(spec, containers=containers, init_containers=init_containers)


def _lacks_requests(container: Container) -> bool:
    """Whether a limit has no request beside it."""
    resources = container.resources
    return bool(resources.limits) and not resources.limits.keys() <= resources.requests.keys()


def _request_from_limit(container: Container) -> Container:
    if not _lacks_requests(container):
        return container
    resources = container.resources
    requests = _filled(resources.requests, resources.limits)
    return replace(container, resources=replace(resources, requests=requests))


def _pod_level(pod: Pod, rules: ReleaseRules, *, from_containers: bool = False) -> ResourceRequirements:
    """The pod level with huge page limits and then requests filled in; ``from_containers``: also where it has no limit.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, defaultHugePagePodLimits and defaultPodRequests.
    """
    resources = pod.spec.resources
    assert resources is not None
    requests, limits = resources.requests, resources.limits
    if (requests or limits) and rules.huge_page_defaults is not HugePageDefaults.NONE:
        requested = requests if rules.huge_page_defaults is HugePageDefaults.UNREQUESTED else {}
        sums = container_limits(pod)
        limits = _filled(
            limits,
            {name: sums[name] for name in sums if is_huge_page(name) and name not in requested},
        )
    if limits or from_containers:
        sums = container_requests(pod)
        requests = _filled(requests, {name: sums[name] for name in (CPU, MEMORY) if name in sums})
        supported = {
            name: amount
            for name, amount in limits.items()
            if is_supported_pod_level(name, huge_pages=rules.pod_level_huge_pages)
        }
        requests = _filled(requests, supported)
    return replace(resources, requests=requests, limits=limits)


def _filled(amounts: ResourceList, defaults: ResourceList) -> ResourceList:
    missing = {name: amount for name, amount in defaults.items() if name not in amounts}
    return {**amounts, **missing} if missing else amounts


# ---------------------------------------------------------------- rounding


def _spec_in_milli(spec: PodSpec) -> PodSpec:
    if spec.overhead is None and spec.resources is None:
        listed = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
        if all(map(_is_in_milli, listed)):
            return spec
    containers = tuple(map(_container_in_milli, spec.containers))
    init_containers = tuple(map(_container_in_milli, spec.init_containers))
    overhead = None if spec.overhead is None else rounded_to_milli(spec.overhead)
    resources = None if spec.resources is None else _resources_in_milli(spec.resources)
    ephemeral = tuple(map(_container_in_milli, spec.ephemeral_containers))
    same = _same(containers, spec.containers) and _same(init_containers, spec.init_containers)
    same = same and _same(ephemeral, spec.ephemeral_containers)
    if same and overhead is spec.overhead and resources is spec.resources:
        return spec
    return replace(
        spec,
        containers=containers,
        init_containers=init_containers,
        ephemeral_containers=ephemeral,
        overhead=overhead,
        resources=resources,
    )


def _status_in_milli(status: PodStatus) -> PodStatus:
    parts: tuple[ContainerStatus | PodStatus, ...] = (
        *status.container_statuses,
        *status.init_container_statuses,
        status,
    )
    if not any(part.resources is not None or part.allocated_resources for part in parts):
        return status
    statuses = tuple(map(_container_status_in_milli, status.container_statuses))
    init_statuses = tuple(map(_container_status_in_milli, status.init_container_statuses))
    allocated = rounded_to_milli(status.allocated_resources)
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


def _is_in_milli(container: Container) -> bool:
    """Whether rounding changes no amount of the container."""
    resources = container.resources
    return all(map(_is_rounded, resources.requests.values())) and all(
        map(_is_rounded, resources.limits.values())
    )


def _is_rounded(amount: Quantity) -> bool:
    return amount.scale >= _MILLI and amount.is_int64


def _container_in_milli(container: ContainerT) -> ContainerT:
    resources = _resources_in_milli(container.resources)
    return container if resources is container.resources else replace(container, resources=resources)


def _container_status_in_milli(status: ContainerStatus) -> ContainerStatus:
    resources = None if status.resources is None else _resources_in_milli(status.resources)
    allocated = rounded_to_milli(status.allocated_resources)
    if resources is status.resources and allocated is status.allocated_resources:
        return status
    return replace(status, resources=resources, allocated_resources=allocated)


def _resources_in_milli(resources: ResourceRequirements) -> ResourceRequirements:
    requests, limits = rounded_to_milli(resources.requests), rounded_to_milli(resources.limits)
    if requests is resources.requests and limits is resources.limits:
        return resources
    return replace(resources, requests=requests, limits=limits)


def rounded_to_milli(amounts: ResourceList) -> ResourceList:
    """The amounts as the API server stores them: rounded up to thousandths.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_ResourceList.
    """
    if all(map(_is_rounded, amounts.values())):
        return amounts
    rounded = {name: amount.rounded_up(_MILLI)[0] for name, amount in amounts.items()}
    return amounts if _same(rounded.values(), amounts.values()) else rounded


def _same(left: Iterable[object], right: Iterable[object]) -> bool:
    return all(map(is_, left, right))


# ---------------------------------------------------------------- what was applied


def _applied(before: Pod, after: Pod) -> Iterator[AppliedDefault]:
    old, new = before.spec, after.spec
    for was, now in zip(
        (*old.containers, *old.init_containers), (*new.containers, *new.init_containers), strict=True
    ):
        for name in sorted(
            now.resources.requests.keys() - was.resources.requests.keys(), key=resource_sort_key
        ):
            yield RequestFromLimit(container=was.name, resource=name, amount=now.resources.requests[name])
        yield from _rounded(was.name, was.resources, now.resources)
    if old.resources is not None and new.resources is not None:
        yield from _applied_to_pod_level(before, old.resources, new.resources)
        yield from _rounded("", old.resources, new.resources)
    yield from _rounded_list("", "overhead", old.overhead or {}, new.overhead or {})


def _applied_to_pod_level(
    before: Pod, was: ResourceRequirements, now: ResourceRequirements
) -> Iterator[AppliedDefault]:
    for name in sorted(now.limits.keys() - was.limits.keys(), key=resource_sort_key):
        amount = now.limits[name]
        is_above = amount > container_limits(before).get(name, amount)
        yield PodLimitFromContainers(resource=name, amount=amount, from_request=is_above)
    sums = container_requests(replace(before, spec=_requests_from_limits(before.spec)))
    for name in sorted(now.requests.keys() - was.requests.keys(), key=resource_sort_key):
        if name in sums and not is_huge_page(name):
            yield PodRequestFromContainers(resource=name, amount=now.requests[name])
        else:
            yield RequestFromLimit(container="", resource=name, amount=now.requests[name])


def _rounded(container: str, was: ResourceRequirements, now: ResourceRequirements) -> Iterator[RoundedUp]:
    yield from _rounded_list(container, "requests", was.requests, now.requests)
    yield from _rounded_list(container, "limits", was.limits, now.limits)


def _rounded_list(container: str, field: str, was: ResourceList, now: ResourceList) -> Iterator[RoundedUp]:
    for name in sorted(was, key=resource_sort_key):
        if was[name] != now[name]:
            yield RoundedUp(
                container=container, field=field, resource=name, before=was[name], amount=now[name]
            )
