"""Who has what of a resource, where: pods by their names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.core.cpu.evidence import cpus_by_numa
from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.devices.evidence import device_stock
from nodewright.core.devices.state import UNLISTED, DeviceState
from nodewright.core.memory.state import MemoryState, left_over
from nodewright.model.cpu_reasons import CPUsOfNUMA, NotEnoughCPUs, NotEnoughWholeCores
from nodewright.model.device_reasons import (
    DeviceHolder,
    DevicesAt,
    DeviceStock,
    HeldDevicesUnhealthy,
    NoHealthyDevices,
    NotEnoughDevices,
)
from nodewright.model.memory_reasons import NUMAMemoryLeft
from nodewright.model.reasons import Reason
from nodewright.model.resource_names import CPU
from nodewright.node.config import NodeConfig
from nodewright.node.providers import CPUs, Holdings
from nodewright.values.idset import NUMASet

Names: TypeAlias = Mapping[str, str]
"""Namespace and name of pods by uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSite:
    """The devices of a resource on these NUMA nodes, and who has them."""

    at: DevicesAt
    holders: tuple[DeviceHolder, ...]
    stranded: tuple[str, ...] = ()
    """Devices that count as in use though nobody has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHolder:
    """A container that holds memory on NUMA nodes; on several: together, which part is where counts for nobody.

    Units: bytes.
    """

    pod: str
    container: str
    """Empty: the pod as a whole."""
    numa: NUMASet
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySite:
    """What of one kind of memory is left on a NUMA node, and who has the rest."""

    left: NUMAMemoryLeft
    holders: tuple[MemoryHolder, ...]


Evidence: TypeAlias = tuple[CPUsOfNUMA, ...] | tuple[MemorySite, ...] | tuple[DeviceSite, ...] | None
"""Who has what of a resource; None: its manager keeps no books."""


def evidence(config: NodeConfig, held: Holdings, resource: str, names: Names) -> Evidence:
    """What there is of a resource on each NUMA node, and who has it."""
    if resource == CPU:
        policy = next((one.policy for one in config.managers.providers if isinstance(one, CPUs)), None)
        if not isinstance(policy, StaticPolicy):
            return None
        return tuple(_named_cpus(one, names) for one in cpus_by_numa(policy, held.cpu))
    if held.devices.knows(resource):
        return device_sites(held.devices, resource, names)
    sites = left_over(held.memory.machine, {resource: 0})
    holders = _memory_holders(held.memory, resource, names)
    return tuple(
        MemorySite(left=one, holders=tuple(each for each in holders if one.numa in each.numa))
        for one in sites
    )


def device_sites(state: DeviceState, resource: str, names: Names) -> tuple[DeviceSite, ...]:
    """The devices of the resource by the NUMA nodes that they are on, and who has them."""
    stock, listed = _named_stock(device_stock(state, resource), names), state.lists.get(resource, UNLISTED)
    sites = []
    for place in stock.places:
        here = {device for device, mask in listed.masks.items() if mask == place.numa.mask}
        holders = [replace(one, devices=tuple(d for d in one.devices if d in here)) for one in stock.holders]
        sites.append(
            DeviceSite(
                at=place,
                holders=tuple(one for one in holders if one.devices),
                stranded=tuple(device for device in stock.stranded if device in here),
            )
        )
    return tuple(sites)


def with_names(reason: Reason, names: Names) -> Reason:
    """The reason with the names of pods in place of their uids."""
    match reason:
        case NotEnoughCPUs(where=where) | NotEnoughWholeCores(where=where):
            return replace(reason, where=tuple(_named_cpus(one, names) for one in where))
        case (
            NotEnoughDevices(stock=stock) | NoHealthyDevices(stock=stock) | HeldDevicesUnhealthy(stock=stock)
        ):
            return replace(reason, stock=_named_stock(stock, names))
        case _:
            return reason


def _named_cpus(site: CPUsOfNUMA, names: Names) -> CPUsOfNUMA:
    holders = [replace(one, pod=names.get(one.pod, one.pod)) for one in site.holders]
    return replace(site, holders=tuple(sorted(holders, key=lambda one: (one.pod, one.container))))


def _named_stock(stock: DeviceStock, names: Names) -> DeviceStock:
    holders = [replace(one, pod=names.get(one.pod, one.pod)) for one in stock.holders]
    return replace(stock, holders=tuple(sorted(holders, key=lambda one: (one.pod, one.container))))


def _memory_holders(state: MemoryState, resource: str, names: Names) -> list[MemoryHolder]:
    found = []
    for pod in sorted(state.assignments):
        whole = state.pods.get(pod)
        for container, blocks in [("", whole)] if whole else sorted(state.assignments[pod].items()):
            found += [
                MemoryHolder(
                    pod=names.get(pod, pod),
                    container=container,
                    numa=NUMASet.from_ids(block.numa),
                    size=block.size,
                )
                for block in blocks
                if block.resource == resource and block.size
            ]
    return sorted(found, key=lambda one: (one.pod, one.container))
