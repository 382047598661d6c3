"""Expansion of references agrees with one that reads letter by letter, and leaves alone what it should."""

from hypothesis import given
from hypothesis import strategies as st

from nodewright.agent.rules.environment_variables import expand, expand_references

texts = st.text(alphabet="$()AB", max_size=14)
values = st.dictionaries(st.sampled_from(["A", "B", "AB", ""]), st.text(alphabet="$()A", max_size=4))


def slowly(text: str, known: dict[str, str]) -> str:
    """Letter by letter, as the rule is told: an operator takes what follows it with it."""
    said, at = "", 0
    while at < len(text):
        rest = text[at + 1 :]
        if text[at] != "$" or not rest:
            said, at = said + text[at], at + 1
        elif rest[0] == "(" and ")" in rest:
            name = rest[1 : rest.index(")")]
            said, at = said + known.get(name, f"$({name})"), at + len(name) + 3
        elif rest[0] == "$":
            said, at = said + "$", at + 2
        else:
            said, at = said + "$" + rest[0], at + 2
    return said


@given(text=texts, known=values)
def test_references_are_replaced_as_if_read_letter_by_letter(text: str, known: dict[str, str]) -> None:
    assert expand_references(text, known) == slowly(text, known)


@given(text=texts)
def test_doubled_operators_give_the_text_back(text: str) -> None:
    assert expand(text.replace("$", "$$"), lambda _: "never") == text


@given(text=texts, known=values, others=values)
def test_the_first_that_knows_a_name_is_asked(
    text: str, known: dict[str, str], others: dict[str, str]
) -> None:
    assert expand_references(text, known, others) == expand_references(text, {**others, **known})
