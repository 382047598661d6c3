"""`nodewright evict`: who has to go when a node runs short, and in which order."""

from collections.abc import Sequence
from pathlib import Path

import click

from nodewright.ask import Node
from nodewright.cli import options, timeline, usage
from nodewright.cli.app import NO, YES
from nodewright.cli.inputs import warn
from nodewright.cli.opening import show, with_policies
from nodewright.model.thresholds import Signal
from nodewright.node.forecast import forecast
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.evict import evict_text, evicted_names
from nodewright.render.evict_document import evict_document
from nodewright.render.timeline import ended_names, timeline_text
from nodewright.render.timeline_document import timeline_document
from nodewright.render.timeline_page import timeline_page
from nodewright.world.nodes import find_profile


@click.command("evict")
@options.node
@options.kubelet_config
@options.strict
@usage.options
@timeline.options
@click.option(
    "--signal",
    type=click.Choice([one.value for one in Signal]),
    help="Rank the pods for this signal, whether it is low or not. Default: what is taken up first.",
)
@options.max_document_size
@options.output("json", "yaml", "wide", "name")
def command(
    node: str | None,
    kubelet_config: str | None,
    *,
    strict: bool,
    signal: str | None,
    output: str | None,
) -> int:
    """Say who has to go with this usage of the node, in which order and why, and how many until it is relieved.

    Usage is what `kubectl get --raw /api/v1/nodes/NODE/proxy/stats/summary` gives, a NodeUsage, or a table (CSV). The
    pods are those of the node's profile and of -f. Exit code 0 if nobody has to go, 3 if somebody has; of a timeline
    3 if the kernel's OOM killer is first.
    """
    wish = timeline.asked()
    profile, policies = with_policies(find_profile(node), wish.policies)
    source = node or "this machine"
    asked = Node.of(profile, kubelet_config=kubelet_config, policies=policies, source=source)
    seen = usage.observed(asked)
    warnings = (*asked.warnings, *seen.warnings)
    warn(warnings, strict=strict)
    if wish.is_wanted:
        return _timeline(seen, wish.page, output, warnings)
    found = forecast(
        seen.node.state,
        seen.usage,
        seen.filesystems,
        signal=None if signal is None else Signal(signal),
        after=seen.after,
    )
    if output == "name":
        text = evicted_names(found)
    elif output in ("json", "yaml"):
        document = evict_document(found, warnings=warnings)
        text = (as_json if output == "json" else as_yaml)(document)
    else:
        text = evict_text(found, wide=output == "wide")
    show(text, output, asked.config)
    return NO if found.goes else YES


def _timeline(seen: usage.Observed, page: Path | None, output: str | None, warnings: Sequence[str]) -> int:
    """Tell how memory goes on, rather than who goes now."""
    played = timeline.play(seen.node, seen.usage)
    if page is not None:
        page.write_text(timeline_page(played, seen.node.config), "utf-8")
    if output in ("json", "yaml"):
        document = timeline_document(played, seen.node.config, warnings=warnings)
        text = (as_json if output == "json" else as_yaml)(document)
    elif output == "name":
        text = ended_names(played)
    else:
        text = timeline_text(played)
    show(text, output, seen.node.config)
    return NO if played.runs[0].is_lost else YES
