"""Why a kubelet does not start, independently of its state files."""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from nodewright.model.reasons.fact import Fact, KubeletText
from nodewright.model.values.quantity import Quantity


class ConfigurationRefused(Fact, frozen=True, kw_only=True):
    """The kubelet rejects its configuration."""

    path: str
    """The field; empty: no particular field."""
    error: str
    """The kubelet's error."""

    def kubelet(self) -> KubeletText:
        return KubeletText("", self.error)

    def sentence(self) -> str:
        return f"{self.path}: {self.error}" if self.path else self.error


class OverReserved(msgspec.Struct, frozen=True, kw_only=True):
    """More of a resource is reserved than its capacity: the kubelet does not start."""

    resource: str
    reservation: Quantity
    capacity: Quantity

    def sentence(self) -> str:
        """The fact in words, without a full stop."""
        excess = self.reservation - self.capacity
        return (
            f"{self.resource}: {self.reservation} reserved of {self.capacity}, {excess} too much; "
            "the kubelet does not start"
        )


class ReservedBeyondCapacity(Fact, frozen=True, kw_only=True):
    """More of these resources is reserved than their capacity; the kubelet checks this after its managers start."""

    over: tuple[OverReserved, ...]

    def kubelet(self) -> KubeletText:
        return KubeletText("", over_reservation_message(self.over))

    def sentence(self) -> str:
        return "; ".join(over.sentence() for over in self.over)


StartReason: TypeAlias = ConfigurationRefused | ReservedBeyondCapacity


def over_reservation_message(over: Iterable[OverReserved]) -> str:
    """The kubelet's error when more is reserved than the capacity.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, validateNodeAllocatable.
    Departs: resources by name, where the kubelet iterates over a map; it prints amounts as Go prints the structure,
        and so do we, except those beyond 64 bits, where it prints an address.
    """
    faults = (
        f'Resource "{excess.resource}" has a reservation of {_go_struct(excess.reservation)} '
        f"but capacity of {_go_struct(excess.capacity)}. Expected capacity >= reservation."
        for excess in over
    )
    return f"invalid Node Allocatable configuration. {' '.join(faults)}"


def _go_struct(amount: Quantity) -> str:
    if not amount.is_int64:
        return str(amount)
    return f"{{{{{amount.unscaled} {amount.scale}}} {{<nil>}} {amount.original_text} {amount.format}}}"
