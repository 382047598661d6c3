"""Explanations as one page that needs nothing else: the machine drawn, the reasons as a tree, what would help."""

from collections.abc import Iterator, Sequence
from html import escape

from nodewright.node.state import NodeState
from nodewright.node.step import Decision
from nodewright.render.explain import Told
from nodewright.render.policies import policies_text
from nodewright.render.reasoning import Branch, reasoning
from nodewright.render.suggestions import cut_text, suggestion_text, vain_text
from nodewright.render.svg import COLOURS, holders, machine_svg

_HUES = (212, 28, 142, 280, 350, 184, 52, 318, 96, 240)
"""One for each colour, neighbours far apart."""

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
.socket, .numa, .cache, .core { fill: none; stroke: var(--line) } .socket { fill: var(--panel) }
.numa { fill: var(--paper) } .cache { stroke-dasharray: 3 2 }
.cell rect { stroke: var(--line); fill: none } .cell text { text-anchor: middle; fill: var(--text) }
.reserved rect, i.reserved { fill: var(--line); background: var(--line) }
.shared rect, i.shared { fill: none; background: none }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0 }
.legend i { display: inline-block; width: 1em; height: 1em; border: 1px solid var(--line); margin-right: .4em;
  vertical-align: -.12em; border-radius: 2px }
article { border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1.1rem; margin: 1rem 0 }
article > h2 { margin: 0 } .kubelet { font-family: ui-monospace, monospace; font-size: .85rem; margin: .3rem 0 }
ul.tree, .tree ul { list-style: none; padding-left: 1.1rem; margin: .2rem 0 } ul.tree { padding-left: 0 }
summary { cursor: pointer } .yes { color: var(--yes) } .no { color: var(--no) } .warning { color: var(--warn) }
.badge { border: 1px solid currentColor; border-radius: 4px; padding: 0 .4em; font-size: .85rem; font-weight: 600 }
:focus-visible { outline: 2px solid hsl(212 80% 55%); outline-offset: 2px }
@media print { body { max-width: none } }
"""


def explanation_page(told: Sequence[Told], after: NodeState) -> str:
    """The explanations as one HTML document without scripts and without anything to be fetched.

    ``after`` is the node once all of the pods have been decided on; it is what is drawn.
    """
    config = after.config
    name = escape(config.facts.name)
    release = escape(config.release.release.text)
    settings = ", ".join(
        f"{title} {escape(value)}"
        for title, value in (
            ("topology manager", config.parts.kubelet.topology_manager_policy),
            ("scope", config.parts.kubelet.topology_manager_scope),
            ("CPU manager", config.parts.kubelet.cpu_manager_policy),
            ("memory manager", config.parts.kubelet.memory_manager_policy),
        )
    )
    policies = "".join(f'<p class="warning">{escape(one)}</p>' for one in policies_text(config).splitlines())
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}: why</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}{_colours()}</style>'
        f'</head><body><header><h1>{name}</h1><div class="soft">Kubernetes {release}; {settings}</div>{policies}</header><main>'
    )
    parts = [
        head,
        f'<h2>The node afterwards</h2><div class="scroll">{machine_svg(after)}</div>{_legend(after)}',
        *map(_article, told),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _colours() -> str:
    assert len(_HUES) == COLOURS
    return "".join(
        f".p{at} rect, i.p{at} {{ fill: hsl({hue} 62% var(--light)); background: hsl({hue} 62% var(--light)) }}\n"
        for at, hue in enumerate(_HUES)
    )


def _legend(after: NodeState) -> str:
    known = [*holders(after).items(), ("reserved for the system", "reserved"), ("shared or free", "shared")]
    entries = "".join(f'<li><i class="{style}"></i>{escape(name)}</li>' for name, style in known)
    return f'<ul class="legend" aria-label="who has what">{entries}</ul>'


def _article(told: Told) -> str:
    taken = told.explained.step
    tone = {Decision.ADMITTED: "yes", Decision.REFUSED: "no"}.get(
        taken.decision or Decision.UNDECIDED, "warning"
    )
    reason = f" {escape(told.kubelet.reason)}" if told.kubelet.reason else ""
    origin = f' <span class="soft">({escape(told.origin)})</span>' if told.origin else ""
    said = f'<p class="kubelet">{escape(told.kubelet.message)}</p>' if told.kubelet.message else ""
    tree = "".join(map(_branch, reasoning(told.explained)))
    return (
        f'<article><h2>{escape(told.explained.pod.full_name)}{origin} <span class="badge {tone}">{told.verdict}</span>'
        f'<span class="{tone}">{reason}</span></h2>{said}<ul class="tree">{tree}</ul>{"".join(_helpful(told))}</article>'
    )


def _branch(branch: Branch) -> str:
    text = f'<span class="{branch.tone}">{escape(branch.text)}</span>'
    if not branch.below:
        return f"<li>{text}</li>"
    is_open = "" if all(one.is_detail for one in branch.below) else " open"
    below = "".join(map(_branch, branch.below))
    return f"<li><details{is_open}><summary>{text}</summary><ul>{below}</ul></details></li>"


def _helpful(told: Told) -> Iterator[str]:
    others = told.explained.others
    if told.explained.step.decision is not Decision.REFUSED:
        return
    if others.suggestions:
        yield "<h3>What would let it in</h3>"
        yield '<p class="soft">Each was tried on this node, and nothing smaller of its kind does.</p><ul>'
        yield from (f"<li>{escape(suggestion_text(one))}</li>" for one in others.suggestions)
        yield "</ul>"
    else:
        yield "<h3>No single change that was tried would let it in</h3>"
    for text in filter(None, (vain_text(others, wide=True), cut_text(others))):
        yield f'<p class="soft">{escape(text)}</p>'
