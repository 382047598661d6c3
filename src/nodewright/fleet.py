"""A fleet behind one small door: nodes and pods in, what came of them out.

>>> from nodewright.testing.fleets import a_template, some_nodes, some_pods
>>> result = run(some_nodes(2), some_pods(3, a_template("cpu=2")))
>>> [result.nodes[one.node].node.name for one in result.pods]
['n0', 'n1', 'n0']
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nodewright.ask import Node
from nodewright.model.fleet import Budget, FleetNode, FleetPod
from nodewright.model.policies import Policy
from nodewright.model.profile import NodeProfile
from nodewright.node.state import NodeState
from nodewright.sim.fleet import scores
from nodewright.sim.fleet.checkpoint import CheckpointError, identity, restore, saved
from nodewright.sim.fleet.engines import Engine, EngineMissingError, map_chunks
from nodewright.sim.fleet.own import Candidate, NodeScorer, node_scorer
from nodewright.sim.fleet.play import Play, Progress, Retry, Setup, Sink, Watch
from nodewright.sim.fleet.result import result_of
from nodewright.sim.fleet.scheduler import LocalScore
from nodewright.sim.fleet.values import FleetResult
from nodewright.world.errors import Fault, InputError

__all__ = [
    "SCORES",
    "Candidate",
    "Checkpoint",
    "Engine",
    "EngineMissingError",
    "NodeScorer",
    "Options",
    "Retry",
    "map_chunks",
    "node_scorer",
    "run",
]

SCORES: Mapping[str, LocalScore] = {
    "default": scores.by_default,
    "most-allocated": scores.by_most_allocated,
    "best-fit": scores.best_fit,
    "numa-aware": scores.by_numa,
}
"""What the scheduler likes in a node, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a fleet is run."""

    scores: str = "default"
    """One of `SCORES`, or the name of a node scorer that is given."""
    retry: Retry = Retry.SAME
    preempts: bool = True
    budgets: tuple[Budget, ...] = ()
    """Whom preemption had better leave in peace."""
    policies: tuple[Policy, ...] = ()
    """Policies of your own: those that decide in the kubelets' place, and node scorers."""
    until_s: float | None = None
    """When it ends, in seconds, whoever would still come and go; None: when nobody does."""
    plain: bool = False
    """Ask every node about every pod, and remember nothing: slow; for comparison."""
    keeps: bool = True
    """Keep the record of every pod. False: of pods that are done only numbers are kept, so that memory does not
    grow with the pods of a trace, but with those that are there at one time."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file from which a run goes on if it is there, and that is written anew all the while."""

    path: Path
    every: int = 100_000
    """After so many decisions, and whenever the run is broken off."""


def run(
    nodes: Sequence[FleetNode],
    pods: Iterable[FleetPod],
    options: Options = Options(),
    *,
    watch: Watch | None = None,
    sink: Sink | None = None,
    checkpoint: Checkpoint | None = None,
) -> FleetResult:
    """What comes of these pods, in the order of their arrival, on these nodes.

    ``watch`` hears how far it is, and can end it; ``sink`` is given everything that happens, but not again what
    happened before a checkpoint.
    Errors: InputError for a profile whose kubelet does not start, scores that nobody has, a checkpoint of
        another run; PolicyError for a policy that fails.
    """
    play = Play(nodes, _setup(options), sink)
    if checkpoint is None:
        complete = play.run(iter(pods), watch)
    else:
        complete = _run_with(checkpoint, play, iter(pods), watch)
    return result_of(play, complete=complete)


def _setup(options: Options) -> Setup:
    scorers = {one.name: one for one in options.policies if isinstance(one, NodeScorer)}
    known: dict[str, LocalScore] = {**SCORES, **scorers}
    score = known.get(options.scores)
    if score is None:
        rule = f"is no score; there are {', '.join(known)}"
        raise InputError([Fault(source="scores", value=options.scores, rule=rule)])
    kubelets = tuple(one for one in options.policies if not isinstance(one, NodeScorer))
    return Setup(
        start=lambda profile: _started(profile, kubelets),
        score=score,
        scored_by=options.scores,
        retry=options.retry,
        preempts=options.preempts,
        budgets=options.budgets,
        plain=options.plain,
        until_s=options.until_s,
        keeps=options.keeps,
    )


def _started(profile: NodeProfile, policies: Sequence[Policy]) -> NodeState:
    return Node.of(profile, policies=policies, source="a node of the fleet").state


def _run_with(checkpoint: Checkpoint, play: Play, pods: Iterator[FleetPod], watch: Watch | None) -> bool:
    """Go on from the checkpoint, and write it until the run is complete."""
    path, mine = checkpoint.path, identity(play.nodes, play.setup)
    if path.exists():
        try:
            pods = islice(pods, restore(play, path.read_bytes(), mine), None)
        except CheckpointError as error:
            raise InputError([Fault(source=str(path), rule=str(error))]) from None
    written = play.turns

    def watching(progress: Progress) -> bool:
        nonlocal written
        if play.turns - written >= checkpoint.every:
            written = play.turns
            _write(path, saved(play, mine))
        return watch is None or watch(progress)

    complete = play.run(pods, watching)
    if complete:
        path.unlink(missing_ok=True)
    else:
        _write(path, saved(play, mine))
    return complete


def _write(path: Path, data: bytes) -> None:
    """Whoever reads it meanwhile finds the former one."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    new.replace(path)
