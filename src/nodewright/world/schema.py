"""Whether a document has the fields and types that it should have; all that is wrong with it at once."""

import copy
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

from nodewright.model.pressure import NodeCondition
from nodewright.values.instant import Instant, InstantError
from nodewright.values.quantity import QuantityError
from nodewright.values.units import INT64_MAX, INT64_MIN
from nodewright.world.decode import amount
from nodewright.world.errors import Fault

KUBERNETES = "kubernetes-1.36"
NODEWRIGHT = "nodewright-v1alpha1"

Path: TypeAlias = "tuple[Path, str | int] | None"
"""Where we are in a document: the way to the parent, and the key or index there; None at the top."""


def faults_in(document: Any, type_name: str) -> list[Fault]:
    """What keeps the document from being an object of the type: unknown fields, wrong types, bad amounts.

    Nulls count as absent. The faults come in the document's order and name the field, not the file.
    Follows: v1.36, core/v1/types.go and its kin for names and types; unknown fields are refused as by
             `kubectl apply --validate=strict`.

    >>> for fault in faults_in({"spec": {"containers": [{"resorces": {}, "tty": 1}]}}, "Pod"):
    ...     print(fault)
    spec.containers[0].resorces: unknown field; did you mean "resources"?
    spec.containers[0].tty: Invalid value: 1: must be true or false, not a number
    """
    return checked(document, type_name).faults


def checked(document: Any, type_name: str) -> "Checked":
    """The same faults, and what is left of the document without them."""
    found: list[_Found] = []
    _check(document, shape_of(type_name), None, found)
    return Checked(document, found)


@dataclass(frozen=True, slots=True)
class Checked:
    """A document after its check."""

    document: Any
    found: "list[_Found]"

    @property
    def faults(self) -> list[Fault]:
        """What is wrong, in the document's order."""
        return [one.fault for one in self.found]

    def sound_part(self) -> Any:
        """The document with members at fault left out and list items at fault replaced by empty ones.

        It can be decoded, so that the rest of the document can be judged, too.
        """
        copied = copy.deepcopy(self.document) if self.found else self.document
        for one in self.found:
            _leave_out(copied, one)
        return copied


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A type: a plain one (`accepts`, `wanted`), a list or mapping of `item`, or a structure of `fields`."""

    wanted: str
    accepts: frozenset[type] = frozenset()
    """Types of values that need no further look."""
    kind: str = ""
    item: "Shape | None" = None
    fields: Mapping[str, "Shape"] | None = None
    required: tuple[str, ...] = ()
    is_open: bool = False

    def empty(self) -> Any:
        """The value of this type that says least."""
        if self.fields is not None or self.kind == "map":
            return {}
        plain: dict[str, Any] = {
            "bool": False,
            **dict.fromkeys(("int32", "int64", "uint64", "float"), 0),
            "quantity": "0",
            "condition": NodeCondition.MEMORY_PRESSURE.value,
        }
        return plain.get(self.kind, "")


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    fault: Fault
    wanted: Shape | None = None
    """What should be there; None: nothing."""


_PLAIN = {
    "str": Shape("a text", frozenset({str}), "str"),
    "bool": Shape("true or false", frozenset({bool}), "bool"),
    "int32": Shape("a whole number of 32 bits", kind="int32"),
    "int64": Shape("a whole number of 64 bits", kind="int64"),
    "uint64": Shape("a whole number of 64 bits", kind="uint64"),
    "float": Shape("a number", frozenset({int, float}), "float"),
    "intstr": Shape("a whole number or a text", frozenset({str}), "int32"),
    "quantity": Shape("an amount", kind="quantity"),
    "condition": Shape(f"one of {', '.join(NodeCondition)}", kind="condition"),
    "time": Shape("a time such as 2026-01-31T12:00:00Z", kind="time"),
    "any": Shape("anything", frozenset({str, bool, int, float, list, dict}), "any"),
}
_BITS = {"int32": (-(2**31), 2**31 - 1), "int64": (INT64_MIN, INT64_MAX), "uint64": (0, 2**64 - 1)}
_WORDS = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}


def _check(value: Any, shape: Shape, path: Path, found: list[_Found]) -> None:
    if value is None or type(value) in shape.accepts:
        return
    if shape.fields is not None and isinstance(value, dict):
        _check_fields(value, shape, path, found)
    elif shape.kind == "list" and isinstance(value, list):
        _check_items(value, shape, path, found)
    elif shape.kind == "map" and isinstance(value, dict):
        assert shape.item is not None
        for key, item in value.items():
            _check(item, shape.item, (path, f"[{key}]"), found)
    else:
        rule = _plain_rule(value, shape)
        if rule:
            found.append(_at(path, rule, shape, _shown(value)))


def _check_fields(value: dict[str, Any], shape: Shape, path: Path, found: list[_Found]) -> None:
    fields = shape.fields
    assert fields is not None
    for key, item in value.items():
        sub = fields.get(key)
        if sub is None:
            if not shape.is_open and item is not None:
                found.append(_at((path, key), _unknown(key, fields)))
        elif item is not None and type(item) not in sub.accepts:
            _check(item, sub, (path, key), found)
    if shape.required:
        missing = (name for name in shape.required if value.get(name) is None)
        found.extend(_at((path, name), "", error="Required value") for name in missing)


def _check_items(value: list[Any], shape: Shape, path: Path, found: list[_Found]) -> None:
    sub = shape.item
    assert sub is not None
    for index, item in enumerate(value):
        if item is None:
            if sub.kind == "any":
                continue
            found.append(_at((path, index), f"must be {sub.wanted}, not null", sub))
        elif type(item) not in sub.accepts:
            _check(item, sub, (path, index), found)


def _plain_rule(value: Any, shape: Shape) -> str:
    """What the plain value offends against; empty if nothing."""
    if shape.kind in _BITS:
        if type(value) is not int:
            return _not(shape, value)
        least, most = _BITS[shape.kind]
        return "" if least <= value <= most else f"must be {shape.wanted}, {least} to {most}"
    if shape.kind == "quantity":
        if type(value) not in (str, int, float):
            return _not(shape, value)
        try:
            amount(value)
        except QuantityError as error:
            return str(error)
        return ""
    if shape.kind == "condition" and isinstance(value, str):
        return "" if value in set(NodeCondition) else f"must be {shape.wanted}"
    if shape.kind == "time" and isinstance(value, str):
        try:
            Instant.parse(value)
        except InstantError:
            return f"must be {shape.wanted}"
        return ""
    return _not(shape, value)


def _not(shape: Shape, value: Any) -> str:
    rule = f"must be {shape.wanted}, not {_WORDS[type(value)]}"
    if shape.kind == "str" and isinstance(value, bool | int | float):
        return f"{rule}: put it in quotes"
    if shape.kind in ("int32", "int64", "bool") and isinstance(value, str) and _reads_as(value, shape):
        return f"{rule}: take the quotes away"
    return rule


def _reads_as(text: str, shape: Shape) -> bool:
    if shape.kind == "bool":
        return text in ("true", "false")
    return re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) is not None


def _unknown(key: str, fields: Mapping[str, Shape]) -> str:
    lower = {name.lower(): name for name in fields}
    near = difflib.get_close_matches(key.lower(), lower, n=1, cutoff=0.7)
    return f'unknown field; did you mean "{lower[near[0]]}"?' if near else "unknown field"


def _at(
    path: Path, rule: str, wanted: Shape | None = None, value: object = None, *, error: str = ""
) -> _Found:
    return _Found(path, Fault(rule=rule, path=_text(path), value=value, error=error), wanted)


def _shown(value: Any) -> object:
    """The value, where it is short enough to be looked at."""
    return None if isinstance(value, dict | list) and value else value


def _leave_out(document: Any, one: _Found) -> None:
    steps: list[str | int] = []
    path = one.path
    while path is not None:
        path, step = path
        steps.append(step)
    last, *parents = steps
    holder = document
    for step in reversed(parents):
        holder = holder[_key(step, holder)]
    if isinstance(holder, list):
        assert one.wanted is not None
        assert isinstance(last, int)
        holder[last] = one.wanted.empty()
    else:
        holder.pop(_key(last, holder), None)


def _key(step: str | int, holder: Any) -> Any:
    """The key that the step stands for: those of free mappings are written in brackets."""
    if isinstance(step, str) and step not in holder:
        return step[1:-1]
    return step


def _text(path: Path) -> str:
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


@cache
def shape_of(name: str) -> Shape:
    """The type of that name, as the tables have it."""
    return _Tables().shape(name)


class _Tables:
    """The types as their tables describe them. Types may contain themselves, so each is made once."""

    def __init__(self) -> None:
        self._lines = {**_table(KUBERNETES), **_table(NODEWRIGHT)}
        self._made: dict[str, Shape] = dict(_PLAIN)

    def shape(self, name: str) -> Shape:
        if name in self._made:
            return self._made[name]
        if name.startswith("["):
            made = Shape("a list", kind="list", item=self.shape(name[1:-1]))
        elif name.startswith("{"):
            made = Shape("a mapping", kind="map", item=self.shape(name[1:-1]))
        else:
            fields: dict[str, Shape] = {}
            entries = list(self._entries(name))
            named = [entry.split(" ") for entry in entries if entry != "..."]
            made = Shape(
                "a mapping",
                fields=fields,
                required=tuple(field for field, kind in named if kind.endswith("!")),
                is_open="..." in entries,
            )
            self._made[name] = made
            fields.update((field, self.shape(kind.removesuffix("!"))) for field, kind in named)
        self._made[name] = made
        return made

    def _entries(self, name: str) -> Iterator[str]:
        for entry in self._lines[name].split(", "):
            if entry.startswith("+"):
                yield from self._entries(entry[1:])
            else:
                yield entry


def _table(name: str) -> dict[str, str]:
    text = resources.files("nodewright.world").joinpath(f"data/fields/{name}.txt").read_text("utf-8")
    lines = "\n".join(line for line in text.splitlines() if line and not line.startswith("#"))
    entries = (line.partition(": ") for line in re.sub(r"\n\s+", " ", lines).splitlines())
    return {name: fields for name, _, fields in entries}
