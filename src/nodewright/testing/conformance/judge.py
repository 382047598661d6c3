"""The comparison of answers with recorded ones: exact JSON equality, with a table of permitted deviations.

Equality is that of JSON values: 1 is 1.0, true is not 1, members have no order, list items have one, null is not
absence, texts are compared byte by byte. A rule of the table permits a deviation by rewriting the answer at its
locations to the expected value; remaining differences are mismatches.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from nodewright.testing.conformance import allowances
from nodewright.testing.conformance.allowances import ABSENT, AnswerLocation, exact_text

Allowance = Callable[[AnswerLocation], Any]
Steps = tuple[str | int, ...]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


class Mismatch(NamedTuple):
    """A difference; a side without a value at the path is ABSENT."""

    path: str
    expected: Any
    actual: Any


class AllowanceRule(msgspec.Struct, frozen=True):
    """A permitted deviation and its paths: `*` is every item of a list or member of an object, "" the whole answer."""

    family: str
    paths: tuple[str, ...]
    allowance: Allowance
    members: tuple[str, ...] = ()
    """The members to which the deviation applies, if not to all."""


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

ALLOWANCE_RULES = (
    AllowanceRule("checkpoint", ("hashedText",), allowances.optional_member),
    AllowanceRule("eviction", ("thresholds", "ticks.*.thresholdsMet"), allowances.any_order),
    AllowanceRule("eviction", ("ticks.*",), allowances.recorded_choice, ("action",)),
    AllowanceRule("eviction", ("ticks.*.admit.*",), allowances.message_beside_reason),
    AllowanceRule("kubelet-config", ("errors",), allowances.any_order),
    AllowanceRule("limitrange", ("errors",), allowances.any_order),
    AllowanceRule("memory-manager", ("",), allowances.unchanged_state_omitted),
    AllowanceRule("memory-manager", _CELLS, allowances.any_order),
    AllowanceRule("node", ("events",), allowances.null_for_absent),
    AllowanceRule("node", ("events.*",), allowances.recorded_choice, _VERDICT),
    AllowanceRule("node", _NODE_SETS, allowances.any_order),
    AllowanceRule(
        "pod-resources", ("perContainerRequests", "perContainerLimits"), allowances.unrecorded_member
    ),
    AllowanceRule("predicates", ("",), allowances.recorded_choice, _VERDICT),
    AllowanceRule("preemption", ("",), allowances.error_only),
    AllowanceRule("quantity", ("float", "approximateFloat"), allowances.nearly_equal),
    AllowanceRule("quantity", ("value", "milliValue"), allowances.any_integer_on_overflow),
    AllowanceRule("quota", ("matchingResources",), allowances.any_order),
    AllowanceRule("topology-merge", ("error",), allowances.number_error_prefix),
    AllowanceRule("topology-merge", ("hint.numaNodeAffinity",), allowances.any_order),
)
"""All permitted deviations, as in the descriptions of the families."""


def mismatches(family: str, question: dict[str, Any], expect: Any, answer: Any) -> tuple[Mismatch, ...]:
    """The differences between the answer and the recorded one; empty if it passes."""
    try:
        # Nearly every answer is equal, which the encoder finds much faster than a walk.
        if json.dumps(expect, sort_keys=True) == json.dumps(answer, sort_keys=True):
            return ()
        for rule in ALLOWANCE_RULES:
            if rule.family == family:
                answer = _rewritten(rule, question, expect, answer)
        return tuple(_differences(expect, answer, ()))
    except RecursionError:
        return (Mismatch("(whole)", expect, "an answer nested too deeply to be compared"),)


def _rewritten(rule: AllowanceRule, question: dict[str, Any], expect: Any, answer: Any) -> Any:
    for path in rule.paths:
        steps = tuple(path.split(".")) if path else ()
        answer = _rewritten_at(rule, steps, AnswerLocation(question, "", rule.members, expect, answer))
    return answer


def _rewritten_at(rule: AllowanceRule, steps: tuple[str, ...], at: AnswerLocation) -> Any:
    """The answer with deviations that the rule permits below this location rewritten to the expected values."""
    if not steps:
        return rule.allowance(at)
    step, below = steps[0], steps[1:]
    if isinstance(at.expected, dict) and isinstance(at.actual, dict):
        names = at.expected.keys() | at.actual.keys() if step == "*" else {step}
        members = {name: _rewritten_at(rule, below, at.member(name)) for name in names}
        return {name: value for name, value in {**at.actual, **members}.items() if value is not ABSENT}
    if isinstance(at.expected, list) and isinstance(at.actual, list) and step == "*":
        items = (_rewritten_at(rule, below, at.item(index)) for index in range(len(at.actual)))
        return list(items)
    return at.actual


def _differences(expect: Any, got: Any, steps: Steps) -> Iterator[Mismatch]:
    if isinstance(expect, dict) and isinstance(got, dict):
        for name in (*expect, *sorted(got.keys() - expect.keys())):
            yield from _differences(expect.get(name, ABSENT), got.get(name, ABSENT), (*steps, name))
    elif isinstance(expect, list) and isinstance(got, list):
        for index, (expected, actual) in enumerate(zip_longest(expect, got, fillvalue=ABSENT)):
            yield from _differences(expected, actual, (*steps, index))
    elif exact_text(expect) != exact_text(got):
        yield Mismatch(_path_text(steps), expect, got)


def _path_text(steps: Steps) -> str:
    """The path as in `ticks[3].action`; members that are not words are quoted: `devices["a.b/c"]`."""
    named = (f".{step}" if _WORD.fullmatch(str(step)) else f"[{json.dumps(step)}]" for step in steps)
    return "".join(named).removeprefix(".") or "(whole)"
