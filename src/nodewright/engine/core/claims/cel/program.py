"""Checked expressions as closures that compute values and count what that costs.

Follows: v1.36, vendor/github.com/google/cel-go/interpreter/{planner,attributes,interpretable,runtimecost,decorators}.go.
Departs: loops over maps go in the order of the device's attributes, Kubernetes' in a random one.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from nodewright.engine.core.claims.cel import values
from nodewright.engine.core.claims.cel.expression import RESULT, Node
from nodewright.engine.core.claims.cel.functions import (
    Cost,
    Function,
    equality_cost,
    functions,
    receives,
)
from nodewright.engine.core.claims.cel.regex import compiled
from nodewright.engine.core.claims.cel.types import accepts
from nodewright.engine.core.claims.cel.values import (
    NO_OVERLOAD,
    NONE,
    Absent,
    EvaluationEndedError,
    Failure,
    Maybe,
    UInt,
    Value,
    equal,
    look_up,
)

_CONVERSIONS = frozenset(
    ["bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"]
)
_PATTERN_FUNCTIONS = frozenset(("matches", "find", "findAll"))
_UNSET: Final = object()


class Run:
    """One evaluation: the device, the variables of loops, and the cost so far."""

    __slots__ = ("cost", "device", "limit", "slots")

    def __init__(self, device: Value, limit: int, slots: int) -> None:
        self.device, self.limit, self.cost = device, limit, 0
        self.slots: list[Value] = [_UNSET] * slots

    def charge(self, cost: int) -> None:
        """Adds to the cost.

        Errors: EvaluationEndedError above the limit.
        """
        self.cost += cost
        if self.cost > self.limit:
            raise EvaluationEndedError("operation cancelled: actual cost limit exceeded")


Evaluate = Callable[[Run], Value]


class _Step(NamedTuple):
    """A selection or index: its key or what computes it."""

    key: Value
    evaluate: Evaluate | None = None
    is_optional: bool = False
    is_test: bool = False


class _Attribute(NamedTuple):
    """A value and selections from it. What costs nothing by itself is not charged for."""

    base: Evaluate
    steps: tuple[_Step, ...] = ()
    charge: int = 1


class _Plan(NamedTuple):
    """How a part is computed; constants are known already."""

    evaluate: Evaluate
    constant: Value = _UNSET
    attribute: _Attribute | None = None

    @property
    def uncharged(self) -> Evaluate:
        """The evaluation without the charge for the attribute itself."""
        return self.evaluate if self.attribute is None else _resolution(self.attribute._replace(charge=0))


def program(root: Node) -> tuple[Evaluate, int]:
    """What evaluates the expression, and how many slots it needs for variables.

    Errors: ValueError for a constant part that cannot be computed.
    """
    planner = _Planner()
    return planner.plan(root).evaluate, planner.slots


def _constant(value: Value) -> _Plan:
    return _Plan(lambda _: value, value)


def _resolution(attribute: _Attribute) -> Evaluate:
    base, steps, charge = attribute
    return lambda run: _selected(run, base(run), steps, charge)


def _selected(run: Run, value: Value, steps: tuple[_Step, ...], charge: int) -> Value:
    """The value behind the steps; after an optional one, all that follow are."""
    run.charge(charge)
    is_optional = type(value) is Maybe
    if isinstance(value, Failure):
        return value
    if is_optional and not value.is_present:
        return False if steps and steps[-1].is_test else value
    value = value.value if is_optional else value
    for step in steps:
        is_optional = is_optional or step.is_optional
        key = step.evaluate(run) if step.evaluate else step.key
        selected = key if isinstance(key, Failure) else look_up(value, key)
        is_there = not isinstance(selected, Failure)
        run.charge(is_there or not is_optional)
        if isinstance(selected, Absent) and (step.is_test or is_optional):
            return False if steps[-1].is_test else NONE
        if not is_there:
            return selected
        value = True if step.is_test else selected
    return Maybe(value) if is_optional and not (steps and steps[-1].is_test) else value


class _Planner:
    """Plans one expression."""

    def __init__(self) -> None:
        self.slots = 0
        self._scopes: list[dict[str, Evaluate]] = [{"device": lambda run: run.device}]

    def plan(self, node: Node) -> _Plan:
        """How the node is computed."""
        result: _Plan = getattr(self, f"_{node.kind}")(node)
        return result

    def _attributed(self, attribute: _Attribute) -> _Plan:
        return _Plan(_resolution(attribute), attribute=attribute)

    def _extended(self, node: Node, step: _Step) -> _Plan:
        """The node with a selection from it."""
        plan = self.plan(node)
        base = plan.attribute or _Attribute(plan.evaluate)
        charge = 0 if step.is_test else base.charge
        return self._attributed(base._replace(steps=(*base.steps, step), charge=charge))

    def _literal(self, node: Node) -> _Plan:
        return _constant(node.value)

    def _ident(self, node: Node) -> _Plan:
        return self._attributed(
            _Attribute(next(scope[node.name] for scope in reversed(self._scopes) if node.name in scope))
        )

    def _select(self, node: Node) -> _Plan:
        assert node.target is not None
        return self._extended(node.target, _Step(node.name, is_test=node.is_test))

    def _index(self, node: Node) -> _Plan:
        index, is_optional = self.plan(node.args[1]), node.name != "_[_]"
        if index.constant is not _UNSET:
            if problem := values.qualifier_problem(index.constant):
                raise ValueError(problem)
            return self._extended(node.args[0], _Step(index.constant, is_optional=is_optional))
        return self._extended(node.args[0], _Step(None, index.uncharged, is_optional))

    def _list(self, node: Node) -> _Plan:
        plans = [self.plan(arg) for arg in node.args]
        width = 1 if node.kind == "list" else 2
        entries = [plans[start : start + width] for start in range(0, len(plans), width)]
        if not node.optional and all(plan.constant is not _UNSET for plan in plans):
            return _constant(_made([[plan.constant for plan in entry] for entry in entries], width))

        def evaluate(run: Run) -> Value:
            value = _computed(run, entries, node.optional, width)
            run.charge(10 if width == 1 else 30)
            return value

        return _Plan(evaluate)

    _map = _list

    # ------------------------------------------------------------ calls

    def _call(self, node: Node) -> _Plan:
        if node.name in ("_[_]", "_[?_]", "_?._"):
            return self._index(node)
        if node.name == "@in":
            return self._membership(node)
        function = functions()[node.name]
        plans = [self.plan(arg) for arg in node.operands]
        if node.name in _LAZY:
            lazy, (first, *others) = _LAZY[node.name], plans
            if node.name == "_?_:_":
                parts = [first.evaluate, *(plan.uncharged for plan in others)]
                return self._attributed(_Attribute(lambda run: lazy(run, *parts), charge=0))
            parts = [plan.evaluate for plan in plans]
            return _Plan(lambda run: lazy(run, *parts))
        apply = _application(function, node)
        if node.name in _CONVERSIONS and plans[0].constant is not _UNSET:
            value = apply([plans[0].constant])
            if isinstance(value, Failure):
                raise ValueError(value.message)
            return _constant(value)
        pattern = plans[1].constant if node.name in _PATTERN_FUNCTIONS and len(plans) > 1 else None
        if isinstance(pattern, str):
            compiled(pattern)
            implementation = function.implementation

            def apply(args: list[Value]) -> Value:
                return implementation(*args) if type(args[0]) is str else NO_OVERLOAD

        is_lazy = node.name == "format" or len(plans) > 2 or isinstance(pattern, str)
        is_ambiguous = function.is_checked and len(node.overloads) > 1
        return _Plan(
            _call_of([plan.evaluate for plan in plans], apply, _cost(node), is_lazy=is_lazy or is_ambiguous)
        )

    def _membership(self, node: Node) -> _Plan:
        item, container = (self.plan(arg) for arg in node.args)
        constants = container.constant
        if len(node.overloads) == 1 and type(constants) is tuple:
            if not constants:
                return _constant(False)
            if all(type(value) in (bool, int, UInt, float, str) for value in constants):
                return _Plan(_set_membership(item.evaluate, constants))
        function = functions()[node.name]
        return _Plan(_call_of([item.evaluate, container.evaluate], _application(function, node), _cost(node)))

    # ------------------------------------------------------------ loops

    def _fold(self, node: Node) -> _Plan:
        source, initial = (self.plan(arg).evaluate for arg in node.args[:2])
        accumulator = self.slots
        self.slots += 3
        # What a macro collects grows in place.
        is_growing = node.accumulator == RESULT

        def accumulated(run: Run) -> Value:
            value = run.slots[accumulator]
            if value is _UNSET:
                value = initial(run)
                if is_growing:
                    value = [] if value == () else {} if value == {} else value
                run.slots[accumulator] = value
            return value

        self._scopes.append({node.accumulator: accumulated})
        variables = {
            node.name: lambda run: run.slots[accumulator + 1],
            node.name2: lambda run: run.slots[accumulator + 2],
        }
        self._scopes.append(variables)
        parts = source, *(self.plan(arg).evaluate for arg in node.args[2:4])
        self._scopes.pop()
        parts = *parts, self.plan(node.args[4]).evaluate
        self._scopes.pop()
        return _Plan(_loop(parts, accumulator, has_two=bool(node.name2)))


def _logic(run: Run, left: Evaluate, right: Evaluate, *, decisive: bool) -> Value:
    first = left(run)
    second = first if first is decisive else right(run)
    if second is decisive:
        return decisive
    for value in (first, second):
        if type(value) is not bool:
            return value if isinstance(value, Failure) else NO_OVERLOAD
    return not decisive


def _conditional(run: Run, condition: Evaluate, first: Evaluate, second: Evaluate) -> Value:
    value = condition(run)
    if type(value) is not bool:
        return value if isinstance(value, Failure) else NO_OVERLOAD
    return first(run) if value else second(run)


def _equality(run: Run, left: Evaluate, right: Evaluate, *, is_negated: bool) -> Value:
    first, second = left(run), right(run)
    run.charge(equality_cost(first, second))
    for value in (first, second):
        if isinstance(value, Failure):
            return value
    result = equal(first, second)
    return result is not True if is_negated else result


def _not_false(run: Run, inner: Evaluate) -> Value:
    value = inner(run)
    run.charge(1)
    return value if type(value) is bool else True


def _alternative(run: Run, first: Evaluate, second: Evaluate, *, is_bare: bool) -> Value:
    optional = first(run)
    if type(optional) is not Maybe:
        return optional
    if not optional.is_present:
        return second(run)
    return optional.value if is_bare else optional


_LAZY: dict[str, Callable[..., Value]] = {
    "_&&_": partial(_logic, decisive=False),
    "_||_": partial(_logic, decisive=True),
    "_?_:_": _conditional,
    "_==_": partial(_equality, is_negated=False),
    "_!=_": partial(_equality, is_negated=True),
    "@not_strictly_false": _not_false,
    "or": partial(_alternative, is_bare=False),
    "orValue": partial(_alternative, is_bare=True),
}
"""Functions that are not called with the values of their arguments."""


def _loop(parts: tuple[Evaluate, ...], accumulator: int, *, has_two: bool) -> Evaluate:
    """What goes over a list or map; the slots of its variables follow that of the accumulator."""
    source, condition, step, result = parts
    first, second = accumulator + 1, accumulator + 2

    def evaluate(run: Run) -> Value:
        items = source(run)
        if isinstance(items, Failure):
            return items
        if type(items) is not tuple and not isinstance(items, dict):
            name = values.go_type_name(items)
            problem = f"unsupported comprehension range type: {name}"
            return Failure(problem if has_two else f"got '{name}', expected iterable type")
        slots = run.slots
        slots[accumulator] = _UNSET
        for number, item in enumerate(items):
            slots[first] = number if has_two and type(items) is tuple else item
            if has_two:
                slots[second] = item if type(items) is tuple else items[item]
            if condition(run) is False:
                break
            slots[accumulator] = step(run)
        value = result(run)
        return tuple(value) if type(value) is list else value

    return evaluate


def _computed(run: Run, entries: list[list[_Plan]], optional: frozenset[int], width: int) -> Value:
    """A list or map of the entries, whose values may be optional."""
    rows = []
    for number, entry in enumerate(entries):
        row: list[Value] = []
        for plan in entry:
            row.append(plan.evaluate(run))
            if isinstance(row[-1], Failure):
                return row[-1]
        if number in optional:
            if type(row[-1]) is not Maybe:
                place = f"entry '{values.text_of(row[0])}'" if width == 2 else "list element"
                text = f"optional {place} from non-optional value {values.text_of(row[-1])}"
                return Failure(f"cannot initialize {text}")
            if not row[-1].is_present:
                continue
            row[-1] = row[-1].value
        rows.append(row)
    return _made(rows, width)


def _made(rows: list[list[Value]], width: int) -> Value:
    try:
        if width == 1:
            return tuple(row[0] for row in rows)
        return {values.hashable(row[0]): row[1] for row in rows}
    except TypeError:
        return Failure("unsupported key type")


def _set_membership(item: Evaluate, constants: tuple[Value, ...]) -> Evaluate:
    kinds = (bool, int, UInt, float, str)
    known = {(type(constant), constant) for constant in constants}
    for constant in constants:
        for kind in (int, UInt, float) if type(constant) in (int, UInt, float) else ():
            converted = values.convert(constant, values.type_name(kind(0)))
            if equal(converted, constant) is True:
                known.add((kind, converted))

    def evaluate(run: Run) -> Value:
        value = item(run)
        kind = type(value)
        if isinstance(value, Failure):
            return value
        values.hashable(value)
        return kind in kinds and (kind, value) in known

    return evaluate


def _cost(node: Node) -> Cost:
    """What a call costs: by its only overload or by its function."""
    return node.overloads[0].cost if len(node.overloads) == 1 else functions()[node.name].cost


def _application(function: Function, node: Node) -> Callable[[list[Value]], Value]:
    """The function for values that did not fail."""
    implementation, operands = function.implementation, function.operands
    overloads = node.overloads if len(node.overloads) == 1 else function.overloads
    given = tuple(arg.type for arg in node.operands)
    is_checked = function.is_checked and not any(overload.args == given for overload in overloads)

    def apply(args: list[Value]) -> Value:
        if operands is not None and type(args[0]) not in operands:
            return NO_OVERLOAD if receives(args[0]) else Failure(f"no such overload: {function.name}")
        if is_checked and not any(
            len(overload.args) == len(args)
            and all(
                accepts(kind, arg, values.type_name) for kind, arg in zip(overload.args, args, strict=True)
            )
            for overload in overloads
        ):
            names = ", ".join(map(values.type_name, args))
            return Failure(f"no such overload: {function.name}({names})")
        return implementation(*args)

    return apply


def _call_of(
    parts: list[Evaluate], apply: Callable[[list[Value]], Value], cost: Cost, *, is_lazy: bool = False
) -> Evaluate:
    def evaluate(run: Run) -> Value:
        args = []
        failure: Failure | None = None
        for part in parts:
            value = part(run)
            if isinstance(value, Failure):
                if is_lazy:
                    return value
                failure = failure or value
            args.append(value)
        result: Value = failure
        if failure is None:
            try:
                result = apply(args)
            except ValueError as error:
                result = Failure(str(error))
        run.charge(cost(args, result))
        return result

    return evaluate
