"""Manifests as sources of pods: directories that are watched, and the listener that gets pods, objects and warnings."""

import asyncio
import contextlib
import dataclasses
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import Observation, SourcePodsListed
from nodewright.cluster.tasks.supervision import error_text
from nodewright.documents.files.directory_watch import DirectoryWatch
from nodewright.documents.files.regular_files import FileRefusedError, FileStamp, read_stamped_file
from nodewright.documents.formats.pod_files import (
    MAX_MANIFEST_BYTES,
    ManifestContent,
    ManifestOrigin,
    ManifestSource,
    read_manifest,
)
from nodewright.engine.admission.admission_plugins import with_runtime_class
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.cluster_objects import RuntimeClass
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.printable import counted

_PODS_BETWEEN_YIELDS = 50


class CompletedPods(NamedTuple):
    """Pods of a source with defaults, by the identity of the pods as they are written."""

    runtimes: tuple[RuntimeClass, ...]
    """The runtime classes that they were completed with."""
    pods: dict[int, tuple[Pod, Pod]]
    """The pod as written, which has this identity as long as it is kept here, and the completed one."""

    def completed(self, written: Pod) -> Pod:
        """The pod with defaults."""
        if id(written) not in self.pods:
            pod = with_defaults(replace(written, spec=with_runtime_class(written.spec, self.runtimes)[0]))
            self.pods[id(written)] = (written, pod)
        return self.pods[id(written)][1]

    def kept(self, written: Iterable[Pod]) -> "CompletedPods":
        """Only these of the pods."""
        return CompletedPods(self.runtimes, {id(pod): self.pods[id(pod)] for pod in written})


class SourceListener(msgspec.Struct, frozen=True):
    """What sources report to."""

    node_name: str
    observe: Callable[[Observation], None]
    record_event: Callable[[RecordEvent], None]
    object_cache: ConfigObjectCache
    completed: dict[tuple[PodSource, str], CompletedPods] = {}
    """What each source published last: of thousands of pods, those that are still written so are the same objects."""

    def record_warning(self, reason: str, message: str) -> None:
        """Records a warning about the node."""
        self.record_event(RecordEvent.warning(reason, message))

    async def set_pods(
        self, source: PodSource, location: str, contents: list[ManifestContent]
    ) -> tuple[Pod, ...]:
        """Publishes all that a source has now."""
        by_name: dict[str, Pod] = {}
        self.object_cache.put_runtime_classes(
            source,
            location,
            [runtime_class for content in contents for runtime_class in content.runtime_classes],
        )
        completed = self._completed_before(source, location)
        for number, content in enumerate(contents):
            if number % _PODS_BETWEEN_YIELDS == 0:
                await asyncio.sleep(0)
            for written in content.pods:
                pod = completed.completed(written)
                if pod.full_name in by_name:
                    self.record_warning(
                        "ManifestRepeated",
                        f"{location}: {pod.full_name} is defined more than once; the last definition is used",
                    )
                by_name[pod.full_name] = pod
        self.completed[source, location] = completed.kept(pod for content in contents for pod in content.pods)
        by_uid: dict[str, Pod] = {}
        for pod in by_name.values():
            if pod.uid in by_uid:
                first = by_uid[pod.uid].full_name
                self.record_warning(
                    "ManifestRepeated",
                    f"{location}: {pod.full_name} has the uid of {first} ({pod.uid}); the last definition is used",
                )
            by_uid[pod.uid] = pod
        maps = [config_map for content in contents for config_map in content.config_maps]
        self.object_cache.put(
            source, location, maps, [secret for content in contents for secret in content.secrets]
        )
        pods = tuple(by_uid.values())
        self.observe(SourcePodsListed(source, pods))
        return pods

    def _completed_before(self, source: PodSource, location: str) -> CompletedPods:
        """What the source published last, unless the runtime classes have changed since."""
        runtimes = tuple(self.object_cache.runtime_classes().values())
        completed = self.completed.get((source, location))
        return completed if completed and completed.runtimes == runtimes else CompletedPods(runtimes, {})


T = TypeVar("T")
_MANIFEST_ORIGINS = {
    PodSource.FILE: ManifestOrigin.FILE,
    PodSource.HTTP: ManifestOrigin.HTTP,
    PodSource.WORKLOAD: ManifestOrigin.API,
    PodSource.API: ManifestOrigin.API,
}
_WRITE_GRACE_S = 1.0
"""An invalid manifest of this age or less may still be being written: its error is not reported yet."""
_REMOVAL_GRACE_S = 0.25
"""Editors remove a file before they put the new one in its place: for this long it counts as present."""
_STAMP_RESOLUTION_S = 0.02
"""A file changed this recently may have changed again within the same timestamp."""
_MAX_UNFINISHED = 4
"""Files of a directory that may be unread for lack of an answer: each keeps a thread."""
_FILES_A_THREAD = 100
_FILES_A_POLL = 500
"""So many new or changed files are published at once, so that thousands are decided at a steady rate."""
_NO_STAMP = FileStamp(0, 0, 0)
_NO_CONTENT = ManifestContent()
_EDITOR_SUFFIXES = ("~", ".swp", ".swo", ".swx", ".tmp", ".part")


# ---------------------------------------------------------------- directories


async def watch_directory(
    directory: Path, source: PodSource, listener: SourceListener, period_s: float = 20.0
) -> None:
    """Publishes the pods in a directory, or in one file, at once and after every change, until cancelled.

    Units:   period_s between polls, whether or not a change was seen.
    Follows: v1.36, pkg/kubelet/config/file.go and file_linux.go.
    Departs: a static pod's file that is back with other content within 0.25 s, as editors write it, is a change, not a
        removal; after an invalid change the pods of a manifest stay as they were; files that editors keep beside others
        (`web.yaml~`, `#web.yaml#`, `*.swp`, `*.tmp`) are ignored.
    """
    watch = DirectoryWatch(directory, keeps_removed=True)
    manifests = ManifestDirectory(directory, source, listener)
    try:
        while True:
            next_poll_s = await manifests.poll(watch.being_written, watch.take_removed())
            await watch.wait(min(period_s, next_poll_s))
    finally:
        watch.close()


@dataclass(slots=True)
class _ManifestFile:
    """A file as last read."""

    stamp: FileStamp
    content: ManifestContent
    fault: str = ""
    is_reported: bool = False
    read_at_ns: int = field(default_factory=time.time_ns, compare=False)
    missed_since_s: float | None = None
    was_removed: bool = False

    @property
    def is_fresh(self) -> bool:
        """Whether it may have changed since without a new timestamp."""
        return self.read_at_ns - self.stamp.changed_ns < _STAMP_RESOLUTION_S * 10**9


@dataclass(slots=True)
class ManifestDirectory:
    """The manifests of a directory; each file is read when it changes, in a thread and within a time limit."""

    path: Path
    source: PodSource
    listener: SourceListener
    read_timeout_s: float = 5.0
    _files: dict[str, _ManifestFile] = field(default_factory=dict)
    _unfinished: dict[str, str] = field(default_factory=dict)
    """Files that are still being read although their time is over, with the fault."""
    _late: dict[str, "_ReadManifest | None"] = field(default_factory=dict)
    """What was read of them in the end."""
    _put_back: set[str] = field(default_factory=set)
    """Files that were removed and are back with the same content."""
    _published: list[ManifestContent] | None = None
    _reported_error: str = ""

    async def poll(
        self,
        being_written: set[str] | frozenset[str] = frozenset(),
        removed: set[str] | frozenset[str] = frozenset(),
    ) -> float:
        """Reads changed files, and publishes the pods if they differ from before.

        Units: seconds until the next poll at the latest.
        """
        for name in removed & self._files.keys():
            self._files[name].was_removed = True
        next_poll_s = float("inf")
        stamps = await self._manifest_stamps()
        if stamps is None:
            return next_poll_s
        for name in [file for file in self._files if file not in stamps]:
            next_poll_s = min(next_poll_s, self._wait_or_remove(name))
        names = sorted(stamps.keys() - being_written)
        # At the start all files are read first: a pod whose file is not read yet would be taken for removed.
        limit = len(names) if self._published is None else _FILES_A_POLL
        results, has_more = await self._read_changed({name: stamps[name] for name in names}, limit)
        for name in names:
            if name in results or name in self._files:
                next_poll_s = min(next_poll_s, self._take_result(name, results))
        if has_more:
            next_poll_s = 0.0
        if self._unfinished:
            next_poll_s = min(next_poll_s, self.read_timeout_s)
        await self._publish_put_back()
        await self._publish([file.content for _, file in sorted(self._files.items())])
        return next_poll_s

    async def _publish_put_back(self) -> None:
        """Publishes the end of static pods whose file was removed and is back unchanged: they start again.

        Follows: v1.36, kubelet/config/file_linux.go, produceWatchEvent; kubelet/pod_workers.go, restartRequested.
        """
        put_back, self._put_back = self._put_back, set()
        if put_back and self.source.is_static_pod_source:
            files = sorted(self._files.items())
            await self._publish(
                [
                    dataclasses.replace(file.content, pods=[]) if name in put_back else file.content
                    for name, file in files
                ]
            )

    async def _publish(self, contents: list[ManifestContent]) -> None:
        contents = [content for content in contents if content != _NO_CONTENT]
        if contents != self._published:
            self._published = contents
            await self.listener.set_pods(self.source, str(self.path), contents)

    def _wait_or_remove(self, name: str) -> float:
        """Removes a missing file after its grace period; until then, the time that is left."""
        file, now_s = self._files[name], time.monotonic()
        if file.missed_since_s is None:
            file.missed_since_s, file.was_removed = now_s, True
        left_s = file.missed_since_s + _REMOVAL_GRACE_S - now_s
        if left_s > 0:
            return left_s
        del self._files[name]
        return float("inf")

    async def _manifest_stamps(self) -> dict[str, FileStamp | None] | None:
        """The manifests by name, with None for links, which are followed later; None: the directory cannot be read."""
        try:
            stamps = await run_in_daemon_thread(partial(_listed, self.path), self.read_timeout_s)
        except FileNotFoundError:
            # As for the kubelet: no directory, no pods.
            self._warn_once(f"{self.path}: path does not exist, ignoring")
            return {}
        except TimeoutError:
            self._warn_once(f"{self.path}: cannot be listed within {self.read_timeout_s:g} s")
            return None
        except OSError as error:
            self._warn_once(f"{self.path}: {error.strerror}")
            return None
        self._reported_error = ""
        return stamps

    def _warn_once(self, error_text: str) -> None:
        if error_text != self._reported_error:
            self._reported_error = error_text
            self.listener.record_warning("ManifestsNotRead", error_text)

    async def _read_changed(
        self, stamps: Mapping[str, FileStamp | None], limit: int
    ) -> tuple[dict[str, "_ReadManifest | None"], bool]:
        """So many of the files that have changed, as they are now, and whether there are more.

        None for those that are gone, or no files.
        """
        results: dict[str, _ReadManifest | None] = {}
        waiting: list[tuple[str, FileStamp | None]] = []
        for name, stamp in stamps.items():
            file = self._files.get(name)
            if stamp is not None and file is not None and file.stamp == stamp and not file.is_fresh:
                continue
            known = None if file is None or file.is_fresh else file.stamp
            if name in self._late:
                results[name] = self._late.pop(name)
            elif name in self._unfinished:
                results[name] = _ReadManifest(_NO_STAMP, fault=self._unfinished[name])
            else:
                waiting.append((name, known))
        has_more, waiting = len(waiting) > limit, waiting[:limit]
        while waiting:
            if len(self._unfinished) >= _MAX_UNFINISHED:
                results |= {name: self._unread(name) for name, _ in waiting}
                break
            job = _ReadJob(self, waiting[:_FILES_A_THREAD])
            try:
                await run_in_daemon_thread(job.run, self.read_timeout_s)
            except TimeoutError:
                name = job.abandon()
                if name:
                    fault = (
                        f"{self._path_of(name)}: cannot be read to its end within {self.read_timeout_s:g} s"
                    )
                    self._unfinished[name] = fault
                    results[name] = _ReadManifest(_NO_STAMP, fault=fault)
            results |= job.results
            waiting = waiting[job.count :]
        return results, has_more

    def _unread(self, name: str) -> "_ReadManifest":
        others = len(self._unfinished)
        fault = f"{self._path_of(name)}: is not read before {counted(others, 'other file')} can be read to the end"
        return _ReadManifest(_NO_STAMP, fault=fault)

    def _path_of(self, name: str) -> Path:
        return self.path if self.path.name == name else self.path / name

    def _take_result(self, name: str, results: Mapping[str, "_ReadManifest | None"]) -> float:
        """Notes what was read of a file; the time until the next poll."""
        before = file = self._files.get(name)
        if name in results:
            result = results[name]
            if result is None:
                return self._wait_or_remove(name) if file is not None else float("inf")
            if file is None or file.is_fresh or result.stamp != file.stamp:
                file = self._with_result(name, result)
        assert file is not None
        file.missed_since_s = None
        if before is not None and before.was_removed:
            # A file that is still being written is judged once it is valid.
            file.was_removed = bool(file.fault)
            if not file.fault and file.content == before.content:
                self._put_back.add(name)
        next_poll_s = 2 * _STAMP_RESOLUTION_S if file.is_fresh else float("inf")
        return (
            min(next_poll_s, self._report_fault(file)) if file.fault and not file.is_reported else next_poll_s
        )

    def read(self, name: str, known: FileStamp | None) -> "_ReadManifest | None":
        """A manifest, unless its stamp is the known one; None: it is gone, or no file. Blocks."""
        path, stamp = self._path_of(name), _NO_STAMP
        source = ManifestSource(str(path), _MANIFEST_ORIGINS[self.source], self.listener.node_name)
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                return None
            stamp = FileStamp.of(status)
            if stamp == known:
                return _ReadManifest(stamp)
            stamp, content = read_stamped_file(path, MAX_MANIFEST_BYTES)
            if not content.strip():
                return _ReadManifest(stamp, fault=f"{path}: the file is empty")
            return _ReadManifest(stamp, read_manifest(content, source))
        except (FileNotFoundError, FileRefusedError):
            return None
        except OSError as error:
            return _ReadManifest(stamp, fault=f"{path}: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - a file must not keep the others from being read
            return _ReadManifest(stamp, fault=fault_text(error, path))

    def finish_late(self, name: str, result: "_ReadManifest | None") -> None:
        """Notes the result of a file whose time was over."""
        self._late[name] = result
        self._unfinished.pop(name, None)

    def _with_result(self, name: str, result: "_ReadManifest") -> _ManifestFile:
        """Notes a file that was read; the previous content of an invalid one stays in use."""
        before = self._files.get(name)
        if result.fault:
            is_reported = before is not None and before.fault == result.fault and before.is_reported
            content = before.content if before is not None else ManifestContent()
            self._files[name] = file = _ManifestFile(result.stamp, content, result.fault, is_reported)
            return file
        for obj in (
            result.content.ignored_objects if before is None or before.content != result.content else ()
        ):
            self.listener.record_warning(
                "ManifestPassedOver",
                f"{self.path / name}: {obj} is ignored: not a Pod, ConfigMap, Secret or RuntimeClass",
            )
        self._files[name] = file = _ManifestFile(result.stamp, result.content)
        return file

    def _report_fault(self, file: _ManifestFile) -> float:
        """Reports the error of a file, unless the file may still be being written."""
        age_s = (time.time_ns() - file.stamp.changed_ns) / 10**9
        if 0 <= age_s < _WRITE_GRACE_S:
            return _WRITE_GRACE_S - age_s + 0.01
        file.is_reported = True
        # An event and a log line are single lines.
        self.listener.record_warning("ManifestNotTaken", file.fault.replace("\n", "; "))
        return float("inf")


class _ReadJob:
    """Reads some files in a thread; if one takes too long, the job is abandoned there and ends after it."""

    def __init__(self, directory: ManifestDirectory, files: Sequence[tuple[str, FileStamp | None]]) -> None:
        self._directory, self._files = directory, files
        self._lock, self._is_abandoned = threading.Lock(), False
        self.results: dict[str, _ReadManifest | None] = {}
        self.count = 0
        """Number of files that were read, or begun by an abandoned job."""

    def run(self) -> None:
        """Reads the files. Blocks."""
        for name, known in self._files:
            result = self._directory.read(name, known)
            with self._lock:
                if self._is_abandoned:
                    self._directory.finish_late(name, result)
                    return
                self.results[name] = result
                self.count += 1

    def abandon(self) -> str:
        """Ends the job after the file that it is reading; the name of that file, empty if it has just read the last."""
        with self._lock:
            self._is_abandoned = True
            if self.count == len(self._files):
                return ""
            self.count += 1
            return self._files[self.count - 1][0]


class _ReadManifest(NamedTuple):
    """A manifest that was read, or why not."""

    stamp: FileStamp
    content: ManifestContent = _NO_CONTENT
    fault: str = ""


def _listed(path: Path) -> dict[str, FileStamp | None]:
    """The files in a directory, or the one file that the path names; None in place of a link's stamp.

    Errors: OSError.
    """
    if path.is_file():
        return {path.name: None}
    with os.scandir(path) as entries:
        return {
            entry.name: None if entry.is_symlink() else FileStamp.of(entry.stat(follow_symlinks=False))
            for entry in entries
            if _is_manifest(entry.name) and (entry.is_symlink() or entry.is_file(follow_symlinks=False))
        }


def _is_manifest(name: str) -> bool:
    return not name.startswith((".", "#")) and not name.endswith(_EDITOR_SUFFIXES)


def fault_text(error: Exception, source: object) -> str:
    """The faults of a manifest, or the error of reading it."""
    return str(error) if isinstance(error, InputError) else f"{source}: {error_text(error)}"


async def run_in_daemon_thread(operation: Callable[[], T], timeout_s: float) -> T:
    """The result of a function that may hang, as on a file system that does not answer.

    It runs in a thread of its own, which neither keeps others from running nor the process from ending.

    Errors: TimeoutError; the thread is then left alone. What the function raises.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_result(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] # without an error it is a result

    def run() -> None:
        result, error = None, None
        try:
            result = operation()
        except Exception as raised:  # noqa: BLE001 - raised again where the result is awaited
            error = raised
        # The loop may have been closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(set_result, result, error)

    threading.Thread(target=run, daemon=True).start()
    async with asyncio.timeout(timeout_s):
        return await future
