import pytest

from nodewright.model.kubernetes.objects import Taint, Toleration, merged_tolerations, tolerates

TOLERATIONS = """
    any    Exists  -    any         covers
    key    Exists  -    any         covers
    other  Exists  -    any         bares
    key    Equal   5    any         covers
    key    Equal   6    any         bares
    key    -       5    any         covers
    any    -       5    any         covers
    key    Equal   5    NoExecute   covers
    key    Equal   5    NoSchedule  bares
    key    Like    5    any         bares
    key    Gt      4    any         compares
    key    Gt      5    any         bares
    key    Lt      6    any         compares
    key    Lt      05   any         bares
    key    Lt      six  any         bares
    key    Lt      9223372036854775808  any  bares
"""


@pytest.mark.parametrize("line", TOLERATIONS.strip().splitlines())
def test_a_toleration_covers_a_taint_by_key_operator_value_and_effect(line: str) -> None:
    key, operator, value, effect, outcome = line.split()
    toleration = Toleration(
        key="" if key == "any" else key,
        operator="" if operator == "-" else operator,
        value="" if value == "-" else value,
        effect="" if effect == "any" else effect,
    )
    taint = Taint(key="key", value="5", effect="NoExecute")
    assert tolerates(toleration, taint) == (outcome == "covers")
    assert tolerates(toleration, taint, comparisons=True) == (outcome in ("covers", "compares"))


def test_a_number_of_any_length_is_not_compared() -> None:
    toleration = Toleration(key="key", operator="Lt", value="9" * 5000, effect="NoExecute")
    assert not tolerates(toleration, Taint(key="key", value="5", effect="NoExecute"), comparisons=True)


def test_a_taint_value_that_is_not_a_number_is_not_compared() -> None:
    assert not tolerates(
        Toleration(key="key", operator="Lt", value="5"), Taint(key="key", value="x"), comparisons=True
    )


@pytest.mark.parametrize(
    ("narrow", "wide", "is_covered"),
    [
        (
            Toleration(key="a", operator="Exists", effect="NoSchedule"),
            Toleration(key="a", operator="Exists"),
            True,
        ),
        (
            Toleration(key="a", operator="Exists"),
            Toleration(key="a", operator="Exists", effect="NoSchedule"),
            False,
        ),
        (Toleration(key="a", operator="Exists"), Toleration(key="b", operator="Exists"), False),
        (
            Toleration(key="a", operator="Exists", effect="NoExecute", toleration_seconds=5),
            Toleration(operator="Exists", effect="NoExecute", toleration_seconds=9),
            True,
        ),
        (
            Toleration(key="a", operator="Exists", effect="NoExecute"),
            Toleration(operator="Exists", effect="NoExecute", toleration_seconds=9),
            False,
        ),
        (Toleration(key="a", operator="Equal", value="1"), Toleration(key="a", value="1"), True),
        (Toleration(key="a", operator="Equal", value="1"), Toleration(key="a", value="2"), False),
    ],
)
def test_a_toleration_that_another_one_covers_is_left_out(
    narrow: Toleration, wide: Toleration, is_covered: bool
) -> None:
    assert (narrow not in merged_tolerations([narrow], [wide])) == is_covered
