"""Explanations as one self-contained HTML page: a drawing of the machine, the reasons as a tree, suggested changes."""

from collections.abc import Iterator, Sequence
from html import escape

from nodewright.engine.policy_notices import policy_notices
from nodewright.explain.explanation_text import PodExplanation
from nodewright.explain.reason_tree import ReasonBranch, reason_tree
from nodewright.explain.suggestion_text import incomplete_search_text, ineffective_text, suggestion_text
from nodewright.node.node_state import NodeState
from nodewright.node.step import Decision
from nodewright.node_report.machine_svg import COLOURS, coloured_pods, machine_svg
from nodewright.output.html_page import html_page

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
article > h2 { margin: 0 } .kubelet { font-family: ui-monospace, monospace; font-size: .85rem; margin: .3rem 0 }
ul.tree, .tree ul { list-style: none; padding-left: 1.1rem; margin: .2rem 0 } ul.tree { padding-left: 0 }
summary { cursor: pointer }
.badge { border: 1px solid currentColor; border-radius: 4px; padding: 0 .4em; font-size: .85rem; font-weight: 600 }
"""


def explanation_page(entries: Sequence[PodExplanation], after: NodeState) -> str:
    """The explanations as one HTML document without scripts and external resources.

    ``after`` is the node state after all decisions; the page draws it.
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
            f'<h2>The node after these decisions</h2><div class="scroll">{machine_svg(after)}</div>{_legend(after)}',
            *map(_article, entries),
        ],
        style=f"{_STYLE}{_colours()}",
    )


def explanation_fragment(entries: Sequence[PodExplanation], after: NodeState, *, title: str = "") -> str:
    """The explanations and the drawing as a part of another page, e.g. of a notebook; its styles stay inside."""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    style = f"{_FRAGMENT_COLOURS}{_STYLE}{_colours()}"
    # Nested rules apply inside this element only.
    return (
        f'<div class="nodewright"><style>.nodewright {{{style}}}</style>{heading}'
        f'{"".join(map(_article, entries))}<div class="scroll">{machine_svg(after)}</div>{_legend(after)}</div>'
    )


_FRAGMENT_COLOURS = (
    "--line: #8888; --panel: transparent; --paper: transparent; --text: currentColor; --light: 60%; "
    ".scroll { overflow-x: auto } ul.legend { list-style: none; padding: 0 } "
)


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


def _article(entry: PodExplanation) -> str:
    result = entry.explanation.step
    tone = {Decision.ADMITTED: "yes", Decision.REFUSED: "no"}.get(
        result.decision or Decision.UNDECIDED, "warning"
    )
    reason = f" {escape(entry.kubelet.reason)}" if entry.kubelet.reason else ""
    origin = f' <span class="soft">({escape(entry.origin)})</span>' if entry.origin else ""
    message = f'<p class="kubelet">{escape(entry.kubelet.message)}</p>' if entry.kubelet.message else ""
    tree = "".join(map(_branch, reason_tree(entry.explanation)))
    return (
        f'<article><h2>{escape(entry.explanation.pod.full_name)}{origin} <span class="badge {tone}">{entry.verdict}</span>'
        f'<span class="{tone}">{reason}</span></h2>{message}<ul class="tree">{tree}</ul>{"".join(_suggestions(entry))}</article>'
    )


def _branch(branch: ReasonBranch) -> str:
    text = f'<span class="{branch.tone}">{escape(branch.text)}</span>'
    if not branch.children:
        return f"<li>{text}</li>"
    is_open = "" if all(child.is_detail for child in branch.children) else " open"
    children = "".join(map(_branch, branch.children))
    return f"<li><details{is_open}><summary>{text}</summary><ul>{children}</ul></details></li>"


def _suggestions(entry: PodExplanation) -> Iterator[str]:
    counterfactuals = entry.explanation.counterfactuals
    if entry.explanation.step.decision is not Decision.REFUSED:
        return
    if counterfactuals.suggestions:
        yield "<h3>What would let it in</h3>"
        yield '<p class="soft">Each change was tried on this node and is the smallest of its kind that works.</p><ul>'
        yield from (
            f"<li>{escape(suggestion_text(suggestion))}</li>" for suggestion in counterfactuals.suggestions
        )
        yield "</ul>"
    else:
        yield "<h3>No single change among those tried would let it in</h3>"
    for text in filter(
        None, (ineffective_text(counterfactuals, wide=True), incomplete_search_text(counterfactuals))
    ):
        yield f'<p class="soft">{escape(text)}</p>'
