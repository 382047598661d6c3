"""Runs a fleet: nodes and pods in, the result of the simulation out.

>>> from nodewright.testing.fleets import a_template, some_nodes, some_pods
>>> result = run(some_nodes(2), some_pods(3, a_template("cpu=2")))
>>> [result.nodes[pod.node].node.name for pod in result.pods]
['n0', 'n1', 'n0']
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from nodewright.documents.files.file_store import write_atomically
from nodewright.documents.files.process_tuning import rare_collections
from nodewright.documents.files.regular_files import read_regular_file
from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.checkpoint import (
    MAX_CHECKPOINT_BYTES,
    CheckpointError,
    ReadPods,
    checkpoint_bytes,
    restore_checkpoint,
    run_identity,
)
from nodewright.fleet.engines import Engine, EngineMissingError, map_chunks
from nodewright.fleet.runner import fleet_result
from nodewright.fleet.simulation import scores
from nodewright.fleet.simulation.fleet_simulation import (
    EventSink,
    FleetSimulation,
    Progress,
    ProgressCallback,
    Retry,
    SimulationSetup,
)
from nodewright.fleet.simulation.outcomes import FleetResult
from nodewright.fleet.simulation.scheduler import NodeScore
from nodewright.fleet.simulation.scores import CandidateNode, NodeScorer, node_scorer
from nodewright.fleet.workload import DisruptionBudget, FleetNode, FleetPod
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.predict.node import Node

__all__ = [
    "SCORES",
    "CandidateNode",
    "Engine",
    "EngineMissingError",
    "NodeScorer",
    "Options",
    "Retry",
    "RunCheckpoint",
    "map_chunks",
    "node_scorer",
    "run",
]

SCORES: Mapping[str, NodeScore] = {
    "default": scores.default_score,
    "most-allocated": scores.most_allocated_score,
    "best-fit": scores.best_fit,
    "numa-aware": scores.numa_aware_score,
}
"""The scheduler's scoring strategies by name."""


_CONTRADICTIONS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError)
"""What a run raises that continues from a checkpoint that somebody changed and gave a new checksum."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run."""

    scores: str = "default"
    """A name in `SCORES`, or the name of a node scorer in `policies`."""
    retry: Retry = Retry.SAME
    preemption: bool = True
    budgets: tuple[DisruptionBudget, ...] = ()
    """Budgets that preemption respects where possible."""
    policies: tuple[CustomPolicy, ...] = ()
    """Custom policies: those of the kubelets, and node scorers."""
    until_s: float | None = None
    """When the run ends, in seconds; None: after the last event."""
    exhaustive: bool = False
    """Evaluate every node for every pod, without caches: slow, for comparison."""
    keep_finished_pods: bool = True
    """Keep the record of every pod. False: finished pods are only counted, so that memory grows with the pods that
    exist at one time and not with the length of the trace."""
    samples_nodes: bool = False
    """Sample the load of each node over time: up to 96 times, for all nodes."""
    extender: bool = False
    """The scheduler asks each node's kubelet before it binds a pod, as with `nodewright extender`."""


class RunCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint file: a run continues from it if it exists, and writes it regularly."""

    path: Path
    every_decisions: int = 100_000
    """Number of decisions between two writes; it is also written when the run is interrupted."""


DEFAULT_OPTIONS = Options()


def run(
    nodes: Sequence[FleetNode],
    pods: Iterable[FleetPod],
    options: Options = DEFAULT_OPTIONS,
    *,
    watch: ProgressCallback | None = None,
    sink: EventSink | None = None,
    checkpoint: RunCheckpoint | None = None,
) -> FleetResult:
    """Simulates these pods, in the order of their arrival, on these nodes.

    ``watch`` is called with the progress and can interrupt the run; ``sink`` receives all events, except those before
    a restored checkpoint.
    Errors: InputError for a profile with which the kubelet does not start, unknown scores, a checkpoint of another
        run; CustomPolicyError for a policy that fails.
    """
    with rare_collections():
        simulation = FleetSimulation(nodes, simulation_setup(options), sink)
        if checkpoint is None:
            complete = simulation.run(iter(pods), watch)
        else:
            complete = _run_with_checkpoint(checkpoint, simulation, iter(pods), watch)
    return fleet_result(simulation, complete=complete)


def simulation_setup(options: Options) -> SimulationSetup:
    """The settings of a simulation with these options.

    Errors: InputError for unknown scores.
    """
    scorers = {policy.name: policy for policy in options.policies if isinstance(policy, NodeScorer)}
    scores_by_name: dict[str, NodeScore] = {**SCORES, **scorers}
    score = scores_by_name.get(options.scores)
    if score is None:
        rule = f"must be one of {', '.join(scores_by_name)}"
        raise InputError([Fault(source="scores", value=options.scores, rule=rule)])
    kubelet_policies = tuple(policy for policy in options.policies if not isinstance(policy, NodeScorer))
    return SimulationSetup(
        start_node=lambda profile: _started_node(profile, kubelet_policies),
        score=score,
        score_name=options.scores,
        retry=options.retry,
        preemption=options.preemption,
        budgets=options.budgets,
        exhaustive=options.exhaustive,
        until_s=options.until_s,
        keep_finished_pods=options.keep_finished_pods,
        samples_nodes=options.samples_nodes,
        extender=options.extender,
    )


def _started_node(profile: NodeProfile, policies: Sequence[CustomPolicy]) -> NodeState:
    return Node.from_profile(profile, policies=policies, source="a node of the fleet").state


def _run_with_checkpoint(
    checkpoint: RunCheckpoint,
    simulation: FleetSimulation,
    pods: Iterator[FleetPod],
    watch: ProgressCallback | None,
) -> bool:
    """Continues from the checkpoint, and writes it until the run is complete."""
    path, identity = checkpoint.path, run_identity(simulation.nodes, simulation.setup)
    read_pods = ReadPods(pods)
    if path.exists():
        try:
            data = read_regular_file(path, MAX_CHECKPOINT_BYTES)
            restore_checkpoint(simulation, data, identity, read_pods)
        except CheckpointError as error:
            raise InputError([Fault(source=str(path), rule=str(error))]) from None
        except OSError as error:
            raise InputError([Fault(source=str(path), rule=f"cannot be read: {error.strerror}")]) from None
    written_at_attempt = simulation.attempts

    def watch_and_write(progress: Progress) -> bool:
        nonlocal written_at_attempt
        if simulation.attempts - written_at_attempt >= checkpoint.every_decisions:
            written_at_attempt = simulation.attempts
            write_atomically(path, checkpoint_bytes(simulation, identity, read_pods))
        return watch is None or watch(progress)

    try:
        complete = simulation.run(read_pods, watch_and_write)
    except _CONTRADICTIONS as error:
        if not simulation.resumed:
            raise
        rule = f"is not the state of a fleet, it contradicts itself: {type(error).__name__}: {error}"
        raise InputError([Fault(source=str(path), rule=rule)]) from error
    if complete:
        path.unlink(missing_ok=True)
    else:
        write_atomically(path, checkpoint_bytes(simulation, identity, read_pods))
    return complete
