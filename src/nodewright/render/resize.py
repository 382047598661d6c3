"""What becomes of resizes, as a table, as a document and as names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from nodewright.core.requests import pod_limits, pod_requests, qos_class
from nodewright.core.resize import RESIZABLE
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.resize_reasons import ResizeForbidden
from nodewright.model.resource_names import MEMORY
from nodewright.node.resize_answer import ResizeAnswer
from nodewright.node.resize_plan import ResizePlan
from nodewright.node.resizing import Outcome, Resize
from nodewright.node.state import NodeState
from nodewright.render.admission import remaining_document, remaining_text, report_head
from nodewright.render.amounts import readable
from nodewright.render.documents import fact_document, plain
from nodewright.render.messages import Message, message
from nodewright.render.resize_messages import DEFERRED, api_error
from nodewright.render.sentences import sentence
from nodewright.render.suggestions import suggestion_text
from nodewright.render.tables import table
from nodewright.values.quantity import ZERO


def resize_condition(one: Resize) -> Message:
    """Reason and message of the pod's condition `PodResizePending`, or of the API server's refusal; empty: neither.

    Follows: v1.36, pkg/kubelet/status/status_manager.go, SetPodResizePendingCondition: whatever reason a handler
        has, the condition says `Deferred`.
    """
    match one.outcome:
        case Outcome.DEFERRED:
            return Message(DEFERRED, message(one.because[0]).message)
        case Outcome.INFEASIBLE:
            return message(one.because[0])
        case Outcome.FORBIDDEN:
            reason = one.because[0]
            assert isinstance(reason, ResizeForbidden)
            return Message(message(reason).reason, api_error(reason, one.pod.metadata.name))
        case Outcome.DONE | Outcome.UNDECIDED:
            return Message("", "")
        case _:
            assert_never(one.outcome)


def resize_text(answers: Sequence[ResizeAnswer], after: NodeState, *, wide: bool = False) -> str:
    """The answers as a table, what is behind each below it, and what remains of the node."""
    parts = [_table(answers, wide=wide), *map(_explained, answers)]
    if after.resizing:
        names = ", ".join(one.desired.full_name for one in after.resizing.values())
        parts.append(f"Still waiting, in the order in which the kubelet tries them: {names}\n")
    parts.append(remaining_text(after))
    return "\n".join(parts)


def _table(answers: Sequence[ResizeAnswer], *, wide: bool) -> str:
    headers = ["POD", "OUTCOME", "CPU", "MEMORY", "RESTARTS"]
    if wide:
        headers += ["QOS", "PRIORITY", "MESSAGE"]
    rows = []
    for one in answers:
        asked = one.asked
        restarted = ",".join(each.container for each in one.plan.restarts) if one.plan else ""
        row = [asked.pod.full_name, asked.outcome.value]
        row += [*(_change(asked, resource) for resource in RESIZABLE), restarted or "-"]
        if wide:
            priority = asked.pod.spec.priority
            row += [qos_class(asked.before).value, "-" if priority is None else str(priority)]
            row.append(resize_condition(asked).message or "-")
        rows.append(row)
    return table(headers, rows)


def _change(one: Resize, resource: str) -> str:
    """Requests (and limits behind a slash, where they are others) before and after."""
    before, after = _amounts(one.before, resource), _amounts(one.pod, resource)
    return before if before == after else f"{before} -> {after}"


def _amounts(pod: Pod, resource: str) -> str:
    request, limit = _of(pod_requests(pod), resource), _of(pod_limits(pod), resource)
    return request if request == limit else f"{request}/{limit}"


def _of(amounts: ResourceList, resource: str) -> str:
    amount = amounts.get(resource, ZERO)
    return "-" if amount.is_zero() else str(amount)


def _explained(answer: ResizeAnswer) -> str:
    return "".join(f"{line}\n" for line in _lines(answer))


def _lines(answer: ResizeAnswer) -> Iterator[str]:
    asked = answer.asked
    yield f"{asked.pod.full_name}: {asked.outcome.value}{_meaning(asked)}"
    said = resize_condition(asked)
    if said.message:
        whose = "API server" if asked.outcome is Outcome.FORBIDDEN else "kubelet"
        yield f"  {whose}: {said.message}"
    yield from (f"  - {sentence(reason)}" for reason in asked.because)
    for victim in asked.victims.victims if asked.victims else ():
        yield f"  - {victim.pod.full_name} ({qos_class(victim.pod).value}) is preempted to make room"
    if answer.plan is not None:
        yield from _plan_lines(answer.plan)
    if answer.suggestions:
        yield "  What would be done at once (each tried on this node):"
        yield from (f"    - {suggestion_text(one)}" for one in answer.suggestions)
    for one in answer.others:
        if one.outcome is not Outcome.DEFERRED:
            yield f"  {one.pod.full_name}, which waited: {one.outcome.value}"


def _meaning(asked: Resize) -> str:
    match asked.outcome:
        case Outcome.DONE:
            return "" if asked.changes else " (it has these resources already)"
        case Outcome.DEFERRED:
            return " (not now; the kubelet tries again when something changes)"
        case Outcome.INFEASIBLE:
            return " (never, as node and pod are)"
        case Outcome.FORBIDDEN:
            return " (the kubelet never hears of it)"
        case Outcome.UNDECIDED:
            return ""


def _plan_lines(plan: ResizePlan) -> Iterator[str]:
    steps = [
        f"container {one.container} ends: its resizePolicy for {' and '.join(one.resources)} says so"
        for one in plan.restarts
    ]
    if plan.checks:
        limits = " and ".join(
            f"{readable(MEMORY, one.limit_bytes)} by {f'container {one.container}' if one.container else 'the pod'}"
            for one in plan.checks
        )
        steps.append(
            f"the kubelet looks whether less memory than {limits} is in use: if not, it writes nothing, says so "
            "in the condition PodResizeInProgress (reason Error), and tries again"
        )
    for write in plan.writes:
        whose = f"container {write.container}" if write.container else "the pod's group"
        steps.append(f"{whose}: {write.file} {write.was or 'unset'} -> {write.now}")
    steps += [f"container {one.container} starts again" for one in plan.restarts]
    yield from (f"  {number}. {text}" for number, text in enumerate(steps, 1))


def resize_document(
    answers: Sequence[ResizeAnswer],
    after: NodeState,
    *,
    warnings: Sequence[str] = (),
    skipped: Mapping[str, int],
) -> dict[str, Any]:
    """The answers as one document with all the evidence; units as in `admission_document`."""
    return {
        **report_head("ResizeReport", after),
        "pods": [_answer_document(one) for one in answers],
        "waiting": [plain(one.desired) for one in after.resizing.values()],
        **remaining_document(after),
        "skipped": dict(skipped),
        "warnings": list(warnings),
    }


def outcome_document(one: Resize) -> dict[str, Any]:
    """What became of one resize, with all the evidence."""
    document: dict[str, Any] = {**plain(one.pod), "outcome": one.outcome.value, "changes": one.changes}
    said = resize_condition(one)
    if said.reason:
        document["reason"], document["message"] = said
    document["before"] = _resources_document(one.before)
    document["after"] = _resources_document(one.pod)
    document["why"] = [sentence(reason) for reason in one.because]
    document["because"] = [fact_document(reason) for reason in one.because]
    document["preempted"] = [plain(each.pod) for each in (one.victims.victims if one.victims else ())]
    return document


def _resources_document(pod: Pod) -> dict[str, Any]:
    return {
        field: {name: str(amounts[name]) for name in RESIZABLE if name in amounts}
        for field, amounts in (("requests", pod_requests(pod)), ("limits", pod_limits(pod)))
    }


def _answer_document(answer: ResizeAnswer) -> dict[str, Any]:
    document = {**outcome_document(answer.asked), "qosClass": qos_class(answer.asked.before).value}
    if answer.plan is not None:
        document["restarts"] = [
            {"container": one.container, "resources": list(one.resources)} for one in answer.plan.restarts
        ]
        document["writes"] = [
            {
                "container": one.container or None,
                "path": one.path,
                "file": one.file,
                "was": one.was or None,
                "now": one.now,
            }
            for one in answer.plan.writes
        ]
        document["checks"] = [
            {"container": one.container or None, "limitBytes": one.limit_bytes} for one in answer.plan.checks
        ]
    document["suggestions"] = [
        {"kind": one.kind, "text": suggestion_text(one), "change": fact_document(one.change)}
        for one in answer.suggestions
    ]
    document["others"] = [outcome_document(one) for one in answer.others]
    return document


def resized_names(answers: Sequence[ResizeAnswer]) -> str:
    """The pods whose resize is done, a line each, as kubectl names them."""
    return "".join(
        f"pod/{one.asked.pod.metadata.name}\n" for one in answers if one.asked.outcome is Outcome.DONE
    )
