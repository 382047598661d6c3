"""Two commits side by side: only what stays slower when it is measured again counts."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.bench_compare import PAIRS, compare, compared, keep, regressions
from tools.benchmarks import ROWS
from tools.cpu_timer import cpu_time_s
from tools.source import ROOT

BEFORE = Path("before")
STEADY, DOUBTFUL, SLOWER = (row.test for row in ROWS[:3])


class Measurements:
    """The seconds of each row; the doubtful one was slow only once."""

    def __init__(self) -> None:
        self.selections: list[tuple[str, ...]] = []

    def measure(self, folder: Path, selection: Sequence[str]) -> dict[str, float]:
        is_first = len(self.selections) < 2
        self.selections.append(tuple(selection))
        if folder == BEFORE:
            seconds = {STEADY: 1.0, DOUBTFUL: 1.0, SLOWER: 1.0, "of another time": 1.0}
        else:
            assert folder == ROOT
            seconds = {STEADY: 1.1, DOUBTFUL: 1.5 if is_first else 1.0, SLOWER: 1.3}
        names = [name.removeprefix("benchmarks/") for name in selection]
        return {test: value for test, value in seconds.items() if names == ["benchmarks"] or test in names}


def test_only_rows_that_look_slower_are_measured_again() -> None:
    measurements = Measurements()
    comparisons = compare(BEFORE, [["benchmarks"]], measurements.measure)
    assert [row.test for row in regressions(comparisons)] == [SLOWER]
    assert [row.test for row in comparisons] == [STEADY, DOUBTFUL, SLOWER]
    again = (f"benchmarks/{DOUBTFUL}", f"benchmarks/{SLOWER}")
    assert measurements.selections[:4] == [("benchmarks",)] * 2 + [again] * 2
    assert set(measurements.selections[4:]) == {again[1:]}
    assert len(measurements.selections) == 2 * PAIRS


@pytest.mark.parametrize(("now_s", "is_regression"), [(1.2, False), (1.21, True), (0.5, False)])
def test_a_fifth_longer_is_a_regression(now_s: float, is_regression: bool) -> None:
    (row,) = compared({STEADY: 1.0}, {STEADY: now_s, SLOWER: 9.0})
    assert bool(regressions([row])) is is_regression
    assert f"{now_s:.2f}" in str(row)


def test_figures_of_rows_that_were_not_compared_again_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "paired.json"
    keep(compared({STEADY: 1.0}, {STEADY: 2.0}), "base", path)
    keep(compared({SLOWER: 3.0}, {SLOWER: 4.0}), "base", path)
    assert json.loads(path.read_text())["rows"] == {STEADY: [1.0, 2.0], SLOWER: [3.0, 4.0]}
    keep(compared({SLOWER: 3.0}, {SLOWER: 4.0}), "other", path)
    assert json.loads(path.read_text())["rows"] == {SLOWER: [3.0, 4.0]}


def test_the_timer_counts_cpu_time() -> None:
    before = cpu_time_s()
    assert sum(range(1_000_000))
    assert cpu_time_s() > before
