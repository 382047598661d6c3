"""What the nodes of a cluster answer about pods: `admit` on all of them, `explain` on the node of each pod."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.cli.cluster.cluster_reading import (
    read_cluster,
    read_documents,
    read_usage,
    with_cluster_claims,
)
from nodewright.cli.cluster.cluster_session import ClusterSession
from nodewright.cli.node_query import LoadedQuery, load_query
from nodewright.cli.options import ManifestOptions, NodeQuery
from nodewright.cli.usage_options import UsageOptions, node_with_usage
from nodewright.cli.workload_input import ProgressLine, print_input_notes, read_workloads
from nodewright.cluster.objects.all_nodes import AllNodes, ListedNodes, read_all_nodes
from nodewright.cluster.objects.reader import pod_event_sentences, pods_with_claims
from nodewright.documents.formats.documents import provide_files
from nodewright.documents.formats.workloads import LoadedWorkloads, Workload
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_message, print_text, terminal_columns
from nodewright.engine.admission.admission_plugins import without_cluster_fields
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.node.events import PodRecovered, PodRemoved
from nodewright.engine.node.pod_admission import placement_of
from nodewright.engine.node.previews import node_eviction_forecast
from nodewright.engine.node.step import step
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.node_profile import ReadSource
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import MEMORY, readable_amount
from nodewright.model.printable import counted
from nodewright.model.reasons.status_evidence import FailureCause, problem_evidence
from nodewright.predict.admit.cluster_admission import (
    ClusterAdmission,
    ClusterAdmissionReport,
    ClusterAnswers,
    cluster_admission_text,
    pod_of_cluster,
    taking_nodes,
)
from nodewright.predict.admit.resize_report import resize_sentences
from nodewright.predict.explain.claim_question import KIND, claim_sentences
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.failed_pod_report import proof_lines, with_cores_of_status
from nodewright.predict.node import AlikeNodes, Node
from nodewright.predict.node_report.report_parts import holding_sentences


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
    loaded = replace(loaded, claims=None) if query.kubelet_only else with_cluster_claims(session, loaded)
    time = _time_text()
    sources = tuple(cluster_sources(cluster, time))
    if output not in ("json", "yaml"):
        print_sources(session, sources)
    admissions = cluster_admissions(cluster, loaded)
    if pods is not None:
        admissions = tuple(
            replace(admission, observed=observed)
            for admission, observed in zip(admissions, pods.observed, strict=True)
        )
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


def _time_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_nodes(session: ClusterSession) -> AllNodes:
    """All nodes of the cluster, with a progress line on terminals.

    Errors: HostError as of the API server; InputError if there is no node.
    """
    session.reads_all_nodes = True
    with ProgressLine() as progress:
        cluster = read_cluster(session, lambda reader: read_all_nodes(reader, progress.show))
    if not cluster.nodes:
        raise InputError([Fault(source=session.place, rule="the cluster has no nodes")])
    return cluster


def cluster_admissions(cluster: AllNodes, loaded: LoadedWorkloads) -> tuple[ClusterAdmission, ...]:
    """The answers of all nodes about each pod."""
    answers = ClusterAnswers(loaded.workloads, loaded.claims)
    with ProgressLine() as progress:
        for number, (name, node) in enumerate(judged_nodes(cluster), 1):
            if isinstance(node, InputError):
                answers.add_unread_node(name, str(node.faults[0]))
                continue
            answers.add_node(node)
            progress.show(f"{number:,} of {counted(len(cluster.nodes), 'node')} judged")
    return answers.admissions()


def judged_nodes(cluster: AllNodes) -> Iterator[tuple[str, Node | InputError]]:
    """Each node by name, or why it cannot be judged."""
    profiles, nodes = ListedNodes(cluster), AlikeNodes()
    for listed in cluster.nodes:
        try:
            yield listed.name, nodes.node(profiles.profile(listed), f"node/{listed.name}")
        except InputError as error:
            yield listed.name, error


def read_nodes_with_sources(session: ClusterSession) -> AllNodes:
    """All nodes of the cluster; prints on stderr what was read.

    Errors: as of `read_nodes`.
    """
    cluster = read_nodes(session)
    print_sources(session, tuple(cluster_sources(cluster, _time_text())))
    return cluster


def print_sources(session: ClusterSession, sources: tuple[ReadSource, ...]) -> None:
    """Prints on stderr what was read, and what could not be read and is therefore assumed."""
    read = ", ".join(source.name for source in sources if not source.error)
    print_message(f"{session.place}: {read}")
    for source in sources:
        if source.error:
            print_message(f"warning: {source.name}: not read: {source.error}; assumed: {source.assumed}")


_SHOWN_FAILURES = 5
"""Kinds of failures that are shown each in a line: an error often names the address of its kubelet."""


def cluster_sources(cluster: AllNodes, time: str) -> Iterator[ReadSource]:
    """What was read of all nodes, and what could not be read."""
    yield ReadSource(name=counted(len(cluster.nodes), "node"), time=time)
    yield ReadSource(name=counted(cluster.pod_count, "pod"), time=time)
    for name, where, objects in (
        ("kubelet configuration", " (/configz)", cluster.configurations),
        ("NodeResourceTopology object", "", cluster.topologies),
    ):
        if objects:
            yield ReadSource(name=f"{counted(len(objects), name)}{where}", time=time)
    failures = Counter((source.error, source.assumed) for source in cluster.failures.values()).most_common()
    for (error, assumed), count in failures[:_SHOWN_FAILURES]:
        yield ReadSource(name=f"/configz of {counted(count, 'kubelet')}", error=error, assumed=assumed)
    if others := failures[_SHOWN_FAILURES:]:
        (error, assumed), _ = others[0]
        count = sum(count for _, count in others)
        error += "; others for other reasons" if len(others) > 1 else ""
        yield ReadSource(name=f"/configz of {counted(count, 'more kubelet')}", error=error, assumed=assumed)


_USAGE = "/stats/summary of the kubelet"


class NodeExplanations(msgspec.Struct, frozen=True, kw_only=True):
    """The explanations of the pods of one node."""

    loaded: LoadedQuery
    pods: tuple[Explanation, ...]


def explained_on_their_nodes(
    session: ClusterSession, query: NodeQuery, workloads: LoadedWorkloads, budget: int
) -> tuple[NodeExplanations, ...]:
    """The explanations of bound pods, by node in the order of the pods.

    Errors: HostError, InputError if a node cannot be read.
    """
    by_node: dict[str, list[Workload]] = {}
    for workload in workloads.workloads:
        by_node.setdefault(workload.pod.spec.node_name, []).append(workload)
    explanations = []
    for name, on_node in by_node.items():
        word = f"node/{name}"
        with ExitStack() as stack:
            stack.enter_context(provide_files(read_documents(session, (), (word,))))
            usage = _usage(session, name)
            if usage:
                stack.enter_context(provide_files({_USAGE: usage}))
            of_node = replace(workloads, workloads=tuple(on_node))
            loaded = load_query(replace(query, node=word), of_node, as_arrivals=False)
            pods = tuple(
                _explained(session, loaded.node, pod, budget, has_usage=bool(usage)) for pod in on_node
            )
        explanations.append(NodeExplanations(loaded=loaded, pods=pods))
    return tuple(explanations)


def _explained(
    session: ClusterSession, node: Node, workload: Workload, budget: int, *, has_usage: bool
) -> Explanation:
    """The explanation of a pod as if it arrived at its node now, with what the cluster reports about it."""
    pod = workload.pod
    observed: list[str] = []
    proof = problem_evidence(pod)
    if pod.uid in node.state.pods:
        observed.append(f"phase {pod.status.phase or 'unknown'}")
        observed += _holdings(node, pod)
        if has_usage:
            observed += _eviction_rank(node, pod)
        if proof is not None and proof.cause is FailureCause.RESIZE_PENDING:
            observed += resize_sentences(_with_allocated(node, pod).resize(pod))
    observed += read_cluster(session, lambda reader: pod_event_sentences(reader, pod))
    without_pod = replace(node, state=step(node.state, PodRemoved(pod.uid)).state)
    explanation = without_pod.explain(without_cluster_fields(pod), budget=budget)
    return replace(
        with_cores_of_status(explanation, proof),
        proof=proof,
        presence=_presence(node, pod),
        observed=tuple(observed),
    )


def _presence(node: Node, pod: Pod) -> str:
    """What the pod does; empty if it does not run there and has not succeeded."""
    if pod.status.phase == "Succeeded":
        return "has succeeded"
    if pod.uid not in node.state.pods:
        return ""
    if pod.metadata.deletion_timestamp is not None:
        return f"is being deleted on {node.name}"
    return f"{'runs on' if pod.status.phase == 'Running' else 'is assigned to'} {node.name}"


def _holdings(node: Node, pod: Pod) -> Iterator[str]:
    """What each container of a running pod holds exclusively."""
    assumed = " (as far as the node could be read)" if node.config.facts.unknown_parts else ""
    for text in holding_sentences(placement_of(node.state, pod)):
        yield f"{text}{assumed}"


def _with_allocated(node: Node, pod: Pod) -> Node:
    """The node, on which the pod has what the kubelet has allocated, if only its status shows that."""
    on_node = node.state.pods[pod.uid]
    if scheduler_requests(on_node) != scheduler_requests(pod):
        return node  # The kubelet's own list has the pod as allocated.
    amounts = {status.name: status.resources for status in pod.status.container_statuses if status.resources}
    containers = tuple(
        replace(container, resources=amounts.get(container.name, container.resources))
        for container in on_node.spec.containers
    )
    allocated = replace(on_node, spec=replace(on_node.spec, containers=containers))
    state = step(node.state, PodRemoved(pod.uid)).state
    return replace(node, state=step(state, PodRecovered(allocated, is_allocated=True)).state)


def explain_unbound_pods(
    session: ClusterSession, query: NodeQuery, workloads: LoadedWorkloads, output: str | None
) -> int:
    """Prints why pods without a node wait, and what the kubelet of each node would decide.

    Errors: HostError, InputError as of the cluster.
    """
    workloads = with_cluster_claims(session, workloads)
    observed = tuple(_unbound_pod(session, workload, workloads.claims) for workload in workloads.workloads)
    return report_cluster_admission(session, query, output, LoadedForCluster(workloads, observed))


def _unbound_pod(session: ClusterSession, workload: Workload, claims: ClaimCluster | None) -> tuple[str, ...]:
    """What the status and the events of the pod say; of a resource claim what it has, and which pods use it."""
    pod = workload.pod
    if workload.kind == KIND and claims is not None:
        pods = read_cluster(session, lambda reader: pods_with_claims(reader, workload.namespace))
        return tuple(claim_sentences(workload.name, workload.namespace, claims, pods))
    if workload.kind != "Pod" or not workload.is_stored:
        return ()
    proof = problem_evidence(pod)
    facts = () if proof is None else (*proof_lines(proof), *proof.open_questions)
    if pod.metadata.deletion_timestamp is not None:
        facts = ("it is being deleted, so no scheduler assigns it to a node", *facts)
    return (*facts, *read_cluster(session, lambda reader: pod_event_sentences(reader, pod)))


def _eviction_rank(node: Node, pod: Pod) -> Sequence[str]:
    """When the pod would be evicted if memory ran out now."""
    options = UsageOptions(usage=_USAGE, after=None, live=False, available={}, filesystems=None)
    try:
        observed = node_with_usage(node, options, ManifestOptions(filenames=()))
    except InputError as error:
        return (f"its place in evictions is not known: {error.faults[0]}",)
    forecast = node_eviction_forecast(
        observed.node.state, observed.usage, observed.filesystems, signal=Signal.MEMORY_AVAILABLE
    )
    ranking = [candidate for candidate in forecast.ranking if not candidate.active_pod.is_critical]
    uids = [candidate.active_pod.uid for candidate in ranking]
    if pod.uid not in uids:
        return ("it is critical, so the kubelet does not evict it",)
    rank = uids.index(pod.uid)
    before = [candidate.active_pod.pod.full_name for candidate in ranking[:rank]]
    place = f"if memory ran out now, it would be number {rank + 1} of {len(uids)} to be evicted"
    if before:
        place += f", after {', '.join(before[:3])}{', ...' if before[3:] else ''}"
    candidate = ranking[rank]
    if not candidate.has_stats:
        return (f"{place}; its usage is not reported",)
    usage = readable_amount(MEMORY, candidate.usage)
    requested = readable_amount(MEMORY, int(candidate.request or 0))
    return (place, f"it uses {usage} of memory and requests {requested}")


def _usage(session: ClusterSession, node_name: str) -> bytes:
    """The kubelet's summary; empty if it cannot be read."""
    try:
        return read_usage(session, node_name)
    except HostError:
        return b""
