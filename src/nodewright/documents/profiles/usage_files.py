"""Reads a node's usage: a kubelet's `/stats/summary`, or a table (NodeUsage in YAML or JSON, or CSV)."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from nodewright.documents.formats.decode import decode, decoding_fault, schema_faults
from nodewright.documents.formats.documents import InputFile, decode_text, parse_documents, read_file
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.model.errors import Fault, InputError, unsupported_value
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.node_profile import API_VERSION
from nodewright.model.kubernetes.scenario import UsageRow, UsageTable
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.values.quantity import INT64_MAX, Quantity, QuantityError

KIND = "NodeUsage"
UsageReading: TypeAlias = StatsSummary | UsageTable

_COLUMNS = tuple(UsageRow.__struct_encode_fields__)


def load_usage(path: str, *, max_bytes: int = MAX_YAML_BYTES) -> UsageReading:
    """The reading in the file, or on standard input (`-`); a file that ends in `.csv` has rows of pods.

    Units:  max_bytes in bytes of YAML; JSON may be larger.
    Errors: InputError with all faults of the file, with their paths: not a number, negative, or too large.
    """
    return usage_from_file(read_file(path, max_bytes=max_bytes), max_bytes=max_bytes)


def usage_from_file(file: InputFile, *, max_bytes: int = MAX_YAML_BYTES) -> UsageReading:
    """The reading that the bytes describe; otherwise like `load_usage`."""
    if file.source.endswith(".csv"):
        return UsageTable(pods=_csv_rows(file))
    documents = parse_documents(file.content, file.source, max_bytes=max_bytes)
    if len(documents) != 1:
        rule = f"expected one reading, not {len(documents)} documents"
        raise InputError([Fault(rule=rule, source=file.source)])
    value = documents[0].value
    location = ObjectLocation(file.source, file.content, document=documents[0].number, documents=1)
    if isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) == (API_VERSION, KIND):
        if faults := schema_faults(value, KIND):
            raise InputError(location.locate_all(faults))
        table = decode(value["spec"], UsageTable)
        if faults := list(node_usage_faults(table, "spec")):
            raise InputError(location.locate_all(faults))
        return table
    if not isinstance(value, dict) or not {"node", "pods"} & value.keys():
        rule = f"expected a summary (`node`, `pods`), or apiVersion: {API_VERSION} and kind: {KIND}"
        raise InputError([Fault(rule=rule, source=file.source)])
    if faults := schema_faults(value, "Summary"):
        raise InputError(location.locate_all(faults))
    try:
        return decode(value, StatsSummary)
    except msgspec.ValidationError as error:
        # A field that eviction does not read.
        raise InputError([location.locate(decoding_fault(error))]) from None


def node_usage_faults(table: UsageTable, path: str) -> Iterator[Fault]:
    """Faults beyond the schema: unknown signals and negative amounts."""
    for field, amounts in (("available", table.available), ("capacity", table.capacity)):
        for name, amount in amounts.items():
            yield from unsupported_value(f"{path}.{field}[{name}]", name, list(Signal))
            if name in set(Signal):
                yield from _amount_faults(f"{path}.{field}[{name}]", amount)
    for index, row in enumerate(table.pods):
        for name in _COLUMNS[3:]:
            amount = getattr(row, name)
            if amount is not None:
                yield from _amount_faults(f"{path}.pods[{index}].{name}", amount)


def _amount_faults(path: str, amount: Quantity, text: str = "", source: str = "") -> Iterator[Fault]:
    if amount.sign() < 0:
        rule = "must be greater than or equal to 0"
    elif amount.value() < amount.sign():
        rule = f"must be at most {INT64_MAX}"
    else:
        return
    yield Fault(path=path, value=text or str(amount), rule=rule, source=source)


# ---------------------------------------------------------------- CSV


def _csv_rows(file: InputFile) -> tuple[UsageRow, ...]:
    """The rows of a table with a header line.

    Errors: InputError with all faults.
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
                rule = f"{len(cells)} cells, but the header has {len(header)} columns"
                faults.append(Fault(rule=rule, source=place))
                continue
            rows += _row(dict(zip(header, cells, strict=True)), place, faults)
    except csv.Error as error:
        faults.append(Fault(rule=f"not valid CSV: {error}", source=f"{file.source}:{lines.line_num}"))
    if faults:
        raise InputError(faults)
    return tuple(rows)


def _header_faults(header: list[str], source: str) -> Iterator[Fault]:
    if "pod" not in header:
        yield Fault(
            rule=f"the first line must name the columns: pod and some of {_known_columns()}", source=source
        )
    counts = Counter(header)
    for name in header:
        if name not in _COLUMNS:
            yield Fault(
                value=name, rule=f"unknown column; the columns are {_known_columns()}", source=f"{source}:1"
            )
    for name in sorted(name for name, count in counts.items() if count > 1):
        yield Fault(error="Duplicate value", value=name, rule="", source=f"{source}:1")


def _known_columns() -> str:
    return ", ".join(_COLUMNS)


def _row(cells: dict[str, str], place: str, faults: list[Fault]) -> list[UsageRow]:
    values: dict[str, Any] = {}
    faults_before = len(faults)
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
            faults += _amount_faults(name, values[name], text, place)
    if not values["pod"]:
        faults.append(Fault(path="pod", error="Required value", rule="", source=place))
    return [] if len(faults) > faults_before else [UsageRow(**values)]
