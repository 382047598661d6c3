"""What pods use over time, as a table: a row for each pod and moment, in any order of pods."""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from nodewright.model.fleet import FleetPod, Used
from nodewright.values.quantity import QuantityError
from nodewright.world.decode import amount
from nodewright.world.errors import Fault, InputError
from nodewright.world.fleet.tables import Table, columns

COLUMNS = {"name": True, "namespace": False, "at": True, "memory": True}
Usage = Mapping[str, tuple[Used, ...]]


def read_usage(table: Table) -> Usage:
    """What pods use, by namespace and name, in the order of time; `at` is in seconds since a pod's start.

    Errors: InputError with the place of the first row that is none.
    """
    at = columns(table.header, COLUMNS, table.path)
    found: dict[str, list[Used]] = {}
    for row in table.rows():
        cell = {name: row.cells[place] for name, place in at.items()}
        source = f"{table.path}:{row.line}"
        name = f"{cell.get('namespace') or 'default'}/{cell['name']}"
        found.setdefault(name, []).append(Used(_seconds(cell["at"], source), _bytes(cell["memory"], source)))
    return {name: tuple(sorted(used, key=attrgetter("at_s"))) for name, used in found.items()}


def using(pods: Iterable[FleetPod], usage: Usage) -> Iterator[FleetPod]:
    """The pods with what they use, those of which nothing is told as they are."""
    for pod in pods:
        used = usage.get(pod.full_name)
        yield pod if used is None else msgspec.structs.replace(pod, usage=used)


def _seconds(text: str, source: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if 0 <= found < float("inf"):
        return found
    raise InputError([Fault(source=source, path="at", value=text, rule="seconds are wanted, 0 or more")])


def _bytes(text: str, source: str) -> int:
    try:
        found = amount(text).value()
    except QuantityError as error:
        raise InputError([Fault(source=source, path="memory", value=text, rule=str(error))]) from None
    if found < 0:
        raise InputError([Fault(source=source, path="memory", value=text, rule="must not be less than 0")])
    return found
