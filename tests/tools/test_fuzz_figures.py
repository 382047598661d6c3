from pathlib import Path

from tools.agent_figures import FUZZ, PAGE, Totals, Trial, joined_targets, page_with_figures, runs_of


def test_a_run_is_added_to_those_before(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.json"
    for seed in (7, 20):
        totals = Totals(seed, path)
        for _ in range(2):
            totals.add("a quantity", Trial(inputs=10, findings=1))
            totals.rounds += 1
            totals.write()
    runs = runs_of(path)
    assert [(run["seeds"], run["inputs"], run["findings"]) for run in runs] == [
        ([7, 8], 20, 2),
        ([20, 21], 20, 2),
    ]
    assert joined_targets(runs) == {"a quantity": 40}


def test_the_page_shows_the_runs_that_are_kept() -> None:
    page = PAGE.read_text("utf-8")
    assert page_with_figures(page) == page
    assert all(run["commit"] in page for run in runs_of(FUZZ))
