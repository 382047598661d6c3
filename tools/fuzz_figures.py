"""What `tools.fuzz` has tried, in a file that keeps every run: commit, seeds, and how many inputs each target read."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.source import commit

Run = dict[str, Any]
"""The figures of a run, by name."""


class Trial(NamedTuple):
    """What came of trying a target."""

    inputs: int
    findings: int


class Totals:
    """What all rounds of a run have tried so far, and the file that keeps it beside earlier runs."""

    def __init__(self, seed: int, path: Path | None) -> None:
        self._seed, self._path, self._commit = seed, path, commit()
        self._earlier = runs_of(path) if path else []
        self.rounds = 0
        self.inputs, self.findings = Counter[str](), Counter[str]()

    def add(self, name: str, trial: Trial) -> None:
        """Adds a target's trial."""
        self.inputs[name] += trial.inputs
        self.findings[name] += trial.findings

    def write(self) -> None:
        """Replaces the file, if there is one."""
        if self._path is None:
            return
        run = {
            "commit": self._commit,
            "seeds": [self._seed, self._seed + self.rounds - 1],
            "inputs": self.inputs.total(),
            "findings": self.findings.total(),
            "inputsByTarget": dict(sorted(self.inputs.items())),
        }
        self._path.write_text(document_of([*self._earlier, run]), "utf-8")


def runs_of(path: Path) -> list[Run]:
    """The runs that the file keeps; none if there is no file."""
    return list(json.loads(path.read_text("utf-8"))["runs"]) if path.exists() else []


def document_of(runs: Sequence[Run]) -> str:
    """The text of the file of these runs, with their totals."""
    totals = {name: sum(run[name] for run in runs) for name in ("inputs", "findings")}
    return json.dumps({**totals, "runs": list(runs)}, indent=2) + "\n"


def joined_targets(runs: Sequence[Run]) -> Counter[str]:
    """How many inputs each target read in all runs."""
    targets = Counter[str]()
    for run in runs:
        targets.update(run["inputsByTarget"])
    return targets
