"""The pools of devices that a node sees: their slices, and whether they are complete and valid."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import msgspec

from nodewright.engine.core.claims.allocation_values import AllocationError
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.cel import SelectorDevice
from nodewright.engine.core.claims.node_selection import NodeSelectorError, is_for_node
from nodewright.model.kubernetes.claims import CounterSet, Device, ResourceSlice, ResourceSliceSpec
from nodewright.model.kubernetes.cluster_objects import APINode


class IndexedSlices(tuple[ResourceSlice, ...]):  # noqa: SLOT001 - its indexes are cached
    """Slices that are looked up by node and by pool, so that a node does not look at those of all others."""

    @cached_property
    def of_nodes(self) -> dict[str, list[ResourceSlice]]:
        """Those of one node, by its name."""
        slices: dict[str, list[ResourceSlice]] = {}
        for item in self:
            slices.setdefault(item.spec.node_name or "", []).append(item)
        return slices

    @cached_property
    def for_many(self) -> list[ResourceSlice]:
        """Those that may concern several nodes."""
        return [item for item in self if item.spec.shared_counters or not item.spec.node_name]

    @cached_property
    def seen_by_selectors(self) -> dict[tuple[str, int, bool], tuple[Device, SelectorDevice]]:
        """What selectors see of devices, by driver, identity of the device, and whether selectors see that it is shared."""
        return {}

    @cached_property
    def by_pool(self) -> dict[tuple[str, str], list[ResourceSlice]]:
        """Those of each pool, by driver and name."""
        pools: dict[tuple[str, str], list[ResourceSlice]] = {}
        for item in self:
            pools.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
        return pools


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The slices of a driver's pool, of its highest generation."""

    driver: str
    name: str
    slices: tuple[ResourceSlice, ...] = ()
    """Those with devices for the node, in the order of the search."""
    elsewhere: tuple[ResourceSlice, ...] = ()
    """Those with devices for other nodes, if they were looked at."""
    counter_sets: dict[str, CounterSet] = {}
    is_incomplete: bool = False
    invalid: str = ""
    """Why the pool cannot be used."""

    @property
    def is_usable(self) -> bool:
        """Whether devices of it can be allocated."""
        return not (self.is_incomplete or self.invalid)

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


def pools_of_node(slices: Sequence[ResourceSlice], node: APINode, rules: AllocatorRules) -> tuple[Pool, ...]:
    """The pools in the order in which they are searched.

    Errors:  AllocationError for a node selector that does not parse.
    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/pools_incubating.go, GatherPools.
    Departs: pools and slices are sorted for the implementations and releases that leave them in random order, too.
    """
    pools = []
    indexed = slices if isinstance(slices, IndexedSlices) else IndexedSlices(slices)
    for (driver, name), relevant in _newest(slices_of_node(indexed, node, rules)).items():
        first = relevant[0].spec.pool
        everywhere = relevant
        if len(relevant) != first.resource_slice_count and rules.is_later:
            in_pool = indexed.by_pool[driver, name]
            if any(item.spec.pool.generation > first.generation for item in in_pool):
                continue
            everywhere = [item for item in in_pool if item.spec.pool.generation == first.generation]
        is_incomplete = len(everywhere) != first.resource_slice_count
        if is_incomplete and rules.counters_by_pool:
            pools.append(Pool(driver=driver, name=name, is_incomplete=True))
        else:
            pool = _pool(driver, name, relevant, everywhere, rules)
            pools.append(msgspec.structs.replace(pool, is_incomplete=True) if is_incomplete else pool)
    return tuple(
        sorted(
            pools, key=lambda pool: (rules.is_full and _has_conditions(pool.slices), pool.driver, pool.name)
        )
    )


def _has_conditions(slices: Iterable[ResourceSlice]) -> bool:
    return any(device.binding_conditions is not None for item in slices for device in item.spec.devices)


def slices_of_node(
    all_slices: Sequence[ResourceSlice], node: APINode, rules: AllocatorRules
) -> Iterator[ResourceSlice]:
    """The slices with devices or counters for the node: first those of this node alone."""
    slices = all_slices if isinstance(all_slices, IndexedSlices) else IndexedSlices(all_slices)
    name = node.metadata.name
    own = [
        item
        for item in (slices.of_nodes.get(name, ()) if name else ())
        if not _is_left_out(item.spec, rules) and not _is_counters(item.spec, rules)
    ]
    others = [
        (item, is_counters)
        for item in slices.for_many
        if not _is_left_out(item.spec, rules)
        and ((is_counters := _is_counters(item.spec, rules)) or not item.spec.node_name)
    ]
    yield from own
    for item, is_counters in others:
        try:
            if is_counters or _is_shared_with(item.spec, node):
                yield item
        except NodeSelectorError as error:
            text = f"failed to perform node selection for slice {item.metadata.name}: {error}"
            raise AllocationError(f"gather pool information: {text}") from None


def _is_counters(spec: ResourceSliceSpec, rules: AllocatorRules) -> bool:
    return bool(spec.shared_counters) and rules.counters_by_pool


def _is_left_out(spec: ResourceSliceSpec, rules: AllocatorRules) -> bool:
    return not rules.partitionable and (
        spec.per_device_node_selection is not None or _is_counters(spec, rules)
    )


def _is_shared_with(spec: ResourceSliceSpec, node: APINode) -> bool:
    if spec.all_nodes or spec.node_selector is not None:
        return is_for_node(spec, node)
    return bool(spec.per_device_node_selection) and any(is_for_node(device, node) for device in spec.devices)


def _newest(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], list[ResourceSlice]]:
    """The slices of the highest generation of each pool, by driver and name."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for item in slices:
        key = item.spec.driver, item.spec.pool.name
        known = pools.get(key)
        if known is None or item.spec.pool.generation > known[0].spec.pool.generation:
            pools[key] = [item]
        elif item.spec.pool.generation == known[0].spec.pool.generation:
            known.append(item)
    return pools


def _pool(
    driver: str,
    name: str,
    relevant: list[ResourceSlice],
    everywhere: list[ResourceSlice],
    rules: AllocatorRules,
) -> Pool:
    """The pool, checked.

    Follows: v1.36, pools_incubating.go, buildPool.
    """
    last = rules.is_full and not rules.combined
    ordered = sorted(relevant, key=lambda item: (last and _has_conditions([item]), item.metadata.name))
    splits = rules.partitionable and rules.counters_by_pool
    devices = tuple(item for item in ordered if not (splits and item.spec.shared_counters))
    if duplicate := _first_duplicate(device.name for item in devices for device in item.spec.devices):
        return Pool(driver=driver, name=name, invalid=f"duplicate device name {duplicate}")
    if not splits:
        return Pool(driver=driver, name=name, slices=devices)
    sets = [counters for item in ordered for counters in item.spec.shared_counters]
    if duplicate := _first_duplicate(counters.name for counters in sets):
        return Pool(driver=driver, name=name, invalid=f"duplicate counter set name {duplicate}")
    counter_sets = {counters.name: counters for counters in sets}
    known = {item.metadata.name for item in ordered}
    elsewhere = sorted(
        (item for item in everywhere if item.metadata.name not in known), key=lambda item: item.metadata.name
    )
    for item in (*ordered, *elsewhere):
        if unknown := _unknown_counter(item, counter_sets):
            return Pool(driver=driver, name=name, invalid=unknown)
    return Pool(
        driver=driver, name=name, slices=devices, elsewhere=tuple(elsewhere), counter_sets=counter_sets
    )


def _first_duplicate(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _unknown_counter(item: ResourceSlice, counter_sets: dict[str, CounterSet]) -> str:
    """What a device of the slice consumes that the pool does not have; empty: nothing."""
    for device in item.spec.devices:
        for consumed in device.consumes_counters:
            counters = counter_sets.get(consumed.counter_set)
            if counters is None:
                return f"counter set {consumed.counter_set} not found"
            for name in sorted(consumed.counters):
                if name not in counters.counters:
                    return f"counter {name} not found in counter set {counters.name}"
    return ""
