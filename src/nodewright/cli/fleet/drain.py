"""`nodewright drain`: what happens when nodes are drained or shut down, and where their pods go."""

from collections.abc import Sequence
from functools import partial

import click
from msgspec.structs import replace

from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.cluster.cluster_session import ClusterSession, current_session
from nodewright.cli.fleet.fleet import assumption_lines
from nodewright.cli.fleet.fleet_options import FleetQuery, drain_query_options
from nodewright.cli.options import output_option, split_names
from nodewright.cli.workload_input import ProgressLine
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_text, terminal_columns
from nodewright.fleet.load.fleet_input import FleetInput
from nodewright.fleet.report.drain_report import drain_report
from nodewright.fleet.report.drain_text import drain_text
from nodewright.fleet.workload import FleetNode
from nodewright.model.errors import Fault, InputError
from nodewright.predict.node import AlikeNodes

_PREFIXES = ("node/", "nodes/", "no/")


@click.command("drain")
@partial(
    cluster_options,
    whole={"filenames": ("nodes", "pods", "pdb", "services")},
    is_cluster_wide=True,
    judges_scheduling=True,
)
@drain_query_options
@option(
    "--nodes NAME,NAME",
    "Nodes to drain one after the other; all are cordoned at first. Repeatable.",
    name="node_names",
    multiple=True,
    callback=split_names,
)
@output_option("json", "yaml")
@click.argument("node_words", nargs=-1, metavar="[node/NAME]...")
def command(
    query: FleetQuery, *, node_names: tuple[str, ...], node_words: tuple[str, ...], output: str | None
) -> int:
    """Show what a drain or a shutdown of nodes does to their pods.

    Report what `kubectl drain` refuses and the flags for it, which PodDisruptionBudget blocks which pod, where the
    scheduler and the kubelets place the replacements, and what graceful shutdown grants each pod. Without files,
    node/NAME is a node of the cluster.

    Exit code 0 if every pod is evicted and has a place, 3 if not.
    """
    names = drained_names(node_words, node_names)
    fleet, session = query.load(), current_session()
    if not session.words and not fleet.objects.pods:
        raise InputError([Fault(rule="nothing here is judged: no pod in the files runs or waits")])
    nodes, assumed = fleet.nodes, tuple(assumption_lines(fleet))
    if session.words and query.kubelet_config is None:
        nodes, assumed = cluster_nodes(session, fleet)
    report = drain_report(fleet, nodes, names, assumed)
    encode = {"json": as_json, "yaml": as_yaml}.get(output or "")
    print_text(encode(report) if encode else drain_text(report, columns=terminal_columns()))
    return YES if report.is_clean else NO


def drained_names(words: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The nodes that are named, each once.

    Errors: click.UsageError if there are none.

    >>> drained_names(("node/a", "b"), ("c",))
    ('a', 'b', 'c')
    """
    plain = [word.partition("/")[2] if word.startswith(_PREFIXES) else word for word in (*words, *names)]
    if not all(plain) or not plain:
        raise click.UsageError("name the nodes to drain: node/NAME, or --nodes NAME,NAME")
    return tuple(dict.fromkeys(plain))


def cluster_nodes(
    session: ClusterSession, fleet: FleetInput
) -> tuple[tuple[FleetNode, ...], tuple[str, ...]]:
    """The nodes with the configurations of their kubelets, as far as they can be read; and what is assumed.

    Prints on stderr what was read.
    Errors: HostError, as of the API server.
    """
    from nodewright.cli.cluster import cluster_answers  # noqa: PLC0415 - start-up time
    from nodewright.cli.cluster.cluster_reading import read_cluster  # noqa: PLC0415 - as above
    from nodewright.cluster.objects.all_nodes import ListedNodes, read_kubelets  # noqa: PLC0415 - as above

    with ProgressLine() as progress:
        cluster = read_cluster(session, lambda reader: read_kubelets(reader, progress.show))
    counted = replace(cluster, pod_count=len(fleet.objects.pods))
    cluster_answers.print_sources(session, tuple(cluster_answers.cluster_sources(counted, "")))
    profiles, listed = ListedNodes(cluster), {node.name: node for node in cluster.nodes}
    kinds, nodes, failures = AlikeNodes(), [], dict[str, None]()
    for node in fleet.nodes:
        try:
            profile = profiles.profile(listed[node.name]) if node.name in listed else node.profile
            nodes.append(replace(node, profile=kinds.kind(profile, f"node/{node.name}")[0]))
        except InputError as error:
            nodes.append(node)
            failures[f"assumed: what `fleet` assumes: {error.faults[0]}"] = None
    texts = [
        text for text in assumption_lines(fleet) if "NUMA" in text and len(cluster.topologies) < len(nodes)
    ]
    return tuple(nodes), (*texts, *failures)
