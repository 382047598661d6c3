"""Reads CSV tables row by row, plain or gzipped: nodes, pods in the order of arrival, memory usage of pods over time."""

import csv
import io
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from nodewright.documents.files.gzipped import GZIP, UnpackedBytes
from nodewright.documents.files.regular_files import error_text, open_regular
from nodewright.documents.formats.decode import parse_quantity
from nodewright.engine.admission.admission_plugins import defaulted_pod, with_canonical_quantities
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.fleet.load.assembled_nodes import DEFAULT_MAX_PODS, LARGEST_AMOUNT, NodeEntry
from nodewright.fleet.workload import FleetPod, UsageStep, seconds_in
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import kubelet_labels
from nodewright.model.kubernetes.objects import (
    TAINT_EFFECTS,
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceList,
    ResourceRequirements,
    Taint,
)
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.printable import counted
from nodewright.model.values.golang import is_number_of_digits, saturated_int
from nodewright.model.values.quantity import Quantity, QuantityError

_UNREADABLE = (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error)
MAX_UNPACKED_BYTES = 8 << 20
"""Default limit of a gzipped file: a small one can hold any amount."""
UNPACKED_LIMIT = " of --max-unpacked-size"
MAX_COLUMNS = 1_000
T = TypeVar("T")
_MAX_FAULTS = 10
"""Number of faulty rows that are named."""
_MAX_LINE = 1 << 20
"""Characters of a line of a table."""
COLUMNS = {"name": True, "namespace": False, "at": True, "memory": True}
UsageByPod = Mapping[str, tuple[UsageStep, ...]]
NODE_COLUMNS = {
    **dict.fromkeys(("name", "cpu", "memory"), True),
    **dict.fromkeys(("pods", "ephemeral-storage", "labels", "taints"), False),
}
_POD_FIELDS = ("qos", "priority", "arrives", "runs", "node_selector", "controlled", "labels")
POD_COLUMNS = {
    "name": True,
    "namespace": False,
    **dict.fromkeys(("cpu", "memory"), True),
    **dict.fromkeys(("ephemeral-storage", *_POD_FIELDS), False),
}
_NOT_AMOUNTS = frozenset({"name", "namespace", "taints", *_POD_FIELDS})
_OWN = frozenset({"name", "arrives", "runs", "controlled"})
"""Columns in which pods of one template may differ."""
_QOS = {"": True, "Guaranteed": True, "Burstable": False}
_BEST_EFFORT = "; a pod without amounts of cpu and memory is BestEffort"
_MAX_PRIORITY = 2**31 - 1
_CONTROLLED = {"": False, "no": False, "false": False, "yes": True, "true": True}


class Row(NamedTuple):
    """A row of a table and its line number."""

    line: int
    cells: list[str]


class Table(msgspec.Struct, frozen=True):
    """A CSV file, plain or gzipped, that is read on each access."""

    path: str
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns.

        Errors: InputError where the file has none.
        """
        try:
            with self._reader() as reader:
                columns = tuple(cell.strip() for cell in next(reader, []))
        except _UNREADABLE as error:
            raise InputError([Fault(source=f"{self.path}:1", rule=error_text(error))]) from None
        if not any(columns):
            raise InputError(
                [Fault(source=f"{self.path}:1", rule="must be a line with the names of the columns")]
            )
        if len(columns) > MAX_COLUMNS:
            rule = f"has {len(columns)} columns; the limit is {MAX_COLUMNS}"
            raise InputError([Fault(source=f"{self.path}:1", rule=rule)])
        return columns

    def rows(self) -> Iterator[Row]:
        """The rows, without empty lines.

        Errors: InputError with the rows that have more or fewer cells than there are columns.
        """
        return self.read(lambda row: row)

    def read(self, parsed: Callable[[Row], T]) -> Iterator[T]:
        """What ``parsed`` makes of each row, without empty lines; nothing of the rows after a faulty one.

        Errors: InputError with the first faulty rows and the number of all others, once all rows are read.
        """
        width, faults, more = len(self.header), list[Fault](), 0
        with self._reader() as reader:
            next(reader, None)  # the header has been read
            try:
                for cells in filter(None, reader):
                    try:
                        value = parsed(self._row(reader.line_num, cells, width))
                    except InputError as error:
                        more += len(faults) >= _MAX_FAULTS
                        faults += error.faults if len(faults) < _MAX_FAULTS else ()
                        continue
                    if not faults:
                        yield value
            except _UNREADABLE as error:
                faults.append(Fault(source=f"{self.path}:{reader.line_num}", rule=error_text(error)))
        if more:
            faults.append(Fault(source=self.path, rule=f"{counted(more, 'more row')} with faults"))
        if faults:
            raise InputError(faults)

    def _row(self, line: int, cells: list[str], width: int) -> Row:
        if len(cells) != width:
            rule = f"must have {width} columns, has {len(cells)}"
            raise InputError([Fault(source=f"{self.path}:{line}", rule=rule)])
        return Row(line, cells)

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with ExitStack() as stack:
            try:  # not a pipe: the table is read several times
                file = stack.enter_context(os.fdopen(open_regular(self.path), "rb"))
                is_gzipped = file.read(2) == GZIP
                file.seek(0)
            except OSError as error:
                raise InputError(
                    [Fault(rule=f"cannot be read: {error.strerror}", source=self.path)]
                ) from None
            stream = UnpackedBytes(file, self.max_unpacked_bytes, UNPACKED_LIMIT) if is_gzipped else file
            buffered = io.BufferedReader(stream) if isinstance(stream, UnpackedBytes) else stream
            text = stack.enter_context(io.TextIOWrapper(buffered, "utf-8-sig", newline=""))
            yield csv.reader(_bounded_lines(text), strict=True)


def is_table(path: str) -> bool:
    """Whether the file's name is that of a CSV table."""
    return path.removesuffix(".gz").endswith(".csv")


def _bounded_lines(text: IO[str]) -> Iterator[str]:
    """The lines of a file.

    Errors: csv.Error for a line without an end.
    """
    while line := text.readline(_MAX_LINE):
        if len(line) == _MAX_LINE:
            raise csv.Error(f"the line has more than {_MAX_LINE} characters, which is the limit")
        yield line


def column_indexes(header: tuple[str, ...], columns: Mapping[str, bool], source: str) -> dict[str, int]:
    """The index of each column; True in ``columns``: it is required. Other columns must be resources.

    Errors: InputError for missing, duplicate and unknown columns.
    """
    faults = [
        Fault(source=f"{source}:1", rule=f'the column "{name}" is missing')
        for name, is_required in columns.items()
        if is_required and name not in header
    ]
    for name, count in Counter(header).items():
        if count > 1:
            faults.append(Fault(source=f"{source}:1", rule=f'the column "{name}" is given twice'))
        if name not in columns and "/" not in name and not name.startswith("hugepages-"):
            known = ", ".join(columns)
            rule = f'the column "{name}" is unknown; known are {known}, and resources such as nvidia.com/gpu'
            faults.append(Fault(source=f"{source}:1", rule=rule))
    if faults:
        raise InputError(faults)
    return {name: at for at, name in enumerate(header)}


def read_usage(table: Table) -> UsageByPod:
    """The usage of pods by namespace and name, in order of time; `at` is in seconds since a pod's start.

    Errors: InputError with the faulty rows.
    """
    at = column_indexes(table.header, COLUMNS, table.path)
    usage: dict[str, list[UsageStep]] = {}

    def step(row: Row) -> tuple[str, UsageStep]:
        cell = {name: row.cells[index] for name, index in at.items()}
        source = f"{table.path}:{row.line}"
        name = f"{cell.get('namespace') or 'default'}/{cell['name']}"
        return name, UsageStep(seconds_in(cell["at"], "at", source), _bytes(cell["memory"], source))

    for name, used in table.read(step):
        usage.setdefault(name, []).append(used)
    return {name: tuple(sorted(used, key=attrgetter("at_s"))) for name, used in usage.items()}


def with_usage(pods: Iterable[FleetPod], usage: UsageByPod) -> Iterator[FleetPod]:
    """The pods with their usage; pods without usage are unchanged."""
    for pod in pods:
        used = usage.get(pod.full_name)
        yield pod if used is None else msgspec.structs.replace(pod, usage=used)


def _bytes(text: str, source: str) -> int:
    try:
        amount = parse_quantity(text).value()
    except QuantityError as error:
        raise InputError([Fault(source=source, path="memory", value=text, rule=error_text(error))]) from None
    if amount < 0:
        raise InputError([Fault(source=source, path="memory", value=text, rule="must not be less than 0")])
    return amount


def table_nodes(table: Table) -> Iterator[NodeEntry]:
    """The nodes of the table.

    Errors: InputError with the faulty rows.
    """
    at = column_indexes(table.header, NODE_COLUMNS, table.path)

    def node(row: Row) -> NodeEntry:
        cell = {name: row.cells[index] for name, index in at.items()}
        source = f"{table.path}:{row.line}"
        amounts = _amounts(cell, source)
        for name in ("name", "cpu", "memory"):
            if not cell[name].strip():
                raise InputError([Fault(source=source, path=name, error="Required value", rule="")])
        amounts.setdefault("pods", Quantity.of(DEFAULT_MAX_PODS))
        return NodeEntry(
            name=cell["name"],
            capacity=amounts,
            allocatable=amounts,
            labels={**kubelet_labels(cell["name"]), **_pairs(cell.get("labels", ""), source, "labels")},
            taints=_taints(cell.get("taints", ""), source),
            source=source,
        )

    return table.read(node)


def table_pods(table: Table) -> Iterator[FleetPod]:
    """The pods of the table, row by row.

    Errors: InputError with the faulty rows, and those that arrive before a previous one.
    """
    reader = _TablePodReader(table, column_indexes(table.header, POD_COLUMNS, table.path))
    return table.read(reader.pod)


@dataclass(slots=True)
class _TablePodReader:
    table: Table
    at: dict[str, int]
    _now_s: float = 0
    _templates: dict[tuple[str, ...], Pod] = field(default_factory=dict)
    _template_columns: tuple[int, ...] = ()
    _own_columns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # Pods with equal cells in all columns except `_OWN` share one template.
        self._template_columns = tuple(index for name, index in self.at.items() if name not in _OWN)
        self._own_columns = tuple(self.at.get(name, -1) for name in ("name", "arrives", "runs", "controlled"))

    def pod(self, row: Row) -> FleetPod:
        """The pod of the next row."""
        line, cells = row
        name, arrives, runs, controlled = self._own_columns
        source = f"{self.table.path}:{line}"
        if not cells[name]:
            raise InputError([Fault(source=source, path="name", error="Required value", rule="")])
        key = tuple([cells[index] for index in self._template_columns])
        pod = self._templates.get(key)
        if pod is None:
            pod = self._templates[key] = self._template(row)
        at_s = (
            seconds_in(cells[arrives], "arrives", source) if arrives >= 0 and cells[arrives] else self._now_s
        )
        if at_s < self._now_s:
            rule = f"must not be before the previous row, {self._now_s:g}"
            raise InputError([Fault(source=source, path="arrives", value=cells[arrives], rule=rule)])
        self._now_s = at_s
        return FleetPod(
            name=cells[name],
            namespace=pod.metadata.namespace,
            pod=pod,
            arrives_s=at_s,
            runs_s=seconds_in(cells[runs], "runs", source) if runs >= 0 and cells[runs] else None,
            has_controller=controlled >= 0 and _flag(cells[controlled], _CONTROLLED, "controlled", source),
            source=source,
        )

    def _template(self, row: Row) -> Pod:
        cell = {name: row.cells[index] for name, index in self.at.items()}
        source = f"{self.table.path}:{row.line}"
        amounts = _amounts(cell, source)
        limits = (
            amounts if _flag(cell.get("qos", ""), _QOS, "qos", source, _BEST_EFFORT) else _extended(amounts)
        )
        priority = cell.get("priority") or "0"
        digits = priority.removeprefix("-")
        if not (is_number_of_digits(digits) and saturated_int(digits) <= _MAX_PRIORITY):
            rule = f"must be a whole number from -{_MAX_PRIORITY} to {_MAX_PRIORITY}"
            raise InputError([Fault(source=source, path="priority", value=priority, rule=rule)])
        container = Container(
            name="main", image="main", resources=ResourceRequirements(requests=amounts, limits=limits)
        )
        meta = ObjectMeta(
            name=cell["name"],
            namespace=cell.get("namespace") or "default",
            labels=_pairs(cell.get("labels", ""), source, "labels"),
        )
        spec = PodSpec(
            containers=(container,),
            priority=int(priority) or None,
            node_selector=_pairs(cell.get("node_selector", ""), source, "node_selector"),
        )
        pod = Pod(metadata=meta, spec=spec)
        faults = [
            Fault(
                source=source,
                path=violation.path,
                value=None if violation.value is None else str(violation.value),
                error=str(violation.type),
                rule=violation.rule,
            )
            for violation in pod_violations(with_defaults(pod))
        ]
        if faults:
            raise InputError(faults)
        return with_defaults(with_canonical_quantities(msgspec.structs.replace(defaulted_pod(pod).pod)))


def _amounts(cell: dict[str, str], source: str) -> ResourceList:
    amounts: ResourceList = {}
    for name, text in cell.items():
        if name in _NOT_AMOUNTS or not text.strip():
            continue
        try:
            amounts[name] = parse_quantity(text)
        except QuantityError as error:
            raise InputError([Fault(source=source, path=name, value=text, rule=str(error))]) from None
        if amounts[name].sign() < 0:
            raise InputError([Fault(source=source, path=name, value=text, rule="must not be less than 0")])
        if amounts[name] > LARGEST_AMOUNT:
            rule = f"must be at most {LARGEST_AMOUNT}"
            raise InputError([Fault(source=source, path=name, value=text, rule=rule)])
    return {name: amount for name, amount in amounts.items() if amount.sign() or not is_extended(name)}


def _extended(amounts: ResourceList) -> ResourceList:
    """The resources that require limits, because they cannot be overcommitted."""
    return {
        name: amount for name, amount in amounts.items() if is_extended(name) or name.startswith("hugepages-")
    }


def _pairs(text: str, source: str, column: str) -> dict[str, str]:
    pairs = {}
    for part in filter(None, (item.strip() for item in text.split(";"))):
        key, is_pair, value = part.partition("=")
        if not is_pair:
            rule = "must be key=value, separated by semicolons"
            raise InputError([Fault(source=source, path=column, value=part, rule=rule)])
        pairs[key] = value
    return pairs


def _taints(text: str, source: str) -> tuple[Taint, ...]:
    taints = []
    for part in filter(None, (item.strip() for item in text.split(";"))):
        rest, is_taint, effect = part.rpartition(":")
        if not is_taint or effect not in TAINT_EFFECTS:
            rule = "must be key=value:NoSchedule (or PreferNoSchedule, NoExecute)"
            raise InputError([Fault(source=source, path="taints", value=part, rule=rule)])
        key, _, value = rest.partition("=")
        taints.append(Taint(key=key, value=value, effect=effect))
    return tuple(taints)


def _flag(text: str, words: dict[str, bool], column: str, source: str, more: str = "") -> bool:
    value = words.get(text)
    if value is None:
        rule = f"must be one of {', '.join(filter(None, words))}, or empty{more}"
        raise InputError([Fault(source=source, path=column, value=text, rule=rule)])
    return value
