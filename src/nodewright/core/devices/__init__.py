"""Which devices? The device manager."""

from nodewright.core.devices.manager import DeviceManager
from nodewright.core.devices.state import DeviceState

__all__ = ["DeviceManager", "DeviceState"]
