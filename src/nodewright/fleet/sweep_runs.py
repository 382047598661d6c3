"""Runs fleets for commands, with progress and warnings on stderr, and sweeps over settings.

A sweep runs the same fleet with all combinations of settings of its kubelets and its scheduler.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.kubectl_yaml import read_yaml
from nodewright.engine.core.predicates.predicate_check import allocatable_amounts
from nodewright.fleet import SCORES as KNOWN
from nodewright.fleet import NodeScorer, Options, RunCheckpoint, run
from nodewright.fleet.capacity import report_unschedulable
from nodewright.fleet.engines import Engine, EngineMissingError, map_chunks
from nodewright.fleet.fleet_summary import FleetSummary, fleet_summary
from nodewright.fleet.load.fleet_input import FleetInput
from nodewright.fleet.simulation.outcomes import FleetResult
from nodewright.fleet.sweep_runs import RunProgress, interrupts_noted
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node_from_profile import node_parts
from nodewright.predict.policy_registry import load_policies

SCORES = "scores"
"""The axis for the scheduler's scores; all others are fields of KubeletConfiguration."""


class SweepAxis(msgspec.Struct, frozen=True):
    """A field, as a dotted path, and its values."""

    field: str
    values: tuple[Any, ...]


class SweepPoint(msgspec.Struct, frozen=True):
    """One combination: a value for each field."""

    settings: Mapping[str, Any]
    shard_label: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The label that divides the fleet, and its value for the nodes of this run; empty: all nodes."""

    @property
    def labels(self) -> Mapping[str, Any]:
        """Everything that distinguishes it from the others."""
        return {**self.shard_label, **self.settings}

    @property
    def name(self) -> str:
        """The combination as text: `topologyManagerPolicy=restricted`."""
        return ", ".join(f"{name}={_text(value)}" for name, value in self.labels.items())

    @property
    def scores(self) -> str | None:
        """The name of the scheduler's scores; None: unchanged."""
        return self.settings.get(SCORES)

    def configuration(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """The KubeletConfiguration with these values.

        >>> SweepPoint({"a.b": 1, "c": 2}).configuration({"a": {"x": 0}})
        {'a': {'x': 0, 'b': 1}, 'c': 2}
        """
        configuration: dict[str, Any] = dict(base)
        for path, value in self.settings.items():
            if path == SCORES:
                continue
            *parents, last = path.split(".")
            parent = configuration
            for name in parents:
                parent[name] = dict(parent.get(name) or {})
                parent = parent[name]
            parent[last] = value
        return configuration


def sweep_points(axes: Sequence[SweepAxis]) -> tuple[SweepPoint, ...]:
    """All combinations; the last axis varies fastest."""
    fields = [axis.field for axis in axes]
    combinations = product(*(axis.values for axis in axes))
    return tuple(SweepPoint(dict(zip(fields, values, strict=True))) for values in combinations)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def pods_with_warnings(fleet: FleetInput, progress: RunProgress) -> Iterator[FleetPod]:
    """The pods in the order of their arrival, with warnings about unschedulable ones."""
    return report_unschedulable(
        fleet.pods(), nodes_with_allocatable(fleet.nodes), progress.warn_unschedulable
    )


def nodes_with_allocatable(nodes: Sequence[FleetNode]) -> list[tuple[FleetNode, Mapping[str, int]]]:
    """The nodes with their allocatable resources."""
    known: dict[int, Mapping[str, int]] = {}
    for node in nodes:
        if id(node.profile) not in known:
            known[id(node.profile)] = _amounts(node.profile)
    return [(node, known[id(node.profile)]) for node in nodes]


def _amounts(profile: NodeProfile) -> Mapping[str, int]:
    parts, _ = node_parts(profile, source=f"nodes of the shape {profile.metadata.name}")
    return allocatable_amounts(parts.resources.allocatable)


def run_fleet(
    fleet: FleetInput,
    options: Options,
    progress: RunProgress | None = None,
    *,
    checkpoint: RunCheckpoint | None = None,
) -> FleetResult:
    """Runs the fleet; after Ctrl-C, the result so far. A second Ctrl-C ends the command.

    There are no warnings about unschedulable pods for a part of a fleet, because other parts may hold them.

    Errors: InputError for a checkpoint of another run; CustomPolicyError for a policy that fails.
    """
    progress = progress or RunProgress()
    if progress.is_shown and progress.expected is None:
        progress.expected = fleet.pod_count
    with interrupts_noted(progress):
        pods = pods_with_warnings(fleet, progress) if fleet.shard is None else fleet.pods()
        return run(fleet.nodes, pods, options, watch=progress.show_progress, checkpoint=checkpoint)


def parse_axes(texts: Sequence[str]) -> tuple[SweepAxis, ...]:
    """The axes of a sweep, each `FIELD=VALUE,VALUE`.

    Errors: InputError for invalid texts and duplicate fields.
    """
    axes: dict[str, SweepAxis] = {}
    faults = []
    for text in texts:
        name, _, values = text.partition("=")
        if not name or not values:
            faults.append(Fault(source="--sweep", value=text, rule="must be FIELD=VALUE,VALUE"))
        elif name in axes:
            faults.append(Fault(source="--sweep", value=text, rule=f"{name} is given twice"))
        else:
            axes[name] = SweepAxis(name, tuple(_value(item) for item in values.split(",")))
    if faults:
        raise InputError(faults)
    return tuple(axes.values())


def _value(text: str) -> Any:
    """The value of a YAML scalar."""
    documents = read_yaml(text, "--sweep") if text.strip() else []
    return documents[0] if documents else ""


class SweepWorkers(msgspec.Struct, frozen=True):
    """The engine that runs a sweep, and the number of workers."""

    workers: int = 1
    engine: Engine = Engine.LOCAL

    @property
    def is_in_process(self) -> bool:
        """Whether the runs are made in this process, one after the other."""
        return self.workers <= 1 and self.engine is Engine.LOCAL


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet under all combinations of settings, as a whole or divided into clusters by a label."""

    fleet: FleetInput
    axes: Sequence[SweepAxis]
    options: Options
    shard_label: str | None = None
    probe: Pod | None = None
    policy_files: tuple[str, ...] = ()
    """The files of the options' policies."""

    def runs(self) -> "list[tuple[SweepPoint, SweepRun]]":
        """All runs with their points.

        Errors: InputError for nodes without the label, and for unknown scores.
        """
        fleets = [self.fleet] if self.shard_label is None else self.fleet.shards(self.shard_label)
        return [self._chunk(fleet, point) for point in sweep_points(self.axes) for fleet in fleets]

    def _chunk(self, fleet: FleetInput, point: SweepPoint) -> "tuple[SweepPoint, SweepRun]":
        configured = fleet.with_configuration(point.configuration(fleet.files.node_defaults.configuration))
        options = self.options if point.scores is None else _with_scores(self.options, point.scores)
        shard_label = {fleet.shard.label: fleet.shard.value} if fleet.shard is not None else {}
        return replace(point, shard_label=shard_label), SweepRun(configured, options, self.probe)


def run_sweep(sweep: Sweep, workers: SweepWorkers) -> list[tuple[SweepPoint, FleetSummary]]:
    """The statistics of each run of the sweep, independent of the engine. After Ctrl-C, those of finished runs.

    Errors: as `Sweep.runs`; HostError if the engine is not installed.
    """
    progress, runs = RunProgress(), sweep.runs()
    if not workers.is_in_process or sweep.shard_label is not None:
        for _ in pods_with_warnings(sweep.fleet, progress):
            pass  # warn about unschedulable pods once
    if not workers.is_in_process:
        working_directory = str(Path.cwd())
        chunks = [
            replace(
                chunk,
                options=replace(chunk.options, policies=()),
                policy_files=sweep.policy_files,
                working_directory=working_directory,
            )
            for _, chunk in runs
        ]
        return _run_by_engine([point for point, _ in runs], chunks, workers, progress)
    summaries: list[tuple[SweepPoint, FleetSummary]] = []
    for point, chunk in runs:
        progress.start_run(point.name, len(summaries) + 1, len(runs))
        result = run_fleet(chunk.fleet, chunk.options, progress)
        summaries.append((point, fleet_summary(result, sweep.probe)))
        if not result.complete:
            break
    return summaries


def _run_by_engine(
    known: Sequence[SweepPoint], chunks: Sequence["SweepRun"], workers: SweepWorkers, progress: RunProgress
) -> list[tuple[SweepPoint, FleetSummary]]:
    summaries: list[tuple[SweepPoint, FleetSummary]] = []
    try:
        for chunk in map_chunks(run_summary, chunks, workers=workers.workers, engine=workers.engine):
            summaries.append((known[len(summaries)], chunk))
            progress.show_finished_runs(len(summaries), len(chunks))
    except EngineMissingError as error:
        raise HostError("start", workers.engine, str(error)) from error
    except KeyboardInterrupt:
        pass  # the finished runs are reported, and that they are not all
    finally:
        progress.clear_progress_line()
    return summaries


class SweepRun(msgspec.Struct, frozen=True):
    """One run of a sweep for any engine; policies are transferred as file names, because functions are not picklable."""

    fleet: FleetInput
    options: Options
    probe: Pod | None
    policy_files: tuple[str, ...] = ()
    """Files of node scorers."""
    working_directory: str = ""
    """The directory to which file names are relative."""


def run_summary(chunk: SweepRun) -> FleetSummary:
    """Makes a run without output; its statistics."""
    with chdir(chunk.working_directory):
        options = replace(chunk.options, policies=load_node_scorers(chunk.policy_files))
        return fleet_summary(run(chunk.fleet.nodes, chunk.fleet.pods(), options), chunk.probe)


def load_node_scorers(files: Sequence[str]) -> tuple[NodeScorer, ...]:
    """The node scorers in these files.

    Errors: InputError for files that cannot be loaded.
    """
    return (
        tuple(policy for policy in load_policies(files).policies if isinstance(policy, NodeScorer))
        if files
        else ()
    )


def _with_scores(options: Options, scores: str) -> Options:
    known = (*KNOWN, *(policy.name for policy in options.policies if isinstance(policy, NodeScorer)))
    if scores not in known:
        rule = f"must be one of {', '.join(known)}"
        raise InputError([Fault(source=f"--sweep {SCORES}", value=scores, rule=rule)])
    return replace(options, scores=scores)
