"""A history of usage for the pods of a node: at common times, with unknown usage where samples are missing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import sub

import msgspec

from nodewright.documents.profiles.usage_history import SeriesKey, UsageHistory, UsageSeries, left_out_text
from nodewright.engine.core.lending.node_loans import NodeSamples
from nodewright.engine.core.lending.predictors import UsageSamples
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.printable import counted
from nodewright.predict.node import Node

MAX_TIMES = 600_000


class _Times:
    """The times of series: most series of a node have the same."""

    def __init__(self, times_ns: Sequence[int]) -> None:
        self.times_ns = times_ns

    @cached_property
    def steps(self) -> Mapping[int, int]:
        """How often the times advance by how much."""
        return Counter(map(sub, self.times_ns[1:], self.times_ns))


_Series = tuple[_Times, Sequence[int]]


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of a node's pods, by resource; a resource without samples is absent."""

    interval_ns: int
    resources: Mapping[str, NodeSamples]
    notes: tuple[str, ...]
    """What was left out, and what counts as unknown."""


def node_history(node: Node, history: UsageHistory) -> NodeHistory:
    """The history for the node's pods at times of the most frequent interval; a sample counts for two intervals.

    Errors: InputError if no pod of the node has two samples, or if there are too many times.
    """
    names = {pod.full_name for pod in node.pods}
    left_out = Counter(history.left_out)
    resources, interval_ns = {}, 0
    for resource, points in ((CPU, history.cpu), (MEMORY, history.memory)):
        capacity = node.allocatable[resource]
        most = capacity.milli_value() if resource == CPU else capacity.value()
        known, times = dict[SeriesKey, _Series](), _Times(())
        for key, series in points.items():
            if key[0] not in names:
                left_out[f"{key[0]}: not on the node"] += len(series.times_ns)
                continue
            if key[1] and (key[0], "") in points:
                left_out[f"{key[0]}: {resource} of a container beside that of the pod"] += len(
                    series.times_ns
                )
                continue
            # Twice the node is beyond any inaccuracy of a rate.
            possible = _up_to(2 * most, series)
            if possible.times_ns != times.times_ns:
                times = _Times(possible.times_ns)
            known[key] = (times, possible.amounts)
            if excess := len(series.times_ns) - len(possible.times_ns):
                left_out[f"{key[0]}: {resource} beyond what the node has, of another unit"] += excess
        steps = Counter[int]()
        for times, _ in known.values():
            steps.update(times.steps)
        if steps:
            interval_ns = max(steps, key=lambda step: (steps[step], -step))
            resources[resource] = _samples(node, resource, known, interval_ns, most, left_out)
    if not resources:
        rule = f"has no two samples of a pod of the node{left_out_text(left_out)}"
        raise InputError([Fault(source="--usage", rule=rule)])
    notes = tuple(f"{text} ({counted(count, 'sample')})" for text, count in sorted(left_out.items()))
    return NodeHistory(interval_ns=interval_ns, resources=resources, notes=notes)


def _samples(
    node: Node,
    resource: str,
    points: Mapping[SeriesKey, _Series],
    interval_ns: int,
    capacity: int,
    left_out: Counter[str],
) -> NodeSamples:
    first = min(times.times_ns[0] for times, amounts in points.values() if amounts) // interval_ns
    last = max(times.times_ns[-1] for times, amounts in points.values() if amounts) // interval_ns
    if last - first >= MAX_TIMES:
        rule = (
            f"spans {last - first} intervals of {interval_ns // 10**9} s; at most {MAX_TIMES} are supported"
        )
        raise InputError([Fault(source="--usage", rule=rule)])
    times_ns = tuple(number * interval_ns for number in range(first, last + 1))
    pods = []
    for pod in node.pods:
        own = [series for (name, _), series in points.items() if name == pod.full_name]
        if resource == CPU and own and node.state.held.cpu.holds(pod.uid):
            reason = f"{pod.full_name}: holds exclusive CPUs, which are not lent"
            left_out[reason] += sum(len(amounts) for _, amounts in own)
            own = []
        columns = [_column(series, interval_ns, first, len(times_ns)) for series in own]
        usage = _usage(columns) if columns else [None] * len(times_ns)
        if missing := usage.count(None):
            left_out[f"{pod.full_name}: {resource} unknown, counted as the request"] += missing
        pods.append(
            UsageSamples(
                times_ns=times_ns,
                usage=usage,
                request=scheduler_usage(pod).get(resource, 0),
                capacity=capacity,
                is_memory=resource == MEMORY,
            )
        )
    return NodeSamples(times_ns=times_ns, pods=tuple(pods), capacity=capacity, is_memory=resource == MEMORY)


def _up_to(most: int, series: UsageSeries) -> UsageSeries:
    """The samples that are at most so much."""
    if max(series.amounts, default=0) <= most:
        return series
    kept = [at for at, amount in enumerate(series.amounts) if amount <= most]
    return UsageSeries([series.times_ns[at] for at in kept], [series.amounts[at] for at in kept])


def _column(series: _Series, interval_ns: int, first: int, count: int) -> Sequence[int | None]:
    """The greatest sample of each interval, or that of the interval before; otherwise None."""
    times, amounts = series
    if len(amounts) == count and set(times.steps) == {interval_ns}:
        return amounts
    numbers = [at_ns // interval_ns for at_ns in times.times_ns]
    cells = dict(zip(numbers, amounts, strict=True))
    if len(cells) < len(numbers):
        for number, amount in zip(numbers, amounts, strict=True):
            cells[number] = max(cells[number], amount)
    column = list(map(cells.get, range(first, first + count)))
    return [column[at - 1] if amount is None and at else amount for at, amount in enumerate(column)]


def _usage(columns: Sequence[Sequence[int | None]]) -> Sequence[int | None]:
    """The sums over a pod's containers; None where one is unknown."""
    if len(columns) == 1:
        return columns[0]
    rows = zip(*columns, strict=True)
    return [None if None in amounts else sum(amount or 0 for amount in amounts) for amounts in rows]
