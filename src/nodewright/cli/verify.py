"""`nodewright verify`: compares the engine's decisions with recorded decisions of Kubernetes."""

import json
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import IO, Any

import click
import msgspec

from nodewright.cli.options import output_file_option, output_option
from nodewright.cli.output_files import open_output_text
from nodewright.cli.workload_input import ProgressLine
from nodewright.documents.output.command_line import IntegerRange, option
from nodewright.documents.output.json_yaml import as_json
from nodewright.documents.output.terminal import ERROR, YES, print_message, print_text
from nodewright.model.errors import Fault, InputError
from nodewright.model.printable import printable_json
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.testing.conformance.vector_run import ConformanceReport, VectorOutcome, run_vectors
from nodewright.testing.conformance.vectors import (
    Vector,
    read_machines,
    read_vectors,
    recorded_sample,
    vectors_of_release,
)

SHOWN_FAULTS = 20

_INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.command("verify")
@click.argument("files", nargs=-1, type=_INPUT, metavar="[FILE]...")
@option("--machines FILE", "Machines by name. Default: those of the package.", type=_INPUT)
@output_file_option(
    "--answers",
    path_type=str,
    allow_dash=True,
    help='Write {"id", "answer"} lines, also for vectors without `expect`, which are not judged.',
)
@option(
    "--release R",
    "Verify this release. Default: the one that a vector names, else 1.36.",
    type=click.Choice(tuple(RELEASE_TABLES)),
)
@option("--all-releases", "Verify every release in turn.")
@option(
    "--show N",
    "Show the first N mismatches.",
    type=IntegerRange(0, 2**31 - 1),
    default=0,
    show_default=False,
)
@option("--jobs N", "Use N processes.", type=IntegerRange(1, 1024), default=1, show_default=False)
@output_option("json")
def command(files: tuple[str, ...], *, answers: str | None, output: str | None, **choices: Any) -> int:
    """Verify nodewright against recorded decisions of Kubernetes (JSON lines, .gz or not, - for stdin).

    Without FILE: a sample of the decisions of all releases, from the package nodewright-recordings.
    Prints one line per family, `<family> <passed>/<total>`, then `N passed, M failed`. Exit code 1 if any failed.
    With --release, the answers in which that release differs are read from `releases/R` beside the vectors.
    """
    options = VerifyOptions(**choices)
    files = files or (str(recorded_sample()),)
    report = ConformanceReport(max_shown=options.show, by_release=options.all_releases)
    vectors = chain.from_iterable(_vectors(files, release, report) for release in options.releases)
    machines = read_machines(options.machines)
    outcomes = run_vectors(vectors, machines, jobs=options.jobs, keep_answers=answers is not None)
    with open_output_text(answers) if answers else nullcontext() as answer_file:
        _collect(outcomes, report, answer_file)
    _print_faults(report.faults)
    print_text(report.unjudged_lines(), to_stderr=True)
    text = as_json(report.report()) if output == "json" else report.lines()
    # With answers on standard output, the report goes to stderr.
    print_text(text, to_stderr=answers == "-")
    is_answered = answers is not None and report.unjudged.total() > 0
    if not report.passed_count and not report.failed_count and not is_answered:
        raise InputError([Fault(rule="nothing here is judged: no recorded decision")])
    return ERROR if report.failed_count else YES


class VerifyOptions(msgspec.Struct, frozen=True):
    """What is verified, and how."""

    machines: str | None
    release: str | None
    all_releases: bool
    show: int
    jobs: int

    @property
    def releases(self) -> tuple[str | None, ...]:
        """The releases to ask in turn; None: the one that a vector names, else 1.36."""
        if not self.all_releases:
            return (self.release,)
        if self.release:
            raise click.UsageError("--release and --all-releases exclude each other")
        return tuple(RELEASE_TABLES)


def _vectors(files: Iterable[str], release: str | None, report: ConformanceReport) -> Iterator[Vector]:
    for vector in read_vectors(files) if release is None else vectors_of_release(files, release):
        if isinstance(vector, Fault):
            report.faults.append(vector)
        else:
            yield vector


def _collect(
    outcomes: Iterable[VectorOutcome], report: ConformanceReport, answer_file: IO[str] | None
) -> None:
    """Adds the outcomes to the report, and writes the answers."""
    with ProgressLine(delay_s=0) as progress:
        for count, outcome in enumerate(outcomes, 1):
            if answer_file:
                release = f', "release": "{outcome.release}"' if report.by_release else ""
                answer_file.write(
                    f'{{"id": {json.dumps(outcome.id)}{release}, "answer": {printable_json(outcome.answer_text)}}}\n'
                )
            if message := report.add(outcome):
                progress.clear()
                print_message(message)
            progress.show(f"{count} answered, {outcome.family}")


def _print_faults(faults: list[Fault]) -> None:
    for fault in faults[:SHOWN_FAULTS]:
        print_message(f"error: {fault}")
    if len(faults) > SHOWN_FAULTS:
        print_message(f"error: and {len(faults) - SHOWN_FAULTS} more malformed lines")
