import pytest

from nodewright.world.errors import InputError
from nodewright.world.yaml import read_yaml


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "{a: "])
def test_deep_nesting_is_an_error_and_not_a_crash(opening: str) -> None:
    with pytest.raises(InputError, match="nested more than 128 levels deep"):
        read_yaml(opening * 200_000, "deep.yaml")


def test_a_bomb_of_aliases_is_refused() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(InputError, match="document contains excessive aliasing"):
        read_yaml("\n".join(["l0: &l0 [x, x, x, x, x, x, x, x, x]", *levels]), "bomb.yaml")


def test_all_duplicate_keys_are_named_with_line_and_column() -> None:
    with pytest.raises(InputError) as refused:
        read_yaml("a: 1\nb: {c: 1, c: 2}\na: 2\n", "twice.yaml")
    assert [fault.source for fault in refused.value.faults] == ["twice.yaml:2:11", "twice.yaml:3:1"]
