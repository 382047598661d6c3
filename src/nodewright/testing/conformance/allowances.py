"""What an answer may do otherwise than the recorded one: each gives what the answer counts as at a place.

An allowance that does not apply gives back the answer as it is.
"""

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from nodewright.testing.conformance.sizes import is_artefact


class Absent(Enum):
    """The value of a member or an item that is not there: ABSENT; an enumeration, so that it stays one."""

    ABSENT = "(absent)"

    def __repr__(self) -> str:
        return self.value


ABSENT = Absent.ABSENT

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in an answer: its own name, what was expected there and what was given."""

    question: dict[str, Any]
    name: str
    members: tuple[str, ...]
    expect: Any
    got: Any

    def member(self, name: str) -> "Place":
        """The place of that member below this one."""
        expect, got = self.expect.get(name, ABSENT), self.got.get(name, ABSENT)
        return replace(self, name=name, expect=expect, got=got)

    def item(self, index: int) -> "Place":
        """The place of that item below this one."""
        expect = self.expect[index] if index < len(self.expect) else ABSENT
        return replace(self, name=str(index), expect=expect, got=self.got[index])

    def both_are(self, kind: type) -> bool:
        """Whether both sides are of the kind."""
        return isinstance(self.expect, kind) and isinstance(self.got, kind)


def exact_text(value: Any) -> str:
    """One text for all values that are equal as JSON.

    >>> exact_text([1.0, True]), exact_text([1, 1])
    ('[1, true]', '[1, 1]')
    """
    return repr(value) if value is ABSENT else json.dumps(_whole_as_int(value), sort_keys=True)


def any_order(at: Place) -> Any:
    """A list in any order, repetitions counted."""
    if not at.both_are(list):
        return at.got
    given = defaultdict(list)
    for item in at.got:
        given[exact_text(item)].append(item)
    placed = [given[text].pop() if given[text] else ABSENT for text in map(exact_text, at.expect)]
    left = [item for items in given.values() for item in items]
    return [left.pop() if item is ABSENT and left else item for item in placed] + left


def recorded_choice(at: Place) -> Any:
    """The members may be any choice recorded beside the first; `alternatives` need not be given.

    Where they are given, they and the choice made must be the recorded choices.
    """
    if not at.both_are(dict) or "alternatives" not in at.expect:
        return at.got
    recorded = sorted([_choice(at, at.expect), *map(exact_text, at.expect["alternatives"])])
    others = at.got.get("alternatives", ABSENT)
    chosen = _choice(at, at.got)
    if others is not ABSENT:
        named = [chosen, *map(exact_text, others)] if isinstance(others, list) else []
        if sorted(named) != recorded:
            return at.got
    kept = {**at.got, "alternatives": at.expect["alternatives"]}
    return _with_expected(at, kept, at.members) if chosen in recorded else kept


def may_lack(at: Place) -> Any:
    """The member may be missing; given, it counts."""
    return at.expect if at.got is ABSENT else at.got


def null_for_nothing(at: Place) -> Any:
    """Null may stand where nothing is expected."""
    return ABSENT if at.expect is ABSENT and at.got is None else at.got


def nearly_equal(at: Place) -> Any:
    """Texts of numbers within a 10**-12th of each other."""
    if not at.both_are(str) or not _NUMBER.fullmatch(at.got):
        return at.got
    return at.expect if math.isclose(float(at.expect), float(at.got), rel_tol=1e-12) else at.got


def any_for_overflow(at: Place) -> Any:
    """Any integer where the recorded one is what wrap-around left."""
    if type(at.got) is not int or type(at.expect) is not int:
        return at.got
    return at.expect if is_artefact(at.question, at.name, at.expect) else at.got


def end_of_number_error(at: Place) -> Any:
    """An error that quotes Go's number parser counts up to its second colon."""
    if not at.both_are(str) or ": strconv." not in at.expect:
        return at.got
    return at.expect if at.expect.split(":")[:2] == at.got.split(":")[:2] else at.got


def message_beside_reason(at: Place) -> Any:
    """Some message where the record has a reason alone."""
    if not at.both_are(dict) or "reason" not in at.expect or "message" in at.expect:
        return at.got
    if not isinstance(at.got.get("message"), str):
        return at.got
    return {name: value for name, value in at.got.items() if name != "message"}


def state_where_it_changes(at: Place) -> Any:
    """A step may lack `machineState` where the step before left it like that."""
    if not at.both_are(dict) or not isinstance(at.got.get("steps"), list):
        return at.got
    begin = at.expect.get("start") or at.question.get("initialState") or {}
    before = begin.get("machineState", ABSENT)
    steps = list(at.got["steps"])
    for index, step in enumerate(at.expect.get("steps", ())[: len(steps)]):
        now = step.get("machineState", before)
        given = steps[index]
        if isinstance(given, dict) and "machineState" not in given and exact_text(now) == exact_text(before):
            steps[index] = given | {name: step[name] for name in ("machineState",) if name in step}
        before = now
    return {**at.got, "steps": steps}


def error_alone(at: Place) -> Any:
    """An error may stand alone where everything beside it is empty."""
    if not at.both_are(dict) or "error" not in at.expect or at.got.keys() != {"error"}:
        return at.got
    empty = {name: value for name, value in at.expect.items() if name != "error" and not value}
    return {**at.got, **empty}


def _choice(at: Place, value: dict[str, Any]) -> str:
    if len(at.members) == 1:
        return exact_text(value.get(at.members[0], ABSENT))
    return exact_text({name: value[name] for name in at.members if name in value})


def _with_expected(at: Place, got: dict[str, Any], members: tuple[str, ...]) -> dict[str, Any]:
    others = {name: value for name, value in got.items() if name not in members}
    return others | {name: at.expect[name] for name in members if name in at.expect}


def _whole_as_int(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole_as_int(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole_as_int(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
