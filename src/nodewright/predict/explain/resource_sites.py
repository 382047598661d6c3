"""What each NUMA node has of a resource, and which pods hold the rest, as text; equal NUMA nodes together."""

from nodewright.engine.node.resource_holders import DeviceSite, MemorySite, ResourceEvidence
from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.reasons.cpu import CPUsOfNUMA
from nodewright.model.reasons.devices import DeviceHolder, DevicesAt
from nodewright.model.values.idset import CPUSet, NUMASet


def sites_of(resource: str, sites: ResourceEvidence) -> tuple[str, ...]:
    """What each NUMA node has of the resource, and which pods hold the rest; equal NUMA nodes together."""
    if sites is None:
        return ()
    groups: dict[str, list[CPUsOfNUMA | MemorySite | DeviceSite]] = {}
    for site in sites:
        groups.setdefault(_alike(resource, site) or f"NUMA node {place_of(site)}", []).append(site)
    texts = []
    for text, group in groups.items():
        if len(group) >= _SMALLEST_GROUP:
            numa = NUMASet.from_ids(id_ for site in group for id_ in place_of(site))
            texts.append(f"NUMA nodes {numa}: {text} each")
        else:
            texts += [_site(resource, site) for site in group]
    return tuple(texts)


_SMALLEST_GROUP = 3
"""Fewer NUMA nodes are shown one by one."""


def _alike(resource: str, site: CPUsOfNUMA | MemorySite | DeviceSite) -> str:
    """What NUMA nodes without holders have in common; empty for a node that is shown by itself."""
    if site.holders:
        return ""
    match site:
        case CPUsOfNUMA():
            reserved = f", {len(site.reserved)} reserved" if site.reserved else ""
            count = len(site.free)
            return f"{count} CPU{'' if count == 1 else 's'} free{reserved}"
        case MemorySite(left=left) if len(left.group) <= 1:
            return f"{readable_amount(resource, left.free)} of {readable_amount(resource, left.allocatable)} free"
        case DeviceSite(at=at) if len(at.numa) == 1 and not site.stranded:
            unhealthy = f", {at.registered - at.healthy} not healthy" if at.healthy < at.registered else ""
            return f"{at.free} of {at.registered} free{unhealthy}"
        case _:
            return ""


def _site(resource: str, site: CPUsOfNUMA | MemorySite | DeviceSite) -> str:
    if isinstance(site, DeviceSite):
        stranded = [f"{', '.join(site.stranded)} counted as used without a holder"] if site.stranded else []
        return "; ".join([devices_at_text(site.at), *map(device_holder_text, site.holders), *stranded])
    if isinstance(site, CPUsOfNUMA):
        parts = [f"{cpus_text(site.free)} free" if site.free else "no CPU free"]
        parts += [f"{site.reserved} reserved"] if site.reserved else []
        parts += [
            f"{consumer_name(holder.pod, holder.container)} has {holder.cpus}" for holder in site.holders
        ]
        return f"NUMA node {site.numa}: {'; '.join(parts)}"
    memory = site.left
    parts = [
        f"{readable_amount(resource, memory.free)} of {readable_amount(resource, memory.allocatable)} free"
    ]
    if len(memory.group) > 1:
        parts.append(f"used together as {{{memory.group}}}")
    for holder in site.holders:
        spread = f" on {{{holder.numa}}}" if len(holder.numa) > 1 else ""
        size = readable_amount(resource, holder.size)
        parts.append(f"{consumer_name(holder.pod, holder.container)} has {size}{spread}")
    return f"NUMA node {memory.numa}: {'; '.join(parts)}"


def devices_at_text(place: DevicesAt) -> str:
    """The devices of a place, and how many are free."""
    where = numa_text(place.numa) if place.numa else "no NUMA node"
    unhealthy = (
        f", {place.registered - place.healthy} not healthy" if place.healthy < place.registered else ""
    )
    return f"{where}: {place.free} of {place.registered} free{unhealthy}"


def device_holder_text(holder: DeviceHolder) -> str:
    """A container with its devices."""
    return f"{consumer_name(holder.pod, holder.container)} has {', '.join(holder.devices)}"


def consumer_name(pod: str, container: str) -> str:
    """A container of a pod, or the pod as a whole."""
    return f"{pod} ({container})" if container else pod


def place_of(site: CPUsOfNUMA | MemorySite | DeviceSite) -> NUMASet:
    """The NUMA nodes of a site."""
    match site:
        case CPUsOfNUMA(numa=numa):
            return NUMASet.of(numa)
        case MemorySite(left=left):
            return NUMASet.of(left.numa)
        case DeviceSite(at=at):
            return at.numa


def numa_text(numa: NUMASet) -> str:
    """NUMA nodes, e.g. `NUMA nodes 0-1`."""
    return f"NUMA node{'s' if len(numa) > 1 else ''} {numa}"


def cpus_text(cpus: CPUSet) -> str:
    """CPUs, e.g. `CPUs 2-3`."""
    return f"CPU{'s' if len(cpus) > 1 else ''} {cpus}"
