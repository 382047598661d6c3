"""Follows a node beside its kubelet: reads it when a state file or the list of pods changes."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from nodewright.cluster.exports.export_routes import ExportFeed
from nodewright.documents.files.directory_watch import DirectoryWatch
from nodewright.documents.profiles.kubelet_root import DEVICE_PLUGINS_DIRECTORY, PODS_DIRECTORY
from nodewright.model.errors import HostError, InputError
from nodewright.scheduling.exporter.node_reader import ExportSettings, NodeReader

MIN_POLL_PERIOD_S = 5.0
POLL_PERIOD_S = 10.0
"""How often sources are read that cannot be watched."""
SETTLE_S = 0.01
"""A kubelet that admits a pod writes several files, within milliseconds."""
FOLLOW_UP_S = 0.25
"""When the sources are read once more after a change: the kubelet's API may be later than its files."""
RETRY_S = (0.05, 0.2, 1.0, 5.0)
_SAFETY_PERIOD_S = 300.0


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
