"""Reads histories of usage: tables (CSV), `query_range` answers of Prometheus, and summaries of a kubelet, one after another.

What cannot be used is left out and named; no number is made from it.
"""

import csv
import io
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from nodewright.documents.formats.decode import decode, decoding_fault
from nodewright.documents.formats.documents import InputFile, decode_text, parse_documents, read_file
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import Quantity

CPU_COUNTER = "container_cpu_usage_seconds_total"
WORKING_SET = "container_memory_working_set_bytes"
SECOND_NS = 10**9
MAX_BYTES = 256 << 20
_LATEST_S = 1 << 33
_COLUMNS = ("time", "pod", "container", "cpu", "memory", "rss")
_UNITLESS_BYTES = 1 << 20
_MAX_CELLS = 1 << 16

SeriesKey = tuple[str, str]
"""Namespace and name of a pod, and the name of a container; empty: the pod as a whole."""


class UsageSeries(msgspec.Struct):
    """The samples of one container, or of a pod as a whole, in order of time.

    Units: thousandths of a CPU, or bytes; times in nanoseconds since 1970 or since the start of the history.
    """

    times_ns: list[int] = []
    amounts: list[int] = []


class UsageHistory:
    """The series of all files, and what was left out of them."""

    def __init__(self) -> None:
        self.cpu: defaultdict[SeriesKey, UsageSeries] = defaultdict(UsageSeries)
        self.memory: defaultdict[SeriesKey, UsageSeries] = defaultdict(UsageSeries)
        self.left_out: Counter[str] = Counter()
        """Number of samples by reason."""

    def add(self, points: dict[SeriesKey, UsageSeries], key: SeriesKey, at_ns: int, amount: int) -> None:
        """Adds a sample; one that is not later than the last one of its series is left out."""
        series = points[key]
        if series.times_ns and at_ns <= series.times_ns[-1]:
            self.left_out[f"{_name(key)}: time does not advance"] += 1
        else:
            series.times_ns.append(at_ns)
            series.amounts.append(amount)

    def add_counter(self, key: SeriesKey, values: Sequence[tuple[int, float]]) -> None:
        """Adds the rates of a counter of CPU seconds; the time in which it starts again is left out."""
        for (start_ns, before), (at_ns, after) in itertools.pairwise(values):
            if after < before:
                self.left_out[f"{_name(key)}: the CPU counter restarts"] += 1
            elif at_ns > start_ns:
                self.add(
                    self.cpu, key, at_ns, round((after - before) * 1000 * SECOND_NS / (at_ns - start_ns))
                )
            else:
                self.left_out[f"{_name(key)}: time does not advance"] += 1


def _name(key: SeriesKey) -> str:
    return "/".join(filter(None, key))


def load_usage_history(paths: Sequence[str]) -> UsageHistory:
    """The history in the files, each a table (`.csv`), Prometheus' JSON or summaries.

    Errors: InputError with all faults of a file.
    """
    history, counters = UsageHistory(), dict[SeriesKey, list[tuple[int, float]]]()
    for path in paths:
        file = read_file(path, max_bytes=MAX_BYTES)
        if file.source.endswith(".csv"):
            _add_table(history, file)
            continue
        for document in parse_documents(file.content, file.source, max_bytes=MAX_BYTES):
            value = document.value
            if isinstance(value, dict) and isinstance(value.get("data"), dict):
                _add_matrix(history, value["data"], file.source)
            elif isinstance(value, dict) and "pods" in value:
                _add_summary(history, value, counters, file.source)
            else:
                rule = (
                    "expected a .csv, an answer of query_range (`data.result`), or a summary (`node`, `pods`)"
                )
                raise InputError([Fault(source=file.source, rule=rule)])
    for key, values in counters.items():
        history.add_counter(key, values)
    if not history.cpu and not history.memory:
        raise InputError([Fault(source=", ".join(paths), rule="has no sample of cpu or memory")])
    return history


# ---------------------------------------------------------------- tables


def _add_table(history: UsageHistory, file: InputFile) -> None:
    text = decode_text(file.content, file.source).removeprefix("\ufeff")
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    faults: list[Fault] = []
    try:
        names = tuple(name.strip() for name in next(rows, ()))
        if not {"time", "pod"} <= set(names) <= set(_COLUMNS) or len(set(names)) != len(names):
            rule = f"the first line must name time, pod and some of {', '.join(_COLUMNS[2:])}, each once"
            raise InputError([Fault(source=f"{file.source}:1", value=", ".join(names), rule=rule)])
        table = _Table(history, names, text, file.source)
        for row in rows:
            if len(row) == len(names):
                table.add(row, rows.line_num, faults)
            elif row:
                rule = "has not as many cells as the first line"
                faults.append(Fault(source=f"{file.source}:{rows.line_num}", rule=rule))
    except csv.Error as error:
        faults.append(Fault(source=f"{file.source}:{rows.line_num}", rule=f"not valid CSV: {error}"))
    if faults:
        raise InputError(faults)


class _Table:
    """A table that is being read; equal cells are parsed once."""

    def __init__(self, history: UsageHistory, names: Sequence[str], text: str, source: str) -> None:
        self._history, self._text, self._source = history, text, source
        self._time, self._pod = names.index("time"), names.index("pod")
        self._container = names.index("container") if "container" in names else None
        self._amounts = [
            (name, names.index(name), points, parsed)
            for name, points, parsed in (
                ("cpu", history.cpu, _thousandths),
                ("memory", history.memory, _bytes),
            )
            if name in names
        ]

    def add(self, row: Sequence[str], line: int, faults: list[Fault]) -> None:
        """Adds the amounts of a row, or what is wrong with it."""
        place = f"{self._source}:{line}"
        try:
            at_ns = _moment_ns(row[self._time])
        except ValueError as error:
            faults.append(Fault(source=place, path="time", value=row[self._time], rule=str(error)))
            return
        key = _key(row[self._pod], "" if self._container is None else row[self._container])
        for name, column, points, parsed in self._amounts:
            text = row[column]
            try:
                amount = parsed(text)
            except ValueError as error:
                faults.append(Fault(source=place, path=name, value=text, rule=str(error)))
                continue
            if amount is None:
                continue
            if (
                name == "memory"
                and 0 < amount < _UNITLESS_BYTES
                and text.strip().isdigit()
                and self._has_units
            ):
                self._history.left_out[
                    f"{_name(key)}: memory {text} without a unit among amounts with one"
                ] += 1
            else:
                self._history.add(points, key, at_ns, amount)

    @cached_property
    def _has_units(self) -> bool:
        """Whether an amount of memory in the table has a unit."""
        rows = csv.reader(io.StringIO(self._text, newline=""))
        next(rows)
        column = next(column for name, column, _, _ in self._amounts if name == "memory")
        cells = (row[column].strip() for row in rows if len(row) > column)
        return any(cell and not cell.isdigit() for cell in cells)


@lru_cache(_MAX_CELLS)
def _thousandths(text: str) -> int | None:
    """Thousandths of a CPU; None: empty. Errors: ValueError."""
    return _amount(text, Quantity.milli_value)


@lru_cache(_MAX_CELLS)
def _bytes(text: str) -> int | None:
    """Bytes; None: empty. Errors: ValueError."""
    return _amount(text, Quantity.value)


def _amount(text: str, unit: Callable[[Quantity], int]) -> int | None:
    if not text.strip():
        return None
    quantity = Quantity.parse(text.strip())
    if not quantity.is_int64:
        raise ValueError("must have at most 18 digits")
    amount = unit(quantity)
    if amount < 0:
        raise ValueError("must be 0 or more")
    return amount


@lru_cache(_MAX_CELLS)
def _key(pod: str, container: str) -> SeriesKey:
    return _full_name(pod.strip()), container.strip()


def _full_name(pod: str) -> str:
    return pod if "/" in pod else f"default/{pod}"


@lru_cache(_MAX_CELLS)
def _moment_ns(text: str) -> int:
    """The time in seconds or as a timestamp. Errors: ValueError."""
    rule = "must be seconds or a timestamp such as 2026-01-31T12:00:00Z"
    try:
        if "T" in text:
            return Instant.parse(text).nanoseconds
        seconds = float(text)
    except (InstantError, ValueError):
        raise ValueError(rule) from None
    if not 0 <= seconds < _LATEST_S:
        raise ValueError(rule)
    return round(seconds * SECOND_NS)


# ---------------------------------------------------------------- Prometheus


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    values: tuple[tuple[float, str], ...] = ()


class _Matrix(msgspec.Struct, frozen=True, rename="camel"):
    result: tuple[_Series, ...] = ()
    result_type: str = ""


def _add_matrix(history: UsageHistory, data: Mapping[str, Any], source: str) -> None:
    """Adds the series of containers; those of whole cgroups (`container=""`) and of sandboxes are left out."""
    try:
        matrix = msgspec.convert(data, _Matrix)
    except msgspec.ValidationError as error:
        raise InputError([Fault(source=source, path="data", rule=str(error))]) from None
    for index, series in enumerate(matrix.result):
        labels = series.metric
        name, container = labels.get("__name__", ""), labels.get("container", "")
        if name not in (CPU_COUNTER, WORKING_SET):
            rule = f"must be {CPU_COUNTER} or {WORKING_SET}: query the metric itself, without a function"
            path = f"data.result[{index}].metric.__name__"
            raise InputError([Fault(source=source, path=path, value=name, rule=rule)])
        if container in ("", "POD") or not labels.get("pod"):
            history.left_out["series without a container"] += len(series.values)
            continue
        key = (_full_name(f"{labels.get('namespace') or 'default'}/{labels['pod']}"), container)
        values = list(_finite(series, history, key))
        if name == CPU_COUNTER:
            history.add_counter(key, values)
        else:
            for at_ns, amount in values:
                history.add(history.memory, key, at_ns, round(amount))


def _finite(series: _Series, history: UsageHistory, key: SeriesKey) -> Iterator[tuple[int, float]]:
    for at_s, text in series.values:
        try:
            amount = float(text)
        except ValueError:
            amount = math.nan
        if math.isfinite(amount) and 0 <= amount < 2**63 and 0 <= at_s < _LATEST_S:
            yield round(at_s * SECOND_NS), amount
        else:
            history.left_out[f"{_name(key)}: not a number that usage can be"] += 1


# ---------------------------------------------------------------- summaries


def _add_summary(
    history: UsageHistory,
    value: Mapping[str, Any],
    counters: dict[SeriesKey, list[tuple[int, float]]],
    source: str,
) -> None:
    try:
        summary = decode(value, StatsSummary)
    except msgspec.ValidationError as error:
        raise InputError([msgspec.structs.replace(decoding_fault(error), source=source)]) from None
    for pod in summary.pods:
        pod_name = _full_name(f"{pod.pod_ref.namespace or 'default'}/{pod.pod_ref.name}")
        for container in pod.containers:
            key, cpu, memory = (pod_name, container.name), container.cpu, container.memory
            if cpu is not None and cpu.time is not None and cpu.usage_core_nano_seconds is not None:
                point = (cpu.time.nanoseconds, cpu.usage_core_nano_seconds / SECOND_NS)
                counters.setdefault(key, []).append(point)
            if memory is not None and memory.time is not None and memory.working_set_bytes is not None:
                history.add(history.memory, key, memory.time.nanoseconds, memory.working_set_bytes)
