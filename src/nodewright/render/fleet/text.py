"""What came of a fleet, as tables."""

from collections.abc import Iterator, Sequence

from nodewright.model.resource_names import CPU, MEMORY, PODS, in_order
from nodewright.render.amounts import readable
from nodewright.render.fleet.words import (
    cpus_text,
    devices_text,
    lack_text,
    numa_text,
    per_cent,
    reason_text,
    seconds,
    short_name,
    why_text,
)
from nodewright.render.tables import table
from nodewright.sim.fleet.room import ShapeRoom, total
from nodewright.sim.fleet.summary import FleetSummary, ShapeSummary
from nodewright.sim.fleet.values import Fate, FleetResult

_MOST_REASONS = 10
_NARROW = 100
"""Columns below which tables leave out what is also in others."""


def fleet_text(found: FleetSummary, *, columns: int) -> str:
    """The run in tables, none wider than that but for names."""
    parts = [_headline(found), _use(found), _shapes(found.shapes, columns=columns)]
    parts += [part for part in (_fragments(found), _lacks(found), _refusals(found, columns=columns)) if part]
    if found.probe is not None:
        parts.append(rooms_text(found.probe))
    parts.append(_times(found))
    return "\n".join(parts)


def pods_text(result: FleetResult, *, columns: int) -> str:
    """Where every pod went, and why."""
    nodes = [record.node.name for record in result.nodes]
    headers = ["POD", "FATE", "NODE", "ARRIVED", "WAITED", "CPUS", "NUMA", "DEVICES", "WHY"]
    rows = [
        (
            record.pod.full_name,
            record.fate.value,
            nodes[record.node] if record.node >= 0 else "-",
            seconds(record.arrived_s),
            seconds(record.placed_s - record.arrived_s) if record.placed_s >= 0 else "-",
            cpus_text(record.placement) or "-",
            numa_text(record.placement) or "-",
            devices_text(record.placement) or "-",
            why_text(record),
        )
        for record in result.pods
    ]
    keep = (0, 1, 2, 5, 6) if columns < _NARROW else range(len(headers))
    return table([headers[at] for at in keep], [[row[at] for at in keep] for row in rows])


def rooms_text(probe: Sequence[ShapeRoom]) -> str:
    """How many more pods of a kind fit, by shape of node, and why no more."""
    whole = total(probe)
    rows = [
        (
            str(one.room.nodes),
            str(one.room.fits),
            str(one.room.by_amounts),
            str(one.room.stranded),
            one.shape,
        )
        for one in probe
    ]
    rows.append((str(whole.nodes), str(whole.fits), str(whole.by_amounts), str(whole.stranded), "all"))
    return table(("NODES", "FITS", "BY AMOUNTS", "STRANDED", "MORE PODS OF THIS KIND ON"), rows)


def _headline(found: FleetSummary) -> str:
    fates = ", ".join(f"{count:,} {fate.value}" for fate, count in found.fates.items())
    told = f"{found.nodes:,} nodes, {found.pods:,} pods: {fates or 'none'}\n"
    if not found.complete:
        told += f"broken off at {seconds(found.ended_s)} of virtual time: this is how far it came\n"
    if found.shared_gpu_pods:
        devices = found.shared_gpu_milli / 1000
        told += (
            f"{found.shared_gpu_pods:,} pods want a part of a device ({devices:,.1f} devices together): "
            "accounted for, not placed\n"
        )
    return told


def _use(found: FleetSummary) -> str:
    rows = []
    for name in sorted(found.use, key=in_order):
        use = found.use[name]
        if not use.allocatable or name == PODS:
            continue
        rows.append(
            (
                short_name(name),
                readable(name, use.allocatable),
                readable(name, use.at_end),
                per_cent(use.at_end, use.allocatable),
                per_cent(use.mean, use.allocatable),
                per_cent(use.most, use.allocatable),
            )
        )
    return table(("RESOURCE", "ALLOCATABLE", "REQUESTED", "AT THE END", "MEAN", "MOST"), rows)


def _shapes(shapes: Sequence[ShapeSummary], *, columns: int) -> str:
    headers = ["NODES", "PODS", "CPU", "MEMORY", "REFUSED", "SHAPE"]
    rows = []
    for one in shapes:
        row = [str(one.nodes), str(one.pods)]
        for name in (CPU, MEMORY):
            asked, has = one.requested.get(name, 0), one.allocatable.get(name, 0)
            share = per_cent(asked, has)
            row.append(
                share if columns < _NARROW else f"{readable(name, asked)} of {readable(name, has)}, {share}"
            )
        rows.append((*row, str(one.refused), one.shape))
    return table(headers, rows)


def _fragments(found: FleetSummary) -> str:
    if not found.fragments:
        return ""
    rows = [
        (str(one.cpus), str(one.by_numa), str(one.by_node), str(one.by_node - one.by_numa))
        for one in found.fragments
    ]
    head = f"{found.free_cpus:,} CPUs are free to be given out. Pods of so many of them would fit:\n"
    return head + table(("CPUS", "IN ONE NUMA NODE", "IN ONE NODE", "ONLY ACROSS NUMA NODES"), rows)


def _lacks(found: FleetSummary) -> str:
    if not found.lacks:
        return ""
    rows = [(f"{count:,}", lack_text(lack)) for lack, count in found.lacks]
    return table(("WAITING", "BECAUSE OF"), rows)


def _refusals(found: FleetSummary, *, columns: int) -> str:
    if not found.refusals:
        return ""
    del columns
    rows = [(f"{one.count:,}", one.shape, reason_text(one.reason)) for one in found.refusals[:_MOST_REASONS]]
    more = len(found.refusals) - _MOST_REASONS
    return table(("REFUSED", "BY NODES OF", "FOR EXAMPLE"), rows) + (f"and {more} more\n" if more > 0 else "")


def _times(found: FleetSummary) -> str:
    return "".join(f"{line}\n" for line in _time_lines(found))


def _time_lines(found: FleetSummary) -> Iterator[str]:
    time = found.time_to_place
    if time.pods:
        yield (
            f"time to place: {time.at_once:,} of {time.pods:,} at once; median {seconds(time.median_s)}, "
            f"95 % within {seconds(time.p95_s)}, at most {seconds(time.most_s)}"
        )
    moved = [
        f"{count:,} {word}"
        for count, word in ((found.preemptions, "preempted"), (found.evictions, "evicted"))
        if count
    ]
    if moved:
        yield f"sent away: {', '.join(moved)}"
    if found.fates.get(Fate.LOOPING):
        yield "looping pods: their controller makes another one each time, and the same node refuses it each time"
