"""The interfaces between the agent and device plugins, without gRPC."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from nodewright.agent.host.ports import DeviceSpec as DeviceFile
from nodewright.agent.host.ports import Mount
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.reasons.devices import PreferenceWanted

DEVICE_PLUGIN_API_VERSION = "v1beta1"
"""The API version of device plugins."""
MAX_DEVICES = 10_000
"""Devices of a resource; a plugin that lists more is refused."""


class DeviceRunContainerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The container options that device plugins request."""

    env: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    annotations: Mapping[str, str] = {}
    cdi_devices: tuple[str, ...] = ()


class DevicePlugins(Protocol):
    """The device plugins of a node, by resource.

    Errors: HostError, with the kubelet's text in `error`.
    """

    async def preferred_allocation(self, query: PreferenceWanted) -> tuple[str, ...]:
        """The devices that the plugin prefers."""

    async def allocate(self, resource: str, devices: tuple[str, ...]) -> bytes:
        """Allocates devices; the plugin's ContainerAllocateResponse, encoded."""

    async def pre_start_container(self, resource: str, devices: tuple[str, ...]) -> None:
        """Prepares devices for the start of a container."""


class SimulatedDevicePlugins:
    """Plugins of simulated nodes: every call succeeds, without preferences or container options."""

    async def preferred_allocation(self, query: PreferenceWanted) -> tuple[str, ...]:
        """No preference."""
        del query
        return ()

    async def allocate(self, resource: str, devices: tuple[str, ...]) -> bytes:
        """An empty response."""
        del resource, devices
        return b""

    async def pre_start_container(self, resource: str, devices: tuple[str, ...]) -> None:
        """Does nothing."""


class DevicePluginOptions(NamedTuple):
    """The options of a plugin."""

    pre_start_required: bool = False
    """Whether PreStartContainer must be called before each start of a container."""
    preferred_allocation_available: bool = False
    """Whether it implements GetPreferredAllocation."""


class DevicePluginClient(Protocol):
    """A client of one plugin. No call has a time limit of its own.

    Errors: HostError, with the kubelet's text in `error`.
    """

    async def options(self) -> DevicePluginOptions:
        """The plugin's options; waits until it listens."""

    def list_and_watch(self) -> AsyncIterator[tuple[Device, ...]]:
        """All its devices, and again after every change; ends when the plugin does."""

    async def preferred_allocation(self, query: PreferenceWanted) -> tuple[str, ...]:
        """The devices that it prefers."""

    async def allocate(self, devices: tuple[str, ...]) -> bytes:
        """Its response to Allocate."""

    async def pre_start_container(self, devices: tuple[str, ...]) -> None:
        """Calls PreStartContainer."""

    async def close(self) -> None:
        """Closes the connection."""


class PluginRegistration(NamedTuple):
    """A plugin's request to serve a resource."""

    resource: str
    versions: tuple[str, ...]
    """The API versions that it supports."""
    directory: Path
    endpoint: str
    """The name of its socket in that directory."""

    @property
    def socket(self) -> Path:
        """The path of the socket."""
        return self.directory / self.endpoint


class PluginInfo(NamedTuple):
    """A plugin's description of itself, before it is registered."""

    type: str
    name: str
    endpoint: str
    """Its endpoint; empty: the socket that was asked."""
    versions: tuple[str, ...]


class PluginRegistrationClient(Protocol):
    """A client of a plugin's registration socket. No call has a time limit of its own.

    Errors: HostError, with the kubelet's text in `error`.
    """

    async def get_info(self) -> PluginInfo:
        """The plugin's description of itself."""

    async def notify_registration_status(self, error: str) -> None:
        """Tells the plugin the result; an empty error: it is registered."""

    async def close(self) -> None:
        """Closes the connection."""


RegisterPlugin = Callable[[PluginRegistration], Awaitable[None]]
"""Registers a plugin.

Errors: PluginRegistrationError.
"""


class PluginRegistrationError(Exception):
    """A rejected registration, with the kubelet's text."""
