"""Pages in a browser until Ctrl-C: `admit --serve`, whose page follows the files, and `dashboard`. Needs the extra `dashboard`."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from starlette.applications import Starlette
from starlette.types import ASGIApp

from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes
from nodewright.agent.serving.dashboard.plan_view import AdmissionPlan, PlanView
from nodewright.agent.serving.proxy import AgentProxy
from nodewright.cli.node_query import admitted_entry, load_query
from nodewright.cli.options import NodeQuery
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.cluster.serving.browser_auth import PageAddress, serve_local_pages
from nodewright.cluster.serving.http_server import log_to_stderr
from nodewright.cluster.tasks.supervision import stop_event
from nodewright.documents.formats.documents import STDIN, named_files
from nodewright.documents.output.terminal import NO, YES, print_log_line, print_message
from nodewright.model.errors import InputError


def serve_admission_page(query: NodeQuery, serve: str) -> int:
    """Serves the results until Ctrl-C and returns the exit code for the latest version of the files."""
    address = _page_address(serve)
    if STDIN in query.manifests.filenames:
        raise click.UsageError(
            "--serve reads the files again when they change: use files, not standard input"
        )
    view = PlanView(_plan(query), lambda: _plan(query), lambda: tuple(_file_versions(query)))
    page = Starlette(routes=DashboardRoutes(view).routes())
    _serve_until_stopped(page, address, "results at", view.close)
    return YES if all(entry.decision == "admitted" for entry in view.plan.entries) else NO


def serve_dashboard(agent: AgentClient, listen: str) -> None:
    """Serves the agent's dashboard until Ctrl-C.

    Errors: click.UsageError for a malformed address; HostError if the agent does not answer.
    """
    address = _page_address(listen)
    agent.get("api/v1/nodes")  # An unreachable agent is reported here, not in the browser.
    proxy = AgentProxy(agent.path)
    _serve_until_stopped(proxy, address, "dashboard at", proxy.close)


def _plan(query: NodeQuery) -> AdmissionPlan:
    """The node's decisions about the pods in the current version of the files.

    Errors: as of `load_query`.
    """
    loaded = load_query(query)
    node, entries, states = loaded.node, [], [loaded.node.state]
    for workload in loaded.workloads:
        entry, result = admitted_entry(node, workload, query)
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


def _page_address(text: str) -> PageAddress:
    """The address to listen on.

    Errors: click.UsageError for a malformed address.
    """
    try:
        return PageAddress.parse(text) if text else PageAddress()
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _serve_until_stopped(
    app: ASGIApp, address: PageAddress, label: str, on_exit: Callable[[], None] = lambda: None
) -> None:
    """Serves the application until Ctrl-C; ``label`` precedes the printed link.

    Errors: HostError if the address is in use.
    """
    asyncio.run(_serve(app, address, label, on_exit))


async def _serve(app: ASGIApp, address: PageAddress, label: str, on_exit: Callable[[], None]) -> None:
    # From here on nothing may wait for the reader of stderr.
    log_to_stderr()
    stopped = stop_event()
    async with serve_local_pages(app, address, on_exit) as (browser_auth, host):
        print_message(f"{label}: {browser_auth.login_url(host)}")
        if not address.is_loopback:
            print_log_line(
                "warning: this address is reachable from other machines, and traffic is not encrypted"
            )
        print_log_line("press Ctrl-C to stop")
        browser_auth.on_login = lambda: print_log_line(f"for another browser: {browser_auth.login_url(host)}")
        await stopped.wait()
