"""Whether an answer is the recorded one: exact JSON equality, and a table of what is let pass.

Equality is that of JSON values: 1 is 1.0, true is not 1, members come in any order, items of lists in theirs,
null is not absence, texts are compared to the byte. A rule of the table lets more pass by rewriting the
answer at its places into what was expected; what then still differs is a mismatch.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from nodewright.testing.conformance import allowances
from nodewright.testing.conformance.allowances import ABSENT, Place, exact_text

Allowance = Callable[[Place], Any]
Steps = tuple[str | int, ...]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


class Mismatch(NamedTuple):
    """One difference; a side that has nothing at the path holds ABSENT."""

    path: str
    expected: Any
    got: Any


@dataclass(frozen=True, slots=True)
class Rule:
    """What is let pass, and where: `*` is every item of a list or member of an object, "" the whole answer."""

    family: str
    paths: tuple[str, ...]
    allowance: Allowance
    members: tuple[str, ...] = ()
    """The members that the allowance is about, where it is about some."""


_VERDICT = ("reason", "message")
_CELLS = tuple(f"{place}machineState.*.cells" for place in ("start.", "steps.*.", "final."))
_NODE_SETS = (
    "events.*.containers.*.hint.numaNodes",
    "events.*.containers.*.memory.*.numaNodes",
    "events.*.containers.*.devices.*",
    "events.*.podMemory.*.numaNodes",
    "events.*.state.freeDevices.*",
    "events.*.state.memory.*.group",
    "initial.freeDevices.*",
    "initial.memory.*.group",
)

RULES = (
    Rule("checkpoint", ("hashedText",), allowances.may_lack),
    Rule("eviction", ("thresholds", "ticks.*.thresholdsMet"), allowances.any_order),
    Rule("eviction", ("ticks.*",), allowances.recorded_choice, ("action",)),
    Rule("eviction", ("ticks.*.admit.*",), allowances.message_beside_reason),
    Rule("kubelet-config", ("errors",), allowances.any_order),
    Rule("limitrange", ("errors",), allowances.any_order),
    Rule("memory-manager", ("",), allowances.state_where_it_changes),
    Rule("memory-manager", _CELLS, allowances.any_order),
    Rule("node", ("events",), allowances.null_for_nothing),
    Rule("node", ("events.*",), allowances.recorded_choice, _VERDICT),
    Rule("node", _NODE_SETS, allowances.any_order),
    Rule("predicates", ("",), allowances.recorded_choice, _VERDICT),
    Rule("preemption", ("",), allowances.error_alone),
    Rule("quantity", ("float", "approximateFloat"), allowances.nearly_equal),
    Rule("quantity", ("value", "milliValue"), allowances.any_for_overflow),
    Rule("quota", ("matchingResources",), allowances.any_order),
    Rule("topology-merge", ("error",), allowances.end_of_number_error),
    Rule("topology-merge", ("hint.numaNodeAffinity",), allowances.any_order),
)
"""All that is let pass beside equality, as the descriptions of the families have it."""


def mismatches(family: str, question: dict[str, Any], expect: Any, answer: Any) -> tuple[Mismatch, ...]:
    """Where the answer differs from the recorded one; empty if it passes."""
    try:
        # Nearly every answer is equal, and the encoder sees that much faster than a walk.
        if json.dumps(expect, sort_keys=True) == json.dumps(answer, sort_keys=True):
            return ()
        for rule in RULES:
            if rule.family == family:
                answer = _rewritten(rule, question, expect, answer)
        return tuple(_differences(expect, answer, ()))
    except RecursionError:
        return (Mismatch("(whole)", expect, "an answer nested too deeply to be compared"),)


def _rewritten(rule: Rule, question: dict[str, Any], expect: Any, answer: Any) -> Any:
    for path in rule.paths:
        steps = tuple(path.split(".")) if path else ()
        answer = _rewritten_at(rule, steps, Place(question, "", rule.members, expect, answer))
    return answer


def _rewritten_at(rule: Rule, steps: tuple[str, ...], at: Place) -> Any:
    """The answer with what the rule lets pass below this place turned into what was expected."""
    if not steps:
        return rule.allowance(at)
    step, below = steps[0], steps[1:]
    if isinstance(at.expect, dict) and isinstance(at.got, dict):
        names = at.expect.keys() | at.got.keys() if step == "*" else {step}
        members = {name: _rewritten_at(rule, below, at.member(name)) for name in names}
        return {name: value for name, value in {**at.got, **members}.items() if value is not ABSENT}
    if isinstance(at.expect, list) and isinstance(at.got, list) and step == "*":
        items = (_rewritten_at(rule, below, at.item(index)) for index in range(len(at.got)))
        return list(items)
    return at.got


def _differences(expect: Any, got: Any, steps: Steps) -> Iterator[Mismatch]:
    if isinstance(expect, dict) and isinstance(got, dict):
        for name in (*expect, *sorted(got.keys() - expect.keys())):
            yield from _differences(expect.get(name, ABSENT), got.get(name, ABSENT), (*steps, name))
    elif isinstance(expect, list) and isinstance(got, list):
        for index, (one, other) in enumerate(zip_longest(expect, got, fillvalue=ABSENT)):
            yield from _differences(one, other, (*steps, index))
    elif exact_text(expect) != exact_text(got):
        yield Mismatch(_path_text(steps), expect, got)


def _path_text(steps: Steps) -> str:
    """The path as in `ticks[3].action`; members that are no words are quoted: `devices["a.b/c"]`."""
    named = (f".{step}" if _WORD.fullmatch(str(step)) else f"[{json.dumps(step)}]" for step in steps)
    return "".join(named).removeprefix(".") or "(whole)"
