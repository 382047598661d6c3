"""Reads CSV tables row by row, plain or gzipped; also tables of the memory usage of pods over time."""

import csv
import errno
import gzip
import io
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import IO, Any, NamedTuple

import msgspec

from nodewright.documents.files.regular_files import error_text, open_regular
from nodewright.documents.formats.decode import parse_quantity
from nodewright.fleet.workload import FleetPod, UsageStep
from nodewright.model.errors import Fault, InputError
from nodewright.model.values.quantity import QuantityError

_UNREADABLE = (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error)
_GZIP = b"\x1f\x8b"
MAX_UNPACKED_BYTES = 8 << 20
"""Default limit of a gzipped file: a small one can hold any amount."""
MAX_COLUMNS = 1_000
_MAX_LINE = 1 << 20
"""Characters of a line of a table."""


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

        Errors: InputError where a row has more or fewer cells than there are columns.
        """
        width = len(self.header)
        with self._reader() as reader:
            next(reader, None)  # the header has been read
            try:
                for cells in reader:
                    if len(cells) != width:
                        if not cells:
                            continue
                        rule = f"must have {width} columns, has {len(cells)}"
                        raise InputError([Fault(source=f"{self.path}:{reader.line_num}", rule=rule)])
                    yield Row(reader.line_num, cells)
            except _UNREADABLE as error:
                raise InputError(
                    [Fault(source=f"{self.path}:{reader.line_num}", rule=error_text(error))]
                ) from None

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with ExitStack() as stack:
            try:  # not a pipe: the table is read several times
                file = stack.enter_context(os.fdopen(open_regular(self.path), "rb"))
                is_gzipped = file.read(2) == _GZIP
                file.seek(0)
            except OSError as error:
                raise InputError(
                    [Fault(rule=f"cannot be read: {error.strerror}", source=self.path)]
                ) from None
            stream = _UnpackedBytes(file, self.max_unpacked_bytes) if is_gzipped else file
            buffered = io.BufferedReader(stream) if isinstance(stream, _UnpackedBytes) else stream
            text = stack.enter_context(io.TextIOWrapper(buffered, "utf-8-sig", newline=""))
            yield csv.reader(_bounded_lines(text), strict=True)


def is_table(path: str) -> bool:
    """Whether the file's name is that of a CSV table."""
    return path.removesuffix(".gz").endswith(".csv")


def decompressed(content: bytes, max_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
    """The content, decompressed if it is gzipped.

    Errors: OSError, EOFError, zlib.error; OSError also if it has more bytes than the limit.
    """
    if not content.startswith(_GZIP):
        return content
    return _UnpackedBytes(io.BytesIO(content), max_bytes).read()


class _UnpackedBytes(io.RawIOBase):
    """The unpacked content of a gzipped file, with a limit.

    Errors: OSError beyond the limit.
    """

    def __init__(self, file: IO[bytes], max_bytes: int) -> None:
        super().__init__()
        self._file, self._max_bytes = gzip.GzipFile(fileobj=file), max_bytes
        self._size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; all of them for -1."""
        left = self._max_bytes - self._size + 1
        content = self._file.read(left if size < 0 else min(size, left))
        self._size += len(content)
        if self._size > self._max_bytes:
            rule = f"unpacked, it has more than {self._max_bytes} bytes, the limit of --max-unpacked-size"
            raise OSError(errno.EFBIG, rule)
        return content

    def readinto(self, buffer: Any, /) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


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


COLUMNS = {"name": True, "namespace": False, "at": True, "memory": True}
UsageByPod = Mapping[str, tuple[UsageStep, ...]]


def read_usage(table: Table) -> UsageByPod:
    """The usage of pods by namespace and name, in order of time; `at` is in seconds since a pod's start.

    Errors: InputError at the first faulty row.
    """
    at = column_indexes(table.header, COLUMNS, table.path)
    usage: dict[str, list[UsageStep]] = {}
    for row in table.rows():
        cell = {name: row.cells[index] for name, index in at.items()}
        source = f"{table.path}:{row.line}"
        name = f"{cell.get('namespace') or 'default'}/{cell['name']}"
        usage.setdefault(name, []).append(
            UsageStep(_seconds(cell["at"], source), _bytes(cell["memory"], source))
        )
    return {name: tuple(sorted(used, key=attrgetter("at_s"))) for name, used in usage.items()}


def with_usage(pods: Iterable[FleetPod], usage: UsageByPod) -> Iterator[FleetPod]:
    """The pods with their usage; pods without usage are unchanged."""
    for pod in pods:
        used = usage.get(pod.full_name)
        yield pod if used is None else msgspec.structs.replace(pod, usage=used)


def _seconds(text: str, source: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds < float("inf"):
        return seconds
    raise InputError([Fault(source=source, path="at", value=text, rule="must be seconds, 0 or more")])


def _bytes(text: str, source: str) -> int:
    try:
        amount = parse_quantity(text).value()
    except QuantityError as error:
        raise InputError([Fault(source=source, path="memory", value=text, rule=error_text(error))]) from None
    if amount < 0:
        raise InputError([Fault(source=source, path="memory", value=text, rule="must not be less than 0")])
    return amount
