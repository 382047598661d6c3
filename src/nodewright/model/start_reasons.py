"""The facts that keep a kubelet from starting, whatever its state files say."""

from typing import TypeAlias

import msgspec

from nodewright.values.quantity import Quantity


class ConfigurationRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet does not take its configuration."""

    path: str
    """The field; empty: no field in particular."""
    error: str
    """The kubelet's words."""


class OverReserved(msgspec.Struct, frozen=True, kw_only=True):
    """More of a resource is reserved than there is: the kubelet does not start."""

    resource: str
    reservation: Quantity
    capacity: Quantity


class ReservedBeyondCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """More is reserved than there is, of these resources; the kubelet finds out when its managers have started."""

    over: tuple[OverReserved, ...]


StartReason: TypeAlias = ConfigurationRefused | ReservedBeyondCapacity
