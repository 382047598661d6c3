"""What is wrong with a selector, for a person: where, and what was probably meant."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from nodewright.engine.core.claims.cel.checker import parts_of
from nodewright.engine.core.claims.cel.expression import Node
from nodewright.engine.core.claims.cel.functions import functions
from nodewright.engine.core.claims.cel.parser import parse
from nodewright.engine.core.claims.cel.selectors import SelectorDevice
from nodewright.engine.core.claims.cel.source import ExpressionErrors, FatalError

_FIELDS = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_PLACE = re.compile(r"ERROR: <input>:([0-9]+):([0-9]+): (.*)")
_NAME = re.compile(r"(?:undefined field|undeclared reference to) '([^']*)'")
_MISSING = re.compile(r"no such key: (.+)", re.DOTALL)


def explain_selector_error(expression: str, error: str, devices: Sequence[SelectorDevice]) -> str:
    """The place of an error of the compiler or the evaluation, what it is, and a name that is there.

    ``devices``: those that the selector is meant for; their names are the ones to choose from.

    >>> amd = SelectorDevice("gpu.amd.com", {"model": "MI300X"})
    >>> explain_selector_error('device.attributes["gpu.amd.com"].modle == "x"', "no such key: modle", [amd])
    'column 34: the devices have no attribute `modle` in domain gpu.amd.com; did you mean `model` (attribute)?'
    """
    place = _PLACE.search(error)
    if place is not None:
        line, column, message = int(place[1]), int(place[2]), place[3]
        name = _NAME.search(message)
        known = _FIELDS if "undefined field" in message else ("device", *functions())
        close = get_close_matches(name[1], known, n=1) if name else []
        where = f"column {column}" if "\n" not in expression else f"line {line}, column {column}"
        return f"{where}: {message}{f'; did you mean `{close[0]}`?' if close else ''}"
    missing = _MISSING.fullmatch(error)
    if missing is None:
        return error
    return _missing_name(expression, missing[1], devices)


def _missing_name(expression: str, name: str, devices: Sequence[SelectorDevice]) -> str:
    """Which name no device has, and the one that some have."""
    use = re.search(
        rf"""(attributes|capacity)\[\??["']([^"']*)["']\](?:\.\??|\[\??["']){re.escape(name)}\b""", expression
    )
    is_capacity = use is not None and use[1] == "capacity"
    domain = use[2] if use else ""
    kinds: dict[str, str] = {}
    for device in devices:
        for kind, names in (("attribute", device.attributes), ("capacity", device.capacity)):
            for full_name in names:
                owner, slash, identifier = full_name.partition("/")
                if not domain or domain == (owner if slash else device.driver):
                    kinds.setdefault(identifier if slash else full_name, kind)
    column = f"column {use.end() - len(name) + 1}: " if use and "\n" not in expression else ""
    owners = f"in domain {domain}" if domain else "by that name"
    text = f"{column}the devices have no {'capacity' if is_capacity else 'attribute'} `{name}` {owners}"
    meant = name if name in kinds else next(iter(get_close_matches(name, kinds, n=1)), None)
    return f"{text}; did you mean `{meant}` ({kinds[meant]})?" if meant else text


class DeviceName(NamedTuple):
    """The name of an attribute or a capacity in an expression."""

    kind: str
    """`attribute` or `capacity`."""
    domain: str
    name: str
    column: int
    """In the text of the expression, from 1."""
    is_guarded: bool = False
    """Whether the expression is meant for devices without it, too."""


def device_names(expression: str) -> Iterator[DeviceName]:
    """The names that an expression reads directly, like `device.capacity["a.com"].memory`; none of a faulty one.

    >>> list(device_names('device.attributes["a.com"].?model.orValue("") == "b"'))
    [DeviceName(kind='attribute', domain='a.com', name='model', column=29, is_guarded=True)]
    """
    errors = ExpressionErrors(expression)
    try:
        root = parse(expression, errors)
    except FatalError:
        return
    for node, _ in parts_of(root) if not errors else ():
        holder, name, at = _member(node)
        named = _member(holder) if holder is not None else (None, "", 0)
        map_of_device = named[0]
        if (
            map_of_device is not None
            and map_of_device.kind == "select"
            and map_of_device.name in ("attributes", "capacity")
            and map_of_device.target is not None
            and (map_of_device.target.kind, map_of_device.target.name) == ("ident", "device")
        ):
            kind = "capacity" if map_of_device.name == "capacity" else "attribute"
            is_guarded = node.is_test or "?" in node.name
            yield DeviceName(kind, named[1], name, at + 2, is_guarded)


def _member(node: Node) -> tuple[Node | None, str, int]:
    """What a selection or an index by a literal selects from, the name, and the place before the name."""
    if node.kind == "select":
        return node.target, node.name, node.at
    if node.kind == "call" and node.name in ("_[_]", "_[?_]", "_?._"):
        holder, key = node.args
        if isinstance(key.value, str):
            return holder, key.value, key.at - (node.name == "_?._")
    return None, "", 0
