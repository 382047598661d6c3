"""Where each amount of a pod's effective requests and limits comes from."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from operator import add

from nodewright.core.requests.effective import (
    AS_IT_IS,
    OwnLists,
    RequestOptions,
    Side,
    own_lists,
    pod_level,
    pod_limits,
    pod_requests,
)
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.resource_names import in_order
from nodewright.values.quantity import ZERO, Quantity


class Role(StrEnum):
    """What a container is to its pod."""

    CONTAINER = "container"
    SIDECAR = "sidecar"
    INIT = "initContainer"


@dataclass(frozen=True, slots=True)
class Addend:
    """What one container, or one resource claim, counts for."""

    name: str
    role: Role | None
    """None: a resource claim."""
    amount: Quantity


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in the pod's life and what is in use then."""

    during: str
    """The init container that runs, or the sidecar that has just started; empty: all that keep running do."""
    role: Role | None
    """Of the container named; None where none is."""
    addends: tuple[Addend, ...]
    """In the order in which they are added; containers that do not name the resource are left out."""
    amount: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How one amount comes about: the greatest moment, plus claims; replaced by the pod level; plus overhead."""

    resource: str
    amount: Quantity
    """The effective amount, as `pod_requests` or `pod_limits` gives it."""
    moments: tuple[Moment, ...]
    """Those that name the resource; first the one in which all that keep running do."""
    greatest: int | None
    """Which moment decides: the first of the greatest; None: no container names the resource."""
    claims: tuple[Addend, ...] = ()
    pod_level: Quantity | None = None
    overhead: Quantity | None = None
    silent: tuple[Addend, ...] = ()
    """Containers that say nothing about the resource, or zero. For limits: they have no ceiling of their own."""

    @property
    def deciding(self) -> Moment | None:
        """The moment that decides."""
        return None if self.greatest is None else self.moments[self.greatest]


def derivations(pod: Pod, side: Side, options: RequestOptions = AS_IT_IS) -> tuple[Derivation, ...]:
    """How each of the pod's effective requests, or limits, comes about: cpu, memory, then the rest by name.

    Follows: v1.36, component-helpers/resource/helpers.go, PodRequests and PodLimits.
    """
    effective = pod_requests(pod, options) if side is Side.REQUESTS else pod_limits(pod, options)
    own, claims = own_lists(pod, side, options), _claims(pod, options)
    if side is Side.LIMITS:
        claims = ()
    elif options.skip_container_level_resources:
        own, claims = OwnLists((), ()), ()
    level = pod_level(pod, side, options)
    found = []
    for name in sorted(effective, key=in_order):
        counted = _counted(pod, own, name)
        derivation = _from_containers(name, effective[name], counted)
        found.append(
            replace(
                derivation,
                claims=tuple(Addend(claim, None, lists[name]) for claim, lists in claims if name in lists),
                pod_level=level.get(name),
                overhead=_overhead(pod, side, options, level.get(name), derivation),
            )
        )
    return tuple(found)


def _from_containers(name: str, amount: Quantity, counted: list[tuple[Addend, bool]]) -> Derivation:
    moments = tuple(_moments([addend for addend, is_named in counted if is_named]))
    greatest = None
    for index, moment in enumerate(moments):
        if greatest is None or moment.amount > moments[greatest].amount:
            greatest = index
    silent = tuple(addend for addend, _ in counted if addend.amount.is_zero())
    return Derivation(resource=name, amount=amount, moments=moments, greatest=greatest, silent=silent)


def _counted(pod: Pod, own: OwnLists, name: str) -> list[tuple[Addend, bool]]:
    """Each container with its amount, and whether it names the resource at all."""
    roles = [
        *((container.name, Role.CONTAINER) for container in pod.spec.containers),
        *(
            (container.name, Role.SIDECAR if container.is_sidecar else Role.INIT)
            for container in pod.spec.init_containers
        ),
    ]
    # Without containers there is nothing to pair: their lists are left out when they do not count.
    return [
        (Addend(container, role, amounts.get(name, ZERO)), name in amounts)
        for (container, role), amounts in zip(roles, (*own.containers, *own.init_containers), strict=False)
    ]


def _moments(named: list[Addend]) -> Iterator[Moment]:
    """All that keep running; then, in order, what is in use while each init container runs or starts."""
    running = [each for each in named if each.role is not Role.INIT]
    if running:
        yield _moment("", None, running)
    sidecars: list[Addend] = []
    for each in named:
        if each.role is Role.SIDECAR:
            sidecars.append(each)
            yield _moment(each.name, each.role, sidecars)
        elif each.role is Role.INIT:
            yield _moment(each.name, each.role, [each, *sidecars])


def _moment(during: str, role: Role | None, addends: list[Addend]) -> Moment:
    amount = reduce(add, (addend.amount for addend in addends))
    return Moment(during, role, tuple(each for each in addends if not each.amount.is_zero()), amount)


def _claims(pod: Pod, options: RequestOptions) -> tuple[tuple[str, ResourceList], ...]:
    if not options.use_dra_node_allocatable_resource_claim_status:
        return ()
    claims = pod.status.node_allocatable_resource_claim_statuses
    return tuple((claim.resource_claim_name, claim.resources) for claim in claims)


def _overhead(
    pod: Pod, side: Side, options: RequestOptions, level: Quantity | None, derivation: Derivation
) -> Quantity | None:
    """The overhead that was added: to requests always, to a limit only where it is not zero."""
    amount = pod.spec.overhead.get(derivation.resource)
    if amount is None or options.exclude_overhead:
        return None
    if side is Side.REQUESTS:
        return amount
    deciding = derivation.deciding
    before = level if level is not None else deciding.amount if deciding else ZERO
    return None if before.is_zero() else amount
