"""Permitted deviations from recorded answers: each function returns the value that the answer counts as at a location.

An allowance that does not apply gives back the answer as it is.
"""

import json
import math
import re
from collections import defaultdict
from enum import Enum
from fractions import Fraction
from typing import Any

import msgspec
from msgspec.structs import replace


class Absent(Enum):
    """The value of an absent member or item; an enumeration, so that it is a singleton."""

    ABSENT = "(absent)"

    def __repr__(self) -> str:
        return self.value


ABSENT = Absent.ABSENT

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class AnswerLocation(msgspec.Struct, frozen=True):
    """A location in an answer: its name, the expected value and the actual value."""

    question: dict[str, Any]
    name: str
    members: tuple[str, ...]
    expected: Any
    actual: Any

    def member(self, name: str) -> "AnswerLocation":
        """The location of a member below this one."""
        expect, got = self.expected.get(name, ABSENT), self.actual.get(name, ABSENT)
        return replace(self, name=name, expected=expect, actual=got)

    def item(self, index: int) -> "AnswerLocation":
        """The location of an item below this one."""
        expect = self.expected[index] if index < len(self.expected) else ABSENT
        return replace(self, name=str(index), expected=expect, actual=self.actual[index])

    def both_are(self, kind: type) -> bool:
        """Whether both sides are of the kind."""
        return isinstance(self.expected, kind) and isinstance(self.actual, kind)


def exact_text(value: Any) -> str:
    """A text that is the same for all values that are equal as JSON.

    >>> exact_text([1.0, True]), exact_text([1, 1])
    ('[1, true]', '[1, 1]')
    """
    return repr(value) if value is ABSENT else json.dumps(_whole_as_int(value), sort_keys=True)


def any_order(at: AnswerLocation) -> Any:
    """A list in any order, repetitions counted."""
    if not at.both_are(list):
        return at.actual
    given = defaultdict(list)
    for item in at.actual:
        given[exact_text(item)].append(item)
    placed = [given[text].pop() if given[text] else ABSENT for text in map(exact_text, at.expected)]
    left = [item for items in given.values() for item in items]
    return [left.pop() if item is ABSENT and left else item for item in placed] + left


def recorded_choice(at: AnswerLocation) -> Any:
    """The members may be any of the recorded `alternatives`, which the answer need not include.

    Where they are given, they and the choice made must be the recorded choices.
    """
    if not at.both_are(dict) or "alternatives" not in at.expected:
        return at.actual
    recorded = sorted([_choice(at, at.expected), *map(exact_text, at.expected["alternatives"])])
    others = at.actual.get("alternatives", ABSENT)
    chosen = _choice(at, at.actual)
    if others is not ABSENT:
        named = [chosen, *map(exact_text, others)] if isinstance(others, list) else []
        if sorted(named) != recorded:
            return at.actual
    kept = {**at.actual, "alternatives": at.expected["alternatives"]}
    return _with_expected(at, kept, at.members) if chosen in recorded else kept


def optional_member(at: AnswerLocation) -> Any:
    """The member may be missing; if present, it is compared."""
    return at.expected if at.actual is ABSENT else at.actual


def unrecorded_member(at: AnswerLocation) -> Any:
    """The member may be present where nothing is recorded."""
    return ABSENT if at.expected is ABSENT else at.actual


def null_for_absent(at: AnswerLocation) -> Any:
    """Null is allowed where nothing is expected."""
    return ABSENT if at.expected is ABSENT and at.actual is None else at.actual


def nearly_equal(at: AnswerLocation) -> Any:
    """Texts of numbers within a 10**-12th of each other."""
    if not at.both_are(str) or not all(_NUMBER.fullmatch(text) for text in (at.expected, at.actual)):
        return at.actual
    return at.expected if math.isclose(float(at.expected), float(at.actual), rel_tol=1e-12) else at.actual


def any_integer_on_overflow(at: AnswerLocation) -> Any:
    """Any integer is allowed where the recorded one is the result of an overflow."""
    if type(at.actual) is not int or type(at.expected) is not int:
        return at.actual
    return at.expected if is_overflow_artefact(at.question, at.name, at.expected) else at.actual


def number_error_prefix(at: AnswerLocation) -> Any:
    """An error that quotes Go's number parser is compared up to its second colon."""
    if not at.both_are(str) or ": strconv." not in at.expected:
        return at.actual
    return at.expected if at.expected.split(":")[:2] == at.actual.split(":")[:2] else at.actual


def message_beside_reason(at: AnswerLocation) -> Any:
    """Any message is allowed where the record has only a reason."""
    if not at.both_are(dict) or "reason" not in at.expected or "message" in at.expected:
        return at.actual
    if not isinstance(at.actual.get("message"), str):
        return at.actual
    return {name: value for name, value in at.actual.items() if name != "message"}


def unchanged_state_omitted(at: AnswerLocation) -> Any:
    """A step may omit `machineState` if it is unchanged since the step before."""
    if not at.both_are(dict) or not isinstance(at.actual.get("steps"), list):
        return at.actual
    begin = at.expected.get("start") or at.question.get("initialState") or {}
    if not isinstance(begin, dict) or not _are_objects(at.expected.get("steps", ())):
        return at.actual
    before = begin.get("machineState", ABSENT)
    steps = list(at.actual["steps"])
    for index, step in enumerate(at.expected.get("steps", ())[: len(steps)]):
        now = step.get("machineState", before)
        given = steps[index]
        if isinstance(given, dict) and "machineState" not in given and exact_text(now) == exact_text(before):
            steps[index] = given | {name: step[name] for name in ("machineState",) if name in step}
        before = now
    return {**at.actual, "steps": steps}


def error_only(at: AnswerLocation) -> Any:
    """An error may be the only member if the others are empty."""
    if not at.both_are(dict) or "error" not in at.expected or at.actual.keys() != {"error"}:
        return at.actual
    empty = {name: value for name, value in at.expected.items() if name != "error" and not value}
    return {**at.actual, **empty}


def _choice(at: AnswerLocation, value: dict[str, Any]) -> str:
    if len(at.members) == 1:
        return exact_text(value.get(at.members[0], ABSENT))
    return exact_text({name: value[name] for name in at.members if name in value})


def _with_expected(at: AnswerLocation, got: dict[str, Any], members: tuple[str, ...]) -> dict[str, Any]:
    others = {name: value for name, value in got.items() if name not in members}
    return others | {name: at.expected[name] for name in members if name in at.expected}


def _whole_as_int(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole_as_int(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole_as_int(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _are_objects(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, dict) for item in value)


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
