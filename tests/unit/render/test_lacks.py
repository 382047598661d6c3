import pytest

from nodewright.render.lacks import lack_sentence
from nodewright.world.machine.lacks import Fact, Lack


@pytest.mark.parametrize("fact", list(Fact))
def test_every_fact_that_may_lack_has_a_sentence_of_one_line(fact: Fact) -> None:
    for lack in (Lack(fact=fact, place="PLACE"), Lack(fact=fact, place="PLACE", instead="INSTEAD")):
        sentence = lack_sentence(lack)
        assert sentence == sentence.strip()
        assert "\n" not in sentence


def test_a_file_that_is_missing_is_named_with_what_stands_instead() -> None:
    lack = Lack(fact=Fact.SWAP, place="/proc/meminfo", instead="0")
    assert lack_sentence(lack) == "swap: not known (/proc/meminfo is missing), 0 in the profile"
