"""Family quantity: parsing, formatting and arithmetic of quantities."""

from collections.abc import Callable, Mapping
from operator import add, sub
from typing import Any

from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError, QuantityFormat

Question = dict[str, Any]


def answer(question: dict[str, Any], _machines: Mapping[str, Any], _release: ReleaseTable) -> Any:
    """Kubernetes' result of the operation in `op`."""
    try:
        return _OPERATIONS[question["op"]](question)
    except QuantityError as error:
        return {"error": str(error)}


def _parse(question: Question) -> Any:
    amount = Quantity.parse(question["text"])
    return {
        **_amount(amount),
        "canonical": amount.canonical(),
        "isZero": amount.is_zero(),
        "asInt64": amount.as_int64(),
        "approximateFloat": _float(amount.approximate_float()),
        "float": _float(amount.as_float()),
    }


def _json(question: Question) -> Any:
    amount = Quantity.parse_json(question["json"])
    return {**_amount(amount), "json": f'"{amount}"'}


def _two(question: Question, operation: Callable[[Quantity, Quantity], Quantity]) -> Any:
    return _amount(operation(*map(Quantity.parse, question["args"])))


def _cmp(question: Question) -> Any:
    text, other = question["args"]
    right = Quantity.of(other) if isinstance(other, int) else Quantity.parse(other)
    return {"cmp": Quantity.parse(text).compare(right)}


def _exact(result: tuple[Quantity, bool]) -> Any:
    amount, exact = result
    return {**_amount(amount), "exact": exact}


_OPERATIONS: dict[str, Callable[[Question], Any]] = {
    "parse": _parse,
    "json": _json,
    "add": lambda question: _two(question, add),
    "sub": lambda question: _two(question, sub),
    "sum": lambda question: _amount(sum(map(Quantity.parse, question["args"]), ZERO)),
    "cmp": _cmp,
    "cmpInt64": _cmp,
    "neg": lambda question: _amount(-_first(question)),
    "mul": lambda question: _exact(_first(question).times(question["args"][1])),
    "roundUp": lambda question: _exact(_first(question).rounded_up(question["args"][1])),
    "scaledValue": lambda question: {"value": _first(question).scaled_value(question["args"][1])},
    "fromScaled": lambda question: _amount(
        Quantity.of(question["value"], QuantityFormat(question["format"]), scale=question["scale"])
    ),
}


def _first(question: Question) -> Quantity:
    return Quantity.parse(question["args"][0])


def _amount(amount: Quantity) -> dict[str, Any]:
    return {
        "string": str(amount),
        "format": amount.format.value,
        "value": amount.value(),
        "milliValue": amount.milli_value(),
        "sign": amount.sign(),
    }


def _float(number: float) -> str:
    """The number in Go's format."""
    if number != number:  # noqa: PLR0124 - the test for "not a number"
        return "NaN"
    return {float("inf"): "+Inf", float("-inf"): "-Inf"}.get(number, repr(number))
