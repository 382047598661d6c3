"""`nodewright preempt`: who makes way for a critical pod."""

from dataclasses import replace

import click

from nodewright.cli import options
from nodewright.cli.app import NO, YES
from nodewright.cli.opening import opened, show
from nodewright.core.preemption import BUDGET, ExactSolver, Optimum, optimum
from nodewright.node.preview import Preview
from nodewright.node.step import Decision
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.preemption import Entry, preemption_document, preemption_text, victim_names
from nodewright.world.highs import cheapest_cover


@click.command("preempt")
@options.question
@click.option("--optimal", is_flag=True, help="Compute the smallest choice of victims, too.")
@click.option(
    "--exact",
    is_flag=True,
    help="With --optimal: ask HiGHS where the search ends without a proof (extra `exact`).",
)
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    default=BUDGET,
    show_default=True,
    help="With --optimal: steps after which the search for a proof ends.",
)
@options.output("json", "yaml", "wide", "name")
def command(
    question: options.Question,
    *,
    optimal: bool,
    exact: bool,
    budget: int,
    output: str | None,
) -> int:
    """Say for each pod, in order, who would have to make way for it on the node, and how the kubelet picks them.

    Only critical pods push others out: static ones, and those of priority 2000000000 and above. With -o name the
    victims alone, in the order in which they are ended (with --optimal, those of the smallest choice). Exit code 0 if
    all pods get in, 3 if any does not.
    """
    if exact and not optimal:
        raise click.UsageError("--exact goes with --optimal")
    found = opened(question)
    asked = found.node
    entries = []
    for workload in found.workloads:
        preview = asked.preview(workload.pod)
        asked = replace(asked, state=preview.step.state)
        solver = cheapest_cover if exact else None
        entries.append(
            Entry(
                preview=preview,
                optimum=_smallest(preview, budget, solver) if optimal else None,
                origin="" if workload.kind == "Pod" else f"{workload.kind} {workload.name}",
            )
        )
    if output == "name":
        text = victim_names(entries)
    elif output in ("json", "yaml"):
        document = preemption_document(entries, asked.config, warnings=found.warnings, skipped=found.skipped)
        text = (as_json if output == "json" else as_yaml)(document)
    else:
        text = preemption_text(entries, wide=output == "wide")
    show(text, output, asked.config)
    return YES if all(entry.preview.step.decision is Decision.ADMITTED for entry in entries) else NO


def _smallest(preview: Preview, budget: int, exact: ExactSolver | None) -> Optimum | None:
    found = preview.step.victims
    return optimum(found, budget=budget, exact=exact) if found is not None else None
