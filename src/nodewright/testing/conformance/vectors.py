"""Files of recorded decisions: JSON lines, packed or not, each line a question and perhaps its answer."""

import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import IO, Any

from nodewright.world.catalogue import recorded_machines
from nodewright.world.errors import Fault, InputError

STANDARD_STREAM = "-"


class NotRecorded(Enum):
    """What a question expects that comes without an answer: NOT_RECORDED."""

    NOT_RECORDED = "(not recorded)"


NOT_RECORDED = NotRecorded.NOT_RECORDED


@dataclass(frozen=True, slots=True)
class Vector:
    """A question, and the answer that Kubernetes gave or NOT_RECORDED."""

    id: str
    family: str
    question: dict[str, Any]
    expect: Any = NOT_RECORDED

    @property
    def is_recorded(self) -> bool:
        """Whether there is an answer to compare with."""
        return self.expect is not NOT_RECORDED


def read_vectors(paths: Iterable[str]) -> Iterator[Vector | Fault]:
    """The vectors of the files in order; a line that is none, or repeats an id, gives a fault in its place.

    A path is a file of JSON lines, packed where its name ends in `.gz`, or `-` for standard input. The
    remark `input.tag` is left out: it is for readers and may tell about the answer.
    """
    first_places: dict[str, str] = {}
    for path in paths:
        for place, line in _lines(path):
            vector = line if isinstance(line, Fault) else _vector(place, line)
            if isinstance(vector, Vector) and vector.id in first_places:
                rule = f"id occurs twice, first at {first_places[vector.id]}"
                yield Fault(source=place, path="id", value=vector.id, rule=rule)
                continue
            if isinstance(vector, Vector):
                first_places[vector.id] = place
            yield vector


def read_machines(path: str | None = None) -> Mapping[str, Any]:
    """Machines by name, from the file or, without one, as they come with the package.

    Errors: InputError where the file is no JSON object of objects.
    """
    if path is None:
        return recorded_machines()
    try:
        with open_text(path) as lines:
            found = json.load(lines)
    except (ValueError, RecursionError, EOFError, zlib.error) as error:
        raise InputError([Fault(source=path, rule=f"not JSON: {error}")]) from error
    if not isinstance(found, dict) or not all(isinstance(machine, dict) for machine in found.values()):
        raise InputError(
            [Fault(source=path, rule="must be an object: names of machines to MachineInfo objects")]
        )
    return found


@contextmanager
def open_text(path: str, *, write: bool = False) -> Iterator[IO[str]]:
    """The file as text for reading or writing, unpacked or packed by its name; `-` is the standard stream."""
    if path == STANDARD_STREAM:
        yield sys.stdout if write else sys.stdin
        return
    mode = "wt" if write else "rt"
    if path.endswith(".gz"):
        with gzip.open(path, mode, encoding="utf-8", compresslevel=6) as packed:
            assert not isinstance(packed, gzip.GzipFile)
            yield packed
    else:
        with open(path, mode, encoding="utf-8") as plain:  # noqa: PTH123 - the same call as its packed twin
            yield plain


def _lines(path: str) -> Iterator[tuple[str, str | Fault]]:
    number = 0
    try:
        with open_text(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}:{number}", line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        place = f"{path}:{number + 1}"
        yield place, Fault(source=place, rule=f"cannot be read on from here: {error}")


def _vector(place: str, line: str) -> Vector | Fault:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Fault(source=place, rule=f"not JSON: {error}")
    if not isinstance(found, dict):
        return Fault(source=place, rule="must be an object with id, family and input")
    for member, kind, name in (("id", str, "text"), ("family", str, "text"), ("input", dict, "object")):
        if not isinstance(found.get(member), kind):
            return Fault(
                source=place, path=member, value=found.get(member), rule=f"must be there and be {name}"
            )
    question = {name: value for name, value in found["input"].items() if name != "tag"}
    return Vector(found["id"], found["family"], question, found.get("expect", NOT_RECORDED))
