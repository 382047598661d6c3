"""`nodewright evict`: who has to go when a node runs short, and in which order."""

import click

from nodewright.ask import Node
from nodewright.cli import options, usage
from nodewright.cli.app import NO, YES
from nodewright.cli.inputs import warn
from nodewright.model.thresholds import Signal
from nodewright.node.forecast import forecast
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.evict import evict_text, evicted_names
from nodewright.render.evict_document import evict_document


@click.command("evict")
@options.node
@options.kubelet_config
@options.strict
@usage.options
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
    pods are those of the node's profile and of -f. Exit code 0 if nobody has to go, 3 if somebody has.
    """
    asked = Node.open(node, kubelet_config=kubelet_config)
    seen = usage.observed(asked)
    warn((*asked.warnings, *seen.warnings), strict=strict)
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
        document = evict_document(found, warnings=(*asked.warnings, *seen.warnings))
        text = (as_json if output == "json" else as_yaml)(document)
    else:
        text = evict_text(found, wide=output == "wide")
    click.echo(text, nl=False)
    return NO if found.goes else YES
