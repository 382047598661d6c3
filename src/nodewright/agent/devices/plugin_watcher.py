"""Device plugins that register by a socket in a directory (`plugins_registry`): found, registered, and removed."""

import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from nodewright.agent.devices.plugin_endpoints import CONNECT_TIMEOUT_S, rpc_within
from nodewright.agent.devices.protocols import (
    PluginRegistration,
    PluginRegistrationClient,
    PluginRegistrationError,
)
from nodewright.agent.devices.registration import plugin_info_error, registration
from nodewright.cluster.tasks.supervision import error_text
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.directory_watch import DirectoryWatch
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent

MAX_SOCKETS = 256
_MAX_DEPTH = 3


class SocketIdentity(NamedTuple):
    """Distinguishes a socket from an earlier one with the same path."""

    inode: int
    changed_ns: int


def plugin_sockets(directory: Path) -> dict[Path, SocketIdentity]:
    """The sockets in a directory and its subdirectories, except hidden ones; at most `MAX_SOCKETS`.

    Errors:  OSError where the directory itself cannot be read.
    Follows: v1.36, pluginmanager/pluginwatcher/plugin_watcher.go.
    Departs: three levels of directories, and 256 sockets.
    """
    identities = dict[Path, SocketIdentity]()
    for path, identity in _sockets_below(os.fspath(directory), _MAX_DEPTH):
        identities[path] = identity
        if len(identities) >= MAX_SOCKETS:
            break
    return identities


def _sockets_below(directory: str, depth: int) -> Iterator[tuple[Path, SocketIdentity]]:
    with os.scandir(directory) as entries:
        entries_by_name = sorted(
            (entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name
        )
    for entry in entries_by_name:
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth > 1:
                    yield from _sockets_below(entry.path, depth - 1)
                continue
            status = entry.stat()
        except OSError:
            # The entry has just been removed, or is not readable.
            continue
        if stat.S_ISSOCK(status.st_mode):
            yield Path(entry.path), SocketIdentity(status.st_ino, status.st_ctime_ns)


T = TypeVar("T")
RESCAN_PERIOD_S = 10.0
"""Interval of full scans: changes in subdirectories are not reported by the watch."""
MIN_RETRY_S, MAX_RETRY_S = 0.5, 122.0
"""Delay before a failed registration is tried again: doubled each time, up to the maximum."""


class RegisteredPlugins(Protocol):
    """The plugins of a type."""

    async def register(self, registration: PluginRegistration) -> None:
        """Registers a plugin.

        Errors: PluginRegistrationError.
        """

    async def deregister(self, registration: PluginRegistration, reason: str) -> None:
        """Takes a registered plugin out."""


class _PluginSocket:
    """A socket, and the registration of its plugin."""

    def __init__(self, socket: Path, identity: SocketIdentity) -> None:
        self.socket, self.identity = socket, identity
        self.task: asyncio.Task[None] | None = None
        self.registration: PluginRegistration | None = None
        self.type = ""


class PluginWatcher:
    """Watches a directory for plugin sockets, as the kubelet watches `plugins_registry`.

    Follows: v1.36, pluginmanager/operationexecutor/operation_generator.go; devicemanager/plugin/v1beta1/handler.go.
    Departs: everything is scanned again every ten seconds. Plugins of CSI drivers are rejected.
    """

    def __init__(
        self,
        directory: Path,
        plugins: Mapping[str, RegisteredPlugins],
        connect: Callable[[Path], PluginRegistrationClient],
        clock: Clock,
        record_event: Callable[[RecordEvent], None],
    ) -> None:
        """``plugins``: those of each type."""
        self.directory = directory
        self._plugins, self._connect, self._clock, self._record_event = plugins, connect, clock, record_event
        self._watched: dict[Path, _PluginSocket] = {}

    async def run(self) -> None:
        """Registers and removes plugins until cancelled."""
        reported_problem, watch = "", DirectoryWatch(self.directory, _MAX_DEPTH - 1)
        try:
            while True:
                problem = await self._rescan()
                if problem and problem != reported_problem:
                    self._warn("DevicePluginsOff", problem)
                reported_problem = problem
                await watch.wait(RESCAN_PERIOD_S)
        finally:
            watch.close()
            tasks = [watched.task for watched in self._watched.values() if watched.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rescan(self) -> str:
        """Compares the sockets with the known ones; why they cannot be listed, if so."""
        try:
            sockets = self._sockets()
        except OSError as error:
            return f"{self.directory}: {error.strerror or error}: device plugins cannot register there"
        for socket, watched in list(self._watched.items()):
            if sockets.get(socket) != watched.identity:
                del self._watched[socket]
                await self._remove(watched)
        for socket, identity in sockets.items():
            if socket not in self._watched:
                watched = self._watched[socket] = _PluginSocket(socket, identity)
                watched.task = asyncio.create_task(self._register_with_retry(watched))
        return ""

    def _sockets(self) -> dict[Path, SocketIdentity]:
        """The sockets in the directory, which is created if it is missing."""
        try:
            return plugin_sockets(self.directory)
        except FileNotFoundError:
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            return plugin_sockets(self.directory)

    async def _remove(self, watched: _PluginSocket) -> None:
        if watched.task is not None:
            watched.task.cancel()
            await asyncio.gather(watched.task, return_exceptions=True)
        if watched.registration is not None:
            await self._plugins[watched.type].deregister(watched.registration, "its socket was removed")

    async def _register_with_retry(self, watched: _PluginSocket) -> None:
        delay_s, reported = MIN_RETRY_S, ""
        while True:
            try:
                watched.type, watched.registration = await self._register(watched.socket)
            except Exception as error:  # noqa: BLE001 - the other plugins register all the same
                text = _registration_error_text(error)
                if text != reported:
                    self._warn("DevicePluginRefused", f"{watched.socket}: {text}")
                reported = text
            else:
                return
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_RETRY_S)

    async def _register(self, socket: Path) -> tuple[str, PluginRegistration]:
        """Registers the plugin of a socket; its type and registration.

        Errors: HostError where the plugin does not answer; PluginRegistrationError where it was rejected and notified.
        """
        client = self._connect(socket)
        try:
            info = await self._within_limit("GetInfo", socket, client.get_info())
            rejection = plugin_info_error(info, socket)
            registered = registration(info, socket)
            if not rejection:
                try:
                    await self._plugins[info.type].register(registered)
                except PluginRegistrationError as error:
                    rejection = f"RegisterPlugin error -- plugin registration failed with err: {error}"
            if rejection:
                with suppress(HostError):
                    await self._within_limit(
                        "NotifyRegistrationStatus", socket, client.notify_registration_status(rejection)
                    )
                raise PluginRegistrationError(rejection)
            try:
                await self._within_limit(
                    "NotifyRegistrationStatus", socket, client.notify_registration_status("")
                )
            except HostError:
                await self._plugins[info.type].deregister(
                    registered, "it did not accept the registration status"
                )
                raise
        finally:
            await client.close()
        return info.type, registered

    async def _within_limit(self, rpc: str, socket: Path, call: Coroutine[Any, Any, T]) -> T:
        return await rpc_within(self._clock, rpc, socket, call, CONNECT_TIMEOUT_S)

    def _warn(self, reason: str, message: str) -> None:
        self._record_event(RecordEvent.warning(reason, message))


def _registration_error_text(error: Exception) -> str:
    if isinstance(error, HostError):
        return error.error
    return str(error) if isinstance(error, PluginRegistrationError) else error_text(error)
