import pytest

from nodewright.core.cpu.options import CPUOptions
from nodewright.core.cpu.own import CPUPicker, NoPick, PickAsked, cpu_picker, picked
from nodewright.core.cpu.whole_caches import whole_caches
from nodewright.model.cpu_reasons import PickedBy, PickerRefuses
from nodewright.model.policies import PolicyError
from nodewright.model.verdict import Granted, Refused
from nodewright.testing.topologies import topology
from nodewright.values.idset import CPUSet

FOUR_CACHES = topology(cores=8, cores_per_cache=2)  # CPUs 0-1,8-9 share a cache, 2-3,10-11 the next


def asked(free: str, count: int) -> PickAsked:
    return PickAsked(topology=FOUR_CACHES, free=CPUSet.parse(free), count=count, options=CPUOptions())


def saying(answer: object) -> CPUPicker:
    def picks(asked: PickAsked) -> CPUSet | NoPick:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]  # what people may write

    return cpu_picker("mine")(picks)


def test_the_evidence_says_who_picked() -> None:
    cpus = CPUSet.parse("2-3")
    assert picked(saying(cpus), asked("0-7", 2)) == Granted(cpus, (PickedBy(picker="mine", cpus=cpus),))


def test_a_picker_may_have_nothing_to_give() -> None:
    free = CPUSet.parse("0-7")
    refusal = PickerRefuses(picker="mine", said="not today", requested=2, free=free)
    assert picked(saying(NoPick("not today")), asked("0-7", 2)) == Refused((refusal,))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (CPUSet.parse("7-8"), "picks CPUs 7-8, of which 8 are not free"),
        (CPUSet.parse("7"), "picks 1: 7"),
        (CPUSet.parse("5-7"), "picks 3: 5-7"),
        ({6, 7}, "answers {6, 7}, which is no CPUSet and no NoPick"),
    ],
)
def test_what_cannot_be_is_an_error_with_the_pickers_name(answer: object, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        picked(saying(answer), asked("0-7", 2))
    assert str(caught.value) == f"CPU picker mine: asked for 2 of the free CPUs 0-7, {said}"


def test_a_picker_that_fails_is_an_error_with_the_place() -> None:
    with pytest.raises(PolicyError, match=r"CPU picker mine: fails: KeyError: 'x' \(.*test_own.py:\d+\)"):
        picked(saying(KeyError("x")), asked("0-7", 2))


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
    assert whole_caches.picks(asked(free, count)) == CPUSet.parse(taken)
