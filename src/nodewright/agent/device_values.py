"""What the agent sees and does of devices: values, part of the lists in `agent/values.py`."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from nodewright.core.devices.manager import PluginError
from nodewright.model.device_reasons import DeviceAllocationFailed, PreferenceWanted
from nodewright.model.objects import Pod
from nodewright.model.profile import Device

# ---------------------------------------------------------------- what is known


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on which nothing is decided before a plugin has answered."""

    answers: Mapping[tuple[str, str], tuple[str, ...] | PluginError] = {}
    """What plugins have said, by container and resource."""
    is_open: bool = True
    """Whether one of them is being asked."""


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of a resource that a container holds."""

    container: str
    resource: str
    devices: tuple[str, ...]
    """Their ids, ascending."""
    response: bytes = b""
    """What the plugin said when it handed them out: a ContainerAllocateResponse as protobuf has it."""


# ---------------------------------------------------------------- what is seen


class DevicesSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugin of a resource says of its devices."""

    resource: str
    devices: tuple[Device, ...] | None
    """None: it has been gone for so long that the resource is not the node's any more."""
    preference: str = "absent"
    """`asked`, if it can be asked which devices it prefers."""


class PreferenceAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin has said which devices it prefers for a container, or why it does not say."""

    uid: str
    container: str
    resource: str
    answer: tuple[str, ...] | PluginError


class Allocated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of AllocateDevices."""

    responses: Mapping[tuple[str, str], bytes] = {}
    """What plugins said, by container and resource."""
    failure: DeviceAllocationFailed | None = None
    """Which of them refused, and why; the others were not asked any more."""


# ---------------------------------------------------------------- what is done


class AllocateDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Tell plugins, one after the other, to hand out what a pod holds; the first that refuses decides."""

    uid: str
    pod: Pod
    uses: tuple[DeviceUse, ...]


class AskPreference(msgspec.Struct, frozen=True, kw_only=True):
    """Find out which devices a plugin prefers for a pod."""

    uid: str
    question: PreferenceWanted


DeviceSeen: TypeAlias = DevicesSeen | PreferenceAnswered
