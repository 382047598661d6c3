"""The values of CEL: equality, order, look-ups and conversions.

Booleans, integers, floats, texts, bytes and None are Python's; lists are tuples, maps are dicts.

Follows: v1.36, vendor/github.com/google/cel-go/common/types, interpreter/attributes.go (refQualify);
    apiserver/pkg/cel/{quantity,semver,ip,cidr,url,format}.go.
"""

import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import float_text, parse_int, quoted
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import INT64_MAX, INT64_MIN, Quantity, fits_int64

Value: TypeAlias = Any
"""A value of an expression, or a Failure."""
fits = fits_int64


class UInt(int):
    """An unsigned integer."""

    __slots__ = ()


class EvaluationEndedError(Exception):
    """The evaluation is given up; no operator can do without its value."""


class Failure:
    """An evaluation that failed; `&&` and `||` can do without its value."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


class Absent(Failure):
    """A look-up that found nothing."""

    __slots__ = ()


NO_OVERLOAD: Final = Failure("no such overload")


class Maybe(NamedTuple):
    """An optional value."""

    value: Value = None
    is_present: bool = True


NONE: Final = Maybe(is_present=False)


class Sum(Quantity):
    """The result of adding to a quantity, which Kubernetes does not find equal to anything that it is compared with."""

    __slots__ = ()


class DeviceMap(dict[str, Value]):
    """A map of the device; unlike one of the expression it can be asked for keys of any type."""

    __slots__ = ()


class DomainMap(DeviceMap):
    """Attributes or capacities by domain: an unknown domain is an empty map, though it is not `in` it."""

    __slots__ = ()


class Address(NamedTuple):
    """An IP address."""

    address: Any


class Network(NamedTuple):
    """A prefix with all bits of its address."""

    interface: Any


class URL(NamedTuple):
    """A URL as it was written, and its parts."""

    text: str
    parts: Any


class Format(NamedTuple):
    """A named format."""

    name: str
    errors: Callable[[str], list[str]]
    regex_size: int


class TypeValue(NamedTuple):
    """A type, by its name."""

    name: str


class Semver(NamedTuple):
    """A semantic version; parts of the pre-release are (0, number, "") or (1, 0, text)."""

    major: int
    minor: int
    patch: int
    pre: tuple[tuple[int, int, str], ...] = ()

    @property
    def rank(self) -> tuple[Any, ...]:
        """Ordered as versions are: a version comes after its pre-releases."""
        return (*self[:3], not self.pre, self.pre)

    @classmethod
    def parse(cls, text: str) -> "Semver":
        """The version of a text.

        Errors:  ValueError.
        Follows: v1.36, vendor/github.com/blang/semver/v4/semver.go, Parse.
        """
        parts = text.split(".", 2)
        if len(parts) < 3:
            raise ValueError("No Major.Minor.Patch elements found" if text else "Version string empty")
        rest, plus, build = parts[2].partition("+")
        patch, dash, pre = rest.partition("-")
        numbers = [_version_number(*part) for part in zip((*parts[:2], patch), _VERSION_PARTS, strict=True)]
        parsed = [_pre_release(part) for part in pre.split(".")] if dash else []
        for part in build.split(".") if plus else ():
            if not part:
                raise ValueError("Build meta data is empty")
            if part.strip(_ALPHANUMERIC):
                raise ValueError(f"Invalid character(s) found in build meta data {quoted(part)}")
        return cls(numbers[0], numbers[1], numbers[2], tuple(parsed))


_VERSION_PARTS = ("Major number", "Minor number", "Patch number")
_DIGITS = "0123456789"
_ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-" + _DIGITS


def _version_number(text: str, name: str) -> int:
    if text.strip(_DIGITS):
        raise ValueError(f"Invalid character(s) found in {name.lower()} {quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise ValueError(f"{name} must not contain leading zeroes {quoted(text)}")
    if not text or int(text[:30]) >= 2**64:
        problem = "value out of range" if text else "invalid syntax"
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: {problem}")
    return int(text)


def _pre_release(text: str) -> tuple[int, int, str]:
    if not text:
        raise ValueError("Prerelease is empty")
    if text.strip(_ALPHANUMERIC):
        raise ValueError(f"Invalid character(s) found in prerelease {quoted(text)}")
    if text.strip(_DIGITS):
        return (1, 0, text)
    return (0, _version_number(text, "Numeric PreRelease version"), "")


_KINDS: dict[type, tuple[str, str, str]] = {
    bool: ("bool", "types.Bool", ""),
    int: ("int", "types.Int", "unsupported type conversion from 'int' to bool"),
    UInt: ("uint", "types.Uint", "unsupported type conversion from 'uint' to bool"),
    float: ("double", "types.Double", "type conversion error from Double to 'bool'"),
    str: ("string", "types.String", "unsupported native conversion from string to 'bool'"),
    bytes: ("bytes", "types.Bytes", "type conversion error from Bytes to 'bool'"),
    type(None): ("null_type", "types.Null", "type conversion error from 'null_type' to 'bool'"),
    tuple: ("list", "*types.baseList", "type conversion error from list to 'bool'"),
    dict: ("map", "*types.baseMap", "type conversion error from map to 'bool'"),
    DeviceMap: ("map", "*types.baseMap", "type conversion error from map to 'bool'"),
    DomainMap: ("map", "cel.mapper", "type conversion error from map to 'bool'"),
    Maybe: ("optional_type", "*types.Optional", "optional.none() dereference"),
    TypeValue: ("type", "*types.Type", "type conversion not supported for 'type'"),
    Duration: (
        "google.protobuf.Duration",
        "types.Duration",
        "type conversion error from 'Duration' to 'bool'",
    ),
    Instant: (
        "google.protobuf.Timestamp",
        "types.Timestamp",
        "type conversion error from 'Timestamp' to 'bool'",
    ),
    Quantity: ("kubernetes.Quantity", "cel.Quantity", "type conversion error from 'Quantity' to 'bool'"),
    Sum: ("kubernetes.Quantity", "*cel.Quantity", "type conversion error from 'Quantity' to 'bool'"),
    Semver: ("kubernetes.Semver", "cel.Semver", "type conversion error from 'Semver' to 'bool'"),
    Address: ("net.IP", "cel.IP", "type conversion error from 'IP' to 'bool'"),
    Network: ("net.CIDR", "cel.CIDR", "type conversion error from 'CIDR' to 'bool'"),
    URL: ("kubernetes.URL", "cel.URL", "type conversion error from 'URL' to 'bool'"),
    Format: ("kubernetes.NamedFormat", "cel.Format", "type conversion error from 'Format' to 'bool'"),
}
"""How CEL and Go name a kind of values, and why it is no boolean."""
_NUMBERS = frozenset((int, UInt, float))
KUBERNETES = frozenset((Quantity, Sum, Semver, Address, Network, URL, Format))
_COMPARABLE = frozenset((bool, str, bytes, Duration, Instant))
UNHASHABLE = frozenset((bytes, Semver, Format))
"""What Go cannot look up in a set."""


def type_name(value: Value) -> str:
    """CEL's name of the value's type."""
    return _KINDS[type(value)][0]


def go_type_name(value: Value) -> str:
    """Go's name of the value's type."""
    return _KINDS[type(value)][1]


def no_bool_text(value: Value) -> str:
    """Why the value of an expression is no boolean."""
    while type(value) is Maybe and value.is_present:
        value = value.value
    return _KINDS[type(value)][2]


def equal(left: Value, right: Value) -> bool | Failure:
    """Whether two values are equal; values of different types are not."""
    kind, other = type(left), type(right)
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        if other not in _NUMBERS:
            return False
        return float(left) == float(right) if float in (kind, other) else int(left) == int(right)
    if kind in KUBERNETES:
        if other is not (Quantity if kind is Sum else kind):
            return NO_OVERLOAD
        return bool(_identity(left) == _identity(right))
    if kind is tuple:
        return other is tuple and len(left) == len(right) and _all_equal(zip(left, right, strict=True))
    if isinstance(left, dict):
        if not isinstance(right, dict) or left.keys() != right.keys():
            return False
        return _all_equal((value, right[key]) for key, value in left.items())
    if kind is Maybe and other is Maybe and left.is_present and right.is_present:
        return equal(left.value, right.value)
    return bool(kind is other and left == right)


def _all_equal(pairs: Any) -> bool:
    # Values that cannot be compared do not make a list unequal.
    return all(equal(left, right) is not False for left, right in pairs)


def _identity(value: Value) -> Any:
    if type(value) is Semver:
        return value.rank
    return value.name if type(value) is Format else value.text if type(value) is URL else value


def compare(left: Value, right: Value) -> int | Failure:
    """-1, 0 or 1."""
    kind, other = type(left), type(right)
    numbers = [value for value in (left, right) if kind in _NUMBERS and type(value) is float]
    if any(map(math.isnan, numbers)):
        return Failure("NaN values cannot be ordered")
    if kind in _NUMBERS and other in _NUMBERS:
        if numbers:
            left, right = float(left), float(right)
    elif kind is not other or kind not in _COMPARABLE:
        return NO_OVERLOAD
    return int(left > right) - int(left < right)


def is_in(value: Value, container: Value) -> bool | Failure:
    """Whether a list holds an equal value, or a map the key."""
    if isinstance(container, dict):
        return _in_dict(container, value) is not _MISSING
    if type(container) is not tuple:
        return NO_OVERLOAD
    return any(equal(value, item) is True for item in container)


_MISSING: Final = object()
_KEYS = frozenset((str, int, UInt, bool, float))


def _in_dict(container: dict[Any, Value], key: Value) -> Any:
    if container and type(container) is dict:
        hashable(key)
    # True and 1 are one key for Python.
    if type(key) not in _KEYS or (
        container and (type(key) is bool) is not (type(next(iter(container))) is bool)
    ):
        return _MISSING
    return container.get(key, _MISSING)


def hashable(key: Value) -> Value:
    """The value, if Go can look it up.

    Errors: EvaluationEndedError.
    """
    if type(key) in UNHASHABLE:
        raise EvaluationEndedError(
            f"internal error: runtime error: hash of unhashable type {go_type_name(key)}"
        )
    return key


def look_up(container: Value, key: Value) -> Value:
    """The value at a key or index; Absent where there is none."""
    kind = type(key)
    if problem := qualifier_problem(key):
        return Failure(problem)
    if isinstance(container, dict):
        item = _in_dict(container, key)
        if item is not _MISSING:
            return item
        if type(container) is DomainMap:
            return DeviceMap()
    elif type(container) is tuple:
        if kind in (str, bool):
            return Failure(f"unsupported index type '{type_name(key)}' in list")
        if not (key.is_integer() and INT64_MIN < key < 2.0**63 if kind is float else fits(key)):
            return Failure(f"unsupported index value {text_of(key)} in list")
        return (
            container[int(key)]
            if 0 <= key < len(container)
            else Absent(f"index out of bounds: {text_of(key)}")
        )
    return Absent(f"no such key: {text_of(key)}")


def qualifier_problem(key: Value) -> str:
    """Why a value is no key or index; empty if it is one."""
    return "" if type(key) in _KEYS else f"invalid qualifier type: {go_type_name(key)}"


def text_of(value: Value) -> str:
    """A simple value as Go prints it with `%v`."""
    if type(value) is bool:
        return "true" if value else "false"
    return double_text(value) if type(value) is float else str(value)


def size_of(value: Value) -> int | None:
    """How many characters, elements or bytes a value has; None: it has no size."""
    kind = type(value)
    if kind in (str, tuple, bytes) or isinstance(value, dict):
        return len(value)
    if kind is Address:
        return int(value.address.max_prefixlen // 8)
    return -(-int(value.interface.network.prefixlen) // 8) if kind is Network else None


# ---------------------------------------------------------------- arithmetic

_RANGES: dict[type, tuple[int, int, str]] = {
    int: (INT64_MIN, INT64_MAX, "integer overflow"),
    UInt: (0, 2**64 - 1, "unsigned integer overflow"),
    Duration: (INT64_MIN, INT64_MAX, "integer overflow"),
    Instant: (-62135596800 * 10**9, 253402300800 * 10**9 - 1, "timestamp overflow"),
}


def ranged(kind: Any, number: int) -> Value:
    """The value of this kind, or why there is none."""
    lowest, highest, message = _RANGES[kind]
    return kind(number) if lowest <= number <= highest else Failure(message)


def arithmetic(name: str, left: Value, right: Value) -> Value:
    """The result of an operator for numbers of one kind; integers do not wrap."""
    kind = type(left)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind is float:
        return _FLOATS[name](left, right)
    if name in "/%" and right == 0:
        return Failure("division by zero" if name == "/" else "modulus by zero")
    if (name, left, right) == ("%", INT64_MIN, -1):
        return Failure("integer overflow")
    return ranged(kind, _INTEGERS[name](int(left), int(right)))


def _quotient(left: float, right: float) -> float:
    if right or not left or left != left:  # noqa: PLR0124 - the test for "not a number"
        return left / right if right else math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
}
_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _truncated,
    "%": lambda left, right: left - right * _truncated(left, right),
}


def add(left: Value, right: Value) -> Value:
    """The sum of numbers, texts, bytes, lists, durations, or a timestamp and a duration."""
    kind, other = type(left), type(right)
    if kind is list and other is tuple:
        left.extend(right)
        return left
    if kind is other and kind in (str, bytes, tuple):
        return left + right
    if {kind, other} in ({Duration}, {Duration, Instant}):
        return ranged(Instant if Instant in (kind, other) else Duration, left.nanoseconds + right.nanoseconds)
    return arithmetic("+", left, right) if kind in _NUMBERS else NO_OVERLOAD


def subtract(left: Value, right: Value) -> Value:
    """The difference of numbers, durations or timestamps."""
    kind, other = type(left), type(right)
    if kind in (Duration, Instant) and other in (Duration, kind):
        return ranged(Duration if kind is other else kind, left.nanoseconds - right.nanoseconds)
    return arithmetic("-", left, right) if kind in _NUMBERS else NO_OVERLOAD


# ---------------------------------------------------------------- conversions


def convert(value: Value, target: str) -> Value:
    """The value as another type, by the name of the type."""
    source = type_name(value)
    if source == target:
        return value
    conversion = _CONVERSIONS.get((source, target))
    try:
        result = conversion(value) if conversion else None
    except (ValueError, DurationError, InstantError):
        result = None
    return Failure(f"type conversion error from '{source}' to '{target}'") if result is None else result


def _parsed_uint(text: str) -> UInt | None:
    if not re.fullmatch(r"[0-9]+", text, re.ASCII) or len(text.lstrip("0")) > 20:
        return None
    return UInt(text) if int(text) < 2**64 else None


def _parsed_double(text: str) -> float | None:
    if re.fullmatch(r"[+-]?(?:inf(?:inity)?)|nan", text, re.IGNORECASE | re.ASCII):
        return float(text)
    match = _DOUBLE.fullmatch(text)
    try:
        number = float.fromhex(text.replace("_", "")) if match and match["hex"] else float(text)
    except OverflowError:
        return None
    return number if match and math.isfinite(number) else None


_DIGIT_ROW, _HEX_ROW = "[0-9](?:_?[0-9])*", "[0-9a-f](?:_?[0-9a-f])*"
_DOUBLE = re.compile(
    rf"[+-]?(?:(?P<hex>0x(?:_?{_HEX_ROW}\.?(?:{_HEX_ROW})?|\.{_HEX_ROW})p[+-]?{_DIGIT_ROW})"
    rf"|(?:{_DIGIT_ROW}\.?(?:{_DIGIT_ROW})?|\.{_DIGIT_ROW})(?:e[+-]?{_DIGIT_ROW})?)",
    re.IGNORECASE | re.ASCII,
)


def plain_text(number: float) -> str:
    """The shortest decimal of a float, without exponent."""
    return f"{Decimal(repr(number)).normalize():f}" if math.isfinite(number) else float_text(number)


def double_text(number: float) -> str:
    """A float as Go prints it with `%g`: the shortest digits, with an exponent from 1e+06."""
    if not math.isfinite(number):
        return float_text(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    point = len(digits) + int(exponent) - 1
    if not number or -4 <= point < 6:
        return plain_text(number)
    fraction = "." + "".join(map(str, digits[1:])) if len(digits) > 1 else ""
    return f"{'-' * sign}{digits[0]}{fraction}e{point:+03d}"


def _bytes_text(value: bytes) -> Value:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Failure("invalid UTF-8 in bytes, cannot convert to string")


_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True)
_BOOLEANS |= dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False)
_CONVERSIONS: dict[tuple[str, str], Callable[[Any], Value]] = {
    ("string", "int"): parse_int,
    ("string", "uint"): _parsed_uint,
    ("string", "double"): _parsed_double,
    ("string", "bool"): _BOOLEANS.get,
    ("string", "bytes"): str.encode,
    ("string", "google.protobuf.Duration"): Duration.parse,
    ("string", "google.protobuf.Timestamp"): lambda text: ranged(Instant, Instant.parse(text).nanoseconds),
    ("int", "uint"): lambda number: ranged(UInt, number),
    ("int", "double"): float,
    ("int", "string"): str,
    ("int", "google.protobuf.Timestamp"): lambda number: ranged(Instant, number * 10**9),
    ("uint", "int"): lambda number: ranged(int, int(number)),
    ("uint", "double"): float,
    ("uint", "string"): lambda number: str(int(number)),
    ("double", "int"): lambda number: (
        int(number) if INT64_MIN < number < 2.0**63 else Failure("integer overflow")
    ),
    ("double", "uint"): lambda number: (
        UInt(number) if 0 <= number < 2.0**64 else Failure("unsigned integer overflow")
    ),
    ("double", "string"): double_text,
    ("bool", "string"): text_of,
    ("bytes", "string"): _bytes_text,
    ("google.protobuf.Duration", "string"): lambda duration: plain_text(duration.nanoseconds / 10**9) + "s",
    ("google.protobuf.Duration", "int"): lambda duration: duration.nanoseconds,
    ("google.protobuf.Timestamp", "string"): str,
    ("google.protobuf.Timestamp", "int"): lambda instant: instant.nanoseconds // 10**9,
    ("net.IP", "string"): lambda ip: str(ip.address),
    ("net.CIDR", "string"): lambda cidr: str(cidr.interface),
}
