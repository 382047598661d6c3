"""Runs the exporter: reads a node beside its kubelet whenever it changes, serves the export, publishes it in a cluster."""

import asyncio
import contextlib
import gc
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from starlette.routing import Router

from nodewright.cluster.exports.export_routes import (
    ExportFeed,
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
from nodewright.cluster.tasks.timing import Clock, HostClock
from nodewright.documents.files.directory_watch import DirectoryWatch
from nodewright.documents.files.process_tuning import return_free_memory
from nodewright.documents.output.exit_codes import ERROR, YES
from nodewright.documents.output.terminal import print_log_line, print_message, print_text
from nodewright.documents.profiles.kubelet_root import DEVICE_PLUGINS_DIRECTORY, PODS_DIRECTORY
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.scheduling.exporter.export_options import ExportOptions
from nodewright.scheduling.exporter.node_reader import (
    MIN_POLL_PERIOD_S,
    POLL_PERIOD_S,
    ExportSettings,
    KubeletClient,
    NodeReader,
    PodListSource,
)

SETTLE_S = 0.01
"""A kubelet that admits a pod writes several files, within milliseconds."""
FOLLOW_UP_S = 0.25
"""When the sources are read once more after a change: the kubelet's API may be later than its files."""
RETRY_S = (0.05, 0.2, 1.0, 5.0)
_SAFETY_PERIOD_S = 300.0
NICE_VALUE = -10
"""The exporter's nice value, where it may set one."""
_COLLECTION_THRESHOLDS = (200, 5, 5)
_COLLECTION_PERIOD_S = 5.0
"""Each closed connection leaves a cycle with buffers of 256 KiB; few other objects are searched, so it takes a millisecond."""


class Exporter:
    """Publishes the node to a feed until it is cancelled."""

    def __init__(
        self,
        settings: ExportSettings,
        reader: NodeReader,
        feed: ExportFeed,
        *,
        poll_period_s: float = POLL_PERIOD_S,
    ) -> None:
        self.feed = feed
        self._settings, self._reader = settings, reader
        self._poll_period_s = max(MIN_POLL_PERIOD_S, poll_period_s)
        self._changed = asyncio.Event()
        self._has_kubelet_restarted = False
        self._watches = {
            place: DirectoryWatch(place, poll_period_s=MIN_POLL_PERIOD_S) for place in self._places()
        }
        self.log: Callable[[str], None] = lambda _text: None
        self.readings = 0
        """How often the sources were read."""

    @property
    def node_name(self) -> str:
        """The name of the node."""
        return self._settings.node_name

    def counts(self) -> tuple[tuple[str, str, int], ...]:
        """Name, help and value of each counter."""
        return (
            ("readings", "How often the sources were read.", self.readings),
            ("changes", "How often the export has changed.", self.feed.changes),
        )

    async def read_once(self) -> None:
        """Reads the node and publishes it."""
        await self._read()

    def notice_change(self) -> None:
        """Has the node read: a source has changed that is watched elsewhere."""
        self._changed.set()

    async def run(self) -> None:
        """Follows the node until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for place, watch in self._watches.items():
                    group.create_task(self._watch(place, watch))
                await self._follow()
        finally:
            for watch in self._watches.values():
                watch.close()

    def _places(self) -> Iterable[Path]:
        """The directories whose changes matter."""
        settings, root = self._settings, self._settings.kubelet_root
        places = [root, root / DEVICE_PLUGINS_DIRECTORY, root / PODS_DIRECTORY]
        places += [settings.kubelet_config.parent] if settings.kubelet_config else []
        places += [settings.config_dir] if settings.config_dir else []
        places += [settings.pod_resources.parent] if settings.pod_resources else []
        return dict.fromkeys(places)

    async def _watch(self, place: Path, watch: DirectoryWatch) -> None:
        socket = self._settings.pod_resources
        is_socket_place = socket is not None and place == socket.parent
        identity = _identity(socket) if socket is not None else None
        while True:
            await watch.wait(_SAFETY_PERIOD_S)
            if not watch.is_watching and _identity(place) is None:
                continue
            if is_socket_place and socket is not None and (now := _identity(socket)) != identity:
                # A kubelet that starts creates its socket.
                identity, self._has_kubelet_restarted = now, True
            if self._is_configuration_place(place):
                self._has_kubelet_restarted = True
            self._changed.set()

    def _is_configuration_place(self, place: Path) -> bool:
        files = (self._settings.kubelet_config, self._settings.config_dir)
        return (
            place in {files[0].parent if files[0] else None, files[1]}
            and place != self._settings.kubelet_root
        )

    async def _follow(self) -> None:
        is_follow_up = False
        while True:
            period_s = FOLLOW_UP_S if is_follow_up else self._poll_period_s
            is_change = await self._wait(period_s)
            if is_change:
                await asyncio.sleep(SETTLE_S)
            elif (
                not is_follow_up and self._are_files_watched() and not await self._reader.have_pods_changed()
            ):
                if (reading := self._reader.last_reading()) is not None:
                    self.feed.publish(reading)
                continue
            await self._read()
            is_follow_up = is_change

    async def _wait(self, period_s: float) -> bool:
        """Waits for a change or the end of the period; whether there was a change."""
        if self.readings == 0:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(period_s):
                await self._changed.wait()
        is_change = self._changed.is_set()
        self._changed.clear()
        return is_change

    async def _read(self) -> None:
        """Reads the node and publishes it; tries again if the files are being replaced."""
        if self._has_kubelet_restarted:
            self._has_kubelet_restarted = False
            self._reader.expire()
        for delay_s in (*RETRY_S, None):
            self.readings += 1
            try:
                reading = await self._reader.read(are_files_watched=self._are_files_watched())
            except (InputError, HostError) as error:
                if delay_s is not None and self.feed.generation:
                    await asyncio.sleep(delay_s)
                    continue
                if str(error) != self.feed.error:
                    self.log(f"the node cannot be read: {error}")
                self.feed.fail(str(error), self._reader.failed_sources(str(error)))
                return
            self.feed.publish(reading)
            return

    def _are_files_watched(self) -> bool:
        return self._watches[self._settings.kubelet_root].is_watching


def _identity(path: Path) -> tuple[int, int] | None:
    """What distinguishes a file from another one at its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


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
    tasks = [*tasks, asyncio.ensure_future(_collect_garbage())]
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
    options: ExportOptions, clock: Clock
) -> AsyncIterator[tuple[Exporter, list["asyncio.Future[None]"]]]:
    """The exporter, and the tasks that run beside it.

    Errors: InputError, HostError.
    """
    settings, endpoint = options.settings(), options.endpoint()
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


async def _collect_garbage() -> None:
    """Frees closed connections until it is cancelled; what was loaded before stays, and is not searched."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    while True:
        await asyncio.sleep(_COLLECTION_PERIOD_S)
        gc.collect()
        return_free_memory()
