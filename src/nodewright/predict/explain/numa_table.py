"""What is free of each resource on each NUMA node, as a table."""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

import msgspec

from nodewright.engine.node.resource_holders import DeviceSite, MemorySite, ResourceEvidence
from nodewright.model.kubernetes.resource_names import is_in_bytes, readable_amount
from nodewright.model.reasons.cpu import CPUsOfNUMA
from nodewright.model.values.idset import NUMASet
from nodewright.predict.explain.explanation import Explanation, ResourceView
from nodewright.predict.explain.reason_tree import numa_sets_text

_NAMED_HOLDERS = 2


class NUMACell(msgspec.Struct, frozen=True):
    """What is free of a resource in one place."""

    text: str
    is_enough: bool
    """Whether this place alone has what is requested."""
    holders: str = ""
    """The pods that have the rest."""


class NUMAColumn(msgspec.Struct, frozen=True):
    """A resource."""

    resource: str
    requested: str
    hint: str
    """The hint of its manager, as text."""


class NUMARow(msgspec.Struct, frozen=True):
    """NUMA nodes with equal cells; a cell is None where the place has nothing of the resource."""

    name: str
    cells: tuple[NUMACell | None, ...]


class NUMATable(msgspec.Struct, frozen=True):
    """The resources of one container, or of all together, on the NUMA nodes."""

    container: str
    """Empty: the pod as a whole."""
    columns: tuple[NUMAColumn, ...]
    rows: tuple[NUMARow, ...]


def numa_tables(explanation: Explanation) -> tuple[NUMATable, ...]:
    """A table for each round of the topology manager in which a manager knows what is free."""
    return tuple(
        table
        for numa_round in explanation.rounds
        if (table := _round_table(numa_round.container, numa_round.resources)) is not None
    )


def _round_table(container: str, views: Iterable[ResourceView]) -> NUMATable | None:
    columns = [
        (NUMAColumn(view.hints.resource, _requested(view), _hint(view)), view.requested, view.sites)
        for view in views
        if view.sites and view.hints.resource
    ]
    return _table(container, columns) if columns else None


def _requested(view: ResourceView) -> str:
    if view.requested is None:
        return "some"
    return _amount(view.hints.resource, view.requested)


def _amount(resource: str, amount: int) -> str:
    return readable_amount(resource, amount) if is_in_bytes(resource) else f"{amount:,}"


def _hint(view: ResourceView) -> str:
    hints = view.hints
    if hints.says == "no opinion":
        return "any"
    if hints.says == "impossible":
        return "nowhere enough"
    if hints.preferred:
        return f"prefers {numa_sets_text(hints.preferred)}"
    return f"needs {{{hints.narrowest}}}" if hints.narrowest else "nothing fits"


def _table(container: str, columns: Sequence[tuple[NUMAColumn, int | None, ResourceEvidence]]) -> NUMATable:
    cells = [dict(_cells(column.resource, requested, sites or ())) for column, requested, sites in columns]
    places = sorted(
        {place for by_place in cells for place in by_place}, key=lambda p: (len(p) != 1, tuple(p))
    )
    joined: dict[tuple[NUMACell | None, ...], list[NUMASet]] = {}
    for place in places:
        joined.setdefault(tuple(by_place.get(place) for by_place in cells), []).append(place)
    rows = tuple(NUMARow(_name(equal), key) for key, equal in joined.items())
    return NUMATable(container, tuple(column for column, _, _ in columns), rows)


def _name(places: Sequence[NUMASet]) -> str:
    """The name of places with equal cells."""
    single = NUMASet()
    for place in places:
        single |= place if len(place) == 1 else NUMASet()
    several = [f"{{{place}}}" if place else "no NUMA node" for place in places if len(place) != 1]
    return ", ".join([*([f"NUMA {single}"] if single else []), *several])


def _cells(
    resource: str, requested: int | None, sites: Iterable[CPUsOfNUMA | MemorySite | DeviceSite]
) -> Iterator[tuple[NUMASet, NUMACell]]:
    for site in sites:
        place, free, whole = _amounts(site)
        text = f"{_amount(resource, free)} of {_amount(resource, whole)} free"
        pods = list(dict.fromkeys(holder.pod for holder in site.holders))
        more = f" and {len(pods) - _NAMED_HOLDERS} more" if len(pods) > _NAMED_HOLDERS else ""
        is_enough = requested is None or free >= requested
        yield place, NUMACell(text, is_enough, f"{', '.join(pods[:_NAMED_HOLDERS])}{more}")


def _amounts(site: CPUsOfNUMA | MemorySite | DeviceSite) -> tuple[NUMASet, int, int]:
    """The place of a resource, with the free and the whole amount."""
    match site:
        case CPUsOfNUMA(numa=numa, free=free, reserved=reserved):
            held = sum(len(holder.cpus) for holder in site.holders)
            return NUMASet.of(numa), len(free), len(free) + len(reserved) + held
        case MemorySite(left=left):
            return NUMASet.of(left.numa), left.free, left.allocatable
        case DeviceSite(at=at):
            return at.numa, at.free, at.registered
        case _:
            assert_never(site)
