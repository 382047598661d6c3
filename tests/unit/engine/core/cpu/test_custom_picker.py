import pytest

from nodewright.engine.core.cpu.cpu_policy import (
    CPUPicker,
    PickRefusal,
    PickRequest,
    cpu_picker,
    picked_cpus,
    whole_caches,
)
from nodewright.model.reasons.cpu import PickedBy, PickerRefuses
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.release_rules import CPUOptions
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.model.values.idset import CPUSet
from nodewright.testing.strategies import topology

FOUR_CACHES = topology(cores=8, cores_per_cache=2)  # CPUs 0-1,8-9 share a cache, 2-3,10-11 the next


def pick_request(free: str, count: int) -> PickRequest:
    return PickRequest(topology=FOUR_CACHES, free=CPUSet.parse(free), count=count, options=CPUOptions())


def saying(answer: object) -> CPUPicker:
    def picks(asked: PickRequest) -> CPUSet | PickRefusal:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]  # what people may write

    return cpu_picker("mine")(picks)


def test_the_evidence_says_who_picked() -> None:
    cpus = CPUSet.parse("2-3")
    assert picked_cpus(saying(cpus), pick_request("0-7", 2)) == Granted(
        cpus, (PickedBy(picker="mine", cpus=cpus),)
    )


def test_a_picker_may_have_nothing_to_give() -> None:
    free = CPUSet.parse("0-7")
    refusal = PickerRefuses(picker="mine", said="not today", requested=2, free=free)
    assert picked_cpus(saying(PickRefusal("not today")), pick_request("0-7", 2)) == Refused((refusal,))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (CPUSet.parse("7-8"), "returns CPUs 7-8, of which 8 are not free"),
        (CPUSet.parse("7"), "returns 1: 7"),
        (CPUSet.parse("5-7"), "returns 3: 5-7"),
        ({6, 7}, "returns {6, 7}, which is no CPUSet and no PickRefusal"),
    ],
)
def test_an_invalid_result_is_an_error_with_the_name_of_the_picker(answer: object, message: str) -> None:
    with pytest.raises(CustomPolicyError) as caught:
        picked_cpus(saying(answer), pick_request("0-7", 2))
    assert str(caught.value) == f"CPU picker mine: must return 2 of the free CPUs 0-7, but {message}"


def test_a_picker_that_fails_is_an_error_with_the_place() -> None:
    with pytest.raises(
        CustomPolicyError, match=r"CPU picker mine: fails: KeyError: 'x' \(.*test_custom_picker.py:\d+\)"
    ):
        picked_cpus(saying(KeyError("x")), pick_request("0-7", 2))


@pytest.mark.parametrize(
    ("free", "count", "taken"),
    [
        ("0-15", 4, "0-1,8-9"),  # a whole cache
        ("0-15", 6, "0-2,8-10"),  # a whole one, and a core of the next
        ("1-15", 2, "1,9"),  # a whole core of the fullest cache that it fits into
        ("1-15", 3, "1,8-9"),  # that cache is used up
        ("1-15", 4, "2-3,10-11"),  # whole again
        ("1,3,5,9,11", 4, "1,3,9,11"),  # no cache has enough: as few as will do
        ("1,3,5,9,11", 1, "5"),  # the fullest one
    ],
)
def test_whole_caches_first_then_the_fullest_that_it_fits_into(free: str, count: int, taken: str) -> None:
    assert whole_caches.pick(pick_request(free, count)) == CPUSet.parse(taken)
