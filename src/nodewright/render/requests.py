"""What pods ask for, as text: each pod explained, one line a pod, or names."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodewright.core.requests import Asked, Derivation
from nodewright.model.resource_names import CPU, MEMORY, in_order
from nodewright.render.request_sentences import (
    POD_LEVEL,
    decision,
    default_lines,
    derivation_lines,
    fixed_score,
    joined,
    no_ceiling,
    qos_sentence,
    score_sentence,
)
from nodewright.render.tables import table

INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An object that makes pods, or is one, and what its pod asks for."""

    source: str
    """Where it was read, e.g. `pods.yaml, document 2`."""
    api_version: str
    kind: str
    name: str
    namespace: str
    replicas: int | None
    """How many pods it wants; None: that is not its own to say."""
    asked: Asked


def requests_text(entries: Sequence[Entry], memory_of: str, *, width: int = 80) -> str:
    """Each pod's requests and limits with their derivation, defaults, class and scores.

    `memory_of` says whose memory the scores are for.
    """
    return "\n".join("".join(_section(entry, memory_of, width)) for entry in entries)


def requests_wide(entries: Sequence[Entry]) -> str:
    """One line a pod."""
    sums = ("CPU", "CPU LIMIT", "MEMORY", "MEMORY LIMIT", "OTHER REQUESTS")
    headers = ("NAMESPACE", "NAME", "REPLICAS", "QOS", *sums, "OOM_SCORE_ADJ", "CLASS BECAUSE")
    return table(headers, map(_row, entries))


def requests_names(entries: Sequence[Entry]) -> str:
    """The objects that the pods come from, as kubectl names them."""
    return "".join(f"{_name(entry)}\n" for entry in entries)


def memory_text(memory_bytes: int) -> str:
    """The bytes, and about how much that is.

    >>> memory_text(25276502016)
    '25276502016 bytes (23.5Gi)'
    """
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if memory_bytes >= 1024**power:
            return f"{memory_bytes} bytes ({memory_bytes / 1024**power:.3g}{suffix})"
    return f"{memory_bytes} bytes"


def _section(entry: Entry, memory_of: str, width: int) -> Iterator[str]:
    asked = entry.asked
    yield from _wrapped(_heading(entry), "", width)
    body = _body(asked, memory_of, width - len(INDENT))
    yield from textwrap.indent("".join(body), INDENT).splitlines(keepends=True)


def _body(asked: Asked, memory_of: str, width: int) -> Iterator[str]:
    if asked.requests or asked.limits:
        yield _amounts(asked)
        yield "\n"
        yield from _derivations(asked, width)
    else:
        yield "asks for nothing\n"
    if asked.resized:
        names = joined([name or POD_LEVEL for name in asked.resized])
        yield from _wrapped(f"counted with the status, as a resize is in flight: {names}", "", width)
    if asked.defaults:
        yield "defaults filled in\n"
        for line in default_lines(asked.defaults):
            yield from _wrapped(line, INDENT, width)
    yield f"QoS class {asked.qos.qos_class}\n"
    for fact in asked.qos.because:
        yield from _wrapped(qos_sentence(fact), INDENT, width)
    yield from _scores(asked, memory_of, width)


def _heading(entry: Entry) -> str:
    replicas = f", {entry.replicas} replicas" if entry.replicas not in (None, 1) else ""
    template = "" if entry.kind == "Pod" else f", each pod{replicas}"
    return f"{entry.kind} {entry.namespace}/{entry.name}{template} ({entry.source})"


def _amounts(asked: Asked) -> str:
    requests, limits = _by_resource(asked.requests), _by_resource(asked.limits)
    return table(
        ("RESOURCE", "REQUEST", "LIMIT"),
        (
            (name, _amount(requests.get(name)), _amount(limits.get(name)))
            for name in sorted(requests.keys() | limits.keys(), key=in_order)
        ),
    )


def _derivations(asked: Asked, width: int) -> Iterator[str]:
    requests, limits = _by_resource(asked.requests), _by_resource(asked.limits)
    for name in sorted(requests.keys() | limits.keys(), key=in_order):
        request, limit = requests.get(name), limits.get(name)
        if request is not None and request == limit:
            yield from _derivation("request and limit", request, width)
        else:
            if request is not None:
                yield from _derivation("request", request, width)
            if limit is not None:
                yield from _derivation("limit", limit, width)
        if limit is not None and (missing := no_ceiling(limit)):
            yield from _wrapped(missing, INDENT, width)


def _derivation(side: str, derivation: Derivation, width: int) -> Iterator[str]:
    yield from _wrapped(
        f"{derivation.resource} {side} {derivation.amount}: {decision(derivation)}", "", width
    )
    for line in derivation_lines(derivation):
        yield from _wrapped(line, INDENT, width)


def _scores(asked: Asked, memory_of: str, width: int) -> Iterator[str]:
    if not asked.scores:
        return
    first = asked.scores[0]
    if why := fixed_score(first.because):
        yield from _wrapped(f"oom_score_adj {first.adj} for every container: {why}", "", width)
        return
    yield from _wrapped(f"oom_score_adj with {memory_text(asked.memory_capacity)}, {memory_of}", "", width)
    widest = max(len(score.container) for score in asked.scores)
    for score in asked.scores:
        start = f"{INDENT}{score.container:{widest}}   {score.adj:>4}   "
        yield from _wrapped(score_sentence(score), start, width)


def _row(entry: Entry) -> tuple[str, ...]:
    asked = entry.asked
    requests, limits = _by_resource(asked.requests), _by_resource(asked.limits)
    others = [f"{name}={each.amount}" for name, each in requests.items() if name not in {CPU, MEMORY}]
    return (
        entry.namespace,
        _name(entry),
        "-" if entry.replicas is None else str(entry.replicas),
        asked.qos.qos_class.value,
        _amount(requests.get(CPU)),
        _amount(limits.get(CPU)),
        _amount(requests.get(MEMORY)),
        _amount(limits.get(MEMORY)),
        ",".join(others) or "-",
        _short_scores(asked),
        qos_sentence(asked.qos.because[0]),
    )


def _short_scores(asked: Asked) -> str:
    found = {score.adj for score in asked.scores}
    if len(found) == 1:
        return str(found.pop())
    return ",".join(f"{score.container}={score.adj}" for score in asked.scores) or "-"


def _name(entry: Entry) -> str:
    group = entry.api_version.rpartition("/")[0]
    return f"{entry.kind.lower()}{f'.{group}' if group else ''}/{entry.name}"


def _by_resource(derivations: Sequence[Derivation]) -> dict[str, Derivation]:
    return {derivation.resource: derivation for derivation in derivations}


def _amount(derivation: Derivation | None) -> str:
    return "-" if derivation is None else str(derivation.amount)


def _wrapped(text: str, start: str, width: int) -> Iterator[str]:
    """The text in lines of at most that width; those after the first begin where the first one's text does."""
    deeper = " " * len(start) if start.strip() else f"{start}{INDENT}"
    lines = textwrap.wrap(
        text,
        max(width, len(deeper) + 20),
        initial_indent=start,
        subsequent_indent=deeper,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (f"{line.rstrip()}\n" for line in lines)
