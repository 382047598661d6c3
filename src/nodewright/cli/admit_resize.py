"""`nodewright admit --resize`: whether the node resizes each running pod."""

from nodewright.cli.node_query import LoadedQuery, print_report
from nodewright.cli.options import JournalOptions, NodeQuery
from nodewright.cli.output_files import node_document, open_journal
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_message
from nodewright.engine.node.resize import ResizeOutcome
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.resize_report import PodResizeReport, pod_resize, resize_text, resized_names
from nodewright.predict.admit.resize_requests import resize_within_quotas
from nodewright.predict.node_report.report_parts import node_of_report, remaining_resources


def report_resizes(
    query: NodeQuery, loaded: LoadedQuery, journal: JournalOptions | None, output: str | None
) -> int:
    """Prints the outcome of each resize, in order, and returns the exit code.

    Errors: InputError for objects other than pods, and for pods that are not on the node.
    """
    requested, notes = _requested_pods(loaded)
    node, quotas, results = loaded.node, loaded.read.quotas, []
    with open_journal(journal, lambda: node_document(loaded.profile, query.kubelet_config)) as journal_file:
        for pod in requested:
            result, node, quotas = resize_within_quotas(node, pod, quotas)
            results.append(result)
            if journal_file is not None:
                journal_file.add_resize(pod, result.actions)
    if output == "name":
        text = resized_names(results)
    elif output in ("json", "yaml"):
        report = PodResizeReport(
            node=node_of_report(node.config),
            pods=tuple(map(pod_resize, results)),
            waiting=tuple(resize.desired for resize in node.state.pending_resizes.values()),
            resources=remaining_resources(node.state),
            skipped=loaded.skipped,
            warnings=(*loaded.warnings, *notes),
        )
        text = (as_json if output == "json" else as_yaml)(report)
    else:
        text = resize_text(results, node.state, wide=output == "wide")
    print_report(text, output, node.config)
    return YES if all(result.requested.outcome is ResizeOutcome.DONE for result in results) else NO


def _requested_pods(loaded: LoadedQuery) -> tuple[list[Pod], list[str]]:
    """The pods of the manifests and those for which resources are recommended, and what is not applied of these.

    Errors: InputError for objects other than pods, unless recommendations are about theirs.
    """
    recommendations = loaded.read.recommendations
    faults = [
        Fault(
            source=workload.source, value=f"{workload.kind} {workload.name}", rule="only pods can be resized"
        )
        for workload in loaded.workloads
        if workload.kind != "Pod" and not recommendations
    ]
    if faults:
        raise InputError(faults)
    pods, notes = [workload.pod for workload in loaded.workloads if workload.kind == "Pod"], list[str]()
    if recommendations:
        from nodewright.documents.formats.recommendations import recommended_resizes  # noqa: PLC0415 - start-up time

        for recommendation in recommendations:
            resizes = recommended_resizes(recommendation, loaded.node.pods)
            pods += resizes
            notes += recommendation.notes(resizes)
    for note in notes:
        print_message(f"note: {note}")
    return pods, notes
