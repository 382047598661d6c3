"""The types of an expression, and which overloads its calls mean.

Follows: v1.36, vendor/github.com/google/cel-go/checker/{checker,errors}.go, cel/validator.go;
    apiserver/pkg/cel/environment/base.go; dynamic-resource-allocation/cel/compile.go (the variable `device`).
Departs: messages of protobuf (`google.protobuf.Int64Value{value: 1}`) are undeclared.
"""

from collections.abc import Iterator

from nodewright.engine.core.claims.cel import libraries, types
from nodewright.engine.core.claims.cel.expression import Node
from nodewright.engine.core.claims.cel.functions import Overload, functions
from nodewright.engine.core.claims.cel.regex import compiled
from nodewright.engine.core.claims.cel.source import ExpressionErrors
from nodewright.engine.core.claims.cel.types import DYN, ERROR, Type, parse_types
from nodewright.engine.core.claims.cel.values import Failure, TypeValue, convert

DEVICE = "kubernetes.DRADevice"
_NAMED = (
    f"bool, bytes, double, int, null_type, string, uint, {DEVICE}, duration, timestamp, ip, cidr, list(A), map(A, B)"
    ", type, optional_type"
)
_TYPE_NAMES: dict[str, Type] = {
    kind if isinstance(kind, str) else kind[0]: kind for kind in parse_types(_NAMED)
}
_OBJECTS = parse_types("quantity, semver, url, format")
"""Types of objects whose fields are unknown."""
_LITERALS: dict[type, Type] = {bool: "bool", int: "int", float: "double", str: "string", bytes: "bytes"}


class Checker:
    """Checks one expression."""

    def __init__(
        self, errors: ExpressionErrors, attribute: Type, *, has_sharing: bool, has_includes: bool
    ) -> None:
        """Declares `device`, whose attributes have the type, and functions by feature gates."""
        self._errors, self._known, self._has_includes = errors, types.Substitutions(), has_includes
        self._scopes: list[dict[str, Type]] = [{"device": DEVICE}]
        self._fields: dict[str, Type] = {
            "driver": "string",
            "attributes": ("map", "string", ("map", "string", attribute)),
            "capacity": ("map", "string", ("map", "string", "kubernetes.Quantity")),
            **({"allowMultipleAllocations": "bool"} if has_sharing else {}),
        }

    def check(self, node: Node) -> Type:
        """The type of the expression; nodes get theirs, and errors are added."""
        kind: Type = getattr(self, f"_{node.kind}")(node)
        node.type = kind
        return kind

    def final_type(self, node: Node) -> Type:
        """The type of a checked node, without type parameters."""
        return self._known.resolved(node.type, to_dyn=True)

    def _mismatch(self, node: Node, expected: Type, found_type: Type) -> Type:
        self._errors.add(node.at, f"expected type '{_text(expected)}' but found '{_text(found_type)}'")
        return ERROR

    def _undeclared(self, node: Node, name: str) -> Type:
        self._errors.add(node.at, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    def _error(self, _: Node) -> Type:
        return ERROR

    def _literal(self, node: Node) -> Type:
        return _LITERALS.get(type(node.value), "null_type" if node.value is None else "uint")

    # ------------------------------------------------------------ names and fields

    def _variable(self, name: str) -> Type | None:
        name = name.removeprefix(".")
        declared = next((scope[name] for scope in reversed(self._scopes) if name in scope), None)
        if declared is None and name in _TYPE_NAMES:
            return ("type", _TYPE_NAMES[name])
        return declared

    def _ident(self, node: Node) -> Type:
        declared = self._variable(node.name)
        if declared is None:
            return self._undeclared(node, node.name)
        node.name = node.name.removeprefix(".")
        if node.name in _TYPE_NAMES and declared == ("type", _TYPE_NAMES[node.name]):
            node.kind, node.value = "literal", TypeValue(node.name)
        return declared

    def _select(self, node: Node) -> Type:
        name = _qualified(node)
        if name and not node.is_test and self._variable(name) is not None:
            node.kind, node.name = "ident", name
            return self._ident(node)
        assert node.target is not None
        found_type = self._field(node, node.target, node.name, is_optional=False)
        return "bool" if node.is_test else self._known.resolved(found_type)

    def _field(self, node: Node, target: Node, name: str, *, is_optional: bool) -> Type:
        kind, was_optional = types.unwrapped(self._known.resolved(self.check(target)))
        found_type: Type = DYN
        if isinstance(kind, tuple) and kind[0] == "map":
            found_type = kind[2]
        elif kind == DEVICE:
            found_type = self._fields.get(name, ERROR)
            if found_type == ERROR:
                self._errors.add(node.at, f"undefined field '{name}'")
        elif types.is_parameter(kind):
            self._known.assignable([DYN], [kind])
        elif kind in _OBJECTS:
            found_type = ERROR
            self._errors.add(node.at, f"unexpected failed resolution of '{kind}'")
        elif not types.is_dyn(kind) and kind != ERROR:
            shown = _text(kind)
            self._errors.add(node.at, f"type '{shown}' does not support field selection")
        return ("optional_type", found_type) if was_optional or is_optional else found_type

    # ------------------------------------------------------------ calls

    def _call(self, node: Node) -> Type:
        if node.name == "_?._":
            found_type = self._field(node, node.args[0], node.args[1].value, is_optional=True)
            self.check(node.args[1])
            return self._known.resolved(found_type)
        for arg in node.args:
            self.check(arg)
        table = functions()
        if node.target is not None:
            prefix = _qualified(node.target)
            if prefix and f"{prefix}.{node.name}" in table:
                node.name, node.target = f"{prefix.removeprefix('.')}.{node.name}", None
            else:
                self.check(node.target)
        name = node.name.removeprefix(".")
        if name not in table or (name == "includes" and not self._has_includes):
            return self._undeclared(node, node.name)
        node.name = name
        return self._resolve(node, table[name].overloads)

    def _resolve(self, node: Node, overloads: tuple[Overload, ...]) -> Type:
        """The result of a call by the overloads that its arguments fit."""
        args = node.operands
        given: list[Type] = [arg.type for arg in args]
        if node.name in ("_&&_", "_||_"):
            wrong = [arg for arg in args if not self._known.assignable([arg.type], ["bool"])]
            for arg in wrong:
                self._mismatch(arg, "bool", arg.type)
            return ERROR if wrong else "bool"
        result: Type | None = None
        for overload in overloads:
            if overload.is_member is not (node.target is not None):
                continue
            fresh: dict[Type, Type] = {parameter: self._known.fresh() for parameter in overload.parameters}
            if not self._known.assignable(given, [types.instance(arg, fresh) for arg in overload.args]):
                continue
            node.overloads.append(overload)
            own = self._known.resolved(types.instance(overload.result, fresh))
            if result is None:
                result = own
            elif not types.is_dyn(result) and own != result:
                result = DYN
        if result is None:
            shown = [_text(self._known.resolved(kind, to_dyn=True)) for kind in given]
            target = f"{shown.pop(0)}." if node.target else ""
            text = f"'{node.name}' applied to '{target}({', '.join(shown)})'"
            self._errors.add(node.at, f"found no matching overload for {text}")
            return ERROR
        return result

    # ------------------------------------------------------------ lists, maps and loops

    def _joined(self, previous: Type | None, current: Type) -> Type:
        """The type of elements after one more."""
        if previous is None:
            return current
        if not self._known.assignable([previous], [current]):
            return DYN
        return previous if types.is_less_specific(previous, current) else current

    def _element(self, node: Node, *, is_optional: bool) -> Type:
        kind = self.check(node)
        if not is_optional:
            return kind
        inner, was_optional = types.unwrapped(kind)
        if not was_optional and not types.is_dyn(inner):
            self._mismatch(node, ("optional_type", inner), inner)
        return inner

    def _list(self, node: Node) -> Type:
        joined: Type | None = None
        for number, element in enumerate(node.args):
            joined = self._joined(joined, self._element(element, is_optional=number in node.optional))
        return ("list", joined or self._known.fresh())

    def _map(self, node: Node) -> Type:
        keys: Type | None = None
        items: Type | None = None
        for number, (key, item) in enumerate(zip(node.args[0::2], node.args[1::2], strict=True)):
            keys = self._joined(keys, self.check(key))
            items = self._joined(items, self._element(item, is_optional=number in node.optional))
        return ("map", keys or self._known.fresh(), items or self._known.fresh())

    def _message(self, node: Node) -> Type:
        for value in node.args:
            self.check(value)
        return self._undeclared(node, node.name)

    def _fold(self, node: Node) -> Type:
        """Loops: the variables are known in condition and step, what was accumulated in the result, too."""
        source, initial, condition, step, result = node.args
        kind = self._known.resolved(self.check(source))
        accumulated = self.check(initial)
        self._scopes.append({node.accumulator: accumulated})
        first, second = self._loop_variables(source, kind)
        is_list = isinstance(kind, tuple) and kind[0] == "list"
        variables = {node.name: "int" if is_list and node.name2 else first}
        self._scopes.append(variables | ({node.name2: second} if node.name2 else {}))
        for part, expected in ((condition, "bool"), (step, accumulated)):
            found_type = self.check(part)
            if not self._known.assignable([expected], [found_type]):
                self._mismatch(part, expected, found_type)
        self._scopes.pop()
        found_type = self.check(result)
        self._scopes.pop()
        return self._known.resolved(found_type)

    def _loop_variables(self, source: Node, kind: Type) -> tuple[Type, Type]:
        if isinstance(kind, tuple) and kind[0] in ("list", "map"):
            return kind[1], kind[-1]
        if kind in (DYN, ERROR) or types.is_parameter(kind):
            self._known.assignable([DYN], [kind])
            return DYN, DYN
        text = f"expression of type '{_text(kind)}' cannot be range of a comprehension"
        self._errors.add(source.at, f"{text} (must be list, map, or dynamic)")
        return ERROR, ERROR

    # ------------------------------------------------------------ literals that can be judged before

    def validate(self, root: Node) -> None:
        """Adds errors for literals that no evaluation could use."""
        for node, is_in_format in parts_of(root):
            if node.kind == "call" and node.args and node.args[0].kind == "literal":
                self._validate_literal(node, node.args[0])
            if node.name == "format" and node.target and node.target.kind == "literal":
                self._validate_format(node, node.target.value, node.args[0])
            if is_in_format:
                continue
            if node.kind == "list":
                self._validate_elements(node, node.args, are_values=True)
            elif node.kind == "map":
                self._validate_elements(node, node.args[0::2], are_values=False)
                self._validate_elements(node, node.args[1::2], are_values=True)

    def _validate_literal(self, call: Node, literal: Node) -> None:
        is_wrong = False
        if call.name in ("duration", "timestamp"):
            is_wrong = isinstance(convert(literal.value, str(parse_types(call.name)[0])), Failure)
        elif call.name == "matches":
            is_wrong = not libraries.parses(compiled)(literal.value)
        if is_wrong:
            self._errors.add(literal.at, f"invalid {call.name} argument")

    def _validate_format(self, call: Node, text: str, items: Node) -> None:
        if items.kind != "list":
            return
        at = call.at

        def check_clause(letter: str, _: str, number: int) -> str:
            nonlocal at
            kinds, problem = libraries.FORMATS[letter.lower()]
            pending = [items.args[number]]
            while pending:
                item = pending.pop()
                name = types.name_of(self.final_type(item))
                if name not in (DYN, *kinds.split()):
                    at = item.at
                    raise ValueError(f"error during formatting: {problem}, was given {name}")
                pending += reversed(item.args if letter == "s" and item.kind in ("list", "map") else [])
            return ""

        try:
            libraries.interpolated(text, len(items.args), check_clause, is_literal=True)
        except ValueError as error:
            self._errors.add(at, str(error))

    def _validate_elements(self, node: Node, elements: list[Node], *, are_values: bool) -> None:
        first: Type | None = None
        for number, element in enumerate(elements):
            kind = self.final_type(element)
            kind = types.unwrapped(kind)[0] if are_values and number in node.optional else kind
            if first is not None and kind != first:
                self._mismatch(element, first, kind)
                if node.kind == "list":
                    return
            first = first or kind


def _text(kind: Type) -> str:
    return types.type_text(kind, in_error=True)


def _qualified(node: Node) -> str:
    """The name that selections of an identifier spell; empty: they spell none."""
    if node.kind == "ident":
        return node.name
    prefix = _qualified(node.target) if node.kind == "select" and node.target and not node.is_test else ""
    return f"{prefix}.{node.name}" if prefix else ""


def parts_of(root: Node, *, is_in_format: bool = False) -> Iterator[tuple[Node, bool]]:
    """The node and all below it, each with whether it is in a call of `format`."""
    yield root, is_in_format
    inner = is_in_format or (root.kind == "call" and root.name == "format")
    for part in root.operands:
        yield from parts_of(part, is_in_format=inner)
