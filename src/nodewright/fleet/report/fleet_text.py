"""Text reports of a fleet simulation, and texts for durations, shares, placements and reasons."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from nodewright.documents.output.text_layout import table
from nodewright.engine.node.pod_admission import Placement
from nodewright.fleet.capacity import ShapeCapacity, total_capacity
from nodewright.fleet.fleet_lending import FleetLoans
from nodewright.fleet.fleet_summary import FleetSummary, ShapeSummary
from nodewright.fleet.simulation.outcomes import FilterRejections, FleetPodRecord, FleetResult, PodOutcome
from nodewright.fleet.workload import duration_text
from nodewright.model.kubernetes.resource_names import (
    CPU,
    MEMORY,
    PODS,
    readable_amount,
    resource_sort_key,
)
from nodewright.model.printable import counted, printable_line, printable_lines
from nodewright.model.reasons.reason import Reason, kubelet_text
from nodewright.model.values.idset import NUMASet

_MOST_REASONS = 10
_NARROW = 100
"""Terminals with fewer columns get narrower tables."""


def fleet_text(summary: FleetSummary, *, columns: int) -> str:
    """The statistics of a run as tables for a terminal of this width."""
    parts = [_headline(summary), _usage(summary), _shapes(summary.shapes, columns=columns)]
    parts += [part for part in (_fragments(summary), _filter_rejections(summary), _refusals(summary)) if part]
    if summary.probe is not None:
        parts.append(capacity_text(summary.probe) + not_counted_text(summary.not_counted))
    if summary.loans is not None:
        parts.append(_loans(summary.loans))
    parts.append(printable_lines(_time_lines(summary)))
    return "\n".join(parts)


def pods_text(result: FleetResult, *, columns: int) -> str:
    """A table of all pods with their placement or the reason for having none."""
    nodes = [record.node.name for record in result.nodes]
    headers = ["POD", "OUTCOME", "NODE", "ARRIVED", "WAITED", "CPUS", "NUMA", "DEVICES", "REASON"]
    rows = [
        (
            record.pod.full_name,
            record.outcome.value,
            nodes[record.node] if record.node >= 0 else "-",
            duration_text(record.arrived_s),
            duration_text(record.placed_s - record.arrived_s) if record.placed_s >= 0 else "-",
            cpus_text(record.placement) or "-",
            numa_text(record.placement) or "-",
            devices_text(record.placement) or "-",
            placement_reason_text(record),
        )
        for record in result.pods
    ]
    kept_columns = (0, 1, 2, 5, 6) if columns < _NARROW else range(len(headers))
    return table([headers[at] for at in kept_columns], [[row[at] for at in kept_columns] for row in rows])


def capacity_text(probe: Sequence[ShapeCapacity]) -> str:
    """The remaining capacity by shape of node."""
    whole = total_capacity(probe)
    rows = [
        (
            str(shape.capacity.nodes),
            str(shape.capacity.admitted),
            str(shape.capacity.by_free_amounts),
            str(shape.capacity.stranded),
            shape.shape,
        )
        for shape in probe
    ]
    rows.append(
        (str(whole.nodes), str(whole.admitted), str(whole.by_free_amounts), str(whole.stranded), "all")
    )
    return table(("NODES", "FITS", "BY AMOUNTS", "STRANDED", "SHAPE"), rows)


def not_counted_text(constraints: Sequence[str]) -> str:
    """What of the pod is not counted, so that the capacity is an upper bound; empty: nothing."""
    if not constraints:
        return ""
    names = " and ".join(constraints)
    return printable_line(f"at most: {names} not counted; `fleet run` with its replicas counts them")


def percent_text(part: float, whole: float) -> str:
    """A percentage; a dash if the whole is zero.

    >>> percent_text(1, 3), percent_text(0, 0)
    ('33 %', '-')
    """
    return f"{100 * part / whole:.0f} %" if whole else "-"


def short_name(resource: str) -> str:
    """A resource's name without its domain."""
    return resource.rpartition("/")[2]


def filter_rejection_text(rejection: FilterRejections) -> str:
    """The number of nodes that a scheduler plugin rejected."""
    what = f" ({rejection.detail})" if rejection.detail else ""
    return f"{rejection.plugin}{what}: {rejection.nodes} {'node' if rejection.nodes == 1 else 'nodes'}"


def reason_text(reason: Reason | str) -> str:
    """The kubelet's reason and message; a text as it is."""
    if isinstance(reason, str):
        return reason
    text = kubelet_text(reason)
    return f"{text.reason}: {text.message}" if text.message else text.reason


def placement_reason_text(record: FleetPodRecord) -> str:
    """Why a pod is not running; empty for one that runs or ran to completion."""
    match record.outcome:
        case PodOutcome.RUNNING | PodOutcome.ENDED | PodOutcome.NOT_ARRIVED:
            return ""
        case PodOutcome.WAITING:
            return "; ".join(map(filter_rejection_text, record.filter_rejections))
        case PodOutcome.LOOPING | PodOutcome.REFUSED:
            return reason_text(record.because[0]) if record.because else ""
        case PodOutcome.PREEMPTED:
            return "preempted by a pod of higher priority"
        case PodOutcome.EVICTED:
            return "evicted under node pressure"
        case PodOutcome.DRAINED:
            return "evicted from a drained node"
        case _:
            assert_never(record.outcome)


def cpus_text(placement: Placement) -> str:
    """The exclusive CPUs of a pod; empty: it runs in the shared pool."""
    parts = (
        [placement.cpus]
        if placement.cpus
        else [container.cpus for container in placement.containers if container.cpus]
    )
    return " ".join(map(str, parts))


def numa_text(placement: Placement) -> str:
    """The NUMA nodes that the topology manager chose for a pod's containers; empty: no affinity."""
    numa = NUMASet()
    for container in placement.containers:
        if container.hint is not None and container.hint.numa is not None:
            numa |= container.hint.numa
    return str(numa)


def devices_text(placement: Placement) -> str:
    """The devices of a pod."""
    return " ".join(
        device
        for container in placement.containers
        for _, held in sorted(container.devices.items())
        for device in held
    )


def _headline(summary: FleetSummary) -> str:
    outcomes = ", ".join(f"{count:,} {outcome.value}" for outcome, count in summary.outcomes.items())
    headline = printable_line(
        f"{counted(summary.nodes, 'node')}, {counted(summary.pods, 'pod')}: {outcomes or 'none'}"
    )
    if not summary.complete:
        headline += printable_line(
            f"interrupted at {duration_text(summary.ended_s)} of virtual time: incomplete"
        )
    if summary.shared_gpu_pods:
        devices = summary.shared_gpu_milli / 1000
        headline += printable_line(
            f"{counted(summary.shared_gpu_pods, 'pod')} with a share of a device (a total of {devices:,.1f}): "
            "accounted for, not placed"
        )
    return headline


def _usage(summary: FleetSummary) -> str:
    rows = []
    for name in sorted(summary.resource_use, key=resource_sort_key):
        usage = summary.resource_use[name]
        if not usage.allocatable or name == PODS:
            continue
        rows.append(
            (
                short_name(name),
                readable_amount(name, usage.allocatable),
                readable_amount(name, usage.at_end),
                percent_text(usage.at_end, usage.allocatable),
                percent_text(usage.mean, usage.allocatable),
                percent_text(usage.most, usage.allocatable),
            )
        )
    return table(("RESOURCE", "ALLOCATABLE", "REQUESTED", "AT END", "MEAN", "MAX"), rows)


def _shapes(shapes: Sequence[ShapeSummary], *, columns: int) -> str:
    headers = ["NODES", "PODS", "CPU", "MEMORY", "REFUSED", "SHAPE"]
    rows = []
    for shape in shapes:
        row = [str(shape.nodes), str(shape.pods)]
        for name in (CPU, MEMORY):
            requested, allocatable = shape.requested.get(name, 0), shape.allocatable.get(name, 0)
            share = percent_text(requested, allocatable)
            row.append(
                share
                if columns < _NARROW
                else f"{readable_amount(name, requested)} of {readable_amount(name, allocatable)}, {share}"
            )
        rows.append((*row, str(shape.refused), shape.shape))
    return table(headers, rows)


def _fragments(summary: FleetSummary) -> str:
    if not summary.fragments:
        return ""
    rows = [
        (
            str(fragment.cpus),
            str(fragment.by_numa),
            str(fragment.by_node),
            str(fragment.by_node - fragment.by_numa),
        )
        for fragment in summary.fragments
    ]
    head = printable_line(
        f"{counted(summary.free_cpus, 'free CPU')} for exclusive allocation. Number of pods that would fit, by their CPUs:"
    )
    return head + table(("CPUS", "IN ONE NUMA NODE", "IN ONE NODE", "ONLY ACROSS NUMA NODES"), rows)


def _filter_rejections(summary: FleetSummary) -> str:
    if not summary.filter_rejections:
        return ""
    rows = [
        (f"{count:,}", filter_rejection_text(rejection)) for rejection, count in summary.filter_rejections
    ]
    return table(("WAITING", "REJECTED BY"), rows)


def _refusals(summary: FleetSummary) -> str:
    if not summary.refusals:
        return ""
    rows = [
        (f"{refusal.count:,}", refusal.shape, reason_text(refusal.reason))
        for refusal in summary.refusals[:_MOST_REASONS]
    ]
    hidden = len(summary.refusals) - _MOST_REASONS
    return table(("REFUSED", "SHAPE", "EXAMPLE"), rows) + (
        printable_line(f"and {hidden} more") if hidden > 0 else ""
    )


def _loans(loans: FleetLoans) -> str:
    headers = ("BESTEFFORT MEMORY", "MARGIN", "MEAN", "HOURS", "P50 TERM", "ENDED", "IN USE")
    rows = [
        (
            room.predictor,
            f"{room.margin_percent}%",
            readable_amount(MEMORY, room.mean),
            f"{room.hours:.1f}",
            duration_text(room.term_seconds[1]) if room.term_seconds else "-",
            str(room.ended),
            percent_text(room.utilization, 1),
        )
        for room in (loans.without, loans.lending)
    ]
    return table(headers, rows)


def _time_lines(summary: FleetSummary) -> Iterator[str]:
    time = summary.time_to_place
    if time.pods:
        yield (
            f"time to place: {time.immediately:,} of {time.pods:,} immediately; median {duration_text(time.median_s)}, "
            f"95 % within {duration_text(time.p95_s)}, at most {duration_text(time.longest_s)}"
        )
    moved = [
        f"{count:,} {verb}"
        for count, verb in ((summary.preemptions, "preempted"), (summary.evictions, "evicted"))
        if count
    ]
    if moved:
        yield f"removed: {', '.join(moved)}"
    if summary.outcomes.get(PodOutcome.LOOPING):
        yield "looping pods: the controller replaces the pod each time, and the same node rejects it each time"
