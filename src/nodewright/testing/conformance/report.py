"""What a run over vectors came to, as lines and as a document."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from nodewright.testing.conformance.allowances import ABSENT
from nodewright.testing.conformance.families import FAMILIES
from nodewright.testing.conformance.run import Outcome
from nodewright.world.errors import Fault

SHOWN_DIFFERENCES = 12
SHOWN_CHARACTERS = 160


@dataclass
class Report:
    """Counts by family, and the outcomes that are worth showing; fed one outcome after another."""

    to_show: int = 0
    """How many failures to keep for showing."""
    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    troubles: dict[str, Outcome] = field(default_factory=dict)
    """The first outcome of each family that is no answer."""
    faults: list[Fault] = field(default_factory=list)

    def add(self, outcome: Outcome) -> str:
        """Count the outcome; the text is a message that is due now, mostly none."""
        kind = self.failed if outcome.has_failed else self.passed if outcome.is_judged else self.unjudged
        kind[outcome.family] += 1
        if outcome.has_failed and len(self.failures) < self.to_show:
            self.failures.append(outcome)
        if outcome.trouble and outcome.family not in self.troubles:
            self.troubles[outcome.family] = outcome
            return f"{outcome.family}: {outcome.id}: {outcome.trouble}"
        return ""

    @property
    def passed_count(self) -> int:
        """How many answers were the recorded ones."""
        return self.passed.total()

    @property
    def failed_count(self) -> int:
        """How many answers were wrong or missing, and lines that are no vectors."""
        return self.failed.total() + len(self.faults)

    def lines(self) -> str:
        """The failures kept, a line a family, and the sum."""
        shown = [line for failure in self.failures for line in _failure_lines(failure)]
        families = [
            f"{family} {self.passed[family]}/{self.passed[family] + self.failed[family]}"
            for family in self._families()
            if self.passed[family] or self.failed[family]
        ]
        total = f"{self.passed_count} passed, {self.failed_count} failed"
        return "".join(f"{line}\n" for line in (*shown, *families, total))

    def unjudged_lines(self) -> str:
        """A line for each family with answers that there was nothing to compare with."""
        return "".join(
            f"{family}: {self.unjudged[family]} answered, nothing recorded to compare with\n"
            for family in self._families()
            if self.unjudged[family]
        )

    def document(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        return {
            "families": {family: self._counts(family) for family in self._families()},
            "mismatches": [_failure_document(failure) for failure in self.failures],
            "troubles": [_failure_document(outcome) for outcome in self.troubles.values()],
            "faults": [str(fault) for fault in self.faults],
            "passed": self.passed_count,
            "failed": self.failed_count,
        }

    def _counts(self, family: str) -> dict[str, int]:
        judged = self.passed[family] + self.failed[family]
        return {"passed": self.passed[family], "total": judged, "unjudged": self.unjudged[family]}

    def _families(self) -> list[str]:
        """The families that occurred: known ones in their order, then the others by name."""
        seen = self.passed.keys() | self.failed.keys() | self.unjudged.keys()
        return [family for family in FAMILIES if family in seen] + sorted(seen.difference(FAMILIES))


def _failure_lines(failure: Outcome) -> list[str]:
    lines = [f"--- {failure.id}"]
    if failure.trouble:
        lines.append(f"  no answer: {failure.trouble}")
    for path, expected, got in failure.mismatches[:SHOWN_DIFFERENCES]:
        lines += [f"  {path}", f"    - {_short(expected)}", f"    + {_short(got)}"]
    hidden = len(failure.mismatches) - SHOWN_DIFFERENCES
    return [*lines, f"  and {hidden} more differences"] if hidden > 0 else lines


def _short(value: Any) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}... ({len(text)} characters)"


def _failure_document(failure: Outcome) -> dict[str, Any]:
    differences = [
        {name: value for name, value in mismatch._asdict().items() if value is not ABSENT}
        for mismatch in failure.mismatches
    ]
    document = {"id": failure.id, "family": failure.family, "differences": differences}
    return document | ({"trouble": failure.trouble} if failure.trouble else {})
