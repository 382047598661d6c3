"""The facts that keep a kubelet from starting, whatever its state files say."""

from dataclasses import dataclass
from typing import TypeAlias

from nodewright.values.quantity import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRefused:
    """The kubelet does not take its configuration."""

    path: str
    """The field; empty: no field in particular."""
    error: str
    """The kubelet's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverReserved:
    """More of a resource is reserved than there is: the kubelet does not start."""

    resource: str
    reservation: Quantity
    capacity: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedBeyondCapacity:
    """More is reserved than there is, of these resources; the kubelet finds out when its managers have started."""

    over: tuple[OverReserved, ...]


StartReason: TypeAlias = ConfigurationRefused | ReservedBeyondCapacity
