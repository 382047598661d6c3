"""Laws of device selectors: Boolean algebra with failures that are absorbed, and costs that add up."""

from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.claims.cel import SelectorDevice, SelectorError, compile_selector
from nodewright.engine.core.claims.cel.functions import functions
from nodewright.model.values.quantity import Quantity

DEVICE = SelectorDevice(
    "a.io", {"n": 7, "s": "x", "yes": True, "no": False}, {"memory": Quantity.parse("1Gi")}
)
A = 'device.attributes["a.io"]'
ATOMS = st.sampled_from(
    ["true", "false", f"{A}.yes", f"{A}.no", f"{A}.nope", f"{A}.s", f"{A}.n > 3", "1 / 0 == 1", f'"s" in {A}',
     f'{A}.s.matches("x+")', 'device.capacity["a.io"].memory.isInteger()', f"[1, 2].exists(x, x == {A}.n)"]
)  # fmt: skip
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda part: f"!({part})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"(({parts[0]}) ? ({parts[1]}) : ({parts[2]}))"),
    ),
    max_leaves=8,
)


def outcome(expression: str, limit: int = 1_000_000) -> tuple[bool | None, int]:
    """The result and its cost; None: the evaluation failed."""
    selector = compile_selector(expression)
    assert selector.error is None, selector.error
    try:
        return selector.evaluated(DEVICE, limit)
    except SelectorError:
        return None, -1


@given(EXPRESSIONS, EXPRESSIONS)
def test_de_morgan(left: str, right: str) -> None:
    assert outcome(f"!({left} && {right})")[0] == outcome(f"!({left}) || !({right})")[0]
    assert outcome(f"!({left} || {right})")[0] == outcome(f"!({left}) && !({right})")[0]


@given(EXPRESSIONS, EXPRESSIONS)
def test_the_order_of_terms_does_not_matter(left: str, right: str) -> None:
    for operator in ("&&", "||"):
        assert outcome(f"{left} {operator} {right}")[0] == outcome(f"{right} {operator} {left}")[0]


@given(EXPRESSIONS)
def test_parentheses_and_blanks_change_neither_result_nor_cost(expression: str) -> None:
    assert outcome(f" (\n{expression.replace(' ', '  ')})// end") == outcome(expression)


@given(EXPRESSIONS)
def test_the_limit_is_the_only_thing_that_cost_changes(expression: str) -> None:
    result, cost = outcome(expression)
    if result is not None:
        assert outcome(expression, cost) == (result, cost)
        assert not cost or outcome(expression, cost - 1) == (None, -1)


@given(EXPRESSIONS, EXPRESSIONS)
def test_costs_of_terms_add_up(left: str, right: str) -> None:
    (first, cost), (second, more) = outcome(left), outcome(right)
    if first is True and second is not None:
        assert outcome(f"{left} && {right}") == (second, cost + more)
    if first is True:
        assert outcome(f"{left} || {right}") == (True, cost)


@given(st.text(max_size=60))
def test_any_text_compiles_or_says_why_not(text: str) -> None:
    assert compile_selector(text).error != ""


@given(
    st.lists(
        st.sampled_from(
            [
                "device",
                ".",
                "[",
                "]",
                "(",
                ")",
                "{",
                "}",
                '"a"',
                "'b'",
                "1",
                "2.5",
                "-3u",
                "in",
                "==",
                "&&",
                "||",
                "!",
                "?",
                ":",
                ",",
                "+",
                "x",
                "has",
                "all",
                "true",
                "null",
                "b''",
            ]
        )
    )
)
def test_any_row_of_tokens_compiles_or_says_why_not(tokens: list[str]) -> None:
    error = compile_selector(" ".join(tokens)).error
    assert error is None or error.startswith(
        ("compilation failed: ERROR: <input>:", "must evaluate", "program inst")
    )


VALUES = st.sampled_from(
    ["1", "-1", "2u", "1.5", "'x'", "b'x'", "null", "[]", "[1, 2]", "['b', 'a']", "{}", "{'a': 1}", "optional.none()",
     "optional.of(1)", "duration('1h')", "timestamp('2024-01-01T00:00:00Z')", "type(1)", "ip('1.2.3.4')", "'%s %d'",
     "cidr('1.0.0.0/8')", "url('http://a/b')", "quantity('1').add(1)", "semver('1.0.0')", "format.uuid()", "'['",
     "9223372036854775807", "double('NaN')", "[[1], [2]]", "[semver('1.0.0')]", f"{A}.nope", f"{A}.n"]
)  # fmt: skip
CALLED = sorted(name for name in functions() if name.replace(".", "").isalnum())


@given(st.sampled_from(CALLED), st.lists(VALUES, max_size=4), st.booleans())
def test_whatever_a_function_is_given_it_returns_or_fails(
    name: str, args: list[str], is_member: bool
) -> None:
    values = [f"dyn({arg})" for arg in args]
    call = (
        f"{values[0]}.{name}({', '.join(values[1:])})"
        if is_member and values
        else f"{name}({', '.join(values)})"
    )
    for expression in (
        f"dyn({call}) == 1",
        f"[{call}].exists(x, x == {call})",
        f"'%s'.format([{call}]) == ''",
    ):
        selector = compile_selector(expression)
        if selector.error is None:
            outcome(expression)
