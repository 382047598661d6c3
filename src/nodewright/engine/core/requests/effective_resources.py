"""The effective requests and limits of a pod as a whole, and what admission, preemption and the managers count of them.

The options of the sums say what counts; a release and its gates choose them. The CPU and memory managers count a container's
requests, or what its status says is allocated. What depends on spec and status alone is cached.

Units: integer requests have cpu in thousandths, everything else in units (bytes, pieces).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import reduce
from operator import add

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.objects import (
    NOT_SET,
    Container,
    ContainerStatus,
    NodeAllocatableResourceClaimStatus,
    Pod,
    PodStatus,
    ResourceList,
    ResourceRequirements,
    cached_by_spec,
)
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    is_huge_page,
    is_scalar,
    is_supported_pod_level,
)
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.model.values.quantity import ZERO

_NO_STATUS = PodStatus()
_COUNTED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""The resources that are counted beside the scalar ones."""


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


class ContainerSum(msgspec.Struct, frozen=True):
    """The sum of what containers and claims have; of a pod with a resize there are several, and the largest counts."""

    lists: ContainerResourceLists
    """Of each container; none where the pod's status has the sum."""
    claims: tuple[tuple[str, ResourceList], ...]
    """The amounts of each claim by its name."""
    amounts: ResourceList


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
    """As in `ReleaseRules`; so are the next two."""
    resize_in_conditions: bool = True
    status_requests_by_sums: bool = True

    @property
    def counts_more_than_spec(self) -> bool:
        """Whether status, claims or defaults count beside the requests of the spec."""
        return bool(
            self.use_status_resources
            or self.use_dra_node_allocatable_resource_claim_status
            or self.non_missing_container_requests
        )

    @property
    def counts_pod_status(self) -> bool:
        """Whether the status of the pod level counts."""
        return self.use_status_resources and self.in_place_pod_level_resources_vertical_scaling


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

    Follows: v1.37, component-helpers/resource/helpers.go, AggregateContainerRequests.
    """
    spec = pod.spec
    if spec.init_containers or options.counts_more_than_spec:
        return _largest(container_sums(pod, ResourceField.REQUESTS, options))
    return _sum([container.resources.requests for container in spec.containers])


def container_limits(pod: Pod, options: RequestOptions = SPEC_ONLY) -> ResourceList:
    """The limits of all containers together, without pod level and overhead.

    Follows: v1.37, component-helpers/resource/helpers.go, AggregateContainerLimits.
    """
    return _largest(container_sums(pod, ResourceField.LIMITS, options))


def per_container(
    pod: Pod, side: ResourceField, options: RequestOptions = SPEC_ONLY
) -> tuple[ContainerConsumption, ...]:
    """The requests or limits of each container: containers in order, then init containers.

    Follows: v1.36, component-helpers/resource/helpers.go, PodResourcesOptions.ContainerFn.
    """
    return _consumptions(pod, container_resource_lists(pod, side, options))


# ---------------------------------------------------------------- pod level


def pod_level_resources_set(pod: Pod, *, huge_pages: bool = True) -> bool:
    """Whether the pod level has requests or limits of a supported resource; ``huge_pages``: they are supported.

    Follows: v1.36, component-helpers/resource/helpers.go, IsPodLevelResourcesSet.
    """
    return pod_level_requests_set(pod, huge_pages=huge_pages) or pod_level_limits_set(
        pod, huge_pages=huge_pages
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
    if not options.counts_pod_status or status is None:
        return spec_amounts
    allocated = pod.status.allocated_resources
    resized = _resized(side, spec, status, allocated, infeasible=resize_is_infeasible(pod))
    if options.status_requests_by_sums:
        if not (spec_amounts or (side is ResourceField.LIMITS and pod_level_requests_set(pod))):
            return {}
        return {name: amount for name, amount in resized.items() if is_supported_pod_level(name)}
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
    return _with_defaults(pod, lists, side, options)


def container_sums(pod: Pod, side: ResourceField, options: RequestOptions) -> tuple[ContainerSum, ...]:
    """The sums of which the largest counts; a single one but for a pod that is being resized since 1.37.

    Follows: v1.37, component-helpers/resource/helpers.go, AggregateContainerRequests, aggregateContainerResourcesByFn.
    """
    by_sums = options.use_status_resources and options.status_requests_by_sums
    has_claims = side is ResourceField.REQUESTS or options.status_requests_by_sums
    claims = _claims(pod, options) if has_claims else ()
    if not by_sums:
        return (_container_sum(pod, container_resource_lists(pod, side, options), claims, side),)
    status = pod.status
    written = container_resource_lists(pod, side, replace(options, use_status_resources=False))
    sums = [] if resize_is_infeasible(pod) else [_container_sum(pod, written, claims, side)]
    actual = NOT_SET if status.resources is None else _amounts(status.resources, side)
    allocated = status.allocated_resources if side is ResourceField.REQUESTS else {}
    if options.counts_pod_status and actual is not NOT_SET and allocated is not NOT_SET:
        sums += [ContainerSum(ContainerResourceLists((), ()), (), amounts) for amounts in (actual, allocated)]
        return tuple(sums)
    sums.append(_container_sum(pod, _lists_of_status(pod, side, options, with_actual=True), (), side))
    if side is ResourceField.REQUESTS:
        sums.append(
            _container_sum(pod, _lists_of_status(pod, side, options, with_actual=False), claims, side)
        )
    return tuple(sums)


def _largest(sums: tuple[ContainerSum, ...]) -> ResourceList:
    return sums[0].amounts if len(sums) == 1 else _raised(*(each.amounts for each in sums))


def _container_sum(
    pod: Pod, lists: ContainerResourceLists, claims: tuple[tuple[str, ResourceList], ...], side: ResourceField
) -> ContainerSum:
    amounts = _peak(pod, lists)
    if side is ResourceField.LIMITS:
        # A claim raises a limit that is there; of huge pages it is one.
        claims = tuple(
            (
                claim,
                {name: amount for name, amount in claimed.items() if name in amounts or is_huge_page(name)},
            )
            for claim, claimed in claims
        )
    for _, claimed in claims:
        _add(amounts, claimed)
    return ContainerSum(lists, claims, amounts)


def _lists_of_status(
    pod: Pod, side: ResourceField, options: RequestOptions, *, with_actual: bool
) -> ContainerResourceLists:
    """What the status says of each container: the actual resources where they are asked for and there, else the allocated
    ones, else the spec unless its resize is infeasible.

    Follows: v1.37, component-helpers/resource/helpers.go, containerAllocatedRequests, containerActuated{Requests,Limits}.
    """
    statuses = {
        status.name: status
        for status in reversed((*pod.status.container_statuses, *pod.status.init_container_statuses))
    }
    spec_counts = not resize_is_infeasible(pod)

    def amounts_of(container: Container) -> ResourceList:
        status = statuses.get(container.name)
        if status is not None:
            actual = _amounts(status.resources, side) if with_actual and status.resources else NOT_SET
            if actual is not NOT_SET:
                return actual
            if side is ResourceField.REQUESTS and status.allocated_resources is not NOT_SET:
                return status.allocated_resources
        return _amounts(container.resources, side) if spec_counts else {}

    return _with_defaults(
        pod, [amounts_of(each) for each in (*pod.spec.containers, *pod.spec.init_containers)], side, options
    )


def _with_defaults(
    pod: Pod, lists: list[ResourceList], side: ResourceField, options: RequestOptions
) -> ContainerResourceLists:
    defaults = options.non_missing_container_requests
    if defaults and side is ResourceField.REQUESTS:
        lists = [_filled(amounts, defaults) for amounts in lists]
    regular = len(pod.spec.containers)
    return ContainerResourceLists(tuple(lists[:regular]), tuple(lists[regular:]))


def _claims(pod: Pod, options: RequestOptions) -> tuple[tuple[str, ResourceList], ...]:
    """The node allocatable resources of each claim, in the shape of the release.

    Follows: v1.37, component-helpers/resource/helpers.go, addDRANodeAllocatableClaimResources.
    """
    if not options.use_dra_node_allocatable_resource_claim_status:
        return ()
    return tuple(
        (
            status.resource_claim_name,
            _claimed(status) if options.status_requests_by_sums else status.resources,
        )
        for status in pod.status.node_allocatable_resource_claim_statuses
    )


def _claimed(status: NodeAllocatableResourceClaimStatus) -> ResourceList:
    total: ResourceList = {}
    for mapping in status.mapping:
        if mapping.quantity is not None:
            total[mapping.name] = total.get(mapping.name, ZERO) + mapping.quantity
    for overhead in status.overhead:
        amounts = [overhead.per_pod, *[overhead.per_container] * len(status.containers)]
        total[overhead.name] = reduce(add, (each or ZERO for each in amounts), total.get(overhead.name, ZERO))
    return total


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
    qos: PodLevelQOS
    pod_level_huge_pages: bool
    """As in `ReleaseRules`; so are the next four."""
    resize_in_conditions: bool
    status_requests_by_sums: bool
    reclaimable_as_scheduled: bool
    sidecar_storage_limits: bool
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
            qos=gates.pod_level_qos,
            pod_level_huge_pages=gates.rules.pod_level_huge_pages,
            resize_in_conditions=gates.rules.resize_in_conditions,
            status_requests_by_sums=gates.rules.status_requests_by_sums,
            reclaimable_as_scheduled=gates.rules.reclaimable_as_scheduled,
            sidecar_storage_limits=gates.rules.sidecar_storage_limits,
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
            status_requests_by_sums=self.status_requests_by_sums,
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
    return _integers({name: each for name, each in requests.items() if name in _COUNTED or is_scalar(name)})


def _integers(requests: ResourceList) -> dict[str, int]:
    return {
        name: amount.milli_value() if name == CPU else amount.value() for name, amount in requests.items()
    }
