"""Reports of sweeps over settings, and of the smallest number of nodes that holds a workload."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.fleet.fleet_summary import FleetSummary
from nodewright.fleet.minimise import MinimumNodes
from nodewright.fleet.report.fleet_report import (
    FleetAssumptions,
    ReportedCapacity,
    RunStatistics,
    run_statistics,
)
from nodewright.fleet.report.fleet_text import percent_text
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.sweep_runs import SweepPoint
from nodewright.fleet.workload import FleetNode, duration_text
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.reasons.reason import kubelet_text

_SIZES = (8, 16, 32)
_WIDE = 120
SweepSummaries = Sequence[tuple[SweepPoint, FleetSummary]]


def sweep_text(swept: SweepSummaries, *, columns: int) -> str:
    """One row per combination: outcomes, refusals, waiting times and remaining capacity.

    Narrow terminals get fewer columns.
    """
    is_wide = columns >= _WIDE
    outcomes = [
        outcome for outcome in PodOutcome if any(summary.outcomes.get(outcome) for _, summary in swept)
    ]
    sizes = [size for size in _SIZES if all(_fragment(summary, size) is not None for _, summary in swept)][
        :is_wide
    ]
    headers = [
        *(outcome.value.upper() for outcome in outcomes),
        "REFUSALS",
        *(["CPU", "P95 WAIT"] if is_wide else []),
        *(f"{size} CPUS ON A NUMA NODE" for size in sizes),
        *(["CAPACITY", "STRANDED"] if swept and swept[0][1].probe is not None else []),
        "SETTINGS",
    ]
    rows = []
    for point, summary in swept:
        cpu_usage = summary.resource_use.get(CPU)
        row = [f"{summary.outcomes.get(outcome, 0):,}" for outcome in outcomes]
        row.append(f"{sum(refusal.count for refusal in summary.refusals):,}")
        if is_wide:
            row.append(percent_text(cpu_usage.mean, cpu_usage.allocatable) if cpu_usage is not None else "-")
            row.append(duration_text(summary.time_to_place.p95_s))
        row += [f"{_fragment(summary, size):,}" for size in sizes]
        if summary.remaining_capacity is not None:
            row += [f"{summary.remaining_capacity.admitted:,}", f"{summary.remaining_capacity.stranded:,}"]
        rows.append((*row, point.name))
    return table(headers, rows) + _reasons(swept)


def _fragment(summary: FleetSummary, size: int) -> int | None:
    return next((fragment.by_numa for fragment in summary.fragments if fragment.cpus == size), None)


def _reasons(swept: SweepSummaries) -> str:
    """The kubelets' reasons for refusals, with their number by settings; empty: none."""
    counts: dict[str, list[int]] = {}
    for at, (_, summary) in enumerate(swept):
        for refusal in summary.refusals:
            reason = kubelet_text(refusal.reason).reason
            counts.setdefault(reason, [0] * len(swept))[at] += refusal.count
    if not counts:
        return ""
    rows = [
        (reason, f"{counts_by_point[at]:,}", swept[at][0].name)
        for reason, counts_by_point in counts.items()
        for at in range(len(swept))
        if counts_by_point[at]
    ]
    return "\n" + table(("KUBELET REASON", "COUNT", "SETTINGS"), rows)


class SweepRunReport(Report, frozen=True, kw_only=True):
    """The statistics of a run with these settings."""

    settings: Mapping[str, Any]
    statistics: RunStatistics


class SweepReport(ReportDocument, frozen=True, kw_only=True):
    """Runs with different settings: `nodewright fleet run --sweep`."""

    kind: Literal["SweepReport"] = "SweepReport"
    sweep: tuple[SweepRunReport, ...]
    warnings: tuple[str, ...]
    complete: bool
    assumed: FleetAssumptions


def sweep_runs_report(swept: SweepSummaries) -> tuple[SweepRunReport, ...]:
    """The statistics of the runs."""
    return tuple(
        SweepRunReport(settings=point.labels, statistics=run_statistics(summary)) for point, summary in swept
    )


class PodCapacityReport(Report, frozen=True, kw_only=True):
    """How many more of a pod fit with these settings."""

    pod: str
    settings: Mapping[str, Any]
    capacity: ReportedCapacity


class FleetCapacityReport(ReportDocument, frozen=True, kw_only=True):
    """How many more pods fit into a fleet: `nodewright fleet capacity`."""

    kind: Literal["FleetCapacityReport"] = "FleetCapacityReport"
    capacity: tuple[PodCapacityReport, ...]
    complete: bool


class NodesOfKind(Report, frozen=True, kw_only=True):
    """A number of equal nodes."""

    name: str
    shape: str
    nodes: int


class MinimumNodesReport(ReportDocument, frozen=True, kw_only=True):
    """The smallest number of nodes that holds a workload: `nodewright fleet minimise`."""

    kind: Literal["MinimumNodesReport"] = "MinimumNodesReport"
    nodes: int | None
    """null: no sufficient number was found."""
    bound: int
    """Fewer nodes cannot hold the workload."""
    proved: bool
    complete: bool
    bound_by: Literal["linear program", "amounts"]
    runs: int
    kinds: tuple[NodesOfKind, ...]


def minimum_nodes_text(summary: MinimumNodes, kinds: Sequence[FleetNode], *, exact: bool, most: int) -> str:
    """The nodes by kind, the lower bound, and whether the number is proved minimal."""
    if not summary.counts and not summary.is_complete:
        return f"interrupted after {_runs(summary)}: no sufficient number was found; fewer than {summary.bound:,} cannot hold the workload\n"
    if not summary.counts:
        return f"no number of these nodes up to {most:,} of a kind holds the workload\n"
    rows = [
        (str(count), kind.name, kind.shape)
        for count, kind in zip(summary.counts, kinds, strict=True)
        if count
    ]
    text = table(("NODES", "KIND", "SHAPE"), rows)
    if not summary.is_complete:
        text = f"interrupted after {_runs(summary)}: this is the best result until then\n{text}"
    if summary.is_proved_minimal:
        return f"{text}\n{summary.nodes:,} nodes hold the workload, proved minimal\n"
    bound_source = (
        "the linear program over whole loads of nodes"
        if exact
        else "sums and large pods; --exact gives a sharper bound"
    )
    return (
        f"{text}\n{summary.nodes:,} nodes hold the workload; fewer than {summary.bound:,} cannot ({bound_source}); "
        "nothing is proved for numbers in between\n"
    )


def _runs(summary: MinimumNodes) -> str:
    return "1 run" if summary.runs == 1 else f"{summary.runs:,} runs"


def minimum_nodes_report(
    summary: MinimumNodes, kinds: Sequence[FleetNode], *, exact: bool
) -> MinimumNodesReport:
    """The report of the same."""
    return MinimumNodesReport(
        nodes=summary.nodes if summary.counts else None,
        bound=summary.bound,
        proved=summary.is_proved_minimal,
        complete=summary.is_complete,
        bound_by="linear program" if exact else "amounts",
        runs=summary.runs,
        kinds=tuple(
            NodesOfKind(name=kind.name, shape=kind.shape, nodes=count)
            for kind, count in zip(kinds, summary.counts, strict=False)
            if count
        ),
    )
