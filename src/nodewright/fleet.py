"""A fleet behind one small door: nodes and pods in, what came of them out.

>>> from nodewright.fleet import Options, run
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodewright.ask import Node
from nodewright.model.fleet import FleetNode, FleetPod
from nodewright.model.profile import NodeProfile
from nodewright.node.state import NodeState
from nodewright.sim.fleet import scores
from nodewright.sim.fleet.play import Play, Retry, Setup, Sink, Watch
from nodewright.sim.fleet.result import result_of
from nodewright.sim.fleet.scheduler import LocalScore
from nodewright.sim.fleet.values import FleetResult

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
    """One of `SCORES`."""
    retry: Retry = Retry.SAME
    preempts: bool = True
    plain: bool = False
    """Ask every node about every pod: slow; for comparison."""


def run(
    nodes: Sequence[FleetNode],
    pods: Iterable[FleetPod],
    options: Options = Options(),
    *,
    watch: Watch | None = None,
    sink: Sink | None = None,
) -> FleetResult:
    """What comes of these pods, in the order of their arrival, on these nodes.

    ``watch`` hears how far it is and can end it; ``sink`` is given everything that happens.
    Errors: InputError for a profile whose kubelet does not start.
    """
    setup = Setup(
        start=_started,
        score=SCORES[options.scores],
        retry=options.retry,
        preempts=options.preempts,
        plain=options.plain,
    )
    play = Play(nodes, setup, sink)
    complete = play.run(iter(pods), watch)
    return result_of(play, complete=complete)


def _started(profile: NodeProfile) -> NodeState:
    return Node.of(profile, source=f"shape {profile.metadata.name}").state
