import pytest

from nodewright.model.eviction_flags import FlagError, parse_pairs, settings_of_flags
from nodewright.model.thresholds import DEFAULT_EVICTION_HARD, parse_thresholds

LINES = """
    imagefs.available    hard  0.1
    memory.available     hard  500Mi
    nodefs.available     hard  0.05
    nodefs.inodesFree    hard  0.05
    imagefs.available    2m0s  0.3
    nodefs.available     2m0s  0.1
"""


def test_a_command_line_says_thresholds_and_grace_periods() -> None:
    settings = settings_of_flags(
        hard="imagefs.available<10%,memory.available<500Mi,nodefs.available<5%,nodefs.inodesFree<5%",
        soft="imagefs.available<30%,nodefs.available<10%",
        soft_grace_period="imagefs.available=2m,nodefs.available=2m",
    )
    found = [
        " ".join(
            (
                one.signal,
                "hard" if one.is_hard else str(one.grace_period),
                str(one.value.quantity) if one.value.quantity else f"{one.value.fraction:.4g}",
            )
        )
        for one in parse_thresholds(settings).thresholds
    ]
    assert found == [" ".join(line.split()) for line in LINES.strip().splitlines()]


def test_without_the_flag_the_defaults_count_and_with_it_none_of_them() -> None:
    assert settings_of_flags().hard == DEFAULT_EVICTION_HARD
    assert settings_of_flags("").hard == {}


def test_blanks_empty_parts_and_repetitions_are_taken_as_the_kubelet_takes_them() -> None:
    assert parse_pairs(" a < 1 ,,b<2<3,a<4", "<") == {"a": "4", "b": "2<3"}


@pytest.mark.parametrize("separator", ["<", "="])
def test_a_part_that_is_no_pair_is_refused_in_the_kubelets_words(separator: str) -> None:
    with pytest.raises(FlagError, match=f"^malformed pair, expect string{separator}string$"):
        parse_pairs("memory.available", separator)


def test_a_command_line_says_minimum_reclaim() -> None:
    settings = settings_of_flags("memory.available<1Gi", minimum_reclaim="memory.available=500Mi")
    (threshold,) = parse_thresholds(settings).thresholds
    assert threshold.min_reclaim is not None
    assert str(threshold.min_reclaim.quantity) == "500Mi"
