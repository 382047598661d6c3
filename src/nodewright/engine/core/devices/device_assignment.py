"""Allocates devices to containers and releases them; the topology hints of the device manager by resource.

A container first receives the devices that its pod's init containers leave, then aligned ones, then others.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.devices.device_state import (
    EMPTY_DEVICE_LIST,
    NO_DEVICES,
    DeviceIdSet,
    DeviceList,
    DeviceManager,
    DevicePluginError,
    DeviceState,
    PreferredAllocations,
    ReusableDevices,
    device_stock,
)
from nodewright.engine.core.requests.effective_resources import RequestOptions, pod_limits
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.devices import (
    DeviceAllocationFailed,
    DevicePluginMissing,
    DevicePreferenceFailed,
    DeviceReason,
    DeviceRefusal,
    DeviceRequestChanged,
    DevicesChosen,
    DevicesMiscounted,
    DeviceTier,
    DeviceUnlisted,
    DeviceUnregistered,
    HeldDevicesUnhealthy,
    NoHealthyDevices,
    NotEnoughDevices,
    PreferenceWanted,
    UnhealthyDevicesReused,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import Demand, MinimumSize, minimum_size
from nodewright.model.values.topology_hints import IMPOSSIBLE, Fitting, HintList, ProviderHints

TierReason: TypeAlias = Literal["reuse", "aligned", "preferred", "unaligned", "withoutTopology"]

_NO_HINTS: Granted[ProviderHints | None] = Granted({})
_WITHOUT_OVERHEAD = RequestOptions(exclude_overhead=True)


class ContainerDeviceRequest(msgspec.Struct, frozen=True):
    """A container's request for `count` devices of a resource, on the affinity's NUMA nodes if possible."""

    resource: str
    count: int
    affinity: NUMASet | None
    reusable: DeviceIdSet
    """The devices of the pod's init containers that no later container holds."""
    container: str = ""


class DeviceChoice(msgspec.Struct, frozen=True):
    """The devices picked, also by tier; with a refusal, those picked before it."""

    picked: DeviceIdSet
    tiers: tuple[DeviceTier, ...]
    refusal: DeviceRefusal | None = None


def device_choice(
    manager: DeviceManager, state: DeviceState, listed: DeviceList, request: ContainerDeviceRequest
) -> DeviceChoice:
    """The devices for a container that holds none yet.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    Departs: within a tier the lowest ids, in the order of their text; the kubelet iterates over a map in random order.
    """
    selection = _Selection(request.count)
    refusal = _pick(manager, state, listed, request, selection)
    return DeviceChoice(frozenset(selection.picked), tuple(selection.tiers), refusal)


DevicesByResource = Mapping[str, tuple[str, ...]]
"""Ids by resource, ascending."""


class DeviceAllocation(msgspec.Struct, frozen=True):
    """The verdict, and the state after it; a refusal may leave devices marked as in use without a holder.

    Granted: all devices that the container holds.
    """

    state: DeviceState
    verdict: Verdict[DevicesByResource]


def allocate(
    manager: DeviceManager, state: DeviceState, pod: Pod, container: Container, affinity: NUMASet | None
) -> DeviceAllocation:
    """Allocates a container's devices, on the affinity's NUMA nodes where possible.

    Follows: v1.36, devicemanager/manager.go, Allocate, allocateContainerResources. Devices of one
        resource stay allocated if the next resource fails, but are not in the checkpoint.
    Departs: allocates resources in the order of their names; the kubelet iterates over a map in random order.
    """
    uid = pod.metadata.uid
    if state.reusable is not None and state.reusable.pod != uid:
        state = replace(state, reusable=None)
    limits = container.resources.limits
    resources = sorted(filter(state.is_device_plugin_resource, limits)) if state.has_devices else []
    if not resources and uid not in state.pod_devices:
        return DeviceAllocation(state, _NO_DEVICES_GRANTED)
    because: list[DeviceReason] = []
    before = state.container_devices(uid, container.name)
    for resource in resources:
        if manager.skips_claimed_resources and _is_claimed(pod, container, resource):
            continue
        reusable = state.reusable_by(uid).get(resource, NO_DEVICES)
        request = ContainerDeviceRequest(
            resource, limits[resource].value(), affinity, reusable, container.name
        )
        state, outcome = _allocate_resource(manager, state, (uid, container.name), request)
        if isinstance(outcome, Refused):
            new = state.container_devices(uid, container.name).keys() - before.keys()
            unwritten = state.unwritten | {(uid, container.name, name) for name in new}
            return DeviceAllocation(replace(state, unwritten=unwritten), outcome)
        because += outcome.value
    if state.unwritten and state.container_devices(uid, container.name) != before:
        state = replace(state, unwritten=frozenset())
    held = container_device_ids(state, uid, container.name)
    return DeviceAllocation(_with_reuse(state, pod, container), Granted(held, tuple(because)))


def without_inactive_pods(state: DeviceState, active: Mapping[str, Collection[str]]) -> DeviceState:
    """The state without the devices of inactive pods; `active` has the containers of active pods by pod uid.

    The kubelet does this before hints and before each allocation, once its sources are ready.

    Follows: v1.36, devicemanager/manager.go, UpdateAllocatedDevices.
    """
    if state.running_at_start is not None or all(uid in active for uid in state.pod_devices):
        return state
    held = {uid: containers for uid, containers in state.pod_devices.items() if uid in active}
    responses = (
        {uid: response for uid, response in state.allocation_responses.items() if uid in active}
        if state.allocation_responses
        else state.allocation_responses
    )
    unwritten = frozenset(key for key in state.unwritten if key[0] in active)
    state = replace(state, pod_devices=held, allocation_responses=responses, unwritten=unwritten)
    return state.with_in_use_recomputed()


def container_device_ids(state: DeviceState, uid: str, container: str) -> DevicesByResource:
    """The container's devices by resource."""
    held = state.container_devices(uid, container)
    return {resource: tuple(sorted(devices)) for resource, devices in sorted(held.items())}


def free_devices(state: DeviceState) -> DevicesByResource:
    """The healthy devices that are not in use, by resource."""
    return {resource: tuple(sorted(state.free(resource))) for resource in sorted(state.device_lists)}


def device_capacity(state: DeviceState) -> dict[str, int]:
    """The number of devices by registered resource.

    Follows: v1.36, devicemanager/manager.go, GetCapacity.
    """
    return {
        resource: len(listed.healthy) + len(listed.unhealthy)
        for resource, listed in sorted(state.device_lists.items())
    }


def device_allocatable(state: DeviceState) -> dict[str, int]:
    """The number of healthy devices by registered resource.

    Follows: v1.36, devicemanager/manager.go, GetCapacity.
    """
    return {resource: len(listed.healthy) for resource, listed in sorted(state.device_lists.items())}


def in_use_counts(state: DeviceState) -> dict[str, int]:
    """The number of devices in use by resource: the lower bound of the node's allocatable at admission.

    Follows: v1.36, devicemanager/manager.go, sanitizeNodeAllocatable.
    """
    return (
        {resource: len(devices) for resource, devices in sorted(state.in_use.items())} if state.in_use else {}
    )


def container_hints(
    manager: DeviceManager, state: DeviceState, pod: Pod, container: Container
) -> Verdict[ProviderHints | None]:
    """The hints for a container by resource. Refused: the kubelet crashes.

    Follows: v1.36, devicemanager/topology_hints.go, GetTopologyHints.
    """
    limits = container.resources.limits
    if not (limits and state.has_devices):
        return _NO_HINTS
    requested = {
        name: amount.value() for name, amount in limits.items() if state.is_device_plugin_resource(name)
    }
    if not requested:
        return _NO_HINTS
    held = state.container_devices(pod.metadata.uid, container.name)
    return _hints(manager, state, requested, held, state.reusable_by(pod.metadata.uid))


def pod_hints(manager: DeviceManager, state: DeviceState, pod: Pod) -> Verdict[ProviderHints | None]:
    """The hints for a pod as a whole by resource. Refused: the kubelet crashes.

    Follows: v1.36, devicemanager/topology_hints.go, GetPodTopologyHints.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    if not state.has_devices or not any(
        state.is_device_plugin_resource(name)
        for container in containers
        for name in container.resources.limits
    ):
        return _NO_HINTS
    limits = pod_limits(pod, _WITHOUT_OVERHEAD)
    requested = {
        name: amount.value() for name, amount in limits.items() if state.is_device_plugin_resource(name)
    }
    held = {name: state.devices_of_pod(pod.metadata.uid, name) for name in requested}
    return _hints(manager, state, requested, held, {})


def device_hints(
    manager: DeviceManager, listed: DeviceList, available: DeviceIdSet, reusable: DeviceIdSet, requested: int
) -> HintList:
    """The hints for the requested number of available and reusable devices.

    Reusable devices that report no NUMA topology do not count and need not be included.

    Follows: v1.36, devicemanager/topology_hints.go, generateDeviceTopologyHints, deviceNUMANodes.
    """
    nodes = 0
    for mask, _ in listed.count_by_mask:
        nodes |= mask
    nodes = (nodes & manager.numa.mask if manager.hints_from_hosts_only else 0) or manager.numa.mask
    masks = listed.numa_masks
    reusable_masks = [masks[name] & nodes for name in reusable if listed.devices[name].numa_nodes is not None]
    free = _count_by_mask([masks[name] & nodes for name in available] + reusable_masks)
    total = tuple((mask & nodes, count) for mask, count in listed.count_by_mask if mask & nodes)
    smallest = min_affinity_size(nodes, Demand(requested, total))
    fitting = Fitting(
        nodes=NUMASet(nodes),
        demands=(Demand(requested, free),),
        preferred_size=smallest.size,
        touching=tuple(sorted(set(reusable_masks))),
        proved=smallest.proved,
    )
    return HintList(fitting=fitting)


@lru_cache(maxsize=1024)
def min_affinity_size(nodes: int, demand: Demand) -> MinimumSize:
    """The least number of NUMA nodes with enough devices; cached, as only the machine and the request decide it."""
    return minimum_size(nodes, [demand])


class _Selection:
    """The devices picked so far, and the number of devices still missing."""

    def __init__(self, count: int) -> None:
        self.missing = count
        self.picked: set[str] = set()
        self.tiers: list[DeviceTier] = []

    def complete_with(self, why: TierReason, devices: DeviceIdSet) -> bool:
        """Picks up to the missing number of these devices; returns whether none is missing."""
        candidates = sorted(devices - self.picked)
        # A negative count is never reached, so all devices are taken.
        taken = candidates[: self.missing] if self.missing > 0 else candidates
        if taken:
            self.tiers.append(DeviceTier(why=why, candidates=tuple(candidates), taken=tuple(taken)))
            self.picked.update(taken)
            self.missing -= len(taken)
        return self.missing == 0


def _pick(
    manager: DeviceManager,
    state: DeviceState,
    listed: DeviceList,
    request: ContainerDeviceRequest,
    selection: _Selection,
) -> DeviceRefusal | None:
    reusable = request.reusable if manager.follows_defects else request.reusable & listed.healthy
    if selection.complete_with("reuse", reusable):
        return None
    available = state.free(request.resource) - selection.picked
    if len(available) < selection.missing:
        return NotEnoughDevices(
            stock=device_stock(state, request.resource),
            requested=request.count,
            missing=selection.missing,
            available=len(available),
        )
    aligned, unaligned, without_topology = _by_affinity(listed, available, request.affinity)
    enough_aligned = selection.missing < len(aligned)
    if not enough_aligned and selection.complete_with("aligned", aligned):
        return None
    candidates = aligned if enough_aligned else available
    preferred = _preferred(
        manager, state.preferred_allocations, request, candidates, frozenset(selection.picked)
    )
    if not isinstance(preferred, frozenset):
        return preferred
    tiers: list[tuple[TierReason, DeviceIdSet]] = (
        [("preferred", preferred), ("aligned", aligned)]
        if enough_aligned
        else [("preferred", preferred), ("unaligned", unaligned), ("withoutTopology", without_topology)]
    )
    if any(selection.complete_with(why, devices) for why, devices in tiers):
        return None
    picked_count = request.count - selection.missing
    return DevicesMiscounted(resource=request.resource, requested=request.count, got=picked_count)


def _by_affinity(
    listed: DeviceList, available: DeviceIdSet, affinity: NUMASet | None
) -> tuple[DeviceIdSet, DeviceIdSet, DeviceIdSet]:
    """The devices with a NUMA node in the affinity, those with other nodes only, and those without nodes.

    Follows: v1.36, devicemanager/manager.go, filterByAffinity: without an affinity all are in the last part.
    """
    if affinity is None or not listed.has_topology:
        return NO_DEVICES, NO_DEVICES, available
    masks = listed.numa_masks
    aligned = frozenset([name for name in available if masks[name] & affinity.mask])
    without_topology = available & listed.without_numa
    return aligned, available - aligned - without_topology, without_topology


def _preferred(
    manager: DeviceManager,
    preferred_allocations: PreferredAllocations,
    request: ContainerDeviceRequest,
    candidates: DeviceIdSet,
    picked: DeviceIdSet,
) -> DeviceIdSet | DevicePluginMissing | DevicePreferenceFailed | PreferenceWanted:
    """The candidates that the plugin prefers, or why they are not known.

    Follows: v1.36, devicemanager/manager.go, callGetPreferredAllocationIfAvailable.
    """
    plugin = manager.plugins.get(request.resource)
    if plugin is None:
        return DevicePluginMissing(resource=request.resource, during="preference")
    if plugin.is_live:
        answer: Iterable[str] | DevicePluginError | None = preferred_allocations.answers.get(
            (request.container, request.resource)
        )
        if answer is None and preferred_allocations.asks_plugins:
            return PreferenceWanted(
                resource=request.resource,
                container=request.container,
                available=tuple(sorted(candidates | picked)),
                must_include=tuple(sorted(picked)),
                size=request.count,
            )
    else:
        answer = plugin.preference and plugin.preference(candidates | picked, picked, request.count)
    if isinstance(answer, DevicePluginError):
        stranded = tuple(sorted(picked)) if manager.follows_defects else ()
        return DevicePreferenceFailed(resource=request.resource, error=answer.text, stranded=stranded)
    return candidates.intersection(answer or ())


_NO_DEVICES_GRANTED: Granted[DevicesByResource] = Granted({})


def _is_claimed(pod: Pod, container: Container, resource: str) -> bool:
    """Whether a resource claim provides the resource to the container.

    Follows: v1.36, devicemanager/manager.go, isDRAExtendedResource.
    """
    claim = pod.status.extended_resource_claim_status
    return claim is not None and any(
        mapping.container_name == container.name and mapping.resource_name == resource
        for mapping in claim.request_mappings
    )


def _allocate_resource(
    manager: DeviceManager, state: DeviceState, holder: tuple[str, str], request: ContainerDeviceRequest
) -> tuple[DeviceState, Verdict[tuple[DeviceReason, ...]]]:
    """Allocates devices of one resource to a container; Granted has the reasons for the choice."""
    held = state.container_devices(*holder).get(request.resource)
    fault = _fault(state, holder, request, held)
    if fault is not None:
        return state, Refused((fault,))
    if (
        held is not None
        or request.count == 0
        or (state.running_at_start is not None and holder in state.running_at_start)
    ):
        return state, Granted(())
    listed = state.device_lists[request.resource]
    choice = device_choice(manager, state, listed, request)
    marked = state.with_in_use(request.resource, choice.picked)
    if choice.refusal is not None:
        return marked if manager.follows_defects else state, Refused((choice.refusal,))
    failure = _plugin_failure(manager, request.resource, choice.picked)
    if failure is not None:
        return state.with_in_use_recomputed(), Refused((failure,))
    unlisted = sorted(choice.picked - listed.devices.keys())
    if unlisted:
        return state, Refused((DeviceUnlisted(resource=request.resource, device=unlisted[0]),))
    because: list[DeviceReason] = [
        DevicesChosen(resource=request.resource, affinity=request.affinity, tiers=choice.tiers)
    ]
    unhealthy = tuple(sorted(choice.picked - listed.healthy))
    if unhealthy:
        because.append(UnhealthyDevicesReused(resource=request.resource, devices=unhealthy))
    return marked.with_container_devices(*holder, request.resource, choice.picked), Granted(tuple(because))


def _fault(
    state: DeviceState, holder: tuple[str, str], request: ContainerDeviceRequest, held: DeviceIdSet | None
) -> DeviceRefusal | None:
    """Why the container is refused, however many devices are free; None: it is not refused.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """
    resource = request.resource
    if held is not None and len(held) != request.count:
        return DeviceRequestChanged(
            pod=holder[0],
            container=holder[1],
            resource=resource,
            held=tuple(sorted(held)),
            requested=request.count,
        )
    if state.running_at_start is not None and holder in state.running_at_start:
        return None
    listed = state.device_lists.get(resource)
    if listed is None:
        return DeviceUnregistered(resource=resource)
    if not listed.healthy:
        return NoHealthyDevices(stock=device_stock(state, resource))
    unhealthy = (held or NO_DEVICES) - listed.healthy
    if unhealthy:
        return HeldDevicesUnhealthy(stock=device_stock(state, resource), devices=tuple(sorted(unhealthy)))
    return None


def _plugin_failure(
    manager: DeviceManager, resource: str, picked: DeviceIdSet
) -> DevicePluginMissing | DeviceAllocationFailed | None:
    plugin = manager.plugins.get(resource)
    if plugin is None:
        return DevicePluginMissing(resource=resource, during="allocation")
    if plugin.allocate_error:
        return DeviceAllocationFailed(
            resource=resource, error=plugin.allocate_error, devices=tuple(sorted(picked))
        )
    return None


def _with_reuse(state: DeviceState, pod: Pod, container: Container) -> DeviceState:
    """The state with the devices that the pod's later containers may reuse.

    An init container's devices are added; those of a sidecar or app container are removed.
    """
    held = state.container_devices(pod.metadata.uid, container.name)
    reusable = state.reusable_by(pod.metadata.uid)
    if not held:
        return state
    is_init = any(init.name == container.name and not init.is_sidecar for init in pod.spec.init_containers)
    if not (is_init or reusable):
        return state
    reusable_after = dict(reusable)
    for resource, devices in held.items():
        previous = reusable.get(resource, NO_DEVICES)
        reusable_after[resource] = previous | devices if is_init else previous - devices
    return replace(state, reusable=ReusableDevices(pod.metadata.uid, reusable_after))


def _hints(
    manager: DeviceManager,
    state: DeviceState,
    requested: Mapping[str, int],
    held: Mapping[str, DeviceIdSet],
    reusable: Mapping[str, DeviceIdSet],
) -> Verdict[ProviderHints | None]:
    hints_by_resource: dict[str, HintList | None] = {}
    for resource, count in sorted(requested.items()):
        held_and_reusable = held.get(resource, NO_DEVICES), reusable.get(resource, NO_DEVICES)
        hints = _resource_hints(manager, state, resource, count, held_and_reusable)
        if isinstance(hints, DeviceUnlisted):
            return Refused((hints,))
        hints_by_resource[resource] = hints
    return Granted(hints_by_resource)


def _resource_hints(
    manager: DeviceManager,
    state: DeviceState,
    resource: str,
    requested: int,
    held_and_reusable: tuple[DeviceIdSet, DeviceIdSet],
) -> HintList | DeviceUnlisted | None:
    """The hints for one resource, given the devices that are already held and those that are reusable."""
    held, reusable = held_and_reusable
    listed = state.device_lists.get(resource, EMPTY_DEVICE_LIST)
    if not listed.has_topology:
        return None
    if held:
        if len(held) != requested:
            return IMPOSSIBLE
        available, reusable = held, NO_DEVICES
    else:
        available = state.free(resource)
        if len(available | reusable) < requested:
            return IMPOSSIBLE
    unlisted = sorted((held or reusable) - listed.numa_masks.keys())
    if unlisted and manager.follows_defects:
        return DeviceUnlisted(resource=resource, device=unlisted[0])
    if not manager.follows_defects:
        available, reusable = available.difference(unlisted), reusable & listed.healthy
    return device_hints(manager, listed, available, reusable, requested)


def _count_by_mask(masks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    counts: dict[int, int] = {}
    for mask in masks:
        if mask:
            counts[mask] = counts.get(mask, 0) + 1
    return tuple(sorted(counts.items()))
