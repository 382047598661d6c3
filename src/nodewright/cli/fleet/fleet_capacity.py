"""`nodewright fleet capacity`: how many more pods of a kind fit; `fleet minimise`: the fewest nodes for a workload."""

from collections.abc import Sequence
from functools import partial

import click
from msgspec.structs import replace

from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.fleet.fleet_options import NO_POD, FleetQuery, fleet_node_query_options
from nodewright.cli.options import output_option
from nodewright.cli.workload_input import nothing_found, print_skipped
from nodewright.documents.formats.claim_objects import joined_claims
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.output.command_line import IntegerRange, option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_line, print_text
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.claims.device_pools import IndexedSlices
from nodewright.fleet import SCORES, Options, run
from nodewright.fleet.capacity import (
    ShapeCapacity,
    capacity_by_shape,
    tolerates_and_selects,
    total_capacity,
    uncounted_constraints,
)
from nodewright.fleet.minimise import (
    SearchInterruptedError,
    minimum_nodes,
    node_lower_bound,
    packing_lower_bound,
    peak_demands,
    slices_of_copies,
)
from nodewright.fleet.report.fleet_report import reported_capacity
from nodewright.fleet.report.fleet_text import capacity_text, not_counted_text, reason_text
from nodewright.fleet.report.sweep_report import (
    FleetCapacityReport,
    PodCapacityReport,
    minimum_nodes_report,
    minimum_nodes_text,
)
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.sweep_runs import (
    RunProgress,
    SweepPoint,
    interrupts_noted,
    nodes_with_allocatable,
    parse_axes,
    pods_with_warnings,
    run_fleet,
    sweep_points,
)
from nodewright.fleet.workload import FleetNode, FleetPod, duration_text
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import printable_line
from nodewright.predict.python_sources import add_sources


@click.command("capacity")
@partial(cluster_options, whole={"nodes": ("nodes",), "pods": ("pods",)}, is_cluster_wide=True)
@fleet_node_query_options
@option("-f, --filename FILE", "The pod whose copies are counted.", name="filename", required=True)
@option(
    "--sweep FIELD=VALUE,VALUE",
    "Count for each value of a KubeletConfiguration field. Repeatable: all combinations.",
    multiple=True,
)
@output_option("json", "yaml")
def capacity(query: FleetQuery, *, filename: str, sweep: tuple[str, ...], output: str | None) -> int:
    """Count how many more pods of a kind fit.

    Copies of the pod are added to each node, beside its pods (--pods), until the node refuses one.

    BY AMOUNTS is how many fit by free amounts alone; STRANDED are free resources that no further pod can use because
    of where they are. If the pod has topology spread constraints or inter-pod affinity, the count is an upper bound,
    and says so. ResourceQuotas do not count: see `nodewright quota`. Exit code 3 if no pod fits, or if Ctrl-C ended
    the count early.
    """
    fleet, loading = query.load(), ManifestLoader(query.namespace)
    add_sources(loading, (filename,))
    given = loading.result()
    if not given.workloads:
        print_skipped(given.skipped)
        raise nothing_found("pods", given.skipped)
    capacities: list[tuple[SweepPoint, Pod, tuple[ShapeCapacity, ...], tuple[str, ...]]] = []
    interrupted_s: float | None = None
    base, progress = fleet.files.node_defaults.configuration, RunProgress()
    options = Options(keep_finished_pods=False, budgets=fleet.budgets, claims=fleet.claims)
    points = sweep_points(parse_axes(sweep))
    for number, point in enumerate(points, 1):
        progress.start_run(point.name, number, len(points))
        result = run_fleet(fleet.with_configuration(point.configuration(base)), options, progress)
        claims = joined_claims(given.claims, result.claims)
        capacities += [
            (
                point,
                pod,
                capacity_by_shape(result.nodes, pod, claims),
                uncounted_constraints(pod, result.nodes, claims),
            )
            for pod in (workload.pod for workload in given.workloads)
        ]
        if not result.complete:
            interrupted_s = result.ended_s
            break
    if output is not None:
        counts = tuple(_pod_report(*counted) for counted in capacities)
        report = FleetCapacityReport(capacity=counts, complete=interrupted_s is None)
        print_text((as_json if output == "json" else as_yaml)(report))
    else:
        if interrupted_s is not None:
            print_line(
                f"interrupted at {duration_text(interrupted_s)} of virtual time: the last count is for that time"
            )
        print_text("\n".join(_text(*counted) for counted in capacities))
    has_room = all(total_capacity(shapes).admitted for _, _, shapes, _ in capacities)
    return YES if interrupted_s is None and has_room else NO


def _pod_report(
    point: SweepPoint, pod: Pod, shapes: tuple[ShapeCapacity, ...], uncounted: tuple[str, ...]
) -> PodCapacityReport:
    return PodCapacityReport(
        pod=pod.full_name,
        settings=point.settings,
        capacity=reported_capacity(shapes),
        not_counted=uncounted,
    )


def _text(point: SweepPoint, pod: Pod, shapes: tuple[ShapeCapacity, ...], uncounted: tuple[str, ...]) -> str:
    total = total_capacity(shapes)
    settings = f" with {point.name}" if point.settings else ""
    title = printable_line(
        f"{pod.full_name}: {'at most ' if uncounted else ''}{total.admitted:,} more fit{settings}"
    )
    title += not_counted_text(uncounted)
    if not total.admitted and not total.by_free_amounts and total.because is None:
        title += printable_line(
            "no node is feasible: none has the labels that the pod selects, only taints that it tolerates, and all its resources"
        )
    reason = next((shape.capacity.because for shape in shapes if shape.capacity.stranded), total.because)
    limit = printable_line(f"limited by, for example: {reason_text(reason)}") if reason is not None else ""
    return title + capacity_text(shapes) + limit


_PLACED = (PodOutcome.RUNNING, PodOutcome.ENDED)


@click.command("minimise")
@partial(cluster_options, whole={"nodes": ("nodes",), "pods": ("pods",)}, is_cluster_wide=True)
@fleet_node_query_options
@option("--exact", "Compute a tighter lower bound with HiGHS (extra: exact).")
@option("--most", "Maximum number of nodes of a kind.", type=IntegerRange(1, 1_000_000), default=1000)
@option(
    "--scores",
    "Scoring strategy of the scheduler.",
    type=click.Choice(list(SCORES)),
    default="most-allocated",
)
@output_option("json", "yaml")
def minimise(query: FleetQuery, *, exact: bool, most: int, scores: str, output: str | None) -> int:
    """Find the fewest nodes that hold a workload.

    Each node is a copy of one of --nodes; together they admit every pod of --pods when it arrives. Every number is
    tried by a simulation. The lower bound limits how far the result can be from the minimum; if both are equal, the
    minimum is proved. Ctrl-C ends the search and prints the best result so far. Exit code 3 if no number of nodes
    suffices, or none was found before Ctrl-C.
    """
    fleet = query.load()
    kinds = _kinds(fleet.nodes, fleet.claims)
    progress = RunProgress()
    # The nodes have new names, so pods that require a node of --nodes may run on any.
    pods = tuple(
        replace(pod, required_node="") if pod.required_node else pod
        for pod in pods_with_warnings(fleet, progress)
    )
    if not pods:
        raise InputError([NO_POD])
    bound = _bound(kinds, pods, fleet.claims, exact=exact)

    def unplaced_count(nodes: Sequence[FleetNode]) -> int:
        claims = None if fleet.claims is None else slices_of_copies(fleet.claims, nodes)
        options = Options(scores=scores, budgets=fleet.budgets, claims=claims)
        result = run(nodes, pods, options, watch=progress.show_progress)
        if not result.complete:
            raise SearchInterruptedError
        # A pod that was preempted and placed again did not run without interruption.
        return sum(
            pod.outcome not in _PLACED or pod.placed_s > pod.arrived_s or pod.placements > 1
            for pod in result.pods
        )

    with interrupts_noted(progress):
        maximum = 0 if progress.unschedulable_kinds else most
        minimum = minimum_nodes(kinds, unplaced_count, bound=bound, maximum=maximum)
    if output is not None:
        report = minimum_nodes_report(minimum, kinds, exact=exact)
        print_text((as_json if output == "json" else as_yaml)(report))
    else:
        print_text(minimum_nodes_text(minimum, kinds, exact=exact, most=most))
    return YES if minimum.counts else NO


def _kinds(nodes: Sequence[FleetNode], claims: ClaimCluster | None) -> tuple[FleetNode, ...]:
    """One node of each kind; nodes that differ only by name, hostname label and what devices report are of one kind."""
    slices = IndexedSlices(() if claims is None else claims.slices).of_nodes
    kinds: dict[object, FleetNode] = {}
    for node in nodes:
        labels = frozenset(item for item in node.labels.items() if item[0] != "kubernetes.io/hostname")
        devices = [
            (item.spec.driver, *(each.name for each in item.spec.devices))
            for item in slices.get(node.name, ())
        ]
        kinds.setdefault((id(node.profile), labels, node.taints, *sorted(devices)), node)
    return tuple(kinds.values())


def _bound(
    kinds: Sequence[FleetNode], pods: Sequence[FleetPod], claims: ClaimCluster | None, *, exact: bool
) -> int:
    amounts = [allocatable for _, allocatable in nodes_with_allocatable(kinds, claims)]
    bound = 0
    for demands in peak_demands(pods):
        bound = max(bound, node_lower_bound(demands, amounts))
        if exact:
            allowed = [[tolerates_and_selects(kind, demand.pod) for demand in demands] for kind in kinds]
            requests, counts = [demand.requests for demand in demands], [demand.count for demand in demands]
            bound = max(bound, packing_lower_bound(requests, counts, amounts, allowed))
    return bound
