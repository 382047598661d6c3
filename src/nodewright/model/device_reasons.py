"""The facts that decide which devices a container gets."""

from typing import Literal, TypeAlias

import msgspec

from nodewright.values.idset import NUMASet

# ---------------------------------------------------------------- what there is of a resource


class DevicesAt(msgspec.Struct, frozen=True, kw_only=True):
    """How many devices of a resource are on these NUMA nodes, and on all of them if there are several."""

    numa: NUMASet
    """Empty: the plugin does not say where they are."""
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
    """What there is of a resource, where it is and who has it."""

    resource: str
    places: tuple[DevicesAt, ...]
    holders: tuple[DeviceHolder, ...]
    stranded: tuple[str, ...]
    """Devices that count as in use though no container holds them, until some pod with devices is gone."""

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


class DeviceRequestChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A container holds devices, but not as many as it asks for now."""

    pod: str
    """The pod's uid."""
    container: str
    resource: str
    held: tuple[str, ...]
    requested: int


class DeviceUnregistered(msgspec.Struct, frozen=True, kw_only=True):
    """Containers hold devices of the resource, but no plugin has registered it since the kubelet started."""

    resource: str


class NoHealthyDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The resource is registered, but none of its devices is healthy."""

    stock: DeviceStock


class HeldDevicesUnhealthy(msgspec.Struct, frozen=True, kw_only=True):
    """A container that starts again holds devices that are not healthy any more."""

    stock: DeviceStock
    devices: tuple[str, ...]


class NotEnoughDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Fewer devices are free than are still needed."""

    stock: DeviceStock
    requested: int
    """How many the container asks for in all."""
    missing: int
    """How many of them could not be taken over from the pod's init containers."""
    available: int


class DevicePreferenceFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin was asked which devices it would prefer, and answered with an error."""

    resource: str
    error: str
    stranded: tuple[str, ...]
    """Devices picked before, which the kubelet goes on counting as in use."""


class PreferenceWanted(msgspec.Struct, frozen=True, kw_only=True):
    """No refusal yet: the plugin is to be asked which devices it prefers, and then the pod is looked at again."""

    resource: str
    container: str
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


class DeviceAllocationFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin was told to hand out these devices, and answered with an error."""

    resource: str
    error: str
    devices: tuple[str, ...]


class DevicePluginMissing(msgspec.Struct, frozen=True, kw_only=True):
    """The resource is registered, but its plugin is not known."""

    resource: str
    during: Literal["preference", "allocation"]


class DevicesMiscounted(msgspec.Struct, frozen=True, kw_only=True):
    """All devices were gone through and the count does not come out: a negative number was asked for."""

    resource: str
    requested: int
    got: int


class DeviceUnlisted(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet crashes: it looks up a device that the plugin does not list any more."""

    resource: str
    device: str


# ---------------------------------------------------------------- choices


class DeviceTier(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one rank: those that could be taken when it was their turn, and those that were."""

    why: Literal["reuse", "aligned", "preferred", "unaligned", "withoutTopology"]
    candidates: tuple[str, ...]
    taken: tuple[str, ...]


class DevicesChosen(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a container got, rank by rank."""

    resource: str
    affinity: NUMASet | None
    """The NUMA nodes agreed on; None: there was no agreement to follow."""
    tiers: tuple[DeviceTier, ...]


class UnhealthyDevicesReused(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet hands a container devices of its pod's init containers that are not healthy any more."""

    resource: str
    devices: tuple[str, ...]


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
DeviceRemark: TypeAlias = DevicesChosen | UnhealthyDevicesReused
DeviceReason: TypeAlias = DeviceRefusal | DeviceRemark
