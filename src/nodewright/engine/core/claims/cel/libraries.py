"""What the functions of selectors compute; a ValueError is the text of an evaluation that fails.

Follows: v1.36, vendor/github.com/google/cel-go/ext/{strings,formatting,lists,sets}.go, common/stdlib/standard.go;
    apiserver/pkg/cel/library/*.go.
"""

import math
import re
from collections.abc import Callable
from functools import cmp_to_key
from itertools import count
from typing import Any

from nodewright.engine.core.claims.cel import values
from nodewright.engine.core.claims.cel.regex import compiled
from nodewright.engine.core.claims.cel.values import (
    NO_OVERLOAD,
    NONE,
    Failure,
    Maybe,
    Value,
    equal,
)
from nodewright.model.values.duration import Duration
from nodewright.model.values.golang import quoted
from nodewright.model.values.instant import ZERO_TIME, Instant
from nodewright.model.values.quantity import fits_int64

TO_LOWER = {code: code + 32 for code in range(65, 91)}
TO_UPPER = {code: code - 32 for code in range(97, 123)}
WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def no_overload(*_: Value) -> Value:
    """The failure of a function that has no implementation for selectors."""
    return NO_OVERLOAD


def unwrap(value: Value) -> Value:
    """The value of something that may have failed.

    Errors: ValueError.
    """
    if isinstance(value, Failure):
        raise ValueError(value.message)  # noqa: TRY004 - the message is an evaluation's
    return value


def parses(parse: Callable[..., Value]) -> Callable[..., bool]:
    """Whether a text can be parsed."""

    def is_parsed(*args: Value) -> bool:
        try:
            return not isinstance(parse(*args), Failure)
        except ValueError:
            return False

    return is_parsed


def negate(value: Value) -> Value:
    """The number with the other sign."""
    if type(value) in (bool, float):
        return NO_OVERLOAD if type(value) is bool else -value
    return values.ranged(type(value), -(value.nanoseconds if type(value) is Duration else value))


# ---------------------------------------------------------------- strings


def text_test(test: Callable[[str, str], bool]) -> Callable[[Value, Value], Value]:
    """A test of two texts that fails for other values."""
    return lambda text, part: test(text, part) if type(text) is type(part) is str else NO_OVERLOAD


def matches(text: str, pattern: Value) -> Value:
    """Whether a pattern is found in the text."""
    return compiled(pattern).find(text) is not None if type(pattern) is str else NO_OVERLOAD


def find(text: str, pattern: str) -> Value:
    """What a pattern finds first in the text, or an empty text."""
    span = _pattern(pattern).find(text)
    return text[span[0] : span[1]] if span else ""


def find_all(text: str, pattern: str, limit: int = -1) -> Value:
    """All that a pattern finds."""
    return tuple(text[start:end] for start, end in _pattern(pattern).find_all(text, limit))


def _pattern(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except ValueError as error:
        raise ValueError(f"Illegal regex: {error}") from None


def _in_range(index: int, size: float = math.inf) -> int:
    if not 0 <= index <= size:
        raise ValueError(f"index out of range: {index}")
    return index


def char_at(text: str, index: int) -> str:
    """The character at an index, or an empty text at the end."""
    return text[_in_range(index, len(text)) :][:1]


def substring(text: str, start: int, end: int | None = None) -> str:
    """The part of a text."""
    if end is not None and start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    return text[_in_range(start, len(text)) : None if end is None else _in_range(end, len(text))]


def index_of(where: Value, item: Value, offset: int = 0) -> int:
    """Where an element or a part comes first, or -1."""
    if type(where) is tuple:
        return next((index for index, other in enumerate(where) if equal(other, item) is True), -1)
    if not item:
        return offset
    return int(where.find(item, offset)) if _in_range(offset) < len(where) else -1


def last_index_of(where: Value, item: Value, offset: int | None = None) -> int:
    """Where an element or a part comes last, or -1."""
    if type(where) is tuple:
        index = index_of(where[::-1], item)
        return len(where) - 1 - index if index >= 0 else -1
    if not item:
        return len(where) if offset is None else offset
    if offset is None:
        return int(where.rfind(item))
    return int(where.rfind(item, 0, offset + len(item))) if _in_range(offset) < len(where) else -1


def split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    """The parts of a text."""
    if limit == 0:
        return ()
    if separator:
        return tuple(text.split(separator, limit - 1 if limit > 0 else -1))
    count = len(text) if limit < 0 else min(limit, len(text))
    return (*text[: count - 1], text[count - 1 :]) if count else ()


def join(items: tuple[Value, ...], separator: str = "") -> str:
    """The texts of a list as one."""
    for item in items:
        if type(item) is not str:
            raise ValueError(f"join: invalid input: {values.text_of(item)}")
    return separator.join(items)


def quote(text: str) -> str:
    """The text in double quotes, with escapes."""
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'


_ESCAPES = dict(zip('\a\b\f\n\r\t\v\\"', (r"\a \b \f \n \r \t \v \\ " + r"\"").split(), strict=True))


# ---------------------------------------------------------------- format

_INTEGERS = "int uint"
_MORE_TYPES = "ints, doubles, maps, lists, types, durations, and timestamps"
FORMATS = {
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": ("double string", "fixed-point clause can only be used on doubles"),
    "e": ("double string", "scientific clause can only be used on doubles"),
    "b": (f"{_INTEGERS} bool", "only integers and bools can be formatted as binary"),
    "x": (f"{_INTEGERS} string bytes", "only integers, byte buffers, and strings can be formatted as hex"),
    "o": (_INTEGERS, "octal clause can only be used on integers"),
    "s": (
        f"{_INTEGERS} list map double bool string google.protobuf.Timestamp bytes google.protobuf.Duration type null_type",
        f"string clause can only be used on strings, bools, bytes, {_MORE_TYPES}",
    ),
}
_CLAUSE = re.compile(r"%(?:%|(\.[0-9]*)?(.?))", re.DOTALL)
_MOST_PRECISION, _MOST_DIGITS = 10**6, 25
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def formatted(text: str, items: tuple[Value, ...]) -> str:
    """The text with values in it."""
    return interpolated(
        text, len(items), lambda letter, precision, number: _clause(letter, precision, items[number])
    )


def interpolated(
    text: str, size: int, clause: Callable[[str, str, int], str], *, is_literal: bool = False
) -> str:
    """The text with what `clause` makes of a letter, its precision and the number of its value.

    Errors: ValueError.
    """
    numbers = count()

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        number, (precision, letter) = next(numbers), match.groups(default="")
        problems = [f"index {number} out of range"] * (number >= size)
        problems += ["unexpected end of string"] * (match[0] == "%")
        problem = problems[-is_literal] if problems else _clause_problem(precision, letter)
        if problem:
            raise ValueError(problem)
        return clause(letter, precision[1:], number)

    result, used = _CLAUSE.sub(replacement, text), next(numbers)
    if used < size:
        raise ValueError(f"too many arguments supplied to string.format (expected {used}, got {size})")
    return result


def _clause_problem(precision: str, letter: str) -> str:
    digits, problem = precision[1:], ""
    if precision and not letter:
        problem = "error while parsing precision: could not find end of precision specifier"
    elif precision and not fits_int64(int(digits[:_MOST_DIGITS] or 2**63)):
        error = "value out of range" if digits else "invalid syntax"
        conversion = f'strconv.Atoi: parsing "{digits}": {error}'
        problem = f"error while parsing precision: error while converting precision to integer: {conversion}"
    elif letter.replace("X", "x") not in FORMATS:
        problem = f'unrecognized formatting clause "{chr(letter.encode()[0])}"'
    return problem and f"could not parse formatting clause: {problem}"


def _clause(letter: str, precision: str, value: Value) -> str:
    kind, lower = values.type_name(value), letter.lower()
    kinds, problem = FORMATS[lower]
    is_word = value in ("NaN", "Infinity", "-Infinity") if kind == "string" and lower in "fe" else True
    if kind not in kinds.split() or not is_word:
        raise ValueError(f"error during formatting: {problem}, was given {kind}")
    if lower == "s":
        try:
            return _shown(value, is_nested=False)
        except ValueError as error:
            raise ValueError(f"error during formatting: {error}") from None
    if lower in "fe":
        number, digits = float(value), min(int(precision or 6), _MOST_PRECISION)
        if lower == "f" and math.isfinite(number):
            return f"{number:,.{digits}f}"
        mantissa, _, exponent = f"{number:.6e}".partition("e")
        shown = {"nan": "NaN", "inf": "∞", "-inf": "-∞"}.get(mantissa)
        shown = shown or f"{mantissa}\N{MULTIPLICATION SIGN}10{exponent.lstrip('+').translate(_SUPERSCRIPTS)}"
        # What is written as the number of digits is the width.
        return shown.rjust(digits if lower == "e" else 0)
    if kind in ("string", "bytes"):
        shown = str((value.encode() if kind == "string" else value).hex())
        return shown.upper() if letter == "X" else shown
    return format(int(value), letter)


def _shown(value: Value, *, is_nested: bool = True) -> str:
    kind, name = type(value), values.type_name(value)
    if kind is tuple:
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        for key in value:
            if type(key) not in (str, bool, int, values.UInt):
                raise ValueError(f"no formatting function for map key of type {values.type_name(key)}")
        pairs = sorted((_shown(key), _shown(item)) for key, item in value.items())
        return f"{{{', '.join(f'{key}:{item}' for key, item in pairs)}}}"
    if name not in FORMATS["s"][0].split():
        raise ValueError(f"no formatting function for {name}")
    if kind is float and is_nested:
        return f"{value:.6f}" if math.isfinite(value) else quoted(values.text_of(value))
    if value is None or kind is values.TypeValue:
        return value.name if value else "null"
    text = values.convert(value, "string")
    if isinstance(text, Failure):
        raise ValueError(f"could not convert argument {quoted(text.message)} to string")  # noqa: TRY004 - an evaluation's
    if not is_nested or kind in (int, values.UInt, bool):
        return str(text)
    prefix = {bytes: "b", Duration: "duration(", Instant: "timestamp("}.get(kind, "")
    return f"{prefix}{quoted(text)}{')' * prefix.endswith('(')}"


# ---------------------------------------------------------------- lists and maps


def list_slice(items: tuple[Value, ...], start: int, end: int) -> Value:
    """A part of a list."""
    problem = "negative indexes not supported" if min(start, end) < 0 else ""
    if start > end:
        problem = problem or "start index must be less than or equal to end index"
    if end > len(items):
        problem = problem or f"list is length {len(items)}"
    if problem:
        raise ValueError(f"cannot slice({start}, {end}), {problem}")
    return items[start:end]


def flatten(items: Value, depth: Value = 1) -> Value:
    """The elements of the lists in a list."""
    if type(items) is not tuple or type(depth) is not int:
        arg = "" if depth == 1 else values.type_name(depth)
        raise ValueError(f"no such overload: {values.type_name(items)}.flatten({arg})")
    if depth < 0:
        raise ValueError("level must be non-negative")
    level = items
    for _ in range(depth):
        if not any(type(item) is tuple for item in level):
            break
        level = tuple(part for item in level for part in (item if type(item) is tuple else (item,)))
    return level


def sort_by(items: tuple[Value, ...], keys: tuple[Value, ...]) -> Value:
    """The list in the order of keys."""
    if len(items) != len(keys):
        raise ValueError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got "
            f"{len(items)} and {len(keys)} elements respectively"
        )
    if keys and isinstance(values.compare(keys[0], keys[0]), Failure) and type(keys[0]) is not float:
        raise ValueError("list elements must be comparable")
    if len(set(map(type, keys))) > 1:
        raise ValueError("list elements must have the same type")
    order: Callable[[Any], Any] = cmp_to_key(lambda left, right: unwrap(values.compare(left, right)))
    numbers = sorted(range(len(keys)), key=lambda number: order(keys[number]))
    return tuple(items[number] for number in numbers)


def distinct(items: tuple[Value, ...]) -> Value:
    """The list without repetitions."""
    seen: list[Value] = []
    for item in items:
        if not any(equal(item, other) is True for other in seen):
            seen.append(item)
    return tuple(seen)


def total(items: tuple[Value, ...]) -> Value:
    """The sum of a list; 0 for an empty one."""
    result = items[0] if items else 0
    for item in items[1:]:
        result = values.add(result, item)
        if isinstance(result, Failure):
            return NO_OVERLOAD if result is NO_OVERLOAD else result
    return result


def extreme(name: str, better: int, items: tuple[Value, ...]) -> Value:
    """The largest or smallest element."""
    if not items:
        raise ValueError(f"{name} called on empty list")
    result = items[0]
    for item in items[1:]:
        result = item if unwrap(values.compare(result, item)) == better else result
    return result


def map_insert(target: dict[Value, Value], *entry: Value) -> Value:
    """The map with a key and value, or with those of another map."""
    added = entry[0] if len(entry) == 1 else {entry[0]: entry[1]}
    for key in added:
        if values.is_in(key, target) is True:
            raise ValueError(f"insert failed: key {values.text_of(key)} already exists")
    target.update(added)
    return target


MOST_INCLUDED = 48
"""Elements of a list that `includes` looks at."""


def includes(target: Value, item: Value) -> Value:
    """Whether a list holds the value, or is the value.

    Follows: v1.36, dynamic-resource-allocation/cel/compile.go, includesFunc.
    """
    if type(target) is not tuple:
        return equal(target, item) is True
    if any(equal(other, item) is True for other in target[:MOST_INCLUDED]):
        return True
    if len(target) > MOST_INCLUDED:
        raise ValueError(f"'includes' function cannot be applied to lists longer than {MOST_INCLUDED} values")
    return False


# ---------------------------------------------------------------- optionals


def of_non_zero(value: Value) -> Maybe:
    """An optional of the value, or none for zero and what is empty."""
    kinds = (bool, int, float, str, bytes, tuple, dict, type(None))
    is_zero = (isinstance(value, kinds) and not value) or value in (Duration(0), ZERO_TIME)
    return NONE if is_zero else Maybe(value)


def optional_value(optional: Maybe) -> Value:
    """The value of an optional."""
    if not optional.is_present:
        raise ValueError("optional.none() dereference")
    return optional.value
