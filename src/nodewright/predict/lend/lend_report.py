"""The report of `nodewright lend`: a row for each predictor and resource, the advice, and the page with its plots."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.html_page import (
    PLOT_STYLE,
    PageOrigin,
    PlotCurve,
    PlotGrid,
    PlotLevel,
    PlotWindow,
    curve_legend,
    html_page,
    quarter_ticks,
    round_time_ticks,
)
from nodewright.documents.output.html_page import plot as plot_svg
from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, readable_amount
from nodewright.model.values.duration import Duration
from nodewright.predict.lend.lend_replay import AT_ONCE, LendAdvice, ReplayedLoans
from nodewright.predict.lend.node_history import NodeHistory
from nodewright.predict.node import Node
from nodewright.predict.node_report.report_parts import NodeOfReport, node_of_report

MODEL = (
    "A loan holds from one sample to the next; usage changes evenly in between; AT ONCE assumes the opposite, and is what an advice avoids. Borrowers take all of it in pieces of 1 CPU or "
    "1Gi; the youngest end first. Late is what exceeds free memory (unrequested, and the eviction threshold), or unrequested CPU, "
    "before a loop observes it; terminating borrowers takes time in addition."
)


class LateReport(Report, frozen=True, kw_only=True):
    """Returns that were late under a loop: every 10 s (`kubelet`), 50 ms (`agent`), or if usage rises `at-once`."""

    loop: str
    count: int
    evicted: int
    largest: int


class LoansReport(Report, frozen=True, kw_only=True):
    """What a predictor would have lent. Units: thousandths of a CPU, or bytes."""

    predictor: str
    margin_percent: int
    mean: int
    hours: float
    """CPU-hours, or GiB-hours."""
    returns: int
    largest_return: int
    largest_need_per_second: int
    term_seconds: tuple[int, ...]
    """Uninterrupted time of borrowers: 10th, 50th and 90th percentile."""
    evicted: int
    late: tuple[LateReport, ...]
    lent: tuple[int, ...] | UnsetType = UNSET
    """At each sample."""


class AdvisedLoans(Report, frozen=True, kw_only=True):
    """The advice from the first half of the history, and its test by the second half."""

    first_half: LoansReport
    second_half: LoansReport


class NUMAShare(Report, frozen=True, kw_only=True):
    """The part of each loan that lies on a NUMA node, if loans spread evenly over shared CPUs, or memory that is not pinned."""

    numa: int
    permille: int


class ResourceLoansReport(Report, frozen=True, kw_only=True):
    """The loans of one resource. Units: thousandths of a CPU, or bytes."""

    resource: str
    allocatable: int
    requested: int
    used: tuple[int, ...]
    times_seconds: tuple[float, ...]
    predictors: tuple[LoansReport, ...]
    numa: tuple[NUMAShare, ...]
    advice: AdvisedLoans | UnsetType | None = UNSET
    """null: every predictor that lends is late."""


class LendReport(ReportDocument, frozen=True, kw_only=True):
    """What a node could lend of its requests: `nodewright lend`."""

    kind: Literal["LendReport"] = "LendReport"
    node: NodeOfReport
    interval_seconds: float
    resources: tuple[ResourceLoansReport, ...]
    model: str
    left_out: tuple[str, ...]


class Lending(msgspec.Struct, frozen=True, kw_only=True):
    """A history with its loans, and the advice by resource; None: not requested."""

    node: Node
    history: NodeHistory
    loans: Mapping[str, tuple[ReplayedLoans, ...]]
    advice: Mapping[str, LendAdvice | None] | None


def lend_report(lending: Lending) -> LendReport:
    """The document of the loans."""
    return LendReport(
        node=node_of_report(lending.node.config),
        interval_seconds=lending.history.interval_ns / 10**9,
        resources=tuple(_resource(lending, resource) for resource in lending.loans),
        model=MODEL,
        left_out=lending.history.notes,
    )


def _resource(lending: Lending, resource: str) -> ResourceLoansReport:
    samples = lending.history.resources[resource]
    advice: AdvisedLoans | UnsetType | None = UNSET
    if lending.advice is not None:
        chosen = lending.advice[resource]
        advice = None
        if chosen is not None:
            advice = AdvisedLoans(
                first_half=_loans(chosen.first, resource), second_half=_loans(chosen.second, resource)
            )
    return ResourceLoansReport(
        resource=resource,
        allocatable=samples.capacity,
        requested=samples.requested,
        used=tuple(samples.used),
        times_seconds=tuple(at_ns / 10**9 for at_ns in samples.times_ns),
        predictors=tuple(
            msgspec.structs.replace(_loans(loans, resource), lent=loans.lent)
            for loans in lending.loans[resource]
        ),
        numa=numa_shares(lending.node, resource),
        advice=advice,
    )


def numa_shares(node: Node, resource: str) -> tuple[NUMAShare, ...]:
    """The shares of the machine's NUMA nodes, in thousandths rounded down."""
    numa_nodes, shared = node.config.parts.machine.topology, node.state.held.cpu.default
    memory = node.state.held.memory.machine  # Empty without the Static policy, which pins.
    if resource == CPU:
        threads = [[thread for core in each.cores for thread in core.thread_ids] for each in numa_nodes]
        # Without a CPU manager there is no shared pool: borrowers run on all CPUs.
        sizes = [sum(not shared or thread in shared for thread in own) for own in threads]
    else:
        pinned = [
            each.node_id in memory and memory[each.node_id].tables[MEMORY].reserved for each in numa_nodes
        ]
        sizes = [max(each.memory - held, 0) for each, held in zip(numa_nodes, pinned, strict=True)]
    total = max(sum(sizes), 1)
    return tuple(
        NUMAShare(numa=each.node_id, permille=1000 * size // total)
        for each, size in zip(numa_nodes, sizes, strict=True)
    )


def _loans(loans: ReplayedLoans, resource: str) -> LoansReport:
    return LoansReport(
        predictor=loans.predictor,
        margin_percent=loans.margin_percent,
        mean=loans.mean,
        hours=round(_hours(loans, resource), 2),
        returns=loans.return_count,
        largest_return=loans.largest_return,
        largest_need_per_second=loans.largest_need_per_s,
        term_seconds=loans.term_seconds,
        evicted=loans.evicted,
        late=tuple(
            LateReport(loop=each.loop, count=each.count, evicted=each.evicted, largest=each.largest)
            for each in loans.late
        ),
    )


def _hours(loans: ReplayedLoans, resource: str) -> float:
    return loans.amount_seconds / 3600 / (1000 if resource == CPU else 1 << 30)


# ---------------------------------------------------------------- text


def lend_text(lending: Lending, *, wide: bool = False) -> str:
    """The usage, one table, the advice, and what was left out."""
    headers = [
        "RESOURCE",
        "PREDICTOR",
        "MARGIN",
        "LENT",
        "HOURS",
        "RETURNS",
        "FASTEST",
        "P50 TERM",
        "ENDED",
        "LATE 10s",
        "LATE 50ms",
        "AT ONCE",
    ]
    if wide:
        headers += [
            "LARGEST LATE 10s",
            "LARGEST LATE 50ms",
            "LARGEST AT ONCE",
            "ENDED 10s",
            "ENDED 50ms",
            "TERMS P10, P90",
            "NUMA NODES",
        ]
    rows = [
        _row(loans, resource, lending, wide=wide)
        for resource, each in lending.loans.items()
        for loans in each
    ]
    text = "".join(_usage_sentence(lending, resource) for resource in lending.loans)
    text += f"\n{table(headers, rows)}"
    for resource, advice in (lending.advice or {}).items():
        text += f"\n{advice_sentence(resource, advice)}\n"
    if lending.history.notes:
        text += "\nLeft out, or unknown:\n" + "".join(f"  {note}\n" for note in lending.history.notes)
    return f"{text}\n{MODEL}\n" if wide else text


def _usage_sentence(lending: Lending, resource: str) -> str:
    samples = lending.history.resources[resource]
    mean, highest = sum(samples.used) // len(samples.used), max(samples.used)
    requested, capacity, mean_text, highest_text = (
        readable_amount(resource, amount) for amount in (samples.requested, samples.capacity, mean, highest)
    )
    return (
        f"{resource}: the pods request {requested} of {capacity}, and use {mean_text} on average, "
        f"{highest_text} at most.\n"
    )


def _row(loans: ReplayedLoans, resource: str, lending: Lending, *, wide: bool) -> list[str]:
    terms = [str(Duration(seconds * 10**9)) for seconds in loans.term_seconds]
    cells = [
        resource,
        loans.predictor,
        f"{loans.margin_percent}%",
        readable_amount(resource, loans.mean),
        f"{_hours(loans, resource):.1f}",
        str(loans.return_count),
        f"{readable_amount(resource, loans.largest_need_per_s)}/s" if loans.largest_need_per_s else "-",
        terms[1] if terms else "-",
        str(loans.evicted),
        *(str(late.count) for late in loans.late),
    ]
    if wide:
        cells += [readable_amount(resource, late.largest) if late.count else "-" for late in loans.late]
        cells += [str(late.evicted) for late in loans.late if late.loop != AT_ONCE]
        cells.append(f"{terms[0]}, {terms[2]}" if terms else "-")
        cells.append(
            " ".join(
                f"{share.numa}:{readable_amount(resource, loans.mean * share.permille // 1000)}"
                for share in numa_shares(lending.node, resource)
            )
        )
    return cells


def advice_sentence(resource: str, advice: LendAdvice | None) -> str:
    """The advice and its test."""
    if advice is None:
        return f"{resource}: lend nothing; every predictor that lends returns late in the first half of the history."
    first, second = advice.first, advice.second
    late = next(each for each in second.late if each.loop == AT_ONCE).count
    return (
        f"{resource}: {first.predictor} with a margin of {first.margin_percent}% lends most without a late return in the first half, "
        f"{readable_amount(resource, first.mean)} on average; in the second half {readable_amount(resource, second.mean)}, "
        f"{late or 'none'} late."
    )


# ---------------------------------------------------------------- page


def lend_page(lending: Lending, origin: PageOrigin | None = None) -> str:
    """Usage, requests and what each predictor reserves, as one HTML document without scripts."""
    sections = [section for resource in lending.loans for section in _plots(lending, resource)]
    sections.append(f'<pre>{escape(lend_text(lending))}</pre><p class="soft">{escape(MODEL)}</p>')
    return html_page(
        title=f"{lending.node.name}: requests that may be lent",
        heading=lending.node.name,
        header=['<div class="soft">What could be lent of the requests</div>'],
        sections=sections,
        style=PLOT_STYLE,
        footer="" if origin is None else origin.footer(),
    )


def _plots(lending: Lending, resource: str) -> Iterator[str]:
    samples = lending.history.resources[resource]
    start_ns, requested = samples.times_ns[0], samples.requested
    times_ns = [at_ns - start_ns for at_ns in samples.times_ns]
    lenders = [loans for loans in lending.loans[resource] if loans.amount_seconds]
    shown = sorted(lenders, key=lambda loans: -loans.amount_seconds)[:2]
    columns = [("used", samples.used)] + [
        (f"reserved by {loans.predictor}", [requested - lent for lent in loans.lent]) for loans in shown
    ]
    curves = [
        PlotCurve(name, f"c{index}", _thinned(times_ns, amounts))
        for index, (name, amounts) in enumerate(columns)
    ]
    highest = max(requested, *samples.used, 1)
    window = PlotWindow(0, max(times_ns[-1], 1), highest * 21 // 20)
    level = PlotLevel(f"requested {readable_amount(resource, requested)}", "", requested)
    grid = PlotGrid(
        round_time_ticks(window, lambda at_ns: str(Duration(at_ns))),
        quarter_ticks(window, lambda row: readable_amount(resource, window.max_amount * row // 4)),
    )
    yield f"<h2>{escape(resource)}</h2>"
    yield f'<div class="scroll">{plot_svg(f"{resource}: requested, used and reserved", window, grid, curves, [level])}</div>'
    yield curve_legend([(curve.name, curve.style) for curve in curves])


def _thinned(times_ns: Sequence[int], amounts: Sequence[int], most: int = 1000) -> list[tuple[int, int]]:
    """At most so many points: the greatest of each part."""
    step = -(-len(amounts) // most)
    return [(times_ns[at], max(amounts[at : at + step])) for at in range(0, len(amounts), step)]
