"""The quality-of-service class of a pod, and which container decides it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from nodewright.core.requests.remembered import remembered
from nodewright.model.objects import Pod, ResourceList, ResourceRequirements
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.values.quantity import ZERO, Quantity

COUNTED = (CPU, MEMORY)
"""The resources that make the class. A limit of zero is no limit."""


class QOSClass(StrEnum):
    """How well a pod is protected when resources run short, best first."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_CLASSES = frozenset(QOSClass)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassInStatus:
    """The status names the class; the spec is not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingAsked:
    """Nobody requests or limits cpu or memory."""

    pod_level: bool
    """The pod level alone was looked at, because the field is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SomethingAsked:
    """The first who requests or limits cpu or memory: enough to be more than BestEffort."""

    container: str
    """Empty: the pod level."""
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsMissing:
    """A container without a limit on cpu or memory: enough to be less than Guaranteed."""

    container: str
    """Empty: the pod level."""
    resources: tuple[str, ...]
    """The resources without a limit."""
    sidecar: bool = False
    init: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsDiffer:
    """Requests and limits are not the same amount in all: enough to be less than Guaranteed."""

    resource: str
    requests: Quantity
    limits: Quantity
    containers: tuple[str, ...]
    """Those whose own request and limit differ; those without a limit are told by `LimitsMissing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsEqualLimits:
    """Requests equal limits, on cpu and memory, everywhere."""

    pod_level: bool


QOSFact = ClassInStatus | NothingAsked | SomethingAsked | LimitsMissing | RequestsDiffer | RequestsEqualLimits


@dataclass(frozen=True, slots=True)
class QOSVerdict:
    """The class and the facts that decided it, the deciding one first."""

    qos_class: QOSClass
    because: tuple[QOSFact, ...]


@dataclass(frozen=True, slots=True)
class _Asker:
    """A container, or the pod level, with what it asks for."""

    name: str
    resources: ResourceRequirements
    sidecar: bool = False
    init: bool = False


@remembered
def qos_class(pod: Pod) -> QOSClass:
    """The class in the pod's status, or else the one that its spec makes.

    Follows: v1.36, pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS.
    Departs: a class in the status that there is not counts as none; there it would be handed on.
    """
    return _in_status(pod) or computed_qos_class(pod)


def computed_qos_class(pod: Pod) -> QOSClass:
    """The class that the spec makes, API defaults not applied.

    Follows: v1.36, pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS.
    """
    lists = _lists(pod)
    if not any(map(_asks, lists)):
        return QOSClass.BEST_EFFORT
    if any(map(_unlimited, lists)):
        return QOSClass.BURSTABLE
    # Where requests equal limits in each container, they do in all; only else is there something to add up.
    if all(map(_is_level, lists)):
        return QOSClass.GUARANTEED
    requests, limits = _positive_sums(lists)
    return QOSClass.GUARANTEED if requests == limits else QOSClass.BURSTABLE


def qos_verdict(pod: Pod) -> QOSVerdict:
    """The pod's class and what decided it."""
    if in_status := _in_status(pod):
        return QOSVerdict(in_status, (ClassInStatus(),))
    decided = computed_qos_class(pod)
    pod_level = pod.spec.resources is not None
    if decided is QOSClass.BEST_EFFORT:
        return QOSVerdict(decided, (NothingAsked(pod_level=pod_level),))
    if decided is QOSClass.GUARANTEED:
        return QOSVerdict(decided, (RequestsEqualLimits(pod_level=pod_level),))
    askers = _askers(pod)
    return QOSVerdict(decided, (*_missing(askers), *_differences(askers), _first_to_ask(askers)))


def _in_status(pod: Pod) -> QOSClass | None:
    written = pod.status.qos_class
    return QOSClass(written) if written in _CLASSES else None


def _lists(pod: Pod) -> list[ResourceRequirements]:
    spec = pod.spec
    if spec.resources is not None:
        return [spec.resources]
    return [container.resources for container in (*spec.containers, *spec.init_containers)]


def _askers(pod: Pod) -> list[_Asker]:
    if pod.spec.resources is not None:
        return [_Asker("", pod.spec.resources)]
    return [
        *(_Asker(container.name, container.resources) for container in pod.spec.containers),
        *(
            _Asker(container.name, container.resources, container.is_sidecar, init=True)
            for container in pod.spec.init_containers
        ),
    ]


def _asks(resources: ResourceRequirements) -> bool:
    for amounts in (resources.requests, resources.limits):
        for name in COUNTED:
            amount = amounts.get(name)
            if amount is not None and amount.unscaled > 0:
                return True
    return False


def _is_level(resources: ResourceRequirements) -> bool:
    requests, limits = resources.requests, resources.limits
    return all(requests.get(name, ZERO) == limits[name] for name in COUNTED)


def _positive_sums(lists: Iterable[ResourceRequirements]) -> tuple[ResourceList, ResourceList]:
    requests: ResourceList = {}
    limits: ResourceList = {}
    for resources in lists:
        for total, amounts in ((requests, resources.requests), (limits, resources.limits)):
            for name in COUNTED:
                amount = amounts.get(name)
                if amount is not None and amount.unscaled > 0:
                    total[name] = total[name] + amount if name in total else amount
    return requests, limits


def _unlimited(resources: ResourceRequirements) -> tuple[str, ...]:
    return tuple(name for name in COUNTED if resources.limits.get(name, ZERO).unscaled <= 0)


def _missing(askers: list[_Asker]) -> list[LimitsMissing]:
    return [
        LimitsMissing(container=asker.name, resources=names, sidecar=asker.sidecar, init=asker.init)
        for asker in askers
        if (names := _unlimited(asker.resources))
    ]


def _differences(askers: list[_Asker]) -> list[RequestsDiffer]:
    requests, limits = _positive_sums(asker.resources for asker in askers)
    return [
        RequestsDiffer(
            resource=name,
            requests=requests.get(name, ZERO),
            limits=limits.get(name, ZERO),
            containers=containers,
        )
        for name in COUNTED
        if requests.get(name, ZERO) != limits.get(name, ZERO)
        if (containers := tuple(asker.name for asker in askers if _differs(asker.resources, name)))
    ]


def _differs(resources: ResourceRequirements, name: str) -> bool:
    if name in _unlimited(resources):
        return False
    return resources.requests.get(name, ZERO) != resources.limits[name]


def _first_to_ask(askers: list[_Asker]) -> SomethingAsked:
    asked = ((asker.name, *_positive_sums([asker.resources])) for asker in askers)
    name, requests, limits = next(each for each in asked if each[1] or each[2])
    return SomethingAsked(container=name, resources=tuple(sorted(requests.keys() | limits.keys())))
