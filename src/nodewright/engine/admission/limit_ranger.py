"""What does a LimitRange make of an object, and does the object keep within it?"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import container_limits, container_requests
from nodewright.engine.core.requests.resource_defaults import rounded_to_milli, with_defaults
from nodewright.model.kubernetes.api_request import APIRequest, Operation
from nodewright.model.kubernetes.cluster_objects import (
    LimitRange,
    LimitRangeItem,
    PersistentVolumeClaim,
)
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, resource_sort_key
from nodewright.model.reasons.api_server import (
    Bound,
    LimitReason,
    NoRatio,
    NothingToBound,
    OutOfBounds,
    RatioTooLarge,
    RequestOrLimit,
    Subject,
)
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.quantity import INT64_MAX, ZERO, Quantity

CONTAINER_ITEM, POD_ITEM, CLAIM_ITEM = "Container", "Pod", "PersistentVolumeClaim"
"""The item types with an effect; items of other types bound nothing."""

_MOST_IN_MILLI = INT64_MAX // 1000


class FilledIn(msgspec.Struct, frozen=True, kw_only=True):
    """The requests and limits that a limit range filled in for a container."""

    container: str
    init: bool
    requests: ResourceList
    limits: ResourceList


class DefaultedByLimitRange(msgspec.Struct, frozen=True, kw_only=True):
    """A pod after the defaults of a limit range, and what they were, in the order of the spec."""

    pod: Pod
    limit_range: str
    defaults: tuple[FilledIn, ...]


class WithinLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The pod keeps within all limit ranges; with the defaults that each filled in."""

    pod: Pod
    defaulted: tuple[DefaultedByLimitRange, ...] = ()
    handled: bool = True
    """False: limit ranges do not apply to this kind of request."""


class BeyondLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The first limit range that the pod violates after all defaults, with all of its violations."""

    pod: Pod
    defaulted: tuple[DefaultedByLimitRange, ...]
    limit_range: str
    because: tuple[LimitReason, ...]


LimitsVerdict: TypeAlias = WithinLimits | BeyondLimits


def limit_ranger_verdict(
    request: APIRequest[Pod], limit_ranges: Sequence[LimitRange], gates: FeatureGates = DEFAULT_GATES
) -> LimitsVerdict:
    """The pod with the API server's defaults and those of the limit ranges, or the violations.

    First every range fills in its defaults, in order; then every range checks.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, LimitRanger.
    Departs: ranges in the order given; upstream lists them in random order, which shows where two of them
        give defaults for the same resource or both refuse.
    """
    pod = with_defaults(request.object, gates)
    if not is_limit_checked(request):
        return WithinLimits(pod=pod, handled=False)
    pod, filled = with_all_limit_range_defaults(pod, limit_ranges)
    violated = violated_limit_range(pod, limit_ranges, gates)
    if violated is None:
        return WithinLimits(pod=pod, defaulted=filled)
    name, because = violated
    return BeyondLimits(pod=pod, defaulted=filled, limit_range=name, because=because)


def with_all_limit_range_defaults(
    pod: Pod, limit_ranges: Iterable[LimitRange]
) -> tuple[Pod, tuple[DefaultedByLimitRange, ...]]:
    """The pod with the defaults of all limit ranges, one after the other, and what each filled in."""
    filled = []
    for limit_range in limit_ranges:
        filled.append(with_limit_range_defaults(pod, limit_range))
        pod = filled[-1].pod
    return pod, tuple(filled)


def violated_limit_range(
    pod: Pod, limit_ranges: Iterable[LimitRange], gates: FeatureGates
) -> tuple[str, tuple[LimitReason, ...]] | None:
    """The name of the first limit range that the pod violates, with all of its violations; None: there is none."""
    for limit_range in limit_ranges:
        if because := pod_limit_violations(pod, limit_range, pod_level=gates["PodLevelResources"]):
            return limit_range.metadata.name, because
    return None


def is_limit_checked(request: APIRequest[Pod] | APIRequest[PersistentVolumeClaim]) -> bool:
    """Whether limit ranges apply to the request.

    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, SupportsAttributes; not to objects that
        are being deleted.
    """
    operation = request.operation
    if request.old is not None and request.old.metadata.deletion_timestamp is not None:
        return False
    if isinstance(request.object, Pod) and operation is Operation.UPDATE:
        return request.subresource == "resize"
    return operation in (Operation.CREATE, Operation.UPDATE) and not request.subresource


def limit_range_as_stored(limit_range: LimitRange) -> LimitRange:
    """The limit range as the API server stores it: in thousandths, and with its own defaults applied.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_LimitRangeItem, SetDefaults_ResourceList.
    """
    items = tuple(_stored_item(_in_milli(item)) for item in limit_range.spec.limits)
    return replace(limit_range, spec=replace(limit_range.spec, limits=items))


def with_limit_range_defaults(pod: Pod, limit_range: LimitRange) -> DefaultedByLimitRange:
    """The pod with the limit range's defaults for containers that set no requests or limits.

    Requests and limits are filled in independently: a request above the default limit stays above it.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, PodMutateLimitFunc.
    Departs: the annotation that records it is `limit_ranger_annotation`.
    """
    defaults = _defaults_of(limit_range)
    filled: list[FilledIn] = []

    def fill(container: Container, *, init: bool) -> Container:
        resources = container.resources
        requests = {name: v for name, v in defaults.requests.items() if name not in resources.requests}
        limits = {name: v for name, v in defaults.limits.items() if name not in resources.limits}
        if not requests and not limits:
            return container
        filled.append(FilledIn(container=container.name, init=init, requests=requests, limits=limits))
        resources = replace(
            resources,
            requests={**resources.requests, **requests},
            limits={**resources.limits, **limits},
        )
        return replace(container, resources=resources)

    containers = tuple(fill(container, init=False) for container in pod.spec.containers)
    init_containers = tuple(fill(container, init=True) for container in pod.spec.init_containers)
    if filled:
        pod = replace(pod, spec=replace(pod.spec, containers=containers, init_containers=init_containers))
    return DefaultedByLimitRange(pod=pod, limit_range=limit_range.metadata.name, defaults=tuple(filled))


def pod_limit_violations(
    pod: Pod, limit_range: LimitRange, *, pod_level: bool = True
) -> tuple[LimitReason, ...]:
    """The pod's violations of the limit range: at most one for each item, container and bound.

    ``pod_level`` is the gate PodLevelResources.

    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, PodValidateLimitFunc.
    Departs: in the order of items and containers, resources sorted; upstream's order is random.
    """
    violations: list[LimitReason] = []
    for item in limit_range.spec.limits:
        if item.type == CONTAINER_ITEM:
            for init, containers in ((False, pod.spec.containers), (True, pod.spec.init_containers)):
                for container in containers:
                    subject = Subject(type=CONTAINER_ITEM, container=container.name, init=init)
                    violations.extend(_violations(item, subject, container.resources))
        elif item.type == POD_ITEM:
            violations.extend(_violations(item, Subject(type=POD_ITEM), pod_totals(pod, pod_level=pod_level)))
    return tuple(violations)


def claim_limit_violations(claim: PersistentVolumeClaim, limit_range: LimitRange) -> tuple[LimitReason, ...]:
    """The violations of the limit range by a PersistentVolumeClaim. Only its requests are bounded.

    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, PersistentVolumeClaimValidateLimitFunc.
    """
    subject = Subject(type=CLAIM_ITEM)
    requests = ResourceRequirements(requests=claim.spec.resources.requests)
    return tuple(
        violation
        for item in limit_range.spec.limits
        if item.type == CLAIM_ITEM
        for violation in _bound_violations(item, subject, requests, RequestOrLimit.REQUEST)
    )


def pod_totals(pod: Pod, *, pod_level: bool = True) -> ResourceRequirements:
    """Requests and limits of the pod as a whole, which items of type Pod bound.

    Overhead and status do not count; of the pod-level resources only cpu and memory do.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, podRequests, podLimits.
    """
    requests, limits = container_requests(pod), container_limits(pod)
    if pod.spec.resources is not None and pod_level:
        for total, amounts in (
            (requests, pod.spec.resources.requests),
            (limits, pod.spec.resources.limits),
        ):
            total.update({name: amounts[name] for name in (CPU, MEMORY) if name in amounts})
    return ResourceRequirements(requests=requests, limits=limits)


# ---------------------------------------------------------------- defaults


def _in_milli(item: LimitRangeItem) -> LimitRangeItem:
    return replace(
        item,
        max=rounded_to_milli(item.max),
        min=rounded_to_milli(item.min),
        default=rounded_to_milli(item.default),
        default_request=rounded_to_milli(item.default_request),
        max_limit_request_ratio=rounded_to_milli(item.max_limit_request_ratio),
    )


def _stored_item(item: LimitRangeItem) -> LimitRangeItem:
    if item.type != CONTAINER_ITEM:
        return item
    default = {**item.max, **item.default}
    return replace(item, default=default, default_request={**item.min, **default, **item.default_request})


def _defaults_of(limit_range: LimitRange) -> ResourceRequirements:
    """The defaults of all items of type Container; the last one counts for each resource."""
    requests: ResourceList = {}
    limits: ResourceList = {}
    for item in limit_range.spec.limits:
        if item.type == CONTAINER_ITEM:
            requests.update(item.default_request)
            limits.update(item.default)
    return ResourceRequirements(requests=requests, limits=limits)


# ---------------------------------------------------------------- bounds


class _RequestAndLimit(msgspec.Struct, frozen=True):
    """Request and limit of one resource."""

    request: Quantity | None
    limit: Quantity | None

    @classmethod
    def of(cls, name: str, resources: ResourceRequirements) -> "_RequestAndLimit":
        """The request and the limit of this resource."""
        return cls(resources.requests.get(name), resources.limits.get(name))

    def comparable(self, enforced: Quantity) -> tuple[int, int, int]:
        """Request, limit and bound in thousandths, or in whole units if one of them is too large for that.

        Both round up, so amounts between two units compare as equal where one of the three is large.
        """
        amounts = (self.request or ZERO, self.limit or ZERO, enforced)
        request, limit, bound = (amount.value() for amount in amounts)
        if max(request, limit, bound) > _MOST_IN_MILLI:
            return request, limit, bound
        request, limit, bound = (amount.milli_value() for amount in amounts)
        return request, limit, bound


def _violations(
    item: LimitRangeItem, subject: Subject, resources: ResourceRequirements
) -> Iterator[LimitReason]:
    yield from _bound_violations(item, subject, resources, RequestOrLimit.LIMIT)
    for name in sorted(item.max_limit_request_ratio, key=resource_sort_key):
        pair = _RequestAndLimit.of(name, resources)
        yield from _ratio_violation(subject, name, item.max_limit_request_ratio[name], pair)


def _bound_violations(
    item: LimitRangeItem, subject: Subject, resources: ResourceRequirements, needed_below: RequestOrLimit
) -> Iterator[LimitReason]:
    """The violations of minima, for which a request must be set, and of maxima, for which ``needed_below`` must be."""
    for bound, amounts, needed in (
        (Bound.MINIMUM, item.min, RequestOrLimit.REQUEST),
        (Bound.MAXIMUM, item.max, needed_below),
    ):
        for name in sorted(amounts, key=resource_sort_key):
            pair = _RequestAndLimit.of(name, resources)
            violation = _bound_violation(subject, name, amounts[name], pair, bound, needed)
            if violation is not None:
                yield violation


def _bound_violation(
    subject: Subject,
    name: str,
    enforced: Quantity,
    pair: _RequestAndLimit,
    bound: Bound,
    needed: RequestOrLimit,
) -> LimitReason | None:
    """The violation of a minimum by the request, else by the limit; of a maximum by the limit, else by the request."""
    request, limit, edge = pair.comparable(enforced)
    figures = [(RequestOrLimit.REQUEST, pair.request, request), (RequestOrLimit.LIMIT, pair.limit, limit)]
    if any(figure is needed and amount is None for figure, amount, _ in figures):
        return NothingToBound(subject=subject, resource=name, bound=bound, enforced=enforced, figure=needed)
    for figure, amount, counted in figures if bound is Bound.MINIMUM else reversed(figures):
        is_beyond = counted < edge if bound is Bound.MINIMUM else counted > edge
        if amount is not None and is_beyond:
            return OutOfBounds(
                subject=subject, resource=name, bound=bound, enforced=enforced, figure=figure, observed=amount
            )
    return None


def _ratio_violation(
    subject: Subject, name: str, enforced: Quantity, pair: _RequestAndLimit
) -> Iterator[LimitReason]:
    request, limit, _ = pair.comparable(enforced)
    if request == 0 or limit == 0:
        missing = RequestOrLimit.REQUEST if request == 0 else RequestOrLimit.LIMIT
        yield NoRatio(subject=subject, resource=name, enforced=enforced, figure=missing)
        return
    # Floats, as in the API server's division.
    ratio = float(limit) / float(request)
    observed, most = ratio, float(enforced.value())
    if enforced.value() <= _MOST_IN_MILLI:
        observed, most = ratio * 1000, float(enforced.milli_value())
    if observed > most:
        assert pair.request is not None, "a missing amount counts as zero"
        assert pair.limit is not None, "a missing amount counts as zero"
        yield RatioTooLarge(
            subject=subject,
            resource=name,
            enforced=enforced,
            request=pair.request,
            limit=pair.limit,
            ratio=ratio,
        )


def limit_ranger_annotation(defaults: Sequence[FilledIn]) -> str:
    """The text of the annotation `kubernetes.io/limit-ranger`, which lists the defaults of a pod.

    Empty if nothing was filled in; then there is no annotation.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, mergePodResourceRequirements.
    """
    parts = []
    for default in defaults:
        owner = f"{'init container' if default.init else 'container'} {default.container}"
        for what, amounts in (("request", default.requests), ("limit", default.limits)):
            if amounts:
                parts.append(f"{', '.join(sorted(amounts))} {what} for {owner}")
    return f"LimitRanger plugin set: {'; '.join(parts)}" if parts else ""
