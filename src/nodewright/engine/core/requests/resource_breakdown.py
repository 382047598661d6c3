"""The derivation of a pod's effective requests and limits, container by container.

Pods whose resources are written alike share what was derived: a cluster has thousands of pods of some hundred templates; they
differ in name, node, volumes and times.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import reduce
from operator import add
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import (
    SPEC_ONLY,
    ContainerResourceLists,
    ContainerSum,
    RequestOptions,
    RequestRules,
    ResourceField,
    container_sums,
    pod_level_overrides,
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.oom_adjust import OOMScore, oom_scores
from nodewright.engine.core.requests.qos_and_priority import QOSVerdict, is_critical, qos_verdict
from nodewright.engine.core.requests.resource_defaults import (
    AppliedDefault,
    defaulted_pod,
    with_defaults,
    with_pod_level_defaults,
)
from nodewright.model.kubernetes.objects import Container, ContainerStatus, Pod
from nodewright.model.kubernetes.resource_names import resource_sort_key
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import ZERO, Quantity

_MAX_KEPT = 4096
OS_LABEL = "kubernetes.io/os"
"""The only label of a pod that a kubelet's admission reads."""
_RESIZE_CONDITION = "PodResizePending"
_NO_SUM = ContainerSum(ContainerResourceLists((), ()), (), {})


class ContainerRole(StrEnum):
    """The role of a container in its pod."""

    CONTAINER = "container"
    SIDECAR = "sidecar"
    INIT = "initContainer"
    EPHEMERAL = "ephemeralContainer"


class ResourceAddend(msgspec.Struct, frozen=True):
    """The contribution of one container or resource claim."""

    name: str
    role: ContainerRole | None
    """None: a resource claim."""
    amount: Quantity


class LifecycleMoment(msgspec.Struct, frozen=True):
    """A phase of the pod's life and the resources that are in use then."""

    during: str
    """The init container that runs, or the sidecar that has just started; empty: all long-running containers run."""
    role: ContainerRole | None
    """The role of that container; None without one."""
    addends: tuple[ResourceAddend, ...]
    """In the order of addition, without containers that do not name the resource."""
    amount: Quantity


class ResourceDerivation(msgspec.Struct, frozen=True, kw_only=True):
    """The derivation of one amount: the greatest moment, plus claims; replaced by the pod level; plus overhead."""

    resource: str
    amount: Quantity
    """The effective amount, equal to that of `pod_requests` or `pod_limits`."""
    moments: tuple[LifecycleMoment, ...]
    """The moments that name the resource, first the one in which all long-running containers run."""
    greatest: int | None
    """The index of the deciding moment: the first greatest one; None: no container names the resource."""
    claims: tuple[ResourceAddend, ...] = ()
    pod_level: Quantity | None = None
    overhead: Quantity | None = None
    unset: tuple[ResourceAddend, ...] = ()
    """Containers without the resource, or with zero. For limits: they have no limit of their own."""

    @property
    def deciding(self) -> LifecycleMoment | None:
        """The moment that decides."""
        return None if self.greatest is None else self.moments[self.greatest]


def resource_derivations(
    pod: Pod, side: ResourceField, options: RequestOptions = SPEC_ONLY
) -> tuple[ResourceDerivation, ...]:
    """The derivation of each effective request or limit: cpu, memory, then the rest by name.

    Follows: v1.36, component-helpers/resource/helpers.go, PodRequests and PodLimits.
    """
    effective = pod_requests(pod, options) if side is ResourceField.REQUESTS else pod_limits(pod, options)
    no_containers = side is ResourceField.REQUESTS and options.skip_container_level_resources
    sums = (_NO_SUM,) if no_containers else container_sums(pod, side, options)
    pod_level = pod_level_overrides(pod, side, options)
    derivations = []
    for name in sorted(effective, key=resource_sort_key):
        largest = max(sums, key=lambda each: each.amounts.get(name, ZERO))
        own = largest.amounts.get(name)
        # A sum without containers is the status of the pod.
        level = pod_level.get(name, None if largest.lists.containers else own)
        addends = _counted(pod, largest.lists, name)
        derivations.append(
            replace(
                _from_containers(name, effective[name], addends),
                claims=tuple(
                    ResourceAddend(claim, None, amounts[name])
                    for claim, amounts in largest.claims
                    if name in amounts
                ),
                pod_level=level,
                overhead=_overhead(pod, side, options, name, level or own or ZERO),
            )
        )
    return tuple(derivations)


class PodResourceBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's effective resources, QoS class and OOM scores, with their derivations.

    Units: memory_capacity in bytes.
    """

    pod: Pod
    """The pod as the API server stores it."""
    defaults: tuple[AppliedDefault, ...]
    requests: tuple[ResourceDerivation, ...]
    limits: tuple[ResourceDerivation, ...]
    resized_containers: tuple[str, ...]
    """Containers (empty: the pod level) that count differently from their spec because of their status."""
    qos: QOSVerdict
    memory_capacity: int
    """The node's memory, which the scores are computed for."""
    oom_scores: tuple[OOMScore, ...]


def pod_resource_breakdown(
    pod: Pod,
    memory_capacity: int,
    options: RequestOptions | None = None,
    gates: FeatureGates = DEFAULT_GATES,
) -> PodResourceBreakdown:
    """The breakdown of the pod after the API server's defaults; pod-level resources count with their gate only.

    ``options``: what counts; None: what the kubelet and the scheduler count of a running pod.
    Units: memory_capacity in bytes, at least 1.
    """
    options = options or RequestRules.of(gates).options(use_status=True)
    stored = defaulted_pod(_with_gated_fields(pod, gates), gates)
    return PodResourceBreakdown(
        pod=stored.pod,
        defaults=stored.defaults,
        requests=resource_derivations(stored.pod, ResourceField.REQUESTS, options),
        limits=resource_derivations(stored.pod, ResourceField.LIMITS, options),
        resized_containers=_resized(stored.pod, options),
        qos=qos_verdict(stored.pod, gates.pod_level_qos),
        memory_capacity=memory_capacity,
        oom_scores=oom_scores(stored.pod, memory_capacity, gates),
    )


def stored_pod(pod: Pod, gates: FeatureGates = DEFAULT_GATES) -> Pod:
    """The pod as the API server stores it; pod-level resources count with their gate only."""
    return with_pod_level_defaults(with_defaults(_with_gated_fields(pod, gates), gates), gates)


class AlikeBreakdowns:
    """Breakdowns with the same node and gates; equal to those of `pod_resource_breakdown`.

    Units: memory_capacity in bytes, at least 1.
    """

    def __init__(self, memory_capacity: int, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._memory_capacity, self._gates = memory_capacity, gates
        self._kept: dict[bytes, PodResourceBreakdown] = {}

    def breakdown(self, pod: Pod) -> PodResourceBreakdown:
        """The breakdown of the pod."""
        key = _ENCODER.encode(_breakdown_inputs(pod))
        kept = self._kept.get(key)
        if kept is not None:
            return replace(kept, pod=stored_pod(pod, self._gates))
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[key] = fresh = pod_resource_breakdown(pod, self._memory_capacity, gates=self._gates)
        return fresh


def _from_containers(
    name: str, amount: Quantity, counted: list[tuple[ResourceAddend, bool]]
) -> ResourceDerivation:
    moments = tuple(_moments([addend for addend, is_named in counted if is_named]))
    greatest = None
    for index, moment in enumerate(moments):
        if greatest is None or moment.amount > moments[greatest].amount:
            greatest = index
    silent = tuple(addend for addend, _ in counted if addend.amount.is_zero())
    return ResourceDerivation(resource=name, amount=amount, moments=moments, greatest=greatest, unset=silent)


def _counted(pod: Pod, own: ContainerResourceLists, name: str) -> list[tuple[ResourceAddend, bool]]:
    """Each container with its amount, and whether it names the resource."""
    roles = [
        *((container.name, ContainerRole.CONTAINER) for container in pod.spec.containers),
        *(
            (container.name, ContainerRole.SIDECAR if container.is_sidecar else ContainerRole.INIT)
            for container in pod.spec.init_containers
        ),
    ]
    # The lists are empty where containers do not count; then there is nothing to pair.
    return [
        (ResourceAddend(container, role, amounts.get(name, ZERO)), name in amounts)
        for (container, role), amounts in zip(roles, (*own.containers, *own.init_containers), strict=False)
    ]


def _moments(addends: list[ResourceAddend]) -> Iterator[LifecycleMoment]:
    """All long-running containers; then, in order, the resources in use while each init container runs or starts."""
    running = [addend for addend in addends if addend.role is not ContainerRole.INIT]
    if running:
        yield _moment("", None, running)
    sidecars: list[ResourceAddend] = []
    for addend in addends:
        if addend.role is ContainerRole.SIDECAR:
            sidecars.append(addend)
            yield _moment(addend.name, addend.role, sidecars)
        elif addend.role is ContainerRole.INIT:
            yield _moment(addend.name, addend.role, [addend, *sidecars])


def _moment(during: str, role: ContainerRole | None, addends: list[ResourceAddend]) -> LifecycleMoment:
    amount = reduce(add, (addend.amount for addend in addends))
    return LifecycleMoment(
        during, role, tuple(addend for addend in addends if not addend.amount.is_zero()), amount
    )


def _overhead(
    pod: Pod, side: ResourceField, options: RequestOptions, name: str, before: Quantity
) -> Quantity | None:
    """The overhead that is added: always to requests, to a limit only where it is not zero."""
    amount = (pod.spec.overhead or {}).get(name)
    if amount is None or options.exclude_overhead:
        return None
    return None if side is ResourceField.LIMITS and before.is_zero() else amount


def _with_gated_fields(pod: Pod, gates: FeatureGates) -> Pod:
    if gates["PodLevelResources"] or pod.spec.resources is None:
        return pod
    return replace(pod, spec=replace(pod.spec, resources=None))


def _resized(pod: Pod, options: RequestOptions) -> tuple[str, ...]:
    names = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    names_resized = []
    for side in ResourceField:
        (written,) = container_sums(pod, side, SPEC_ONLY)
        level = pod_level_overrides(pod, side, SPEC_ONLY)
        is_resized = pod_level_overrides(pod, side, options) != level
        for counted in container_sums(pod, side, options):
            own, specified = (
                (*each.lists.containers, *each.lists.init_containers) for each in (counted, written)
            )
            # A sum without containers is the status of the pod.
            is_resized |= bool(
                not own and counted.amounts and counted.amounts | level != written.amounts | level
            )
            names_resized += [
                name for name, now, was in zip(names, own, specified, strict=False) if now != was
            ]
        names_resized += [""] if is_resized else []
    return tuple(dict.fromkeys(names_resized))


def _breakdown_inputs(pod: Pod) -> tuple[Any, ...]:
    """Everything in a pod that its breakdown depends on."""
    spec, status = pod.spec, pod.status
    return (
        tuple(map(_of_container, spec.containers)),
        tuple(map(_of_container, spec.init_containers)),
        tuple(map(_of_container, spec.ephemeral_containers)),
        spec.overhead,
        spec.resources,
        spec.priority_class_name,
        is_critical(pod),
        status.qos_class,
        tuple(map(_of_status, status.container_statuses)),
        tuple(map(_of_status, status.init_container_statuses)),
        tuple(each.reason for each in status.conditions if each.type == _RESIZE_CONDITION),
        status.resize,
        status.resources,
        status.allocated_resources,
        status.node_allocatable_resource_claim_statuses,
    )


def _of_container(container: Container) -> tuple[Any, ...]:
    return container.name, container.resources, container.restart_policy


def _of_status(status: ContainerStatus) -> tuple[Any, ...]:
    return status.name, status.resources, status.allocated_resources


def _as_written(value: Any) -> Any:
    if isinstance(value, Instant):  # of the status
        return str(value.nanoseconds)
    assert isinstance(value, Quantity), value
    return (
        value.unscaled if value.is_int64 else str(value.unscaled),
        value.scale,
        value.format,
        value.original_text,
    )


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_as_written)
