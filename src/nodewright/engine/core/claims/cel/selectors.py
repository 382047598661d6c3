"""Selectors of devices, compiled once and evaluated for many devices."""

from collections.abc import Mapping
from functools import cached_property

import msgspec

from nodewright.engine.core.claims.cel.checker import Checker
from nodewright.engine.core.claims.cel.parser import parse
from nodewright.engine.core.claims.cel.program import Evaluate, Run, program
from nodewright.engine.core.claims.cel.source import ExpressionErrors, FatalError
from nodewright.engine.core.claims.cel.types import ANY, DYN, type_text
from nodewright.engine.core.claims.cel.values import (
    DeviceMap,
    DomainMap,
    EvaluationEndedError,
    Failure,
    Semver,
    Value,
    no_bool_text,
    type_name,
)
from nodewright.model.kubernetes.device_attributes import AttributeValue, Version
from nodewright.model.values.bounded_cache import BoundedCache
from nodewright.model.values.quantity import Quantity

COST_LIMIT = 1_000_000
"""What an evaluation may cost, unless asked otherwise."""


class SelectorError(ValueError):
    """The evaluation failed; the text is Kubernetes'."""


class SelectorFeatures(msgspec.Struct, frozen=True):
    """The feature gates that selectors depend on."""

    consumable_capacity: bool = True
    list_type_attributes: bool = False
    stored_may_include: bool = True
    """Whether expressions that are stored already may use `includes` without the gate of lists: from 1.36 on."""


class SelectorDevice(msgspec.Struct, frozen=True, dict=True):
    """What selectors see of a device; names without a domain belong to the driver's."""

    driver: str
    attributes: Mapping[str, AttributeValue] = {}
    capacity: Mapping[str, Quantity] = {}
    allow_multiple_allocations: bool = False

    @cached_property
    def _seen(self) -> tuple[Value, str, str]:
        """The variable `device`, and the first attribute that cannot be read, with lists and without."""
        attributes, capacity, with_lists, without_lists = DomainMap(), DomainMap(), "", ""
        for name, value in self.attributes.items():
            read, problem = _read(value)
            with_lists = with_lists or (problem and f"attribute {name}: {problem}")
            problem = _UNSUPPORTED if isinstance(value, tuple) else problem
            without_lists = without_lists or (problem and f"attribute {name}: {problem}")
            self._set(attributes, name, read)
        for name, amount in self.capacity.items():
            self._set(capacity, name, amount)
        device = DeviceMap(
            driver=self.driver,
            allowMultipleAllocations=self.allow_multiple_allocations,
            attributes=attributes,
            capacity=capacity,
        )
        return device, with_lists, without_lists

    def _set(self, values: DomainMap, name: str, value: Value) -> None:
        domain, slash, identifier = name.partition("/")
        values.setdefault(domain if slash else self.driver, DeviceMap())[identifier if slash else name] = (
            value
        )


_UNSUPPORTED = "unsupported attribute value"


def _read(value: AttributeValue) -> tuple[Value, str]:
    """The value of an attribute, or why there is none."""
    items = value if isinstance(value, tuple) else (value,)
    try:
        read = tuple(Semver.parse(item.text) if isinstance(item, Version) else item for item in items)
    except ValueError as error:
        return None, f"parse semantic version: {error}"
    return (read, "") if isinstance(value, tuple) else (read[0], _UNSUPPORTED if value is None else "")


class CompiledSelector:
    """A compiled expression.

    Follows: v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, CompilationResult.
    """

    def __init__(
        self, expression: str, features: SelectorFeatures, error: str | None, parts: tuple[Evaluate, int]
    ) -> None:
        self.expression, self.error = expression, error
        self._features, (self._evaluate, self._slots) = features, parts

    def matches(self, device: SelectorDevice, cost_limit: int = COST_LIMIT) -> bool:
        """Whether the device meets the selector.

        Errors: SelectorError; for an expression that does not compile, too.
        """
        return self.evaluated(device, cost_limit)[0]

    def evaluated(self, device: SelectorDevice, cost_limit: int = COST_LIMIT) -> tuple[bool, int]:
        """Whether the device meets the selector, and what finding out cost.

        Errors: SelectorError.
        """
        if self.error is not None:
            raise SelectorError(self.error)
        variable, with_lists, without_lists = device._seen  # noqa: SLF001 - what only selectors read
        problem = with_lists if self._features.list_type_attributes else without_lists
        if problem:
            raise SelectorError(problem)
        run = Run(variable, cost_limit, self._slots)
        try:
            value = self._evaluate(run)
        except EvaluationEndedError as error:
            raise SelectorError(str(error)) from None
        if isinstance(value, Failure):
            raise SelectorError(value.message)
        if type(value) is not bool:
            text = f"CEL result of type {type_name(value)} could not be converted to bool"
            raise SelectorError(f"{text}: {no_bool_text(value)}")
        return value, run.cost


_DEFAULTS = SelectorFeatures()


_BYTES_PER_CHARACTER = 200
_KNOWN = BoundedCache[tuple[str, SelectorFeatures, bool], CompiledSelector](32 << 20)


def compile_selector(
    expression: str, *, features: SelectorFeatures = _DEFAULTS, new_expression: bool = False
) -> CompiledSelector:
    """The compiled expression; `error` says why it does not compile. Pods repeat expressions, so they are kept.

    ``new_expression``: as the API server compiles those of new objects; the scheduler compiles stored ones.
    Follows: v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, CompileCELExpression.
    """
    key = (expression, features, new_expression)
    selector = _KNOWN.get(key)
    if selector is None:
        error, parts = _compiled(expression, features, is_stored=not new_expression)
        selector = CompiledSelector(expression, features, error, parts)
        _KNOWN.put(key, selector, len(expression) * _BYTES_PER_CHARACTER)
    return selector


def _compiled(
    expression: str, features: SelectorFeatures, *, is_stored: bool
) -> tuple[str | None, tuple[Evaluate, int]]:
    none: tuple[Evaluate, int] = (lambda _: None, 0)
    errors, lists = ExpressionErrors(expression), features.list_type_attributes
    has_sharing = is_stored or features.consumable_capacity
    has_includes = (is_stored and features.stored_may_include) or lists
    checker = Checker(errors, DYN if lists else ANY, has_sharing=has_sharing, has_includes=has_includes)
    root = None
    try:
        root = parse(expression, errors)
        for step in (checker.check, checker.validate):
            if not errors:
                step(root)
    except FatalError:
        pass
    if errors or root is None:
        return f"compilation failed: {errors}", none
    kind = checker.final_type(root)
    if kind not in ("bool", ANY) and not (lists and kind == DYN):
        return f"must evaluate to bool or the unknown type, not {type_text(kind)}", none
    try:
        return None, program(root)
    except (ValueError, EvaluationEndedError) as error:
        return f"program instantiation failed: {error}", none
