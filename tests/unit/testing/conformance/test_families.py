import pytest

from nodewright.testing.conformance.vectors import (
    ALL_FAMILIES,
    FAMILIES,
    UnansweredFamilyError,
    answer_family,
    is_answered,
)


def test_no_family_is_named_twice() -> None:
    assert len(set(ALL_FAMILIES)) == len(ALL_FAMILIES) == 26
    assert len(FAMILIES) == 21


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnansweredFamilyError, match="unknown family 'astrology'; known are quantity, "):
        answer_family("astrology", {}, {})


@pytest.mark.parametrize("name", ["judge", "vectors", "families"])
def test_other_modules_beside_the_families_are_none(name: str) -> None:
    assert not is_answered(name)
