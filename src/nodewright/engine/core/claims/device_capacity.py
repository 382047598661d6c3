"""Capacity of devices: what a request consumes, rounded by policies, and whether enough is left."""

from collections.abc import Mapping

from nodewright.engine.core.claims.allocation_values import CapacityShort, Outcome
from nodewright.model.kubernetes.claims import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat


def consumed_amounts(
    asked: ResourceList, capacity: Mapping[str, DeviceCapacity]
) -> ResourceList | tuple[Outcome, CapacityShort]:
    """What the request consumes of each capacity of a device, or why none of it can be consumed.

    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/consumable_capacity.go,
        CmpRequestOverCapacity, GetConsumedCapacityFromRequest.
    """
    for name in asked:
        if name not in capacity:
            return Outcome.UNDEFINED_CAPACITY, CapacityShort(name, asked[name], ZERO, None)
    amounts = {}
    for name, entry in capacity.items():
        amount = _consumed(asked.get(name), entry)
        if entry.request_policy and _violates(amount, entry.request_policy):
            return Outcome.CAPACITY, CapacityShort(name, amount, ZERO, entry.value, against_policy=True)
        amounts[name] = amount
    return amounts


def capacity_short(
    amounts: ResourceList, capacity: Mapping[str, DeviceCapacity], *others: ResourceList | None
) -> CapacityShort | None:
    """The first capacity of which too little is left beside what others consume; None: there is enough."""
    for name, amount in amounts.items():
        in_use = ZERO
        for other in others:
            if other and name in other:
                in_use = in_use + other[name]
        if (amount + in_use).compare(capacity[name].value) > 0:
            return CapacityShort(name, amount, in_use, capacity[name].value)
    return None


def _consumed(asked: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    policy = capacity.request_policy
    if asked is None:
        return policy.default if policy and policy.default is not None else capacity.value
    if policy is None:
        return asked
    if policy.valid_range and policy.valid_range.min is not None:
        return _rounded_up(asked, policy.valid_range, policy.valid_range.min)
    if policy.valid_values is not None:
        return next((value for value in policy.valid_values if asked <= value), asked)
    return asked


def _rounded_up(asked: Quantity, valid: CapacityRequestPolicyRange, least: Quantity) -> Quantity:
    """The next multiple of the step above the minimum, in whole units and binary format.

    Departs: steps that are not positive do not count, where Kubernetes ends with a panic.
    """
    if asked < least:
        return least
    step = valid.step.value() if valid.step else 0
    if step <= 0:
        return asked
    base = least.value()
    return Quantity.of(base + step * -((base - asked.value()) // step), QuantityFormat.BINARY_SI)


def _violates(amount: Quantity, policy: CapacityRequestPolicy) -> bool:
    """Whether the policy forbids the amount; its default is allowed, if it is the same in number and format.

    Follows: v1.36, consumable_capacity.go, violatesPolicy.
    """
    if policy.default is not None and _is_identical(amount, policy.default):
        return False
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > valid.max:
            return True
        step = valid.step.value() if valid.step else 0
        return step > 0 and (amount.value() - (valid.min or ZERO).value()) % step != 0
    return bool(policy.valid_values) and amount not in (policy.valid_values or ())


def _is_identical(left: Quantity, right: Quantity) -> bool:
    """Whether the fields are the same, as Go compares them; decimals of any size are never."""
    return left.is_int64 and left.__reduce__() == right.__reduce__()
