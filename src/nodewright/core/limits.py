"""What does a LimitRange make of an object, and does the object keep within it?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.core.requests import container_limits, container_requests, in_milli, with_defaults
from nodewright.model.api_request import APIRequest, Operation
from nodewright.model.limit_reasons import (
    Bound,
    Figure,
    LimitReason,
    NoRatio,
    NothingToBound,
    OutOfBounds,
    RatioTooLarge,
    Subject,
)
from nodewright.model.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.quota_objects import LimitRange, LimitRangeItem, PersistentVolumeClaim
from nodewright.model.resource_names import CPU, MEMORY, in_order
from nodewright.values.quantity import ZERO, Quantity
from nodewright.values.units import INT64_MAX

CONTAINER, POD, CLAIM = "Container", "Pod", "PersistentVolumeClaim"
"""The types of items that mean something; items of other types bound nothing."""

_MOST_IN_MILLI = INT64_MAX // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledIn:
    """What a limit range gave to a container that had said nothing."""

    container: str
    init: bool
    requests: ResourceList
    limits: ResourceList


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A pod after the defaults of a limit range, and what they were, in the order of the spec."""

    pod: Pod
    limit_range: str
    given: tuple[FilledIn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinLimits:
    """The pod as it goes on, with what each limit range gave it."""

    pod: Pod
    filled: tuple[Filled, ...] = ()
    handled: bool = True
    """False: limit ranges do not look at requests of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondLimits:
    """The first limit range that the pod, with all defaults filled in, does not keep within; all that it breaks."""

    pod: Pod
    filled: tuple[Filled, ...]
    limit_range: str
    because: tuple[LimitReason, ...]


LimitsVerdict: TypeAlias = WithinLimits | BeyondLimits


def limited(request: APIRequest[Pod], limit_ranges: Sequence[LimitRange]) -> LimitsVerdict:
    """The pod with the API server's defaults and those of the limit ranges, or what it breaks of them.

    Every range fills in first, one after the other; then every range checks.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, LimitRanger.
    Departs: ranges in the order given; upstream lists them in random order, which shows where two of them
        give defaults for the same resource or both refuse.
    """
    pod = with_defaults(request.object)
    if not is_handled(request):
        return WithinLimits(pod=pod, handled=False)
    filled = []
    for limit_range in limit_ranges:
        filled.append(filled_in(pod, limit_range))
        pod = filled[-1].pod
    for limit_range in limit_ranges:
        broken = pod_violations(pod, limit_range)
        if broken:
            return BeyondLimits(
                pod=pod, filled=tuple(filled), limit_range=limit_range.metadata.name, because=broken
            )
    return WithinLimits(pod=pod, filled=tuple(filled))


def is_handled(request: APIRequest[Pod] | APIRequest[PersistentVolumeClaim]) -> bool:
    """Whether limit ranges look at the request.

    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, SupportsAttributes; objects that are being
        deleted are left alone.
    """
    operation = request.operation
    if request.old is not None and request.old.metadata.deletion_timestamp is not None:
        return False
    if isinstance(request.object, Pod) and operation is Operation.UPDATE:
        return request.subresource == "resize"
    return operation in (Operation.CREATE, Operation.UPDATE) and not request.subresource


def stored(limit_range: LimitRange) -> LimitRange:
    """The limit range as the API server keeps it: in thousandths, and with the defaults of its defaults.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_LimitRangeItem, SetDefaults_ResourceList.
    """
    items = tuple(_stored_item(_in_milli(item)) for item in limit_range.spec.limits)
    return replace(limit_range, spec=replace(limit_range.spec, limits=items))


def filled_in(pod: Pod, limit_range: LimitRange) -> Filled:
    """The pod with what the limit range gives to containers that say nothing.

    Requests and limits are filled in apart from each other: a request above the default limit stays above it.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, PodMutateLimitFunc.
    Departs: the annotation that tells of it is `render.limit_messages.annotation`.
    """
    defaults = _defaults_of(limit_range)
    given: list[FilledIn] = []

    def fill(container: Container, *, init: bool) -> Container:
        own = container.resources
        requests = {name: v for name, v in defaults.requests.items() if name not in own.requests}
        limits = {name: v for name, v in defaults.limits.items() if name not in own.limits}
        if not requests and not limits:
            return container
        given.append(FilledIn(container=container.name, init=init, requests=requests, limits=limits))
        resources = replace(own, requests={**own.requests, **requests}, limits={**own.limits, **limits})
        return replace(container, resources=resources)

    containers = tuple(fill(container, init=False) for container in pod.spec.containers)
    init_containers = tuple(fill(container, init=True) for container in pod.spec.init_containers)
    if given:
        pod = replace(pod, spec=replace(pod.spec, containers=containers, init_containers=init_containers))
    return Filled(pod=pod, limit_range=limit_range.metadata.name, given=tuple(given))


def pod_violations(pod: Pod, limit_range: LimitRange) -> tuple[LimitReason, ...]:
    """All that the pod breaks of the limit range: at most one fact for each item, container and bound.

    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, PodValidateLimitFunc.
    Departs: in the order of items and containers, resources sorted; upstream's order is random.
    """
    found: list[LimitReason] = []
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            for init, containers in ((False, pod.spec.containers), (True, pod.spec.init_containers)):
                for container in containers:
                    subject = Subject(type=CONTAINER, container=container.name, init=init)
                    found.extend(_broken(item, subject, container.resources))
        elif item.type == POD:
            found.extend(_broken(item, Subject(type=POD), totals(pod)))
    return tuple(found)


def claim_violations(claim: PersistentVolumeClaim, limit_range: LimitRange) -> tuple[LimitReason, ...]:
    """All that the claim to a volume breaks of the limit range. Only its requests are bounded.

    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, PersistentVolumeClaimValidateLimitFunc.
    """
    requests = claim.spec.resources.requests
    subject = Subject(type=CLAIM)
    found: list[LimitReason] = []
    for item in limit_range.spec.limits:
        if item.type == CLAIM:
            for name in sorted(item.min, key=in_order):
                found.extend(_below(subject, name, item.min[name], _Pair(requests.get(name), None)))
            for name in sorted(item.max, key=in_order):
                pair = _Pair(requests.get(name), None)
                found.extend(_above(subject, name, item.max[name], pair, Figure.REQUEST))
    return tuple(found)


def totals(pod: Pod) -> ResourceRequirements:
    """What items of type Pod are held against: requests and limits of the pod as a whole.

    Overhead and status do not count, and of the pod level only cpu and memory do.
    Follows: v1.36, plugin/pkg/admission/limitranger/admission.go, podRequests, podLimits.
    """
    requests, limits = container_requests(pod), container_limits(pod)
    if pod.spec.resources is not None:
        for total, written in (
            (requests, pod.spec.resources.requests),
            (limits, pod.spec.resources.limits),
        ):
            total.update({name: written[name] for name in (CPU, MEMORY) if name in written})
    return ResourceRequirements(requests=requests, limits=limits)


# ---------------------------------------------------------------- defaults


def _in_milli(item: LimitRangeItem) -> LimitRangeItem:
    return replace(
        item,
        max=in_milli(item.max),
        min=in_milli(item.min),
        default=in_milli(item.default),
        default_request=in_milli(item.default_request),
        max_limit_request_ratio=in_milli(item.max_limit_request_ratio),
    )


def _stored_item(item: LimitRangeItem) -> LimitRangeItem:
    if item.type != CONTAINER:
        return item
    default = {**item.max, **item.default}
    return replace(item, default=default, default_request={**item.min, **default, **item.default_request})


def _defaults_of(limit_range: LimitRange) -> ResourceRequirements:
    """The defaults of all items for containers; of two for the same resource the later one."""
    requests: ResourceList = {}
    limits: ResourceList = {}
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            requests.update(item.default_request)
            limits.update(item.default)
    return ResourceRequirements(requests=requests, limits=limits)


# ---------------------------------------------------------------- bounds


@dataclass(frozen=True, slots=True)
class _Pair:
    """Request and limit of one resource."""

    request: Quantity | None
    limit: Quantity | None

    def comparable(self, enforced: Quantity) -> tuple[int, int, int]:
        """Request, limit and bound in thousandths if none of them is too large for that, else in whole units.

        Both round up, so that amounts between two units compare as equal where one of the three is large.
        """
        amounts = (self.request or ZERO, self.limit or ZERO, enforced)
        request, limit, bound = (amount.value() for amount in amounts)
        if max(request, limit, bound) > _MOST_IN_MILLI:
            return request, limit, bound
        request, limit, bound = (amount.milli_value() for amount in amounts)
        return request, limit, bound


def _broken(item: LimitRangeItem, subject: Subject, own: ResourceRequirements) -> Iterator[LimitReason]:
    def pair(name: str) -> _Pair:
        return _Pair(own.requests.get(name), own.limits.get(name))

    for name in sorted(item.min, key=in_order):
        yield from _below(subject, name, item.min[name], pair(name))
    for name in sorted(item.max, key=in_order):
        yield from _above(subject, name, item.max[name], pair(name), Figure.LIMIT)
    for name in sorted(item.max_limit_request_ratio, key=in_order):
        yield from _too_far_apart(subject, name, item.max_limit_request_ratio[name], pair(name))


def _below(subject: Subject, name: str, enforced: Quantity, pair: _Pair) -> Iterator[LimitReason]:
    """What is wrong with the request, which must be there, or else with the limit."""
    request, limit, least = pair.comparable(enforced)
    if pair.request is None:
        yield NothingToBound(
            subject=subject, resource=name, bound=Bound.MINIMUM, enforced=enforced, figure=Figure.REQUEST
        )
    elif request < least:
        yield _out(subject, name, Bound.MINIMUM, enforced, (Figure.REQUEST, pair.request))
    elif pair.limit is not None and limit < least:
        yield _out(subject, name, Bound.MINIMUM, enforced, (Figure.LIMIT, pair.limit))


def _above(
    subject: Subject, name: str, enforced: Quantity, pair: _Pair, needed: Figure
) -> Iterator[LimitReason]:
    """What is wrong with the limit or else with the request; ``needed`` is the one that must be there."""
    request, limit, most = pair.comparable(enforced)
    if (pair.limit if needed is Figure.LIMIT else pair.request) is None:
        yield NothingToBound(
            subject=subject, resource=name, bound=Bound.MAXIMUM, enforced=enforced, figure=needed
        )
    elif pair.limit is not None and limit > most:
        yield _out(subject, name, Bound.MAXIMUM, enforced, (Figure.LIMIT, pair.limit))
    elif pair.request is not None and request > most:
        yield _out(subject, name, Bound.MAXIMUM, enforced, (Figure.REQUEST, pair.request))


def _too_far_apart(subject: Subject, name: str, enforced: Quantity, pair: _Pair) -> Iterator[LimitReason]:
    request, limit, _ = pair.comparable(enforced)
    if request == 0 or limit == 0:
        lacking = Figure.REQUEST if request == 0 else Figure.LIMIT
        yield NoRatio(subject=subject, resource=name, enforced=enforced, figure=lacking)
        return
    # Floats, as the API server divides.
    ratio = float(limit) / float(request)
    observed, most = ratio, float(enforced.value())
    if enforced.value() <= _MOST_IN_MILLI:
        observed, most = ratio * 1000, float(enforced.milli_value())
    if observed > most:
        assert pair.request is not None, "what is missing counts as zero"
        assert pair.limit is not None, "what is missing counts as zero"
        yield RatioTooLarge(
            subject=subject,
            resource=name,
            enforced=enforced,
            request=pair.request,
            limit=pair.limit,
            ratio=ratio,
        )


def _out(
    subject: Subject, name: str, bound: Bound, enforced: Quantity, observed: tuple[Figure, Quantity]
) -> OutOfBounds:
    figure, amount = observed
    return OutOfBounds(
        subject=subject, resource=name, bound=bound, enforced=enforced, figure=figure, observed=amount
    )
