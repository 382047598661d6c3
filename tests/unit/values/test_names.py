import pytest

from nodewright.values.names import is_label_key, is_label_value

LABEL_KEYS = """
    yes  gpu
    yes  A_b.c-9
    yes  example.com/gpu
    no   example.com/
    no   /gpu
    no   a/b/c
    no   -gpu
    no   gpu-
    no   Example.com/gpu
    no   ex..ample/gpu
    no   gpü
"""


def lines(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


@pytest.mark.parametrize("line", lines(LABEL_KEYS))
def test_label_keys_are_a_name_behind_an_optional_subdomain(line: str) -> None:
    verdict, key = line.split()
    assert is_label_key(key) == (verdict == "yes")


def test_a_label_key_has_at_most_63_characters_of_name_and_253_of_domain() -> None:
    assert is_label_key("a" * 63)
    assert not is_label_key("a" * 64)
    assert is_label_key("a" * 253 + "/b")
    assert not is_label_key("a" * 254 + "/b")


def test_a_label_value_may_be_empty_but_not_long_or_odd() -> None:
    assert is_label_value("")
    assert is_label_value("a" * 63)
    assert not is_label_value("a" * 64)
    assert not is_label_value("+5")
