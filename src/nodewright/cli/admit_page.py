"""`nodewright admit --serve`: the results as a page that is updated when the files change."""

from collections.abc import Iterator
from pathlib import Path

import click
from starlette.applications import Starlette

from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes
from nodewright.agent.serving.dashboard.plan_view import AdmissionPlan, PlanView
from nodewright.cli.browser_pages import listen_address, serve_until_stopped
from nodewright.cli.node_query import admitted_entry, load_query
from nodewright.cli.options import NodeQuery
from nodewright.documents.formats.documents import STDIN, named_files
from nodewright.documents.output.terminal import NO, YES
from nodewright.model.errors import InputError


def serve_admission_page(query: NodeQuery, serve: str) -> int:
    """Serves the results until Ctrl-C and returns the exit code for the latest version of the files."""
    address = listen_address(serve)
    if STDIN in query.manifests.filenames:
        raise click.UsageError(
            "--serve reads the files again when they change: use files, not standard input"
        )
    view = PlanView(_plan(query), lambda: _plan(query), lambda: tuple(_file_versions(query)))
    page = Starlette(routes=DashboardRoutes(view).routes())
    serve_until_stopped(page, address, "results at", view.close)
    return YES if all(entry.decision == "admitted" for entry in view.plan.entries) else NO


def _plan(query: NodeQuery) -> AdmissionPlan:
    """The node's decisions about the pods in the current version of the files.

    Errors: as of `load_query`.
    """
    loaded = load_query(query)
    node, entries, states = loaded.node, [], [loaded.node.state]
    for workload in loaded.workloads:
        entry, result = admitted_entry(node, workload)
        node = node if result is None else result.node
        entries.append(entry)
        states.append(node.state)
    return AdmissionPlan(entries=entries, states=states, skipped=loaded.skipped, warnings=loaded.warnings)


def _file_versions(query: NodeQuery) -> Iterator[object]:
    """Values that change with each file."""
    try:
        paths = named_files(query.manifests.filenames, recursive=query.manifests.recursive)
    except InputError:
        # A missing file is reported when the files are read.
        paths = list(query.manifests.filenames)
    for name in (*paths, *query.named_files):
        try:
            status = Path(name).stat()
        except OSError:
            yield name, None
        else:
            yield name, status.st_mtime_ns, status.st_size, status.st_ino
