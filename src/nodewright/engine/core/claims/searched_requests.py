"""The requests that a search is about, and the devices that it goes through."""

from typing import TypeAlias

from nodewright.engine.core.claims.allocation_values import (
    CapacityShort,
    DeviceID,
    Fact,
    Outcome,
)
from nodewright.engine.core.claims.cel import SelectorDevice
from nodewright.engine.core.claims.device_capacity import consumed_amounts
from nodewright.engine.core.claims.device_constraints import AttributeConstraint
from nodewright.engine.core.claims.device_pools import Pool
from nodewright.model.kubernetes.claims import (
    Device,
    DeviceClass,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceSlice,
)
from nodewright.model.kubernetes.objects import ResourceList

RequestSpec: TypeAlias = ExactDeviceRequest | DeviceSubRequest


class Candidate:
    """A device with its place, and its index in the order of the search."""

    __slots__ = ("device", "id", "index", "likeness", "piece", "pool", "seen_by_selectors")

    def __init__(self, index: int, pool: Pool, piece: ResourceSlice, device: Device) -> None:
        self.index, self.pool, self.piece, self.device = index, pool, piece, device
        self.id: DeviceID = (pool.driver, pool.name, device.name)
        self.seen_by_selectors: SelectorDevice | None = None
        self.likeness: tuple[object, ...] | None = None

    @property
    def name(self) -> str:
        """`driver/pool/device`."""
        return "/".join(self.id)


class SearchedRequest:
    """A request of a claim, or an alternative of one, with what a search finds out about it."""

    def __init__(
        self,
        place: tuple[int, int, int],
        claim_name: str,
        names: tuple[str, str],
        spec: RequestSpec,
        device_class: DeviceClass,
    ) -> None:
        self.claim, self.request, self.alternative = place
        self.claim_name, (self.request_name, self.alternative_name) = claim_name, names
        self.spec, self.device_class = spec, device_class
        self.count = spec.count
        self.all_devices: list[Candidate] | None = None
        """The devices of All."""
        self.constraints: tuple[AttributeConstraint, ...] = ()
        """Those that apply to it."""
        self.selectable: dict[int, Fact | None] = {}
        """By index of the device: why it may not serve the request."""
        self.rank = 0
        """Its place among all requests and alternatives of the search."""
        self.is_admin = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
        self.asked: ResourceList = spec.capacity.requests if spec.capacity else {}
        self._amounts: dict[int, ResourceList | tuple[Outcome, CapacityShort]] = {}

    @property
    def name(self) -> str:
        """The name in messages: of an alternative, its own."""
        return self.alternative_name or self.request_name

    @property
    def full_name(self) -> str:
        """The name in results: of an alternative, `request/alternative`."""
        return f"{self.request_name}/{self.alternative_name}" if self.alternative_name else self.request_name

    def consumed_amounts(self, candidate: Candidate) -> ResourceList | tuple[Outcome, CapacityShort]:
        """What the request consumes of the device's capacities, or why it cannot."""
        if candidate.index not in self._amounts:
            self._amounts[candidate.index] = consumed_amounts(self.asked, candidate.device.capacity)
        return self._amounts[candidate.index]
