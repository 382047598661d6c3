"""The topology hints of the device manager by resource."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from nodewright.engine.core.devices.device_manager import DeviceManager
from nodewright.engine.core.devices.device_state import (
    EMPTY_DEVICE_LIST,
    NO_DEVICES,
    DeviceIdSet,
    DeviceList,
    DeviceState,
)
from nodewright.engine.core.requests.effective_resources import pod_limits
from nodewright.engine.core.requests.request_options import RequestOptions
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.devices import DeviceUnlisted
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import Demand, MinimumSize, minimum_size
from nodewright.model.values.topology_hints import IMPOSSIBLE, Fitting, HintList, ProviderHints

_NO_HINTS: Granted[ProviderHints | None] = Granted({})
_WITHOUT_OVERHEAD = RequestOptions(exclude_overhead=True)


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


def _count_by_mask(masks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    counts: dict[int, int] = {}
    for mask in masks:
        if mask:
            counts[mask] = counts.get(mask, 0) + 1
    return tuple(sorted(counts.items()))
