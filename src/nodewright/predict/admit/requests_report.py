"""The report of effective requests and limits of pods."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.formats.workloads import Workload
from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.request_sentences import (
    POD_LEVEL,
    containers_without_limit,
    deciding_text,
    default_lines,
    derivation_lines,
    fixed_score_sentence,
    joined,
    limit_range_lines,
    qos_sentence,
    score_sentence,
)
from nodewright.documents.output.text_layout import table, wrapped_text
from nodewright.engine.admission.limit_ranger import DefaultedByLimitRange
from nodewright.engine.core.requests.oom_adjust import OOMReason
from nodewright.engine.core.requests.qos_and_priority import QOSClass, QOSFact
from nodewright.engine.core.requests.resource_breakdown import (
    ContainerRole,
    PodResourceBreakdown,
    ResourceAddend,
    ResourceDerivation,
)
from nodewright.engine.core.requests.resource_defaults import AppliedDefault
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, readable_amount, resource_sort_key
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.releases.release_table import RELEASES_WITH_RULES
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node_report.report_parts import OpenQuestion, open_questions
from nodewright.predict.reported import reported


class ReportedAddend(Report, frozen=True, kw_only=True):
    """The contribution of one container or resource claim."""

    name: str
    role: ContainerRole | UnsetType = UNSET
    """Absent: a resource claim."""
    amount: Quantity


class ReportedMoment(Report, frozen=True, kw_only=True):
    """A phase of the pod's life and the resources that are in use then."""

    during: str | None
    """The init container that runs, or the sidecar that has just started; null: all long-running containers run."""
    amount: Quantity
    addends: tuple[ReportedAddend, ...]
    decides: bool


class ReportedDerivation(Report, frozen=True, kw_only=True):
    """The derivation of one amount: the greatest moment, plus claims; replaced by the pod level; plus overhead."""

    resource: str
    amount: Quantity
    moments: tuple[ReportedMoment, ...]
    claims: tuple[ReportedAddend, ...] | UnsetType = UNSET
    pod_level: Quantity | UnsetType = UNSET
    overhead: Quantity | UnsetType = UNSET
    silent: tuple[str, ...]
    """Containers without the resource."""


class RequestAndLimitDerivations(Report, frozen=True, kw_only=True):
    """The derivations of all effective amounts."""

    requests: tuple[ReportedDerivation, ...]
    limits: tuple[ReportedDerivation, ...]


class QOSSentence(Report, frozen=True, kw_only=True):
    """A fact that decides the QoS class."""

    merged: ClassVar = frozenset({"fact"})
    fact: QOSFact
    sentence: str


class OOMSentence(Report, frozen=True, kw_only=True):
    """The fact that decides an oom_score_adj."""

    merged: ClassVar = frozenset({"fact"})
    fact: OOMReason
    sentence: str


class ReportedContainer(Report, frozen=True, kw_only=True):
    """A container with its resources and its oom_score_adj."""

    name: str
    role: ContainerRole
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    oom_score_adj: int
    oom_score_because: OOMSentence


class FilledByLimitRange(Report, frozen=True, kw_only=True):
    """The defaults of a limit range for a container."""

    limit_range: str
    container: str
    init: bool
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


class ReportedRefusal(Report, frozen=True, kw_only=True):
    """The API server's refusal of a pod."""

    reason: str
    """`FailedCreate` for the pods of a workload, else the API server's status."""
    message: str


class RequestsItem(Report, frozen=True, kw_only=True):
    """The effective resources of a pod, or of the pods of an object."""

    kind: str
    name: str
    namespace: str
    source: str
    """File and document."""
    replicas: int | None
    """null: the object's kind has no replica count."""
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    derivation: RequestAndLimitDerivations
    resized: tuple[str, ...]
    """Containers (empty: the pod level) that count differently from their spec because of their status."""
    defaults: tuple[AppliedDefault, ...]
    filled_in: tuple[FilledByLimitRange, ...]
    """The defaults of limit ranges among the files."""
    refusal: ReportedRefusal | UnsetType = UNSET
    """Why the API server refuses the pod; absent: it does not."""
    applied: tuple[str, ...]
    """The objects that took part in the pod's creation, e.g. `LimitRange small`."""
    not_judged: tuple[OpenQuestion, ...]
    qos_class: QOSClass
    qos_because: tuple[QOSSentence, ...]
    containers: tuple[ReportedContainer, ...]


class RequestsReport(ReportDocument, frozen=True, kw_only=True):
    """The effective resources of pods: `nodewright requests`."""

    kind: Literal["RequestsReport"] = "RequestsReport"
    rules_of: str = RELEASES_WITH_RULES[-1]
    """The Kubernetes release whose rules were applied."""
    memory_capacity: int
    """The memory in bytes that the oom_score_adj assumes."""
    memory_capacity_of: str
    items: tuple[RequestsItem, ...]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


class RequestsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or an object that creates pods, with the effective resources of the pod."""

    workload: Workload
    pod_requests: PodResourceBreakdown


def requests_item(entry: RequestsEntry) -> RequestsItem:
    """The effective resources of a pod as a part of the report."""
    workload, breakdown = entry.workload, entry.pod_requests
    return reported(
        RequestsItem,
        workload,
        requests={derivation.resource: derivation.amount for derivation in breakdown.requests},
        limits={derivation.resource: derivation.amount for derivation in breakdown.limits},
        derivation=RequestAndLimitDerivations(
            requests=tuple(map(_reported_derivation, breakdown.requests)),
            limits=tuple(map(_reported_derivation, breakdown.limits)),
        ),
        resized=breakdown.resized_containers,
        defaults=breakdown.defaults,
        filled_in=tuple(
            reported(FilledByLimitRange, default, limit_range=limit_range.limit_range)
            for limit_range in workload.filled
            for default in limit_range.defaults
        ),
        refusal=UNSET if workload.refusal is None else reported(ReportedRefusal, workload.refusal.kubelet()),
        not_judged=open_questions(workload.not_judged),
        qos_class=breakdown.qos.qos_class,
        qos_because=tuple(
            QOSSentence(fact=fact, sentence=qos_sentence(fact)) for fact in breakdown.qos.because
        ),
        containers=tuple(_containers(breakdown)),
    )


def _reported_derivation(derivation: ResourceDerivation) -> ReportedDerivation:
    return reported(
        ReportedDerivation,
        derivation,
        moments=tuple(
            reported(
                ReportedMoment,
                moment,
                during=moment.during or None,
                addends=_addends(moment.addends),
                decides=index == derivation.greatest,
            )
            for index, moment in enumerate(derivation.moments)
        ),
        claims=_addends(derivation.claims) or UNSET,
        silent=tuple(addend.name for addend in derivation.unset),
    )


def _addends(addends: Sequence[ResourceAddend]) -> tuple[ReportedAddend, ...]:
    return tuple(reported(ReportedAddend, addend) for addend in addends)


def _containers(breakdown: PodResourceBreakdown) -> Iterator[ReportedContainer]:
    spec = breakdown.pod.spec
    init_roles = (
        ContainerRole.SIDECAR if each.is_sidecar else ContainerRole.INIT for each in spec.init_containers
    )
    containers = (
        *((container, ContainerRole.CONTAINER) for container in spec.containers),
        *zip(spec.init_containers, init_roles, strict=True),
        *((container, ContainerRole.EPHEMERAL) for container in spec.ephemeral_containers),
    )
    for (container, role), score in zip(containers, breakdown.oom_scores, strict=True):
        yield ReportedContainer(
            name=container.name,
            role=role,
            requests=container.resources.requests,
            limits=container.resources.limits,
            oom_score_adj=score.adj,
            oom_score_because=OOMSentence(fact=score.because, sentence=score_sentence(score)),
        )


INDENT = "  "


def requests_text(entries: Sequence[RequestsEntry], memory_of: str, *, width: int = 80) -> str:
    """Each pod's requests and limits with derivation, defaults, QoS class and OOM scores.

    `memory_of` names the node whose memory capacity the scores assume.
    """
    return "\n".join("".join(_section(entry, memory_of, width)) for entry in entries)


def requests_table(entries: Sequence[RequestsEntry]) -> str:
    """A table with one line for each pod, and the pods that the API server refuses."""
    headers = ("NAMESPACE", "NAME", "QOS", "CPU", "CPU LIMIT", "MEMORY", "MEMORY LIMIT", "OTHER REQUESTS")
    columns = (0, 1, 3, 4, 5, 6, 7, 8)
    rows = [_row(entry) for entry in entries]
    refused = [
        f"{_name(entry.workload)}: {refusal.kubelet().reason}: {refusal.sentence()}"
        for entry in entries
        if (refusal := entry.workload.refusal) is not None
    ]
    text = table(headers, [tuple(row[column] for column in columns) for row in rows]) + _footnote(rows)
    return f"{text}\n{printable_lines(refused)}" if refused else text


def requests_wide(entries: Sequence[RequestsEntry]) -> str:
    """A table with one line for each pod."""
    sums = ("CPU", "CPU LIMIT", "MEMORY", "MEMORY LIMIT", "OTHER REQUESTS")
    headers = ("NAMESPACE", "NAME", "REPLICAS", "QOS", *sums, "OOM_SCORE_ADJ", "QOS REASON")
    rows = [_row(entry) for entry in entries]
    return table(headers, rows) + _footnote(rows)


def _footnote(rows: Sequence[tuple[str, ...]]) -> str:
    is_partial = any(cell.endswith("*") for row in rows for cell in row)
    return "* only of some containers: another one has no limit (--explain)\n" if is_partial else ""


def requests_names(entries: Sequence[RequestsEntry]) -> str:
    """The objects that create the pods, as kubectl names them."""
    return printable_lines(_name(entry.workload) for entry in entries)


def _section(entry: RequestsEntry, memory_of: str, width: int) -> Iterator[str]:
    workload, breakdown = entry.workload, entry.pod_requests
    yield from _wrapped(_heading(workload), "", width)
    if workload.refusal is not None:
        yield from _wrapped(
            f"{workload.refusal.kubelet().reason}: {workload.refusal.sentence()}", INDENT, width
        )
    body = _body(breakdown, workload.filled, memory_of, width - len(INDENT))
    yield from textwrap.indent("".join(body), INDENT).splitlines(keepends=True)


def _body(
    breakdown: PodResourceBreakdown, filled: Sequence[DefaultedByLimitRange], memory_of: str, width: int
) -> Iterator[str]:
    if breakdown.requests or breakdown.limits:
        yield _amounts(breakdown)
        yield "\n"
        yield from _derivations(breakdown, width)
    else:
        yield "no requests and no limits\n"
    if breakdown.resized_containers:
        names = joined([name or POD_LEVEL for name in breakdown.resized_containers])
        yield from _wrapped(f"resize in progress, so the container status counts too: {names}", "", width)
    lines = [*default_lines(breakdown.defaults), *limit_range_lines(filled)]
    if lines:
        yield "defaults applied\n"
        for line in lines:
            yield from _wrapped(line, INDENT, width)
    yield printable_line(f"QoS class {breakdown.qos.qos_class}")
    for fact in breakdown.qos.because:
        yield from _wrapped(qos_sentence(fact), INDENT, width)
    yield from _scores(breakdown, memory_of, width)


def _heading(workload: Workload) -> str:
    replicas = f", {workload.replicas} replicas" if workload.replicas not in (None, 1) else ""
    template = "" if workload.kind == "Pod" else f", each pod{replicas}"
    return f"{workload.kind} {workload.namespace}/{workload.name}{template} ({workload.source})"


def _amounts(breakdown: PodResourceBreakdown) -> str:
    requests, limits = _by_resource(breakdown.requests), _by_resource(breakdown.limits)
    return table(
        ("RESOURCE", "REQUEST", "LIMIT"),
        (
            (name, _amount(requests.get(name)), _amount(limits.get(name)))
            for name in sorted(requests.keys() | limits.keys(), key=resource_sort_key)
        ),
    )


def _derivations(breakdown: PodResourceBreakdown, width: int) -> Iterator[str]:
    requests, limits = _by_resource(breakdown.requests), _by_resource(breakdown.limits)
    for name in sorted(requests.keys() | limits.keys(), key=resource_sort_key):
        request, limit = requests.get(name), limits.get(name)
        if request is not None and request == limit:
            yield from _derivation("request and limit", request, width)
        else:
            if request is not None:
                yield from _derivation("request", request, width)
            if limit is not None:
                yield from _derivation("limit", limit, width)
        if limit is not None and (missing := containers_without_limit(limit)):
            yield from _wrapped(missing, INDENT, width)


def _derivation(side: str, derivation: ResourceDerivation, width: int) -> Iterator[str]:
    yield from _wrapped(
        f"{derivation.resource} {side} {derivation.amount}: {deciding_text(derivation)}", "", width
    )
    for line in derivation_lines(derivation):
        yield from _wrapped(line, INDENT, width)


def _scores(breakdown: PodResourceBreakdown, memory_of: str, width: int) -> Iterator[str]:
    if not breakdown.oom_scores:
        return
    first = breakdown.oom_scores[0]
    if why := fixed_score_sentence(first.because):
        yield from _wrapped(f"oom_score_adj {first.adj} for every container: {why}", "", width)
        return
    yield from _wrapped(
        f"oom_score_adj with {readable_amount(MEMORY, breakdown.memory_capacity)}, {memory_of}", "", width
    )
    widest = max(len(score.container) for score in breakdown.oom_scores)
    for score in breakdown.oom_scores:
        start = f"{INDENT}{score.container:{widest}}   {score.adj:>4}   "
        yield from _wrapped(score_sentence(score), start, width)


def _row(entry: RequestsEntry) -> tuple[str, ...]:
    workload, breakdown = entry.workload, entry.pod_requests
    requests, limits = _by_resource(breakdown.requests), _by_resource(breakdown.limits)
    other_requests = [
        f"{name}={derivation.amount}" for name, derivation in requests.items() if name not in {CPU, MEMORY}
    ]
    return (
        workload.namespace,
        _name(workload),
        "-" if workload.replicas is None else str(workload.replicas),
        breakdown.qos.qos_class.value,
        _amount(requests.get(CPU)),
        _limit(limits.get(CPU), requests.get(CPU)),
        _amount(requests.get(MEMORY)),
        _limit(limits.get(MEMORY), requests.get(MEMORY)),
        ",".join(other_requests) or "-",
        _short_scores(breakdown),
        qos_sentence(breakdown.qos.because[0]),
    )


def _short_scores(breakdown: PodResourceBreakdown) -> str:
    scores = {score.adj for score in breakdown.oom_scores}
    if len(scores) == 1:
        return str(scores.pop())
    return ",".join(f"{score.container}={score.adj}" for score in breakdown.oom_scores) or "-"


def _name(workload: Workload) -> str:
    group = workload.api_version.rpartition("/")[0]
    return f"{workload.kind.lower()}{f'.{group}' if group else ''}/{workload.name}"


def _by_resource(derivations: Sequence[ResourceDerivation]) -> dict[str, ResourceDerivation]:
    return {derivation.resource: derivation for derivation in derivations}


def _amount(derivation: ResourceDerivation | None) -> str:
    return "-" if derivation is None else str(derivation.amount)


def _limit(limit: ResourceDerivation | None, request: ResourceDerivation | None) -> str:
    """The limit, with a star if it is less than the request, because a container has none."""
    is_partial = limit is not None and request is not None and limit.amount < request.amount
    return f"{_amount(limit)}{'*' if is_partial else ''}"


def _wrapped(text: str, start: str, width: int) -> Iterator[str]:
    return map(printable_line, wrapped_text(text, width, start))
