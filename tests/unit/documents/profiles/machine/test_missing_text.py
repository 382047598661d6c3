from pathlib import Path

import pytest

from nodewright.documents.profiles.machine.host_facts import (
    MachineFact,
    MissingFact,
    cgroup_version,
    copied_machine,
    missing_fact_sentence,
)


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


def test_an_empty_cgroup_tree_is_not_called_missing(tmp_path: Path) -> None:
    for directory in ("sys/fs/cgroup", "sys/devices/system"):
        (tmp_path / directory).mkdir(parents=True)
    sources = copied_machine(tmp_path)
    assert cgroup_version(sources) == 2
    (lack,) = sources.missing
    place = tmp_path / "sys/fs/cgroup"
    assert missing_fact_sentence(lack) == (
        f"cgroup version: not known ({place} is empty or missing), 2 in the profile"
    )
