import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.claims.cel.regex import compiled

ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "^", "$", "a+?", "b*", "(?:ab|a)", "[a-c]{1,2}"]
)
PATTERNS = st.recursive(
    st.lists(ATOMS, min_size=1, max_size=4).map("".join),
    lambda inner: st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|x{pair[1]})"),
    max_leaves=6,
)


@given(PATTERNS, st.text("abcx1 ", max_size=8))
def test_it_finds_what_python_finds(pattern: str, text: str) -> None:
    found = re.compile(pattern, re.ASCII).search(text)
    assert compiled(pattern).find(text) == (found.span() if found else None)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("[", "missing closing ]: `[`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("h(?=1)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(" * 200 + ")" * 200, "expression nests too deeply"),
        ("(?:a{1000}){1000}", "expression too large"),
    ],
)
def test_what_go_does_not_read(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"error parsing regexp: {problem}")):
        compiled(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "span"),
    [
        (r"(?i)a[b-d]\z", "xAC", (1, 3)),
        (r"[[:digit:]]+|\pL", "-é12", (1, 2)),
        (r"\Qa.b\E", "xa.b", (1, 4)),
        (r"(?m)^b$", "a\nb\n", (2, 3)),
        (r"(?s)a.b", "a\nb", (0, 3)),
        (r"(?U)a+", "aaa", (0, 1)),
        ("a$", "a\n", None),
        (r"\x{e9}\101", "éA", (0, 2)),
        ("(?P<n>a)(?<m>b)", "ab", (0, 2)),
        ("a{,2}", "a{,2}", (0, 5)),
    ],
)
def test_what_go_reads_otherwise_than_python(pattern: str, text: str, span: tuple[int, int] | None) -> None:
    assert compiled(pattern).find(text) == span


def test_matches_do_not_overlap() -> None:
    assert list(compiled("a*").find_all("baac", -1)) == [(0, 0), (1, 3), (4, 4)]
    assert list(compiled("a").find_all("aaa", 2)) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(("pattern", "text"), [("(?:x{1000}){9}y", "x" * 9_000), ("x*y|x", "x" * 9_000)])
def test_what_takes_many_steps_is_an_error(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match="more than 200000 steps"):
        list(compiled(pattern).find_all(text, -1))
