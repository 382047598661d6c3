"""Names that no file can have are wrong input, whichever function gets them."""

from collections.abc import Callable

import pytest

from nodewright.model.errors import InputError
from nodewright.model.values.idset import CPUSet, IdSetError
from nodewright.predict.node import Node
from nodewright.predict.python_sources import load_pods
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

NAMES = ("\0", "a\0b", "1" * 1_000_000, "../" * 5_000, "")
READERS: tuple[Callable[[str], object], ...] = (
    Node.open,
    load_pods,
    lambda name: Node.open("vm-4", kubelet_config=name or "\0"),
)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_that_no_file_can_have_is_an_input_error(reader: Callable[[str], object], name: str) -> None:
    with pytest.raises(InputError) as error:
        reader(name)
    assert len(str(error.value)) < 10_000


def test_a_list_of_ids_with_very_many_digits_is_an_error_of_its_kind() -> None:
    for text in ("1" * 1_000_000, f"0-{'9' * 5000}", f"{'9' * 5000}-{'9' * 5001}"):
        with pytest.raises(IdSetError, match="goes beyond 65535"):
            CPUSet.parse(text)
    assert CPUSet.parse("0" * 5000 + "7") == CPUSet.of(7)


@pytest.mark.parametrize("id_", [-1, 65_536, 10**18])
def test_ids_beyond_every_machine_are_not_put_into_sets(id_: int) -> None:
    with pytest.raises(IdSetError, match="an id must be 0 to 65535"):
        CPUSet.of(0, id_)
    assert CPUSet.from_possible_ids([3, id_]) == CPUSet.of(3)


def test_pods_that_hold_more_devices_than_there_are_give_a_warning() -> None:
    running = a_pod("trainer", "cpu=1", limits="example.com/gpu=3")
    crowded = a_profile(devices={"example.com/gpu": "a"}, pods=(running,))
    expected = "the pods on the node request 3 example.com/gpu, the node has 1"
    assert expected in Node.from_profile(crowded).warnings
    enough = a_profile(devices={"example.com/gpu": "a b c"}, pods=(running,))
    assert not any("the pods on the node request" in text for text in Node.from_profile(enough).warnings)
