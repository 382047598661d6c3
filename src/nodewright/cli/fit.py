"""`nodewright fit`: the largest pods that nodes admit, now and when empty, and what of the nodes is stranded."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import click
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options, is_about_all_nodes
from nodewright.cli.cluster.cluster_session import current_session
from nodewright.cli.node_query import exit_code, load_query, print_report
from nodewright.cli.options import NO_POLICY_OPTIONS, NodeQuery
from nodewright.cli.workload_input import ProgressLine, print_input_notes, print_warnings, read_workloads
from nodewright.documents.formats.quota_queues import QUEUE_KINDS, QueueQuota, queue_quotas
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, print_message, print_text
from nodewright.documents.profiles.kubelet_config_files import config_document
from nodewright.fleet.load.fleet_input import bound_profiles
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.printable import counted
from nodewright.predict.fit.fit_text import fit_text
from nodewright.predict.fit.node_fit import FitQuestion, FitReport, best_verdict
from nodewright.predict.fit.queued import queue_fits
from nodewright.predict.node import AlikeNodes, Node
from nodewright.predict.upgrade.upgrade_input import profiles_of_nodes

_MAX_DETAILED = 100
"""Of groups of more nodes, machine-readable answers have no multiples: they would take most of the time."""


class _Input(NamedTuple):
    """The nodes and the pods of a command line."""

    nodes: Iterable[tuple[str, Node | InputError]]
    """Each by name; or why it cannot be judged."""
    workloads: LoadedWorkloads
    warnings: tuple[str, ...]


@click.command("fit")
@cluster_options
@partial(options.node_query_options, needs_files=False)
@option(
    "--nodes FILE|DIR",
    "Many nodes: NodeProfiles, or a cluster's Nodes and Pods as of `kubectl get nodes,pods -A -o json`. "
    "Repeatable.",
    multiple=True,
)
@option(
    "--resource NAME",
    "The extended resource of the table of shapes. Default: the node's GPUs, or the one with most devices.",
)
@options.output_option("json", "yaml")
def command(query: NodeQuery, *, nodes: tuple[str, ...], resource: str | None, output: str | None) -> int:
    """Show the largest pods that nodes admit, now and when empty, and what is free and cannot be used.

    With pods: how many more of each a node admits, the largest multiple of each request alone and of all together, what
    is stranded and why, the fewest pods to move, and the topology manager policy that admits most. Without pods:
    for each number of devices the most CPUs and memory on one NUMA node, one socket and the node, under each policy.
    With ClusterQueues and ResourceFlavors: what the quota allows and the nodes do not take.

    Equal nodes are one group; so are those of the cluster with `kubectl nodewright fit` or --node nodes. Exit code 0 if
    each pod is admitted by a node now, 3 if one is refused or undecided, 4 if all others are unschedulable.
    """
    if nodes and (query.node is not None or query.shape is not None):
        raise click.UsageError("--nodes cannot be combined with --node or --shape")
    given = _given(query, nodes)
    created = tuple(workload for workload in given.workloads.workloads if workload.refusal is None)
    for workload in given.workloads.workloads:
        if workload.refusal is not None:
            print_message(f"{workload.pod.full_name}: {workload.refusal.sentence()}")
    known, unread = [], dict[str, str]()
    for name, node in given.nodes:
        if isinstance(node, InputError):
            unread[name] = str(node.faults[0])
        else:
            known.append(replace(node, claims=given.workloads.claims))
    names = sorted({name for each in known for name in each.config.view.allocatable if is_extended(name)})
    if resource is not None and resource not in names:
        rule = f"no node has this extended resource; there are: {', '.join(names) or 'none'}"
        raise InputError([Fault(source="--resource", value=resource, rule=rule)])
    question = FitQuestion(
        workloads=created,
        resource=resource,
        kubelet_only=query.kubelet_only,
        multiples_up_to=1 if output is None else _MAX_DETAILED,  # A text shows those of single nodes.
    )
    queues = queue_quotas(given.workloads.queues)
    print_warnings(queues.unjudged, strict=query.strict)
    answers = _answers(question, known, queues.quotas)
    report = replace(
        answers,
        unread=unread,
        skipped=given.workloads.skipped,
        warnings=(*given.warnings, *queues.unjudged),
    )
    text = {"json": as_json, "yaml": as_yaml}.get(output or "", fit_text)(report)
    if len(known) == 1:
        print_report(text, output, known[0].config)
    else:
        print_text(text)
    is_all = len(created) == len(given.workloads.workloads)
    return exit_code(best_verdict(report, index) for index in range(len(created))) if is_all else NO


def _answers(question: FitQuestion, nodes: Sequence[Node], quotas: Sequence[QueueQuota]) -> FitReport:
    """The answers of the nodes, with a progress line on terminals, and what they take of the quotas."""
    with ProgressLine() as progress:
        numbers, total = count(1), counted(len(nodes), "node")
        groups = question.groups(nodes, lambda: progress.show(f"{next(numbers):,} of {total} judged"))
    empty = {
        fit.node.node: [pod.copies_empty or 0 for pod in fit.pods] for group in groups for fit in group.now
    }
    pods = [workload.pod for workload in question.workloads]
    queues = tuple(queue_fits(quotas, nodes, pods, empty)) if nodes else ()
    return FitReport(groups=groups, queues=queues, unread={}, skipped={}, warnings=())


def _given(query: NodeQuery, paths: tuple[str, ...]) -> _Input:
    """The nodes and pods of files or of the cluster.

    Errors: InputError, HostError as of what is read.
    """
    is_cluster = not paths and is_about_all_nodes(query.node, query.shape)
    loaded = LoadedWorkloads()
    if query.manifests.are_named:
        loaded = read_workloads(query.manifests, query.namespace)
    if loaded.queues:
        skipped = {kind: count for kind, count in loaded.skipped.items() if kind not in QUEUE_KINDS}
        loaded = replace(loaded, skipped=skipped)
    if not paths and not is_cluster:
        if loaded.queues and not loaded.workloads:
            query = replace(query, manifests=replace(query.manifests, filenames=()))
        single = load_query(query, loaded)
        pods = replace(
            loaded, workloads=tuple(single.workloads), skipped=single.skipped, claims=single.node.claims
        )
        return _Input([(single.node.name, single.node)], pods, single.warnings)
    _check_options(query)
    if query.manifests.are_named:
        print_input_notes(loaded, loaded.warnings, strict=query.strict, may_be_empty=bool(loaded.queues))
    if not is_cluster:
        nodes, warnings = _nodes_of_files(query, paths)
        return _Input(nodes, loaded, (*loaded.warnings, *warnings))
    from nodewright.cli.cluster.cluster_answers import (  # noqa: PLC0415 - start-up time
        judged_nodes,
        read_nodes_with_sources,
    )
    from nodewright.cli.cluster.cluster_reading import (  # noqa: PLC0415 - as above
        with_cluster_claims,
        with_cluster_queues,
    )

    session = current_session()
    cluster = read_nodes_with_sources(session)
    loaded = loaded if query.kubelet_only else with_cluster_claims(session, loaded)
    loaded = with_cluster_queues(session, loaded)
    return _Input(judged_nodes(cluster), loaded, loaded.warnings)


def _check_options(query: NodeQuery) -> None:
    """Checks that options about one node are not used with many.

    Errors: click.UsageError.
    """
    single_options = {
        "--replicas": query.all_replicas,
        "--pods": query.pods,
        "--release": query.release,
        "--device": query.devices,
        "--memory": query.memory_bytes is not None,
        "--topology-policy, --cpu-picker and --policies": query.policies != NO_POLICY_OPTIONS,
    }
    if named := [name for name, value in single_options.items() if value]:
        raise click.UsageError(f"about one node, which --node names: {', '.join(named)}")


def _nodes_of_files(
    query: NodeQuery, paths: tuple[str, ...]
) -> tuple[list[tuple[str, Node | InputError]], tuple[str, ...]]:
    """The nodes by name, with the given configuration in place of their own, and warnings."""
    configuration = None if query.kubelet_config is None else config_document(query.kubelet_config)
    dumped: list[tuple[NodeProfile, str]] = []

    def read_dumps(dumps: Sequence[str]) -> tuple[list[tuple[NodeProfile, str]], tuple[str, ...]]:
        bound, notes = bound_profiles(dumps, configuration)
        dumped.extend(bound)
        return bound, notes

    profiles, warnings = profiles_of_nodes(paths, read_dumps)
    print_warnings(warnings, strict=query.strict)
    nodes, judged = AlikeNodes(), list[tuple[str, Node | InputError]]()
    for number, (profile, source) in enumerate(profiles):
        spec = profile.spec
        # Dumps come last, and have the configuration with the reservations of their nodes.
        if configuration is not None and number < len(profiles) - len(dumped):
            spec = replace(spec, kubelet_configuration=configuration)
        judged.append((profile.metadata.name, nodes.node(replace(profile, spec=spec), source)))
    return judged, warnings
