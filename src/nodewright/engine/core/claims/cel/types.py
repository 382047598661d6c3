"""CEL's types: how they are written, which one may stand for another, and what type parameters come to mean.

Simple types are their names; others are tuples of a name and types. Type parameters begin with `_` or are one letter.

Follows: v1.36, vendor/github.com/google/cel-go/checker/{types,format,mapping}.go.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

Type: TypeAlias = str | tuple[Any, ...]
DYN, ANY, ERROR = "dyn", "google.protobuf.Any", "!error!"
_SHORT = {
    "any": ANY,
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "quantity": "kubernetes.Quantity",
    "semver": "kubernetes.Semver",
    "url": "kubernetes.URL",
    "format": "kubernetes.NamedFormat",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "optional": "optional_type",
    **{
        name: f"kubernetes.authorization.{name}"
        for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
    },
}
_IN_ERRORS = {
    ANY: "any",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
    "null_type": "null",
}
_NEVER_NULL = frozenset(("bool", "int", "uint", "double", "string", "bytes", "type"))


def parse_types(text: str) -> list[Type]:
    """The types of a list such as `list(A), int`."""
    return list(_parsed(iter(re.findall(r"[^\s,()]+|[()]", text))))


def _parsed(words: Iterator[str]) -> Iterator[Type]:
    pending: Type | None = None
    for word in words:
        if word == "(":
            pending = (pending, *_parsed(words))
        elif word == ")":
            break
        else:
            if pending is not None:
                yield pending
            pending = _SHORT.get(word, word)
    if pending is not None:
        yield pending


def type_text(kind: Type, *, in_error: bool = False) -> str:
    """A type as it is named, with other words in messages of the compiler."""
    if isinstance(kind, str):
        return _IN_ERRORS.get(kind, kind) if in_error else kind
    return f"{kind[0]}({', '.join(type_text(part, in_error=in_error) for part in kind[1:])})"


def is_parameter(kind: Type) -> bool:
    """Whether it stands for any type."""
    return isinstance(kind, str) and (kind[0] == "_" or len(kind) == 1)


def is_dyn(kind: Type) -> bool:
    """Whether it is known only when the expression is evaluated."""
    return kind in (DYN, ANY)


def unwrapped(kind: Type) -> tuple[Type, bool]:
    """The type of an optional's value, and whether it is an optional."""
    is_optional = isinstance(kind, tuple) and kind[0] == "optional_type"
    return (kind[1] if is_optional else kind), is_optional


def instance(kind: Type, meanings: dict[Type, Type]) -> Type:
    """The type with parameters replaced once."""
    if isinstance(kind, str):
        return meanings.get(kind, kind)
    return (kind[0], *(instance(part, meanings) for part in kind[1:]))


class Substitutions:
    """What type parameters were found to mean."""

    def __init__(self) -> None:
        self._meanings: dict[Type, Type] = {}
        self._undo: list[tuple[Type, Type | None]] = []
        self._count = 0

    def fresh(self) -> Type:
        """A new type parameter."""
        self._count += 1
        return f"_var{self._count - 1}"

    def resolved(self, kind: Type, *, to_dyn: bool = False) -> Type:
        """The type with all parameters replaced; those that mean nothing by `dyn` if asked."""
        while kind in self._meanings:
            kind = self._meanings[kind]
        if isinstance(kind, str):
            return DYN if to_dyn and is_parameter(kind) else kind
        return (kind[0], *(self.resolved(part, to_dyn=to_dyn) for part in kind[1:]))

    def assignable(self, targets: Sequence[Type], sources: Sequence[Type]) -> bool:
        """Whether the types can stand for each other in turn; if not, nothing is learnt of parameters."""
        self._undo = []
        if len(targets) == len(sources) and all(map(self._is_assignable, targets, sources)):
            return True
        for kind, meaning in reversed(self._undo):
            if meaning is None:
                del self._meanings[kind]
            else:
                self._meanings[kind] = meaning
        return False

    def _is_assignable(self, left: Type, right: Type) -> bool:
        if is_parameter(right):
            is_valid, is_known = self._substitute(left, right)
            if is_valid or is_known:
                return is_valid
        if is_parameter(left):
            return self._substitute(right, left)[0]
        if is_dyn(left) or is_dyn(right) or ERROR in (left, right):
            return True
        if "null_type" in (left, right):
            other = right if left == "null_type" else left
            return other not in _NEVER_NULL and name_of(other) not in ("list", "map", "type")
        if name_of(left) == name_of(right) == "type":
            return True
        if isinstance(left, str) or isinstance(right, str):
            return left == right
        return (
            left[0] == right[0]
            and len(left) == len(right)
            and all(map(self._is_assignable, left[1:], right[1:]))
        )

    def _substitute(self, kind: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether the parameter may mean the type, and whether something is known of it."""
        if kind == parameter:
            return True, True
        known = self._meanings.get(parameter)
        if known is not None:
            if kind == known:
                return True, True
            if self._is_assignable(kind, known):
                general = kind if is_less_specific(kind, known) else known
                if self._is_free_of(parameter, general):
                    self._learn(parameter, general)
                return True, True
            return False, True
        if self._is_free_of(parameter, kind):
            self._learn(parameter, kind)
            return True, False
        return False, False

    def _learn(self, parameter: Type, meaning: Type) -> None:
        self._undo.append((parameter, self._meanings.get(parameter)))
        self._meanings[parameter] = meaning

    def _is_free_of(self, parameter: Type, kind: Type) -> bool:
        if kind == parameter:
            return False
        if is_parameter(kind):
            return kind not in self._meanings or self._is_free_of(parameter, self._meanings[kind])
        return isinstance(kind, str) or all(self._is_free_of(parameter, part) for part in kind[1:])


def name_of(kind: Type) -> str:
    """The name of a type without its parameters."""
    return kind if isinstance(kind, str) else str(kind[0])


def is_less_specific(left: Type, right: Type) -> bool:
    """Whether the left type is the right one or one that leaves more open."""
    if is_dyn(left) or is_parameter(left):
        return True
    if is_dyn(right) or is_parameter(right) or name_of(left) != name_of(right):
        return False
    if isinstance(left, str) or isinstance(right, str) or left[0] == "type":
        return True
    return len(left) == len(right) and all(map(is_less_specific, left[1:], right[1:]))


def accepts(kind: Type, value: Any, value_type: Any) -> bool:
    """Whether a value may be given for a type when the expression runs; of a list or map only the first element counts."""
    if is_dyn(kind) or is_parameter(kind):
        return True
    if value_type(value) != name_of(kind):
        return False
    if isinstance(kind, str) or not value:
        return True
    if kind[0] == "list":
        return accepts(kind[1], value[0], value_type)
    if kind[0] == "map":
        key, element = next(iter(value.items()))
        return accepts(kind[1], key, value_type) and accepts(kind[2], element, value_type)
    return True
