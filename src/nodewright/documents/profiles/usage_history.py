"""Reads histories of usage: tables (CSV), `query_range` answers of Prometheus, and summaries of a kubelet, one after another.

What cannot be used is left out and named; no number is made from it.
"""

import csv
import io
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import compress, islice, pairwise
from operator import itemgetter, lt
from typing import Any, TypeAlias, TypeVar

import msgspec

from nodewright.documents.files.gzipped import decompressed
from nodewright.documents.files.process_tuning import rare_collections
from nodewright.documents.files.regular_files import error_text
from nodewright.documents.formats.decode import decode, decoding_fault
from nodewright.documents.formats.documents import InputFile, decode_text, parse_documents, read_file
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.values.golang import plain_float
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import Quantity

CPU_COUNTER = "container_cpu_usage_seconds_total"
WORKING_SET = "container_memory_working_set_bytes"
SECOND_NS = 10**9
MAX_BYTES = 256 << 20
_LATEST_S = 1 << 33
_COLUMNS = ("time", "pod", "container", "cpu", "memory", "rss")
_MOST = 2**63
_UNITLESS_BYTES = 1 << 20
_MAX_CELLS = 1 << 16
_SHOWN_REASONS = 3
_BLOCK_ROWS, _BLOCK_LENGTH = 1 << 14, 1 << 17

SeriesKey = tuple[str, str]
"""Namespace and name of a pod, and the name of a container; empty: the pod as a whole."""


_Text = TypeVar("_Text")
_Value = TypeVar("_Value")


_Points: TypeAlias = defaultdict[SeriesKey, list[tuple[int, Any]]]
"""Times in nanoseconds, each with a counter or an amount."""


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
        self._ascending: Sequence[int] = ()
        """Times that are known to ascend: most series of a node have the same."""

    def add(
        self,
        points: dict[SeriesKey, UsageSeries],
        key: SeriesKey,
        times_ns: Sequence[int],
        amounts: Sequence[int],
    ) -> None:
        """Adds samples of a series; one that is not later than the last one before it is left out.

        Units: nanoseconds; thousandths of a CPU, or bytes.
        """
        if not times_ns:
            return
        series = points[key]
        latest_ns = series.times_ns[-1] if series.times_ns else -1
        if times_ns[0] > latest_ns and (
            times_ns == self._ascending or all(map(lt, times_ns, islice(times_ns, 1, None)))
        ):
            self._ascending = times_ns
            series.times_ns += times_ns
            series.amounts += amounts
            return
        for at_ns, amount in zip(times_ns, amounts, strict=True):
            if at_ns <= latest_ns:
                self.left_out[f"{_name(key)}: time does not advance"] += 1
                continue
            series.times_ns.append(at_ns)
            series.amounts.append(amount)
            latest_ns = at_ns

    def add_counter(self, key: SeriesKey, times_ns: Sequence[int], values: Sequence[float]) -> None:
        """Adds the rates of a counter of CPU seconds; the time in which it starts again is left out."""
        ends_ns, rates = list[int](), list[int]()
        for (start_ns, at_ns), (before, after) in zip(pairwise(times_ns), pairwise(values), strict=True):
            if after < before:
                self.left_out[f"{_name(key)}: the CPU counter restarts"] += 1
            elif at_ns > start_ns:
                ends_ns.append(at_ns)
                rates.append(round((after - before) * 1000 * SECOND_NS / (at_ns - start_ns)))
            else:
                self.left_out[f"{_name(key)}: time does not advance"] += 1
        self.add(self.cpu, key, ends_ns, rates)


def left_out_text(left_out: Mapping[str, int]) -> str:
    """What was left out, the most frequent first, as the end of an error; empty: nothing."""
    reasons = sorted(left_out, key=lambda reason: (-left_out[reason], reason))
    more = f" and {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
    return f"; left out: {', '.join(reasons[:_SHOWN_REASONS])}{more}" if reasons else ""


def _name(key: SeriesKey) -> str:
    return "/".join(filter(None, key))


def load_usage_history(paths: Sequence[str]) -> UsageHistory:
    """The history in the files, each a table (`.csv`), Prometheus' JSON or summaries.

    Errors: InputError with all faults of a file.
    """
    history, summaries = UsageHistory(), (_Points(list), _Points(list))
    for path in paths:
        file = _unpacked(read_file(path, max_bytes=MAX_BYTES))
        if file.source.removesuffix(".gz").endswith(".csv"):
            _add_table(history, file)
            continue
        for document in parse_documents(file.content, file.source, max_bytes=MAX_BYTES):
            value = document.value
            if isinstance(value, dict) and isinstance(value.get("data"), dict):
                _add_matrix(history, value["data"], file.source)
            elif isinstance(value, dict) and "pods" in value:
                _add_summary(summaries, value, file.source)
            elif isinstance(value, dict) and value.get("status") == "error":
                raise InputError([Fault(source=file.source, path="error", rule=str(value.get("error")))])
            else:
                rule = (
                    "expected a .csv, an answer of query_range (`data.result`), or a summary (`node`, `pods`)"
                )
                raise InputError([Fault(source=file.source, rule=rule)])
    # Files are in the order of their names, which need not be that of their times.
    for key, points in summaries[0].items():
        history.add_counter(key, *zip(*sorted(points), strict=True))
    for key, points in summaries[1].items():
        history.add(history.memory, key, *zip(*sorted(points), strict=True))
    if not history.cpu and not history.memory:
        rule = f"has no sample of cpu or memory{left_out_text(history.left_out)}"
        raise InputError([Fault(source=", ".join(paths), rule=rule)])
    return history


def _unpacked(file: InputFile) -> InputFile:
    try:
        return file._replace(content=decompressed(file.content, MAX_BYTES))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError([Fault(source=file.source, rule=f"cannot be read: {error_text(error)}")]) from None


# ---------------------------------------------------------------- tables


def _add_table(history: UsageHistory, file: InputFile) -> None:
    text = decode_text(file.content, file.source).removeprefix("\ufeff")
    is_plain = '"' not in text and "\r" not in text
    rows = csv.reader(io.StringIO(text.split("\n", 1)[0] if is_plain else text, newline=""), strict=True)
    faults: list[tuple[int, Fault]] = []
    try:
        names = tuple(name.strip() for name in next(rows, ()))
        if not {"time", "pod"} <= set(names) <= set(_COLUMNS) or len(set(names)) != len(names):
            rule = f"the first line must name time, pod and some of {', '.join(_COLUMNS[2:])}, each once"
            raise InputError([Fault(source=f"{file.source}:1", value=", ".join(names), rule=rule)])
        with rare_collections():
            _Table(history, names, text, file.source, faults).add_rows(None if is_plain else rows)
    except csv.Error as error:
        rule = f"not valid CSV: {error}"
        faults.append((rows.line_num, Fault(source=f"{file.source}:{rows.line_num}", rule=rule)))
    if faults:
        raise InputError([fault for _, fault in sorted(faults, key=itemgetter(0))])


class _Table:
    """A table that is being read: columns of many rows at once, since a week of a node has a million rows."""

    def __init__(
        self,
        history: UsageHistory,
        names: Sequence[str],
        text: str,
        source: str,
        faults: list[tuple[int, Fault]],
    ) -> None:
        self._history, self._names, self._text, self._source = history, names, text, source
        self._faults = faults
        """With their lines."""
        self._parsers: dict[str, _ParsedTexts[str, int | None]] = {
            "time": _ParsedTexts(_moment_ns),
            "cpu": _ParsedTexts(_thousandths),
            "memory": _ParsedTexts(_bytes),
        }
        self._values: dict[str, list[int | None]] = {name: [] for name in self._parsers if name in names}
        self._key_of_cells = _ParsedTexts[Any, SeriesKey](
            (lambda cells: _key(*cells)) if "container" in names else (lambda pod: _key(pod, ""))
        )
        self._keys: list[SeriesKey] = []

    def add_rows(self, rows: Any | None) -> None:
        """Adds all rows after the header, or what is wrong with them; None: lines have no quotes. Errors: csv.Error."""
        self._read_lines() if rows is None else self._read_rows(rows, 0)
        if self._faults:
            return  # A faulty table is not used.
        times_ns = self._values.pop("time")
        resources = {"cpu": self._history.cpu, "memory": self._history.memory}
        for key, places in _rows_by_series(self._keys).items():
            for resource, column in self._values.items():
                own: tuple[Any, Any] = (_values_at(places, times_ns), _values_at(places, column))
                if None in own[1]:
                    known = [amount is not None for amount in own[1]]
                    own = (list(compress(own[0], known)), list(compress(own[1], known)))
                self._history.add(resources[resource], key, *own)

    def _read_lines(self) -> None:
        start, line, width = self._text.find("\n") + 1 or len(self._text), 1, len(self._names)
        while start < len(self._text):
            end = self._text.find("\n", start + _BLOCK_LENGTH) + 1 or len(self._text)
            block = self._text[start:end].removesuffix("\n")
            count = block.count("\n") + 1
            # Splitting takes a third of the time of parsing; where each line's first cell begins shows that all have as many.
            cells = f"\n{block}".replace("\n", ",\n").split(",")
            columns = [cells[index::width] for index in range(1, width + 1)]
            first_cells = {cell: cell[1:] for cell in set(columns[0])}
            if len(cells) == 1 + count * width and all(cell.startswith("\n") for cell in first_cells):
                columns[0] = list(map(first_cells.__getitem__, columns[0]))
                self._add_columns(columns, range(line + 1, line + count + 1))
            else:
                self._read_rows(csv.reader(io.StringIO(block, newline="")), line)
            start, line = end, line + count

    def _read_rows(self, rows: Any, lines_before: int) -> None:
        block, lines, width = list[list[str]](), list[int](), len(self._names)
        try:
            for row in rows:
                line = lines_before + rows.line_num
                if len(row) == width:
                    block.append(row)
                    lines.append(line)
                    if len(block) == _BLOCK_ROWS:
                        self._add_columns(list(zip(*block, strict=True)), lines)
                        block, lines = [], []
                elif row:
                    rule = "has not as many cells as the first line"
                    self._faults.append((line, Fault(source=f"{self._source}:{line}", rule=rule)))
        finally:
            if block:
                self._add_columns(list(zip(*block, strict=True)), lines)

    def _add_columns(self, cells: Sequence[Sequence[str]], lines: Sequence[int]) -> None:
        columns = dict(zip(self._names, cells, strict=True))
        values = {name: self._parsed(name, columns, lines) for name in self._values}
        if "memory" in values:
            self._leave_unitless_out(columns, values["memory"])
        for name, column in values.items():
            self._values[name] += column
        names: Any = columns["pod"]
        if "container" in columns:
            names = zip(names, columns["container"], strict=True)
        self._keys += map(self._key_of_cells.__getitem__, names)

    def _parsed(
        self, name: str, columns: Mapping[str, Sequence[str]], lines: Sequence[int]
    ) -> list[int | None]:
        """The values of a column; None, and a fault, where a text has none."""
        parse: Callable[[str], int | None] = self._parsers[name].__getitem__
        try:
            return list(map(parse, columns[name]))
        except ValueError:
            pass
        values: list[int | None] = []
        for text, line in zip(columns[name], lines, strict=True):
            try:
                values.append(parse(text))
            except ValueError as error:
                values.append(None)
                place = f"{self._source}:{line}"
                self._faults.append((line, Fault(source=place, path=name, value=text, rule=str(error))))
        return values

    def _leave_unitless_out(self, columns: Mapping[str, Sequence[str]], amounts: list[int | None]) -> None:
        """Makes amounts unknown that have no unit or `m`, and look as if they had another one than bytes."""
        if min(filter(None, amounts), default=_UNITLESS_BYTES) >= _UNITLESS_BYTES:
            return
        texts, containers = columns["memory"], columns.get("container")
        for index, amount in enumerate(amounts):
            is_unitless = amount and amount < _UNITLESS_BYTES and texts[index].strip(" m").isdigit()
            if is_unitless and not self._is_in_bytes:
                name = _name(_key(columns["pod"][index], containers[index] if containers else ""))
                self._history.left_out[f"{name}: memory without a unit, too little for bytes"] += 1
                amounts[index] = None

    @cached_property
    def _is_in_bytes(self) -> bool:
        """Whether no amount of memory in the table has a unit, and one has at least as many digits as a MiB in bytes."""
        rows = csv.reader(io.StringIO(self._text, newline=""))
        next(rows)
        column = self._names.index("memory")
        cells = {row[column].strip().lstrip("0") for row in rows if len(row) > column} - {""}
        return all(map(str.isdigit, cells)) and max(map(len, cells), default=0) >= len(str(_UNITLESS_BYTES))


def _rows_by_series(keys: Sequence[SeriesKey]) -> Mapping[SeriesKey, slice | Sequence[int]]:
    """The rows of each series; every n-th row where the series take turns, as in most tables."""
    series = list(dict.fromkeys(keys))
    period = len(series)
    if keys[:period] == series and keys[period:] == keys[:-period]:
        return {key: slice(row, None, period) for row, key in enumerate(series)}
    rows = defaultdict[SeriesKey, list[int]](list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    return rows


def _values_at(rows: slice | Sequence[int], column: Sequence[int | None]) -> Sequence[int | None]:
    return column[rows] if isinstance(rows, slice) else [column[row] for row in rows]


class _ParsedTexts(dict[_Text, _Value]):
    """The values of texts, each parsed once: faster than `lru_cache`, for a week of a node has millions."""

    def __init__(self, parse: Callable[[_Text], _Value]) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: _Text) -> _Value:
        if len(self) >= _MAX_CELLS:
            self.clear()
        value = self[text] = self._parse(text)
        return value


def _thousandths(text: str) -> int | None:
    """Thousandths of a CPU; None: empty. Errors: ValueError."""
    return _amount(text, Quantity.milli_value)


def _bytes(text: str) -> int | None:
    """Bytes; None: empty. Errors: ValueError."""
    return _amount(text, Quantity.value)


def _amount(text: str, unit: Callable[[Quantity], int]) -> int | None:
    if not text.strip():
        return None
    quantity = Quantity.parse(text.strip())
    amount = unit(quantity)
    if not quantity.is_int64 or (quantity.unscaled and not amount):  # 0: it does not fit.
        raise ValueError("must fit into 64 bits, in bytes or thousandths of a CPU")
    if amount < 0:
        raise ValueError("must be 0 or more")
    return amount


def _key(pod: str, container: str) -> SeriesKey:
    return _full_name(pod.strip()), container.strip()


def _full_name(pod: str) -> str:
    return pod if "/" in pod else f"default/{pod}"


def _moment_ns(text: str) -> int:
    """The time in seconds or as a timestamp. Errors: ValueError."""
    rule = "must be seconds or a timestamp such as 2026-01-31T12:00:00Z"
    try:
        if "T" in text:
            return Instant.parse(text).nanoseconds
        seconds = plain_float(text.strip())
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
    if matrix.result_type not in ("", "matrix"):
        rule = "must be matrix: ask query_range instead of query"
        raise InputError([Fault(source=source, path="data.resultType", value=matrix.result_type, rule=rule)])
    known_s, times_ns = (), list[int]()
    # A container that restarts is another series, and may be an earlier one in the answer.
    for index, series in sorted(enumerate(matrix.result), key=lambda each: each[1].values[:1]):
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
        values = [
            (at_s, amount)
            for at_s, text in series.values
            if 0 <= (amount := _number(text)) < _MOST and 0 <= at_s < _LATEST_S
        ]
        if wrong := len(series.values) - len(values):
            history.left_out[f"{_name(key)}: time or amount that is not a number, or not in range"] += wrong
        times_s, amounts = zip(*values, strict=True) if values else ((), ())
        if times_s != known_s:
            known_s, times_ns = times_s, [round(at_s * SECOND_NS) for at_s in times_s]
        if name == CPU_COUNTER:
            history.add_counter(key, times_ns, amounts)
        else:
            history.add(history.memory, key, times_ns, list(map(round, amounts)))


def _number(text: str) -> float:
    try:
        return plain_float(text.strip())
    except ValueError:
        return math.nan


# ---------------------------------------------------------------- summaries


def _add_summary(points: tuple[_Points, _Points], value: Mapping[str, Any], source: str) -> None:
    """Adds the points of a summary: seconds of CPU time, and memory."""
    try:
        summary = decode(value, StatsSummary)
    except msgspec.ValidationError as error:
        raise InputError([msgspec.structs.replace(decoding_fault(error), source=source)]) from None
    for pod in summary.pods:
        pod_name = _full_name(f"{pod.pod_ref.namespace or 'default'}/{pod.pod_ref.name}")
        for container in pod.containers:
            key, cpu, memory = (pod_name, container.name), container.cpu, container.memory
            if cpu is not None and cpu.time is not None and cpu.usage_core_nano_seconds is not None:
                points[0][key].append((cpu.time.nanoseconds, cpu.usage_core_nano_seconds / SECOND_NS))
            if memory is not None and memory.time is not None and memory.working_set_bytes is not None:
                points[1][key].append((memory.time.nanoseconds, memory.working_set_bytes))
