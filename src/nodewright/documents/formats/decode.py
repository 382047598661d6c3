"""Decodes plain documents, as JSON and YAML parsers return them, into objects."""

import copy
import os
import re
from _thread import allocate_lock
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, TypeAlias, TypeVar

import msgspec

from nodewright.documents.formats.kubectl_yaml import number_text
from nodewright.model.errors import ENCODING_ERRORS, Fault, unsupported_value
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import TAINT_EFFECTS, Taint
from nodewright.model.values.bounded_cache import cached_texts
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import INT64_MAX, INT64_MIN, Quantity, QuantityError

T = TypeVar("T")
_CONTAINERS = frozenset({dict, list})


def decode(document: Any, kind: type[T]) -> T:
    """The document as an object of that kind; nulls count as absent, unknown fields are ignored.

    Errors: msgspec.ValidationError at the first fault. User input is checked before, with all its
        faults at once (`schema`).
    """
    return msgspec.convert(without_nulls(document), examined(kind), dec_hook=_decode_custom_type)


def decoding_fault(error: Exception) -> Fault:
    """What `decode` refused, with its path.

    >>> str(decoding_fault(msgspec.ValidationError("Expected `object`, got `int` - at `$.status`")))
    'status: Expected `object`, got `int`'
    """
    rule, _, path = str(error).partition(" - at `$.")
    return Fault(path=path.rstrip("`"), rule=rule)


_EXAMINATION = allocate_lock()
_EXAMINED: set[Any] = set()


def examined(kind: type[T]) -> type[T]:
    """The kind, after msgspec has examined its fields, in one thread at a time.

    msgspec examines a kind at its first use. Another thread that uses it meanwhile finds it half examined and ends the
    process with SIGSEGV.
    """
    if kind not in _EXAMINED:
        with _EXAMINATION:
            msgspec.json.Decoder(kind)
        _EXAMINED.add(kind)
    return kind


def _may_have_nulls(document: Any) -> bool:
    """Whether a null may be in the document: to write it as JSON takes a fifth of the time of a copy."""
    try:
        return b"null" in msgspec.json.encode(document)
    except ENCODING_ERRORS:
        return True


def decode_json(content: bytes, kind: type[T]) -> T:
    """The JSON as an object of that kind; otherwise as `decode`.

    Errors: msgspec.DecodeError.
    """
    try:
        return msgspec.json.decode(content, type=examined(kind), dec_hook=_decode_custom_type)
    except msgspec.ValidationError:  # As of a null that means "absent".
        return decode(msgspec.json.decode(content), kind)


def without_nulls(document: Any) -> Any:
    """The document without its null members, which mean "absent" in Kubernetes; itself if it has none."""
    return _without_nulls(document) if _may_have_nulls(document) else document


def _without_nulls(document: Any) -> Any:
    # Most values are scalars: checking the type here is cheaper than a call for each.
    if isinstance(document, dict):
        return {
            key: _without_nulls(value) if type(value) in _CONTAINERS else value
            for key, value in document.items()
            if value is not None
        }
    if isinstance(document, list):
        return [_without_nulls(item) if type(item) in _CONTAINERS else item for item in document]
    return document


def parse_quantity(value: str | float) -> Quantity:
    """The quantity in a document; surrounding blanks are ignored.

    Errors:  QuantityError.
    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.UnmarshalJSON.
    """
    return Quantity.parse(value.strip() if isinstance(value, str) else number_text(value))


def _decode_custom_type(kind: type, value: Any) -> Any:
    if kind is Instant:
        if not isinstance(value, str):
            raise InstantError(f"a time is a string, not {value!r}")
        return _instant(value)
    if kind is Quantity:
        if isinstance(value, str):
            return _quantity(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise QuantityError(f"a quantity is a string or a number, not {value!r}")
        return parse_quantity(value)
    raise NotImplementedError(kind)


# Both are immutable, and objects have many equal ones.
_instant = cached_texts(4096)(Instant.parse)
_quantity = cached_texts(4096)(parse_quantity)


KUBERNETES = "kubernetes-1.36"
NODEWRIGHT = "nodewright-v1alpha1"

Path: TypeAlias = "tuple[Path, str | int] | None"
"""A path in a document: the parent's path, and the key or index in the parent; None at the top."""


def schema_faults(document: Any, type_name: str) -> list[Fault]:
    """The schema faults of the document: unknown fields, wrong types, invalid quantities.

    Nulls count as absent in structures, and as empty values in mappings, as when Kubernetes decodes them. The faults
    are in the document's order and name the field, not the file.
    Follows: v1.36, core/v1/types.go and its kin for names and types; unknown fields are refused as by
             `kubectl apply --validate=strict`.

    >>> for fault in schema_faults({"spec": {"containers": [{"resorces": {}, "tty": 1}]}}, "Pod"):
    ...     print(fault)
    spec.containers[0].resorces: unknown field; did you mean "resources"?
    spec.containers[0].tty: Invalid value: 1: must be true or false, not a number
    """
    return checked(document, type_name).faults


def taint_faults(taints: Iterable[Taint]) -> Iterator[Fault]:
    """The taints of a node with an effect that there is not."""
    for index, taint in enumerate(taints):
        yield from unsupported_value(f"spec.taints[{index}].effect", taint.effect, TAINT_EFFECTS)


def type_faults(document: Any, type_name: str) -> list[Fault]:
    """The faults of a document that another release may have written: wrong types, but no unknown fields.

    >>> [str(fault) for fault in type_faults({"new": 1, "volumes": [{"name": "a", "secret": 5}]}, "PodSpec")]
    ['volumes[0].secret: Invalid value: 5: must be a mapping, not a number']
    """
    located_faults = checked(document, type_name).located_faults
    return [located.fault for located in located_faults if located.expected is not None]


def checked(document: Any, type_name: str) -> "CheckedDocument":
    """The document with its schema faults."""
    findings = _Findings()
    _check(document, schema_type(type_name), None, findings)
    return CheckedDocument(document, findings.faults, findings.replacements)


class CheckedDocument(msgspec.Struct, frozen=True):
    """A document, the schema faults in it, and what stands for null members of mappings and for quantities of bytes."""

    document: Any
    located_faults: "list[_SchemaFault]"
    replacements: "list[tuple[Path, Any]]"

    @property
    def faults(self) -> list[Fault]:
        """The faults, in the document's order."""
        return [located.fault for located in self.located_faults]

    def valid_part(self) -> Any:
        """The document without faulty members, and with empty values in place of faulty list items.

        It can be decoded, so that the rest of the document can be validated, too. A null in a mapping is an empty value
        there: `requests: {memory: null}` requests 0 bytes. A quantity where bytes are counted is their number.
        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.UnmarshalJSON.
        """
        if not self.located_faults and not self.replacements:
            return self.document
        valid_document = copy.deepcopy(self.document)
        for path, value in self.replacements:
            _put(valid_document, path, value)
        for fault in self.located_faults:
            _remove(valid_document, fault)
        return valid_document


class SchemaType(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A type: a scalar (`accepts`, `expected`), a list or mapping of `item`, or a structure of `fields`."""

    expected: str
    accepts: frozenset[type] = frozenset()
    """Python types of values that need no further check."""
    kind: str = ""
    item: "SchemaType | None" = None
    type_names: Mapping[str, str] | None = None
    """The names of the types of a structure's fields."""
    required: tuple[str, ...] = ()
    is_open: bool = False

    @cached_property
    def fields(self) -> Mapping[str, "SchemaType"] | None:
        """The types of a structure's fields, described when a document has such a structure."""
        names = self.type_names
        return None if names is None else {field: schema_type(name) for field, name in names.items()}

    def empty_value(self) -> Any:
        """The emptiest value of this type."""
        if self.fields is not None or self.kind == "map":
            return {}
        plain: dict[str, Any] = {
            "bool": False,
            **dict.fromkeys(("int32", "int64", "uint64", "float", *UNIT_BYTES), 0),
            "quantity": "0",
            "condition": NodeCondition.MEMORY_PRESSURE.value,
        }
        return plain.get(self.kind, "")


class _SchemaFault(msgspec.Struct, frozen=True):
    path: Path
    fault: Fault
    expected: SchemaType | None = None
    """The type that the value should have; None where no value is allowed."""


class _Findings(msgspec.Struct, eq=False):
    """What is collected while a document is checked."""

    faults: list[_SchemaFault] = []
    replacements: list[tuple[Path, Any]] = []


_SCALARS = {
    "str": SchemaType("a string", frozenset({str}), "str"),
    "bool": SchemaType("true or false", frozenset({bool}), "bool"),
    "int32": SchemaType("a 32-bit integer", kind="int32"),
    "int64": SchemaType("a 64-bit integer", kind="int64"),
    "uint64": SchemaType("a 64-bit integer", kind="uint64"),
    "bytes": SchemaType("a number of bytes or a quantity such as 128Gi", kind="bytes"),
    "kibibytes": SchemaType("a number of KiB or a quantity such as 2Mi", kind="kibibytes"),
    "float": SchemaType("a number", frozenset({int, float}), "float"),
    "intstr": SchemaType("an integer or a string", frozenset({str}), "int32"),
    "quantity": SchemaType("a quantity", kind="quantity"),
    "condition": SchemaType(f"one of {', '.join(NodeCondition)}", kind="condition"),
    "time": SchemaType("a time such as 2026-01-31T12:00:00Z", kind="time"),
    "any": SchemaType("anything", frozenset({str, bool, int, float, list, dict}), "any"),
}
UNIT_BYTES = {"bytes": 1, "kibibytes": 1024}
"""The kinds of integers that may be written as quantities, and the bytes of their units."""
INTEGER_BOUNDS = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (INT64_MIN, INT64_MAX),
    "uint64": (0, 2**64 - 1),
    **dict.fromkeys(UNIT_BYTES, (INT64_MIN, INT64_MAX)),
}
"""The least and the largest number of each kind of integer."""
_TYPE_TEXTS = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}


def _check(value: Any, schema: SchemaType, path: Path, findings: _Findings) -> None:
    if value is None or type(value) in schema.accepts:
        return
    if schema.fields is not None and isinstance(value, dict):
        _check_fields(value, schema, path, findings)
    elif schema.kind == "list" and isinstance(value, list):
        _check_items(value, schema, path, findings)
    elif schema.kind == "map" and isinstance(value, dict):
        item_schema = schema.item
        assert item_schema is not None
        for key, item in value.items():
            if type(item) in item_schema.accepts:
                continue
            if item is not None:
                _check(item, item_schema, (path, f"[{key}]"), findings)
            elif item_schema.kind in ("str", "quantity"):
                findings.replacements.append(((path, f"[{key}]"), item_schema.empty_value()))
    elif schema.kind in UNIT_BYTES and isinstance(value, str):
        amount = _whole_number(value)
        if amount is None:
            findings.faults.append(_schema_fault(path, f"must be {schema.expected}", schema, value))
        else:
            findings.replacements.append((path, amount // UNIT_BYTES[schema.kind]))
    else:
        rule = _scalar_rule(value, schema)
        if rule:
            findings.faults.append(_schema_fault(path, rule, schema, _shown(value)))


def _whole_number(text: str) -> int | None:
    """The number of a quantity; None: it is none, or not a whole 64-bit number."""
    try:
        quantity = _quantity(text)
    except QuantityError:
        return None
    # Beyond 10**21 an amount is stored with less than it was.
    return None if abs(quantity.as_fraction()) > INT64_MAX else quantity.as_stored().as_int64()


def _check_fields(value: dict[str, Any], schema: SchemaType, path: Path, findings: _Findings) -> None:
    fields = schema.fields
    assert fields is not None
    for key, item in value.items():
        field_schema = fields.get(key)
        if field_schema is None:
            if not schema.is_open or (key.lower() in _MEANT_IN_MACHINES and "num_cores" in fields):
                findings.faults.append(_schema_fault((path, key), _unknown(key, fields)))
        elif item is None or type(item) in field_schema.accepts:
            continue
        elif field_schema.fields is not None and type(item) is dict:
            _check_fields(item, field_schema, (path, key), findings)
        else:
            _check(item, field_schema, (path, key), findings)
    if schema.required:
        missing = (name for name in schema.required if value.get(name) is None)
        findings.faults.extend(_schema_fault((path, name), "", error="Required value") for name in missing)


def _check_items(value: list[Any], schema: SchemaType, path: Path, findings: _Findings) -> None:
    item_schema = schema.item
    assert item_schema is not None
    for index, item in enumerate(value):
        if item is None and item_schema.kind != "any":
            findings.faults.append(
                _schema_fault((path, index), f"must be {item_schema.expected}, not null", item_schema)
            )
        elif item_schema.fields is not None and type(item) is dict:
            _check_fields(item, item_schema, (path, index), findings)
        elif type(item) not in item_schema.accepts:
            _check(item, item_schema, (path, index), findings)


def _scalar_rule(value: Any, schema: SchemaType) -> str:
    """The rule that the scalar violates; empty if none."""
    if schema.kind in INTEGER_BOUNDS:
        if type(value) is not int:
            return _wrong_type(schema, value)
        low, high = INTEGER_BOUNDS[schema.kind]
        return "" if low <= value <= high else f"must be {schema.expected}, {low} to {high}"
    if schema.kind == "quantity":
        if type(value) not in (str, int, float):
            return _wrong_type(schema, value)
        try:
            _quantity(value)
        except QuantityError as error:
            return str(error)
        return ""
    if schema.kind == "condition" and isinstance(value, str):
        return "" if value in set(NodeCondition) else f"must be {schema.expected}"
    if schema.kind == "time" and isinstance(value, str):
        try:
            _instant(value)
        except InstantError:
            return f"must be {schema.expected}"
        return ""
    return _wrong_type(schema, value)


def _wrong_type(schema: SchemaType, value: Any) -> str:
    rule = f"must be {schema.expected}, not {_TYPE_TEXTS[type(value)]}"
    if schema.kind == "str" and isinstance(value, bool | int | float):
        return f"{rule}: put it in quotes"
    if schema.kind in ("int32", "int64", "bool") and isinstance(value, str) and _reads_as(value, schema):
        return f"{rule}: remove the quotes"
    return rule


def _reads_as(text: str, schema: SchemaType) -> bool:
    if schema.kind == "bool":
        return text in ("true", "false")
    return re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) is not None


def _unknown(key: str, fields: Mapping[str, SchemaType]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - start-up time

    is_machine, is_profile = "num_cores" in fields, "machineInfo" in fields
    if (field := _MEANT_IN_MACHINES.get(key.lower())) and (is_machine or is_profile):
        return f'unknown field; did you mean "{"machineInfo." if is_profile else ""}{field}"? {_SHAPES}'
    if is_profile and (field := _MEANT_IN_PROFILES.get(key.lower())):
        return f'unknown field; did you mean "{field}"?'
    name_of_lower = {name.lower(): name for name in fields}
    matches = get_close_matches(key.lower(), name_of_lower, n=1, cutoff=0.7)
    return f'unknown field; did you mean "{name_of_lower[matches[0]]}"?' if matches else "unknown field"


_SHAPES = "`nodewright node capture --shape 1x2x8x2 --memory 128Gi` writes a whole machine"
_MEANT_IN_MACHINES = {
    **dict.fromkeys(("cpu", "cpus", "cores", "threads"), "num_cores"),
    **dict.fromkeys(("memory", "ram"), "memory_capacity"),
    **dict.fromkeys(("sockets", "socket"), "num_sockets"),
    **dict.fromkeys(("numa", "numanodes", "shape"), "topology"),
}
"""The fields that are meant by others, in lower case, that machines do not have."""
_MEANT_IN_PROFILES = {
    **dict.fromkeys(("topology", "capacity", "machine"), "machineInfo"),
    **dict.fromkeys(("disk", "storage", "ephemeral-storage", "ephemeralstorage"), "rootFsCapacity"),
    **dict.fromkeys(("gpu", "gpus"), "devices"),
    **dict.fromkeys(("kubelet", "config", "kubeletconfig"), "kubeletConfiguration"),
    **dict.fromkeys(("version", "release"), "kubernetesVersion"),
    "swap": "swapBytes",
}
"""The same of the spec of a NodeProfile."""


def _schema_fault(
    path: Path, rule: str, expected: SchemaType | None = None, value: object = None, *, error: str = ""
) -> _SchemaFault:
    return _SchemaFault(path, Fault(rule=rule, path=_path_text(path), value=value, error=error), expected)


def _shown(value: Any) -> object:
    """The value, if it is short enough for a message."""
    return None if isinstance(value, dict | list) and value else value


def _remove(document: Any, fault: _SchemaFault) -> None:
    holder, last = _holder(document, fault.path)
    if isinstance(holder, list):
        assert fault.expected is not None
        assert isinstance(last, int)
        holder[last] = fault.expected.empty_value()
    else:
        holder.pop(_key(last, holder), None)


def _put(document: Any, path: Path, value: Any) -> None:
    holder, last = _holder(document, path)
    holder[_key(last, holder)] = value


def _holder(document: Any, path: Path) -> tuple[Any, str | int]:
    """The list or mapping that the path leads to, and the last step."""
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    last, *parents = steps
    holder = document
    for step in reversed(parents):
        holder = holder[_key(step, holder)]
    return holder, last


def _key(step: str | int, holder: Any) -> Any:
    """The key that the step stands for: keys of mappings are written in brackets."""
    if isinstance(step, str) and step not in holder:
        return step[1:-1]
    return step


def _path_text(path: Path) -> str:
    """The path as Kubernetes writes it, e.g. `spec.containers[0].resources.requests[cpu]`."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        if isinstance(step, int):
            steps.append(f"[{step}]")
        elif step.startswith("["):
            steps.append(step)
        else:
            steps.append(f"[{step}]" if "." in step or "[" in step else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


# ------------------------------------------------------------ reading the tables


def schema_type(name: str) -> SchemaType:
    """The type of that name in the schema tables."""
    return _tables().type_named(name)


@cache
def _tables() -> "_SchemaTables":
    return _SchemaTables()


class _SchemaTables:
    """The types that the tables describe: each is created once, when a document is compared with what contains it."""

    def __init__(self) -> None:
        self._lines = {**table_lines(KUBERNETES), **table_lines(NODEWRIGHT)}
        self._types: dict[str, SchemaType] = dict(_SCALARS)

    def type_named(self, name: str) -> SchemaType:
        schema = self._types.get(name)
        if schema is None:
            schema = self._types[name] = self._described(name)
        return schema

    def _described(self, name: str) -> SchemaType:
        if name.startswith("["):
            return SchemaType("a list", kind="list", item=self.type_named(name[1:-1]))
        if name.startswith("{"):
            return SchemaType("a mapping", kind="map", item=self.type_named(name[1:-1]))
        entries = list(self._entries(name))
        names = dict(entry.split(" ") for entry in entries if entry != "...")
        return SchemaType(
            "a mapping",
            type_names={field: kind.removesuffix("!") for field, kind in names.items()},
            required=tuple(field for field, kind in names.items() if kind.endswith("!")),
            is_open="..." in entries,
        )

    def _entries(self, name: str) -> Iterator[str]:
        for entry in self._lines[name].split(", "):
            if entry.startswith("+"):
                yield from self._entries(entry[1:])
            else:
                yield entry


def table_lines(name: str) -> dict[str, str]:
    """The names and fields of the types in a table, as its file has them."""
    # importlib.resources and pathlib take long to import.
    path = os.path.join(os.path.dirname(__file__), "data", "fields", f"{name}.txt")  # noqa: PTH118, PTH120 - above
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - above
        text = file.read()
    lines = "\n".join(line for line in text.splitlines() if line and not line.startswith("#"))
    entries = (line.partition(": ") for line in re.sub(r"\n\s+", " ", lines).splitlines())
    return {name: fields for name, _, fields in entries}
