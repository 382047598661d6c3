"""The functions of selectors: their overloads, what they compute and what they cost.

Follows: v1.36, vendor/github.com/google/cel-go/common/stdlib/standard.go, cel/library.go, interpreter/runtimecost.go,
    ext/{strings,lists,sets,comprehensions}.go; apiserver/pkg/cel/library/*.go.
Departs: the functions of authorizers are undeclared; timestamps are printed in UTC; names of time zones other than UTC
    are unknown, because their rules are files of the machine. Maps of the expression compare keys that are lists, maps or
    quantities by value, Kubernetes by address; where its compiler panics (a literal map with keys of bytes), the selector
    does not compile.
"""

import math
import re
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from nodewright.engine.core.claims.cel import kubernetes_libraries as kube
from nodewright.engine.core.claims.cel import libraries as lib
from nodewright.engine.core.claims.cel import values
from nodewright.engine.core.claims.cel.types import Type, parse_types
from nodewright.engine.core.claims.cel.values import NONE, Failure, Maybe, UInt, Value, size_of
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity, wrap_int64

Cost = Callable[[list[Value], Value], int]


class Overload(NamedTuple):
    """A signature of a function, and what a call costs if no other overload is possible."""

    is_member: bool
    args: tuple[Type, ...]
    result: Type
    parameters: frozenset[Type]
    cost: Cost


class Function(NamedTuple):
    """A function."""

    name: str
    overloads: tuple[Overload, ...]
    implementation: Callable[..., Value]
    operands: frozenset[type] | None
    """The types of first arguments that it is tried on; None: arguments are checked against the overloads."""
    is_checked: bool
    cost: Cost


_SIGNATURE = re.compile(r"(?:<(.*?)>)?(\.?)\((.*?)\) (.*?)(?: @(\w+))?")
_SIGNATURES = """
_?_:_ = (bool, A, A) A
_&&_ _||_ = (bool, bool) bool
_==_ _!=_ = (A, A) bool
!_ @not_strictly_false = (bool) bool
_+_ = <int uint double duration>(T, T) T | <bytes string>(T, T) T @concat | (list(A), list(A)) list(A)\
 | (timestamp, duration) timestamp | (duration, timestamp) timestamp
_-_ = <int uint double duration>(T, T) T | (timestamp, duration) timestamp | (timestamp, timestamp) duration
_*_ _/_ = <double int uint>(T, T) T
_%_ = <int uint>(T, T) T
-_ = <double int>(T) T
_<_ _<=_ _>_ _>=_ = <int uint double>(T, int) bool | <int uint double>(T, uint) bool | <int uint double>(T, double) bool\
 | <bool timestamp duration>(T, T) bool | <string bytes>(T, T) bool @compare
_[_] = (list(A), int) A | (map(A, B), A) B | (optional(list(V)), int) optional(V) | (optional(map(K, V)), K) optional(V)
_[?_] = (list(V), int) optional(V) | (map(K, V), K) optional(V) | (optional(list(V)), int) optional(V)\
 | (optional(map(K, V)), K) optional(V)
_?._ = (dyn, string) optional(V)
@in = (A, list(A)) bool @in_list | (A, map(A, B)) bool
size = <bytes string list(A) map(A,B)>(T) int | <bytes string list(A) map(A,B)>.(T) int
type = (A) type(A)
dyn = (A) dyn
bool = <bool string>(T) bool
bytes = (bytes) bytes | (string) bytes @traverse
double = <double int string uint>(T) double
duration = <duration int string>(T) duration
int = <int double duration string timestamp uint>(T) int
string = <string bool double duration int timestamp uint ip cidr>(T) string | (bytes) string @traverse
timestamp = <timestamp int string>(T) timestamp
uint = <uint double int string>(T) uint
getFullYear getMonth getDayOfYear getDayOfMonth getDate getDayOfWeek = .(timestamp) int | .(timestamp, string) int
getHours getMinutes getSeconds getMilliseconds = .(timestamp) int | .(timestamp, string) int | .(duration) int
optional.of optional.ofNonZeroValue = (V) optional(V)
optional.none = () optional(V)
value = .(optional(V)) V
hasValue = .(optional(V)) bool
or = .(optional(V), optional(V)) optional(V)
orValue = .(optional(V), V) V
last first = .(list(V)) optional(V)
optional.unwrap = (list(optional(V))) list(V)
unwrapOpt = .(list(optional(V))) list(V)
includes = .(dyn, dyn) bool
cel.@mapInsert = (map(K, V), K, V) map(K, V) | (map(K, V), map(K, V)) map(K, V)
contains = .(string, string) bool @contains
endsWith startsWith = .(string, string) bool ~ traverse
matches = (string, string) bool | .(string, string) bool @regex
find = .(string, string) string ~ regex
findAll = .(string, string) list(string) | .(string, string, int) list(string) ~ regex
charAt = .(string, int) string
indexOf lastIndexOf = .(string, string) int | .(string, string, int) int | .(list(A), A) int ~ elements
lowerAscii upperAscii trim = .(string) string ~ traverse
replace = .(string, string, string) string | .(string, string, string, int) string ~ twice
split = .(string, string) list(string) | .(string, string, int) list(string) ~ twice
substring = .(string, int) string | .(string, int, int) string ~ traverse
format = .(string, list(dyn)) string ~ traverse
strings.quote = (string) string ~ traverse
join = .(list(string)) string | .(list(string), string) string ~ joined
slice = .(list(E), int, int) list(E) ~ output
flatten = .(list(list(E))) list(E) @flatten | .(list(dyn), int) list(dyn) @flatten
sort = <int uint double bool duration timestamp string bytes>.(list(T)) list(T) @self
@sortByAssociatedKeys = <int uint double bool duration timestamp string bytes>.(list(E), list(T)) list(E) @self_keys
lists.range = (int) list(int) ~ output
reverse = .(list(E)) list(E) ~ output
distinct = .(list(E)) list(E) ~ self
isSorted = <int uint double bool duration timestamp string bytes>.(list(T)) bool ~ elements
sum = <int uint double duration>.(list(T)) T ~ elements
max min = <int uint double bool duration timestamp string bytes>.(list(T)) T ~ elements
sets.contains sets.intersects = (list(E), list(E)) bool ~ sets
sets.equivalent = (list(E), list(E)) bool ~ sets_twice
quantity = (string) quantity ~ traverse
isQuantity isIP isCIDR = (string) bool ~ traverse
sign = (quantity) int
isGreaterThan isLessThan = <quantity semver>.(T, T) bool
compareTo = <quantity semver>.(T, T) int
asApproximateFloat = .(quantity) double
asInteger = .(quantity) int
isInteger = .(quantity) bool
add sub = <quantity int>.(quantity, T) quantity
semver = (string) semver | (string, bool) semver ~ traverse
isSemver = (string) bool | (string, bool) bool ~ traverse
major minor patch = .(semver) int
url = (string) url ~ traverse
isURL = (string) bool
getScheme getHost getHostname getPort getEscapedPath = .(url) string
getQuery = .(url) map(string, list(string))
ip = (string) ip | .(cidr) ip @one ~ traverse
ip.isCanonical = (string) bool ~ twice
isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast = .(ip) bool
family = .(ip) int
cidr = (string) cidr ~ traverse
containsIP = .(cidr, string) bool @ip_text | .(cidr, ip) bool ~ ip
containsCIDR = .(cidr, string) bool @cidr_text | .(cidr, cidr) bool ~ cidr
prefixLength = .(cidr) int
masked = .(cidr) cidr
format.named = (string) optional(format)
validate = .(format, string) optional(list(string)) ~ validation
"""
"""A line for functions: names, overloads, and behind ~ the cost; that of a single overload stands behind its @."""
_NUMBERS = frozenset((int, UInt, float))
_TIMES = frozenset((Duration, Instant))
_OPERANDS: dict[str, frozenset[type]] = {
    "_+_": _NUMBERS | _TIMES | {str, bytes, tuple, list},
    "_-_": _NUMBERS | _TIMES,
    **dict.fromkeys(("_*_", "_/_"), _NUMBERS),
    "_%_": _NUMBERS - {float},
    "-_": frozenset((bool, int, float, Duration)),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _NUMBERS | _TIMES | {bool, str, bytes}),
    "size": frozenset((str, bytes, tuple, dict, values.DeviceMap, values.DomainMap)),
    "matches": frozenset((str,)),
    **dict.fromkeys(("sort", "@sortByAssociatedKeys"), frozenset((tuple,))),
}
_OPEN = frozenset(("!_", "@in", "type", "dyn", "contains", "endsWith", "startsWith", "flatten"))


def _compared(*accepted: int) -> Callable[[Value, Value], Value]:
    def compared(left: Value, right: Value) -> Value:
        order = values.compare(left, right)
        return order if isinstance(order, Failure) else order in accepted

    return compared


def _unwrapped(items: tuple[Maybe, ...]) -> Value:
    return tuple(item.value for item in items if item.is_present)


def _holds(items: Value, part: Value) -> bool:
    return all(values.is_in(item, items) is True for item in part)


_IMPLEMENTATIONS: dict[str, Callable[..., Value]] = {
    "!_": lambda value: not value if type(value) is bool else values.NO_OVERLOAD,
    "_+_": values.add, "_-_": values.subtract, "-_": lib.negate, "@in": values.is_in, "size": len,
    **{f"_{name}_": partial(values.arithmetic, name) for name in "*/%"},
    "_<_": _compared(-1), "_<=_": _compared(-1, 0), "_>_": _compared(1), "_>=_": _compared(0, 1),
    "type": lambda value: values.TypeValue(values.type_name(value)),
    "dyn": lambda value: value,
    **{
        name: partial(values.convert, target=str(parse_types(name)[0]))
        for name in ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint")
    },
    **{name: partial(kube.time_part, name) for name in kube.TIME_PARTS},
    "optional.of": Maybe, "optional.ofNonZeroValue": lib.of_non_zero, "optional.none": lambda: NONE,
    "value": lib.optional_value, "hasValue": lambda optional: optional.is_present,
    "last": lambda items: Maybe(items[-1]) if items else NONE,
    "first": lambda items: Maybe(items[0]) if items else NONE,
    "optional.unwrap": _unwrapped, "unwrapOpt": _unwrapped,
    "includes": lib.includes, "cel.@mapInsert": lib.map_insert,
    "contains": lib.text_test(str.__contains__),
    "endsWith": lib.text_test(str.endswith), "startsWith": lib.text_test(str.startswith),
    "matches": lib.matches, "find": lib.find, "findAll": lib.find_all,
    "charAt": lib.char_at, "indexOf": lib.index_of, "lastIndexOf": lib.last_index_of,
    "lowerAscii": lambda text: text.translate(lib.TO_LOWER), "upperAscii": lambda text: text.translate(lib.TO_UPPER),
    "replace": lambda text, old, new, limit=-1: text.replace(old, new, max(limit, -1)),
    "split": lib.split, "substring": lib.substring, "trim": lambda text: text.strip(lib.WHITESPACE),
    "format": lib.formatted, "strings.quote": lib.quote, "join": lib.join,
    "slice": lib.list_slice, "flatten": lib.flatten, "distinct": lib.distinct, "sum": lib.total,
    "sort": lambda items: lib.sort_by(items, items), "@sortByAssociatedKeys": lib.sort_by,
    "lists.range": lambda count: tuple(range(min(max(count, 0), 1_000_001))),  # one more than can be paid for
    "reverse": lambda items: items[::-1],
    "isSorted": lambda items: not any(values.compare(left, right) == 1 for left, right in pairwise(items)),
    "max": partial(lib.extreme, "max", -1), "min": partial(lib.extreme, "min", 1),
    "sets.contains": _holds, "sets.equivalent": lambda left, right: _holds(left, right) and _holds(right, left),
    "sets.intersects": lambda left, right: any(values.is_in(item, right) is True for item in left),
    "quantity": Quantity.parse, "isQuantity": lib.parses(Quantity.parse), "sign": Quantity.sign,
    "isGreaterThan": lambda left, right: kube.order(left, right) > 0,
    "isLessThan": lambda left, right: kube.order(left, right) < 0, "compareTo": kube.order,
    "asApproximateFloat": Quantity.approximate_float, "asInteger": kube.as_integer,
    "isInteger": lambda amount: amount.as_int64() is not None,
    "add": partial(kube.add_quantity, 1), "sub": partial(kube.add_quantity, -1),
    "semver": kube.semver, "isSemver": lib.parses(kube.semver),
    "major": lambda version: wrap_int64(version.major), "minor": lambda version: wrap_int64(version.minor),
    "patch": lambda version: wrap_int64(version.patch),
    "url": kube.url, "isURL": lib.parses(kube.url), **kube.URL_PARTS,
    "ip": kube.ip, "isIP": lib.parses(kube.ip), "ip.isCanonical": lambda text: str(kube.ip(text).address) == text,
    **kube.ADDRESS_TESTS, "family": lambda ip: ip.address.version,
    "cidr": kube.cidr, "isCIDR": lib.parses(kube.cidr), "masked": kube.masked,
    "containsIP": kube.contains_ip, "containsCIDR": kube.contains_cidr,
    "prefixLength": lambda network: network.interface.network.prefixlen,
    "format.named": lambda name: Maybe(kube.FORMATS[name]) if name in kube.FORMATS else NONE,
    "validate": kube.validate,
}  # fmt: skip
"""What computes a function; the others are planned."""


@cache
def functions() -> dict[str, Function]:
    """All functions by name, made when they are needed first."""
    table = {
        name: _function(name, "() format", lambda named=named: named) for name, named in kube.FORMATS.items()
    }
    table = {f"format.{name}": function for name, function in table.items()}
    for line in _SIGNATURES.strip().splitlines():
        names, _, signatures = line.partition(" = ")
        for name in names.split():
            table[name] = _function(name, signatures, _IMPLEMENTATIONS.get(name, lib.no_overload))
    return table


def _function(name: str, text: str, implementation: Callable[..., Value]) -> Function:
    signatures, _, cost = text.partition(" ~ ")
    overloads = []
    for signature in signatures.split(" | "):
        match = _SIGNATURE.fullmatch(signature)
        assert match is not None, signature
        kinds, member, args, result, own_cost = match.groups()
        for kind in (kinds or "T").split():
            texts = [re.sub(r"\bT\b", kind, part) for part in (args, result)]
            parameters = frozenset[Type](re.findall(r"\b[A-Z]\b", " ".join(texts)))
            parts = tuple(parse_types(texts[0])), parse_types(texts[1])[0]
            overloads.append(Overload(bool(member), *parts, parameters, _COSTS[own_cost or cost]))
    operands = _OPERANDS.get(name)
    is_checked = operands is None and name not in _OPEN
    return Function(name, tuple(overloads), implementation, operands, is_checked, _COSTS[cost])


def receives(value: Value) -> bool:
    """Whether values of this type answer to functions that are not made for them, if only with an error."""
    return type(value) in (str, Duration, Instant)


# ---------------------------------------------------------------- costs


def _size(value: Value) -> int:
    if type(value) is Maybe and value.is_present:
        return _size(value.value)
    size = size_of(value)
    return 1 if size is None else size


def _tenth(size: float) -> int:
    return math.ceil(size * 0.1)


def _self_compared(items: Value) -> int:
    items = items if type(items) is tuple else ()
    factor = 2.1 if items and type(items[0]) in (str, bytes) else 2.0
    return int(len(items) ** 2 * factor) + 11


def _elements(value: Value) -> int:
    if isinstance(value, str | bytes):
        return int(len(value if isinstance(value, bytes) else value.encode()) * 0.1)
    if isinstance(value, dict):
        return sum(_elements(key) + _elements(item) for key, item in value.items())
    return sum(map(_elements, value)) if type(value) is tuple else 1


def _contains_cidr(args: list[Value]) -> int:
    return _tenth(2 * _size(args[0])) + _tenth(_size(args[0])) + 1


def _flattened(size: int) -> int:
    # Kubernetes makes an unsigned number of a float that may be negative.
    return (max(-(2**63), min(size, 2**63)) + 11) % 2**64


def _regex(text: Value, size: int) -> int:
    return _tenth(1.0 + _size(text)) * math.ceil(size * 0.25)


_COSTS: dict[str, Cost] = {
    **dict.fromkeys(("", "one"), lambda _, __: 1),
    "compare": lambda args, _: _tenth(min(_size(args[0]), _size(args[1]))),
    "traverse": lambda args, _: _tenth(_size(args[0])),
    "twice": lambda args, _: _tenth(_size(args[0]) * 2),
    "in_list": lambda args, _: _size(args[1]),
    "concat": lambda args, _: _tenth(_size(args[0]) + _size(args[1])),
    "regex": lambda args, _: _regex(args[0], _size(args[1])),
    "contains": lambda args, _: _tenth(_size(args[0])) * _tenth(_size(args[1])),
    "output": lambda _, result: _size(result) + 11,
    "flatten": lambda args, _: _flattened(
        _size(args[0]) * (args[1] if args[1:] and type(args[1]) is int else 1)
    ),
    "self": lambda args, _: _self_compared(args[0]),
    "self_keys": lambda args, _: _self_compared(args[1]),
    "sets": lambda args, _: 1 + _size(args[0]) * _size(args[1]),
    "sets_twice": lambda args, _: 1 + 2 * _size(args[0]) * _size(args[1]),
    "elements": lambda args, _: _elements(args[0]),
    "joined": lambda _, result: math.ceil(_size(result) * 0.2),
    "ip": lambda args, _: _tenth(2 * _size(args[0])),
    "ip_text": lambda args, _: _tenth(2 * _size(args[0])) + _tenth(_size(args[1])),
    "cidr": lambda args, _: _contains_cidr(args),
    "cidr_text": lambda args, _: _contains_cidr(args) + _tenth(_size(args[1])),
    "validation": lambda args, _: (
        _regex(args[1], args[0].regex_size) if type(args[0]) is values.Format else 1
    ),
}


def equality_cost(left: Value, right: Value) -> int:
    """What comparing two values costs."""
    return 1 if type(left) in values.KUBERNETES else _tenth(min(_size(left), _size(right)))
