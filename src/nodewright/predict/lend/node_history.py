"""A history of usage for the pods of a node: at common times, with unknown usage where samples are missing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import sub

import msgspec

from nodewright.documents.profiles.usage_history import SeriesKey, UsageHistory, UsageSeries
from nodewright.engine.core.lending.node_loans import NodeSamples
from nodewright.engine.core.lending.predictors import UsageSamples
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.printable import counted
from nodewright.predict.node import Node

MAX_TIMES = 600_000


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
        known: dict[SeriesKey, UsageSeries] = {}
        for key, series in points.items():
            if key[0] not in names:
                left_out[f"{key[0]}: not on the node"] += len(series.times_ns)
                continue
            # Twice the node is beyond any inaccuracy of a rate.
            known[key] = _up_to(2 * most, series)
            if excess := len(series.times_ns) - len(known[key].times_ns):
                left_out[f"{key[0]}: {resource} beyond what the node has, of another unit"] += excess
        steps = Counter[int]()
        for series in known.values():
            steps.update(map(sub, series.times_ns[1:], series.times_ns))
        if steps:
            interval_ns = max(steps, key=lambda step: (steps[step], -step))
            resources[resource] = _samples(node, resource, known, interval_ns, most, left_out)
    if not resources:
        raise InputError([Fault(source="--usage", rule="has no two samples of a pod of the node")])
    notes = tuple(f"{text} ({counted(count, 'sample')})" for text, count in sorted(left_out.items()))
    return NodeHistory(interval_ns=interval_ns, resources=resources, notes=notes)


def _samples(
    node: Node,
    resource: str,
    points: Mapping[SeriesKey, UsageSeries],
    interval_ns: int,
    capacity: int,
    left_out: Counter[str],
) -> NodeSamples:
    cells = {key: _cells(series, interval_ns) for key, series in points.items()}
    known = [each for each in cells.values() if each]
    first, last = min(min(each) for each in known), max(max(each) for each in known)
    if last - first >= MAX_TIMES:
        rule = (
            f"spans {last - first} intervals of {interval_ns // 10**9} s; at most {MAX_TIMES} are supported"
        )
        raise InputError([Fault(source="--usage", rule=rule)])
    times_ns = [number * interval_ns for number in range(first, last + 1)]
    pods = []
    for pod in node.pods:
        own = [cells[key] for key in cells if key[0] == pod.full_name]
        if resource == CPU and own and node.state.held.cpu.holds(pod.uid):
            left_out[f"{pod.full_name}: holds exclusive CPUs, which are not lent"] += sum(map(len, own))
            own = []
        usage = _usage(own, first, len(times_ns))
        if missing := usage.count(None):
            left_out[f"{pod.full_name}: {resource} unknown, counted as the request"] += missing
        request = scheduler_usage(pod).get(resource, 0)
        pods.append(
            UsageSamples(
                times_ns=times_ns,
                usage=usage,
                request=request,
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


def _cells(series: UsageSeries, interval_ns: int) -> dict[int, int]:
    """The greatest sample of each interval."""
    numbers = [at_ns // interval_ns for at_ns in series.times_ns]
    cells = dict(zip(numbers, series.amounts, strict=True))
    if len(cells) < len(numbers):
        for number, amount in zip(numbers, series.amounts, strict=True):
            cells[number] = max(cells[number], amount)
    return cells


def _usage(containers: Sequence[Mapping[int, int]], first: int, count: int) -> list[int | None]:
    """The sums over a pod's containers; None where one is unknown now and in the interval before."""
    columns = []
    for cells in containers:
        column = list(map(cells.get, range(first, first + count)))
        if None in column:
            column = [
                column[index - 1] if amount is None and index else amount
                for index, amount in enumerate(column)
            ]
        columns.append(column)
    if not columns:
        return [None] * count
    if len(columns) == 1:
        return columns[0]
    return [
        None if None in amounts else sum(amount or 0 for amount in amounts)
        for amounts in zip(*columns, strict=True)
    ]
