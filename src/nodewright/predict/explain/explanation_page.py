"""Explanations as one self-contained HTML page: a drawing of the machine, the reasons as a tree, suggested changes."""

from collections.abc import Iterator, Sequence
from html import escape

from nodewright.documents.output.html_page import TABLE_STYLE, PageOrigin, html_page
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision
from nodewright.predict.explain.explained_decision import ExplainedDecision
from nodewright.predict.explain.reason_tree import NUMACell, NUMATable, ReasonBranch, numa_tables, reason_tree
from nodewright.predict.explain.suggestion_text import (
    incomplete_search_text,
    ineffective_text,
    largest_pod_texts,
    proposals,
)
from nodewright.predict.node_report.machine_svg import COLOURS, coloured_pods, machine_svg
from nodewright.predict.node_report.report_parts import policy_notices
from nodewright.predict.verdict import Verdict

_HUES = (212, 28, 142, 280, 350, 184, 52, 318, 96, 240)
"""One hue for each colour class; neighbouring classes get distant hues."""

_STYLE = """
.socket, .numa, .cache, .core { fill: none; stroke: var(--line) } .socket { fill: var(--panel) }
.numa { fill: var(--paper) } .cache { stroke-dasharray: 3 2 }
.cell rect { stroke: var(--line); fill: none } .cell text { text-anchor: middle; fill: var(--text) }
.reserved rect, i.reserved { fill: var(--line); background: var(--line) }
.shared rect, i.shared { fill: none; background: none }
.legend i { display: inline-block; width: 1em; height: 1em; border: 1px solid var(--line); margin-right: .4em;
  vertical-align: -.12em; border-radius: 2px }
article { border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1.1rem; margin: 1rem 0 }
article:target { outline: 2px solid hsl(212 80% 55%) } article > h2 { margin: 0 } .kubelet { font-family: ui-monospace, monospace; font-size: .85rem; margin: .3rem 0 }
ul.tree, .tree ul { list-style: none; padding-left: 1.1rem; margin: .2rem 0 } ul.tree { padding-left: 0 }
.numas { margin: .4rem 0 .8rem } .numas td, .numas th { border-top: 1px solid var(--line); padding: .25rem 1.2rem .25rem 0 }
.numas thead td, .numas thead th { border: 0 } .numas tbody th { white-space: nowrap } .numas thead th { min-width: 7.5rem } .numas .soft { font-weight: 400; font-size: .85rem }
article h3 { margin: .8rem 0 .2rem; font-size: 1rem } article ul { margin: .2rem 0 } a { color: inherit }
.badge { border: 1px solid currentColor; border-radius: 4px; padding: 0 .4em; font-size: .85rem; font-weight: 600 }
"""


def explanation_page(
    explanations: Sequence[ExplainedDecision], after: NodeState, origin: PageOrigin | None = None
) -> str:
    """The explanations as one HTML document without scripts and external resources.

    ``after`` is the node state after all decisions; the page draws it. ``origin`` is what made the page.
    """
    config = after.config
    name, release = config.facts.name, config.release.release.text
    settings = ", ".join(
        f"{title} {escape(value)}"
        for title, value in (
            ("topology manager", config.parts.kubelet.topology_manager_policy),
            ("scope", config.parts.kubelet.topology_manager_scope),
            ("CPU manager", config.parts.kubelet.cpu_manager_policy),
            ("memory manager", config.parts.kubelet.memory_manager_policy),
        )
    )
    notices = (f'<p class="warning">{escape(notice)}</p>' for notice in policy_notices(config).splitlines())
    return html_page(
        title=f"{name}: why",
        heading=name,
        header=[f'<div class="soft">Kubernetes {escape(release)}; {settings}</div>', *notices],
        sections=[
            *_remedies(explanations),
            f'<h2>The node after these decisions</h2><div class="scroll">{machine_svg(after)}</div>{_legend(after)}',
            *(_article(explanation, f"pod-{number}") for number, explanation in enumerate(explanations)),
        ],
        style=f"{TABLE_STYLE}{_STYLE}{_colours()}",
        footer="" if origin is None else origin.footer(),
    )


def explanation_fragment(
    explanations: Sequence[ExplainedDecision], after: NodeState, *, title: str = ""
) -> str:
    """The explanations and the drawing as a part of another page, e.g. of a notebook; its styles stay inside."""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    style = f"{_FRAGMENT_COLOURS}{TABLE_STYLE}{_STYLE}{_colours()}"
    # Nested rules apply inside this element only.
    return (
        f'<div class="nodewright"><style>.nodewright {{{style}}}</style>{heading}'
        f'{"".join(map(_article, explanations))}<div class="scroll">{machine_svg(after)}</div>{_legend(after)}</div>'
    )


_FRAGMENT_COLOURS = (
    "--line: #8888; --panel: transparent; --paper: transparent; --text: currentColor; --light: 60%; "
    ".scroll { overflow-x: auto } ul.legend { list-style: none; padding: 0 } "
)


def _remedies(explanations: Sequence[ExplainedDecision]) -> Iterator[str]:
    """The refused pods, each with the first change that would let it in."""
    refused = [
        (number, explanation)
        for number, explanation in enumerate(explanations)
        if explanation.decision is Decision.REFUSED
    ]
    if not refused:
        return
    yield f"<h2>Refused: {len(refused)} of {len(explanations)}</h2><ul>"
    for number, explanation in refused:
        heading, texts = proposals(explanation)
        remedy = texts[0] if texts else heading
        name = escape(explanation.pod.full_name)
        yield f'<li><a href="#pod-{number}">{name}</a>: {escape(remedy)}</li>'
    yield "</ul>"


def _colours() -> str:
    assert len(_HUES) == COLOURS
    return "".join(
        f".p{at} rect, i.p{at} {{ fill: hsl({hue} 62% var(--light)); background: hsl({hue} 62% var(--light)) }}\n"
        for at, hue in enumerate(_HUES)
    )


def _legend(after: NodeState) -> str:
    styles = [
        *coloured_pods(after).items(),
        ("reserved for the system", "reserved"),
        ("shared or free", "shared"),
    ]
    entries = "".join(f'<li><i class="{style}"></i>{escape(name)}</li>' for name, style in styles)
    return f'<ul class="legend" aria-label="CPU owners">{entries}</ul>'


def _article(explanation: ExplainedDecision, anchor: str = "") -> str:
    tone = {Verdict.ADMITTED: "yes", Verdict.UNDECIDED: "warning"}.get(explanation.verdict, "no")
    reason = f" {escape(explanation.reason)}" if explanation.reason else ""
    origin = f' <span class="soft">({escape(explanation.origin)})</span>' if explanation.origin else ""
    message = (
        f'<p class="kubelet">{escape(explanation.kubelet.message)}</p>' if explanation.kubelet.message else ""
    )
    tables = tuple(map(_numa_table, numa_tables(explanation)))
    tree = "".join(_branch(branch, 0, closes_sites=bool(tables)) for branch in reason_tree(explanation))
    identity = f' id="{anchor}"' if anchor else ""
    title = "<h3>Why</h3>" if explanation.decision is Decision.REFUSED else ""
    return (
        f'<article{identity}><h2>{escape(explanation.pod.full_name)}{origin} <span class="badge {tone}">{escape(explanation.headline)}</span>'
        f'<span class="{tone}">{reason}</span></h2>{message}{"".join(_suggestions(explanation))}{title}'
        f'{"".join(tables)}<ul class="tree">{tree}</ul></article>'
    )


def _branch(branch: ReasonBranch, depth: int, *, closes_sites: bool) -> str:
    """A sentence with those below it; ``closes_sites``: lists of what each NUMA node has are closed, for a table has it."""
    text = f'<span class="{branch.tone}">{escape(branch.text)}</span>'
    if not branch.children:
        return f"<li>{text}</li>"
    is_list = all(not child.children and child.tone == "plain" for child in branch.children)
    is_closed = all(child.is_detail for child in branch.children) or (closes_sites and depth > 0 and is_list)
    children = "".join(_branch(child, depth + 1, closes_sites=closes_sites) for child in branch.children)
    return f"<li><details{'' if is_closed else ' open'}><summary>{text}</summary><ul>{children}</ul></details></li>"


def _numa_table(table: NUMATable) -> str:
    """A table with NUMA nodes as rows and resources as columns."""
    caption = f"container {table.container}" if table.container else "the pod as a whole"
    heads = "".join(
        f'<th scope="col">{escape(column.resource)}<br><span class="soft">{escape(column.requested)} requested'
        f"{'; ' if column.hint else ''}{escape(column.hint)}</span></th>"
        for column in table.columns
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th>{"".join(map(_numa_cell, row.cells))}</tr>'
        for row in table.rows
    )
    return (
        f'<div class="scroll"><table class="numas"><caption>{escape(caption)}; ✓ alone has enough</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _numa_cell(cell: NUMACell | None) -> str:
    if cell is None:
        return "<td></td>"
    tone, mark = ("yes", "✓") if cell.is_enough else ("no", "✕")
    holders = f'<br><span class="soft">{escape(cell.holders)}</span>' if cell.holders else ""
    return f'<td><span class="{tone}">{mark} {escape(cell.text)}</span>{holders}</td>'


def _suggestions(explanation: ExplainedDecision) -> Iterator[str]:
    counterfactuals = explanation.counterfactuals
    if explanation.decision is not Decision.REFUSED:
        return
    heading, texts = proposals(explanation)
    yield from (f"<p>{escape(text)}</p>" for text in largest_pod_texts(explanation))
    yield f"<h3>{escape(heading)}</h3><ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
    for text in filter(None, (ineffective_text(counterfactuals), incomplete_search_text(counterfactuals))):
        yield f'<p class="soft">{escape(text)}</p>'
