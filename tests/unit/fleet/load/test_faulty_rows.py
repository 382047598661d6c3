"""All faulty rows of a table are named, the first of many with the number of the others."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from nodewright.fleet.load.csv_tables import Table, read_usage, table_nodes, table_pods
from nodewright.fleet.load.openb import openb_nodes, openb_pods
from nodewright.model.errors import InputError

READERS: dict[str, tuple[Callable[[Table], Iterable[object]], str, str, str]] = {
    "nodes": (table_nodes, "name,cpu,memory", "n,1,1Gi", "n,many,1Gi"),
    "pods": (table_pods, "name,cpu,memory", "p,1,1Gi", "p,1,-1Gi"),
    "usage": (read_usage, "name,at,memory", "p,1,1Gi", "p,1,1Go"),
    "nodes of a trace": (openb_nodes, "sn,cpu_milli,memory_mib,gpu,model", "n,1,1,0,", "n,a,1,0,"),
    "pods of a trace": (
        openb_pods,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time",
        "p,1,1,0,0,0",
        "p,1,1,0,0,x",
    ),
}


def faults(reader: str, path: Path, rows: list[str]) -> list[str]:
    """The faults, each without the path of the table."""
    read, header, _, _ = READERS[reader]
    path.write_text("\n".join([header, *rows]) + "\n")
    try:
        list(read(Table(str(path))))
    except InputError as error:
        return [str(fault).removeprefix(str(path)) for fault in error.faults]
    return []


@pytest.mark.parametrize("reader", READERS)
def test_every_faulty_row_is_named(reader: str, tmp_path: Path) -> None:
    _, _, good, bad = READERS[reader]
    path = tmp_path / "table.csv"
    assert not faults(reader, path, [good])
    found = faults(reader, path, [good, bad, "", good, "short", bad])
    assert [fault.partition(": ")[0].split(",")[0] for fault in found] == [":3", ":6", ":7"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("count", "last"), [(10, ":11"), (11, ": 1 more row with faults"), (30, ": 20 more rows with faults")]
)
def test_of_many_faulty_rows_the_first_ten_are_named_and_the_others_counted(
    reader: str, count: int, last: str, tmp_path: Path
) -> None:
    _, _, good, bad = READERS[reader]
    found = faults(reader, tmp_path / "table.csv", [*[bad] * count, good])
    assert len(found) == min(count, 11)
    assert found[-1].startswith(last)
