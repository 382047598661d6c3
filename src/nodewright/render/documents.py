"""Answers as documents: JSON and YAML, the same content in both."""

import json
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

import msgspec
import yaml

from nodewright.model.objects import Pod
from nodewright.values.duration import Duration
from nodewright.values.idset import IdSet
from nodewright.values.instant import Instant
from nodewright.values.quantity import Quantity
from nodewright.world.scalars import NotJSON, resolve


def plain(value: Any) -> Any:
    """The value with amounts and sets as text, tuples as lists: what JSON and YAML can hold."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Quantity | IdSet | Duration | Instant | StrEnum):
        return str(value)
    if isinstance(value, Pod):
        meta = value.metadata
        return {"namespace": meta.namespace or "default", "name": meta.name, "uid": meta.uid}
    if isinstance(value, msgspec.Struct) or (is_dataclass(value) and not isinstance(value, type)):
        return fact_document(value)
    return value


def fact_document(fact: Any) -> dict[str, Any]:
    """A fact with its numbers: its type, then its fields by name in camel case, without those that are None."""
    names = (
        fact.__struct_fields__ if isinstance(fact, msgspec.Struct) else [each.name for each in fields(fact)]
    )
    values = {_camel(name): getattr(fact, name) for name in names}
    return {
        "type": type(fact).__name__,
        **{name: plain(value) for name, value in values.items() if value is not None},
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_json(value: Any) -> str:
    """The value as indented JSON with a newline at the end."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n"


def as_yaml(value: Any) -> str:
    """The value as YAML, keys in the order given."""
    return str(yaml.dump(plain(value), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000))


_BREAKS = frozenset("\x85\u2028\u2029")


class Dumper(yaml.SafeDumper):
    """Writes text so that whoever reads as kubectl does reads text again: `"n"`, `"1e3"` and `"0o17"` with quotes."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = None if _stays_text(value) else "'"
    # Such ends of lines are blanks within other quotes.
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style='"' if _BREAKS & set(value) else style
    )


def _stays_text(value: str) -> bool:
    try:
        return isinstance(resolve(value), str)
    except NotJSON:
        return False


Dumper.add_representer(str, _text)
