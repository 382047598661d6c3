"""What the device manager finds: the kubelet's own texts, and plain sentences."""

from typing import assert_never

from nodewright.model import device_reasons as devices
from nodewright.values.golang import quoted


def device_message(reason: devices.DeviceReason) -> str:
    """The text of the kubelet's error, to the byte; a plain sentence where it says nothing.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate, allocateContainerResources.
    """
    match reason:
        case devices.DeviceRequestChanged(pod=pod, container=container, resource=name, requested=asked):
            return (
                f"pod {quoted(pod)} container {quoted(container)} changed request for resource "
                f"{quoted(name)} from {len(reason.held)} to {asked}"
            )
        case devices.DeviceUnregistered(resource=name):
            return f"cannot allocate unregistered device {name}"
        case devices.NoHealthyDevices(stock=stock):
            return f"no healthy devices present; cannot allocate unhealthy devices {stock.resource}"
        case devices.HeldDevicesUnhealthy(stock=stock):
            return (
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {stock.resource}"
            )
        case devices.NotEnoughDevices(stock=stock, missing=missing, available=available):
            return (
                f"requested number of devices unavailable for {stock.resource}. "
                f"Requested: {missing}, Available: {available}"
            )
        case devices.DevicePreferenceFailed(error=error):
            return f"device plugin GetPreferredAllocation rpc failed with err: {error}"
        case devices.DeviceAllocationFailed(error=error):
            return error
        case devices.DevicePluginMissing(resource=name, during="preference"):
            return f"endpoint not found in cache for a registered resource: {name}"
        case devices.DevicePluginMissing(resource=name):
            return f"unknown Device Plugin {name}"
        case devices.DevicesMiscounted(requested=asked, got=got):
            return f"unexpectedly allocated less resources than required. Requested: {asked}, Got: {got}"
        case (
            devices.DeviceUnlisted()
            | devices.DevicesChosen()
            | devices.UnhealthyDevicesReused()
            | devices.PreferenceWanted()
        ):
            return device_sentence(reason)
        case _:
            assert_never(reason)


def device_sentence(reason: devices.DeviceReason) -> str:
    """The reason in words, without a full stop."""
    match reason:
        case devices.DeviceRequestChanged(container=container, resource=name, held=held, requested=asked):
            return f"{name}: {container} asks for {asked} and already holds {_ids(held)}"
        case devices.DeviceUnregistered(resource=name):
            return f"{name}: no device plugin has registered it since the kubelet started"
        case devices.NoHealthyDevices(stock=stock):
            return f"{stock.resource}: none of {stock.registered} devices is healthy"
        case devices.HeldDevicesUnhealthy(stock=stock, devices=ill):
            return f"{stock.resource}: the container holds {_ids(ill)}, no longer healthy"
        case devices.NotEnoughDevices():
            return _shortage(reason)
        case devices.DevicePreferenceFailed(resource=name, error=error, stranded=stranded):
            left = f"; {_ids(stranded)} count as in use until a pod with devices is gone" if stranded else ""
            return f"{name}: the plugin was asked which devices it prefers and failed: {error}{left}"
        case devices.PreferenceWanted(resource=name, available=ids, size=size):
            return f"{name}: the plugin is asked which {size} of {_ids(ids)} it prefers"
        case devices.DeviceAllocationFailed(resource=name, error=error, devices=ids):
            return f"{name}: the plugin was told to hand out {_ids(ids)} and failed: {error}"
        case devices.DevicePluginMissing(resource=name):
            return f"{name}: its device plugin is not known"
        case devices.DevicesMiscounted(resource=name, requested=asked):
            return f"{name}: {asked} devices cannot be handed out"
        case devices.DeviceUnlisted(resource=name, device=device):
            return f"{name}: the kubelet crashes, because its plugin does not list {device} any more"
        case devices.DevicesChosen(resource=name, tiers=tiers):
            return f"{name}: " + ", then ".join(map(_tier, tiers))
        case devices.UnhealthyDevicesReused(resource=name, devices=ill):
            return f"{name}: {_ids(ill)}, taken over from an init container, not healthy any more"
        case _:
            assert_never(reason)


_RANKS = {
    "reuse": "taken over from an init container",
    "aligned": "on the NUMA nodes agreed on",
    "preferred": "by the plugin's preference",
    "unaligned": "on other NUMA nodes",
    "withoutTopology": "wherever they are",
}


def _tier(tier: devices.DeviceTier) -> str:
    return f"{_ids(tier.taken)} {_RANKS[tier.why]}"


def _shortage(short: devices.NotEnoughDevices) -> str:
    stock = short.stock
    taken_over = short.requested - short.missing
    over = f", {taken_over} taken over from an init container" if taken_over else ""
    parts = [f"{short.requested} asked for{over}, {short.available} of {stock.registered} free"]
    if stock.healthy < stock.registered:
        parts.append(f"{stock.registered - stock.healthy} not healthy")
    if any(place.numa for place in stock.places):
        parts += map(_place, stock.places)
    parts += [f"{_ids(one.devices)} held by {one.container} of pod {one.pod}" for one in stock.holders]
    if stock.stranded:
        parts.append(f"{_ids(stock.stranded)} counted as in use though nobody holds them")
    return f"{stock.resource}: " + "; ".join(parts)


def _place(place: devices.DevicesAt) -> str:
    where = f"NUMA node {place.numa}" if len(place.numa) == 1 else f"NUMA nodes {place.numa}"
    return f"{where if place.numa else 'no NUMA node'}: {place.free} of {place.registered} free"


def _ids(ids: tuple[str, ...]) -> str:
    return ", ".join(ids)
