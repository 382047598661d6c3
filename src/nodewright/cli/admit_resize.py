"""`nodewright admit --resize`: whether the node resizes each running pod."""

from msgspec.structs import replace

from nodewright.cli.node_query import LoadedQuery, print_report
from nodewright.cli.options import JournalOptions, NodeQuery
from nodewright.cli.output_files import node_document, open_journal
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES
from nodewright.engine.node.resize import ResizeOutcome
from nodewright.model.errors import Fault, InputError
from nodewright.predict.admit.resize_report import PodResizeReport, pod_resize, resize_text, resized_names
from nodewright.predict.node_report.report_parts import node_of_report, remaining_resources


def report_resizes(
    query: NodeQuery, loaded: LoadedQuery, journal: JournalOptions | None, output: str | None
) -> int:
    """Prints the outcome of each resize, in order, and returns the exit code.

    Errors: InputError for objects other than pods, and for pods that are not on the node.
    """
    faults = [
        Fault(
            source=workload.source, value=f"{workload.kind} {workload.name}", rule="only pods can be resized"
        )
        for workload in loaded.workloads
        if workload.kind != "Pod"
    ]
    if faults:
        raise InputError(faults)
    node, results = loaded.node, []
    with open_journal(journal, lambda: node_document(loaded.profile, query.kubelet_config)) as journal_file:
        for workload in loaded.workloads:
            result = node.resize(workload.pod)
            node = replace(node, state=result.after)
            results.append(result)
            if journal_file is not None:
                journal_file.add_resize(workload.pod, result.actions)
    if output == "name":
        text = resized_names(results)
    elif output in ("json", "yaml"):
        report = PodResizeReport(
            node=node_of_report(node.config),
            pods=tuple(map(pod_resize, results)),
            waiting=tuple(resize.desired for resize in node.state.pending_resizes.values()),
            resources=remaining_resources(node.state),
            skipped=loaded.skipped,
            warnings=loaded.warnings,
        )
        text = (as_json if output == "json" else as_yaml)(report)
    else:
        text = resize_text(results, node.state, wide=output == "wide")
    print_report(text, output, node.config)
    return YES if all(result.requested.outcome is ResizeOutcome.DONE for result in results) else NO
