"""The effective requests and limits of a pod as a whole, and what admission, preemption and the managers count of them.

The options of the sums say what counts; a release and its gates choose them. The CPU and memory managers count a container's
requests, or what its status says is allocated. What depends on spec and status alone is cached.

Units: integer requests have cpu in thousandths, everything else in units (bytes, pieces).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import StrEnum
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast
from weakref import ref

import msgspec

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
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    is_scalar,
    is_supported_pod_level,
)
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.releases.release_rules import AllocatedInStatus
from nodewright.model.values.quantity import ZERO

_NO_STATUS = PodStatus()
_COUNTED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""The resources that are counted beside the scalar ones."""

R = TypeVar("R")
Variant = ParamSpec("Variant")

_CACHE_SIZE = 4096
"""The number of cached pairs of spec and status."""
_DEFAULT = object()
"""In place of an argument that is not given."""


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


class RequestOptions(msgspec.Struct, frozen=True, rename="camel"):
    """What counts in addition to the containers' requests and limits.

    Follows: v1.36, component-helpers/resource/helpers.go, PodResourcesOptions.
    """

    exclude_overhead: bool = False
    """Exclude `spec.overhead`."""
    skip_pod_level_resources: bool = False
    """Ignore `spec.resources` of the pod."""
    skip_container_level_resources: bool = False
    """Requests: start from zero instead of the containers' sum. Limits ignore this option."""
    use_status_resources: bool = False
    """Count the resources in the containers' status during a resize."""
    in_place_pod_level_resources_vertical_scaling: bool = False
    """The same for the pod level; only together with `use_status_resources`."""
    use_dra_node_allocatable_resource_claim_status: bool = msgspec.field(
        default=False, name="useDRANodeAllocatableResourceClaimStatus"
    )
    """Add the node allocatable resources of resource claims to the requests."""
    non_missing_container_requests: ResourceList = {}
    """The requests of containers that do not set these names."""
    pod_level_huge_pages: bool = True
    """As in `ReleaseRules`; so is the next."""
    resize_in_conditions: bool = True


SPEC_ONLY = RequestOptions()
"""The spec alone: containers, pod level and overhead."""

USE_STATUS = RequestOptions(use_status_resources=True, in_place_pod_level_resources_vertical_scaling=True)
"""As the scheduler and the kubelet count a running pod, resizes in progress included."""


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


# ---------------------------------------------------------------- what admission, preemption and eviction count


class RequestRules(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """How a kubelet or API server counts what pods request, by its release and gates."""

    pod_level: bool
    """The gate PodLevelResources is on."""
    pod_level_huge_pages: bool
    """As in `ReleaseRules`; so are the next two."""
    resize_in_conditions: bool
    reclaimable_as_scheduled: bool
    in_place_resize: bool
    """Resources in the containers' status count: the gate InPlacePodVerticalScaling."""
    pod_level_resize: bool
    """The same for the pod level: the gate InPlacePodLevelResourcesVerticalScaling."""
    claims: bool
    """The scheduler's predicates count node allocatable resources of claims: the gate DRANodeAllocatableResources."""

    @classmethod
    def of(cls, gates: FeatureGates) -> "RequestRules":
        """The rules under these gates."""
        return cls(
            pod_level=gates["PodLevelResources"],
            pod_level_huge_pages=gates.rules.pod_level_huge_pages,
            resize_in_conditions=gates.rules.resize_in_conditions,
            reclaimable_as_scheduled=gates.rules.reclaimable_as_scheduled,
            in_place_resize=gates["InPlacePodVerticalScaling"],
            pod_level_resize=gates["InPlacePodLevelResourcesVerticalScaling"],
            claims=gates["DRANodeAllocatableResources"],
        )

    def options(
        self, *, exclude_overhead: bool = False, use_status: bool = False, use_claims: bool = False
    ) -> "RequestOptions":
        """The options with which this kubelet sums up requests; with status: as it counts a running pod."""
        return RequestOptions(
            exclude_overhead=exclude_overhead,
            skip_pod_level_resources=not self.pod_level,
            use_status_resources=use_status and self.in_place_resize,
            in_place_pod_level_resources_vertical_scaling=use_status and self.pod_level_resize,
            use_dra_node_allocatable_resource_claim_status=use_claims and self.claims,
            pod_level_huge_pages=self.pod_level_huge_pages,
            resize_in_conditions=self.resize_in_conditions,
        )


NEWEST_REQUEST_RULES = RequestRules.of(DEFAULT_GATES)
"""How the newest release counts by default."""


def scheduler_requests(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> Mapping[str, int]:
    """The requests that admission compares; never negative; names that are not counted are left out.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/fit.go, computePodResourceRequest.
    """
    requests = _spec_requests(pod, rules)
    if min(requests.values(), default=0) >= 0:
        return requests
    return {name: max(amount, 0) for name, amount in requests.items()}


def scheduler_usage(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> Mapping[str, int]:
    """The usage of a pod that is already admitted, resizes in progress included.

    Follows: v1.36, pkg/scheduler/framework/types.go, PodInfo.CalculateResource.
    """
    if pod.status == _NO_STATUS:
        # No resize is in progress.
        return _spec_requests(pod, rules)
    return _status_requests(pod, rules)


def cached_by_spec(
    function: Callable[Concatenate[Pod, Variant], R],
) -> Callable[Concatenate[Pod, Variant], R]:
    """Caches a function by the pod's spec and status and one more, hashable argument; its results are immutable.

    It must depend on nothing else. The key is the identity of both objects, because comparing them would cost more than most results.
    A result is kept no longer than the spec, and no more than `_CACHE_SIZE` are.

    >>> from nodewright.model.kubernetes.objects import ObjectMeta
    >>> calls = []
    >>> count = cached_by_spec(lambda pod: calls.append(pod) or len(pod.spec.containers))
    >>> first = Pod(metadata=ObjectMeta(name="first"))
    >>> second = Pod(metadata=ObjectMeta(name="second"), spec=first.spec, status=first.status)
    >>> count(first), count(second), len(calls)
    (0, 0, 1)
    """
    cache: dict[tuple[Hashable, ...], tuple[ref[PodSpec], ref[PodStatus], R]] = {}
    call: Callable[..., R] = function

    @wraps(function)
    def cached(pod: Pod, variant: Hashable = _DEFAULT) -> R:
        spec, status = pod.spec, pod.status
        key = (id(spec), id(status), variant)
        entry = cache.get(key)
        # An id may be that of an object which is gone.
        if entry is None or entry[0]() is not spec or entry[1]() is not status:
            if len(cache) >= _CACHE_SIZE:
                cache.clear()
            result = call(pod) if variant is _DEFAULT else call(pod, variant)
            entry = cache[key] = (ref(spec, lambda _: cache.pop(key, None)), ref(status), result)
        return entry[2]

    return cast("Callable[Concatenate[Pod, Variant], R]", cached)


@cached_by_spec
def preemption_requests(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> Mapping[str, int]:
    """The amounts that preempting the pod frees, by resource; 0 for resources that are not in it.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, GetResourceRequest.
    """
    return {**_integers(reclaimable_requests(pod, rules)), PODS: 1}


def reclaimable_requests(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> ResourceList:
    """The requests by which preemption and eviction judge the pod.

    They differ from what admission counts: pod-level requests replace all container requests, even of
    resources that the pod level does not support; overhead counts only where something is requested.
    With the gate PodLevelResources off, they still replace the sums of the same names.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, GetResourceRequestQuantity; up to v1.33 without the pod level, and
        every init container, sidecars as well, by itself.
    """
    if rules.reclaimable_as_scheduled:
        replaced = rules.pod_level and pod_level_resources_set(pod, huge_pages=rules.pod_level_huge_pages)
        options = RequestOptions(exclude_overhead=True, skip_container_level_resources=replaced)
        total = pod_requests(pod, options)
    else:
        total = _largest_by_container(pod)
    for name, amount in (pod.spec.overhead or {}).items():
        requested = total.get(name)
        if requested is not None and not requested.is_zero():
            total[name] = requested + amount
    return total


@cached_by_spec
def _spec_requests(pod: Pod, rules: RequestRules) -> Mapping[str, int]:
    return _counted_integers(pod_requests(pod, rules.options(use_claims=True)))


@cached_by_spec
def _status_requests(pod: Pod, rules: RequestRules) -> Mapping[str, int]:
    return _counted_integers(pod_requests(pod, rules.options(use_status=True, use_claims=True)))


def _largest_by_container(pod: Pod) -> ResourceList:
    """The sum of the containers' requests, or that of an init container where it is larger."""
    total: ResourceList = {}
    for container in pod.spec.containers:
        for name, amount in container.resources.requests.items():
            total[name] = total[name] + amount if name in total else amount
    for container in pod.spec.init_containers:
        for name, amount in container.resources.requests.items():
            if name not in total or amount.compare(total[name]) > 0:
                total[name] = amount
    return total


def _counted_integers(requests: ResourceList) -> dict[str, int]:
    return {
        name: amount.milli_value() if name == CPU else amount.value()
        for name, amount in requests.items()
        if name in _COUNTED or is_scalar(name)
    }


def _integers(requests: ResourceList) -> dict[str, int]:
    return {
        name: amount.milli_value() if name == CPU else amount.value() for name, amount in requests.items()
    }


# ---------------------------------------------------------------- what the CPU and memory managers count


def allocated_in_status(gates: FeatureGates) -> AllocatedInStatus:
    """Whose allocated resources the managers read: nobody's where the gate InPlacePodVerticalScaling is off."""
    is_on = gates["InPlacePodVerticalScaling"]
    return gates.rules.allocated_in_status if is_on else AllocatedInStatus.NO_CONTAINER


def manager_requests(pod: Pod, container: Container, allocated: AllocatedInStatus) -> ResourceList:
    """The container's requests as the managers count them.

    Follows: v1.36, cpumanager/policy_static.go, guaranteedCPUs; memorymanager/policy_static.go, getRequestedResources;
        up to v1.34 both read `allocatedResources` of the first status of the container's name.
    """
    if allocated is AllocatedInStatus.NO_CONTAINER:
        return container.resources.requests
    statuses = pod.status.container_statuses
    if allocated is AllocatedInStatus.ALL_STATUSES and container.is_sidecar:
        statuses += pod.status.init_container_statuses
    for status in statuses:
        if status.name == container.name:
            return status.allocated_resources
    return container.resources.requests
