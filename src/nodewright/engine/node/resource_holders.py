"""The holders of a resource by NUMA node, with pod names in place of uids."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_allocation import cpu_stock
from nodewright.engine.core.devices.device_state import EMPTY_DEVICE_LIST, DeviceState, device_stock
from nodewright.engine.core.memory.memory_state import MemoryState, free_memory
from nodewright.engine.node.managers.hint_providers import Holdings
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.reasons.cpu import CPUsOfNUMA, NotEnoughCPUs, NotEnoughWholeCores
from nodewright.model.reasons.devices import (
    DeviceHolder,
    DevicesAt,
    DeviceStock,
    HeldDevicesUnhealthy,
    NoHealthyDevices,
    NotEnoughDevices,
)
from nodewright.model.reasons.memory import NUMAMemoryLeft
from nodewright.model.reasons.reason import Reason
from nodewright.model.values.idset import NUMASet

T = TypeVar("T")
PodNames: TypeAlias = Mapping[str, str]
"""Namespace and name of pods by uid."""


class FullNames(Mapping[str, str], Generic[T]):
    """The full names of pods by uid, as they are asked for: making all of them takes long with many pods."""

    def __init__(self, pods: Mapping[str, T], pod_of: Callable[[T], Pod]) -> None:
        self._pods, self._pod_of = pods, pod_of

    def __getitem__(self, uid: str) -> str:
        return self._pod_of(self._pods[uid]).full_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)


class DeviceSite(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a resource on these NUMA nodes, and their holders."""

    at: DevicesAt
    holders: tuple[DeviceHolder, ...]
    stranded: tuple[str, ...] = ()
    """Devices that count as used without a holder."""


class MemoryHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A container with memory on NUMA nodes; a block of several nodes is not divided among them.

    Units: bytes.
    """

    pod: str
    container: str
    """Empty: the pod as a whole."""
    numa: NUMASet
    size: int


class MemorySite(msgspec.Struct, frozen=True, kw_only=True):
    """The free memory of one kind on a NUMA node, and the holders of the rest."""

    left: NUMAMemoryLeft
    holders: tuple[MemoryHolder, ...]


ResourceEvidence: TypeAlias = tuple[CPUsOfNUMA, ...] | tuple[MemorySite, ...] | tuple[DeviceSite, ...] | None
"""The free amounts and holders of a resource by NUMA node; None: its manager keeps no state."""


def resource_evidence(config: NodeConfig, held: Holdings, resource: str, names: PodNames) -> ResourceEvidence:
    """The free amounts and holders of a resource on each NUMA node."""
    if resource == CPU:
        policy = config.managers.static_cpu_policy
        if policy is None:
            return None
        return tuple(_named_cpus(site, names) for site in cpu_stock(policy, held.cpu))
    if held.devices.is_device_plugin_resource(resource):
        return device_sites(held.devices, resource, names)
    sites = free_memory(held.memory.machine, {resource: 0})
    holders: dict[int, list[MemoryHolder]] = {site.numa: [] for site in sites}
    for holder in _memory_holders(held.memory, resource, names):
        for numa in holder.numa:
            if numa in holders:
                holders[numa].append(holder)
    return tuple(MemorySite(left=site, holders=tuple(holders[site.numa])) for site in sites)


def device_sites(state: DeviceState, resource: str, names: PodNames) -> tuple[DeviceSite, ...]:
    """The devices of the resource by their NUMA nodes, with their holders."""
    stock = _named_stock(device_stock(state, resource), names)
    listed = state.device_lists.get(resource, EMPTY_DEVICE_LIST)
    sites = []
    for place in stock.places:
        local_devices = {device for device, mask in listed.numa_masks.items() if mask == place.numa.mask}
        holders = [
            replace(holder, devices=tuple(d for d in holder.devices if d in local_devices))
            for holder in stock.holders
        ]
        sites.append(
            DeviceSite(
                at=place,
                holders=tuple(holder for holder in holders if holder.devices),
                stranded=tuple(device for device in stock.stranded if device in local_devices),
            )
        )
    return tuple(sites)


def with_pod_names(reason: Reason, names: PodNames) -> Reason:
    """The reason with the names of pods in place of their uids."""
    match reason:
        case NotEnoughCPUs(where=where) | NotEnoughWholeCores(where=where):
            return replace(reason, where=tuple(_named_cpus(site, names) for site in where))
        case (
            NotEnoughDevices(stock=stock) | NoHealthyDevices(stock=stock) | HeldDevicesUnhealthy(stock=stock)
        ):
            return replace(reason, stock=_named_stock(stock, names))
        case _:
            return reason


def _named_cpus(site: CPUsOfNUMA, names: PodNames) -> CPUsOfNUMA:
    holders = [replace(holder, pod=names.get(holder.pod, holder.pod)) for holder in site.holders]
    return replace(site, holders=tuple(sorted(holders, key=lambda holder: (holder.pod, holder.container))))


def _named_stock(stock: DeviceStock, names: PodNames) -> DeviceStock:
    holders = [replace(holder, pod=names.get(holder.pod, holder.pod)) for holder in stock.holders]
    return replace(stock, holders=tuple(sorted(holders, key=lambda holder: (holder.pod, holder.container))))


def _memory_holders(state: MemoryState, resource: str, names: PodNames) -> list[MemoryHolder]:
    holders = []
    for pod in sorted(state.assignments):
        pod_level = state.pods.get(pod)
        for container, blocks in [("", pod_level)] if pod_level else sorted(state.assignments[pod].items()):
            holders += [
                MemoryHolder(
                    pod=names.get(pod, pod),
                    container=container,
                    numa=NUMASet(block.mask),
                    size=block.size,
                )
                for block in blocks
                if block.resource == resource and block.size
            ]
    return sorted(holders, key=lambda holder: (holder.pod, holder.container))
