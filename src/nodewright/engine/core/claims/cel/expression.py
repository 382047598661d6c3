"""Expressions as trees of calls, selections and loops: what a parse tree means once its macros are expanded.

Follows: v1.36, vendor/github.com/google/cel-go/parser/{parser,macro,unescape}.go, cel/library.go (optMap),
    ext/{bindings,comprehensions,lists}.go (macros).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

RESULT = "@result"
_UNUSED = "#unused"


@dataclass(eq=False, slots=True)
class Node:
    """A part of an expression; which members count depends on `kind`.

    A literal has a `value`; ident, select and call have a `name`, the last two a `target`; `args` are arguments,
    elements, keys and values in turn, or what a fold goes over, starts from, goes on by, does and results in.
    """

    kind: str
    at: int
    args: list["Node"] = field(default_factory=list)
    name: str = ""
    target: "Node | None" = None
    value: Any = None
    is_test: bool = False
    optional: frozenset[int] = frozenset()
    name2: str = ""
    accumulator: str = ""
    type: Any = None
    overloads: list[Any] = field(default_factory=list)
    depth: int = 1

    def __post_init__(self) -> None:
        """Sets the number of levels."""
        self.depth = 1 + max((part.depth for part in self.operands), default=0)

    @property
    def operands(self) -> list["Node"]:
        """The target, if there is one, and the arguments."""
        return [self.target, *self.args] if self.target else self.args


class MacroError(Exception):
    """The arguments do not suit the macro."""

    def __init__(self, at: int, message: str) -> None:
        self.at, self.message = at, message


# ---------------------------------------------------------------- macros


_SIMPLE = "argument must be a simple name"


def _name(node: Node, message: str) -> str:
    if node.kind != "ident":
        raise MacroError(node.at, message)
    return node.name


def _variables(args: list[Node], count: int, message: str = _SIMPLE) -> tuple[str, str]:
    """The names of the one or two variables of a loop."""
    names = [_name(arg, message) for arg in args[:count]]
    if len(set(names)) < count:
        raise MacroError(args[1].at, f"duplicate variable name: {names[0]}")
    for arg in args[:count]:
        if arg.name in (RESULT, "__result__"):
            raise MacroError(arg.at, "iteration variable overwrites accumulator variable")
    return names[0], names[-1] if count == 2 else ""


def _has(at: int, _target: Node | None, args: list[Node]) -> Node:
    node = args[0]
    if node.kind != "select":
        raise MacroError(node.at, "invalid argument to has() macro")
    return Node("select", at, target=node.target, name=node.name, is_test=True)


Macro = Callable[[int, Node | None, list[Node]], Node | None]


def _ident(at: int, name: str = RESULT) -> Node:
    return Node("ident", at, name=name)


def _literal(at: int, value: Any) -> Node:
    return Node("literal", at, value=value)


def _operation(at: int, name: str, *args: Node) -> Node:
    return Node("call", at, list(args), name=name)


def _quantifier(kind: str, count: int) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        name, name2 = _variables(args, count)
        result = _ident(at)
        if kind == "exists_one":
            step = _operation(at, "_?_:_", args[-1], _operation(at, "_+_", result, _literal(at, 1)), result)
            is_one = _operation(at, "_==_", result, _literal(at, 1))
            loop = [_literal(at, 0), _literal(at, True), step, is_one]
        else:
            going_on = result if kind == "all" else _operation(at, "!_", result)
            step = _operation(at, "_&&_" if kind == "all" else "_||_", result, args[-1])
            condition = _operation(at, "@not_strictly_false", going_on)
            loop = [_literal(at, kind == "all"), condition, step, result]
        return _fold(at, [target, *loop], name, name2)

    return expand


def _fold(at: int, parts: list[Any], name: str, name2: str = "", accumulator: str = RESULT) -> Node:
    return Node("fold", at, parts, name=name, name2=name2, accumulator=accumulator)


def _transform(kind: str, count: int) -> Macro:
    """A loop that collects; with one argument more than variables and result it filters, too."""

    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        message = "argument is not an identifier" if count == 1 else _SIMPLE
        name, name2 = _variables(args, count, message)
        result, is_list = _ident(at), kind in ("filter", "list")
        kept = args[0] if kind == "filter" else args[-1]
        conditions = args[1:2] if kind == "filter" else args[count:-1]
        if is_list:
            step = _operation(at, "_+_", result, Node("list", at, [kept]))
        else:
            keys = [_ident(at, name)] if kind == "map" else []
            step = _operation(at, "cel.@mapInsert", result, *keys, kept)
        for condition in conditions:
            step = _operation(at, "_?_:_", condition, step, result)
        loop = [Node("list" if is_list else "map", at), _literal(at, True), step, result]
        return _fold(at, [target, *loop], name, name2)

    return expand


def _bound(at: int, name: str, value: Node, result: Node) -> Node:
    """The result with a variable in it; its value is computed where it is used first."""
    parts = [Node("list", at), value, _literal(at, False), _ident(at, name), result]
    return _fold(at, parts, _UNUSED, accumulator=name)


def _bind(at: int, target: Node | None, args: list[Node]) -> Node | None:
    if target is None or target.kind != "ident" or target.name != "cel":
        return None
    name = _name(args[0], "cel.bind() variable names must be simple identifiers")
    return _bound(at, name, args[1], args[2])


def _opt_map(function: str) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        name = _name(args[0], f"{function}() variable name must be a simple identifier")
        value = Node("call", at, name="value", target=target)
        result = _bound(at, name, value, args[1])
        result = _operation(at, "optional.of", result) if function == "optMap" else result
        condition = Node("call", at, name="hasValue", target=target)
        return _operation(at, "_?_:_", condition, result, _operation(at, "optional.none"))

    return expand


def _sort_by(at: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    if target.kind not in ("list", "select", "ident", "fold", "call"):
        raise MacroError(
            target.at,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        )
    name = "@__sortBy_input__"
    keys = _transform("list", 1)(at, _ident(at, name), args)
    parts = [] if keys is None else [keys]
    result = Node("call", at, parts, name="@sortByAssociatedKeys", target=_ident(at, name))
    return _bound(at, name, target, result)


_MACROS: dict[tuple[str, int, bool], Macro] = {
    ("has", 1, False): _has,
    **{
        (name, count + 1, True): _quantifier(kind, count)
        for name, kind, counts in (
            ("all", "all", (1, 2)),
            ("exists", "exists", (1, 2)),
            ("exists_one", "exists_one", (1, 2)),
            ("existsOne", "exists_one", (2,)),
        )
        for count in counts
    },
    ("map", 2, True): _transform("list", 1),
    ("map", 3, True): _transform("list", 1),
    ("filter", 2, True): _transform("filter", 1),
    **{
        (name, count, True): _transform(kind, 2)
        for name, kind in (("transformList", "list"), ("transformMap", "map"), ("transformMapEntry", "entry"))
        for count in (3, 4)
    },
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map("optMap"),
    ("optFlatMap", 2, True): _opt_map("optFlatMap"),
    ("sortBy", 2, True): _sort_by,
}


def expanded(at: int, name: str, args: list[Node], target: Node | None = None) -> Node:
    """A call, or what its macro expands to.

    Errors: MacroError.
    """
    macro = _MACROS.get((name, len(args), target is not None))
    return (macro and macro(at, target, args)) or Node("call", at, args, name=name, target=target)
