"""`nodewright admit --resize`: pods that run and are to have other resources."""

from dataclasses import replace

from nodewright.cli.app import NO, YES
from nodewright.cli.journal import journal, node_document
from nodewright.cli.opening import Opened, show
from nodewright.cli.options import Question
from nodewright.node.resizing import Outcome
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.replay import journal_event, resize_event
from nodewright.render.resize import resize_document, resize_text, resized_names
from nodewright.world.errors import Fault, InputError


def resized(question: Question, found: Opened, output: str | None) -> int:
    """Say what becomes of each resize, in order; the exit code.

    Errors: InputError for what is no pod, or no pod of the node.
    """
    faults = [
        Fault(source=one.source, value=f"{one.kind} {one.name}", rule="only pods can be resized")
        for one in found.workloads
        if one.kind != "Pod"
    ]
    if faults:
        raise InputError(faults)
    node, answers = found.node, []
    with journal(lambda: node_document(found.profile, question.kubelet_config), question.files) as written:
        for workload in found.workloads:
            answer = node.resize(workload.pod)
            node = replace(node, state=answer.after)
            answers.append(answer)
            if written is not None:
                written.add(journal_event(resize_event(workload.pod), answer.actions))
    if output == "name":
        text = resized_names(answers)
    elif output in ("json", "yaml"):
        document = resize_document(answers, node.state, warnings=found.warnings, skipped=found.skipped)
        text = (as_json if output == "json" else as_yaml)(document)
    else:
        text = resize_text(answers, node.state, wide=output == "wide")
    show(text, output, node.config)
    return YES if all(one.asked.outcome is Outcome.DONE for one in answers) else NO
