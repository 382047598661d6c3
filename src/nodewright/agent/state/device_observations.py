"""Observations and effects that concern devices: part of the unions in `agent/state/agent_state.py`."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from nodewright.engine.core.devices.device_manager import DevicePluginError
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.devices import DeviceAllocationFailed, PreferenceWanted

# ---------------------------------------------------------------- state


class PreferenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The preferred-allocation queries of a pod that waits for its admission."""

    answers: Mapping[tuple[str, str], tuple[str, ...] | DevicePluginError] = {}
    """The plugins' answers, by container and resource."""
    is_pending: bool = True
    """Whether an answer is outstanding."""


class AllocatedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of a resource that a container holds."""

    container: str
    resource: str
    devices: tuple[str, ...]
    """Their ids, ascending."""
    response: bytes = b""
    """The plugin's ContainerAllocateResponse, encoded as protobuf."""


# ---------------------------------------------------------------- observations


class PluginDevicesListed(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a resource's plugin lists."""

    resource: str
    devices: tuple[Device, ...] | None
    """None: the plugin is gone for good, and the node has 0 of the resource."""
    preferred_allocation: str = "absent"
    """`asked` if the plugin offers GetPreferredAllocation."""


class PreferredAllocationReceived(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a plugin prefers for a container, or its error."""

    uid: str
    container: str
    resource: str
    preferred_devices: tuple[str, ...] | DevicePluginError


class DeviceAllocationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of AllocateDevices."""

    responses: Mapping[tuple[str, str], bytes] = {}
    """The plugins' responses, by container and resource."""
    failure: DeviceAllocationFailed | None = None
    """The first failure; no further plugin was called."""


# ---------------------------------------------------------------- effects


class AllocateDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Calls Allocate of the plugins for all devices that a pod holds, one after the other, until one fails."""

    uid: str
    pod: Pod
    devices: tuple[AllocatedDevices, ...]


class QueryPreferredAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """Calls GetPreferredAllocation of a plugin for a pod."""

    uid: str
    query: PreferenceWanted


DeviceObservation: TypeAlias = PluginDevicesListed | PreferredAllocationReceived
