"""The facts that decide which devices a container gets."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from nodewright.model.printable import counted
from nodewright.model.reasons.fact import KubeletText, ManagerFact, numa_nodes
from nodewright.model.values.golang import quoted
from nodewright.model.values.idset import NUMASet

# ---------------------------------------------------------------- the devices of a resource


class DevicesAt(msgspec.Struct, frozen=True, kw_only=True):
    """How many devices of a resource have this NUMA affinity; several NUMA nodes: each device is on all of them."""

    numa: NUMASet
    """Empty: the plugin reports no topology."""
    registered: int
    healthy: int
    free: int
    """Healthy and not in use."""


class DeviceHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A container and the devices of a resource that it holds."""

    pod: str
    """The pod's uid."""
    container: str
    devices: tuple[str, ...]


class DeviceStock(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a resource: how many, on which NUMA nodes, and which containers hold them."""

    resource: str
    places: tuple[DevicesAt, ...]
    holders: tuple[DeviceHolder, ...]
    stranded: tuple[str, ...]
    """Devices that count as in use though no container holds them, until some pod with devices is removed."""

    @property
    def registered(self) -> int:
        """How many the plugin lists."""
        return sum(place.registered for place in self.places)

    @property
    def healthy(self) -> int:
        """How many of them are healthy."""
        return sum(place.healthy for place in self.places)

    @property
    def free(self) -> int:
        """How many of those are not in use."""
        return sum(place.free for place in self.places)


# ---------------------------------------------------------------- refusals


class OwnDeviceFact(ManagerFact, frozen=True):
    """A fact that the kubelet does not report, so that its text is ours."""

    def kubelet_error(self) -> str:
        return self.sentence()


class DeviceRequestChanged(ManagerFact, frozen=True, kw_only=True):
    """A container holds another number of devices than it requests now.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """

    pod: str
    """The pod's uid."""
    container: str
    resource: str
    held: tuple[str, ...]
    requested: int

    def kubelet_error(self) -> str:
        return (
            f"pod {quoted(self.pod)} container {quoted(self.container)} changed request for resource "
            f"{quoted(self.resource)} from {len(self.held)} to {self.requested}"
        )

    def sentence(self) -> str:
        return (
            f"{self.resource}: {self.container} requests {self.requested} and already holds {_ids(self.held)}"
        )


class DeviceUnregistered(ManagerFact, frozen=True, kw_only=True):
    """Containers hold devices of the resource, but no plugin has registered it since the kubelet started.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """

    resource: str

    def kubelet_error(self) -> str:
        return f"cannot allocate unregistered device {self.resource}"

    def sentence(self) -> str:
        return f"{self.resource}: no device plugin has registered it since the kubelet started"


class NoHealthyDevices(ManagerFact, frozen=True, kw_only=True):
    """The resource is registered, but none of its devices is healthy.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """

    stock: DeviceStock

    def kubelet_error(self) -> str:
        return f"no healthy devices present; cannot allocate unhealthy devices {self.stock.resource}"

    def sentence(self) -> str:
        return f"{self.stock.resource}: none of {counted(self.stock.registered, 'device')} is healthy"


class HeldDevicesUnhealthy(ManagerFact, frozen=True, kw_only=True):
    """A container that restarts holds devices that have become unhealthy.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """

    stock: DeviceStock
    devices: tuple[str, ...]

    def kubelet_error(self) -> str:
        return (
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {self.stock.resource}"
        )

    def sentence(self) -> str:
        return f"{self.stock.resource}: the container holds {_ids(self.devices)}, no longer healthy"


class NotEnoughDevices(ManagerFact, frozen=True, kw_only=True):
    """Fewer devices are free than are still needed.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """

    stock: DeviceStock
    requested: int
    """How many the container requests in all."""
    missing: int
    """How many of them cannot be reused from the pod's init containers."""
    available: int

    def kubelet_error(self) -> str:
        return (
            f"requested number of devices unavailable for {self.stock.resource}. "
            f"Requested: {self.missing}, Available: {self.available}"
        )

    def sentence(self) -> str:
        return f"{self.stock.resource}: {'; '.join(self._parts())}"

    def _parts(self) -> Iterator[str]:
        stock = self.stock
        reused = self.requested - self.missing
        over = f", {reused} reused from an init container" if reused else ""
        yield f"{self.requested} requested{over}, {self.available} of {stock.registered} free"
        if stock.healthy < stock.registered:
            yield f"{stock.registered - stock.healthy} not healthy"
        if any(place.numa for place in stock.places):
            yield from map(_free_at, stock.places)
        for holder in stock.holders:
            yield f"{_ids(holder.devices)} held by {holder.container} of pod {holder.pod}"
        if stock.stranded:
            yield f"{_ids(stock.stranded)} counted as in use though no container holds them"


class DevicePreferenceFailed(ManagerFact, frozen=True, kw_only=True):
    """The plugin's GetPreferredAllocation returned an error.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """

    resource: str
    error: str
    stranded: tuple[str, ...]
    """Devices chosen before, which the kubelet continues to count as in use."""

    def kubelet_error(self) -> str:
        return f"device plugin GetPreferredAllocation rpc failed with err: {self.error}"

    def sentence(self) -> str:
        left = ""
        if self.stranded:
            left = f"; {_ids(self.stranded)} count as in use until a pod with devices is removed"
        return f"{self.resource}: the plugin's GetPreferredAllocation failed: {self.error}{left}"


class PreferenceWanted(OwnDeviceFact, frozen=True, kw_only=True):
    """Not a refusal yet: the plugin's GetPreferredAllocation is called first, then the pod is decided again."""

    resource: str
    container: str
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int

    def sentence(self) -> str:
        return f"{self.resource}: GetPreferredAllocation is called for {self.size} of {_ids(self.available)}"


class DeviceAllocationFailed(ManagerFact, frozen=True, kw_only=True):
    """The plugin's Allocate for these devices returned an error.

    Follows: v1.36, devicemanager/manager.go, allocateContainerResources.
    """

    resource: str
    error: str
    devices: tuple[str, ...]

    def kubelet_error(self) -> str:
        return self.error

    def sentence(self) -> str:
        return f"{self.resource}: the plugin's Allocate of {_ids(self.devices)} failed: {self.error}"


class DevicePluginMissing(ManagerFact, frozen=True, kw_only=True):
    """The resource is registered, but its plugin is not known.

    Follows: v1.36, devicemanager/manager.go, allocateContainerResources.
    """

    resource: str
    during: Literal["preference", "allocation"]

    def kubelet_error(self) -> str:
        if self.during == "preference":
            return f"endpoint not found in cache for a registered resource: {self.resource}"
        return f"unknown Device Plugin {self.resource}"

    def sentence(self) -> str:
        return f"{self.resource}: its device plugin is not known"


class DevicesMiscounted(ManagerFact, frozen=True, kw_only=True):
    """No devices are left to choose from and the count is still wrong: a negative number was requested.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    """

    resource: str
    requested: int
    got: int

    def kubelet_error(self) -> str:
        return (
            "unexpectedly allocated less resources than required. "
            f"Requested: {self.requested}, Got: {self.got}"
        )

    def sentence(self) -> str:
        return f"{self.resource}: {counted(self.requested, 'device')} cannot be allocated"


class DeviceUnlisted(OwnDeviceFact, frozen=True, kw_only=True):
    """The kubelet crashes: it looks up a device that the plugin no longer lists."""

    resource: str
    device: str

    def kubelet(self) -> KubeletText:
        """What happens to the kubelet.

        Departs: a kubelet that crashes reports nothing; the reason is then `KubeletCrashes`.
        """
        return KubeletText("KubeletCrashes", self.kubelet_error())

    def sentence(self) -> str:
        return f"{self.resource}: the kubelet crashes, because its plugin no longer lists {self.device}"


# ---------------------------------------------------------------- choices

_TIERS = {
    "reuse": "reused from an init container",
    "aligned": "on the NUMA nodes of the affinity",
    "preferred": "preferred by the plugin",
    "unaligned": "on other NUMA nodes",
    "withoutTopology": "without topology",
}


class DeviceTier(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one rank: the candidates when the kubelet reached this rank, and those that it chose."""

    why: Literal["reuse", "aligned", "preferred", "unaligned", "withoutTopology"]
    candidates: tuple[str, ...]
    taken: tuple[str, ...]


class DevicesChosen(OwnDeviceFact, frozen=True, kw_only=True):
    """The devices that a container got, rank by rank."""

    resource: str
    affinity: NUMASet | None
    """The NUMA affinity from the topology manager; None: no affinity."""
    tiers: tuple[DeviceTier, ...]

    def sentence(self) -> str:
        tiers = (f"{_ids(tier.taken)} {_TIERS[tier.why]}" for tier in self.tiers)
        return f"{self.resource}: {', then '.join(tiers)}"


class UnhealthyDevicesReused(OwnDeviceFact, frozen=True, kw_only=True):
    """The kubelet reuses devices of the pod's init containers that have become unhealthy."""

    resource: str
    devices: tuple[str, ...]

    def sentence(self) -> str:
        return f"{self.resource}: {_ids(self.devices)}, reused from an init container, are no longer healthy"


DeviceRefusal: TypeAlias = (
    DeviceRequestChanged
    | DeviceUnregistered
    | NoHealthyDevices
    | HeldDevicesUnhealthy
    | NotEnoughDevices
    | DevicePreferenceFailed
    | PreferenceWanted
    | DeviceAllocationFailed
    | DevicePluginMissing
    | DevicesMiscounted
    | DeviceUnlisted
)
DeviceEvidence: TypeAlias = DevicesChosen | UnhealthyDevicesReused
DeviceReason: TypeAlias = DeviceRefusal | DeviceEvidence


def _free_at(place: DevicesAt) -> str:
    return (
        f"{numa_nodes(place.numa) if place.numa else 'no NUMA node'}: {place.free} of {place.registered} free"
    )


def _ids(ids: Iterable[str]) -> str:
    return ", ".join(ids)
