import copy

import pytest

from nodewright.model.values.idset import CPUSet, IdSetError, NUMASet

NO_LISTS = [
    ("a", "'a' is neither a number nor a range such as 0-3"),
    ("0,", "'' is neither a number nor a range such as 0-3"),
    ("0-1-2", "'0-1-2' is neither a number nor a range such as 0-3"),
    ("3-1", "'3-1' ends before it begins"),
    ("0-9999999999", "'0-9999999999' goes beyond"),
]


@pytest.mark.parametrize(("text", "rule"), NO_LISTS)
def test_an_invalid_list_of_ids_names_the_invalid_part(text: str, rule: str) -> None:
    with pytest.raises(IdSetError) as refused:
        CPUSet.parse(text)
    assert str(refused.value).startswith(rule)


def test_sets_are_equal_by_content_and_kind() -> None:
    assert len({CPUSet.of(0, 1), CPUSet.parse("0-1"), CPUSet.of(1)}) == 2
    assert CPUSet.of(0).__eq__(NUMASet.of(0)) is False


def test_sets_are_immutable_and_copied_unchanged() -> None:
    cpus = CPUSet.parse("0-3,8")
    with pytest.raises(AttributeError, match="CPUSet cannot be changed"):
        cpus.mask = 0
    assert copy.copy(cpus) == cpus
