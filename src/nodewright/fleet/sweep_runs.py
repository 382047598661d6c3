"""Runs fleets for commands, with progress and warnings on stderr, and sweeps over settings.

A sweep runs the same fleet with all combinations of settings of its kubelets and its scheduler.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.kubectl_yaml import read_yaml
from nodewright.documents.output.terminal import (
    clear_progress,
    print_message,
    show_progress,
    terminal_columns,
)
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.predicates.predicate_check import allocatable_amounts
from nodewright.fleet.capacity import UnschedulablePod, report_unschedulable, unschedulable_text
from nodewright.fleet.engines import Engine, EngineMissingError, map_chunks
from nodewright.fleet.fleet_summary import FleetSummary, fleet_summary
from nodewright.fleet.load.fleet_input import FleetInput
from nodewright.fleet.runner import SCORES, NodeScorer, Options, run
from nodewright.fleet.simulation.fleet_simulation import EventSink, Progress
from nodewright.fleet.simulation.outcomes import FleetResult
from nodewright.fleet.simulation.placed_claims import with_served
from nodewright.fleet.workload import FleetNode, FleetPod, duration_text
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node_from_profile import node_parts
from nodewright.predict.policy_registry import load_policies

SCORES_AXIS = "scores"
"""The axis for the scheduler's scores; all others are fields of KubeletConfiguration."""
_MAX_WARNINGS = 20
_PROGRESS_INTERVAL_S = 0.2
_MIN_ELAPSED_S = 2.0
"""Before that, the time left is not estimated."""


def _is_terminal() -> bool:
    return sys.stderr.isatty()


@dataclass(slots=True)
class RunProgress:
    """Progress and warnings on stderr while a fleet runs, and whether the user has interrupted it."""

    is_shown: bool = field(default_factory=_is_terminal)
    expected: int | None = None
    """Number of pods that arrive in a run; None: not known."""
    unschedulable_kinds: int = 0
    """Number of kinds of pods that no node can ever hold."""
    is_interrupted: bool = False
    _run: tuple[str, int, int] = ("", 1, 1)
    """The name of the run, its number and the number of runs."""
    _warned: set[str] = field(default_factory=set)
    _started_s: float = field(default_factory=time.monotonic)
    _last_s: float = 0.0
    _is_dirty: bool = False

    def start_run(self, name: str, number: int, count: int) -> None:
        """Notes which of several runs begins."""
        self._run = (name, number, count)

    def warn_unschedulable(self, unschedulable: UnschedulablePod) -> None:
        """Warns that no node can ever hold a pod: each kind once, and only the first of many kinds."""
        if unschedulable.pod.full_name in self._warned:
            return
        self._warned.add(unschedulable.pod.full_name)
        self.unschedulable_kinds += 1
        if self.unschedulable_kinds <= _MAX_WARNINGS:
            self.clear_progress_line()
            print_message(f"warning: {unschedulable_text(unschedulable)}")
        elif self.unschedulable_kinds == _MAX_WARNINGS + 1:
            print_message("warning: and further kinds of pods that no node can ever hold")

    def show_progress(self, progress: Progress) -> bool:
        """Shows the progress on a terminal; False after Ctrl-C."""
        now_s = time.monotonic()
        if self.is_shown and now_s - self._last_s >= _PROGRESS_INTERVAL_S:
            self._last_s = now_s
            self._show(self.line(progress, now_s - self._started_s))
        return not self.is_interrupted

    def line(self, progress: Progress, elapsed_s: float) -> str:
        """The progress after so many seconds: the run, its share, the time left of all runs, and the counts of pods."""
        name, number, count = self._run
        parts = [f"run {number} of {count}{name and f' ({name})'}"] if count > 1 else []
        if self.expected:
            share = min(progress.arrived / self.expected, 1.0)
            parts.append(f"{share:.0%} of the pods arrived")
            parts += _time_left((number - 1 + share) / count, elapsed_s)
        parts.append(
            f"{duration_text(progress.at_s)} of virtual time: {progress.arrived:,} arrived, "
            f"{progress.running:,} running, {progress.waiting:,} waiting"
        )
        return ", ".join(parts)

    def show_finished_runs(self, number: int, count: int) -> None:
        """Shows on a terminal how many of several concurrent runs are finished."""
        if self.is_shown:
            left = _time_left(number / count, time.monotonic() - self._started_s)
            self._show(", ".join((f"runs finished: {number} of {count}", *left)))

    def _show(self, line: str) -> None:
        self._is_dirty = True
        show_progress(line[: terminal_columns() - 1])  # a line that wraps is not erased

    def clear_progress_line(self) -> None:
        """Removes the progress line."""
        if self._is_dirty:
            clear_progress()
            self._is_dirty = False


def _time_left(share: float, elapsed_s: float) -> list[str]:
    if not 0 < share < 1 or elapsed_s < _MIN_ELAPSED_S:
        return []
    return [f"about {duration_text(round(elapsed_s / share - elapsed_s))} left"]


@contextmanager
def interrupts_noted(progress: RunProgress) -> Iterator[None]:
    """Within this context, a first Ctrl-C sets `is_interrupted`; a second one ends the command."""
    previous = signal.getsignal(signal.SIGINT)

    def set_interrupted(number: int, frame: FrameType | None) -> None:
        del number, frame
        progress.is_interrupted = True
        signal.signal(signal.SIGINT, previous)

    is_installed = threading.current_thread() is threading.main_thread() and callable(previous)
    if is_installed:
        signal.signal(signal.SIGINT, set_interrupted)
    try:
        yield
    finally:
        if is_installed:
            signal.signal(signal.SIGINT, previous)
        progress.clear_progress_line()


def run_fleet(
    fleet: FleetInput,
    options: Options,
    progress: RunProgress | None = None,
    *,
    sink: EventSink | None = None,
) -> FleetResult:
    """Runs the fleet; after Ctrl-C, the result so far. A second Ctrl-C ends the command.

    There are no warnings about unschedulable pods for a part of a fleet, because other parts may hold them.

    Errors: CustomPolicyError for a policy that fails.
    """
    progress = progress or RunProgress()
    if progress.is_shown and progress.expected is None:
        progress.expected = fleet.pod_count
    with interrupts_noted(progress):
        pods = pods_with_warnings(fleet, progress) if fleet.shard is None else fleet.pods()
        return run(fleet.nodes, pods, options, watch=progress.show_progress, sink=sink)


def pods_with_warnings(fleet: FleetInput, progress: RunProgress) -> Iterator[FleetPod]:
    """The pods in the order of their arrival, with warnings about unschedulable ones."""
    nodes = nodes_with_allocatable(fleet.nodes, fleet.claims)
    return report_unschedulable(fleet.pods(), nodes, progress.warn_unschedulable)


def nodes_with_allocatable(
    nodes: Sequence[FleetNode], claims: ClaimCluster | None = None
) -> list[tuple[FleetNode, Mapping[str, int]]]:
    """The nodes with their allocatable resources, those included that device classes serve."""
    known: dict[int, Mapping[str, int]] = {}
    for node in nodes:
        if id(node.profile) not in known:
            known[id(node.profile)] = _amounts(node.profile, claims)
    return [(node, known[id(node.profile)]) for node in nodes]


def _amounts(profile: NodeProfile, claims: ClaimCluster | None) -> Mapping[str, int]:
    parts, _ = node_parts(profile, source=f"nodes of the shape {profile.metadata.name}")
    return with_served(allocatable_amounts(parts.resources.allocatable), claims, parts.gates)


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
        return self.settings.get(SCORES_AXIS)

    def configuration(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """The KubeletConfiguration with these values.

        >>> SweepPoint({"a.b": 1, "c": 2}).configuration({"a": {"x": 0}})
        {'a': {'x': 0, 'b': 1}, 'c': 2}
        """
        configuration: dict[str, Any] = dict(base)
        for path, value in self.settings.items():
            if path == SCORES_AXIS:
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
        return [self._sweep_run(fleet, point) for point in sweep_points(self.axes) for fleet in fleets]

    def _sweep_run(self, fleet: FleetInput, point: SweepPoint) -> "tuple[SweepPoint, SweepRun]":
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
                sweep_run,
                options=replace(sweep_run.options, policies=()),
                policy_files=sweep.policy_files,
                working_directory=working_directory,
            )
            for _, sweep_run in runs
        ]
        return _run_by_engine([point for point, _ in runs], chunks, workers, progress)
    summaries: list[tuple[SweepPoint, FleetSummary]] = []
    for point, sweep_run in runs:
        progress.start_run(point.name, len(summaries) + 1, len(runs))
        result = run_fleet(sweep_run.fleet, sweep_run.options, progress)
        summaries.append((point, fleet_summary(result, sweep.probe)))
        if not result.complete:
            break
    return summaries


def _run_by_engine(
    points: Sequence[SweepPoint], chunks: Sequence["SweepRun"], workers: SweepWorkers, progress: RunProgress
) -> list[tuple[SweepPoint, FleetSummary]]:
    summaries: list[tuple[SweepPoint, FleetSummary]] = []
    try:
        for summary in map_chunks(run_summary, chunks, workers=workers.workers, engine=workers.engine):
            summaries.append((points[len(summaries)], summary))
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


def run_summary(sweep_run: SweepRun) -> FleetSummary:
    """Makes a run without output; its statistics."""
    with chdir(sweep_run.working_directory):
        options = replace(sweep_run.options, policies=load_node_scorers(sweep_run.policy_files))
        fleet = sweep_run.fleet
        return fleet_summary(run(fleet.nodes, fleet.pods(), options), sweep_run.probe)


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
    known = (*SCORES, *(policy.name for policy in options.policies if isinstance(policy, NodeScorer)))
    if scores not in known:
        rule = f"must be one of {', '.join(known)}"
        raise InputError([Fault(source=f"--sweep {SCORES_AXIS}", value=scores, rule=rule)])
    return replace(options, scores=scores)
