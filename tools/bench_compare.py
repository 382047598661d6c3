"""Compare the benchmarks with those of another commit, in pairs: fails where a row takes more than a fifth longer.

`python -m tools bench-compare [COMMIT] [-k EXPRESSION]`; without a commit, the last release. Each commit runs its own
benchmarks, but for those of commands, which are the present ones for both. Rows that both have are compared by CPU time,
so that a busy machine counts less. The commits take turns at each file of benchmarks; rows that look slower are measured
again, alternately, and the least time of each commit counts.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tools.benchmarks import PAIRED, ROWS, row_seconds
from tools.source import ROOT

MOST = 1.2
"""The ratio above which a row counts as a regression."""
PAIRS = 4
OF_COMMANDS = ("test_commands.py", "test_startup.py")
"""Files of benchmarks that import nothing of the package."""
_HELPER_OF_COMMANDS = "tests/support/large_cluster.py"
"""What they import of the tests, which imports nothing of the package either."""
_NOTHING_SELECTED = 5
"""Exit code of pytest."""
_RELEASE = r"^(Release [0-9]+\.[0-9]+\.[0-9]+$|[0-9]+\.[0-9]+\.[0-9]+: )"
_TIMER = "cpu_timer.cpu_time_s"
"""In the folder of this file, because another commit has no such module."""

Measure: TypeAlias = Callable[[Path, Sequence[str]], dict[str, float]]
"""The seconds by test of the benchmarks in a folder that pytest's arguments select."""


class Comparison(NamedTuple):
    """The least CPU time of a row before and now.

    Units: before_s and now_s in seconds.
    """

    workload: str
    test: str
    before_s: float
    now_s: float

    @property
    def ratio(self) -> float:
        """How many times as long the row takes now."""
        return self.now_s / self.before_s

    def __str__(self) -> str:
        return f"{self.ratio:6.2f}  {self.before_s * 1000:10.3f}  {self.now_s * 1000:10.3f}  {self.workload}"


def main(arguments: Sequence[str] = ()) -> int:
    """Print the comparison; 1 if a row is a regression, 2 if there is nothing to compare with."""
    commit = arguments[0] if arguments and not arguments[0].startswith("-") else _last_release()
    if not commit:
        print(
            "no commit of a release is here: name a commit, as in `python -m tools bench-compare main~10`",
            file=sys.stderr,
        )
        return 2
    selection = list(arguments[1:] if arguments and arguments[0] == commit else arguments)
    with _checked_out(commit) as folder:
        names = sorted(_names_of_benchmarks(ROOT) & _names_of_benchmarks(folder))
        comparisons = compare(folder, [[f"benchmarks/{name}", *selection] for name in names], _measured)
    print(f" ratio  {'before, ms':>10}  {'now, ms':>10}  CPU time, least; before: {commit}")
    print(*sorted(comparisons, key=lambda row: -row.ratio), sep="\n")
    if comparisons:
        keep(comparisons, commit)
    slower = regressions(comparisons)
    if slower:
        print(
            f"{len(slower)} of {len(comparisons)} rows take more than {MOST - 1:.0%} longer", file=sys.stderr
        )
    return int(bool(slower))


def keep(comparisons: Iterable[Comparison], base: str, path: Path = PAIRED) -> None:
    """Write the figures for docs/benchmarks.md, beside those of other rows that were compared with the same commit."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    rows = kept.get("rows", {}) if kept.get("base") == base else {}
    rows |= {row.test: [row.before_s, row.now_s] for row in comparisons}
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    figures = {"base": base, "commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}", "rows": rows}
    path.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def compare(before: Path, selections: Iterable[Sequence[str]], measure: Measure) -> list[Comparison]:
    """The rows that both commits have; those that look like regressions are measured again.

    The commits take turns at each selection of benchmarks.
    """
    best: dict[Path, dict[str, float]] = {before: {}, ROOT: {}}
    comparisons: list[Comparison] = []
    for _ in range(PAIRS):
        for selection, (folder, seconds) in product(selections, best.items()):
            for test, measured_s in measure(folder, selection).items():
                seconds[test] = min(measured_s, seconds.get(test, measured_s))
        comparisons = compared(best[before], best[ROOT])
        slower = regressions(comparisons)
        if not slower:
            break
        selections = [[f"benchmarks/{row.test}" for row in slower]]
    return comparisons


def compared(before: Mapping[str, float], now: Mapping[str, float]) -> list[Comparison]:
    """The rows of the page that are in both."""
    return [
        Comparison(row.workload, row.test, before[row.test], now[row.test])
        for row in ROWS
        if row.test in before and row.test in now
    ]


def regressions(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The rows that take more than a fifth longer."""
    return [row for row in comparisons if row.ratio > MOST]


def _names_of_benchmarks(folder: Path) -> set[str]:
    return {path.name for path in (folder / "benchmarks").glob("test_*.py")}


def _measured(folder: Path, selection: Sequence[str]) -> dict[str, float]:
    """The seconds of each row, by its test."""
    with tempfile.TemporaryDirectory() as output:
        path = Path(output) / "bench.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *selection,
            "--benchmark-only",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest_benchmark.logger.PytestBenchmarkWarning",
        ]
        command += [f"--benchmark-json={path}", f"--benchmark-timer={_TIMER}"]
        python_path = os.pathsep.join(map(str, (folder / "src", folder, ROOT / "tools")))
        environment = {**os.environ, "PYTHONPATH": python_path}
        run = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if run.returncode == _NOTHING_SELECTED:
            return {}
        if not path.exists() or not path.stat().st_size:
            print(run.stdout[-2000:], run.stderr[-2000:], sep="\n", file=sys.stderr)
            raise SystemExit(f"the benchmarks of {folder} did not run")
        figures: dict[str, Any] = json.loads(path.read_text("utf-8"))
    document = {figure["fullname"].removeprefix("benchmarks/"): figure for figure in figures["benchmarks"]}
    return {row.test: row_seconds(row, document[row.test]) for row in ROWS if row.test in document}


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """A worktree of the commit, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        try:
            for name in OF_COMMANDS:
                shutil.copy(ROOT / "benchmarks" / name, folder / "benchmarks")
            shutil.copy(ROOT / _HELPER_OF_COMMANDS, folder / _HELPER_OF_COMMANDS)
            # Bytecode, so that no command that runs once compiles its modules.
            subprocess.run([sys.executable, "-m", "compileall", "-q", folder / "src"], check=True)
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def _last_release() -> str:
    """The last commit whose title is that of a release: `Release 0.3.0`, before it `0.2.0: the agent`."""
    git = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--extended-regexp", "--grep", _RELEASE]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
