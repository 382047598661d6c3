"""The exact result of a `quantity` question, computed independently of the engine.

Recorded numbers can be artefacts: if a result does not fit into 64 bits, Kubernetes returns the result of an
overflow. To recognise these, the judge needs the exact result.
"""

import math
import re
from fractions import Fraction
from typing import Any

INT64 = range(-(2**63), 2**63)

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)\.?(?P<decimals>[0-9]*)"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]{1,2}))"
)
_THOUSANDS = "num kMGTPE"
_LARGEST_BINARY = Fraction(INT64[-1])


def is_overflow_artefact(question: dict[str, Any], member: str, recorded: int) -> bool:
    """Whether the recorded `value` or `milliValue` is the result of an overflow.

    Beside results outside 64 bits these are negative ones too large for thousand-millionths in 64 bits,
    unless the number is right all the same (within the two that rounding may cost).
    """
    size = exact_result(question)
    if size is None:
        return False
    counted = away_from_zero(size, _scale(question, member))
    if counted not in INT64:
        return True
    return size * 10**9 < INT64[0] and abs(counted - recorded) > 2


def exact_result(question: dict[str, Any]) -> Fraction | None:
    """The exact result of the operation; None if an operand is not a plain quantity.

    >>> exact_result({"op": "sub", "args": ["1Ki", "24"]})
    Fraction(1000, 1)
    """
    arguments = question.get("args", [])
    match question["op"]:
        case "fromScaled":
            return int(question["value"]) * power_of_ten(question["scale"])
        case "parse":
            operands = [exact_amount(question["text"].strip().strip('"').strip())]
        case "json":
            operands = [exact_amount(question["json"].strip().strip('"').strip())]
        case _:
            operands = [exact_amount(argument) for argument in arguments if isinstance(argument, str)]
    known = [operand for operand in operands if operand is not None]
    if not known or len(known) < len(operands):
        return None
    match question["op"]:
        case "sub":
            return known[0] - known[1]
        case "neg":
            return -known[0]
        case "mul":
            return known[0] * int(arguments[1])
        case "roundUp":
            return away_from_zero(known[0], arguments[1]) * power_of_ten(arguments[1])
        case _:
            return sum(known, Fraction(0))


def exact_amount(text: str) -> Fraction | None:
    """The number of a quantity's text; None if it is not plain.

    >>> exact_amount("1.5k"), exact_amount("9Ei") == INT64[-1], exact_amount("1e400")
    (Fraction(1500, 1), True, None)
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    digits = match["whole"] + match["decimals"]
    size = Fraction(int(digits or "0"), 10 ** len(match["decimals"]))
    if match["binary"]:
        size = min(size * 1024 ** (1 + "KMGTPE".index(match["binary"][0])), _LARGEST_BINARY)
    elif match["exponent"]:
        size *= power_of_ten(int(match["exponent"]))
    elif match["decimal"]:
        size *= power_of_ten(3 * (_THOUSANDS.index(match["decimal"]) - _THOUSANDS.index(" ")))
    return -size if match["sign"] == "-" else size


def away_from_zero(size: Fraction, scale: int) -> int:
    """How many 10**scale it takes to cover the size."""
    units = math.ceil(abs(size) / power_of_ten(scale))
    return -units if size < 0 else units


def power_of_ten(exponent: int) -> Fraction:
    """10**exponent, exactly."""
    return Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)


def _scale(question: dict[str, Any], member: str) -> int:
    if member == "milliValue":
        return -3
    return int(question["args"][1]) if question["op"] == "scaledValue" else 0
