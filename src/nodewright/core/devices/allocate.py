"""Giving devices to containers, and taking them back."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.core.devices.choose import Wanted, choose
from nodewright.core.devices.evidence import device_stock
from nodewright.core.devices.manager import DeviceManager
from nodewright.core.devices.state import NONE, DeviceState, Ids, Reusable
from nodewright.model.device_reasons import (
    DeviceAllocationFailed,
    DevicePluginMissing,
    DeviceReason,
    DeviceRefusal,
    DeviceRequestChanged,
    DevicesChosen,
    DeviceUnlisted,
    DeviceUnregistered,
    HeldDevicesUnhealthy,
    NoHealthyDevices,
    UnhealthyDevicesReused,
)
from nodewright.model.objects import Container, Pod
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet

Devices = Mapping[str, tuple[str, ...]]
"""Ids by resource, ascending."""


class Allocation(msgspec.Struct, frozen=True):
    """The verdict, and the state after it; a refusal may leave devices in use that nobody holds.

    Granted: all that the container holds now.
    """

    state: DeviceState
    verdict: Verdict[Devices]


def allocate(
    manager: DeviceManager, state: DeviceState, pod: Pod, container: Container, affinity: NUMASet | None
) -> Allocation:
    """The container with the devices that it asks for, from the NUMA nodes of the affinity where possible.

    Follows: v1.36, devicemanager/manager.go, Allocate, allocateContainerResources. What the container got of
        one resource stays with it if the next one fails.
    Departs: goes through the resources by name, where the kubelet walks a map in random order.
    """
    if state.reusable is not None and state.reusable.pod != pod.uid:
        state = replace(state, reusable=None)
    because: list[DeviceReason] = []
    limits = container.resources.limits
    for resource in sorted(filter(state.knows, limits)):
        if manager.skips_claimed and _is_claimed(pod, container, resource):
            continue
        reusable = state.reusable_by(pod.uid).get(resource, NONE)
        wanted = Wanted(resource, limits[resource].value(), affinity, reusable, container.name)
        state, found = _served(manager, state, (pod.uid, container.name), wanted)
        if isinstance(found, Refused):
            return Allocation(state, found)
        because += found.value
    held = devices_of(state, pod.uid, container.name)
    return Allocation(_with_reuse(state, pod, container), Granted(held, tuple(because)))


def without_stale(state: DeviceState, active: Mapping[str, Collection[str]]) -> DeviceState:
    """The state without the pods that are not among the active ones (containers by pod uid).

    The kubelet does this before hints and before each allocation; not before it knows all pods.

    Follows: v1.36, devicemanager/manager.go, UpdateAllocatedDevices.
    """
    if state.running is not None or all(uid in active for uid in state.held):
        return state
    held = {uid: containers for uid, containers in state.held.items() if uid in active}
    given = {uid: said for uid, said in state.given.items() if uid in active} if state.given else state.given
    return replace(state, held=held, given=given).recounted()


def devices_of(state: DeviceState, uid: str, container: str) -> Devices:
    """What the container holds, by resource."""
    held = state.of_container(uid, container)
    return {resource: tuple(sorted(devices)) for resource, devices in sorted(held.items())}


def free_devices(state: DeviceState) -> Devices:
    """The healthy devices that are not in use, by resource."""
    return {resource: tuple(sorted(state.free(resource))) for resource in sorted(state.lists)}


def capacity(state: DeviceState) -> dict[str, int]:
    """How many devices there are, by registered resource.

    Follows: v1.36, devicemanager/manager.go, GetCapacity.
    """
    return {
        resource: len(listed.healthy) + len(listed.unhealthy)
        for resource, listed in sorted(state.lists.items())
    }


def allocatable(state: DeviceState) -> dict[str, int]:
    """How many healthy devices there are, by registered resource.

    Follows: v1.36, devicemanager/manager.go, GetCapacity.
    """
    return {resource: len(listed.healthy) for resource, listed in sorted(state.lists.items())}


def in_use_counts(state: DeviceState) -> dict[str, int]:
    """How many devices are in use, by resource: what the node offers at least, when pods are judged.

    Follows: v1.36, devicemanager/manager.go, sanitizeNodeAllocatable.
    """
    return {resource: len(devices) for resource, devices in sorted(state.in_use.items())}


def _is_claimed(pod: Pod, container: Container, resource: str) -> bool:
    """Whether a resource claim provides it.

    Follows: v1.36, devicemanager/manager.go, isDRAExtendedResource.
    """
    claim = pod.status.extended_resource_claim_status
    return claim is not None and any(
        one.container_name == container.name and one.resource_name == resource
        for one in claim.request_mappings
    )


def _served(
    manager: DeviceManager, state: DeviceState, who: tuple[str, str], wanted: Wanted
) -> tuple[DeviceState, Verdict[tuple[DeviceReason, ...]]]:
    """The container with devices of one resource, and what is to be said about them."""
    held = state.of_container(*who).get(wanted.resource)
    fault = _fault(state, who, wanted, held)
    if fault is not None:
        return state, Refused((fault,))
    if held is not None or wanted.count == 0 or (state.running is not None and who in state.running):
        return state, Granted(())
    listed = state.lists[wanted.resource]
    choice = choose(manager, state, listed, wanted)
    marked = state.with_in_use(wanted.resource, choice.picked)
    if choice.refusal is not None:
        return marked if manager.follows_defects else state, Refused((choice.refusal,))
    failure = _plugin_failure(manager, wanted.resource, choice.picked)
    if failure is not None:
        return state.recounted(), Refused((failure,))
    gone = sorted(choice.picked - listed.devices.keys())
    if gone:
        return state, Refused((DeviceUnlisted(resource=wanted.resource, device=gone[0]),))
    because: list[DeviceReason] = [
        DevicesChosen(resource=wanted.resource, affinity=wanted.affinity, tiers=choice.tiers)
    ]
    ill = tuple(sorted(choice.picked - listed.healthy))
    if ill:
        because.append(UnhealthyDevicesReused(resource=wanted.resource, devices=ill))
    return marked.with_held(*who, wanted.resource, choice.picked), Granted(tuple(because))


def _fault(
    state: DeviceState, who: tuple[str, str], wanted: Wanted, held: Ids | None
) -> DeviceRefusal | None:
    """Why the container cannot have devices of the resource, however many are free.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """
    resource = wanted.resource
    if held is not None and len(held) != wanted.count:
        return DeviceRequestChanged(
            pod=who[0],
            container=who[1],
            resource=resource,
            held=tuple(sorted(held)),
            requested=wanted.count,
        )
    if state.running is not None and who in state.running:
        return None
    listed = state.lists.get(resource)
    if listed is None:
        return DeviceUnregistered(resource=resource)
    if not listed.healthy:
        return NoHealthyDevices(stock=device_stock(state, resource))
    ill = (held or NONE) - listed.healthy
    if ill:
        return HeldDevicesUnhealthy(stock=device_stock(state, resource), devices=tuple(sorted(ill)))
    return None


def _plugin_failure(
    manager: DeviceManager, resource: str, picked: Ids
) -> DevicePluginMissing | DeviceAllocationFailed | None:
    plugin = manager.plugins.get(resource)
    if plugin is None:
        return DevicePluginMissing(resource=resource, during="allocation")
    if plugin.refusal:
        return DeviceAllocationFailed(resource=resource, error=plugin.refusal, devices=tuple(sorted(picked)))
    return None


def _with_reuse(state: DeviceState, pod: Pod, container: Container) -> DeviceState:
    """The state with what the pod's next containers take over: an init container's devices, no sidecar's."""
    held, before = state.of_container(pod.uid, container.name), state.reusable_by(pod.uid)
    if not held:
        return state
    is_init = any(one.name == container.name and not one.is_sidecar for one in pod.spec.init_containers)
    if not (is_init or before):
        return state
    after = dict(before)
    for resource, devices in held.items():
        had = before.get(resource, NONE)
        after[resource] = had | devices if is_init else had - devices
    return replace(state, reusable=Reusable(pod.uid, after))
