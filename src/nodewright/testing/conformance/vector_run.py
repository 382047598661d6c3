"""Runs vectors through the engine, in one or several processes, and reports the results as lines and as a document."""

import json
import multiprocessing
import signal
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.model.errors import Fault
from nodewright.model.printable import printable_lines
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.testing.conformance.allowances import ABSENT
from nodewright.testing.conformance.judge import Mismatch, mismatches
from nodewright.testing.conformance.vectors import (
    ALL_FAMILIES,
    RECORDED,
    UnansweredFamilyError,
    Vector,
    answer_family,
)

Engine: TypeAlias = Callable[[str, dict[str, Any], Mapping[str, Any], ReleaseTable], Any]
"""Returns a release's answer to a question of a family, given the machines by name."""

CHUNK = 16
"""Vectors per task of a process: some ten milliseconds of work, so that Ctrl-C ends the run promptly."""

UNANSWERED = "unanswered"
"""The only member of the document for a missing answer; no family has such a member, so it never passes."""


class VectorOutcome(msgspec.Struct, frozen=True):
    """The result of a vector."""

    id: str
    family: str
    is_judged: bool
    """Whether there is a recorded answer to compare with."""
    mismatches: tuple[Mismatch, ...] = ()
    error: str = ""
    """Why there is no answer: the engine's exception, or an unsupported family."""
    answer_text: str = ""
    """The answer as JSON, if answers are kept."""
    release: str = ""
    """The release that was asked; empty: not named."""

    @property
    def has_failed(self) -> bool:
        """Whether the answer is wrong or missing."""
        return bool(self.mismatches or self.error)


def run_vectors(
    vectors: Iterable[Vector], machines: Mapping[str, Any], *, jobs: int = 1, keep_answers: bool = False
) -> Iterator[VectorOutcome]:
    """The outcome of each vector, in order, computed by that many processes."""
    if jobs == 1:
        return (run_vector(vector, machines, keep_answer=keep_answers) for vector in vectors)
    return _by_processes(vectors, machines, jobs=jobs, keep_answers=keep_answers)


def run_vector(
    vector: Vector, machines: Mapping[str, Any], *, engine: Engine = answer_family, keep_answer: bool = False
) -> VectorOutcome:
    """The outcome of a vector; an exception of the engine is an outcome as well."""
    text = error_text = ""
    try:
        answer = engine(
            vector.family, vector.question, machines, RELEASE_TABLES[vector.release or RECORDED.name]
        )
        # The answer is compared in its encoded form: tuples are lists, keys are texts.
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
    except UnansweredFamilyError as error:
        error_text = str(error)
    except Exception as error:  # noqa: BLE001 - an engine's bug is a failed vector, not the end of the run
        error_text = f"{type(error).__name__}: {error} ({_place(error)})"
    if error_text:
        text = json.dumps({UNANSWERED: error_text}, ensure_ascii=True)
    differences: tuple[Mismatch, ...] = ()
    if vector.is_recorded and not error_text:
        differences = mismatches(vector.family, vector.question, vector.expect, json.loads(text))
    answer_text = text if keep_answer else ""
    return VectorOutcome(
        vector.id, vector.family, vector.is_recorded, differences, error_text, answer_text, vector.release
    )


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}, {frames[-1].name}"


def _by_processes(
    vectors: Iterable[Vector], machines: Mapping[str, Any], *, jobs: int, keep_answers: bool
) -> Iterator[VectorOutcome]:
    context = multiprocessing.get_context("forkserver")
    remaining = iter(vectors)
    running: deque[Future[list[VectorOutcome]]] = deque()
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(machines, keep_answers))
    try:
        # Chunks are read lazily, so the files need not fit into memory.
        while True:
            while len(running) < 2 * jobs and (chunk := list(islice(remaining, CHUNK))):
                running.append(pool.submit(_chunk, chunk))
            if not running:
                break
            yield from running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _WorkerState:
    """The state of a worker process."""

    machines: Mapping[str, Any] = {}
    keep_answers = False


def _begin(machines: Mapping[str, Any], keep_answers: bool) -> None:  # noqa: FBT001 - called by the pool
    # Ctrl-C in a terminal reaches every process; workers end silently.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _WorkerState.machines, _WorkerState.keep_answers = machines, keep_answers


def _chunk(vectors: list[Vector]) -> list[VectorOutcome]:
    return [
        run_vector(vector, _WorkerState.machines, keep_answer=_WorkerState.keep_answers) for vector in vectors
    ]


SHOWN_DIFFERENCES = 12
SHOWN_CHARACTERS = 160


class FamilyCounts(Report, frozen=True, kw_only=True):
    """Numbers of answers of a family of vectors."""

    passed: int
    total: int
    unjudged: int
    """Answers with nothing recorded to compare with."""


class ReportedMismatch(Report, frozen=True, kw_only=True):
    """A difference between the recorded and our answer."""

    path: str
    expected: Any | UnsetType = UNSET
    got: Any | UnsetType = UNSET


class ReportedFailure(Report, frozen=True, kw_only=True):
    """A vector with a wrong or missing answer."""

    id: str
    family: str
    differences: tuple[ReportedMismatch, ...]
    failure: str | UnsetType = UNSET
    """Why there is no answer."""


class VerificationReport(ReportDocument, frozen=True, kw_only=True):
    """The comparison with recorded decisions of Kubernetes: `nodewright verify`."""

    kind: Literal["VerificationReport"] = "VerificationReport"
    families: Mapping[str, FamilyCounts]
    mismatches: tuple[ReportedFailure, ...]
    """As many as --show allows."""
    failures: tuple[ReportedFailure, ...]
    """The first error of each family."""
    faults: tuple[str, ...]
    """Malformed lines."""
    passed: int
    failed: int


@dataclass
class ConformanceReport:
    """Counts by family, and the outcomes to show."""

    max_shown: int = 0
    """Maximum number of failures to show."""
    by_release: bool = False
    """Whether each release has lines of its own."""
    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    failures: list[VectorOutcome] = field(default_factory=list)
    errors: dict[str, VectorOutcome] = field(default_factory=dict)
    """The first error of each family."""
    faults: list[Fault] = field(default_factory=list)

    def add(self, outcome: VectorOutcome) -> str:
        """Counts an outcome; returns a message to print now, or an empty text."""
        kind = self.failed if outcome.has_failed else self.passed if outcome.is_judged else self.unjudged
        name = f"{outcome.release} {outcome.family}" if self.by_release else outcome.family
        kind[name] += 1
        if outcome.has_failed and len(self.failures) < self.max_shown:
            self.failures.append(outcome)
        if outcome.error and name not in self.errors:
            self.errors[name] = outcome
            return f"{name}: {outcome.id}: {outcome.error}"
        return ""

    @property
    def passed_count(self) -> int:
        """Number of answers that equal the recorded ones."""
        return self.passed.total()

    @property
    def failed_count(self) -> int:
        """Number of wrong or missing answers, and of malformed lines."""
        return self.failed.total() + len(self.faults)

    def lines(self) -> str:
        """The failures to show, a line per family, and the total."""
        shown = [line for failure in self.failures for line in _failure_lines(failure)]
        families = [
            f"{family} {self.passed[family]}/{self.passed[family] + self.failed[family]}"
            for family in self._families()
            if self.passed[family] or self.failed[family]
        ]
        total = f"{self.passed_count} passed, {self.failed_count} failed"
        return printable_lines((*shown, *families, total))

    def unjudged_lines(self) -> str:
        """A line for each family with answers that were not judged."""
        return printable_lines(
            f"{family}: {self.unjudged[family]} answered, nothing recorded to compare with"
            for family in self._families()
            if self.unjudged[family]
        )

    def report(self) -> VerificationReport:
        """The counts and the failures to show."""
        return VerificationReport(
            families={
                family: FamilyCounts(
                    passed=self.passed[family],
                    total=self.passed[family] + self.failed[family],
                    unjudged=self.unjudged[family],
                )
                for family in self._families()
            },
            mismatches=tuple(map(_reported_failure, self.failures)),
            failures=tuple(map(_reported_failure, self.errors.values())),
            faults=tuple(map(str, self.faults)),
            passed=self.passed_count,
            failed=self.failed_count,
        )

    def _families(self) -> list[str]:
        """The families of the run: known ones in their order, then the others by name."""
        seen = self.passed.keys() | self.failed.keys() | self.unjudged.keys()
        older = (f"{release} {family}" for release in RELEASE_TABLES for family in ALL_FAMILIES)
        known = [*ALL_FAMILIES, *older]
        return [name for name in known if name in seen] + sorted(seen.difference(known))


def _failure_lines(failure: VectorOutcome) -> list[str]:
    lines = [f"--- {failure.id}"]
    if failure.error:
        lines.append(f"  no answer: {failure.error}")
    for path, expected, got in failure.mismatches[:SHOWN_DIFFERENCES]:
        lines += [f"  {path}", f"    - {_short(expected)}", f"    + {_short(got)}"]
    hidden = len(failure.mismatches) - SHOWN_DIFFERENCES
    return [*lines, f"  and {hidden} more differences"] if hidden > 0 else lines


def _short(value: Any) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}... ({len(text)} characters)"


def _reported_failure(failure: VectorOutcome) -> ReportedFailure:
    return ReportedFailure(
        id=failure.id,
        family=failure.family,
        differences=tuple(
            ReportedMismatch(
                path=path,
                expected=UNSET if expected is ABSENT else expected,
                got=UNSET if got is ABSENT else got,
            )
            for path, expected, got in failure.mismatches
        ),
        failure=failure.error or UNSET,
    )
