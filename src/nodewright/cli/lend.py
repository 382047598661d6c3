"""`nodewright lend`: what a node could lend of its requests, by a history of its usage."""

from collections.abc import Sequence
from pathlib import Path

import click

from nodewright.cli import options
from nodewright.cli.node_query import print_report
from nodewright.cli.output_files import page_origin, write_page
from nodewright.cli.workload_input import print_warnings
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.documents.profiles.usage_history import load_usage_history
from nodewright.engine.core.eviction.eviction_thresholds import threshold_amount
from nodewright.engine.core.lending.node_loans import NodeSamples
from nodewright.engine.core.lending.predictors import Predictor
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.resource_names import MEMORY
from nodewright.model.values.quantity import Quantity
from nodewright.predict.lend.lend_replay import AT_ONCE, lending_advice, replayed_loans
from nodewright.predict.lend.lend_report import Lending, lend_page, lend_report, lend_text
from nodewright.predict.lend.node_history import node_history
from nodewright.predict.node import Node
from nodewright.predict.policy_registry import load_policies


@click.command("lend")
@options.node_option()
@options.kubelet_config_option()
@options.release_option
@options.strict_option
@option(
    "--usage FILE",
    "History of usage: a table (.csv) of time,pod,container,cpu,memory; answers of Prometheus' query_range; summaries of the "
    "kubelet. Repeatable.",
    multiple=True,
    required=True,
)
@option("--policies FILE", "Python file that defines predictors; it is executed. Repeatable.", multiple=True)
@option(
    "--advise",
    "Find the predictor and margin that lend most without a late return in the first half; test it on the second.",
)
@options.output_file_option("--html", path_type=Path, help="Also write a self-contained page with plots.")
@options.output_option("json", "yaml", "wide")
def command(  # noqa: PLR0913 - one argument an option
    node: str | None,
    kubelet_config: str | None,
    *,
    release: str | None,
    strict: bool,
    usage: tuple[str, ...],
    policies: tuple[str, ...],
    advise: bool,
    html: Path | None,
    output: str | None,
) -> int:
    """Show what a node could lend of its requests, under each predictor, and what would have come back too late.

    Exit code 0; with --advise 3 if nothing is to be lent, or if the advice is late in the second half.
    """
    profile = find_profile(node, release=release)
    queried = Node.from_profile(profile, kubelet_config=kubelet_config, source=node or "this machine")
    print_warnings(queried.warnings, strict=strict)
    lending = _lending(queried, usage, load_policies(policies).of_kind(Predictor), advise=advise)
    if html is not None:
        write_page(html, lend_page(lending, page_origin()))
    if output in ("json", "yaml"):
        text = (as_json if output == "json" else as_yaml)(lend_report(lending))
    else:
        text = lend_text(lending, wide=output == "wide")
    print_report(text, output, queried.config)
    advices = (lending.advice or {}).values()
    return NO if any(each is None or each.second.is_late(AT_ONCE) for each in advices) else YES


def _lending(node: Node, usage: Sequence[str], predictors: Sequence[Predictor], *, advise: bool) -> Lending:
    history = node_history(node, load_usage_history(usage))
    spares = {resource: _spare(node, resource, samples) for resource, samples in history.resources.items()}
    loans = {
        resource: tuple(replayed_loans(each, samples, spare=spares[resource]) for each in predictors)
        for resource, samples in history.resources.items()
    }
    advice = {
        resource: lending_advice(predictors, samples, spare=spares[resource], loop=AT_ONCE)
        for resource, samples in history.resources.items()
        if advise
    }
    return Lending(node=node, history=history, loans=loans, advice=advice if advise else None)


def _spare(node: Node, resource: str, samples: NodeSamples) -> int:
    """What is free whatever is lent: unrequested, and below the eviction threshold."""
    unrequested = max(samples.capacity - samples.requested, 0)
    if resource != MEMORY:
        return unrequested
    capacity = Quantity.of(node.config.parts.machine.memory_capacity)
    return unrequested + max(
        (
            threshold_amount(threshold, capacity).value()
            for threshold in node.config.eviction.thresholds
            if threshold.signal is Signal.MEMORY_AVAILABLE
        ),
        default=0,
    )
