"""`nodewright admit`: who gets in, who does not, and why."""

import click

from nodewright.cli import options
from nodewright.cli.app import NO, YES
from nodewright.cli.journal import journal, node_document
from nodewright.cli.opening import entry_of, opened, show
from nodewright.cli.resizing import resized
from nodewright.render.admission import admission_document, admission_text, admitted_names
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.replay import arrival_event, journal_event


@click.command("admit")
@options.question
@click.option(
    "--resize",
    is_flag=True,
    help="The pods run on the node already and are to have the resources of the manifests, without being made anew.",
)
@click.option(
    "--serve",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS:PORT]",
    help="Show the answers as a page in a browser, by a link that is printed; it follows the files until Ctrl-C. "
    "Default: any free port of 127.0.0.1.",
)
@options.journal
@options.output("json", "yaml", "wide", "name")
def command(question: options.Question, *, resize: bool, serve: str | None, output: str | None) -> int:
    """Say for each pod, in order, whether the node takes it: the kubelet's verdict, reason and message.

    Of an object that makes pods (Deployment, DaemonSet, Job, ...) one pod is judged. With --resize: whether the resize
    of each pod is Done, Deferred or Infeasible, and how it is carried out. Exit code 0 if all pods get in or are
    resized, 3 if any is not.
    """
    if serve is not None:
        if resize or output is not None or options.journal_path() is not None:
            raise click.UsageError("--serve is a page: it goes with neither --resize nor -o nor --journal")
        from nodewright.cli.admit_page import shown_as_page  # noqa: PLC0415 - answers in a terminal do without

        return shown_as_page(question, serve)
    found = opened(question)
    if resize:
        return resized(question, found, output)
    asked = found.node
    entries = []
    with journal(lambda: node_document(found.profile, question.kubelet_config), question.files) as written:
        for workload in found.workloads:
            answer = asked.admit(workload.pod)
            asked = answer.node
            entries.append(entry_of(answer, workload))
            if written is not None:
                written.add(journal_event(arrival_event(workload.pod), answer.actions))
    if output == "name":
        text = admitted_names(entries)
    elif output in ("json", "yaml"):
        document = admission_document(entries, asked.state, warnings=found.warnings, skipped=found.skipped)
        text = (as_json if output == "json" else as_yaml)(document)
    else:
        text = admission_text(entries, asked.state, wide=output == "wide")
    show(text, output, asked.config)
    return YES if all(entry.decision == "admitted" for entry in entries) else NO
