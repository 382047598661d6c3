"""Timelines as one page that needs nothing else: the race drawn, the moments, policies side by side, the advice."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape

from nodewright.node.config import NodeConfig
from nodewright.render.amounts import readable
from nodewright.render.plot import Curve, Level, Mark, Window, plot, within
from nodewright.render.report import STYLE
from nodewright.render.timeline import (
    MODEL,
    Played,
    advice_sentences,
    first_word,
    moment_sentence,
    outcome_sentence,
    time_text,
)
from nodewright.sim.timeline.advise import Advice
from nodewright.sim.timeline.moments import (
    EvictionBegun,
    EvictionDone,
    KernelKilled,
    ThresholdCrossed,
    Timeline,
)

_ROOM_NS = 10**9
_STYLE = """
:root { --c0: #1f5fbf; --c1: #b3541e; --c2: #17683a } @media (prefers-color-scheme: dark) { :root { --c0: #7fb0ff;
  --c1: #f2a46b; --c2: #6fcf97 } }
.grid { stroke: var(--line); stroke-width: .5 } svg .end { text-anchor: end } svg .middle { text-anchor: middle }
.curve { fill: none; stroke-width: 2 } .level { stroke-dasharray: 6 4; stroke: var(--warn); stroke-width: 1.2 }
.c0 { stroke: var(--c0) } .c1 { stroke: var(--c1); stroke-dasharray: 7 3 } .c2 { stroke: var(--c2); stroke-dasharray: 2 3 }
.mark { fill: var(--paper); stroke: var(--ink); stroke-width: 2 } .mark.killed { stroke: var(--no); fill: none;
  stroke-width: 3 } .mark.done { fill: var(--yes); stroke: var(--yes) }
.legend svg { display: inline-block; vertical-align: middle; margin-right: .4em }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem .9rem .15rem 0; vertical-align: top }
td:first-child { white-space: nowrap; font-family: ui-monospace, monospace; font-size: .85rem }
"""


def timeline_page(played: Played, config: NodeConfig) -> str:
    """The timelines as one HTML document without scripts and without anything to be fetched."""
    name = escape(config.facts.name)
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}: memory over time</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}{_STYLE}</style></head>'
        f'<body><header><h1>{name}</h1><div class="soft">Kubernetes {escape(config.release.release.text)}; '
        f"memory.available over {time_text(played.setting.duration_ns)}</div></header><main>"
    )
    parts = [head, *_runs(played)]
    if played.advice is not None:
        parts += _advice(played.advice)
    first = played.runs[0]
    parts += [f"<h2>What happens: {escape(first.policy)}</h2>", _moments(first)]
    parts.append(f'<p class="soft">{escape(MODEL)}</p></main></body></html>\n')
    return "\n".join(parts)


def _runs(played: Played) -> Iterator[str]:
    runs = played.runs
    tone = "no" if runs[0].is_lost else "yes"
    yield f'<p class="{tone}">{escape(outcome_sentence(runs[0]))}</p>'
    levels = _levels(runs)
    curves = [Curve(run.policy, f"c{at % 3}", run.available) for at, run in enumerate(runs)]
    race = _race(runs, levels)
    if race is not None:
        yield "<h2>The race</h2>"
        yield _drawn("memory.available while the threshold is crossed", race, curves, levels, runs)
    whole = (0, max(run.duration_ns for run in runs))
    most = max(amount for run in runs for _, amount in run.available)
    yield "<h2>All of it</h2>"
    yield _drawn(
        "memory.available from the start to the end", Window(*whole, most * 21 // 20), curves, levels, runs
    )
    yield _legend([(run.policy, f"c{at % 3}") for at, run in enumerate(runs)])
    if len(runs) > 1:
        yield _side_by_side(runs)


def _drawn(
    label: str, window: Window, curves: Sequence[Curve], levels: Sequence[Level], runs: Sequence[Timeline]
) -> str:
    marks = [one for run in runs for one in _marks(run)]
    return f'<div class="scroll">{plot(label, window, curves, levels, marks)}</div>'


def _race(runs: Sequence[Timeline], levels: Sequence[Level]) -> Window | None:
    """From shortly before the first crossing until somebody has ended in all of the runs."""
    crossings = [run.first_crossing_ns for run in runs if run.first_crossing_ns is not None]
    if not crossings:
        return None
    ends = [
        next((one.at_ns for one in run.moments if isinstance(one, EvictionDone | KernelKilled)), None)
        for run in runs
    ]
    start, end = (
        min(crossings),
        max([one for one in ends if one is not None], default=min(crossings) + _ROOM_NS),
    )
    room = max((end - start) // 4, _ROOM_NS // 5)
    window = Window(max(start - room, 0), end + room, 1)
    seen = [within(run.available, window)[:1] for run in runs]
    # What is available after somebody has ended is of no interest here: twice the threshold is enough.
    tops = [*(points[0][1] for points in seen if points), *(2 * one.amount_bytes for one in levels)]
    return replace(window, most_bytes=max(*tops, 1) * 11 // 10)


def _levels(runs: Sequence[Timeline]) -> list[Level]:
    found = {
        one.threshold_bytes: one
        for run in runs
        for one in run.moments
        if isinstance(one, ThresholdCrossed) and one.signal == "memory.available"
    }
    return [Level(f"threshold {readable('memory', amount)}", "", amount) for amount in sorted(found)]


def _marks(run: Timeline) -> Iterator[Mark]:
    for one in run.moments:
        style = {EvictionBegun: "begun", EvictionDone: "done", KernelKilled: "killed"}.get(type(one))
        if style is not None:
            text = f"{time_text(one.at_ns)}, {run.policy}: {moment_sentence(one)}"
            yield Mark(one.at_ns, _available(run, one.at_ns), style, text)


def _available(run: Timeline, at_ns: int) -> int:
    """What is left just before whatever happens then."""
    before = [amount for when, amount in run.available if when == at_ns]
    if before:
        return before[0]
    found = within(run.available, Window(at_ns, at_ns, 1))
    return found[0][1] if found else 0


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f'<li><svg width="34" height="8" aria-hidden="true"><line class="curve {style}" x1="0" x2="34" y1="4" y2="4"/>'
        f"</svg>{escape(name)}</li>"
        for name, style in entries
    )
    marks = "<li>○ told to end</li><li>● has ended by eviction</li><li>✕ killed by the kernel</li>"
    return f'<ul class="legend" aria-label="lines and marks">{lines}{marks}</ul>'


def _side_by_side(runs: Sequence[Timeline]) -> str:
    rows = "".join(
        f"<tr><td>{escape(run.policy)}</td><td>{first_word(run)}</td><td>{readable('memory', run.lowest_available_bytes)}"
        f"</td><td>{len(run.evictions)}</td><td>{len(run.kernel_kills)}</td><td>{run.lost_cpu_s:.0f}</td>"
        f"<td>{readable('memory', run.beyond_need_bytes)}</td><td>{run.looks}</td></tr>"
        for run in runs
    )
    headers = (
        "policy",
        "first",
        "lowest",
        "evicted",
        "killed",
        "CPU-seconds lost",
        "freed beyond need",
        "looks",
    )
    head = "".join(f"<th>{one}</th>" for one in headers)
    return f'<h2>Side by side</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _moments(run: Timeline) -> str:
    rows = "".join(
        f'<tr><td>{time_text(one.at_ns)}</td><td class="{"no" if isinstance(one, KernelKilled) else ""}">'
        f"{escape(moment_sentence(one))}</td></tr>"
        for one in run.moments
    )
    return f"<table>{rows}</table>" if rows else "<p>Nothing.</p>"


def _advice(advice: Advice) -> Iterator[str]:
    yield "<h2>Advice</h2>"
    yield from (f"<p>{escape(one)}</p>" for one in advice_sentences(advice))
    runs = [one for one in (advice.won, advice.lost) if one is not None]
    amount = advice.threshold_bytes
    if not amount:
        return
    levels = [Level(f"advised {readable('memory', amount)}", "", amount)]
    race = _race(runs, levels)
    if race is None:
        return
    names = [
        f"with {readable('memory', amount)}",
        f"with {readable('memory', amount - advice.step_bytes)}, one step less",
    ]
    entries = [(name, f"c{at}") for at, name in zip((0, 1), names, strict=True)][: len(runs)]
    curves = [Curve(name, style, run.available) for (name, style), run in zip(entries, runs, strict=True)]
    yield _drawn(
        "memory.available with the advised threshold, and with one step less", race, curves, levels, runs
    )
    yield _legend(entries)
