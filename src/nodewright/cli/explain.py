"""`nodewright explain`: why a node admits or refuses a pod, and what would let it in; why a pod has failed."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options, is_about_all_nodes, watch_option
from nodewright.cli.cluster.cluster_session import current_session
from nodewright.cli.node_query import (
    LoadedQuery,
    admitted_entry,
    after_scheduling,
    asked_scheduler,
    exit_code,
    load_query,
    print_report,
)
from nodewright.cli.output_files import page_origin, write_page
from nodewright.cli.workload_input import print_input_notes, read_workloads
from nodewright.documents.formats.workloads import LoadedWorkloads, Workload
from nodewright.documents.output.command_line import IntegerRange, option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_message, print_text, terminal_columns
from nodewright.engine.admission.admission_plugins import without_cluster_fields
from nodewright.engine.node.step import Decision
from nodewright.engine.node.what_if.counterfactuals import BUDGET
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import counted
from nodewright.model.reasons.status_evidence import StatusEvidence, problem_evidence
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.explanation_page import explanation_page
from nodewright.predict.explain.explanation_report import (
    ExplanationReport,
    explained_pod,
    explanation_text,
    status_text,
)
from nodewright.predict.explain.failed_pod_report import StatusReport, status_findings, with_cores_of_status
from nodewright.predict.node import Node
from nodewright.predict.node_report.report_parts import node_of_report
from nodewright.predict.verdict import SchedulerAnswer, Verdict, unaligned

if TYPE_CHECKING:
    from pathlib import Path

    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster


def status_proofs(workloads: Iterable[Workload]) -> tuple[tuple[Pod, StatusEvidence], ...] | None:
    """The pods with what their statuses prove; None unless all of them are pods with a problem."""
    proofs = []
    for workload in workloads:
        proof = _proof(workload)
        if proof is None:
            return None
        proofs.append((workload.pod, proof))
    return tuple(proofs) or None


def _proof(workload: Workload) -> StatusEvidence | None:
    return problem_evidence(workload.pod) if workload.kind == "Pod" else None


def explain_failed_pods(loaded: LoadedQuery, budget: int) -> Iterator[Explanation]:
    """The explanations of pods with a problem, each as if it were the only pod to arrive at the node.

    Errors: InputError for objects other than pods whose status shows a problem.
    """
    faults = [fault for workload in loaded.workloads for fault in _faults(workload)]
    if faults:
        raise InputError(faults)
    for workload in loaded.workloads:
        node_name = workload.pod.spec.node_name
        if node_name and node_name != loaded.node.name:
            text = f"{workload.pod.full_name} was on node {node_name}, not on {loaded.node.name}"
            print_message(f"warning: {text}")
        explanation = loaded.node.explain(without_cluster_fields(workload.pod), budget=budget)
        proof = _proof(workload)
        if node_name == loaded.node.name:
            explanation = with_cores_of_status(explanation, proof)
        yield replace(explanation, proof=proof)


def _faults(workload: Workload) -> Iterator[Fault]:
    if workload.kind != "Pod":
        rule = "is not a pod; use -f to explain what happens to its pods"
        yield Fault(source=workload.source, value=f"{workload.kind} {workload.name}", rule=rule)
    elif _proof(workload) is None:
        yield Fault(
            source=workload.source,
            path="status",
            value=workload.pod.status.phase,
            rule="shows no failure, restart, pending scheduling or resize; use -f to explain the pod's admission",
        )


def _conditions(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[NodeCondition, bool]:
    conditions = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if name not in set(NodeCondition) or (separator and value not in ("True", "False")):
            names = ", ".join(NodeCondition)
            raise click.BadParameter(f"{text!r} is not one of {names}, with =True or =False", context, option)
        conditions[NodeCondition(name)] = value != "False"
    return conditions


CLAIM = "ResourceClaim"
_MAX_EXPLAINED = 500
"""Each explanation tries many changes."""


@click.command("explain")
@watch_option
@cluster_options
@partial(options.node_query_options, needs_files=False)
@option(
    "--pod [NAMESPACE/]NAME|FILE",
    "With -f: explain only this pod, after the pods before it are admitted. Without -f: a file with a pod that "
    "failed, restarts or is pending, from `kubectl get pod -o yaml`. Repeatable.",
    name="named",
    multiple=True,
)
@option(
    "--condition CONDITION[=True|False]",
    "Node condition in addition to the profile's: MemoryPressure, DiskPressure, PIDPressure. Repeatable.",
    name="conditions",
    multiple=True,
    callback=_conditions,
)
@option(
    "--budget",
    "Maximum number of decisions in the search for changes that let a pod in. Of a pod with many containers, one counts as several.",
    type=IntegerRange(0, 2**31 - 1),
    default=BUDGET,
)
@options.output_file_option(
    "--html",
    "page",
    help="Also write a self-contained page, with a drawing of the machine after the last of the pods.",
)
@options.output_option("json", "yaml", "wide")
def command(
    query: options.NodeQuery,
    *,
    named: tuple[str, ...],
    conditions: dict[NodeCondition, bool],
    budget: int,
    page: "Path | None",
    output: str | None,
) -> int:
    """Explain why a pod is refused and what would let it in.

    Pods are processed in order. For a pod with NUMA-aligned resources: the hints of each resource manager, the merged
    hint of the topology manager, and which pods hold the missing resources. Every suggested change was tried on this
    node. Of resource claims without pods: what each has, and what a pod that uses it would get. Of pods whose status shows a problem (CrashLoopBackOff, OOMKilled, Pending, Evicted, a deferred resize, ...),
    without --node: what the status proves, and what helps. Exit codes as of admit.
    """
    filenames = query.manifests.filenames or query.manifests.kustomizations
    if not filenames and not named:
        raise click.UsageError(
            "specify manifests with -f, or the file of a failed pod with --pod, or a pod of a cluster as pod/NAME"
        )
    if not filenames:
        query = replace(query, manifests=replace(query.manifests, filenames=named))
    workloads = _with_claim_questions(read_workloads(query.manifests, query.namespace))
    if _is_about_cluster(query):
        workloads = replace(workloads, workloads=_named(workloads.workloads, named if filenames else ()))
        return _explain_of_cluster(query, workloads, budget, page, output)
    failed = _failed_pods(workloads.workloads, named if filenames else ()) if named else ()
    if failed:
        workloads, filenames = replace(workloads, workloads=failed), ()
    if query.node is None and page is None and not (filenames and named):
        code = _explain_statuses(workloads, output, strict=query.strict)
        if code is not None:
            return code
    loaded = load_query(query, workloads, as_arrivals=bool(filenames))
    values = dict.fromkeys(loaded.node.state.conditions, True) | conditions
    true_conditions = (condition for condition, is_true in values.items() if is_true)
    loaded = replace(loaded, node=loaded.node.with_conditions(true_conditions))
    if filenames:
        explanations, node = _explanations(loaded, query, _selected(loaded.workloads, named), budget)
    else:
        explanations, node = list(explain_failed_pods(loaded, budget)), loaded.node
    text = _text(loaded, explanations, output)
    if page is not None:
        _write_page(page, explanations, node)
    print_report(text, output, node.config)
    return exit_code(explanation.verdict for explanation in explanations)


def _with_claim_questions(loaded: LoadedWorkloads) -> LoadedWorkloads:
    """The workloads; where there are none, but resource claims, a pod for each of these."""
    if loaded.workloads or loaded.claims is None:
        return loaded
    from nodewright.predict.explain.claim_question import pod_of_claim  # noqa: PLC0415 - start-up time

    return replace(loaded, workloads=tuple(map(pod_of_claim, loaded.claims.claims)))


def _failed_pods(workloads: Sequence[Workload], named: Sequence[str]) -> tuple[Workload, ...]:
    """The pods whose statuses are the question: those that are named, if all have ended; without names all with a problem.

    Prints how many others are left out.
    """
    if named:
        chosen = [each for each in workloads if {each.pod.metadata.name, each.pod.full_name} & {*named}]
        return tuple(chosen) if chosen and all(each.pod.is_terminal for each in chosen) else ()
    failed = tuple(each for each in workloads if _proof(each) is not None)
    if failed and len(failed) < len(workloads):
        healthy = counted(len(workloads) - len(failed), "pod")
        print_message(f"note: {healthy} without a problem left out")
    return failed


def _write_page(page: "Path", explanations: Sequence[Explanation], node: Node) -> None:
    write_page(page, explanation_page(explanations, node.state, page_origin()))


def _named(workloads: Sequence[Workload], pods: Sequence[str]) -> tuple[Workload, ...]:
    """The workloads with these pods; all if no name is given.

    Errors: InputError for unknown names.
    """
    selected = _selected(workloads, pods)
    return tuple(workload for index, workload in enumerate(workloads) if index in selected)


def _is_about_cluster(query: options.NodeQuery) -> bool:
    """Whether the question is what the nodes of a cluster decide: each pod's own, or all of them."""
    words = query.manifests.filenames
    is_of_cluster = bool(words) and {*words} <= current_session().words
    is_open = query.node is None and query.shape is None
    return is_about_all_nodes(query.node, query.shape) or (is_open and is_of_cluster)


def _explain_of_cluster(
    query: options.NodeQuery, loaded: LoadedWorkloads, budget: int, page: "Path | None", output: str | None
) -> int:
    """Prints the explanations of pods on their nodes, and for pods without one what each node decides."""
    from nodewright.cli.cluster.cluster_answers import explain_unbound_pods  # noqa: PLC0415 - start-up time

    def is_bound(workload: Workload) -> bool:
        return query.node is None and workload.is_stored and bool(workload.pod.spec.node_name)

    bound = tuple(filter(is_bound, loaded.workloads))
    unbound = tuple(workload for workload in loaded.workloads if not is_bound(workload))
    if unbound and (page or (bound and output in ("json", "yaml"))):
        rule = (
            "a report is about one node, and these pods have none" if page else "pods with and without a node"
        )
        raise InputError([Fault(source="--html" if page else f"-o {output}", rule=rule)])
    codes = []
    if bound:
        codes.append(_explain_in_cluster(query, replace(loaded, workloads=bound), budget, page, output))
    if unbound:
        of_unbound = replace(loaded, workloads=unbound)
        codes.append(explain_unbound_pods(current_session(), query, of_unbound, output))
    return max(codes, default=YES)


def _explain_in_cluster(
    query: options.NodeQuery, workloads: LoadedWorkloads, budget: int, page: "Path | None", output: str | None
) -> int:
    """Prints the explanations of pods on their nodes; if a node cannot be read, what their statuses prove."""
    from nodewright.cli.cluster.cluster_answers import explained_on_their_nodes  # noqa: PLC0415 - start-up time

    session = current_session()
    try:
        nodes = explained_on_their_nodes(session, query, workloads, budget)
    except (InputError, HostError) as error:
        code = None if page else _explain_statuses(workloads, output, strict=query.strict)
        if code is None:
            raise
        print_message(f"note: without the node: {error}")
        return code
    if len(nodes) > 1 and (page or output in ("json", "yaml")):
        names = ", ".join(node.loaded.node.name for node in nodes)
        rule = (
            f"a report is about one node, and these pods are on {names}: name one of them with -l or by name"
        )
        raise InputError([Fault(source="--html" if page else f"-o {output}", rule=rule)])
    if page is not None:
        _write_page(page, nodes[0].pods, nodes[0].loaded.node)
    for node in nodes:
        print_report(_text(node.loaded, node.pods, output), output, node.loaded.node.config)
    return YES if all(_is_well(pod) for node in nodes for pod in node.pods) else NO


def _is_well(explanation: Explanation) -> bool:
    """Whether the pod runs without a problem, or would be admitted."""
    runs = bool(explanation.presence) and explanation.proof is None
    return runs or explanation.verdict is Verdict.ADMITTED


def _text(loaded: LoadedQuery, explanations: Sequence[Explanation], output: str | None) -> str:
    if output in ("json", "yaml"):
        report = ExplanationReport(
            node=node_of_report(loaded.node.config),
            kubelet_defects=loaded.node.config.parts.defects,
            pods=tuple(map(explained_pod, explanations)),
            skipped=loaded.skipped,
            warnings=loaded.warnings,
        )
        return (as_json if output == "json" else as_yaml)(report)
    columns = terminal_columns()
    return explanation_text(explanations, width=columns, wide=output == "wide")


def _explain_statuses(loaded: LoadedWorkloads, output: str | None, *, strict: bool) -> int | None:
    """Prints what the statuses of the pods prove; None unless all workloads are pods with a problem."""
    proofs = status_proofs(loaded.workloads)
    if proofs is None:
        return None
    print_input_notes(loaded, loaded.warnings, strict=strict)
    if output in ("json", "yaml"):
        report = StatusReport(
            pods=tuple(status_findings(pod, proof) for pod, proof in proofs),
            skipped=loaded.skipped,
            warnings=loaded.warnings,
        )
        print_text((as_json if output == "json" else as_yaml)(report))
    else:
        print_text(status_text(proofs, width=terminal_columns()))
    return NO


def _explanations(
    loaded: LoadedQuery, query: options.NodeQuery, selected: Collection[int], budget: int
) -> tuple[list[Explanation], Node]:
    """The explanations of the selected pods, each after all pods before it; and the node afterwards."""
    node, explanations, last = loaded.node, [], max(selected, default=0)
    for index, workload in enumerate(loaded.workloads):
        pod, refusal = workload.pod, workload.refusal
        if index in selected:
            origin = "" if workload.kind == "Pod" else f"{workload.kind} {workload.name}"
            explanation = (
                node.explain(pod, budget=budget) if refusal is None else node.explain_refusal(pod, refusal)
            )
            scheduler = (
                asked_scheduler(node, explanation.pod, workload, query)
                if refusal is None
                else SchedulerAnswer(claims=node.claims)
            )
            is_admitted = explanation.decision is Decision.ADMITTED
            explanation = replace(
                explanation,
                origin=origin,
                observed=_observed_of_claim(workload, node.claims),
                proof=_proof(workload),
                scheduler=scheduler.obstacles,
                devices=scheduler.devices if is_admitted else (),
                unaligned=unaligned(
                    node.config, node.claims, scheduler, explanation.pod, explanation.placement
                ),
            )
            explanations.append(explanation)
            if refusal is None and workload.kind != CLAIM:
                node = after_scheduling(node.after(explanation), node, scheduler, explanation.decision)
        elif index <= last and workload.kind != CLAIM:
            _, answer = admitted_entry(node, workload, query)
            node = node if answer is None else answer.node
    return explanations, node


def _observed_of_claim(workload: Workload, claims: "ClaimCluster | None") -> tuple[str, ...]:
    """What the resource claim has that the question is about; empty for pods."""
    if workload.kind != CLAIM or claims is None:
        return ()
    from nodewright.predict.explain.claim_question import claim_sentences  # noqa: PLC0415 - start-up time

    return tuple(claim_sentences(workload.name, workload.namespace, claims))


def _selected(workloads: Sequence[Workload], names: Iterable[str]) -> set[int]:
    """The indices of the workloads with these pods; of all workloads if no name is given.

    Errors: InputError for unknown names, and for more pods than are explained at a time.
    """
    selected: set[int] = set()
    faults = []
    for name in names:
        matches = {
            index
            for index, workload in enumerate(workloads)
            if name in (workload.pod.metadata.name, workload.pod.full_name)
        }
        if not matches:
            faults.append(Fault(source="--pod", value=name, rule="is not one of the pods in the manifests"))
        selected |= matches
    if faults:
        raise InputError(faults)
    selected = selected or set(range(len(workloads)))
    if len(selected) > _MAX_EXPLAINED:
        rule = f"explains at most {_MAX_EXPLAINED} pods at a time, not {len(selected)}: name some with --pod"
        raise InputError([Fault(source="-f", rule=rule)])
    return selected
