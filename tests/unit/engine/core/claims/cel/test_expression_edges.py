"""Expressions at the edges of their values, types and functions: the result, or why there is none."""

import pytest

from nodewright.engine.core.claims.cel import SelectorDevice, SelectorError, compile_selector
from nodewright.engine.core.claims.cel.explanation import DeviceName, device_names
from nodewright.engine.core.claims.cel.regex import compiled

DEVICE = SelectorDevice("d", {"s": "x", "n": 7})


def outcome(expression: str) -> bool | str:
    """The result, or why there is none."""
    selector = compile_selector(expression)
    if selector.error is not None:
        return selector.error
    try:
        return selector.matches(DEVICE)
    except SelectorError as error:
        return str(error)


@pytest.mark.parametrize(
    "expression",
    [
        "'abcb'.find('b.') == 'bc' && 'abc'.find('x') == '' && 'a1b2'.findAll('[0-9]', 1) == ['1']",
        "'ab'.lastIndexOf('a', 9) == -1 && [['a']].lastIndexOf(['b']) == -1 && [{'a': 1}].indexOf({'a': 1}) == 0",
        "lists.range(49).includes(3) && !lists.range(48).includes(48) && !dyn(1).includes(2)",
        "[].map(x, x.a + 1) == [] && [].all(x, x.all(y, y == 1)) && [].map(x, x) == [].map(y, [y])",
        "[] + [1] == [1] && [1] + [] == [1] && type([]) == type([1]) && type(1) != type('a')",
        "optional.of([]).orValue([1]) == [] && optional.none() != optional.of(1) && dyn(1).orValue(2) == 1",
        "device.attributes[dyn('nope')] == {} && dyn(1).?a == optional.none() && dyn(7) in [7.0] && !(1 in [])",
        "0.0 / 0.0 != 0.0 / 0.0 && -7 / 2 == -3 && -7 % 2 == -1 && 7 % -2 == 1",
        "uint('18446744073709551615') == 18446744073709551615u && double('-Inf') < 0.0 && !isQuantity('x')",
        "string(1234567.0) == '1.234567e+06' && string(-0.0) == '-0' && string(double('nan')) == 'NaN'",
    ],
)  # fmt: skip
def test_results(expression: str) -> None:
    assert outcome(expression) is True


@pytest.mark.parametrize(
    ("expression", "failure"),
    [
        (
            "'a'.find(device.driver + '[') == ''",
            "Illegal regex: error parsing regexp: missing closing ]: `[`",
        ),
        ("[dyn([1])].sort() == []", "list elements must be comparable"),
        ("[dyn({})].sortBy(x, x) == []", "list elements must be comparable"),
        ("[dyn(1)].flatten(dyn('a')) == []", "no such overload: list.flatten(string)"),
        (
            "lists.range(49).includes(48)",
            "'includes' function cannot be applied to lists longer than 48 values",
        ),
        ("dyn(semver('1.0.0')) == dyn(1)", "no such overload"),
        ("1 / int('0') == 0", "division by zero"),
        ("(1 / int('0')) in [1]", "division by zero"),
        ("{1 / int('0'): 1}.size() == 1", "division by zero"),
        ("[1].map(x, [1 / int('0')]).size() == 1", "division by zero"),
        ("{dyn({}): 1}.size() == 1", "unsupported key type"),
        ("dyn(1)['b'] == 1", "no such key: b"),
        ("dyn(1).all(x, true)", "got 'types.Int', expected iterable type"),
        ("uint(dyn('18446744073709551616')) == 1u", "type conversion error from 'string' to 'uint'"),
        ("uint(dyn('-1')) == 1u", "type conversion error from 'string' to 'uint'"),
        ("double(dyn('1e999')) == 1.0", "type conversion error from 'string' to 'double'"),
        ("dyn(semver('1.0.0')) in [1, 2]", "hash of unhashable type cel.Semver"),
        ("dyn(b'a') in [1]", "hash of unhashable type types.Bytes"),
    ],
)
def test_evaluations_that_fail(expression: str, failure: str) -> None:
    assert failure in str(outcome(expression))


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("1 && true", "<input>:1:1: expected type 'bool' but found 'int'"),
        ("[?1] == []", "<input>:1:3: expected type 'optional_type(int)' but found 'int'"),
        ("Foo{a: bar} == 1", "<input>:1:8: undeclared reference to 'bar'"),
        ("[1].all(x, 1)", "expected type 'bool' but found 'int'"),
        ("cel.bind(x, [], x == [x])", "found no matching overload for '_==_' applied to '(list(dyn), list(list(dyn)))'"),
        ("[[1], [dyn(1)]].size() == 2", "expected type 'list(int)' but found 'list(dyn)'"),
        ("foo.bind(x, 1, x) == 1", "undeclared reference to 'bind'"),
        ("1 +", "Syntax error"),
        ("(" * 300 + "1" + ")" * 300, "nested too deeply"),
        ("'" + "é" * 9000 + "' == 1", "found no matching overload"),
        ("# " * 120, "\n1 more errors were truncated"),
    ],
)  # fmt: skip
def test_expressions_that_do_not_compile(expression: str, rule: str) -> None:
    assert rule in str(outcome(expression))


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (r"\x{110000}", r"invalid escape sequence: `\x{110000}`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        (r"\p{Foo}", r"invalid character class range: `\p"),
    ],
)
def test_faulty_patterns(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match="error parsing regexp") as caught:
        compiled(pattern)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"^\141\x{62}$", "ab"), ("^[[:^alpha:]]$", "1"), (r"^\t\.\a$", "\t.\a"), (r"^\P{L}\pL$", "1é"), (r"^[\x41-\x43]$", "B")],
)  # fmt: skip
def test_escapes_in_patterns(pattern: str, text: str) -> None:
    assert compiled(pattern).find(text) == (0, len(text))


@pytest.mark.parametrize(
    "expression", ["device.capacity['a'].", "device.capacity[dyn('a')].m", "(" * 300, "a" * 100_001]
)
def test_no_names_are_read_where_none_stand(expression: str) -> None:
    assert list(device_names(expression)) == []


def test_a_name_in_has_is_guarded() -> None:
    first, second = device_names("has(device.capacity['a'].m) && device.attributes['b']['n'] == 1")
    assert (first.kind, first.domain, first.name, first.is_guarded) == ("capacity", "a", "m", True)
    assert second == DeviceName("attribute", "b", "n", 56)
