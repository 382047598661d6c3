"""Fleets under several settings side by side, and the fewest nodes that hold a workload."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.model.fleet import FleetNode
from nodewright.model.resource_names import CPU
from nodewright.render.fleet.document import summary_document
from nodewright.render.fleet.words import per_cent, seconds
from nodewright.render.messages import message
from nodewright.render.tables import table
from nodewright.sim.fleet.axes import Point
from nodewright.sim.fleet.minimise import Fewest
from nodewright.sim.fleet.summary import FleetSummary
from nodewright.sim.fleet.values import Fate

_SIZES = (8, 16, 32)
_WIDE = 120
Swept = Sequence[tuple[Point, FleetSummary]]


def sweep_text(swept: Swept, *, columns: int) -> str:
    """One row a combination: who got in, what was refused, how long it took, what still fits.

    On few columns without what is only of interest beside the rest.
    """
    is_wide = columns >= _WIDE
    fates = [fate for fate in Fate if any(found.fates.get(fate) for _, found in swept)]
    sizes = [size for size in _SIZES if all(_fragment(found, size) is not None for _, found in swept)][
        :is_wide
    ]
    headers = [
        *(fate.value.upper() for fate in fates),
        "REFUSALS",
        *(["CPU", "P95 WAIT"] if is_wide else []),
        *(f"{size} CPUS ON A NUMA NODE" for size in sizes),
        *(["ROOM", "STRANDED"] if swept and swept[0][1].probe is not None else []),
        "SETTINGS",
    ]
    rows = []
    for point, found in swept:
        use = found.use.get(CPU)
        row = [f"{found.fates.get(fate, 0):,}" for fate in fates]
        row.append(f"{sum(one.count for one in found.refusals):,}")
        if is_wide:
            row.append(per_cent(use.mean, use.allocatable) if use is not None else "-")
            row.append(seconds(found.time_to_place.p95_s))
        row += [f"{_fragment(found, size):,}" for size in sizes]
        if found.room is not None:
            row += [f"{found.room.fits:,}", f"{found.room.stranded:,}"]
        rows.append((*row, point.name))
    return table(headers, rows) + _reasons(swept)


def _fragment(found: FleetSummary, size: int) -> int | None:
    return next((one.by_numa for one in found.fragments if one.cpus == size), None)


def _reasons(swept: Swept) -> str:
    """What the kubelets said, and how often under which settings; empty: nothing."""
    counts: dict[str, list[int]] = {}
    for at, (_, found) in enumerate(swept):
        for one in found.refusals:
            reason = message(one.reason).reason
            counts.setdefault(reason, [0] * len(swept))[at] += one.count
    if not counts:
        return ""
    rows = [
        (reason, f"{own[at]:,}", swept[at][0].name)
        for reason, own in counts.items()
        for at in range(len(swept))
        if own[at]
    ]
    return "\n" + table(("THE KUBELET SAID", "TIMES", "SETTINGS"), rows)


def sweep_document(swept: Swept, *, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The same as a document."""
    return {
        "sweep": [{"settings": dict(point.told), **summary_document(found)} for point, found in swept],
        "warnings": list(warnings),
    }


def fewest_text(found: Fewest, kinds: Sequence[FleetNode], *, exact: bool, most: int) -> str:
    """The fewest nodes, by kind, the bound, and whether it is proved."""
    if not found.counts and not found.is_complete:
        return f"broken off after {_runs(found)}: none was found that holds it; fewer than {found.bound:,} cannot\n"
    if not found.counts:
        return f"no number of these nodes up to {most:,} of a kind holds the workload\n"
    rows = [
        (str(count), kind.name, kind.shape) for count, kind in zip(found.counts, kinds, strict=True) if count
    ]
    text = table(("NODES", "LIKE", "SHAPE"), rows)
    if not found.is_complete:
        text = f"broken off after {_runs(found)}: these are the fewest until then\n{text}"
    if found.is_proved:
        return f"{text}\n{found.nodes:,} nodes hold it, and no fewer can: proved\n"
    how = (
        "the linear program over whole loads of nodes"
        if exact
        else "sums and large pods; --exact looks closer"
    )
    return (
        f"{text}\n{found.nodes:,} nodes hold it; fewer than {found.bound:,} cannot ({how}); "
        "between the two nothing is proved\n"
    )


def _runs(found: Fewest) -> str:
    return "1 run" if found.runs == 1 else f"{found.runs:,} runs"


def fewest_document(found: Fewest, kinds: Sequence[FleetNode], *, exact: bool) -> Mapping[str, Any]:
    """The same as a document."""
    return {
        "nodes": found.nodes if found.counts else None,
        "bound": found.bound,
        "proved": found.is_proved,
        "complete": found.is_complete,
        "boundBy": "linear program" if exact else "amounts",
        "runs": found.runs,
        "kinds": [
            {"name": kind.name, "shape": kind.shape, "nodes": count}
            for kind, count in zip(kinds, found.counts, strict=False)
            if count
        ],
    }
