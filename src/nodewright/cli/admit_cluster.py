"""`nodewright admit` for all nodes of a cluster, grouped by answers: now, after a change, never."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from nodewright.cli.cluster.cluster_session import ClusterSession
from nodewright.cli.options import NodeQuery
from nodewright.cli.workload_input import ReadProgressLine, print_input_notes, read_workloads
from nodewright.cluster.objects.all_nodes import AllNodes, ListedNodes, read_all_nodes
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_message, print_text, terminal_columns
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import ReadSource
from nodewright.predict.admit.cluster_admission import (
    ClusterAdmission,
    ClusterAdmissionReport,
    ClusterAnswers,
    cluster_admission_text,
    pod_of_cluster,
    taking_nodes,
    with_observed,
)
from nodewright.predict.node import AlikeNodes


class LoadedForCluster(NamedTuple):
    """The pods of a command that have been read."""

    workloads: LoadedWorkloads
    observed: tuple[tuple[str, ...], ...]
    """What the cluster reports about each of them, one sentence each."""


def report_cluster_admission(
    session: ClusterSession, query: NodeQuery, output: str | None, pods: LoadedForCluster | None = None
) -> int:
    """Prints which nodes admit each pod of the manifests; the exit code is 3 if a pod has none.

    ``pods``: those of the manifests, if they have been read.
    Errors: HostError, InputError if the nodes or the pods cannot be read.
    """
    loaded = pods.workloads if pods else read_workloads(query.manifests, query.namespace)
    print_input_notes(loaded, loaded.warnings, strict=query.strict)
    cluster = read_nodes(session)
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sources = tuple(_sources(cluster, time))
    if output not in ("json", "yaml"):
        print_sources(session, sources)
    admissions = cluster_admissions(cluster, loaded)
    if pods is not None:
        admissions = tuple(map(with_observed, admissions, pods.observed))
    if output in ("json", "yaml"):
        report = ClusterAdmissionReport(
            context=session.access.context,
            time=time,
            nodes=len(cluster.nodes),
            sources=sources,
            pods=tuple(map(pod_of_cluster, admissions)),
            skipped=loaded.skipped,
            warnings=loaded.warnings,
        )
        text = (as_json if output == "json" else as_yaml)(report)
    elif output == "name":
        text = taking_nodes(admissions)
    else:
        columns = terminal_columns()
        text = cluster_admission_text(admissions, width=columns, wide=output == "wide")
    print_text(text)
    return YES if all(admission.takers for admission in admissions) else NO


def read_nodes(session: ClusterSession) -> AllNodes:
    """All nodes of the cluster, with a progress line on terminals.

    Errors: HostError as of the API server; InputError if there is no node.
    """
    session.reads_all_nodes = True
    with ReadProgressLine() as progress:
        cluster = session.read(lambda reader: read_all_nodes(reader, progress.show))
    if not cluster.nodes:
        raise InputError([Fault(source=session.place, rule="the cluster has no nodes")])
    return cluster


def cluster_admissions(cluster: AllNodes, loaded: LoadedWorkloads) -> tuple[ClusterAdmission, ...]:
    """The answers of all nodes about each pod."""
    answers, profiles, nodes = ClusterAnswers(loaded.workloads), ListedNodes(cluster), AlikeNodes()
    with ReadProgressLine() as progress:
        for number, listed in enumerate(cluster.nodes, 1):
            try:
                node = nodes.node(profiles.profile(listed), f"node/{listed.name}")
            except InputError as error:
                answers.add_unread_node(listed.name, str(error.faults[0]))
                continue
            answers.add_node(node, is_unschedulable=listed.is_unschedulable)
            progress.show(f"{number:,} of {len(cluster.nodes):,} nodes judged")
    return answers.admissions()


def print_sources(session: ClusterSession, sources: tuple[ReadSource, ...]) -> None:
    """Prints on stderr what was read, and what could not be read and is therefore assumed."""
    read = ", ".join(source.name for source in sources if not source.error)
    print_message(f"{session.place}: {read}")
    for source in sources:
        if source.error:
            print_message(f"warning: {source.name}: not read: {source.error}; assumed: {source.assumed}")


def _sources(cluster: AllNodes, time: str) -> Iterator[ReadSource]:
    yield ReadSource(name=f"{len(cluster.nodes):,} nodes", time=time)
    yield ReadSource(name=f"{cluster.pod_count:,} pods", time=time)
    for name, objects in (
        ("kubelet configurations (/configz)", cluster.configurations),
        ("NodeResourceTopology objects", cluster.topologies),
    ):
        if objects:
            yield ReadSource(name=f"{len(objects):,} {name}", time=time)
    failures = Counter((source.error, source.assumed) for source in cluster.failures.values())
    for (error, assumed), count in failures.items():
        kubelets = "1 kubelet" if count == 1 else f"{count:,} kubelets"
        yield ReadSource(name=f"/configz of {kubelets}", error=error, assumed=assumed)
