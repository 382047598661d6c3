"""Bytes that people bring, as plain documents: YAML or JSON, whatever the encoding mark says."""

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nodewright.world.errors import Fault, InputError
from nodewright.world.scalars import whole_if_it_is
from nodewright.world.yaml import MAX_DEPTH, MAX_YAML_BYTES, Document, read_documents

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark its own begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_JSON_BLANKS = " \t\r\n"
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def parse_documents(content: bytes, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[Document]:
    """The documents in the bytes that are not empty, from JSON where it is JSON, else from YAML.

    Follows: v1.36, apimachinery/pkg/util/yaml/decoder.go, YAMLOrJSONDecoder: what starts with a brace is
             tried as JSON first.
    Departs: duplicate keys are errors in both.
    Errors:  InputError with the faults found: encoding, syntax, duplicate keys, nesting, size.
    """
    text = decode_text(content, source)
    if text.lstrip(_JSON_BLANKS)[:1] != "{":
        return read_documents(text, source, max_bytes=max_bytes)
    try:
        return _json_documents(text, source)
    except _NotJSONError as error:
        if len(text) > max_bytes:
            raise InputError([error.fault]) from None
        return read_documents(text, source, max_bytes=max_bytes)


def decode_text(content: bytes, source: str) -> str:
    """The text of the bytes, by their encoding mark; UTF-8 without one.

    Errors: InputError naming the first byte that stands for nothing.
    """
    encoding, start = "utf-8", 0
    for mark, name in _MARKS:
        if content.startswith(mark):
            encoding, start = name, len(mark)
            break
    try:
        return content[start:].decode(encoding)
    except UnicodeDecodeError as error:
        rule = f"no {encoding.upper()} text: {error.reason} at byte {start + error.start}"
        raise InputError([Fault(rule=rule, source=source)]) from None


class _NotJSONError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def _json_documents(text: str, source: str) -> list[Document]:
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.extend(key for key, count in counts.items() if count > 1)
        return found

    decoder = json.JSONDecoder(object_pairs_hook=members, parse_float=_number, parse_constant=_no_constant)
    halves = _HALF_CHARACTER.search(text) is not None
    found: list[Document] = []
    end = _skip(text, 0)
    while end < len(text):
        line = text.count("\n", 0, end) + 1
        try:
            value, end = decoder.raw_decode(text, end)
        except json.JSONDecodeError as error:
            place = f"{source}:{error.lineno}:{error.colno}"
            raise _NotJSONError(Fault(rule=f"no JSON: {error.msg}", source=place)) from None
        except _NotFiniteError as error:
            raise _NotJSONError(Fault(rule=f"no JSON: {error}", source=source)) from None
        except ValueError:  # Python's own bound on the digits of an integer
            raise InputError([Fault(rule="a number has too many digits", source=source)]) from None
        except RecursionError:
            raise InputError([_too_deep(source)]) from None
        if _deeper_than(value, MAX_DEPTH):
            raise InputError([_too_deep(source)])
        found.append(Document(_whole_characters(value) if halves else value, len(found) + 1, line))
        end = _skip(text, end)
    if repeated:
        raise InputError(_twice(text, source, repeated))
    return found


def _twice(text: str, source: str, keys: list[str]) -> Sequence[Fault]:
    """The faults of keys that were given twice; with their places, if the text can be read as YAML."""
    try:
        read_documents(text, source)
    except InputError as error:
        if len(error.faults) == len(keys):
            return error.faults
    return [Fault(rule=f'the key "{key}" is given twice', value=key, source=source) for key in keys]


def _whole_characters(value: Any) -> Any:
    """The value with what is half of a UTF-16 pair replaced, as Go does."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_characters(item) for item in value]
    return value


def _too_deep(source: str) -> Fault:
    return Fault(rule=f"nested more than {MAX_DEPTH} levels deep", source=source)


def _skip(text: str, start: int) -> int:
    while start < len(text) and text[start] in _JSON_BLANKS:
        start += 1
    return start


class _NotFiniteError(Exception):
    pass


def _number(text: str) -> int | float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFiniteError(f"{text} is too large a number")
    return whole_if_it_is(value)


def _no_constant(name: str) -> None:
    raise _NotFiniteError(f"{name} is no value")


def _deeper_than(value: Any, most: int) -> bool:
    """Whether containers nest deeper; level by level, so that no depth can hurt."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
