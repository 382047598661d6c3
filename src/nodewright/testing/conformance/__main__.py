"""`python -m nodewright.testing.conformance judge [--release R] ANSWERS [VECTORS]...`: judges anyone's answers to recorded questions.

ANSWERS has lines of JSON, `{"id": ..., "answer": ...}` and, where several releases are asked, `"release"`, as
`nodewright verify --answers` writes them. Without VECTORS the questions are those of the package nodewright-recordings. With --release
the answers in which that release differs are read from `releases/R` beside the vectors.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.output.terminal import ERROR, USAGE, YES, print_line, print_message, print_text
from nodewright.model.errors import JSON_ERRORS, Fault, HostError, InputError
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.testing.conformance.judge import mismatches
from nodewright.testing.conformance.vector_run import ConformanceReport, VectorOutcome
from nodewright.testing.conformance.vectors import (
    RELEASES_TEXT,
    Vector,
    numbered_lines,
    read_vectors,
    recorded_sample,
    vectors_of_release,
)

_SHOWN = 10
_USAGE = "Usage: python -m nodewright.testing.conformance judge [--release R] ANSWERS [VECTORS]..."


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of answers."""

    id: str
    answer: Any
    release: str = ""


Answers = Mapping[tuple[str, str], Any]
"""The answers by id and release; the release is empty where a line names none."""


def read_answers(path: str) -> Answers:
    """The answers of a file.

    Errors: InputError with all malformed and repeated lines.
    """
    answers: dict[tuple[str, str], Any] = {}
    faults = []
    for place, line in numbered_lines(path):
        if isinstance(line, Fault):
            faults.append(line)
            continue
        try:
            answer = msgspec.convert(json.loads(line), Answer)
        except JSON_ERRORS as error:
            faults.append(
                Fault(source=place, value=line[:80], rule=f'not {{"id": ..., "answer": ...}}: {error}')
            )
            continue
        if (answer.id, answer.release) in answers:
            faults.append(Fault(source=place, path="id", value=answer.id, rule="is answered twice"))
        answers[answer.id, answer.release] = answer.answer
    if faults:
        raise InputError(faults)
    return answers


def judged(vectors: Iterable[Vector], answers: Answers) -> Iterator[VectorOutcome]:
    """The outcome of each recorded question; one without an answer has failed.

    Errors: InputError, at the end, for answers to no question.
    """
    left = set(answers)
    for vector in vectors:
        key = next((key for key in ((vector.id, vector.release), (vector.id, "")) if key in answers), None)
        left.discard(key or ("", ""))
        if not vector.is_recorded:
            continue
        outcome = VectorOutcome(id=vector.id, family=vector.family, is_judged=True, release=vector.release)
        if key is None:
            yield replace(outcome, error="there is no answer")
        else:
            differences = mismatches(vector.family, vector.question, vector.expect, answers[key])
            yield replace(outcome, mismatches=differences)
    if left:
        raise InputError(
            [Fault(path="id", value=name, rule="answers no question") for name, _ in sorted(left)]
        )


def _vectors(paths: Sequence[str], release: str) -> Iterator[Vector]:
    paths = paths or [str(recorded_sample())]
    for vector in vectors_of_release(paths, release) if release else read_vectors(paths):
        if isinstance(vector, Fault):
            raise InputError([vector])
        yield vector


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each family, the first mismatches and the sum; the exit code is 1 if anything differs or is missing."""
    match arguments:
        case ["-h" | "--help"] | ["judge", "-h" | "--help"]:
            print_line(_USAGE)
            return YES
        case ["judge", "--release", release, place, *paths] if release in RELEASE_TABLES:
            pass
        case ["judge", place, *paths] if not place.startswith("--"):
            release = ""
        case _:
            print_message(f"{_USAGE}, R one of {RELEASES_TEXT}")
            return USAGE
    report = ConformanceReport(max_shown=_SHOWN)
    try:
        answers = read_answers(place)
        for outcome in judged(_vectors(paths, release), answers):
            if message := report.add(outcome):
                print_message(message)
    except (InputError, HostError) as error:
        print_message(f"error: {error}")
        return ERROR
    if not report.passed_count and not report.failed_count:
        print_message("error: nothing here is judged: no recorded decision")
        return ERROR
    print_text(report.lines())
    return ERROR if report.failed_count else YES


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
