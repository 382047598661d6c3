"""`nodewright admit --serve`: the answers as a page that follows the files."""

from collections.abc import Iterator
from pathlib import Path

import click
from starlette.applications import Starlette

from nodewright.api.answers import APIError, on_api_error
from nodewright.api.dashboard import DashboardRoutes
from nodewright.api.dashboard_plan import Plan, PlanView
from nodewright.cli.app import NO, YES
from nodewright.cli.opening import entry_of, opened
from nodewright.cli.options import Manifests, Question
from nodewright.cli.pages import address, show_until_stopped
from nodewright.world.errors import InputError
from nodewright.world.files import STDIN, named_files


def shown_as_page(question: Question, serve: str) -> int:
    """Show the answers in a browser until Ctrl-C. Exit code: as without, of the files as they were last."""
    where = address(serve)
    if STDIN in question.filenames:
        raise click.UsageError("--serve reads the files again when they change: standard input cannot be")
    context = click.get_current_context()

    def read() -> Plan:
        # What options say beside the question is the context's, and this may be another thread.
        with context.scope(cleanup=False):
            return _plan(question)

    def stamp() -> object:
        with context.scope(cleanup=False):
            return tuple(_stamps(question))

    view = PlanView(read(), read, stamp)
    inside = Starlette(routes=DashboardRoutes(view).routes(), exception_handlers={APIError: on_api_error})
    show_until_stopped(inside, where, "the answers are at", view.close)
    return YES if all(one.decision == "admitted" for one in view.plan.entries) else NO


def _plan(question: Question) -> Plan:
    """What the node says to the pods of the files as they are now.

    Errors: as of `opened`.
    """
    found = opened(question)
    asked, entries, states = found.node, [], [found.node.state]
    for workload in found.workloads:
        answer = asked.admit(workload.pod)
        asked = answer.node
        entries.append(entry_of(answer, workload))
        states.append(asked.state)
    return Plan(entries=entries, states=states, skipped=found.skipped, warnings=found.warnings)


def _stamps(question: Question) -> Iterator[object]:
    """Something of each file that is another once the file has changed."""
    try:
        manifests = named_files(question.filenames, recursive=Manifests.asked().recursive)
    except InputError:
        # A file is gone, which reading will say.
        manifests = list(question.filenames)
    for name in (*manifests, *question.files):
        try:
            told = Path(name).stat()
        except OSError:
            yield name, None
        else:
            yield name, told.st_mtime_ns, told.st_size, told.st_ino
