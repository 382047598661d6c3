"""What came of a fleet in numbers: outcomes, use, fragments, refusals, time to place."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from nodewright.core.cpu.topology import discover
from nodewright.model.objects import Pod
from nodewright.model.verdict import Granted
from nodewright.node.placement import left_of
from nodewright.node.state import NodeState
from nodewright.sim.fleet.room import Room, ShapeRoom, rooms, total
from nodewright.sim.fleet.values import Fate, FleetResult, Lack, NodeRecord, RefusalCount, Sample
from nodewright.values.idset import CPUSet

FRAGMENT_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of the pods for which free CPUs are counted."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a resource is requested.

    Units: thousandths for cpu, else bytes or pieces; mean over time.
    """

    allocatable: int
    at_end: int
    most: int
    mean: float


class ShapeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one shape."""

    shape: str
    nodes: int
    pods: int
    """On them at the end."""
    placed: int
    refused: int
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


class Fragments(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods of so many whole CPUs the free CPUs of all nodes would hold."""

    cpus: int
    by_node: int
    """Counted node by node."""
    by_numa: int
    """Counted NUMA node by NUMA node."""


class TimeToPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How long pods waited from their arrival until a node took them.

    Units: seconds.
    """

    pods: int
    at_once: int
    median_s: float
    p95_s: float
    most_s: float


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet's run in numbers."""

    nodes: int
    pods: int
    fates: Mapping[Fate, int]
    """Those that occurred, in the order of `Fate`."""
    use: Mapping[str, Use]
    shapes: tuple[ShapeSummary, ...]
    fragments: tuple[Fragments, ...]
    """Empty: no CPU manager gives out CPUs."""
    free_cpus: int
    refusals: tuple[RefusalCount, ...]
    """The most frequent first."""
    lacks: tuple[tuple[Lack, int], ...]
    """Why pods wait at the end, and how many of them; `nodes` is of one of these pods."""
    time_to_place: TimeToPlace
    shared_gpu_pods: int
    shared_gpu_milli: int
    """Parts of devices that pods asked for, which were accounted for and not placed."""
    probe: tuple[ShapeRoom, ...] | None
    placements: int
    preemptions: int
    evictions: int
    ended_s: float
    complete: bool
    steps: int
    remembered: int
    samples: tuple[Sample, ...]

    @property
    def placed(self) -> int:
        """Pods that found a place and kept it as long as they wanted."""
        return sum(self.fates.get(fate, 0) for fate in (Fate.RUNNING, Fate.ENDED))

    @property
    def room(self) -> Room | None:
        """How many more pods of the kind asked for fit."""
        return None if self.probe is None else total(self.probe)


def summary(result: FleetResult, probe: Pod | None = None) -> FleetSummary:
    """The run in numbers; ``probe`` is a pod of the kind for which the room that is left is counted."""
    gone = result.forgotten
    counts = Counter(record.fate for record in result.pods) + gone.fates
    shared = [record.pod.gpu_milli for record in result.pods if record.pod.gpu_milli]
    free = [cpus for record in result.nodes if (cpus := free_by_numa(record.state)) is not None]
    return FleetSummary(
        nodes=len(result.nodes),
        pods=counts.total(),
        fates={fate: counts[fate] for fate in Fate if counts[fate]},
        use=_use(result),
        shapes=_shapes(result.nodes),
        fragments=_fragments(free),
        free_cpus=sum(map(sum, free)),
        refusals=tuple(
            sorted(result.refusals, key=lambda one: (-one.count, one.shape, type(one.reason).__name__))
        ),
        lacks=_lacks(result),
        time_to_place=_time_to_place(result),
        shared_gpu_pods=len(shared) + gone.shared_gpu_pods,
        shared_gpu_milli=sum(shared) + gone.shared_gpu_milli,
        probe=None if probe is None else rooms(result.nodes, probe),
        placements=result.placements,
        preemptions=result.preemptions,
        evictions=result.evictions,
        ended_s=result.ended_s,
        complete=result.complete,
        steps=result.steps,
        remembered=result.remembered,
        samples=tuple(result.samples),
    )


def free_by_numa(state: NodeState) -> tuple[int, ...] | None:
    """How many CPUs of each NUMA node could still be given to one pod alone; None: none ever are."""
    left = left_of(state)
    if left.shared_cpus is None:
        return None
    found = discover(state.config.parts.machine)
    assert isinstance(found, Granted), "the node has started with it"
    free = left.shared_cpus - left.reserved_cpus
    return tuple(
        len(free & CPUSet.of(*(cpu for core in node.cores for cpu in core.thread_ids)))
        for node in state.config.parts.machine.topology
        if node.cores
    )


def _use(result: FleetResult) -> dict[str, Use]:
    samples = result.samples
    span = samples[-1].at_s - samples[0].at_s if samples else 0
    found = {}
    for name, allocatable in result.allocatable.items():
        amounts = [one.requested.get(name, 0) for one in samples] or [0]
        area = sum(one.requested.get(name, 0) * (after.at_s - one.at_s) for one, after in pairwise(samples))
        found[name] = Use(
            allocatable=allocatable,
            at_end=amounts[-1],
            most=max(amounts),
            mean=area / span if span else amounts[-1],
        )
    return found


def _shapes(nodes: Sequence[NodeRecord]) -> tuple[ShapeSummary, ...]:
    by_shape: dict[str, list[NodeRecord]] = {}
    for record in nodes:
        by_shape.setdefault(record.node.shape, []).append(record)
    return tuple(
        ShapeSummary(
            shape=shape,
            nodes=len(own),
            pods=sum(record.state.totals.pods for record in own),
            placed=sum(record.placed for record in own),
            refused=sum(record.refused for record in own),
            allocatable=_sums(record.state.config.view.allocatable for record in own),
            requested=_sums(record.state.totals.requests for record in own),
        )
        for shape, own in by_shape.items()
    )


def _sums(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            found[name] = found.get(name, 0) + amount
    return found


def _fragments(free: Sequence[tuple[int, ...]]) -> tuple[Fragments, ...]:
    counts = Counter(free)
    most = max(map(sum, counts), default=0)
    return tuple(
        Fragments(
            cpus=size,
            by_node=sum(count * (sum(cpus) // size) for cpus, count in counts.items()),
            by_numa=sum(count * sum(one // size for one in cpus) for cpus, count in counts.items()),
        )
        for size in FRAGMENT_SIZES
        if size <= most
    )


def _lacks(result: FleetResult) -> tuple[tuple[Lack, int], ...]:
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], Lack] = {}
    for record in result.pods:
        if record.fate is Fate.WAITING:
            for lack in record.lacks:
                counts[lack.filter, lack.what] += 1
                examples.setdefault((lack.filter, lack.what), lack)
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    return tuple((examples[key], counts[key]) for key in ordered)


def _time_to_place(result: FleetResult) -> TimeToPlace:
    waits = Counter(one.placed_s - one.arrived_s for one in result.pods if one.placed_s >= 0)
    most_s = max(waits, default=0.0)
    waits.update(result.forgotten.waits)
    return TimeToPlace(
        pods=waits.total(),
        at_once=waits[0.0],
        median_s=_quantile(waits, 50),
        p95_s=_quantile(waits, 95),
        most_s=max(most_s, result.forgotten.most_s),
    )


def _quantile(values: Counter[float], percent: int) -> float:
    """The least of the values than which so many per cent are not greater; 0 if there are none."""
    left = -(-values.total() * percent // 100)
    for value in sorted(values):
        left -= values[value]
        if left <= 0:
            return value
    return 0.0
