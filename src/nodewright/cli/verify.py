"""`nodewright verify`: recorded decisions of Kubernetes put to the engine, the answers judged."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import IO

import click

from nodewright.cli.app import ERROR, YES
from nodewright.cli.options import output
from nodewright.render.documents import as_json
from nodewright.testing.conformance.report import Report
from nodewright.testing.conformance.run import Outcome, outcomes
from nodewright.testing.conformance.vectors import Vector, open_text, read_machines, read_vectors
from nodewright.world.errors import Fault

SHOWN_FAULTS = 20
PROGRESS_INTERVAL_S = 0.2

_INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.command("verify")
@click.argument("files", nargs=-1, required=True, type=_INPUT, metavar="FILE...")
@click.option(
    "--machines", type=_INPUT, metavar="FILE", help="Machines by name; default: those of the package."
)
@click.option(
    "--answers",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="OUT.jsonl",
    help='Write {"id", "answer"} lines; vectors without `expect` are answered, not judged.',
)
@click.option("--show", type=click.IntRange(0), default=0, metavar="N", help="Show the first N mismatches.")
@click.option("--jobs", type=click.IntRange(1), default=1, metavar="N", help="Use N processes.")
@output("json")
def command(
    files: tuple[str, ...],
    machines: str | None,
    answers: str | None,
    show: int,
    jobs: int,
    output: str | None,
) -> int:
    """Put recorded decisions of Kubernetes (JSON lines, .gz or not, - for stdin) to the engine.

    Prints a line a family, `<family> <passed>/<total>`, then `N passed, M failed`. Exit code 1 if any failed.
    """
    _refuse_to_overwrite(answers, (*files, *([machines] if machines else [])))
    report = Report(to_show=show)
    found = outcomes(
        _vectors(files, report), read_machines(machines), jobs=jobs, keep_answers=answers is not None
    )
    with open_text(answers, write=True) if answers else nullcontext() as written:
        _count(found, report, written)
    _complain(report.faults)
    click.echo(report.unjudged_lines(), nl=False, err=True)
    text = as_json(report.document()) if output == "json" else report.lines()
    # Answers on standard output have it to themselves.
    click.echo(text, nl=False, err=answers == "-")
    return ERROR if report.failed_count else YES


def _vectors(files: Iterable[str], report: Report) -> Iterator[Vector]:
    for found in read_vectors(files):
        if isinstance(found, Fault):
            report.faults.append(found)
        else:
            yield found


def _count(found: Iterable[Outcome], report: Report, written: IO[str] | None) -> None:
    progress = _Progress()
    try:
        for outcome in found:
            if written:
                written.write(f'{{"id": {json.dumps(outcome.id)}, "answer": {outcome.answer_text}}}\n')
            if message := report.add(outcome):
                progress.clear()
                click.echo(message, err=True)
            progress.show(outcome.family)
    finally:
        progress.clear()


def _complain(faults: list[Fault]) -> None:
    for fault in faults[:SHOWN_FAULTS]:
        click.echo(f"error: {fault}", err=True)
    if len(faults) > SHOWN_FAULTS:
        click.echo(f"error: and {len(faults) - SHOWN_FAULTS} more lines that are no vectors", err=True)


def _refuse_to_overwrite(answers: str | None, inputs: Iterable[str]) -> None:
    if answers in (None, "-"):
        return
    assert answers is not None
    if any(name != "-" and Path(name).resolve() == Path(answers).resolve() for name in inputs):
        raise click.BadParameter("is one of the files to read", param_hint="--answers")


class _Progress:
    """One changing line on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._count = 0
        self._next_s = monotonic()

    def show(self, family: str) -> None:
        self._count += 1
        if self._is_shown and monotonic() >= self._next_s:
            click.echo(f"\r\x1b[K{self._count} answered, {family}", nl=False, err=True)
            self._next_s = monotonic() + PROGRESS_INTERVAL_S

    def clear(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
