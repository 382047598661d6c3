"""`nodewright preempt`: which pods the node preempts for a critical pod."""

from functools import partial

import click
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.node_query import after_scheduling, asked_scheduler, exit_code, load_query, print_report
from nodewright.documents.output.command_line import IntegerRange, option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO
from nodewright.engine.core.preemption.optimal import (
    BUDGET,
    SmallestPreemption,
    smallest_preemption,
)
from nodewright.engine.node.previews import PreemptionPreview
from nodewright.predict.admit.preemption_report import (
    PreemptionEntry,
    PreemptionReport,
    cheapest_cover,
    pod_preemption,
    preemption_text,
    victim_names,
)
from nodewright.predict.node_report.report_parts import node_of_report


@click.command("preempt")
@partial(cluster_options, is_about_node=True)
@options.node_query_options
@option("--optimal", "Also compute the smallest set of victims.")
@option("--exact", "With --optimal: use HiGHS where the search ends without a proof (extra `exact`).")
@option(
    "--budget",
    "With --optimal: maximum number of steps in the search for a proof.",
    type=IntegerRange(0, 2**31 - 1),
    default=BUDGET,
)
@options.output_option("json", "yaml", "wide", "name")
def command(
    query: options.NodeQuery,
    *,
    optimal: bool,
    exact: bool,
    budget: int,
    output: str | None,
) -> int:
    """Show which pods the node preempts for each pod, in order, and how the kubelet selects them.

    Only critical pods preempt others: static pods, and pods of priority 2000000000 and above. With -o name only the
    victims, in the order in which they are ended (with --optimal, of the smallest set). Exit codes as of admit.
    """
    if exact and not optimal:
        raise click.UsageError("--exact requires --optimal")
    loaded = load_query(query)
    node, entries = loaded.node, list[PreemptionEntry]()
    for workload in loaded.created_pods():
        preview = node.preview(workload.pod)
        scheduler = asked_scheduler(node, preview.pod, workload, query)
        after = replace(node, state=preview.step.state)
        node = after_scheduling(after, node, scheduler, preview.step.decision)
        entries.append(
            PreemptionEntry(
                preview=preview,
                optimum=_smallest(preview, budget, exact=exact) if optimal and scheduler.binds else None,
                scheduler=scheduler.obstacles,
                origin="" if workload.kind == "Pod" else f"{workload.kind} {workload.name}",
            )
        )
    if output == "name":
        text = victim_names(entries)
    elif output in ("json", "yaml"):
        report = PreemptionReport(
            node=node_of_report(node.config),
            pods=tuple(map(pod_preemption, entries)),
            skipped=loaded.skipped,
            warnings=loaded.warnings,
        )
        text = (as_json if output == "json" else as_yaml)(report)
    else:
        text = preemption_text(entries, wide=output == "wide")
    print_report(text, output, node.config)
    is_all = len(entries) == len(loaded.workloads)
    return exit_code(entry.verdict for entry in entries) if is_all else NO


def _smallest(preview: PreemptionPreview, budget: int, *, exact: bool) -> SmallestPreemption | None:
    victims, solver = preview.step.victims, cheapest_cover if exact else None
    return smallest_preemption(victims, budget=budget, exact=solver) if victims is not None else None
