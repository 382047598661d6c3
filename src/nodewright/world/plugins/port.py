"""What the agent asks of device plugins; gRPC stands behind it, and is not needed to read this."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from nodewright.model.device_reasons import PreferenceWanted
from nodewright.model.profile import Device
from nodewright.world.ports import Device as DeviceFile
from nodewright.world.ports import Mount

VERSION = "v1beta1"
"""Of the interface between a kubelet and device plugins."""


class Gear(msgspec.Struct, frozen=True, kw_only=True):
    """What plugins want a container to have."""

    env: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    annotations: Mapping[str, str] = {}
    cdi_devices: tuple[str, ...] = ()


class DevicePlugins(Protocol):
    """The plugins of a node, by resource.

    Errors: WorldError, whose `error` is the text that a kubelet would give.
    """

    async def preferred(self, question: PreferenceWanted) -> tuple[str, ...]:
        """Which devices the plugin prefers."""

    async def allocate(self, resource: str, devices: tuple[str, ...]) -> bytes:
        """The plugin's answer to being told to hand out these devices: a ContainerAllocateResponse."""

    async def before_start(self, resource: str, devices: tuple[str, ...]) -> None:
        """The devices are ready for a container that is about to start with them."""


class WillingPlugins:
    """Plugins of nodes that are made up: they do as told, and have no wishes."""

    async def preferred(self, question: PreferenceWanted) -> tuple[str, ...]:
        """No preference."""
        del question
        return ()

    async def allocate(self, resource: str, devices: tuple[str, ...]) -> bytes:
        """Nothing that the container would need."""
        del resource, devices
        return b""

    async def before_start(self, resource: str, devices: tuple[str, ...]) -> None:
        """They are ready."""


class PluginOptions(NamedTuple):
    """What a plugin offers, or demands."""

    starts_containers: bool = False
    """Whether it is to be told before each start of a container."""
    has_preference: bool = False
    """Whether it can be asked which devices it prefers."""


class PluginLine(Protocol):
    """A line to one plugin. None of the calls has a time limit of its own.

    Errors: WorldError, whose `error` is the text that a kubelet would give.
    """

    async def options(self) -> PluginOptions:
        """What it offers; waits for it to listen."""

    def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        """All its devices, and all of them again whenever something about them changes; ends when the plugin does."""

    async def preferred(self, question: PreferenceWanted) -> tuple[str, ...]:
        """Which devices it prefers."""

    async def allocate(self, devices: tuple[str, ...]) -> bytes:
        """Its answer to being told to hand out these devices."""

    async def before_start(self, devices: tuple[str, ...]) -> None:
        """It has done what it does before a container starts."""

    async def close(self) -> None:
        """Hang up."""


class Registration(NamedTuple):
    """Somebody says that he is the plugin of a resource."""

    resource: str
    versions: tuple[str, ...]
    """Of the interface, those that he speaks."""
    directory: Path
    endpoint: str
    """The name of the socket in that directory, on which he listens."""

    @property
    def socket(self) -> Path:
        """The path of the socket."""
        return self.directory / self.endpoint


class PluginInfo(NamedTuple):
    """What a plugin says of itself that waits to be registered."""

    type: str
    name: str
    endpoint: str
    """Where it listens; empty: where it was asked."""
    versions: tuple[str, ...]


class RegistryLine(Protocol):
    """A line to a plugin that waits on a socket to be registered. None of the calls has a time limit of its own.

    Errors: WorldError, whose `error` is the text that a kubelet would give.
    """

    async def info(self) -> PluginInfo:
        """Who it is."""

    async def notify(self, error: str) -> None:
        """It knows what became of it; empty: it is registered."""

    async def close(self) -> None:
        """Hang up."""


Register = Callable[[Registration], Awaitable[None]]
"""Takes a plugin in.

Errors: RegistrationError.
"""


class RegistrationError(Exception):
    """A registration that is not taken; the text is what a kubelet would say."""
