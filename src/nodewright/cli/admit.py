"""`nodewright admit`: whether the node admits each pod; with --resize, whether it resizes each running pod."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options, is_about_all_nodes, watch_option
from nodewright.cli.cluster.cluster_session import current_session
from nodewright.cli.node_query import LoadedQuery, admitted_entry, exit_code, load_query, print_report
from nodewright.cli.options import JournalOptions, NodeQuery
from nodewright.documents.files.process_tuning import rare_collections
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import print_workflow_commands
from nodewright.predict.admit.admission_report import (
    AdmissionReport,
    admission_commands,
    admission_text,
    admitted_names,
    pod_admission,
)
from nodewright.predict.node_report.report_parts import node_of_report, remaining_resources

if TYPE_CHECKING:
    from nodewright.predict.replay.scenario_journal import JournalFile


@click.command("admit")
@watch_option
@cluster_options
@options.node_query_options
@option("--resize", "Resize pods that already run on the node, in place, to the resources in the manifests.")
@option("--each", "Judge each pod alone on the node, beside the pods that the node has.")
@option(
    "--serve [ADDRESS:PORT]",
    "Serve the results as a page in a browser, at a link that is printed, and update it when the files change, "
    "until Ctrl-C. Default: any free port of 127.0.0.1.",
    is_flag=False,
    flag_value="",
)
@options.journal_option
@options.output_option("json", "yaml", "wide", "name", "github")
def command(
    query: NodeQuery,
    *,
    resize: bool,
    each: bool,
    serve: str | None,
    journal: JournalOptions | None,
    output: str | None,
) -> int:
    """Show whether the node admits each pod, in order: the kubelet's verdict, reason and message.

    With --node nodes: which nodes of the cluster admit each pod now, after which change, and never; so does `kubectl
    nodewright admit`, and --context or --kubeconfig, without --node.

    Of a workload object (Deployment, DaemonSet, Job, ...) one pod is evaluated. The pods fill the node in order; with
    --each, each is judged alone: which of the manifests fit the node at all. With --resize: whether the resize
    of each pod is Done, Deferred or Infeasible, and how it is carried out. A pod that the scheduler never binds to the
    node (taints, cordon, resources that the node does not offer) is unschedulable. Exit code 0 if all pods are admitted
    or resized, 3 if any is refused or undecided, 4 if all others are unschedulable.
    """
    if each and (resize or serve is not None or journal is not None):
        raise click.UsageError("--each cannot be combined with --resize, --serve or --journal")
    if serve is not None:
        if resize or output is not None or journal is not None:
            raise click.UsageError("--serve cannot be combined with --resize, -o or --journal")
        from nodewright.cli.browser_pages import serve_admission_page  # noqa: PLC0415 - needed only for a page

        return serve_admission_page(query, serve)
    if is_about_all_nodes(query.node, query.shape):
        if resize or each or journal is not None or output == "github":
            raise click.UsageError(
                "--resize, --each, --journal and -o github are about one node: name it with --node"
            )
        from nodewright.cli.cluster.cluster_answers import report_cluster_admission  # noqa: PLC0415 - start-up time

        return report_cluster_admission(current_session(), query, output)
    loaded = load_query(query, as_arrivals=not resize)
    if resize:
        from nodewright.cli.admit_resize import report_resizes  # noqa: PLC0415 - start-up time

        if output == "github":
            raise click.UsageError("-o github cannot be combined with --resize")
        return report_resizes(query, loaded, journal, output)
    return _report_node(query, loaded, journal, output, each=each)


@rare_collections()
def _report_node(
    query: NodeQuery, loaded: LoadedQuery, journal: JournalOptions | None, output: str | None, *, each: bool
) -> int:
    """Prints the decisions of one node about the pods, in order; ``each``: about each as if it were the only one."""
    node = loaded.node
    entries = []
    with nullcontext() if journal is None else _open_journal(journal, query, loaded) as journal_file:
        for workload in loaded.workloads:
            entry, result = admitted_entry(node, workload, query)
            entries.append(entry)
            if result is None or each:
                continue
            node = result.node
            if journal_file is not None:
                journal_file.add_arrival(workload.pod, result.actions)
    if output == "github":
        print_workflow_commands(admission_commands(entries))
        return exit_code(entry.verdict for entry in entries)
    if output == "name":
        text = admitted_names(entries)
    elif output in ("json", "yaml"):
        report = AdmissionReport(
            node=node_of_report(node.config),
            each_alone=each,
            pods=tuple(map(pod_admission, entries)),
            resources=remaining_resources(node.state),
            skipped=loaded.skipped,
            warnings=loaded.warnings,
        )
        text = (as_json if output == "json" else as_yaml)(report)
    else:
        text = admission_text(entries, node.state, wide=output == "wide", each=each)
    print_report(text, output, node.config)
    return exit_code(entry.verdict for entry in entries)


def _open_journal(
    journal: JournalOptions, query: NodeQuery, loaded: LoadedQuery
) -> "AbstractContextManager[JournalFile | None]":
    from nodewright.cli.output_files import node_document, open_journal  # noqa: PLC0415 - start-up time

    return open_journal(journal, lambda: node_document(loaded.profile, query.kubelet_config))
