"""Readings of a node's usage: a kubelet's `/stats/summary`, or a table (NodeUsage in YAML or JSON, or CSV)."""

import csv
import io
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from nodewright.model.profile import API_VERSION
from nodewright.model.thresholds import Signal
from nodewright.model.usage import Usage
from nodewright.model.usage_table import UsageRow, UsageTable
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.decode import decode
from nodewright.world.documents import decode_text, parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import File, read_file
from nodewright.world.places import Place
from nodewright.world.schema import faults_in
from nodewright.world.yaml import MAX_YAML_BYTES

KIND = "NodeUsage"
Reading: TypeAlias = Usage | UsageTable

_COLUMNS = tuple(UsageRow.__struct_encode_fields__)


def load_usage(path: str, *, max_bytes: int = MAX_YAML_BYTES) -> Reading:
    """The reading in the file, or on standard input (`-`); a file that ends in `.csv` has rows of pods.

    Units:  max_bytes in bytes of YAML; JSON may be larger.
    Errors: InputError with all faults of the file: what is no number, negative or too large, with its path.
    """
    return usage_from(read_file(path, max_bytes=max_bytes), max_bytes=max_bytes)


def usage_from(file: File, *, max_bytes: int = MAX_YAML_BYTES) -> Reading:
    """The reading that the bytes describe; else as load_usage."""
    if file.source.endswith(".csv"):
        return UsageTable(pods=_csv_rows(file))
    documents = parse_documents(file.content, file.source, max_bytes=max_bytes)
    if len(documents) != 1:
        rule = f"one reading is wanted, not {len(documents)} documents"
        raise InputError([Fault(rule=rule, source=file.source)])
    value = documents[0].value
    place = Place(file.source, file.content, document=documents[0].number, documents=1)
    if isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) == (API_VERSION, KIND):
        if faults := faults_in(value, KIND):
            raise InputError(place.all_of(faults))
        table = decode(value["spec"], UsageTable)
        if faults := list(table_faults(table, "spec")):
            raise InputError(place.all_of(faults))
        return table
    if not isinstance(value, dict) or not {"node", "pods"} & value.keys():
        rule = f"a summary (`node`, `pods`) is wanted, or apiVersion: {API_VERSION} and kind: {KIND}"
        raise InputError([Fault(rule=rule, source=file.source)])
    if faults := faults_in(value, "Summary"):
        raise InputError(place.all_of(faults))
    try:
        return decode(value, Usage)
    except msgspec.ValidationError as error:
        # A field that eviction does not look at.
        rule, _, path = str(error).partition(" - at `$.")
        raise InputError(place.all_of([Fault(path=path.rstrip("`"), rule=rule)])) from None


def table_faults(table: UsageTable, path: str) -> Iterator[Fault]:
    """Signals that there are not, and amounts below zero."""
    for field, amounts in (("available", table.available), ("capacity", table.capacity)):
        for name, amount in amounts.items():
            if name not in set(Signal):
                values = ", ".join(f'"{one}"' for one in Signal)
                error, rule = "Unsupported value", f"supported values: {values}"
                yield Fault(path=f"{path}.{field}[{name}]", error=error, value=name, rule=rule)
            elif amount.sign() < 0:
                yield _negative(f"{path}.{field}[{name}]", amount)
    for index, row in enumerate(table.pods):
        for name in _COLUMNS[3:]:
            amount = getattr(row, name)
            if amount is not None and amount.sign() < 0:
                yield _negative(f"{path}.pods[{index}].{name}", amount)


def _negative(path: str, amount: Quantity) -> Fault:
    return Fault(path=path, value=str(amount), rule="must be greater than or equal to 0")


# ---------------------------------------------------------------- CSV


def _csv_rows(file: File) -> tuple[UsageRow, ...]:
    """The rows of a table whose first line names its columns.

    Errors: InputError with all that is wrong.
    """
    text = decode_text(file.content, file.source).removeprefix("\ufeff")
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    faults: list[Fault] = []
    rows: list[UsageRow] = []
    try:
        header = [name.strip() for name in next(lines, [])]
        faults += _header_faults(header, file.source)
        if faults:
            raise InputError(faults)
        for cells in lines:
            if not any(cells):
                continue
            place = f"{file.source}:{lines.line_num}"
            if len(cells) != len(header):
                rule = f"has {len(cells)} cells, and the first line names {len(header)} columns"
                faults.append(Fault(rule=rule, source=place))
                continue
            rows += _row(dict(zip(header, cells, strict=True)), place, faults)
    except csv.Error as error:
        faults.append(Fault(rule=f"no CSV: {error}", source=f"{file.source}:{lines.line_num}"))
    if faults:
        raise InputError(faults)
    return tuple(rows)


def _header_faults(header: list[str], source: str) -> Iterator[Fault]:
    if "pod" not in header:
        yield Fault(rule=f"the first line has to name the columns: pod and some of {_known()}", source=source)
    for name in header:
        if name not in _COLUMNS:
            yield Fault(value=name, rule=f"is no column; there are {_known()}", source=f"{source}:1")
    for name in sorted({name for name in header if header.count(name) > 1}):
        yield Fault(error="Duplicate value", value=name, rule="", source=f"{source}:1")


def _known() -> str:
    return ", ".join(_COLUMNS)


def _row(cells: dict[str, str], place: str, faults: list[Fault]) -> list[UsageRow]:
    values: dict[str, Any] = {}
    before = len(faults)
    for name, cell in cells.items():
        text = cell.strip()
        if name in _COLUMNS[:3]:
            values[name] = text
        elif text:
            try:
                values[name] = Quantity.parse(text)
            except QuantityError as error:
                faults.append(Fault(path=name, value=text, rule=str(error), source=place))
                continue
            if values[name].sign() < 0:
                faults.append(
                    Fault(path=name, value=text, rule="must be greater than or equal to 0", source=place)
                )
    if not values["pod"]:
        faults.append(Fault(path="pod", error="Required value", rule="", source=place))
    return [] if len(faults) > before else [UsageRow(**values)]
