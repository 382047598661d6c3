"""Family quantity: parsing, formatting and arithmetic of quantities."""

from collections.abc import Callable, Mapping
from typing import Any

from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError, QuantityFormat

Question = dict[str, Any]


def answer(question: dict[str, Any], machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """Kubernetes' result of the operation in `op`."""
    del machines, release
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


def _add(question: Question) -> Any:
    left, right = map(Quantity.parse, question["args"])
    return _amount(left + right)


def _sub(question: Question) -> Any:
    left, right = map(Quantity.parse, question["args"])
    return _amount(left - right)


def _sum(question: Question) -> Any:
    return _amount(sum(map(Quantity.parse, question["args"]), ZERO))


def _cmp(question: Question) -> Any:
    left, right = map(Quantity.parse, question["args"])
    return {"cmp": left.compare(right)}


def _cmp_int64(question: Question) -> Any:
    text, units = question["args"]
    return {"cmp": Quantity.parse(text).compare(Quantity.of(units))}


def _neg(question: Question) -> Any:
    (text,) = question["args"]
    return _amount(-Quantity.parse(text))


def _mul(question: Question) -> Any:
    text, factor = question["args"]
    product, exact = Quantity.parse(text).times(factor)
    return {**_amount(product), "exact": exact}


def _round_up(question: Question) -> Any:
    text, scale = question["args"]
    rounded, exact = Quantity.parse(text).rounded_up(scale)
    return {**_amount(rounded), "exact": exact}


def _scaled_value(question: Question) -> Any:
    text, scale = question["args"]
    return {"value": Quantity.parse(text).scaled_value(scale)}


def _from_scaled(question: Question) -> Any:
    return _amount(
        Quantity.of(question["value"], QuantityFormat(question["format"]), scale=question["scale"])
    )


_OPERATIONS: dict[str, Callable[[Question], Any]] = {
    "parse": _parse,
    "json": _json,
    "add": _add,
    "sub": _sub,
    "sum": _sum,
    "cmp": _cmp,
    "cmpInt64": _cmp_int64,
    "neg": _neg,
    "mul": _mul,
    "roundUp": _round_up,
    "scaledValue": _scaled_value,
    "fromScaled": _from_scaled,
}


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
