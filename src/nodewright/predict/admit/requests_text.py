"""Effective requests and limits of pods as explanations, as a table and as names."""

import textwrap
from collections.abc import Iterator, Sequence

import msgspec

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
from nodewright.documents.output.text_layout import table
from nodewright.engine.admission.limit_ranger import DefaultedByLimitRange
from nodewright.engine.core.requests.resource_breakdown import (
    PodResourceBreakdown,
    ResourceDerivation,
)
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, resource_sort_key
from nodewright.model.printable import printable, printable_line, printable_lines
from nodewright.model.reasons.pod_creation import APIServerRefusal
from nodewright.model.reasons.reason import NotJudged

INDENT = "  "


class RequestsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or an object that creates pods, with the effective resources of the pod."""

    source: str
    """File and document, e.g. `pods.yaml, document 2`."""
    api_version: str
    kind: str
    name: str
    namespace: str
    replicas: int | None
    """The desired number of pods; None: the object's kind has no replica count."""
    pod_requests: PodResourceBreakdown
    filled: tuple[DefaultedByLimitRange, ...] = ()
    """The defaults of limit ranges."""
    refusal: APIServerRefusal | None = None
    """Why there is no such pod."""
    applied: tuple[str, ...] = ()
    """The objects that took part in the pod's creation."""
    not_judged: tuple[NotJudged, ...] = ()


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
        f"{_name(entry)}: {entry.refusal.kubelet().reason}: {entry.refusal.sentence()}"
        for entry in entries
        if entry.refusal is not None
    ]
    text = table(headers, [tuple(row[column] for column in columns) for row in rows])
    return f"{text}\n{printable_lines(refused)}" if refused else text


def requests_wide(entries: Sequence[RequestsEntry]) -> str:
    """A table with one line for each pod."""
    sums = ("CPU", "CPU LIMIT", "MEMORY", "MEMORY LIMIT", "OTHER REQUESTS")
    headers = ("NAMESPACE", "NAME", "REPLICAS", "QOS", *sums, "OOM_SCORE_ADJ", "QOS REASON")
    return table(headers, map(_row, entries))


def requests_names(entries: Sequence[RequestsEntry]) -> str:
    """The objects that create the pods, as kubectl names them."""
    return printable_lines(_name(entry) for entry in entries)


def memory_text(memory_bytes: int) -> str:
    """The bytes, exact and rounded to a readable unit.

    >>> memory_text(25276502016)
    '25276502016 bytes (23.5Gi)'
    """
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if memory_bytes >= 1024**power:
            return f"{memory_bytes} bytes ({memory_bytes / 1024**power:.3g}{suffix})"
    return f"{memory_bytes} bytes"


def _section(entry: RequestsEntry, memory_of: str, width: int) -> Iterator[str]:
    breakdown = entry.pod_requests
    yield from _wrapped(_heading(entry), "", width)
    if entry.refusal is not None:
        yield from _wrapped(f"{entry.refusal.kubelet().reason}: {entry.refusal.sentence()}", INDENT, width)
    body = _body(breakdown, entry.filled, memory_of, width - len(INDENT))
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


def _heading(entry: RequestsEntry) -> str:
    replicas = f", {entry.replicas} replicas" if entry.replicas not in (None, 1) else ""
    template = "" if entry.kind == "Pod" else f", each pod{replicas}"
    return f"{entry.kind} {entry.namespace}/{entry.name}{template} ({entry.source})"


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
        f"oom_score_adj with {memory_text(breakdown.memory_capacity)}, {memory_of}", "", width
    )
    widest = max(len(score.container) for score in breakdown.oom_scores)
    for score in breakdown.oom_scores:
        start = f"{INDENT}{score.container:{widest}}   {score.adj:>4}   "
        yield from _wrapped(score_sentence(score), start, width)


def _row(entry: RequestsEntry) -> tuple[str, ...]:
    breakdown = entry.pod_requests
    requests, limits = _by_resource(breakdown.requests), _by_resource(breakdown.limits)
    other_requests = [
        f"{name}={derivation.amount}" for name, derivation in requests.items() if name not in {CPU, MEMORY}
    ]
    return (
        entry.namespace,
        _name(entry),
        "-" if entry.replicas is None else str(entry.replicas),
        breakdown.qos.qos_class.value,
        _amount(requests.get(CPU)),
        _amount(limits.get(CPU)),
        _amount(requests.get(MEMORY)),
        _amount(limits.get(MEMORY)),
        ",".join(other_requests) or "-",
        _short_scores(breakdown),
        qos_sentence(breakdown.qos.because[0]),
    )


def _short_scores(breakdown: PodResourceBreakdown) -> str:
    scores = {score.adj for score in breakdown.oom_scores}
    if len(scores) == 1:
        return str(scores.pop())
    return ",".join(f"{score.container}={score.adj}" for score in breakdown.oom_scores) or "-"


def _name(entry: RequestsEntry) -> str:
    group = entry.api_version.rpartition("/")[0]
    return f"{entry.kind.lower()}{f'.{group}' if group else ''}/{entry.name}"


def _by_resource(derivations: Sequence[ResourceDerivation]) -> dict[str, ResourceDerivation]:
    return {derivation.resource: derivation for derivation in derivations}


def _amount(derivation: ResourceDerivation | None) -> str:
    return "-" if derivation is None else str(derivation.amount)


def _wrapped(text: str, start: str, width: int) -> Iterator[str]:
    """The text wrapped to the width; later lines align with the text of the first."""
    deeper = " " * len(start) if start.strip() else f"{start}{INDENT}"
    lines = textwrap.wrap(
        printable(text),
        max(width, len(deeper) + 20),
        initial_indent=start,
        subsequent_indent=deeper,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (printable_line(line.rstrip()) for line in lines)
