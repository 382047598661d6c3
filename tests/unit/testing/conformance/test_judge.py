import json
from typing import Any

import pytest

from nodewright.testing.conformance.allowances import ABSENT
from nodewright.testing.conformance.judge import ALLOWANCE_RULES, Mismatch, mismatches
from nodewright.testing.conformance.vector_run import UNANSWERED
from nodewright.testing.conformance.vectors import ALL_FAMILIES

# Family, recorded answer, answer given: what passes, and beside it what does not.
PASSES = """
    cgroup            1                                 1.0
    cgroup            {"a":1,"b":[2]}                   {"b":[2.0],"a":1}
    checkpoint        {"bytes":"x","hashedText":"h"}    {"bytes":"x"}
    eviction          {"thresholds":[1,2,2]}            {"thresholds":[2,1,2]}
    eviction          {"ticks":[{"thresholdsMet":["a","b"]}]}     {"ticks":[{"thresholdsMet":["b","a"]}]}
    eviction          {"ticks":[{"action":1,"alternatives":[2,null]}]}     {"ticks":[{"action":2}]}
    eviction          {"ticks":[{"action":1,"alternatives":[2]}]}     {"ticks":[{"action":2,"alternatives":[1]}]}
    eviction          {"ticks":[{"action":1,"alternatives":[2]}]}     {"ticks":[{"action":1}]}
    eviction          {"ticks":[{"admit":{"p":{"reason":"Evicted"}}}]}     {"ticks":[{"admit":{"p":{"reason":"Evicted","message":"so"}}}]}
    kubelet-config    {"errors":["a","b"]}              {"errors":["b","a"]}
    limitrange        {"errors":["a","b"]}              {"errors":["b","a"]}
    memory-manager    {"final":{"machineState":{"0":{"cells":[0,1]}}}}     {"final":{"machineState":{"0":{"cells":[1,0]}}}}
    memory-manager    {"start":{"machineState":{}},"steps":[{"machineState":{}}]}     {"start":{"machineState":{}},"steps":[{}]}
    memory-manager    {"steps":[{"machineState":{"0":1}},{"machineState":{"0":1}}]}     {"steps":[{"machineState":{"0":1}},{}]}
    node              {"error":"x"}                     {"error":"x","events":null}
    node              {"events":[{"reason":"a","message":"b","alternatives":[{"reason":"c"}]}]}     {"events":[{"reason":"c"}]}
    node              {"initial":{"freeDevices":{"gpu":["1","2"]}}}     {"initial":{"freeDevices":{"gpu":["2","1"]}}}
    node              {"events":[{"containers":{"c":{"hint":{"numaNodes":[0,1]}}}}]}     {"events":[{"containers":{"c":{"hint":{"numaNodes":[1,0]}}}}]}
    predicates        {"reason":"a","message":"b","alternatives":[{"reason":"a","message":"c"}]}     {"reason":"a","message":"c"}
    preemption        {"error":"x","killed":[],"reasons":null}     {"error":"x"}
    quantity          {"float":"1.5e+09"}               {"float":"1500000000.0000000001"}
    quota             {"matchingResources":["a","b"]}   {"matchingResources":["b","a"]}
    topology-merge    {"error":"a: b: strconv.Atoi: c"} {"error":"a: b: other"}
    topology-merge    {"hint":{"numaNodeAffinity":[0,1]}}     {"hint":{"numaNodeAffinity":[1,0]}}
"""

FAILS = """
    cgroup            1                                 true
    cgroup            1                                 "1"
    cgroup            null                              false
    cgroup            {"a":null}                        {}
    cgroup            {}                                {"a":null}
    cgroup            [1,2]                             [2,1]
    cgroup            [1,2]                             [1]
    cgroup            {"errors":["a","b"]}              {"errors":["b","a"]}
    cgroup            [[]]                              [{}]
    checkpoint        {"bytes":"x","hashedText":"h"}    {"bytes":"x","hashedText":"i"}
    eviction          {"thresholds":[1,2,2]}            {"thresholds":[1,2]}
    eviction          {"thresholds":[1,2,2]}            {"thresholds":[1,1,2]}
    eviction          {"ticks":[{"action":1,"alternatives":[2]}]}     {"ticks":[{"action":3}]}
    eviction          {"ticks":[{"action":1,"alternatives":[2]}]}     {"ticks":[{"action":2,"alternatives":[2]}]}
    eviction          {"ticks":[{"action":1,"alternatives":[2]}]}     {"ticks":[{"action":1,"alternatives":"2"}]}
    eviction          {"ticks":[{"action":1}]}          {"ticks":[{"action":1,"alternatives":[]}]}
    eviction          {"ticks":[{"admit":{"p":{"reason":"Evicted","message":"no"}}}]}     {"ticks":[{"admit":{"p":{"reason":"Evicted","message":"so"}}}]}
    eviction          {"ticks":[{"admit":{"p":{"reason":"Evicted"}}}]}     {"ticks":[{"admit":{"p":{"reason":"Evicted","message":1}}}]}
    memory-manager    {"start":{"machineState":{"0":1}},"steps":[{"machineState":{}}]}     {"start":{"machineState":{"0":1}},"steps":[{}]}
    memory-manager    {"steps":[{"machineState":{"0":1}}]}     {"steps":[{}]}
    memory-manager    {"start":{"machineState":{}},"steps":[{"machineState":{}}]}     {"start":{"machineState":{}},"steps":[]}
    node              {"error":"x"}                     {"error":"x","events":[]}
    node              {"events":[{"reason":"a","message":"b","alternatives":[{"reason":"c","message":"d"}]}]}     {"events":[{"reason":"a","message":"d"}]}
    preemption        {"error":"x","killed":["p"]}      {"error":"x"}
    preemption        {"error":"x","killed":[]}         {"error":"y"}
    quantity          {"float":"1.5e+09"}               {"float":"1500000000.1"}
    quantity          {"float":"1.5e+09"}               {"float":"1.5e+09 "}
    quantity          {"float":"1.5e+09"}               {"float":1500000000}
    topology-merge    {"error":"a: b: strconv.Atoi: c"} {"error":"a: c: strconv.Atoi: c"}
    topology-merge    {"error":"a: b: c"}               {"error":"a: b: d"}
"""


def cases(table: str) -> list[tuple[str, str, str]]:
    result = []
    for line in table.strip().splitlines():
        family, rest = line.split(maxsplit=1)
        expect, end = json.JSONDecoder().raw_decode(rest)
        result.append((family, json.dumps(expect), rest[end:].strip()))
    return result


@pytest.mark.parametrize(("family", "expect", "given"), cases(PASSES))
def test_equal_and_permitted_answers_are_no_mismatch(family: str, expect: str, given: str) -> None:
    assert mismatches(family, {"op": "parse", "text": "1"}, json.loads(expect), json.loads(given)) == ()


@pytest.mark.parametrize(("family", "expect", "given"), cases(FAILS))
def test_other_answers_are_mismatches(family: str, expect: str, given: str) -> None:
    assert mismatches(family, {"op": "parse", "text": "1"}, json.loads(expect), json.loads(given))


# Question, recorded value, value given, passes.
OVERFLOWS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = [
    ({"op": "parse", "text": "1"}, {"value": 1}, {"value": 2}, False),
    ({"op": "parse", "text": "10E"}, {"value": 0}, {"value": 5}, True),
    ({"op": "parse", "text": "10E"}, {"value": 0}, {"value": True}, False),
    ({"op": "parse", "text": "10P"}, {"milliValue": 0}, {"milliValue": 1}, True),
    ({"op": "parse", "text": "9Ei"}, {"value": 2**63 - 1}, {"value": 0}, False),
    ({"op": "json", "json": '"10E"'}, {"value": 0}, {"value": 5}, True),
    ({"op": "add", "args": ["5E", "5E"]}, {"value": 0}, {"value": 5}, True),
    ({"op": "add", "args": ["5E", "no"]}, {"value": 0}, {"value": 5}, False),
    ({"op": "sub", "args": ["10E", "5E"]}, {"value": 0}, {"value": 5}, False),
    ({"op": "neg", "args": ["10E"]}, {"value": 0}, {"value": 5}, True),
    ({"op": "mul", "args": ["5E", 2]}, {"value": 0}, {"value": 5}, True),
    ({"op": "roundUp", "args": ["1", 20]}, {"value": 0}, {"value": 5}, True),
    ({"op": "scaledValue", "args": ["1k", -18]}, {"value": 0}, {"value": 5}, True),
    ({"op": "scaledValue", "args": ["1k", 0]}, {"value": 1000}, {"value": 5}, False),
    ({"op": "fromScaled", "value": 1, "scale": 19}, {"value": 0}, {"value": 5}, True),
    ({"op": "parse", "text": "-10G"}, {"value": 77}, {"value": 5}, True),
    ({"op": "parse", "text": "-10G"}, {"value": -(10**10)}, {"value": 5}, False),
    ({"op": "parse", "text": "1e19"}, {"string": "10e18"}, {"string": "1e19"}, False),
]


@pytest.mark.parametrize(("question", "expect", "given", "passes"), OVERFLOWS)
def test_numbers_count_where_the_result_fits_64_bits(
    question: dict[str, Any], expect: dict[str, Any], given: dict[str, Any], *, passes: bool
) -> None:
    assert (mismatches("quantity", question, expect, given) == ()) is passes


def test_a_mismatch_names_its_place_and_both_sides() -> None:
    expect = {"a": [{"b": 1}], "vendor.example/gpu": 1, "gone": None}
    given = {"a": [{"b": 2}, 3], "vendor.example/gpu": "1"}
    assert mismatches("cgroup", {}, expect, given) == (
        Mismatch("a[0].b", 1, 2),
        Mismatch("a[1]", ABSENT, 3),
        Mismatch('["vendor.example/gpu"]', 1, "1"),
        Mismatch("gone", None, ABSENT),
    )


def test_the_whole_answer_has_a_name_too() -> None:
    assert mismatches("cgroup", {}, 1, 2) == (Mismatch("(whole)", 1, 2),)


def test_unordered_lists_show_only_missing_and_extra_items() -> None:
    expect, given = {"errors": ["a", "b", "c"]}, {"errors": ["c", "x", "a"]}
    assert mismatches("limitrange", {}, expect, given) == (Mismatch("errors[1]", "b", "x"),)


@pytest.mark.slow
def test_an_answer_nested_too_deeply_fails() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(mismatches("cgroup", {}, [], deep)) == 1


def test_the_answers_are_left_as_they_are() -> None:
    expect = {"steps": [{"machineState": {}}], "start": {"machineState": {}}}
    given: dict[str, Any] = {"steps": [{}], "start": {"machineState": {}}}
    assert mismatches("memory-manager", {}, expect, given) == ()
    assert given["steps"] == [{}]


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("expect", [{}, {"error": "x"}, {"value": 0}, None])
def test_no_answer_never_passes(family: str, expect: Any) -> None:
    given = {UNANSWERED: "KeyError: 'x'"}
    assert mismatches(family, {"op": "parse", "text": "10E"}, expect, given)


def test_every_rule_is_about_a_family() -> None:
    assert {rule.family for rule in ALLOWANCE_RULES} <= set(ALL_FAMILIES)
