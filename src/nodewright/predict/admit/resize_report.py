"""Outcomes of pod resizes as a table, as a report and as names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.requests.effective_resources import pod_limits, pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.resize import RESIZABLE
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.resize import ResizeAttempt, ResizeOutcome, resize_condition
from nodewright.engine.node.resize_report import ResizePlan, ResizeReport
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.kubernetes.resource_names import MEMORY, file_value_text, readable_amount
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.reasons.reason import Reason, sentence
from nodewright.model.values.quantity import ZERO, Quantity
from nodewright.predict.explain.suggestion_text import (
    ReportedSuggestion,
    reported_suggestion,
    suggestion_text,
)
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    ReferencedPod,
    RemainingResources,
    referenced_pod,
    remaining_text,
)
from nodewright.predict.reported import reported


def resize_text(answers: Sequence[ResizeReport], after: NodeState, *, wide: bool = False) -> str:
    """The outcomes as a table, followed by the details and the node's remaining resources."""
    parts = [_table(answers, wide=wide), *(printable_lines(_lines(answer)) for answer in answers)]
    if after.pending_resizes:
        names = ", ".join(resize.desired.full_name for resize in after.pending_resizes.values())
        parts.append(printable_line(f"Still pending, in the kubelet's retry order: {names}"))
    parts.append(remaining_text(after))
    return "\n".join(parts)


def _table(answers: Sequence[ResizeReport], *, wide: bool) -> str:
    headers = ["POD", "OUTCOME", "CPU", "MEMORY", "RESTARTS"]
    if wide:
        headers += ["QOS", "PRIORITY", "MESSAGE"]
    rows = []
    for answer in answers:
        attempt = answer.requested
        restarted = ",".join(restart.container for restart in answer.plan.restarts) if answer.plan else ""
        row = [attempt.pod.full_name, attempt.outcome.value]
        row += [*(_change(attempt, resource) for resource in RESIZABLE), restarted or "-"]
        if wide:
            priority = attempt.pod.spec.priority
            row += [qos_class(attempt.before).value, "-" if priority is None else str(priority)]
            row.append(resize_condition(attempt).message or "-")
        rows.append(row)
    return table(headers, rows)


def _change(attempt: ResizeAttempt, resource: str) -> str:
    """Requests before and after, each followed by a slash and the limit where it differs."""
    before, after = _amounts(attempt.before, resource), _amounts(attempt.pod, resource)
    return before if before == after else f"{before} -> {after}"


def _amounts(pod: Pod, resource: str) -> str:
    request, limit = _of(pod_requests(pod), resource), _of(pod_limits(pod), resource)
    return request if request == limit else f"{request}/{limit}"


def _of(amounts: ResourceList, resource: str) -> str:
    amount = amounts.get(resource, ZERO)
    return "-" if amount.is_zero() else str(amount)


def _lines(answer: ResizeReport) -> Iterator[str]:
    attempt = answer.requested
    yield f"{attempt.pod.full_name}: {attempt.outcome.value}{_meaning(attempt)}"
    condition = resize_condition(attempt)
    if condition.message:
        source = "API server" if attempt.outcome is ResizeOutcome.FORBIDDEN else "kubelet"
        yield f"  {source}: {condition.message}"
    yield from (f"  - {sentence(reason)}" for reason in attempt.because)
    for victim in attempt.victims.victims if attempt.victims else ():
        yield f"  - {victim.pod.full_name} ({qos_class(victim.pod).value}) is preempted to make room"
    if answer.plan is not None:
        yield from _plan_lines(answer.plan)
    if answer.suggestions:
        yield "  What would be applied immediately (each tried on this node):"
        yield from (f"    - {suggestion_text(suggestion)}" for suggestion in answer.suggestions)
    for retried in answer.others:
        if retried.outcome is not ResizeOutcome.DEFERRED:
            yield f"  {retried.pod.full_name}, pending before: {retried.outcome.value}"


def resize_sentences(answer: ResizeReport) -> tuple[str, ...]:
    """The outcome of a resize that is attempted now, why, and what would be applied at once."""
    attempt = answer.requested
    tried = [
        f"would be applied immediately (tried): {suggestion_text(suggestion)}"
        for suggestion in answer.suggestions
    ]
    head = f"the resize now: {attempt.outcome.value}{_meaning(attempt)}"
    return (head, *map(sentence, attempt.because), *tried)


def _meaning(attempt: ResizeAttempt) -> str:
    if attempt.outcome is ResizeOutcome.DONE and attempt.changes:
        return ""
    return _MEANINGS[attempt.outcome]


_MEANINGS = {
    ResizeOutcome.DONE: " (the pod already has these resources)",
    ResizeOutcome.DEFERRED: " (the kubelet retries on changes and every three minutes)",
    ResizeOutcome.INFEASIBLE: " (impossible on this node with this pod)",
    ResizeOutcome.FORBIDDEN: " (rejected by the API server, so the kubelet does not see it)",
    ResizeOutcome.UNDECIDED: "",
}


def _file_value(file: str, text: str) -> str:
    return file_value_text(text) if file.startswith("memory.") else text


def _plan_lines(plan: ResizePlan) -> Iterator[str]:
    steps = [
        f"container {restart.container} is stopped, as its resizePolicy for {' and '.join(restart.resources)} requires"
        for restart in plan.restarts
    ]
    if plan.checks:
        limits = " and ".join(
            f"{readable_amount(MEMORY, check.limit_bytes)} by {f'container {check.container}' if check.container else 'the pod'}"
            for check in plan.checks
        )
        steps.append(
            f"the kubelet checks that less memory than {limits} is in use; otherwise it writes nothing, sets "
            "the condition PodResizeInProgress (reason Error) and retries"
        )
    for write in plan.writes:
        cgroup = f"container {write.container}" if write.container else "pod cgroup"
        steps.append(
            f"{cgroup}: {write.file} {_file_value(write.file, write.was or 'unset')} -> {_file_value(write.file, write.now)}"
        )
    steps += [f"container {restart.container} is started" for restart in plan.restarts]
    yield from (f"  {number}. {text}" for number, text in enumerate(steps, 1))


class ResizableResources(Report, frozen=True, kw_only=True):
    """CPU and memory of a pod."""

    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


class ResizeAnswer(Inlined, frozen=True, kw_only=True):
    """The outcome of one resize with all the evidence."""

    pod: ReferencedPod
    outcome: ResizeOutcome
    changes: bool
    """Whether the resources differ from those that the pod has."""
    reason: str | UnsetType = UNSET
    """The kubelet's reason, or the API server's for a forbidden resize."""
    message: str | UnsetType = UNSET
    before: ResizableResources
    after: ResizableResources
    why: tuple[str, ...]
    because: tuple[Reason, ...]
    preempted: tuple[Pod, ...]


class RestartForResize(Report, frozen=True, kw_only=True):
    """A container that restarts for a resize."""

    container: str
    resources: tuple[str, ...]
    """The resources whose resizePolicy requires it."""


class ResizeWrite(Report, frozen=True, kw_only=True):
    """A value that the kubelet writes to a cgroup file."""

    container: str | None
    """null: the file belongs to the pod."""
    path: str
    file: str
    was: str | None
    now: str


class MemoryUseCheck(Report, frozen=True, kw_only=True):
    """A limit that the memory in use has to fit before the kubelet lowers it."""

    container: str | None
    """null: the pod."""
    limit_bytes: int


class ResizeSteps(Inlined, frozen=True, kw_only=True):
    """How a resize is carried out."""

    restarts: tuple[RestartForResize, ...]
    writes: tuple[ResizeWrite, ...]
    """In order."""
    checks: tuple[MemoryUseCheck, ...]


class PodResize(Report, frozen=True, kw_only=True):
    """The outcome of a requested resize, how it is carried out, and what it changes for other pods."""

    answer: ResizeAnswer
    qos_class: QOSClass
    steps: ResizeSteps | UnsetType = UNSET
    """Absent: nothing is carried out."""
    suggestions: tuple[ReportedSuggestion, ...]
    others: tuple[ResizeAnswer, ...]
    """Pending resizes that the kubelet tried again."""


class PodResizeReport(ReportDocument, frozen=True, kw_only=True):
    """Whether a node resizes each running pod, and its resources afterwards: `nodewright admit --resize`."""

    kind: Literal["ResizeReport"] = "ResizeReport"
    node: NodeOfReport
    pods: tuple[PodResize, ...]
    waiting: tuple[Pod, ...]
    """Pods with pending resizes, in the kubelet's retry order."""
    resources: RemainingResources
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def resize_answer(attempt: ResizeAttempt) -> ResizeAnswer:
    """The outcome of one resize with all the evidence."""
    condition = resize_condition(attempt)
    return reported(
        ResizeAnswer,
        attempt,
        pod=referenced_pod(attempt.pod),
        reason=condition.reason or UNSET,
        message=condition.message if condition.reason else UNSET,
        before=_resizable_resources(attempt.before),
        after=_resizable_resources(attempt.pod),
        why=tuple(map(sentence, attempt.because)),
        preempted=tuple(victim.pod for victim in (attempt.victims.victims if attempt.victims else ())),
    )


def _resizable_resources(pod: Pod) -> ResizableResources:
    requests, limits = pod_requests(pod), pod_limits(pod)
    return ResizableResources(
        requests={name: requests[name] for name in RESIZABLE if name in requests},
        limits={name: limits[name] for name in RESIZABLE if name in limits},
    )


def pod_resize(answer: ResizeReport) -> PodResize:
    """The outcome of a requested resize, how it is carried out, and what it changes for other pods."""
    return PodResize(
        answer=resize_answer(answer.requested),
        qos_class=qos_class(answer.requested.before),
        steps=UNSET if answer.plan is None else _resize_steps(answer.plan),
        suggestions=tuple(map(reported_suggestion, answer.suggestions)),
        others=tuple(map(resize_answer, answer.others)),
    )


def _resize_steps(plan: ResizePlan) -> ResizeSteps:
    return ResizeSteps(
        restarts=tuple(reported(RestartForResize, restart) for restart in plan.restarts),
        writes=tuple(
            reported(ResizeWrite, write, container=write.container or None, was=write.was or None)
            for write in plan.writes
        ),
        checks=tuple(
            reported(MemoryUseCheck, check, container=check.container or None) for check in plan.checks
        ),
    )


def resized_names(answers: Sequence[ResizeReport]) -> str:
    """The pods whose resize is applied, one line each, as kubectl names them."""
    return printable_lines(
        f"pod/{answer.requested.pod.metadata.name}"
        for answer in answers
        if answer.requested.outcome is ResizeOutcome.DONE
    )
