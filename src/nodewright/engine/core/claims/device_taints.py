"""Taints of devices: those that drivers set and those of rules, and which ones a request tolerates."""

from collections.abc import Iterable

from nodewright.engine.core.claims.allocation_values import DeviceID
from nodewright.model.kubernetes.claims import Device, DeviceTaint, DeviceTaintRule, DeviceToleration

_EVICTING = "NoExecute"
_PREVENTING = ("NoSchedule", _EVICTING)


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


def eviction_text(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> str:
    """Why the pods that use an allocated device are deleted; empty: they are not. Of several taints the first to do so.

    ``tolerations``: those of the allocation; only those count here that name the effect.
    Follows: v1.36, pkg/controller/devicetainteviction/device_taint_eviction.go, claimEvictionTime.
    """
    delays = [(_tolerated_s(taint, tolerations), taint) for taint in taints if taint.effect == _EVICTING]
    evicting = [(delay_s, taint) for delay_s, taint in delays if delay_s is not None]
    if not evicting:
        return ""
    delay_s, taint = min(evicting, key=lambda each: each[0])
    text = f"{taint.key}={taint.value}:{taint.effect}"
    why = f"tolerates for {delay_s} s only" if delay_s else f"does not tolerate (effect {_EVICTING})"
    return f"it has the taint {text}, which the claim {why}: the device taint eviction controller deletes the pod"


def _tolerated_s(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> int | None:
    """How long pods stay after the taint was added; None: for ever."""
    covering = [each for each in tolerations if each.effect == _EVICTING and tolerates(each, taint)]
    if any(each.toleration_seconds is None for each in covering):
        return None
    return min((max(0, each.toleration_seconds or 0) for each in covering), default=0)
