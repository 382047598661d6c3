"""The result of a fleet simulation at its present state."""

from nodewright.fleet.simulation.fleet_simulation import FleetSimulation
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
from nodewright.fleet.simulation.scheduler import filter_rejections


def fleet_result(simulation: FleetSimulation, *, complete: bool) -> FleetResult:
    """The result so far; ``complete``: the simulation ran to its end."""
    _set_pending_outcomes(simulation)
    allocatable: dict[str, int] = {}
    for slot in simulation.cluster.nodes:
        for name, amount in slot.allocatable.items():
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
    )


def _set_pending_outcomes(simulation: FleetSimulation) -> None:
    """Sets outcome and filter rejections of pending pods, computed once for each shape."""
    rejections: dict[int, tuple[FilterRejections, ...]] = {}
    for queue, queued in simulation.queue.pending_pods():
        record = simulation.records[queued.pod_number]
        if queue.is_looping:
            record.outcome = PodOutcome.LOOPING
            continue
        record.outcome = PodOutcome.WAITING
        if queue.shape.number not in rejections:
            rejections[queue.shape.number] = filter_rejections(queue.shape, simulation.cluster)
        record.filter_rejections = rejections[queue.shape.number]


def _samples(simulation: FleetSimulation, counters: SimulationCounters) -> tuple[FleetSample, ...]:
    """The samples, including the last moment."""
    last = FleetSample(
        simulation.now_s, simulation.cluster.running, simulation.queue.length, simulation.cluster.requested()
    )
    return (
        (*counters.samples[:-1], last)
        if _has_last_moment(simulation, counters)
        else (*counters.samples, last)
    )


def _node_samples(simulation: FleetSimulation) -> tuple[NodeSample, ...]:
    """The samples of the nodes, including the last moment."""
    earlier = (sample for sample in simulation.counters.node_samples if sample.at_s < simulation.now_s)
    return (*earlier, node_sample(simulation.now_s, simulation.cluster))


def _has_last_moment(simulation: FleetSimulation, counters: SimulationCounters) -> bool:
    return bool(counters.samples) and counters.samples[-1].at_s == simulation.now_s
