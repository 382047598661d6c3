"""Tables of nodes and pods as CSV, row by row: ours, and those of Alibaba's GPU cluster traces."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from nodewright.world.errors import Fault, InputError

_UNREADABLE = (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error)
_GZIP = b"\x1f\x8b"


class Row(NamedTuple):
    """A row of a table, and the line it stands on."""

    line: int
    cells: list[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file, plain or compressed by gzip, that is read again each time."""

    path: str

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns.

        Errors: InputError where the file has none.
        """
        try:
            with _reader(self.path) as reader:
                found = tuple(cell.strip() for cell in next(reader, []))
        except _UNREADABLE as error:
            raise InputError([Fault(source=f"{self.path}:1", rule=str(error))]) from None
        if not any(found):
            raise InputError(
                [Fault(source=f"{self.path}:1", rule="a line with the names of the columns is wanted")]
            )
        return found

    def rows(self) -> Iterator[Row]:
        """The rows that are not empty, one by one.

        Errors: InputError where a row has more or fewer cells than there are columns.
        """
        width = len(self.header)
        with _reader(self.path) as reader:
            next(reader, None)  # the header has been read
            try:
                for cells in reader:
                    if len(cells) != width:
                        if not cells:
                            continue
                        rule = f"{width} columns are wanted, there are {len(cells)}"
                        raise InputError([Fault(source=f"{self.path}:{reader.line_num}", rule=rule)])
                    yield Row(reader.line_num, cells)
            except _UNREADABLE as error:
                raise InputError([Fault(source=f"{self.path}:{reader.line_num}", rule=str(error))]) from None


def is_table(path: str) -> bool:
    """Whether the file is CSV by its name."""
    return path.removesuffix(".gz").endswith(".csv")


def unpacked(content: bytes) -> bytes:
    """The content, decompressed if it is compressed by gzip."""
    return gzip.decompress(content) if content.startswith(_GZIP) else content


def columns(header: tuple[str, ...], wanted: Mapping[str, bool], source: str) -> dict[str, int]:
    """Where each column is; True: it must be there. Others may be there only if they are resources.

    Errors: InputError for columns that lack, come twice or mean nothing.
    """
    faults = [
        Fault(source=f"{source}:1", rule=f'the column "{name}" is missing')
        for name, is_needed in wanted.items()
        if is_needed and name not in header
    ]
    for name in dict.fromkeys(header):
        if header.count(name) > 1:
            faults.append(Fault(source=f"{source}:1", rule=f'the column "{name}" is given twice'))
        if name not in wanted and "/" not in name and not name.startswith("hugepages-"):
            known = ", ".join(wanted)
            rule = (
                f'the column "{name}" is not known; there are {known}, and resources such as nvidia.com/gpu'
            )
            faults.append(Fault(source=f"{source}:1", rule=rule))
    if faults:
        raise InputError(faults)
    return {name: at for at, name in enumerate(header)}


@contextmanager
def _reader(path: str) -> Iterator[Any]:
    with ExitStack() as stack:
        try:
            file: IO[bytes] = stack.enter_context(Path(path).open("rb"))
            is_packed = file.read(2) == _GZIP
            file.seek(0)
        except OSError as error:
            raise InputError([Fault(rule=f"cannot be read: {error.strerror}", source=path)]) from None
        packed = gzip.GzipFile(fileobj=file) if is_packed else file
        text = stack.enter_context(io.TextIOWrapper(packed, "utf-8-sig", newline=""))
        yield csv.reader(text, strict=True)
