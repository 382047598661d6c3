"""Runs the exporter: reads the node, serves its export, and publishes it in a cluster."""

import asyncio
import contextlib
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.routing import Router

from nodewright.cluster.exports.export_feed import ExportFeed
from nodewright.cluster.exports.export_routes import (
    ExportMetricsRoutes,
    ExportRoutes,
    HealthRoutes,
)
from nodewright.cluster.serving.access import Authorizer, TokenFile, read_grants
from nodewright.cluster.serving.http_server import ListenAddress, log_to_stderr, serve_network
from nodewright.cluster.serving.key_pair import KeyPair, ensure_key_pair
from nodewright.cluster.serving.middleware import AuthMiddleware, RefusalLog, RequestMetrics
from nodewright.cluster.serving.routes import bare_routes
from nodewright.cluster.serving.tls import ReloadingTLS, serving_tls
from nodewright.cluster.tasks.supervision import stop_event
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.files.process_tuning import collect_connections
from nodewright.documents.output.terminal import ERROR, YES, print_log_line, print_message, print_text
from nodewright.model.errors import Fault, InputError
from nodewright.scheduling.exporter.export_options import ExportOptions
from nodewright.scheduling.exporter.exporter import Exporter
from nodewright.scheduling.exporter.kubelet_client import KubeletClient
from nodewright.scheduling.exporter.node_reader import NodeReader, PodListSource

if TYPE_CHECKING:
    from nodewright.cluster.tasks.timing import Clock

NICE_VALUE = -10
"""The exporter's nice value, where it may set one."""


async def print_once(options: ExportOptions) -> int:
    """Prints the export of this moment."""
    clock = HostClock()
    async with _exporter(options, clock) as (exporter, _):
        await exporter.read_once()
        served = exporter.feed.current()
    if served is None:
        print_message(f"error: {exporter.feed.error}")
        return ERROR
    print_text(served.content.decode() + "\n")
    return YES


async def run_export(options: ExportOptions) -> int:
    """Follows the node until the process is asked to stop.

    Errors: InputError with all faults of the options; HostError for addresses and files that cannot be used.
    """
    log_to_stderr()
    with contextlib.suppress(OSError):
        # Pods that use all CPUs must not delay the export.
        os.setpriority(os.PRIO_PROCESS, 0, NICE_VALUE)
    clock, stop = HostClock(), stop_event()
    refusals = RefusalLog(print_log_line)
    access, tls = _access(options), _tls(options)
    async with _exporter(options, clock) as (exporter, tasks), AsyncExitStack() as stack:
        feed = exporter.feed
        entries = [
            *ExportRoutes(feed).authorized_routes(),
            *HealthRoutes(feed).authorized_routes(),
            *ExportMetricsRoutes(feed, refusals, exporter).authorized_routes(),
        ]
        app = AuthMiddleware(
            Router(routes=bare_routes(entries)),
            entries,
            access,
            refusals=refusals,
            requests=RequestMetrics(),
        )
        address = ListenAddress.parse(options.listen)
        server = serve_network(app, address, lambda: tls.context(print_log_line), refusals)
        bound = await stack.enter_async_context(server)
        if options.health_port:
            await stack.enter_async_context(_health_server(options, feed, refusals))
        print_log_line(f"the export of {exporter.node_name} is served at https://{bound}/v1/state")
        await _run_until(stop, [asyncio.ensure_future(exporter.run()), *tasks])
    return YES


async def _run_until(stop: asyncio.Event, tasks: Sequence["asyncio.Future[None]"]) -> None:
    """Runs the tasks until the event is set; the error of a task that fails is raised."""
    tasks = [*tasks, asyncio.ensure_future(collect_connections(asyncio.sleep))]
    stopped = asyncio.ensure_future(_wait(stop))
    try:
        ended, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in ended - {stopped}:
            task.result()
    finally:
        for task in (stopped, *tasks):
            task.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)


@asynccontextmanager
async def _health_server(
    options: ExportOptions, feed: ExportFeed, refusals: RefusalLog
) -> AsyncIterator[None]:
    """Serves the health checks without TLS."""
    entries = HealthRoutes(feed).authorized_routes()
    app = AuthMiddleware(
        Router(routes=bare_routes(entries)), entries, None, refusals=refusals, requests=RequestMetrics()
    )
    address = ListenAddress(ListenAddress.parse(options.listen).address, options.health_port)
    async with serve_network(app, address, None, refusals):
        yield


@asynccontextmanager
async def _exporter(
    options: ExportOptions, clock: "Clock"
) -> AsyncIterator[tuple[Exporter, list["asyncio.Future[None]"]]]:
    """The exporter, and the tasks that run beside it.

    Errors: InputError, HostError.
    """
    settings, endpoint = options.settings(), options.endpoint()
    if endpoint is not None and (
        warning := endpoint.peer.warning("the kubelet", "--kubelet-certificate-authority")
    ):
        print_log_line(warning)
    kubelet = KubeletClient(endpoint) if endpoint is not None else None
    feed = ExportFeed(clock)
    async with AsyncExitStack() as stack:
        pods: PodListSource | None = None
        member = None
        if options.joins_cluster:
            from nodewright.scheduling.exporter.export_member import export_member  # noqa: PLC0415 - memory

            member = await stack.enter_async_context(export_member(options, settings.node_name, feed, clock))
            pods = member.pods
        reader = NodeReader(settings, clock, kubelet, pods)
        exporter = Exporter(settings, reader, feed, poll_period_s=options.poll_period)
        exporter.log = print_log_line
        tasks = []
        if member is not None:
            member.pods.on_change = exporter.notice_change
            tasks = member.tasks()
        yield exporter, tasks


def _access(options: ExportOptions) -> Authorizer:
    """Who may read.

    Errors: InputError.
    """
    faults: list[Fault] = []
    grants, tokens = read_grants(options.grants, faults), None
    if options.token_auth_file is not None:
        try:
            tokens = TokenFile(options.token_auth_file)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return Authorizer(grants, tokens)


def _tls(options: ExportOptions) -> ReloadingTLS:
    """The server's certificate and the authorities of its clients.

    Errors: InputError, HostError.
    """
    if options.tls_cert_file is not None and options.tls_private_key_file is not None:
        pair = KeyPair(options.tls_cert_file, options.tls_private_key_file)
    else:
        directory = options.cert_dir or Path(tempfile.gettempdir(), f"nodewright-export-{os.getuid()}")
        addresses = tuple(dict.fromkeys(("127.0.0.1", "::1", *_own_addresses(options))))
        pair = ensure_key_pair(directory, platform.node() or "localhost", addresses)
    return serving_tls(pair, options.client_ca_file)


def _own_addresses(options: ExportOptions) -> Iterable[str]:
    address = ListenAddress.parse(options.listen).address
    return () if address in ("0.0.0.0", "::") else (address,)  # noqa: S104 - compares


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
