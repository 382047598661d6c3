"""Checkpoints: the state of an interrupted run as bytes, from which the run continues with the same result.

A line of JSON that identifies the run and holds the checksum of the rest, then the state as rows of plain JSON
(`value_rows`). Pods are not stored: they are read again.
"""

import json
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.simulation.cluster_view import AssignedPod
from nodewright.fleet.simulation.fleet_simulation import FleetSimulation, PodCompletion, SimulationSetup
from nodewright.fleet.simulation.kubelets import EvictionCheck
from nodewright.fleet.simulation.outcomes import (
    FinishedPods,
    FleetPodRecord,
    FleetSample,
    NodeSample,
    RefusalCount,
)
from nodewright.fleet.simulation.pending_queue import QueuedPod
from nodewright.fleet.value_rows import RowError, field_names, row_classes, rows_of, value_of
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.errors import JSON_ERRORS

MAX_CHECKPOINT_BYTES = 4 << 30
_KIND, _VERSION = "nodewright fleet checkpoint", 5
_OMITTED = frozenset({"FleetPodRecord.pod", "NodeState.config"})
"""Both are given again: the pods by the workload, the configuration by the nodes."""
_MAX_HEADER_BYTES = 1024


class CheckpointError(Exception):
    """The bytes are not a checkpoint, or one of another run."""


class _CheckpointHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    version: int
    classes: str
    """Hash of the classes and fields of the rows."""
    run: str
    sha256: str


class SavedKubelet(msgspec.Struct, frozen=True):
    """A kubelet, and the scheduler's view of its node."""

    state: NodeState
    free_uids: list[str]
    placed_pods: int
    refused_pods: int
    generation: int
    pods: Mapping[str, tuple[int, float]]
    """Number and time of placement of the pod with each uid."""


class SavedQueue(msgspec.Struct, frozen=True):
    """The pending pods of one shape."""

    pods: list[QueuedPod]
    is_looping: bool
    tried_at_generation: int
    refused_by: Mapping[int, int]
    is_ready: bool


class SavedCounters(msgspec.Struct, frozen=True):
    """The counters of a simulation."""

    totals: Mapping[str, int]
    samples: list[FleetSample]
    node_samples: list[NodeSample]
    refusals: list[tuple[tuple[str, str], RefusalCount]]


class SavedSimulation(msgspec.Struct, frozen=True):
    """A simulation between two decisions."""

    arrived_count: int
    arrivals: int
    """`ReadPods.fingerprint` of the pods that have arrived."""
    records: Mapping[int, FleetPodRecord]
    finished: FinishedPods
    kubelets: tuple[SavedKubelet, ...]
    generation: int
    queues: tuple[SavedQueue, ...]
    next_sequence: int
    unreported: list[tuple[int, int]]
    nodes_with_removals: set[int]
    event_entries: list[tuple[float, int, int, PodCompletion | EvictionCheck]]
    scheduled_count: int
    nodes_under_check: set[int]
    now_s: float
    counters: SavedCounters
    steps: int
    cached_steps: int


class ReadPods:
    """An iterator over the pods of a run, with a fingerprint of those that were read."""

    def __init__(self, pods: Iterator[FleetPod]) -> None:
        self._pods = pods
        self._count = 0
        self._fingerprints = (0, 0)
        """Before and after the last pod."""

    def __iter__(self) -> Iterator[FleetPod]:
        return self

    def __next__(self) -> FleetPod:
        pod = next(self._pods)
        text = f"{pod.namespace}/{pod.name} {pod.arrives_s} {pod.runs_s} {pod.node}\n"
        last = self._fingerprints[1]
        self._fingerprints = last, zlib.crc32(text.encode(errors="surrogatepass"), last)
        self._count += 1
        return pod

    def fingerprint(self, count: int) -> int:
        """The fingerprint of the first ``count`` pods, which are all that were read, or all but the last."""
        assert self._count - 1 <= count <= self._count
        return self._fingerprints[1 - self._count + count]


def run_identity(nodes: Sequence[FleetNode], setup: SimulationSetup) -> str:
    """A hash that is equal for runs that can continue each other's checkpoints; pods are not compared."""
    profiles = {id(node.profile): node.profile for node in nodes}
    profile_hashes = {
        key: sha256(repr(profile.spec).encode(errors="surrogatepass")).hexdigest()
        for key, profile in profiles.items()
    }
    node_facts = [
        (
            node.name,
            profile_hashes[id(node.profile)],
            sorted(node.labels.items()),
            node.taints,
            node.unschedulable,
        )
        for node in nodes
    ]
    settings = (
        setup.score_name,
        setup.retry.value,
        setup.preemption,
        setup.keep_finished_pods,
        setup.budgets,
        setup.until_s,
        setup.samples_nodes,
        *(["extender"] if setup.extender else []),
    )
    return sha256(repr((node_facts, settings)).encode(errors="surrogatepass")).hexdigest()


def checkpoint_bytes(simulation: FleetSimulation, run: str, pods: ReadPods) -> bytes:
    """The state of a run between two decisions; ``run`` is its `run_identity`."""
    body = json.dumps(rows_of(_saved(simulation, pods), _OMITTED), separators=(",", ":")).encode()
    header = _CheckpointHeader(_KIND, _VERSION, _classes_hash(), run, sha256(body).hexdigest())
    return msgspec.json.encode(header) + b"\n" + body


def _saved(simulation: FleetSimulation, pods: ReadPods) -> SavedSimulation:
    records, queue, counters = simulation.records, simulation.queue, simulation.counters
    return SavedSimulation(
        arrived_count=records.arrived_count,
        arrivals=pods.fingerprint(records.arrived_count),
        records=records.records,
        finished=records.finished,
        kubelets=_saved_kubelets(simulation),
        generation=simulation.cluster.generation,
        queues=tuple(
            SavedQueue(
                list(each.pods), each.is_looping, each.tried_at_generation, each.refused_by, each.is_ready
            )
            for each in queue.queues.values()
        ),
        next_sequence=queue.next_sequence,
        unreported=queue.unreported,
        nodes_with_removals=queue.nodes_with_removals,
        event_entries=simulation.events.entries,
        scheduled_count=simulation.events.scheduled_count,
        nodes_under_check=simulation.nodes_under_check,
        now_s=simulation.now_s,
        counters=SavedCounters(
            counters.totals(), counters.samples, counters.node_samples, list(counters.refusals.items())
        ),
        steps=simulation.kubelets.steps,
        cached_steps=simulation.kubelets.cached_steps,
    )


def _saved_kubelets(simulation: FleetSimulation) -> tuple[SavedKubelet, ...]:
    return tuple(
        SavedKubelet(
            kubelet.state,
            kubelet.free_uids,
            kubelet.placed_pods,
            kubelet.refused_pods,
            slot.generation,
            {uid: (pod.pod_number, pod.placed_at_s) for uid, pod in slot.pods.items()},
        )
        for kubelet, slot in zip(simulation.kubelets.all, simulation.cluster.nodes, strict=True)
    )


def restore_checkpoint(simulation: FleetSimulation, data: bytes, run: str, pods: ReadPods) -> None:
    """Restores the state of a checkpoint in a run that has not started, and reads the pods that had arrived.

    Errors: CheckpointError.
    """
    try:
        saved = value_of(_decoded(data, run), SavedSimulation, _OMITTED)
        _check_numbers(saved, simulation)
        _restore_pods(simulation, saved, pods)
        _restore_nodes(simulation, saved)
        _restore_queues(simulation, saved)
        counters = saved.counters
        simulation.counters.restore(
            counters.totals, counters.samples, counters.node_samples, counters.refusals
        )
    except (RowError, LookupError) as error:
        raise CheckpointError(f"is not the state of a fleet: {error}") from error
    simulation.events.entries, simulation.events.scheduled_count = saved.event_entries, saved.scheduled_count
    simulation.nodes_under_check, simulation.now_s = saved.nodes_under_check, saved.now_s
    simulation.kubelets.steps, simulation.kubelets.cached_steps = saved.steps, saved.cached_steps
    simulation.resumed = True


def _decoded(data: bytes, run: str) -> Any:
    """The rows of a checkpoint of this run."""
    line, _, body = data[:_MAX_HEADER_BYTES].partition(b"\n")
    body = data[len(line) + 1 :]
    try:
        header = msgspec.json.decode(line, type=_CheckpointHeader)
    except JSON_ERRORS:
        raise CheckpointError("is not a checkpoint of a fleet") from None
    if header.kind != _KIND:
        raise CheckpointError("is not a checkpoint of a fleet")
    if (header.version, header.classes) != (_VERSION, _classes_hash()):
        raise CheckpointError("is not a checkpoint that this version can read")
    if header.run != run:
        raise CheckpointError("is the checkpoint of a run with other nodes or options")
    if header.sha256 != sha256(body).hexdigest():
        raise CheckpointError("is damaged: its content does not have its checksum")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"is not the state of a fleet: {error}") from None


def _classes_hash() -> str:
    """Equal for versions of the program whose rows have the same classes and fields."""
    classes = {name: field_names(kind) for name, kind in row_classes(SavedSimulation, _OMITTED).items()}
    return sha256(repr(sorted(classes.items())).encode()).hexdigest()[:16]


def _check_numbers(saved: SavedSimulation, simulation: FleetSimulation) -> None:
    """Errors: CheckpointError for nodes and pods that do not exist."""
    nodes = range(len(simulation.nodes))
    nodes_of_events = {
        event.node for *_, event in saved.event_entries if isinstance(event, EvictionCheck)
    } | {node for queue in saved.queues for node in queue.refused_by}
    known = (
        len(saved.kubelets) == len(nodes)
        and all(-1 <= record.node < len(nodes) for record in saved.records.values())
        and all(
            node in nodes for node in nodes_of_events | saved.nodes_with_removals | saved.nodes_under_check
        )
        and all(0 <= number < saved.arrived_count for number in saved.records)
        and all(kubelet.pods.keys() <= kubelet.state.pods.keys() for kubelet in saved.kubelets)
        and all(queue.pods for queue in saved.queues)
    )
    if not known:
        raise CheckpointError("is not the state of a fleet: it refers to nodes or pods that do not exist")


def _restore_pods(simulation: FleetSimulation, saved: SavedSimulation, pods: ReadPods) -> None:
    """Reads the pods that had arrived: their shapes get the numbers that they had."""
    for number in range(saved.arrived_count):
        pod = next(pods, None)
        if pod is None:
            break
        simulation.shapes.shape_of(pod)
        if number in saved.records:
            saved.records[number].pod = pod
    else:
        if pods.fingerprint(saved.arrived_count) == saved.arrivals:
            simulation.records.restore(saved.records, saved.arrived_count, saved.finished)
            return
    raise CheckpointError("is the checkpoint of a run with other pods")


def _restore_nodes(simulation: FleetSimulation, saved: SavedSimulation) -> None:
    """Restores the pods on their nodes, in the states of the kubelets and in the scheduler's view."""
    for kubelet, slot, each in zip(
        simulation.kubelets.all, simulation.cluster.nodes, saved.kubelets, strict=True
    ):
        simulation.kubelets.restore(kubelet, each.state)
        kubelet.free_uids = each.free_uids
        kubelet.placed_pods, kubelet.refused_pods = each.placed_pods, each.refused_pods
        for uid, (pod, since_s) in each.pods.items():
            record = simulation.records[pod]
            started_at_s = record.started_at_s(since_s, is_first=record.placements == 1)
            shape = simulation.shapes.shape_of(record.pod)
            assigned = AssignedPod(pod, shape, since_s, started_at_s)
            simulation.cluster.add_pod(slot, uid, assigned)
        slot.generation = each.generation
    # Queues compare it to find out whether anything has changed since they were tried.
    simulation.cluster.generation = saved.generation


def _restore_queues(simulation: FleetSimulation, saved: SavedSimulation) -> None:
    for each in saved.queues:
        queue = simulation.queue.queue_of(
            simulation.shapes.shape_of(simulation.records[each.pods[0].pod_number].pod)
        )
        queue.pods = deque(each.pods)
        queue.is_looping, queue.tried_at_generation = each.is_looping, each.tried_at_generation
        queue.refused_by = dict(each.refused_by)
        if each.is_ready:
            simulation.queue.activate(queue)
        simulation.queue.length += len(each.pods)
    simulation.queue.next_sequence, simulation.queue.unreported = saved.next_sequence, saved.unreported
    simulation.queue.nodes_with_removals = saved.nodes_with_removals
