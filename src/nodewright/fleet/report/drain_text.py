"""The drain of nodes as text."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from nodewright.documents.output.text_layout import table, wrapped_text
from nodewright.fleet.report.drain_report import DrainedPod, DrainOutcome, DrainReport, NodeDrainReport
from nodewright.fleet.workload import duration_text
from nodewright.model.printable import counted, printable_lines

_MAX_WIDTH = 100
_MAX_CHANGES = 3
_NO_SHUTDOWN = "terminates no pods: without shutdownGracePeriod they end with the machine"
_OUTCOME_TEXTS = {
    DrainOutcome.BLOCKED: "not evicted",
    DrainOutcome.NO_PLACE: "no node for its replacement",
    DrainOutcome.REJECTED: "its replacement is rejected, again and again",
    DrainOutcome.NOT_REPLACED: "gone: no controller replaces it",
    DrainOutcome.UNDECIDED: "not known whether the kubelet admits its replacement",
}


def drain_text(report: DrainReport, *, columns: int) -> str:
    """The drains, one after the other, and what is assumed."""
    width = min(columns, _MAX_WIDTH)
    last = [
        f"kubectl waits for {drain.node}, and drains the next node only with --timeout"
        for drain in report.drains[:-1]
        if not drain.is_drained
    ]
    lines = [row for text in (*last, *report.assumed) for row in wrapped_text(text, width)]
    parts = [_node_text(drain, width) for drain in report.drains]
    return "\n".join([*parts, printable_lines(lines)] if lines else parts)


def _node_text(drain: NodeDrainReport, width: int) -> str:
    counts = Counter(pod.outcome for pod in drain.pods)
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in DrainOutcome if counts[outcome])
    head = wrapped_text(f"node/{drain.node}: {counted(len(drain.pods), 'pod')}; {outcomes or 'none'}", width)
    head += wrapped_text(drain.command, width, "  ")
    for message, pods in drain.refusals.items():
        head += wrapped_text(f"{message}: {', '.join(pods)}", width, "    ")
    notes = [line for pod in drain.pods for line in _pod_lines(pod, width)]
    for name in drain.preempted:
        notes += wrapped_text(f"{name}: preempted for a replacement, and no node for its own", width)
    parts = [
        printable_lines(head),
        _pods_table(drain, width) if drain.pods else "",
        printable_lines(notes),
        printable_lines(_shutdown_lines(drain, width)),
    ]
    return "\n".join(filter(None, parts))


def _pods_table(drain: NodeDrainReport, width: int) -> str:
    headers = ("POD", "ROUND", "OUTCOME", "REPLACEMENT", "OWNER")
    rows = [
        (
            pod.full_name,
            "-" if pod.code or not pod.round else str(pod.round),
            str(pod.outcome),
            _place(pod),
            pod.owner or "-",
        )
        for pod in drain.pods
    ]
    text = table(headers, rows)
    is_narrow = max(map(len, text.splitlines())) >= width
    return table(headers[:-1], [row[:-1] for row in rows]) if is_narrow else text


def _place(pod: DrainedPod) -> str:
    if pod.outcome is DrainOutcome.KEPT:
        return f"- ({pod.why[0]})"
    details = (("", pod.node), ("CPUs ", pod.cpus), ("NUMA ", pod.numa), ("devices ", pod.devices))
    return ", ".join(f"{name}{value}" for name, value in details if value) or "-"


def _pod_lines(pod: DrainedPod, width: int) -> Iterator[str]:
    if pod.outcome not in _OUTCOME_TEXTS:
        return
    by = f": PodDisruptionBudget {pod.budget}" if pod.outcome is DrainOutcome.BLOCKED else ""
    yield from wrapped_text(f"{pod.full_name}: {_OUTCOME_TEXTS[pod.outcome]}{by}", width)
    changes = pod.changes or ()
    texts = [f"- node/{change.node}: {change.text}" for change in changes[:_MAX_CHANGES]]
    if len(changes) > _MAX_CHANGES:
        texts.append(f"- {len(changes) - _MAX_CHANGES} more with -o json")
    if pod.changes == ():
        texts.append("no single change among those tried gives it one")
    for text in (*pod.why, *texts):
        yield from wrapped_text(text, width, "  ")


def _shutdown_lines(drain: NodeDrainReport, width: int) -> Iterator[str]:
    if not drain.shutdown_seconds:
        yield from wrapped_text(f"at shutdown the kubelet of {drain.node} {_NO_SHUTDOWN}", width)
        return
    yield f"at shutdown of {drain.node}, at most {duration_text(drain.shutdown_seconds)}:"
    in_order = sorted(drain.pods, key=lambda pod: pod.begins_by_seconds or 0)
    for begins_by, group in groupby(in_order, key=lambda pod: pod.begins_by_seconds or 0):
        pods = list(group)
        text = f"after {duration_text(begins_by)} at the latest: {counted(len(pods), 'pod')}"
        yield from wrapped_text(text, width, "  ")
        for pod in pods:
            if (pod.granted_seconds or 0) < pod.asked_seconds:
                granted = duration_text(pod.granted_seconds or 0)
                text = f"{pod.full_name} asks for {duration_text(pod.asked_seconds)} and gets {granted}"
                yield from wrapped_text(text, width, "    ")
