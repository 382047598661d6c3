import pytest

from nodewright.profiles.machine.missing_facts import MachineFact, MissingFact, missing_fact_sentence


@pytest.mark.parametrize("fact", list(MachineFact))
def test_every_missing_fact_has_a_one_line_sentence(fact: MachineFact) -> None:
    for lack in (
        MissingFact(fact=fact, place="PLACE"),
        MissingFact(fact=fact, place="PLACE", substitute="INSTEAD"),
    ):
        sentence = missing_fact_sentence(lack)
        assert sentence == sentence.strip()
        assert "\n" not in sentence


def test_a_missing_file_is_reported_with_the_substitute() -> None:
    lack = MissingFact(fact=MachineFact.SWAP, place="/proc/meminfo", substitute="0")
    assert missing_fact_sentence(lack) == "swap: not known (/proc/meminfo is missing), 0 in the profile"
