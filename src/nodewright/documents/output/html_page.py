"""The skeleton of self-contained HTML pages: styles, legends of plots, tables."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape

import msgspec

from nodewright.model.printable import printable_text

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #5c6370; --line: #c9ced6; --panel: #f5f6f8;
  --yes: #17683a; --no: #b3261e; --warn: #8a5300; --light: 78%; --text: #16181b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #16181c; --soft: #a0a7b3; --line: #3d434d;
  --panel: #1f2228; --yes: #6fcf97; --no: #ff8a80; --warn: #f2b35c; --light: 38%; --text: #f2f4f6; } }
* { box-sizing: border-box } body { margin: 0 auto; padding: 1.5rem; max-width: 1140px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.4rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem } .soft { color: var(--soft) }
.scroll { overflow-x: auto } svg { display: block; max-width: 100%; height: auto }
svg text { font: 10px ui-monospace, monospace; fill: var(--ink) } svg .title { fill: var(--soft) }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0 }
.yes { color: var(--yes) } .no { color: var(--no) } .warning { color: var(--warn) }
:focus-visible { outline: 2px solid hsl(212 80% 55%); outline-offset: 2px }
footer { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: .6rem; color: var(--soft); font-size: .85rem }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: 0 }
footer dd { margin: 0; overflow-wrap: anywhere }
@media print { body { max-width: none } }
"""

TABLE_STYLE = """
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem .9rem .15rem 0; vertical-align: top }
caption { text-align: left; color: var(--soft) } summary { cursor: pointer }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
"""

PLOT_STYLE = (
    TABLE_STYLE
    + """
:root { --c0: #1f5fbf; --c1: #b3541e; --c2: #17683a; --c3: #7a3fa0 } @media (prefers-color-scheme: dark) { :root {
  --c0: #7fb0ff; --c1: #f2a46b; --c2: #6fcf97; --c3: #c79bf0 } }
.grid { stroke: var(--line); stroke-width: .5 } svg .end { text-anchor: end } svg .middle { text-anchor: middle }
.curve { fill: none; stroke-width: 2 } .c0 { stroke: var(--c0) } .c1 { stroke: var(--c1); stroke-dasharray: 7 3 }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3 } .c3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3 }
.scroll > svg { width: 100%; min-width: 720px } .scroll > svg text { font-size: 12px }
.legend svg { display: inline-block; vertical-align: middle; margin-right: .4em }
"""
)


class PageOrigin(msgspec.Struct, frozen=True):
    """What made a page, so that a reader can make it again."""

    command: str
    version: str
    """The version of nodewright."""
    date: str

    def footer(self, more: Iterable[tuple[str, str]] = ()) -> str:
        """The facts as a footer; ``more`` are further facts, each a name and a text."""
        facts = (("Command", self.command), ("Version", self.version), *more, ("Date", self.date))
        items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts if text)
        return f"<footer><dl>{items}</dl></footer>"


def html_page(
    *,
    title: str,
    heading: str,
    header: Iterable[str],
    sections: Iterable[str],
    style: str = "",
    footer: str = "",
) -> str:
    """A page without scripts and external resources; its policy lets a browser use nothing but its own style.

    ``title`` and ``heading`` are plain text; ``header``, ``sections`` and ``footer`` are HTML; ``style`` adds to the shared style.
    """
    style = printable_text(f"{STYLE}{style}")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style>'
        f"</head><body><header><h1>{escape(heading)}</h1>{''.join(header)}</header><main>"
    )
    return printable_text("\n".join([head, *sections, f"</main>{footer}</body></html>\n"]))


def curve_legend(curves: Iterable[tuple[str, str]], more: Iterable[str] = (), *, label: str = "") -> str:
    """A legend of curves, given as name and CSS class; ``more`` are further HTML entries."""
    entries = [
        f'<svg width="34" height="10" aria-hidden="true"><line class="curve {style}" x1="0" x2="34" y1="5" y2="5"/>'
        f"</svg>{escape(name)}"
        for name, style in curves
    ]
    items = "".join(f"<li>{entry}</li>" for entry in (*entries, *more))
    named = f' aria-label="{escape(label)}"' if label else ""
    return f'<ul class="legend"{named}>{items}</ul>'


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """A table of plain text cells; the last ``numbers`` columns are aligned right."""
    first_number = len(headers) - numbers

    def cells(row: Sequence[str], tag: str) -> str:
        styles = (' class="number"' if index >= first_number else "" for index in range(len(row)))
        return "".join(
            f"<{tag}{style}>{escape(cell)}</{tag}>" for cell, style in zip(row, styles, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells(headers, "th")}</tr>{body}</table></div>'
