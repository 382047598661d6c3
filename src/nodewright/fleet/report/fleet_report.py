"""The report of a fleet simulation, and columns for CSV and Parquet (extra `parquet`)."""

import io
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from nodewright.documents.files.file_store import write_output
from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.fleet.capacity import RemainingCapacity, ShapeCapacity, total_capacity
from nodewright.fleet.fleet_lending import FleetLoans
from nodewright.fleet.fleet_summary import FleetSummary, Fragments, PlacingTimes, ResourceUse, ShapeSummary
from nodewright.fleet.load.assembled_nodes import DEFAULT_CONFIGURATION
from nodewright.fleet.load.fleet_input import FleetInput
from nodewright.fleet.report.fleet_text import (
    cpus_text,
    devices_text,
    numa_text,
    placement_reason_text,
    reason_text,
)
from nodewright.fleet.simulation.outcomes import FleetPodRecord, FleetResult, RefusalCount
from nodewright.model.errors import HostError
from nodewright.model.reasons.reason import Reason, kubelet_text

POD_COLUMNS = (
    "namespace",
    "name",
    "outcome",
    "node",
    "arrived_s",
    "placed_s",
    "left_s",
    "tries",
    "refusals",
    "cpus",
    "numa",
    "devices",
    "why",
)


class CapacityAmounts(Inlined, frozen=True, kw_only=True):
    """How many more equal pods some nodes hold."""

    nodes: int
    fits: int
    """Pods that the kubelets admit, one after the other."""
    by_amounts: int
    """Pods that fit by free amounts, regardless of NUMA nodes and devices."""
    stranded: int
    """Pods for which free amounts suffice, but which the kubelets reject."""
    because: str | UnsetType = UNSET
    """Why the first of the nodes admits no more; absent: no node is feasible."""


class CapacityOfShape(Report, frozen=True, kw_only=True):
    """Remaining capacity of the nodes of a shape."""

    shape: str
    capacity: CapacityAmounts


class ReportedCapacity(Inlined, frozen=True, kw_only=True):
    """Remaining capacity of all nodes, and by shape."""

    total: CapacityAmounts
    shapes: tuple[CapacityOfShape, ...]


class RemainingRoom(Report, frozen=True, kw_only=True):
    """How many more pods like the probe fit."""

    capacity: ReportedCapacity
    not_counted: tuple[str, ...]
    """Constraints of the probe on other pods, for which fewer may fit."""


class WaitingPods(Report, frozen=True, kw_only=True):
    """Pods for which the scheduler finds no node, by the filter that rejects them first."""

    plugin: str = field(name="filter")
    what: str
    """The resource, label or taint that is concerned; may be empty."""
    nodes: int
    pods: int


class ReportedRefusals(Report, frozen=True, kw_only=True):
    """Number of rejections by kubelets of a shape with one reason."""

    shape: str
    count: int
    reason: str
    """The kubelet's."""
    example: str
    fact: Reason
    """Of the first of them."""


class SharedDevices(Report, frozen=True, kw_only=True):
    """Pods that share devices, and thousandths of devices that they use."""

    pods: int
    milli: int


class RunStatistics(Inlined, frozen=True, kw_only=True):
    """The statistics of a run."""

    complete: bool
    ended_seconds: float
    counts: Mapping[str, int]
    """Nodes, pods, and pods by outcome."""
    use: Mapping[str, ResourceUse]
    shapes: tuple[ShapeSummary, ...]
    free_cpus: int = field(name="freeCpus")
    fragments: tuple[Fragments, ...]
    waiting: tuple[WaitingPods, ...]
    refusals: tuple[ReportedRefusals, ...]
    time_to_place: PlacingTimes
    shared_devices: SharedDevices
    placements: int
    preemptions: int
    evictions: int
    room: RemainingRoom | UnsetType = UNSET
    """With --probe."""
    loans: FleetLoans | UnsetType = UNSET
    """With --lend, if something is lent."""


class ReportedFleetPod(Report, frozen=True, kw_only=True):
    """What becomes of a pod."""

    namespace: str
    name: str
    outcome: str
    node: str | UnsetType = UNSET
    arrived_seconds: float
    placed_seconds: float | UnsetType = UNSET
    left_seconds: float | UnsetType = UNSET
    tries: int
    refusals: int
    cpus: str | UnsetType = UNSET
    numa: str | UnsetType = UNSET
    devices: str | UnsetType = UNSET
    why: str | UnsetType = UNSET


class FleetAssumptions(Report, frozen=True, kw_only=True):
    """The facts that are not in the files: assumed, or from --shapes."""

    shapes: Mapping[str, int]
    shapes_by_rule: Mapping[str, int]
    nodes_with_system_core: int
    nodes_with_system_memory: int
    policies: Mapping[str, str]
    """Fields of the KubeletConfiguration that are assumed, because none is given and no sweep sets them."""


def default_policies(fleet: FleetInput, swept: Iterable[str] = ()) -> Mapping[str, str]:
    """The policies that are assumed of all kubelets, by field; without those that a sweep sets."""
    is_default = fleet.files.node_defaults.configuration == DEFAULT_CONFIGURATION
    fields = DEFAULT_CONFIGURATION.keys() - {*swept} if is_default else ()
    return {name: DEFAULT_CONFIGURATION[name] for name in sorted(fields)}


def fleet_assumptions(fleet: FleetInput, swept: Iterable[str] = ()) -> FleetAssumptions:
    """The facts that are not in the files: assumed, or from --shapes."""
    nodes = fleet.assembled
    return FleetAssumptions(
        shapes=dict(nodes.assumed_shapes),
        shapes_by_rule=dict(nodes.configured_shapes),
        nodes_with_system_core=nodes.with_system_core,
        nodes_with_system_memory=nodes.with_system_memory,
        policies=default_policies(fleet, swept),
    )


class FleetReport(ReportDocument, frozen=True, kw_only=True):
    """A simulated fleet with all pods: `nodewright fleet run`."""

    kind: Literal["FleetReport"] = "FleetReport"
    statistics: RunStatistics
    pods: tuple[ReportedFleetPod, ...]
    warnings: tuple[str, ...]
    assumed: FleetAssumptions


def fleet_report(
    summary: FleetSummary, result: FleetResult, assumed: FleetAssumptions, *, warnings: Sequence[str] = ()
) -> FleetReport:
    """The report of a run with all pods."""
    nodes = [record.node.name for record in result.nodes]
    return FleetReport(
        statistics=run_statistics(summary),
        pods=tuple(_pod(record, nodes) for record in result.pods),
        warnings=tuple(warnings),
        assumed=assumed,
    )


def run_statistics(summary: FleetSummary) -> RunStatistics:
    """The statistics of a run."""
    outcomes = {outcome.value: count for outcome, count in summary.outcomes.items()}
    return RunStatistics(
        complete=summary.complete,
        ended_seconds=summary.ended_s,
        counts={"nodes": summary.nodes, "pods": summary.pods, **outcomes},
        use=summary.resource_use,
        shapes=summary.shapes,
        free_cpus=summary.free_cpus,
        fragments=summary.fragments,
        waiting=tuple(
            WaitingPods(plugin=rejection.plugin, what=rejection.detail, nodes=rejection.nodes, pods=count)
            for rejection, count in summary.filter_rejections
        ),
        refusals=tuple(map(_refusals, summary.refusals)),
        time_to_place=summary.time_to_place,
        shared_devices=SharedDevices(pods=summary.shared_gpu_pods, milli=summary.shared_gpu_milli),
        placements=summary.placements,
        preemptions=summary.preemptions,
        evictions=summary.evictions,
        room=UNSET
        if summary.probe is None
        else RemainingRoom(capacity=reported_capacity(summary.probe), not_counted=summary.not_counted),
        loans=summary.loans or UNSET,
    )


def _refusals(refusal: RefusalCount) -> ReportedRefusals:
    return ReportedRefusals(
        shape=refusal.shape,
        count=refusal.count,
        reason=kubelet_text(refusal.reason).reason,
        example=reason_text(refusal.reason),
        fact=refusal.reason,
    )


def reported_capacity(probe: Sequence[ShapeCapacity]) -> ReportedCapacity:
    """The remaining capacity of all nodes, and by shape."""
    return ReportedCapacity(
        total=_capacity(total_capacity(probe)),
        shapes=tuple(
            CapacityOfShape(shape=shape.shape, capacity=_capacity(shape.capacity)) for shape in probe
        ),
    )


def pod_columns(result: FleetResult) -> dict[str, list[Any]]:
    """The pods of the run by column; unknown values are None."""
    nodes = [record.node.name for record in result.nodes]
    columns: dict[str, list[Any]] = {name: [] for name in POD_COLUMNS}
    for record in result.pods:
        values = _row(record, nodes)
        for name, value in zip(POD_COLUMNS, values, strict=True):
            columns[name].append(value)
    return columns


def _row(record: FleetPodRecord, nodes: Sequence[str]) -> tuple[Any, ...]:
    return (
        record.pod.namespace,
        record.pod.name,
        record.outcome.value,
        nodes[record.node] if record.node >= 0 else None,
        float(record.arrived_s),
        float(record.placed_s) if record.placed_s >= 0 else None,
        float(record.left_s) if record.left_s >= 0 else None,
        record.admission_attempts,
        record.refusals,
        cpus_text(record.placement) or None,
        numa_text(record.placement) or None,
        devices_text(record.placement) or None,
        placement_reason_text(record) or None,
    )


def _pod(record: FleetPodRecord, nodes: Sequence[str]) -> ReportedFleetPod:
    row = zip(POD_COLUMNS, _row(record, nodes), strict=True)
    fields = {
        f"{name}econds" if name.endswith("_s") else name: value for name, value in row if value is not None
    }
    return ReportedFleetPod(**fields)


def _capacity(capacity: RemainingCapacity) -> CapacityAmounts:
    return CapacityAmounts(
        nodes=capacity.nodes,
        fits=capacity.admitted,
        by_amounts=capacity.by_free_amounts,
        stranded=capacity.stranded,
        because=UNSET if capacity.because is None else reason_text(capacity.because),
    )


def write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Writes columns of equal length as a Parquet file.

    Errors: HostError if the package is not installed, or the file cannot be written; then the old file stays.
    """
    try:
        polars: Any = import_module("polars")  # an optional extra
    except ImportError as error:
        raise HostError("load", "polars", f"{error}; pip install './nodewright[parquet]'") from error
    content = io.BytesIO()
    polars.DataFrame(dict(columns), infer_schema_length=None).write_parquet(content)
    write_output(path, content.getvalue())
