"""Counters that devices of a pool share: what is available, and what a search consumes."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from nodewright.engine.core.claims.allocation_values import CounterShort, DevicesInUse
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.device_pools import Pool
from nodewright.model.kubernetes.claims import CounterSet, Device, ResourceSlice
from nodewright.model.values.quantity import Quantity, QuantityFormat

_Number: TypeAlias = int | Fraction
_CounterKey: TypeAlias = tuple[str, str]
"""Counter set and counter."""


class CounterLedger:
    """The counters during a search.

    Two defects of Kubernetes are followed: what is available is looked up by the name of the pool alone, so that pools
    of one name and several drivers are mixed up; and what a device consumes is given back by `give_back` only, which the
    search does not call for a device that a taint or a constraint refuses.

    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go,
        checkAvailableCounters, deallocateCountersForDevice.
    """

    def __init__(self, in_use: DevicesInUse, rules: AllocatorRules) -> None:
        self._in_use, self._rules = in_use, rules
        self._available: dict[str, dict[_CounterKey, _Number]] = {}
        self._consumed: dict[str, dict[_CounterKey, _Number]] = {}

    def consume(self, pool: Pool, item: ResourceSlice, device: Device) -> bool:
        """Whether there is enough for the device, which then has it."""
        key = self._key(pool, item)
        available = self._available.get(key)
        if available is None:
            available = self._available[key] = self._available_counters(pool, item)
        consumed = self._consumed.setdefault(key, {})
        _add(consumed, device, 1)
        # All counters are compared: one that others have overdrawn refuses any device that consumes counters.
        if all(consumed.get(counter, 0) <= amount for counter, amount in available.items()):
            return True
        _add(consumed, device, -1)
        return False

    def give_back(self, pool: Pool, item: ResourceSlice, device: Device) -> None:
        """Undoes what the device consumed."""
        _add(self._consumed[self._key(pool, item)], device, -1)

    def forget(self) -> None:
        """Gives everything back."""
        self._consumed.clear()

    def shortage(self, pool: Pool, item: ResourceSlice, device: Device) -> CounterShort | None:
        """The first counter that is too low for the device, by names; None: there is enough."""
        key = self._key(pool, item)
        consumed, needed = self._consumed.get(key, {}), dict[_CounterKey, _Number]()
        _add(needed, device, 1)
        for (counter_set, counter), amount in sorted(self._available.get(key, {}).items()):
            before, more = (counts.get((counter_set, counter), 0) for counts in (consumed, needed))
            if before + more > amount:
                return CounterShort(
                    counter_set, counter, _quantity(amount), _quantity(before), _quantity(more)
                )
        return None

    def _key(self, pool: Pool, item: ResourceSlice) -> str:
        if not self._rules.counters_by_pool:
            return item.metadata.name
        return pool.name if self._rules.counters_by_name else str(pool)

    def _available_counters(self, pool: Pool, item: ResourceSlice) -> dict[_CounterKey, _Number]:
        """What allocated devices leave, perhaps less than nothing."""
        by_pool = self._rules.counters_by_pool
        sets: Mapping[str, CounterSet] = (
            pool.counter_sets if by_pool else {each.name: each for each in item.spec.shared_counters}
        )
        left = {
            (counters.name, name): _exact(counter.value)
            for counters in sets.values()
            for name, counter in counters.counters.items()
        }
        in_use = self._in_use
        for piece in (*pool.slices, *pool.elsewhere) if by_pool else (item,):
            for device in piece.spec.devices:
                device_id = (pool.driver, pool.name, device.name)
                is_shared = self._rules.is_latest and device_id in in_use.shared
                if device.consumes_counters and (device_id in in_use.exclusive or is_shared):
                    _add(left, device, -1, known_only=True)
        return left


def _add(
    counts: dict[_CounterKey, _Number], device: Device, factor: int, *, known_only: bool = False
) -> None:
    for consumed in device.consumes_counters:
        for name, counter in consumed.counters.items():
            key = consumed.counter_set, name
            if key in counts or not known_only:
                counts[key] = counts.get(key, 0) + factor * _exact(counter.value)


def _exact(amount: Quantity) -> _Number:
    if amount.scale >= 0:
        whole: int = amount.unscaled * 10**amount.scale
        return whole
    return amount.as_fraction()


def _quantity(number: _Number) -> Quantity:
    if isinstance(number, int):
        return Quantity.of(number, QuantityFormat.BINARY_SI)
    return Quantity.parse(f"{number.numerator * 10**9 // number.denominator}n")
