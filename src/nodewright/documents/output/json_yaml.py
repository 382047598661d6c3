"""Reports: structs whose encoding is the JSON output, and the YAML output with the same content.

Strings stay what they are, also names with control characters, so that programs read what stands in the file; characters
that are not printable are written as escapes of the format (kubectl leaves DEL, C1 and bidirectional controls raw).
"""

import sys
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import msgspec
import yaml

from nodewright.documents.formats.kubectl_yaml import NotJSONValueError, resolve
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import needs_quotes, printable_json, printable_text
from nodewright.model.values.duration import Duration
from nodewright.model.values.idset import IdSet
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

_ACRONYMS = {"cpu": "CPU", "cpus": "CPUs", "id": "ID"}


def _report_name(name: str) -> str:
    """The JSON name of a report's field: `shared_cpus` is `sharedCPUs`."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


class Report(msgspec.Struct, frozen=True, kw_only=True, rename=_report_name):
    """A report, or a part of one: its fields are those of the JSON object, in this order.

    A field that is UNSET is absent. Facts and other values are encoded as `plain_value` does; the fields of a fact in
    `merged` stand among those of the report.
    """

    merged: ClassVar[frozenset[str]] = frozenset()
    """Names of fields with a fact."""


class Inlined(Report, frozen=True):
    """A part whose fields stand among those of the report that has it as a field."""


class ReportDocument(Report, frozen=True, kw_only=True):
    """The report of a command; subclasses name their kind."""

    api_version: Literal["nodewright.dev/v1alpha1"] = "nodewright.dev/v1alpha1"
    kind: str

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        counts = ", ".join(f"{name}: {len(value)}" for name, value in values if isinstance(value, tuple))
        return f"<{type(self).__name__}{counts and f' {counts}'}>"


_JSON_TYPES = frozenset({str, int, bool, float})
TEXT_TYPES = (Quantity, IdSet, Duration, Instant, StrEnum)
"""Values that are text in JSON."""


def plain_value(value: Any) -> Any:
    """The value reduced to JSON types: amounts and sets as text, tuples as lists, a pod as a reference."""
    if value is None or type(value) in _JSON_TYPES:
        return value
    if isinstance(value, Report):
        return _report_object(value)
    if isinstance(value, dict | MappingProxyType):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, TEXT_TYPES):
        return str(value)
    if isinstance(value, Pod):
        meta = value.metadata
        return {"namespace": meta.namespace or "default", "name": meta.name, "uid": meta.uid}
    if isinstance(value, msgspec.Struct):
        return fact_document(value)
    return value


def _report_object(report: Report) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, json_name in zip(report.__struct_fields__, report.__struct_encode_fields__, strict=True):
        value = getattr(report, name)
        if isinstance(value, Inlined) or name in report.merged:
            document |= plain_value(value)
        elif value is not msgspec.UNSET:
            document[json_name] = plain_value(value)
    return document


def fact_document(fact: msgspec.Struct) -> dict[str, Any]:
    """A fact as a mapping: its type, then its fields in camel case without those that are None."""
    values = {fact_field_name(name): getattr(fact, name) for name in fact.__struct_fields__}
    return {
        "type": type(fact).__name__,
        **{name: plain_value(value) for name, value in values.items() if value is not None},
    }


def fact_field_name(name: str) -> str:
    """The JSON name of a fact's field, in camel case."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_json(value: Any) -> str:
    """The value as indented JSON with a newline at the end."""
    import json  # noqa: PLC0415 - start-up time

    return printable_json(json.dumps(plain_value(value), indent=2, ensure_ascii=False)) + "\n"


def as_yaml(value: Any) -> str:
    """The value as YAML, keys in insertion order."""
    text = yaml.dump(
        plain_value(value), Dumper=KubectlYAMLDumper, sort_keys=False, allow_unicode=True, width=sys.maxsize
    )
    # What it escapes stands in double quotes, where YAML has the same escapes.
    return printable_text(text)


class KubectlYAMLDumper(yaml.SafeDumper):
    """Quotes strings that kubectl's YAML parser would read as another type: `"n"`, `"1e3"` and `"0o17"`."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = '"' if needs_quotes(value) else None if _stays_text(value) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _stays_text(value: str) -> bool:
    try:
        return isinstance(resolve(value), str)
    except NotJSONValueError:
        return False


KubectlYAMLDumper.add_representer(str, _text)
