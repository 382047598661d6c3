"""Running fleets for commands: what is said meanwhile, and sweeps over settings."""

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import click

from nodewright.ask import parts_of
from nodewright.core.predicates.room import allocatable_amounts
from nodewright.fleet import SCORES as KNOWN
from nodewright.fleet import Checkpoint, NodeScorer, Options, run
from nodewright.model.fleet import FleetNode, FleetPod
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.render.fleet.words import hopeless_text, seconds
from nodewright.sim.fleet.axes import SCORES, Axis, Point, points
from nodewright.sim.fleet.engines import Engine, EngineMissingError, map_chunks
from nodewright.sim.fleet.hopeless import Hopeless, judged
from nodewright.sim.fleet.play import Progress
from nodewright.sim.fleet.summary import FleetSummary, summary
from nodewright.sim.fleet.values import FleetResult
from nodewright.world.errors import Fault, InputError, WorldError
from nodewright.world.fleet.load import FleetInput
from nodewright.world.policies import registry
from nodewright.world.yaml import read_yaml

_MOST_TOLD = 20
_EVERY_S = 0.2


def _is_seen() -> bool:
    return sys.stderr.isatty()


@dataclass(slots=True)
class Telling:
    """What is said on stderr while a fleet runs; and whether somebody has had enough."""

    is_shown: bool = field(default_factory=_is_seen)
    hopeless: int = 0
    """How many kinds of pods no node can ever hold."""
    is_interrupted: bool = False
    _told: set[str] = field(default_factory=set)
    _last_s: float = 0.0
    _is_dirty: bool = False

    def hear(self, found: Hopeless) -> None:
        """Say at once that no node can ever hold a pod; of very many, the first ones, and each once."""
        if found.pod.full_name in self._told:
            return
        self._told.add(found.pod.full_name)
        self.hopeless += 1
        if self.hopeless <= _MOST_TOLD:
            self.clear()
            click.echo(f"warning: {hopeless_text(found)}", err=True)
        elif self.hopeless == _MOST_TOLD + 1:
            click.echo("warning: and further kinds of pods that no node can ever hold", err=True)

    def watch(self, progress: Progress) -> bool:
        """Show how far it is, if anybody sees it; go on unless there was a Ctrl-C."""
        now_s = time.monotonic()
        if self.is_shown and now_s - self._last_s >= _EVERY_S:
            self._last_s, self._is_dirty = now_s, True
            line = (
                f"\r{seconds(progress.at_s)} of virtual time: {progress.arrived:,} arrived, "
                f"{progress.running:,} running, {progress.waiting:,} waiting "
            )
            click.echo(line, nl=False, err=True)
        return not self.is_interrupted

    def clear(self) -> None:
        """Take the line of progress away."""
        if self._is_dirty:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._is_dirty = False


def pods_of(fleet: FleetInput, telling: Telling) -> Iterator[FleetPod]:
    """The pods in the order of their arrival; who is hopeless is told when he comes."""
    return judged(fleet.pods(), with_amounts(fleet.nodes), telling.hear)


def with_amounts(nodes: Sequence[FleetNode]) -> list[tuple[FleetNode, Mapping[str, int]]]:
    """The nodes with what they have for pods."""
    known: dict[int, Mapping[str, int]] = {}
    for node in nodes:
        if id(node.profile) not in known:
            known[id(node.profile)] = _amounts(node.profile)
    return [(node, known[id(node.profile)]) for node in nodes]


def _amounts(profile: NodeProfile) -> Mapping[str, int]:
    parts, _ = parts_of(profile, source=f"nodes of the shape {profile.metadata.name}")
    return allocatable_amounts(parts.resources.allocatable)


def played(
    fleet: FleetInput,
    options: Options,
    telling: Telling | None = None,
    *,
    checkpoint: Checkpoint | None = None,
) -> FleetResult:
    """What comes of the fleet; after a Ctrl-C, how far it came. A second Ctrl-C ends the command.

    Of a part of a fleet it is not told who is hopeless: that is a question to the whole.

    Errors: InputError for a checkpoint of another run; PolicyError for a policy that fails.
    """
    telling = telling or Telling()
    with heeding(telling), _seldom_collected():
        pods = pods_of(fleet, telling) if fleet.shard is None else fleet.pods()
        return run(fleet.nodes, pods, options, watch=telling.watch, checkpoint=checkpoint)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """While this lasts, garbage is looked for less often: there are many values, and hardly any that hold each other."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextmanager
def heeding(telling: Telling) -> Iterator[None]:
    """While this lasts, a first Ctrl-C is only noted; a second one ends the command."""
    usual = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        telling.is_interrupted = True
        signal.signal(signal.SIGINT, usual)

    is_ours = threading.current_thread() is threading.main_thread() and callable(usual)
    if is_ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, usual)
        telling.clear()


def axes_of(texts: Sequence[str]) -> tuple[Axis, ...]:
    """The axes of a sweep, each `FIELD=VALUE,VALUE`.

    Errors: InputError for texts that are none, and fields that are given twice.
    """
    found: dict[str, Axis] = {}
    faults = []
    for text in texts:
        name, _, values = text.partition("=")
        if not name or not values:
            faults.append(Fault(source="--sweep", value=text, rule="FIELD=VALUE,VALUE is wanted"))
        elif name in found:
            faults.append(Fault(source="--sweep", value=text, rule=f"{name} is given twice"))
        else:
            found[name] = Axis(name, tuple(_value(one) for one in values.split(",")))
    if faults:
        raise InputError(faults)
    return tuple(found.values())


def _value(text: str) -> Any:
    """A value as YAML has it."""
    read = read_yaml(text, "--sweep") if text.strip() else []
    return read[0] if read else ""


@dataclass(frozen=True, slots=True)
class Works:
    """Who runs the combinations of a sweep, and how many at once."""

    workers: int = 1
    engine: Engine = Engine.LOCAL

    @property
    def is_here(self) -> bool:
        """Whether it is this process, one after the other."""
        return self.workers <= 1 and self.engine is Engine.LOCAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is run side by side: a fleet under all combinations of settings, whole or cut into clusters by a label."""

    fleet: FleetInput
    axes: Sequence[Axis]
    options: Options
    shards: str | None = None
    probe: Pod | None = None
    policies: tuple[str, ...] = ()
    """The files that the options' policies are from."""

    def chunks(self) -> "list[tuple[Point, Chunk]]":
        """Each run, with what tells it from the others.

        Errors: InputError for nodes that lack the label, and for scores that nobody has.
        """
        fleets = [self.fleet] if self.shards is None else self.fleet.shards(self.shards)
        return [self._chunk(fleet, point) for point in points(self.axes) for fleet in fleets]

    def _chunk(self, fleet: FleetInput, point: Point) -> "tuple[Point, Chunk]":
        configured = fleet.configured(point.configuration(fleet.wish.furniture.configuration))
        options = self.options if point.scores is None else _scored(self.options, point.scores)
        part = {fleet.shard.label: fleet.shard.value} if fleet.shard is not None else {}
        return replace(point, part=part), Chunk(configured, options, self.probe)


def swept(sweep: Sweep, works: Works) -> list[tuple[Point, FleetSummary]]:
    """Each run of the sweep in numbers; the same whoever does it. After a Ctrl-C, those that had come to something.

    Errors: as `Sweep.chunks`; WorldError where an engine is not installed.
    """
    telling, runs = Telling(), sweep.chunks()
    if not works.is_here or sweep.shards is not None:
        for _ in pods_of(sweep.fleet, telling):
            pass  # who is hopeless is told here, once
    if not works.is_here:
        here = str(Path.cwd())
        chunks = [
            replace(chunk, options=replace(chunk.options, policies=()), policies=sweep.policies, folder=here)
            for _, chunk in runs
        ]
        return _done_elsewhere([point for point, _ in runs], chunks, works)
    done: list[tuple[Point, FleetSummary]] = []
    for point, chunk in runs:
        result = played(chunk.fleet, chunk.options, telling)
        done.append((point, summary(result, sweep.probe)))
        if not result.complete:
            break
    return done


def _done_elsewhere(
    known: Sequence[Point], chunks: Sequence["Chunk"], works: Works
) -> list[tuple[Point, FleetSummary]]:
    done: list[tuple[Point, FleetSummary]] = []
    try:
        for one in map_chunks(outcome, chunks, workers=works.workers, engine=works.engine):
            done.append((known[len(done)], one))
    except EngineMissingError as error:
        raise WorldError("start", works.engine, str(error)) from error
    except KeyboardInterrupt:
        pass  # what is done is told, and that it is not all
    return done


@dataclass(frozen=True, slots=True)
class Chunk:
    """One run of a sweep, to be done wherever: functions out of files do not travel, the names of their files do."""

    fleet: FleetInput
    options: Options
    probe: Pod | None
    policies: tuple[str, ...] = ()
    """Files of node scorers."""
    folder: str = ""
    """Where the names of files begin."""


def outcome(chunk: Chunk) -> FleetSummary:
    """What comes of it, in numbers; nothing is said meanwhile."""
    with _seldom_collected(), chdir(chunk.folder):
        options = replace(chunk.options, policies=scorers_of(chunk.policies))
        return summary(run(chunk.fleet.nodes, chunk.fleet.pods(), options), chunk.probe)


def scorers_of(files: Sequence[str]) -> tuple[NodeScorer, ...]:
    """The node scorers in these files.

    Errors: InputError for files that fail.
    """
    return tuple(one for one in registry(files).known if isinstance(one, NodeScorer)) if files else ()


def _scored(options: Options, scores: str) -> Options:
    known = (*KNOWN, *(one.name for one in options.policies if isinstance(one, NodeScorer)))
    if scores not in known:
        rule = f"one of {', '.join(known)} is wanted"
        raise InputError([Fault(source=f"--sweep {SCORES}", value=scores, rule=rule)])
    return replace(options, scores=scores)
