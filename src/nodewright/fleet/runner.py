"""Runs a fleet: nodes and pods in, the result of the simulation out.

>>> from nodewright.testing.fleets import a_template, some_nodes, some_pods
>>> result = run(some_nodes(2), some_pods(3, a_template("cpu=2")))
>>> [result.nodes[pod.node].node.name for pod in result.pods]
['n0', 'n1', 'n0']
"""

from collections.abc import Iterable, Mapping, Sequence

from nodewright.documents.files.process_tuning import rare_collections
from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.engines import Engine, EngineMissingError, map_chunks
from nodewright.fleet.simulation import scores
from nodewright.fleet.simulation.fleet_simulation import (
    EventSink,
    FleetSimulation,
    Options,
    ProgressCallback,
    Retry,
)
from nodewright.fleet.simulation.kubelets import allocatable_of
from nodewright.fleet.simulation.outcomes import (
    FilterRejections,
    FleetResult,
    FleetSample,
    NodeRecord,
    NodeSample,
    PodOutcome,
    SimulationCounters,
    node_sample,
)
from nodewright.fleet.simulation.scheduler import NodeScore, filter_rejections
from nodewright.fleet.simulation.scores import CandidateNode, NodeScorer, node_scorer
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.predict.node import Node

__all__ = [
    "SCORES",
    "CandidateNode",
    "Engine",
    "EngineMissingError",
    "NodeScorer",
    "Options",
    "Retry",
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


DEFAULT_OPTIONS = Options()


def run(
    nodes: Sequence[FleetNode],
    pods: Iterable[FleetPod],
    options: Options = DEFAULT_OPTIONS,
    *,
    watch: ProgressCallback | None = None,
    sink: EventSink | None = None,
) -> FleetResult:
    """Simulates these pods, in the order of their arrival, on these nodes.

    ``watch`` is called with the progress and can interrupt the run; ``sink`` receives all events.
    Errors: InputError for a profile with which the kubelet does not start, unknown scores; CustomPolicyError for a policy that fails.
    """
    with rare_collections():
        simulation = fleet_simulation(nodes, options, sink)
        complete = simulation.run(iter(pods), watch)
    return fleet_result(simulation, complete=complete)


def fleet_simulation(
    nodes: Sequence[FleetNode], options: Options = DEFAULT_OPTIONS, sink: EventSink | None = None
) -> FleetSimulation:
    """A simulation with these options that has not started.

    Errors: InputError for a profile with which the kubelet does not start, and for unknown scores.
    """
    scorers = {policy.name: policy for policy in options.policies if isinstance(policy, NodeScorer)}
    scores_by_name: dict[str, NodeScore] = {**SCORES, **scorers}
    score = scores_by_name.get(options.scores)
    if score is None:
        rule = f"must be one of {', '.join(scores_by_name)}"
        raise InputError([Fault(source="scores", value=options.scores, rule=rule)])
    kubelet_policies = tuple(policy for policy in options.policies if not isinstance(policy, NodeScorer))

    def started_node(profile: NodeProfile) -> NodeState:
        return Node.from_profile(profile, policies=kubelet_policies, source="a node of the fleet").state

    return FleetSimulation(nodes, options, start_node=started_node, score=score, sink=sink)


def fleet_result(simulation: FleetSimulation, *, complete: bool) -> FleetResult:
    """The result so far; ``complete``: the simulation ran to its end."""
    _set_pending_outcomes(simulation)
    allocatable: dict[str, int] = {}
    for kubelet in simulation.kubelets.all:
        for name, amount in allocatable_of(kubelet).items():
            allocatable[name] = allocatable.get(name, 0) + amount
    return FleetResult(
        nodes=tuple(
            NodeRecord(
                node=kubelet.node,
                state=kubelet.state.without_stale(),
                pods={uid: pod.pod_number for uid, pod in slot.pods.items()},
                placed_pods=kubelet.placed_pods,
                refused_pods=kubelet.refused_pods,
            )
            for kubelet, slot in zip(simulation.kubelets.all, simulation.cluster.nodes, strict=True)
        ),
        pods=tuple(simulation.records.records.values()),
        finished_pods=simulation.records.finished,
        samples=_samples(simulation, simulation.counters),
        node_samples=_node_samples(simulation) if simulation.options.samples_nodes else (),
        refusals=simulation.counters.refusal_counts(),
        allocatable=allocatable,
        placements=simulation.counters.placements,
        preemptions=simulation.counters.preemptions,
        evictions=simulation.counters.evictions,
        ended_s=simulation.now_s,
        complete=complete,
        steps=simulation.kubelets.steps,
        cached_steps=simulation.kubelets.cached_steps,
        claims=None if simulation.claims is None else simulation.claims.cluster,
    )


def _set_pending_outcomes(simulation: FleetSimulation) -> None:
    """Sets outcome and filter rejections of pending pods, computed once for each template."""
    rejections: dict[int, tuple[FilterRejections, ...]] = {}
    for queue, queued in simulation.queue.pending_pods():
        record = simulation.records[queued.pod_number]
        if queue.is_looping:
            record.outcome = PodOutcome.LOOPING
            continue
        record.outcome = PodOutcome.WAITING
        if queue.template.number not in rejections:
            obstacle = simulation.claim_obstacle(queue.template, queued.pod_number)
            rejections[queue.template.number] = filter_rejections(
                queue.template, simulation.cluster, obstacle
            )
        record.filter_rejections = rejections[queue.template.number]


def _samples(simulation: FleetSimulation, counters: SimulationCounters) -> tuple[FleetSample, ...]:
    """The samples, including the last moment."""
    last = FleetSample(
        simulation.now_s, simulation.cluster.running, simulation.queue.length, simulation.cluster.requested()
    )
    samples = counters.samples
    return (*(samples[:-1] if samples and samples[-1].at_s == simulation.now_s else samples), last)


def _node_samples(simulation: FleetSimulation) -> tuple[NodeSample, ...]:
    """The samples of the nodes, including the last moment."""
    earlier = (sample for sample in simulation.counters.node_samples if sample.at_s < simulation.now_s)
    return (*earlier, node_sample(simulation.now_s, simulation.cluster))
