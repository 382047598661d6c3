"""Selectors of devices at their edges; what Kubernetes answers is recorded in tests/conformance."""

import re

import pytest

from nodewright.engine.core.claims.cel import (
    SelectorDevice,
    SelectorError,
    SelectorFeatures,
    compile_selector,
    explain_selector_error,
)
from nodewright.model.kubernetes.device_attributes import Version
from nodewright.model.values.quantity import Quantity

GPU = SelectorDevice(
    "gpu.example.com",
    {"model": "A100", "cores": 108, "ecc": True, "version": Version("1.2.3-rc.1"), "other.io/site": "east"},
    {"memory": Quantity.parse("80Gi")},
)
LISTS = SelectorFeatures(list_type_attributes=True)
ATTRIBUTES = 'device.attributes["gpu.example.com"]'


def error_of(expression: str) -> str:
    """Why the expression does not compile or cannot be evaluated."""
    selector = compile_selector(expression)
    if selector.error is not None:
        return selector.error
    with pytest.raises(SelectorError) as error:
        selector.matches(GPU)
    return str(error.value)


@pytest.mark.parametrize(
    "expression",
    [
        f'{ATTRIBUTES}.model == "A100" && {ATTRIBUTES}.cores > 100',
        'device.attributes["other.io"].site == "east" && !("x" in device.attributes)',
        f'{ATTRIBUTES}.version.isLessThan(semver("1.2.3"))',
        'device.capacity["gpu.example.com"].memory.add(quantity("1Gi")) == quantity("81Gi")',
        f"{ATTRIBUTES}.?nope.orValue(true) && {ATTRIBUTES}.?model.hasValue()",
        f'cel.bind(a, {ATTRIBUTES}, a.model.matches("^A[0-9]+$") && a.ecc)',
        "[3, 1, 2].sort().map(x, x * 2).filter(x, x > 2) == [4, 6]",
        "{'a': 1, 'b': 2}.transformMapEntry(k, v, {v: k}) == {1: 'a', 2: 'b'}",
        "['x', 'yy'].sortBy(s, -s.size()) == ['yy', 'x']",
        "'%s is %.1f%%, %x'.format(['it', 99.55, 255]) == 'it is 99.5%, ff'",
        "string(1e6) == '1e+06' && string(0.1) == '0.1' && double('1e3') == 1000.0",
        "7 / -2 == -3 && 7 % -2 == 1 && -7 % 2 == -1",
        r"'a\u00e9\x41\101' == 'aéAA' && b'\xff\101' == b'\377A' && r'\n'.size() == 2",
        "duration('90m').getHours() == 1 && timestamp('2024-03-01T00:00:00Z').getDayOfYear('-01:00') == 59",
        "ip('fe80::1').isLinkLocalUnicast() && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "url('https://[::1]:80/a?b=c').getHostname() == '::1' && url('https://a/?b=c').getQuery()['b'] == ['c']",
        "format.dns1123Label().validate('no_label').hasValue() && !format.named('nope').hasValue()",
        "[1, 2, 1].distinct() == [1, 2] && [[1], [2]].flatten() == [1, 2] && sets.equivalent([1, 2], [2, 1])",
        "optional.none().or(optional.of(1)).value() == 1 && [1, 2].last().optMap(x, x + 1) == optional.of(3)",
        "'a,b'.split(',').join('-').replace('-', '').upperAscii().substring(1) == 'B'",
    ],
)
def test_selectors_that_match(expression: str) -> None:
    selector = compile_selector(expression)
    assert selector.error is None
    assert selector.matches(GPU)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("device.driver.matches('(a')", "invalid matches argument"),
        (
            "device.driver.find('(?=a)') == ''",
            "program instantiation failed: error parsing regexp: invalid or",
        ),
        ("as == 1", "ERROR: <input>:1:1: reserved identifier: as"),
        ("1 + 9223372036854775807 > 0", "integer overflow"),
        ("9223372036854775808 > 0", "ERROR: <input>:1:1: invalid int literal"),
        ("a.true", "Syntax error: mismatched input 'true' expecting IDENTIFIER"),
        ("[1, 2", "ERROR: <input>:1:6: Syntax error: "),
        ("[].map(1, 2) == []", "ERROR: <input>:1:8: argument is not an identifier"),
        ("'é' + 1 == 2", " | 'é' + 1 == 2\n | .\uff0e..^"),
        (
            "true &&\n  nope",
            "ERROR: <input>:2:3: undeclared reference to 'nope' (in container '')\n |   nope\n | ..^",
        ),
        ("device.driver in 'x'", "found no matching overload for '@in' applied to '(string, string)'"),
        ("quantity('1Gi') == quantity('512Mi').add(quantity('512Mi'))", "no such overload"),
        (
            f"{ATTRIBUTES}.version in ['1.2.3']",
            "internal error: runtime error: hash of unhashable type cel.Semver",
        ),
        ("'%d'.format(['a']) == ''", "error during formatting: decimal clause can only be used on integers"),
    ],
)
def test_errors(expression: str, error: str) -> None:
    assert error in error_of(expression)


START = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
ARGUMENT = START.replace("'.'", "')', '.'")


@pytest.mark.parametrize(
    ("expression", "errors"),
    [
        ("-", ["2: no viable alternative at input '-'", f"2: mismatched input '<EOF>' expecting {{{START}}}"]),
        ("?!", [f"{at}: extraneous input '{text}' expecting {{{START}}}" for at, text in ((1, "?"), (3, "<EOF>"))]),
        ("1 :", ["3: extraneous input ':' expecting <EOF>"]),
        ("1 1 {", ["3: mismatched input '1' expecting <EOF>"]),
        ("( x", ["4: missing ')' at '<EOF>'"]),
        ("[1,", ["4: missing ']' at '<EOF>'"]),
        ("[1 2]", ["4: extraneous input '2' expecting {']', ','}"]),
        ("[,2,3]", ["3: mismatched input '2' expecting ']'"]),
        ('{"a" 1}', ["6: missing ':' at '1'"]),
        ('{"a": 1', ["8: mismatched input '<EOF>' expecting {'}', ','}"]),
        ("! ? x ]", [f"3: extraneous input '?' expecting {{{START}}}", "7: mismatched input ']' expecting ':'"]),
        ("foo(:)", [f"5: extraneous input ':' expecting {{{ARGUMENT}}}"]),
        ('. in "a" ]', ["3: no viable alternative at input '. in'", "10: extraneous input ']' expecting <EOF>"]),
        ("x {", ["4: mismatched input '<EOF>' expecting {'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"]),
        ("device. == 1", ["9: no viable alternative at input '. =='"]),
        ("true ? 1", ["9: mismatched input '<EOF>' expecting ':'"]),
        ("x = 'a", ["3: token recognition error at: '= '", "5: token recognition error at: ''a'"]),
    ],
)  # fmt: skip
def test_syntax_errors_are_those_of_antlr(expression: str, errors: list[str]) -> None:
    found = re.findall(r"ERROR: <input>:1:([0-9]+): Syntax error: (.*)", error_of(expression))
    assert [f"{at}: {message}" for at, message in found] == errors


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("(" * 5000 + "true" + ")" * 5000, "nested too deeply: more than 100 levels"),
        ("[" * 240 + "]" * 240 + " == []", "nested too deeply: more than 100 levels"),
        ("!" * 5000 + "(" * 5000, "nested too deeply: more than 100 levels"),
        ("device" + ".a" * 240, "nested too deeply: more than 200 levels"),
        ("1" + " + 1" * 300 + " == 1", "nested too deeply: more than 200 levels"),
        (" ".join(["?"] * 500), "input '?' expecting"),
        ("[) " * 60, "error recovery attempt limit exceeded: 30"),
        ("9" * 10_000 + " == 1", "invalid int literal"),
        ("'" * 9_999, "token recognition error"),
        ("a" * 20_000, "undeclared reference"),
    ],
)
def test_hostile_expressions_are_errors_in_bounded_time(expression: str, error: str) -> None:
    assert error in error_of(expression)


def test_a_pattern_cannot_take_exponential_time() -> None:
    selector = compile_selector(
        "'" + "a" * 200 + "'.matches('(a*)*b') || '" + "a" * 99 + "b'.matches('^(a|aa)+$')"
    )
    assert not selector.matches(GPU)


def test_nested_parentheses_up_to_the_limit_are_read() -> None:
    assert compile_selector("(" * 99 + "true" + ")" * 99).matches(GPU)


def test_an_attribute_that_cannot_be_read_fails_every_selector() -> None:
    broken = SelectorDevice("d", {"list": (1, 2), "v": Version("1")})
    with pytest.raises(SelectorError, match="attribute list: unsupported attribute value"):
        compile_selector("true").matches(broken)
    with pytest.raises(SelectorError, match="attribute v: parse semantic version: No Major"):
        compile_selector("true", features=LISTS).matches(broken)


def test_gates_decide_what_new_expressions_may_use() -> None:
    none = SelectorFeatures(consumable_capacity=False)
    for expression in ("device.allowMultipleAllocations", 'device.attributes["a"].b.includes(1)'):
        assert compile_selector(expression, features=none).error is None
        assert compile_selector(expression, features=none, new_expression=True).error is not None


def test_stored_expressions_of_older_releases_have_no_lists() -> None:
    older = SelectorFeatures(stored_may_include=False)
    error = compile_selector('device.attributes["a"].b.includes(1)', features=older).error
    assert error is not None
    assert "undeclared reference to 'includes'" in error
    assert compile_selector("device.allowMultipleAllocations", features=older).error is None


def test_the_cost_is_limited() -> None:
    selector = compile_selector('device.driver == "gpu.example.com"')
    _, cost = selector.evaluated(GPU)
    assert selector.matches(GPU, cost)
    with pytest.raises(SelectorError, match="operation cancelled: actual cost limit exceeded"):
        selector.matches(GPU, cost - 1)


@pytest.mark.parametrize(
    ("expression", "explanation"),
    [
        (
            f"{ATTRIBUTES}.memry > 1",
            "column 38: the devices have no attribute `memry` in domain gpu.example.com; did you mean `memory` (capacity)?",
        ),
        (
            'device.capacity["gpu.example.com"].xyz.isInteger()',
            "column 36: the devices have no capacity `xyz` in domain gpu.example.com",
        ),
        ("device.atributes", "column 7: undefined field 'atributes'; did you mean `attributes`?"),
        (
            "true ||\ndevise.driver == ''",
            "line 2, column 1: undeclared reference to 'devise' (in container ''); did you mean `device`?",
        ),
        ("1 / 0 == 1", "division by zero"),
    ],
)
def test_errors_are_explained(expression: str, explanation: str) -> None:
    assert explain_selector_error(expression, error_of(expression), [GPU]) == explanation
