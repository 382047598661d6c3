"""`nodewright fleet`: simulates nodes and pods over time; `fleet generate`: a random fleet and workload, as CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import click
from msgspec.structs import replace

from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.fleet.fleet_capacity import capacity, minimise
from nodewright.cli.fleet.fleet_options import (
    NO_POD,
    FleetQuery,
    fleet_query_options,
    parse_drains,
    parse_seconds,
)
from nodewright.cli.options import output_file_option, output_option
from nodewright.cli.output_files import page_origin, write_page
from nodewright.documents.files.file_store import output_file, write_errors, write_output
from nodewright.documents.formats.documents import found_instead
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.output.command_line import FiniteRange, IntegerRange, option, with_options
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import (
    NO,
    YES,
    print_line,
    print_message,
    print_text,
    terminal_columns,
)
from nodewright.engine.core.lending.predictors import Predictor
from nodewright.fleet import SCORES, Options
from nodewright.fleet.engines import Engine
from nodewright.fleet.fleet_lending import FleetLoans, PodStays, fleet_loans
from nodewright.fleet.fleet_summary import FleetSummary, fleet_summary
from nodewright.fleet.load.fleet_input import FleetInput
from nodewright.fleet.report.fleet_page import fleet_page
from nodewright.fleet.report.fleet_report import (
    default_policies,
    fleet_assumptions,
    fleet_report,
    pod_columns,
    write_parquet,
)
from nodewright.fleet.report.fleet_text import fleet_text, pods_text
from nodewright.fleet.report.sweep_report import (
    SweepReport,
    SweepSummaries,
    sweep_page,
    sweep_runs_report,
    sweep_text,
)
from nodewright.fleet.simulation.fleet_simulation import Retry
from nodewright.fleet.simulation.outcomes import FleetResult, PodOutcome
from nodewright.fleet.sweep_runs import (
    RunProgress,
    Sweep,
    SweepWorkers,
    interrupts_noted,
    load_node_scorers,
    parse_axes,
    run_fleet,
    run_sweep,
)
from nodewright.fleet.synthetic import NODE_HEADER, POD_HEADER, SyntheticFleet, node_rows, pod_rows
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import counted, printable, printable_lines
from nodewright.predict.policy_registry import chosen_predictor, load_policies
from nodewright.predict.python_sources import add_sources


@click.command("generate")
@option("--seed", "The same seed gives the same files.", type=IntegerRange(-(2**63), 2**63 - 1), default=1)
@option("--nodes", "Number of nodes.", default=100, type=IntegerRange(1, 10_000_000))
@option("--pods", "Number of pods.", default=10_000, type=IntegerRange(0, 100_000_000))
@option(
    "--load",
    "Average share of all CPUs that pods request in the steady state.",
    default=0.8,
    type=FiniteRange(0, 5, min_open=True),
)
@output_file_option("--nodes-file", required=True, help="Output file for nodes.")
@output_file_option("--pods-file", required=True, help="Output file for pods.")
def generate(*, seed: int, nodes: int, pods: int, load: float, nodes_file: Path, pods_file: Path) -> int:
    """Generate a random fleet and workload from a seed, as CSV.

    The files are input for `fleet --nodes FILE --pods FILE`.
    """
    fleet = SyntheticFleet(seed=seed, nodes=nodes, pods=pods, cpu_load=load)
    with write_errors(nodes_file), output_file(nodes_file) as file:
        file.write(_csv(NODE_HEADER, node_rows(fleet)))
        file.flush()
        # The file of nodes is put in place after that of pods, and not at all without it.
        write_output(pods_file, _csv(POD_HEADER, pod_rows(fleet)))
    return YES


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _probe_pod(path: str, namespace: str) -> Pod:
    """The first pod of the file of --probe.

    Errors: InputError if it has none.
    """
    loading = ManifestLoader(namespace)
    add_sources(loading, (path,))
    given = loading.result()
    if not given.workloads:
        raise InputError([Fault(source=path, rule=f"has no pod{found_instead(given.skipped)}")])
    return given.workloads[0].pod


_UNPLACED = frozenset(PodOutcome) - {PodOutcome.RUNNING, PodOutcome.ENDED}


class DefaultGroup(click.Group):
    """A group that runs its command `run` if no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with `run` before them if they name no command."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("fleet", cls=DefaultGroup)
def command() -> None:
    """Simulate a cluster: pods arrive, a scheduler chooses nodes, and each node decides as its kubelet would.

    `nodewright fleet --nodes FILE --pods FILE` is short for `nodewright fleet run`.
    """


for _subcommand in (capacity, minimise, generate):
    command.add_command(_subcommand)


_RUN_OPTIONS = (
    output_option("json", "yaml", "wide"),
    output_file_option(
        "--parquet",
        help="Also write a Parquet file with one row per pod (extra: parquet).",
    ),
    output_file_option(
        "--html",
        help="Also write a self-contained page with tables and plots; with --sweep, the runs side by side.",
    ),
    option("--probe FILE", "Count how many more copies of this pod fit at the end."),
    option(
        "--sweep FIELD=VALUE,VALUE",
        "Run once for each value of a KubeletConfiguration field, e.g. topologyManagerPolicy, or of "
        "`scores`. Repeatable: all combinations.",
        multiple=True,
    ),
    option(
        "--shards LABEL",
        "Split the fleet into clusters by this node label, and run each separately. Pods that select no cluster "
        "are distributed round-robin.",
    ),
    option(
        "--engine",
        "Where sweeps and shards run: on this machine, or on the cluster of RAY_ADDRESS or DASK_SCHEDULER_ADDRESS.",
        type=click.Choice([engine.value for engine in Engine]),
        default=Engine.LOCAL.value,
    ),
    option(
        "--workers",
        "Number of combinations of a sweep, or shards, that run in parallel.",
        type=IntegerRange(1, 1024),
        default=1,
    ),
    option(
        "--retry",
        "Where a controller's replacement pod goes after a node has refused its pod.",
        type=click.Choice([retry.value for retry in Retry]),
        default=Retry.SAME.value,
    ),
    option(
        "--extender", "The scheduler asks each kubelet before it binds a pod, as with `nodewright extender`."
    ),
    option(
        "--lend PREDICTOR",
        "Show what nodes could lend BestEffort pods. Of memory; NAME or NAME:PERCENT as for `agent`. Needs --usage.",
    ),
    option(
        "--drain NAME=SPAN",
        "Cordon and drain this node then. Its pods leave as their PodDisruptionBudgets allow it. Repeatable.",
        name="drains",
        multiple=True,
        callback=parse_drains,
    ),
    option("--preemption/--no-preemption", "Preempt lower-priority pods.", default=True),
    option(
        "--until SPAN",
        "End after this virtual time, e.g. 90s or 1h30m. Default: after the last arrival and the last end of a pod.",
        callback=parse_seconds,
    ),
    option(
        "--policies FILE",
        "Python file that defines node scorers for --scores or predictors for --lend; it is executed. Repeatable.",
        multiple=True,
    ),
    option(
        "--scores NAME",
        f"Scoring strategy: {', '.join(SCORES)}, or a node scorer of --policies.",
        default="default",
    ),
)


def _run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options of a run, except those that specify the fleet."""
    return with_options(command, _RUN_OPTIONS)


@command.command("run")
@partial(cluster_options, whole={"filenames": ("nodes", "pods", "pdb")}, is_cluster_wide=True)
@fleet_query_options
@_run_options
def run(
    query: FleetQuery,
    *,
    sweep: tuple[str, ...],
    probe: str | None,
    **choices: Any,
) -> int:
    """Simulate a fleet over time.

    Report placements, utilization and unschedulable pods. With --context or --kubeconfig and without files: the
    nodes and pods of that cluster; with --nodes nodes: its nodes.

    Pods that fit on no node are reported at the start. Ctrl-C ends the run and prints the results so far.
    Exit code 0 if every pod was placed, 3 if not.
    """
    is_sweep = bool(sweep) or choices["shards"] is not None
    fleet = query.load()
    options = replace(_options(choices, is_sweep=is_sweep), budgets=fleet.budgets, claims=fleet.claims)
    known = {entry.name for entry in fleet.node_entries}
    if unknown := [drain.node for drain in options.drains if drain.node not in known]:
        rule = "there is no such node"
        raise InputError([Fault(source="--drain", value=name, rule=rule) for name in unknown])
    pod = _probe_pod(probe, query.namespace) if probe is not None else None
    for name in ("parquet", "lend"):
        if is_sweep and choices[name] is not None:
            raise click.UsageError(f"--{name} cannot be combined with --sweep and --shards")
    if is_sweep:
        workers = SweepWorkers(choices["workers"], Engine(choices["engine"]))
        planned = Sweep(
            fleet=fleet,
            axes=parse_axes(sweep),
            options=options,
            shard_label=choices["shards"],
            probe=pod,
            policy_files=choices["policies"],
        )
        return _report_sweep(planned, run_sweep(planned, workers), choices["output"], choices["html"])
    predictor, stays = _predictor(choices), PodStays()
    result = run_fleet(fleet, options, sink=None if predictor is None else stays)
    # A late Ctrl-C does not cut the report short.
    with interrupts_noted(RunProgress()):
        summary = fleet_summary(result, pod)
        if pod is None and not any(summary.outcomes.values()):
            raise InputError([NO_POD])
        if predictor is not None:
            summary = replace(summary, loans=_loans(result, stays, predictor))
        _write_report(fleet, result, summary, choices)
    return NO if any(summary.outcomes.get(outcome) for outcome in _UNPLACED) or not summary.complete else YES


def _loans(result: FleetResult, stays: PodStays, predictor: Predictor) -> FleetLoans | None:
    """What could be lent; None, with a message, if it is nothing."""
    loans = fleet_loans(result, stays.stays, predictor)
    if loans is None:
        print_message(f"--lend: {predictor.name} lends nothing")
    return loans


def _predictor(choices: dict[str, Any]) -> Predictor | None:
    """The predictor of --lend, a custom one included. Errors: InputError for an unknown one."""
    if choices["lend"] is None:
        return None
    return chosen_predictor(choices["lend"], "--lend", load_policies(choices["policies"]))


def _options(choices: dict[str, Any], *, is_sweep: bool) -> Options:
    """The options of the simulation.

    Errors: InputError for policy files that fail, and for unknown scoring strategies.
    """
    scorers = load_node_scorers(choices["policies"])
    known = (*SCORES, *(scorer.name for scorer in scorers))
    if choices["scores"] not in known:
        rule = f"must be one of {', '.join(known)}"
        raise InputError([Fault(source="--scores", value=choices["scores"], rule=rule)])
    lists_pods = not is_sweep and (choices["output"] is not None or choices["parquet"] is not None)
    return Options(
        scores=choices["scores"],
        retry=Retry(choices["retry"]),
        preemption=choices["preemption"],
        policies=scorers,
        keep_finished_pods=lists_pods or choices["lend"] is not None,
        samples_nodes=not is_sweep and choices["html"] is not None,
        until_s=choices["until"],
        drains=choices["drains"],
        extender=choices["extender"],
    )


def _write_report(
    fleet: FleetInput, result: FleetResult, summary: FleetSummary, choices: dict[str, Any]
) -> None:
    columns = terminal_columns()
    if choices["html"] is not None:
        write_page(choices["html"], fleet_page(summary, result, assumption_lines(fleet), page_origin()))
    if choices["parquet"] is not None:
        write_parquet(choices["parquet"], pod_columns(result))
    if choices["output"] in ("json", "yaml"):
        report = fleet_report(summary, result, fleet_assumptions(fleet), warnings=fleet.warnings)
        print_text((as_json if choices["output"] == "json" else as_yaml)(report))
        return
    print_text(fleet_text(summary, columns=columns))
    print_text(assumptions_text(fleet, columns))
    if choices["output"] == "wide":
        print_line("")
        print_text(pods_text(result, columns=columns))


def _report_sweep(sweep: Sweep, summaries: SweepSummaries, output: str | None, html: Path | None) -> int:
    """Prints the runs of a sweep for comparison, and returns the exit code."""
    fleet, run_count, swept = sweep.fleet, len(sweep.runs()), [axis.field for axis in sweep.axes]
    if html is not None:
        notes = assumption_lines(fleet, swept)
        write_page(html, sweep_page(summaries, run_count=run_count, notes=notes, origin=page_origin()))
    is_complete = len(summaries) == run_count and all(summary.complete for _, summary in summaries)
    if output in ("json", "yaml"):
        report = SweepReport(
            sweep=sweep_runs_report(summaries),
            warnings=tuple(fleet.warnings),
            complete=is_complete,
            assumed=fleet_assumptions(fleet, swept),
        )
        print_text((as_json if output == "json" else as_yaml)(report))
    else:
        columns = terminal_columns()
        if not is_complete:
            complete_count = sum(summary.complete for _, summary in summaries)
            results = "; results so far:" if summaries else ""
            print_line(f"interrupted: complete runs: {complete_count} of {run_count}{results}")
        if summaries:
            print_text(sweep_text(summaries, columns=columns))
        print_text(assumptions_text(fleet, columns, swept))
    has_unplaced = any(summary.outcomes.get(outcome) for _, summary in summaries for outcome in _UNPLACED)
    return YES if is_complete and not has_unplaced else NO


def assumptions_text(fleet: FleetInput, columns: int, swept: Iterable[str] = ()) -> str:
    """The assumptions as text, wrapped at this width."""
    return printable_lines(
        row
        for line in assumption_lines(fleet, swept)
        for row in wrap(printable(line), columns - 1, subsequent_indent="  ", break_on_hyphens=False)
    )


def assumption_lines(fleet: FleetInput, swept: Iterable[str] = ()) -> list[str]:
    """The assumptions, one line each."""
    nodes = fleet.assembled
    lines = []
    if policies := default_policies(fleet, swept):
        fields = ", ".join(f"{name} {value}" for name, value in policies.items())
        lines.append(f"assumed: {fields} (--kubelet-config FILE)")
    if nodes.assumed_shapes:
        shapes = ", ".join(f"{count} {name}" for name, count in nodes.assumed_shapes.items())
        lines.append(f"assumed: NUMA nodes, cores and caches typical for machines of that size ({shapes})")
    if nodes.configured_shapes:
        shapes = ", ".join(f"{count} {name}" for name, count in nodes.configured_shapes.items())
        lines.append(f"from --shapes: NUMA nodes, cores and caches ({shapes})")
    if nodes.with_system_core:
        lines.append(
            f"assumed: one more core reserved for the system on {counted(nodes.with_system_core, 'node')} without reserved CPUs, "
            "without which the static CPU manager does not start"
        )
    if nodes.with_system_memory:
        lines.append(
            f"assumed: 100Mi more, the default hard eviction threshold, on "
            f"{counted(nodes.with_system_memory, 'node')} without reserved memory"
        )
    return lines
