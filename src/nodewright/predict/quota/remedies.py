"""Changes of a pod that is refused whatever the quotas have left: each is tried, so that the changed pod passes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.engine.admission.api_server.charges import (
    POD_RESOURCE,
    VOLUME_CLAIM_RESOURCE,
    NamespacePolicy,
    ObjectCharge,
    object_charge,
)
from nodewright.engine.admission.api_server.pod_creation import InvalidPod, LimitRangeViolation
from nodewright.engine.admission.limit_ranger import CONTAINER_ITEM, POD_ITEM
from nodewright.engine.admission.quota.quota_admission import max_repetitions
from nodewright.model.kubernetes.api_request import Manifest
from nodewright.model.kubernetes.cluster_objects import (
    LimitRange,
    LimitRangeItem,
    LimitRangeSpec,
    PersistentVolumeClaim,
)
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod
from nodewright.model.kubernetes.resource_names import CPU, is_in_bytes
from nodewright.model.reasons.api_server import (
    Bound,
    LimitReason,
    NoRatio,
    NothingToBound,
    OutOfBounds,
    RatioTooLarge,
    RequestOrLimit,
)
from nodewright.model.reasons.quota import MustSpecify
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat

_REQUESTS, _LIMITS = "requests", "limits"
_MAX_ROUNDS = 12
"""A change may need others: a limit above the maximum, then the request above that limit."""
_ANY_CPU, _ANY_AMOUNT = Quantity.parse("100m"), Quantity.parse("64Mi")
AmountKey: TypeAlias = tuple[str, str, str]
"""Container, `requests` or `limits`, resource."""


@dataclass(slots=True)
class _Changes:
    """Amounts to set in the containers of a pod, and why."""

    amounts: dict[AmountKey, Quantity] = field(default_factory=dict)
    is_free: set[AmountKey] = field(default_factory=set)
    """The amounts that the user may choose."""
    at_most: set[AmountKey] = field(default_factory=set)
    """The amounts that a maximum bounds."""
    why: dict[str, None] = field(default_factory=dict)
    alternative: LimitRangeItem | None = None
    """Defaults that do as well."""

    def add(self, key: AmountKey, amount: Quantity, why: str = "", *, is_free: bool = False) -> None:
        self.amounts[key] = amount
        (self.is_free.add if is_free else self.is_free.discard)(key)
        if why:
            self.why[why] = None


def remedy(manifest: Manifest, namespace: NamespacePolicy, count: int) -> str:
    """What to set in the pod or claim of the object, so that it passes; and how many of ``count`` the quotas admit then.

    Empty: no change of amounts helps.
    """
    item = manifest.object if manifest.controller is None else manifest.controller.pod
    if isinstance(item, PersistentVolumeClaim):
        return _claim_remedy(item, namespace)
    if not isinstance(item, Pod):
        return ""
    tried = _tried_changes(item, namespace)
    if tried is None:
        return ""
    changes, charge = tried
    if not _has_defaults_instead(item, changes, namespace):
        changes.alternative = None
    return _text(changes) + _remaining(charge, namespace, count)


def changed_amounts(pod: Pod, namespace: NamespacePolicy) -> dict[AmountKey, Quantity | None]:
    """The amounts with which the pod is refused no more, whatever is in use; None: any amount; empty: none helps."""
    tried = _tried_changes(pod, namespace)
    if tried is None:
        return {}
    changes, _ = tried
    return {key: None if key in changes.is_free else amount for key, amount in changes.amounts.items()}


def _tried_changes(pod: Pod, namespace: NamespacePolicy) -> tuple[_Changes, ObjectCharge] | None:
    """The changes with which the pod passes, and its charge then; None: no change of amounts helps."""
    changes = _Changes()
    for _ in range(_MAX_ROUNDS):
        charge = object_charge(POD_RESOURCE, _changed(pod, changes), namespace)
        if charge.because is None:
            return changes, charge
        before = dict(changes.amounts)
        _add_changes(charge, changes)
        if changes.amounts == before:
            break
    return None


def _changed(pod: Pod, changes: _Changes) -> Pod:
    def with_amounts(container: Container) -> Container:
        amounts = {_REQUESTS: dict(container.resources.requests), _LIMITS: dict(container.resources.limits)}
        for (name, side, resource), amount in changes.amounts.items():
            if name == container.name:
                amounts[side][resource] = amount
        return replace(container, resources=replace(container.resources, **amounts))

    spec = replace(
        pod.spec,
        containers=tuple(map(with_amounts, pod.spec.containers)),
        init_containers=tuple(map(with_amounts, pod.spec.init_containers)),
    )
    return replace(pod, spec=spec)


def _add_changes(charge: ObjectCharge, changes: _Changes) -> None:
    """Adds what the refusal asks for; nothing if no amount helps."""
    pod, because = charge.object, charge.because
    assert isinstance(pod, Pod), "the charge of a pod"
    containers = {container.name: container for container in _containers(pod)}
    if isinstance(because, InvalidPod):
        for key, amount, default in _limits_below_requests(charge, changes):
            changes.add(key, amount, default)
    elif isinstance(because, LimitRangeViolation):
        for reason in because.because:
            container = containers.get(reason.subject.container) or _largest(pod, reason)
            if reason.subject.type in (CONTAINER_ITEM, POD_ITEM):
                _add_bound(changes, container, reason, f"LimitRange {because.limit_range}")
    elif isinstance(because, MustSpecify):
        defaults: dict[str, dict[str, Quantity]] = {_REQUESTS: {}, _LIMITS: {}}
        for missing in because.unspecified:
            side, _, resource = missing.resource.rpartition(".")
            side = side or _REQUESTS
            for name in missing.containers:
                amount = containers[name].resources.requests.get(resource, _any_amount(resource))
                defaults[side][resource] = max(amount, defaults[side].get(resource, amount))
                changes.add((name, side, resource), amount, is_free=True)
        changes.alternative = LimitRangeItem(
            type=CONTAINER_ITEM, default=defaults[_LIMITS], default_request=defaults[_REQUESTS]
        )


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.containers, *pod.spec.init_containers)


def _largest(pod: Pod, reason: LimitReason) -> Container:
    """The container with most of the resource, which an item about pods bounds."""
    side = _LIMITS if getattr(reason, "figure", None) is RequestOrLimit.LIMIT else _REQUESTS
    return max(pod.spec.containers, key=lambda each: getattr(each.resources, side).get(reason.resource, ZERO))


def _limits_below_requests(
    charge: ObjectCharge, changes: _Changes
) -> Iterator[tuple[AmountKey, Quantity, str]]:
    """The limits to raise to their requests; where a maximum has set the limit, the request to lower."""
    assert isinstance(charge.object, Pod), "as above"
    defaults = {
        (given.container, name): filled.limit_range
        for filled in charge.filled
        for given in filled.defaults
        for name in given.limits
    }
    for container in _containers(charge.object):
        requests, limits = container.resources.requests, container.resources.limits
        for name in sorted(requests.keys() & limits.keys()):
            if requests[name].compare(limits[name]) <= 0:
                continue
            limit_range = defaults.get((container.name, name))
            why = f"LimitRange {limit_range} sets limits.{name}={limits[name]} otherwise"
            if (container.name, _LIMITS, name) in changes.at_most:
                yield (container.name, _REQUESTS, name), limits[name], ""
            else:
                yield (container.name, _LIMITS, name), requests[name], why if limit_range else ""


def _add_bound(changes: _Changes, container: Container, reason: LimitReason, limit_range: str) -> None:
    """Sets the amount of the container to the nearest one that the limit range allows."""
    name, enforced = reason.resource, reason.enforced
    requests, limits = container.resources.requests, container.resources.limits
    match reason:
        case OutOfBounds(bound=bound, figure=figure, observed=observed):
            side = _side(figure)
            amount = getattr(container.resources, side).get(name, ZERO) - (observed - enforced)
            if amount.sign() > 0:
                word = "at least" if bound is Bound.MINIMUM else "at most"
                changes.add((container.name, side, name), amount, f"{limit_range} allows {word} {enforced}")
                if bound is Bound.MAXIMUM:
                    changes.at_most.add((container.name, side, name))
        case NothingToBound(figure=figure):
            amount = requests.get(name, enforced) if figure is RequestOrLimit.LIMIT else enforced
            changes.add((container.name, _side(figure), name), amount, f"{limit_range} requires it")
        case RatioTooLarge(limit=limit, request=request):
            most = enforced.milli_value()
            if most <= 0:  # A ratio beyond 64 bits wraps, so that no request is large enough.
                return
            least = -(-limit.milli_value() * 1000 // most) - request.milli_value()
            amount = requests.get(name, ZERO) + Quantity.of_milli(least)
            rounded = amount if name == CPU else _rounded_up(name, amount.value())
            why = f"{limit_range} allows limits of at most {enforced} times the requests"
            changes.add((container.name, _REQUESTS, name), rounded, why)
        case NoRatio(figure=figure):
            other = limits.get(name) if figure is RequestOrLimit.REQUEST else requests.get(name)
            why = f"{limit_range} bounds the ratio of limits to requests"
            if other is not None and other.sign() > 0:
                changes.add((container.name, _side(figure), name), other, why)
            elif (key := (container.name, _REQUESTS, name)) not in changes.amounts:
                changes.add(key, _any_amount(name), why, is_free=True)
                changes.add((container.name, _LIMITS, name), _any_amount(name), is_free=True)


def _any_amount(resource: str) -> Quantity:
    return _ANY_CPU if resource == CPU else _ANY_AMOUNT


def _side(figure: RequestOrLimit) -> str:
    return _LIMITS if figure is RequestOrLimit.LIMIT else _REQUESTS


def _rounded_up(name: str, amount: int) -> Quantity:
    """The amount as people write it: bytes in whole Mi."""
    if is_in_bytes(name) and amount > 1 << 20:
        return Quantity.of(-(-amount >> 20) << 20, QuantityFormat.BINARY_SI)
    return Quantity.of(amount)


def _has_defaults_instead(pod: Pod, changes: _Changes, namespace: NamespacePolicy) -> bool:
    """Whether the pod passes unchanged if a LimitRange has the defaults that are the alternative."""
    if changes.alternative is None:
        return False
    spec = LimitRangeSpec(limits=(changes.alternative,))
    another = LimitRange(metadata=ObjectMeta(name="defaults", namespace=namespace.name), spec=spec)
    ranges = (*namespace.limit_ranges, another)
    return object_charge(POD_RESOURCE, pod, replace(namespace, limit_ranges=ranges)).because is None


def _remaining(charge: ObjectCharge, namespace: NamespacePolicy, count: int) -> str:
    """What the quotas say of the changed pods."""
    times = None if charge.delta is None else max_repetitions(charge.delta, namespace.quotas)
    if times is None or times >= count:
        return ""
    quotas = "the quota then admits" if len(namespace.quotas) == 1 else "the quotas then admit"
    return f"; {quotas} {times} of {count}"


def _text(changes: _Changes) -> str:
    sides: dict[tuple[str, str, str], list[str]] = {}
    for container, side, resource in sorted(changes.amounts):
        key = (container, side, resource)
        amount = "" if key in changes.is_free else str(changes.amounts[key])
        sides.setdefault((container, resource, amount), []).append(f"{side}.{resource}")
    owners: dict[tuple[str, str], list[str]] = {}
    for (container, _, amount), fields in sides.items():
        owners.setdefault((_listed(sorted(fields, reverse=True)), amount), []).append(container)
    texts = [_setting(fields, containers, amount) for (fields, amount), containers in owners.items()]
    text = f"set {'; '.join(texts)}"
    if (item := changes.alternative) is not None:
        defaults = [f"`default.{name}`" for name in item.default]
        defaults += [f"`defaultRequest.{name}`" for name in item.default_request]
        text += f", or add {_listed(defaults)} to a LimitRange"
    return f"{text}: {_listed(list(changes.why))}" if changes.why else text


def _setting(fields: str, containers: Sequence[str], amount: str) -> str:
    owners = f"container{'s' if len(containers) > 1 else ''} {_listed(containers)}"
    return f"{fields} of {owners}{f' to {amount}' if amount else ''}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _claim_remedy(claim: PersistentVolumeClaim, namespace: NamespacePolicy) -> str:
    because = object_charge(VOLUME_CLAIM_RESOURCE, claim, namespace).because
    if not isinstance(because, LimitRangeViolation):
        return ""
    for reason in because.because:
        requests = {**claim.spec.resources.requests, reason.resource: reason.enforced}
        resources = replace(claim.spec.resources, requests=requests)
        changed = replace(claim, spec=replace(claim.spec, resources=resources))
        if object_charge(VOLUME_CLAIM_RESOURCE, changed, namespace).because is None:
            word = "at most" if getattr(reason, "bound", None) is Bound.MAXIMUM else "at least"
            bound = f"LimitRange {because.limit_range} allows {word} that"
            return f"set spec.resources.requests.{reason.resource} to {reason.enforced}: {bound}"
    return ""
