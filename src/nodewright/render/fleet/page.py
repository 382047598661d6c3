"""What came of a fleet as one page that needs nothing else: use over time, fragments, shapes, reasons."""

from collections.abc import Iterator, Sequence
from html import escape

from nodewright.model.resource_names import PODS, in_order
from nodewright.render.amounts import readable
from nodewright.render.fleet.plots import Bar, Line, bars_svg, lines_svg, round_top
from nodewright.render.fleet.words import lack_text, per_cent, reason_text, seconds, short_name
from nodewright.render.report import STYLE
from nodewright.sim.fleet.room import total
from nodewright.sim.fleet.summary import FleetSummary
from nodewright.sim.fleet.values import FleetResult

_STYLE = """
:root { --c0: #1f5fbf; --c1: #b3541e; --c2: #17683a; --c3: #7a3fa0 } @media (prefers-color-scheme: dark) { :root {
  --c0: #7fb0ff; --c1: #f2a46b; --c2: #6fcf97; --c3: #c79bf0 } }
.grid { stroke: var(--line); stroke-width: .5 } svg .end { text-anchor: end } svg .middle { text-anchor: middle }
.curve { fill: none; stroke-width: 1.8 } .c0 { stroke: var(--c0) } .c1 { stroke: var(--c1); stroke-dasharray: 7 3 }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3 } .c3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3 }
.bar { fill: var(--c0) } .lost { fill: var(--c1) }
.legend svg { display: inline-block; vertical-align: middle; margin-right: .4em }
table { border-collapse: collapse; font-size: .9rem } td, th { text-align: left; padding: .15rem .9rem .15rem 0;
  vertical-align: top } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
"""
_CURVES = 4
_MOST_ROWS = 20
Rows = Sequence[Sequence[str]]


def fleet_page(found: FleetSummary, result: FleetResult, notes: Sequence[str] = ()) -> str:
    """The run as one HTML document without scripts and without anything to be fetched.

    ``notes`` stand at the end: what was assumed.
    """
    title = f"{found.nodes:,} nodes, {found.pods:,} pods"
    fates = ", ".join(f"{count:,} {fate.value}" for fate, count in found.fates.items())
    broken = "" if found.complete else " The run was broken off: this is how far it came."
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}{_STYLE}</style></head>',
        f'<body><header><h1>{title}</h1><div class="soft">{escape(fates)}; {seconds(found.ended_s)} of virtual time.',
        f"{broken}</div></header><main>",
        *_over_time(found),
        *_used(found),
        *_shapes(found),
        *_fragments(found),
        *_reasons(found),
        *_times(found, result),
        *(f'<p class="soft">{escape(note)}</p>' for note in notes),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _over_time(found: FleetSummary) -> Iterator[str]:
    samples = found.samples
    if len(samples) < 2:
        return
    names = [
        name
        for name in sorted(found.use, key=in_order)
        if found.use[name].most and found.use[name].allocatable and name != PODS
    ][:_CURVES]
    lines = [
        Line(
            short_name(name),
            f"c{at}",
            [(one.at_s, one.requested.get(name, 0) / found.use[name].allocatable) for one in samples],
        )
        for at, name in enumerate(names)
    ]
    yield "<h2>What is requested, of what there is</h2>"
    yield f'<div class="scroll">{lines_svg("requested of allocatable, over time", lines)}</div>'
    yield _legend(lines)
    most = round_top(max(max(one.running, one.waiting) for one in samples))
    pods = [
        Line("running", "c0", [(one.at_s, one.running / most) for one in samples]),
        Line("waiting", "c1", [(one.at_s, one.waiting / most) for one in samples]),
    ]
    yield "<h2>Pods</h2>"
    yield f'<div class="scroll">{lines_svg("pods over time", pods, most=most)}</div>'
    yield _legend(pods)


def _legend(lines: Sequence[Line]) -> str:
    entries = "".join(
        f'<li><svg width="34" height="10" aria-hidden="true"><line class="curve {one.style}" x1="0" x2="34" y1="5" y2="5"/>'
        f"</svg>{escape(one.name)}</li>"
        for one in lines
    )
    return f'<ul class="legend">{entries}</ul>'


def _used(found: FleetSummary) -> Iterator[str]:
    rows = [
        (
            short_name(name),
            readable(name, use.allocatable),
            per_cent(use.at_end, use.allocatable),
            per_cent(use.mean, use.allocatable),
            per_cent(use.most, use.allocatable),
        )
        for name in sorted(found.use, key=in_order)
        if (use := found.use[name]).allocatable and name != PODS
    ]
    yield "<h2>Use</h2>"
    yield _table(("Resource", "Allocatable", "At the end", "Mean", "Most"), rows, numbers=4)


def _shapes(found: FleetSummary) -> Iterator[str]:
    rows = [
        (
            one.shape,
            f"{one.nodes:,}",
            f"{one.placed:,}",
            f"{one.pods:,}",
            per_cent(one.requested.get("cpu", 0), one.allocatable.get("cpu", 0)),
            per_cent(one.requested.get("memory", 0), one.allocatable.get("memory", 0)),
            f"{one.refused:,}",
        )
        for one in found.shapes
    ]
    yield "<h2>Shapes of nodes</h2>"
    headers = ("Shape", "Nodes", "Placed", "There at the end", "CPU", "Memory", "Refused")
    yield _table(headers, rows, numbers=6)
    if found.probe is not None:
        whole = total(found.probe)
        yield (
            f"<p>{whole.fits:,} more pods of the kind asked for fit. By amounts alone it would be "
            f"{whole.by_amounts:,}: {whole.stranded:,} are stranded.</p>"
        )


def _fragments(found: FleetSummary) -> Iterator[str]:
    if not found.fragments:
        return
    bars = [
        Bar("1 CPU" if one.cpus == 1 else f"{one.cpus} CPUs", one.by_numa, one.by_node - one.by_numa)
        for one in found.fragments
    ]
    yield "<h2>Free CPUs, as pods of so many would find them</h2>"
    yield (
        f'<p class="soft">{found.free_cpus:,} CPUs are free to be given out. Pods of so many of them would fit, and how '
        "many of those:</p>"
    )
    yield f'<div class="scroll">{bars_svg("pods of so many CPUs that would fit, as a share", bars)}</div>'
    entries = "".join(
        f'<li><svg width="14" height="10" aria-hidden="true"><rect class="{style}" width="14" height="10"/></svg>{name}</li>'
        for style, name in (("bar", "into single NUMA nodes"), ("lost", "only across NUMA nodes"))
    )
    yield f'<ul class="legend">{entries}</ul>'


def _reasons(found: FleetSummary) -> Iterator[str]:
    if found.lacks:
        waiting = [(lack_text(lack), f"{count:,}") for lack, count in found.lacks[:_MOST_ROWS]]
        yield "<h2>Why pods wait</h2>"
        yield _table(("The scheduler's filter, for one of them", "Pods"), waiting, numbers=1)
    if found.refusals:
        rows = [(one.shape, reason_text(one.reason), f"{one.count:,}") for one in found.refusals[:_MOST_ROWS]]
        yield "<h2>What kubelets refused</h2>"
        yield _table(("Shape of node", "For example", "Times"), rows, numbers=1)


def _times(found: FleetSummary, result: FleetResult) -> Iterator[str]:
    time = found.time_to_place
    yield "<h2>Time to place</h2>"
    yield (
        f"<p>{time.at_once:,} of {time.pods:,} pods were placed as soon as they arrived; half within "
        f"{seconds(time.median_s)}, 95 % within {seconds(time.p95_s)}, all within {seconds(time.most_s)}.</p>"
    )
    yield (
        f'<p class="soft">{result.placements:,} placements; nodes were asked {result.steps:,} times, '
        f"and {result.remembered:,} answers were known from nodes that are alike.</p>"
    )


def _table(headers: Sequence[str], rows: Rows, *, numbers: int) -> str:
    """A table, the last columns of which are numbers."""
    first = len(headers) - numbers

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = (' class="number"' if at >= first else "" for at in range(len(cells)))
        return "".join(
            f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{line(headers, "th")}</tr>{body}</table></div>'
