"""`nodewright fleet`: what comes of many nodes and pods over time, and what else would fit."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from nodewright.ask import load_pods
from nodewright.cli.app import NO, YES
from nodewright.cli.fleet_capacity import capacity
from nodewright.cli.fleet_generate import generate
from nodewright.cli.fleet_minimise import minimise
from nodewright.cli.fleet_options import FleetQuestion, fleet_question, seconds_of
from nodewright.cli.fleet_runs import Sweep, Telling, Works, axes_of, heeding, played, scorers_of, swept
from nodewright.cli.options import output as output_option
from nodewright.fleet import SCORES, Checkpoint, Options
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.fleet.document import fleet_document, pod_columns
from nodewright.render.fleet.page import fleet_page
from nodewright.render.fleet.sweeps import Swept, sweep_document, sweep_text
from nodewright.render.fleet.text import fleet_text, pods_text
from nodewright.sim.fleet.engines import Engine
from nodewright.sim.fleet.play import Retry
from nodewright.sim.fleet.summary import FleetSummary, summary
from nodewright.sim.fleet.values import Fate, FleetResult
from nodewright.world.errors import Fault, InputError
from nodewright.world.fleet.load import FleetInput
from nodewright.world.fleet.parquet import write_parquet

_FILE = click.Path(dir_okay=False, path_type=Path)
_UNPLACED = frozenset(Fate) - {Fate.RUNNING, Fate.ENDED}


class DefaultGroup(click.Group):
    """A group whose command `run` is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with `run` before them if they name no command."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("fleet", cls=DefaultGroup)
def command() -> None:
    """Run a fleet: pods arrive, a scheduler chooses nodes, and each node decides as its kubelet would.

    `nodewright fleet --nodes FILE --pods FILE` is short for `nodewright fleet run`.
    """


for _one in (capacity, minimise, generate):
    command.add_command(_one)


_RUN_OPTIONS = (
    output_option("json", "yaml", "wide"),
    click.option(
        "--parquet",
        type=_FILE,
        metavar="FILE",
        help="Write every pod as a row of a Parquet file (extra: parquet).",
    ),
    click.option(
        "--html",
        type=_FILE,
        metavar="FILE",
        help="Write a page with tables and plots that needs nothing else.",
    ),
    click.option("--probe", metavar="FILE", help="A pod: count how many more of its kind fit at the end."),
    click.option(
        "--sweep",
        multiple=True,
        metavar="FIELD=VALUE,VALUE",
        help="Run once for each value of a KubeletConfiguration's field, e.g. topologyManagerPolicy, or of "
        "`scores`. Repeatable: all combinations.",
    ),
    click.option(
        "--shards",
        metavar="LABEL",
        help="Cut the fleet into clusters by this label of its nodes, and run each by itself. Pods that select none "
        "are dealt out in turn.",
    ),
    click.option(
        "--engine",
        type=click.Choice([one.value for one in Engine]),
        default=Engine.LOCAL.value,
        show_default=True,
        help="Who runs a sweep and shards: this machine, or the cluster of RAY_ADDRESS or DASK_SCHEDULER_ADDRESS.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="How many combinations of a sweep, or shards, run at once.",
    ),
    click.option(
        "--retry",
        type=click.Choice([one.value for one in Retry]),
        default=Retry.SAME.value,
        show_default=True,
        help="Where a controller's next pod goes when a node has refused one.",
    ),
    click.option(
        "--preemption/--no-preemption",
        default=True,
        show_default=True,
        help="Whether pods of higher priority send others away.",
    ),
    click.option(
        "--until",
        callback=seconds_of,
        metavar="SPAN",
        help="End after so much virtual time, e.g. 90s or 1h30m. Default: when nobody comes or goes any more.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Keep in a file how far the run is, and go on from there if the file is there already.",
    ),
    click.option(
        "--policies",
        multiple=True,
        metavar="FILE",
        help="A Python file with node scorers of your own for --scores. It is run. Repeatable.",
    ),
    click.option(
        "--scores",
        default="default",
        show_default=True,
        metavar="NAME",
        help=f"What the scheduler likes in a node: {', '.join(SCORES)}, or a node scorer of --policies.",
    ),
)


def _run_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options of a run, besides those that say which fleet is meant."""
    for option in _RUN_OPTIONS:
        command = option(command)
    return command


@command.command("run")
@fleet_question
@_run_options
def run(
    question: FleetQuestion,
    *,
    sweep: tuple[str, ...],
    probe: str | None,
    checkpoint: Path | None,
    **wish: Any,
) -> int:
    """Run a fleet through its time.

    Pods arrive, run and leave; said is where each went, what is used, and what cannot be.

    Pods that no node can ever hold are told at once. Ctrl-C ends the run, and what came of it until then is told.
    Exit code 0 if every pod found its place, 3 if not.
    """
    is_sweep = bool(sweep) or wish["shards"] is not None
    fleet = question.load()
    options = replace(_options(wish, is_sweep=is_sweep), budgets=fleet.budgets)
    pod = load_pods(probe, namespace=question.namespace)[0] if probe is not None else None
    if is_sweep and (checkpoint is not None or any(wish[name] is not None for name in ("html", "parquet"))):
        raise click.UsageError(
            "--checkpoint, --html and --parquet are for one run: without --sweep and --shards"
        )
    if is_sweep:
        works = Works(wish["workers"], Engine(wish["engine"]))
        asked = Sweep(
            fleet=fleet,
            axes=axes_of(sweep),
            options=options,
            shards=wish["shards"],
            probe=pod,
            policies=wish["policies"],
        )
        return _side_by_side(asked, swept(asked, works), wish["output"])
    kept = None if checkpoint is None else Checkpoint(checkpoint)
    result = played(fleet, options, checkpoint=kept)
    # What has come of it is told whole: the checkpoint is gone by now.
    with heeding(Telling()):
        found = summary(result, pod)
        _write(fleet, result, found, wish)
    return NO if any(found.fates.get(fate) for fate in _UNPLACED) or not found.complete else YES


def _options(wish: dict[str, Any], *, is_sweep: bool) -> Options:
    """How the fleet is run.

    Errors: InputError for files of policies that fail, and for scores that nobody has.
    """
    scorers = scorers_of(wish["policies"])
    known = (*SCORES, *(one.name for one in scorers))
    if wish["scores"] not in known:
        rule = f"one of {', '.join(known)} is wanted"
        raise InputError([Fault(source="--scores", value=wish["scores"], rule=rule)])
    tells_each = not is_sweep and (wish["output"] is not None or wish["parquet"] is not None)
    return Options(
        scores=wish["scores"],
        retry=Retry(wish["retry"]),
        preempts=wish["preemption"],
        policies=scorers,
        keeps=tells_each,
        until_s=wish["until"],
    )


def _write(fleet: FleetInput, result: FleetResult, found: FleetSummary, wish: dict[str, Any]) -> None:
    columns = shutil.get_terminal_size().columns
    if wish["html"] is not None:
        wish["html"].write_text(fleet_page(found, result, assumed_lines(fleet)), "utf-8")
    if wish["parquet"] is not None:
        write_parquet(wish["parquet"], pod_columns(result))
    if wish["output"] in ("json", "yaml"):
        document = {**fleet_document(found, result, warnings=fleet.warnings), "assumed": assumed(fleet)}
        click.echo((as_json if wish["output"] == "json" else as_yaml)(document), nl=False)
        return
    click.echo(fleet_text(found, columns=columns), nl=False)
    click.echo(assumed_text(fleet, columns), nl=False)
    if wish["output"] == "wide":
        click.echo()
        click.echo(pods_text(result, columns=columns), nl=False)


def _side_by_side(asked: Sweep, found: Swept, output: str | None) -> int:
    fleet, runs = asked.fleet, len(asked.chunks())
    is_complete = len(found) == runs and all(one.complete for _, one in found)
    if output in ("json", "yaml"):
        document = {
            **sweep_document(found, warnings=fleet.warnings),
            "complete": is_complete,
            "assumed": assumed(fleet),
        }
        click.echo((as_json if output == "json" else as_yaml)(document), nl=False)
    else:
        columns = shutil.get_terminal_size().columns
        if not is_complete:
            whole = sum(one.complete for _, one in found)
            how_far = ", and this is how far it came" if found else ""
            click.echo(f"broken off: {whole} of {runs} runs are complete{how_far}")
        if found:
            click.echo(sweep_text(found, columns=columns), nl=False)
        click.echo(assumed_text(fleet, columns), nl=False)
    is_well = is_complete and not any(one.fates.get(fate) for _, one in found for fate in _UNPLACED)
    return YES if is_well else NO


def assumed(fleet: FleetInput) -> dict[str, Any]:
    """What the files do not tell and was assumed, or taken from shapes that somebody named."""
    furnished = fleet.furnished
    return {
        "shapes": dict(furnished.assumed),
        "shapesByRule": dict(furnished.named),
        "nodesWithSystemCore": furnished.with_system_core,
        "nodesWithSystemMemory": furnished.with_system_memory,
    }


def assumed_text(fleet: FleetInput, columns: int) -> str:
    """The same in words, for so many columns."""
    return "".join(
        f"{fill(line, columns - 1, subsequent_indent='  ', break_on_hyphens=False)}\n"
        for line in assumed_lines(fleet)
    )


def assumed_lines(fleet: FleetInput) -> list[str]:
    """The same, a line each."""
    furnished = fleet.furnished
    lines = []
    if furnished.assumed:
        shapes = ", ".join(f"{count} {name}" for name, count in furnished.assumed.items())
        lines.append(
            f"assumed: NUMA nodes, cores and caches as machines of that size usually have them ({shapes})"
        )
    if furnished.named:
        shapes = ", ".join(f"{count} {name}" for name, count in furnished.named.items())
        lines.append(f"from --shapes: NUMA nodes, cores and caches ({shapes})")
    if furnished.with_system_core:
        lines.append(
            f"assumed: {furnished.with_system_core} nodes that keep no CPU from pods have a core more for the system, "
            "without which a static CPU manager does not start"
        )
    if furnished.with_system_memory:
        lines.append(
            f"assumed: {furnished.with_system_memory} nodes that keep no memory from pods have 100Mi more, "
            "the threshold below which their kubelets evict"
        )
    return lines
