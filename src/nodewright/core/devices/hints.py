"""On which NUMA nodes could these devices be? Hints as rules, one for each resource of device plugins."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from nodewright.core.devices.manager import DeviceManager
from nodewright.core.devices.state import NONE, UNLISTED, DeviceList, DeviceState, Ids
from nodewright.core.requests import RequestOptions, pod_limits
from nodewright.model.device_reasons import DeviceUnlisted
from nodewright.model.hints import IMPOSSIBLE, Fitting, HintList, ProviderHints
from nodewright.model.objects import Container, Pod
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet
from nodewright.values.subsets import Demand, Fewest, fewest

_WITHOUT_OVERHEAD = RequestOptions(exclude_overhead=True)


def container_hints(
    manager: DeviceManager, state: DeviceState, pod: Pod, container: Container
) -> Verdict[ProviderHints | None]:
    """The NUMA nodes for a container, by resource. Refused: the kubelet crashes.

    Follows: v1.36, devicemanager/topology_hints.go, GetTopologyHints.
    """
    limits = container.resources.limits
    requested = {name: amount.value() for name, amount in limits.items() if state.knows(name)}
    held = state.of_container(pod.uid, container.name)
    return _hints(manager, state, requested, held, state.reusable_by(pod.uid))


def pod_hints(manager: DeviceManager, state: DeviceState, pod: Pod) -> Verdict[ProviderHints | None]:
    """The NUMA nodes for a pod as a whole, by resource. Refused: the kubelet crashes.

    Follows: v1.36, devicemanager/topology_hints.go, GetPodTopologyHints.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    if not any(state.knows(name) for one in containers for name in one.resources.limits):
        return Granted({})
    limits = pod_limits(pod, _WITHOUT_OVERHEAD)
    requested = {name: amount.value() for name, amount in limits.items() if state.knows(name)}
    held = {name: state.of_pod(pod.uid, name) for name in requested}
    return _hints(manager, state, requested, held, {})


def _hints(
    manager: DeviceManager,
    state: DeviceState,
    requested: Mapping[str, int],
    held: Mapping[str, Ids],
    reusable: Mapping[str, Ids],
) -> Verdict[ProviderHints | None]:
    found: dict[str, HintList | None] = {}
    for resource, count in sorted(requested.items()):
        its = held.get(resource, NONE), reusable.get(resource, NONE)
        hints = _resource_hints(manager, state, resource, count, its)
        if isinstance(hints, DeviceUnlisted):
            return Refused((hints,))
        found[resource] = hints
    return Granted(found)


def _resource_hints(
    manager: DeviceManager, state: DeviceState, resource: str, requested: int, its: tuple[Ids, Ids]
) -> HintList | DeviceUnlisted | None:
    """The hints for one resource, of which these devices are held already, or are reusable."""
    held, reusable = its
    listed = state.lists.get(resource, UNLISTED)
    if not listed.has_topology:
        return None
    if held:
        if len(held) != requested:
            return IMPOSSIBLE
        available, reusable = held, NONE
    else:
        available = state.free(resource)
        if len(available | reusable) < requested:
            return IMPOSSIBLE
    gone = sorted((held or reusable) - listed.masks.keys())
    if gone and manager.follows_defects:
        return DeviceUnlisted(resource=resource, device=gone[0])
    if not manager.follows_defects:
        available, reusable = available.difference(gone), reusable & listed.healthy
    return device_hints(manager, listed, available, reusable, requested)


def device_hints(
    manager: DeviceManager, listed: DeviceList, available: Ids, reusable: Ids, requested: int
) -> HintList:
    """The hints for so many of the available devices, the reusable ones among them.

    Reusable devices without a NUMA node are neither demanded nor counted.

    Follows: v1.36, devicemanager/topology_hints.go, generateDeviceTopologyHints, deviceNUMANodes.
    """
    nodes = 0
    for mask, _ in listed.counts:
        nodes |= mask
    nodes = nodes & manager.numa.mask or manager.numa.mask
    masks = listed.masks
    again = [masks[name] & nodes for name in reusable if listed.devices[name].numa_nodes is not None]
    free = _shares([masks[name] & nodes for name in available] + again)
    total = tuple((mask & nodes, count) for mask, count in listed.counts if mask & nodes)
    smallest = smallest_size(nodes, Demand(requested, total))
    fitting = Fitting(
        nodes=NUMASet(nodes),
        demands=(Demand(requested, free),),
        preferred_size=smallest.size,
        touching=tuple(sorted(set(again))),
        proved=smallest.proved,
    )
    return HintList(fitting=fitting)


@lru_cache(maxsize=1024)
def smallest_size(nodes: int, demand: Demand) -> Fewest:
    """The fewest nodes that have enough; remembered, because only the machine and the request decide it."""
    return fewest(nodes, [demand])


def _shares(masks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    counts: dict[int, int] = {}
    for mask in masks:
        if mask:
            counts[mask] = counts.get(mask, 0) + 1
    return tuple(sorted(counts.items()))
