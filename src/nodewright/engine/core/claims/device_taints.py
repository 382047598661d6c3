"""Taints of devices: those that drivers set and those of rules, and which ones a request tolerates."""

from collections.abc import Iterable

from nodewright.engine.core.claims.allocation_values import DeviceID
from nodewright.model.kubernetes.claims import Device, DeviceTaint, DeviceTaintRule, DeviceToleration

_PREVENTING = ("NoSchedule", "NoExecute")


def taints_of(
    device: Device, device_id: DeviceID, rules: Iterable[DeviceTaintRule]
) -> tuple[DeviceTaint, ...]:
    """The device's own taints, then those of the rules that select it.

    Follows: v1.36, dynamic-resource-allocation/resourceslice/tracker/tracker.go, applyPatches.
    """
    return (*device.taints, *(rule.spec.taint for rule in rules if _selects(rule, device_id)))


def _selects(rule: DeviceTaintRule, device_id: DeviceID) -> bool:
    """Whether the rule taints the device. One without a selector taints all devices, whatever the API's text says."""
    selector = rule.spec.device_selector
    if selector is None:
        return True
    names = selector.driver, selector.pool, selector.device
    return all(name is None or name == own for name, own in zip(names, device_id, strict=True))


def untolerated_taint(
    taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...], *, known_effects: bool
) -> DeviceTaint | None:
    """The first taint that prevents allocation; None: there is none.

    With ``known_effects``, taints of other effects than NoSchedule and NoExecute do not.
    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go,
        taintPreventsAllocation.
    """
    for taint in taints:
        if known_effects and taint.effect not in _PREVENTING:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether the toleration covers the taint.

    Follows: v1.36, dynamic-resource-allocation/resourceclaim/devicetoleration.go, ToleratesTaint.
    """
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case operator:
            return operator == "Exists"
