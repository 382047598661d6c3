"""Statistics of a fleet simulation: outcomes, resource usage, fragmentation, refusals, time to place."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import unallocated_resources
from nodewright.fleet.capacity import (
    RemainingCapacity,
    ShapeCapacity,
    capacity_by_shape,
    total_capacity,
    uncounted_constraints,
)
from nodewright.fleet.fleet_lending import FleetLoans
from nodewright.fleet.simulation.outcomes import (
    FilterRejections,
    FleetResult,
    FleetSample,
    NodeRecord,
    PodOutcome,
    RefusalCount,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import CPUSet

FRAGMENT_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of the pods for which free CPUs are counted."""


class ResourceUse(Report, frozen=True, kw_only=True):
    """Requested amounts of a resource.

    Units: thousandths for cpu, else bytes or units; mean over time.
    """

    allocatable: int
    at_end: int
    most: int
    mean: float


class ShapeSummary(Report, frozen=True, kw_only=True):
    """The nodes of one shape."""

    shape: str
    nodes: int
    pods: int
    """Pods on these nodes at the end."""
    placed: int
    refused: int
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


class Fragments(Report, frozen=True, kw_only=True):
    """How many pods with so many exclusive CPUs the free CPUs of all nodes could hold."""

    cpus: int
    by_node: int
    """Counted by node."""
    by_numa: int
    """Counted by NUMA node."""


class PlacingTimes(Report, frozen=True, kw_only=True):
    """How long pods wait for a node."""

    pods: int
    immediately: int = msgspec.field(name="atOnce")
    median_s: float = msgspec.field(name="medianSeconds")
    p95_s: float = msgspec.field(name="p95Seconds")
    longest_s: float = msgspec.field(name="mostSeconds")


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a simulation."""

    nodes: int
    pods: int
    outcomes: Mapping[PodOutcome, int]
    """Outcomes that occurred, in the order of `PodOutcome`."""
    resource_use: Mapping[str, ResourceUse]
    shapes: tuple[ShapeSummary, ...]
    fragments: tuple[Fragments, ...]
    """Empty: no CPU manager allocates exclusive CPUs."""
    free_cpus: int
    refusals: tuple[RefusalCount, ...]
    """Most frequent first."""
    filter_rejections: tuple[tuple[FilterRejections, int], ...]
    """Why pods wait at the end, with the number of pods; `nodes` is that of one of these pods."""
    time_to_place: PlacingTimes
    shared_gpu_pods: int
    shared_gpu_milli: int
    """Requested shares of GPUs, which are accounted for but not placed."""
    probe: tuple[ShapeCapacity, ...] | None
    not_counted: tuple[str, ...]
    """Constraints of the probe on other pods, for which fewer may fit."""
    placements: int
    preemptions: int
    evictions: int
    ended_s: float
    complete: bool
    steps: int
    cached_steps: int
    samples: tuple[FleetSample, ...]
    loans: FleetLoans | None = None
    """With --lend, if something is lent."""

    @property
    def placed(self) -> int:
        """Pods that run or ran to completion."""
        return sum(self.outcomes.get(outcome, 0) for outcome in (PodOutcome.RUNNING, PodOutcome.ENDED))

    @property
    def remaining_capacity(self) -> RemainingCapacity | None:
        """How many more pods like the probe fit."""
        return None if self.probe is None else total_capacity(self.probe)


def fleet_summary(result: FleetResult, probe: Pod | None = None) -> FleetSummary:
    """The statistics of a result; ``probe`` is a pod for which the remaining capacity is counted."""
    finished = result.finished_pods
    counts = Counter(record.outcome for record in result.pods) + finished.outcomes
    shared = [record.pod.gpu_milli for record in result.pods if record.pod.gpu_milli]
    free = [cpus for record in result.nodes if (cpus := free_cpus_by_numa(record.state)) is not None]
    return FleetSummary(
        nodes=len(result.nodes),
        pods=counts.total(),
        outcomes={outcome: counts[outcome] for outcome in PodOutcome if counts[outcome]},
        resource_use=_resource_usage(result),
        shapes=_shapes(result.nodes),
        fragments=_fragments(free),
        free_cpus=sum(map(sum, free)),
        refusals=tuple(
            sorted(
                result.refusals,
                key=lambda refusal: (-refusal.count, refusal.shape, type(refusal.reason).__name__),
            )
        ),
        filter_rejections=_filter_rejections(result),
        time_to_place=_time_to_place(result),
        shared_gpu_pods=len(shared) + finished.shared_gpu_pods,
        shared_gpu_milli=sum(shared) + finished.shared_gpu_milli,
        probe=None if probe is None else capacity_by_shape(result.nodes, probe, result.claims),
        not_counted=() if probe is None else uncounted_constraints(probe, result.nodes, result.claims),
        placements=result.placements,
        preemptions=result.preemptions,
        evictions=result.evictions,
        ended_s=result.ended_s,
        complete=result.complete,
        steps=result.steps,
        cached_steps=result.cached_steps,
        samples=tuple(result.samples),
    )


def free_cpus_by_numa(state: NodeState) -> tuple[int, ...] | None:
    """CPUs of each NUMA node that are free for exclusive allocation; None: none are allocated exclusively."""
    unallocated = unallocated_resources(state)
    if unallocated.shared_cpus is None:
        return None
    free = unallocated.shared_cpus - unallocated.reserved_cpus
    return tuple(
        len(free & CPUSet.of(*(cpu for core in node.cores for cpu in core.thread_ids)))
        for node in state.config.parts.machine.topology
        if node.cores
    )


def _resource_usage(result: FleetResult) -> dict[str, ResourceUse]:
    samples = result.samples
    span = samples[-1].at_s - samples[0].at_s if samples else 0
    usage = {}
    for name, allocatable in result.allocatable.items():
        amounts = [sample.requested.get(name, 0) for sample in samples] or [0]
        area = sum(
            first.requested.get(name, 0) * (second.at_s - first.at_s) for first, second in pairwise(samples)
        )
        usage[name] = ResourceUse(
            allocatable=allocatable,
            at_end=amounts[-1],
            most=max(amounts),
            mean=area / span if span else amounts[-1],
        )
    return usage


def _shapes(nodes: Sequence[NodeRecord]) -> tuple[ShapeSummary, ...]:
    by_shape: dict[str, list[NodeRecord]] = {}
    for record in nodes:
        by_shape.setdefault(record.node.shape, []).append(record)
    return tuple(
        ShapeSummary(
            shape=shape,
            nodes=len(records),
            pods=sum(record.state.usage.pods for record in records),
            placed=sum(record.placed_pods for record in records),
            refused=sum(record.refused_pods for record in records),
            allocatable=_sums(record.state.config.view.allocatable for record in records),
            requested=_sums(record.state.usage.requests for record in records),
        )
        for shape, records in by_shape.items()
    )


def _sums(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for by_name in amounts:
        for name, amount in by_name.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def _fragments(free: Sequence[tuple[int, ...]]) -> tuple[Fragments, ...]:
    counts = Counter(free)
    most = max(map(sum, counts), default=0)
    return tuple(
        Fragments(
            cpus=size,
            by_node=sum(count * (sum(by_numa) // size) for by_numa, count in counts.items()),
            by_numa=sum(count * sum(cpus // size for cpus in by_numa) for by_numa, count in counts.items()),
        )
        for size in FRAGMENT_SIZES
        if size <= most
    )


def _filter_rejections(result: FleetResult) -> tuple[tuple[FilterRejections, int], ...]:
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], FilterRejections] = {}
    for record in result.pods:
        if record.outcome is PodOutcome.WAITING:
            for rejection in record.filter_rejections:
                counts[rejection.plugin, rejection.detail] += 1
                examples.setdefault((rejection.plugin, rejection.detail), rejection)
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    return tuple((examples[key], counts[key]) for key in ordered)


def _time_to_place(result: FleetResult) -> PlacingTimes:
    waits = Counter(pod.placed_s - pod.arrived_s for pod in result.pods if pod.placed_s >= 0)
    most_s = max(waits, default=0.0)
    waits.update(result.finished_pods.waits)
    return PlacingTimes(
        pods=waits.total(),
        immediately=waits[0.0],
        median_s=_quantile(waits, 50),
        p95_s=_quantile(waits, 95),
        longest_s=max(most_s, result.finished_pods.longest_wait_s),
    )


def _quantile(values: Counter[float], percent: int) -> float:
    """The smallest value that so many percent of the values do not exceed; 0 if there are none."""
    rank = -(-values.total() * percent // 100)
    for value in sorted(values):
        rank -= values[value]
        if rank <= 0:
            return value
    return 0.0
