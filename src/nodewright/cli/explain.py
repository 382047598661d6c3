"""`nodewright explain`: why a node says what it says to a pod, and what would let the pod in."""

import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from nodewright.ask import Node
from nodewright.cli import options
from nodewright.cli.app import NO, YES
from nodewright.cli.failed import failed
from nodewright.cli.opening import Opened, opened, show
from nodewright.model.pressure import NodeCondition
from nodewright.node.counterfactual import BUDGET
from nodewright.node.step import Decision
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.explain import Told, explanation_text
from nodewright.render.explain_document import explanation_document
from nodewright.render.report import explanation_page
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import Workload


def _conditions(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[NodeCondition, bool]:
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if name not in set(NodeCondition) or (separator and value not in ("True", "False")):
            names = ", ".join(NodeCondition)
            raise click.BadParameter(f"{text!r} is none of {names}, with =True or =False", context, option)
        found[NodeCondition(name)] = value != "False"
    return found


@click.command("explain")
@partial(options.question, needs_files=False)
@click.option(
    "--pod",
    "pods",
    multiple=True,
    metavar="[NAMESPACE/]NAME|FILE",
    help="With -f: explain this pod only; those before it come first all the same. Without -f: a file with a pod that "
    "has failed, as `kubectl get pod -o yaml` gives it. Repeatable.",
)
@click.option(
    "--condition",
    "conditions",
    multiple=True,
    metavar="CONDITION[=True|False]",
    callback=_conditions,
    help="What the node says of itself, beside its profile: MemoryPressure, DiskPressure, PIDPressure. Repeatable.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    default=BUDGET,
    show_default=True,
    help="Decisions after which the search for what would let a pod in ends.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page besides, with the machine drawn as it is after the last of the pods; it needs nothing else.",
)
@options.output("json", "yaml", "wide")
def command(
    question: options.Question,
    *,
    pods: tuple[str, ...],
    conditions: dict[NodeCondition, bool],
    budget: int,
    page: Path | None,
    output: str | None,
) -> int:
    """Say for each pod, in order, why the node takes it or not, and the smallest changes that would let it in.

    For a pod that asks for resources of certain NUMA nodes: what each resource manager would prefer, what the topology
    manager makes of it, who has what is missing. Every change that is told was tried on this node. Exit codes as admit.
    """
    if not question.filenames and not pods:
        raise click.UsageError("either -f with manifests, or --pod with the file of a pod that has failed")
    found = opened(question if question.filenames else replace(question, filenames=pods))
    said = dict.fromkeys(found.node.state.conditions, True) | conditions
    holding = (condition for condition, holds in said.items() if holds)
    found = replace(found, node=found.node.with_conditions(holding))
    if question.filenames:
        told, asked = _told(found, _chosen(found.workloads, pods), budget)
    else:
        told, asked = list(failed(found, budget)), found.node
    config = asked.config
    if output in ("json", "yaml"):
        document = explanation_document(told, config, warnings=found.warnings, skipped=found.skipped)
        text = (as_json if output == "json" else as_yaml)(document)
    else:
        text = explanation_text(told, width=shutil.get_terminal_size().columns, wide=output == "wide")
    if page is not None:
        page.write_text(explanation_page(told, asked.state), "utf-8")
    show(text, output, asked.config)
    return YES if all(one.explained.step.decision is Decision.ADMITTED for one in told) else NO


def _told(found: Opened, chosen: Collection[int], budget: int) -> tuple[list[Told], Node]:
    """The explanations of the pods at these places, each after all before it; and the node afterwards."""
    asked, told = found.node, []
    for at, workload in enumerate(found.workloads):
        if at in chosen:
            origin = "" if workload.kind == "Pod" else f"{workload.kind} {workload.name}"
            told.append(Told(explained=asked.explain(workload.pod, budget=budget), origin=origin))
        if at <= max(chosen, default=0):
            asked = asked.admit(workload.pod).node
    return told, asked


def _chosen(workloads: Sequence[Workload], names: Iterable[str]) -> set[int]:
    """The places of the workloads whose pods are meant; none named: all."""
    found: set[int] = set()
    faults = []
    for name in names:
        places = {
            at for at, one in enumerate(workloads) if name in (one.pod.metadata.name, one.pod.full_name)
        }
        if not places:
            faults.append(Fault(source="--pod", value=name, rule="is none of the pods of the manifests"))
        found |= places
    if faults:
        raise InputError(faults)
    return found or set(range(len(workloads)))
