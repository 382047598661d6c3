"""Where pods come from: directories that are watched and URLs that are asked again and again."""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from nodewright.agent.shelf import Shelf
from nodewright.agent.values import PodsWanted, Seen, Source, Tell
from nodewright.core.arrival import with_runtime
from nodewright.core.requests import with_defaults
from nodewright.model.objects import Pod
from nodewright.world.errors import InputError
from nodewright.world.http_get import HTTPFailure, Request, http_get
from nodewright.world.pod_files import MAX_BYTES, FromFile, ManifestPlace, Origin, read_manifest
from nodewright.world.watching import DirectoryWatch

_ORIGINS = {
    Source.FILE: Origin.FILE,
    Source.HTTP: Origin.HTTP,
    Source.WORKLOAD: Origin.API,
    Source.API: Origin.API,
}
_UNFINISHED_S = 1.0
"""For so long a manifest that makes no sense may be one that is just being written."""
_MISSED_S = 0.25
"""Editors take a file away before they put the new one in its place: for so long it is still there."""
_FRESH_S = 0.02
"""What was changed so shortly ago may have been changed again under the same time."""
_HTTP_TIMEOUT_S = 10.0
_EDITORS = ("~", ".swp", ".swo", ".swx", ".tmp", ".part")


@dataclass(frozen=True, slots=True)
class Listener:
    """Who gets to know what sources have."""

    node_name: str
    see: Callable[[Seen], None]
    tell: Callable[[Tell], None]
    shelf: Shelf

    def warn(self, reason: str, message: str) -> None:
        """Something that people have to know of."""
        self.tell(Tell(uid="", is_warning=True, reason=reason, message=message))

    def take(self, source: Source, place: str, found: list[FromFile]) -> tuple[Pod, ...]:
        """All that a source has now."""
        by_name: dict[str, Pod] = {}
        self.shelf.put_runtimes(source, place, [each for one in found for each in one.runtimes])
        runtimes = tuple(self.shelf.runtimes().values())
        for one in found:
            for written in one.pods:
                pod = with_defaults(replace(written, spec=with_runtime(written.spec, runtimes)[0]))
                if pod.full_name in by_name:
                    self.warn(
                        "ManifestRepeated",
                        f"{place}: {pod.full_name} is there more than once; the last counts",
                    )
                by_name[pod.full_name] = pod
        by_uid: dict[str, Pod] = {}
        for pod in by_name.values():
            if pod.uid in by_uid:
                first = by_uid[pod.uid].full_name
                self.warn(
                    "ManifestRepeated",
                    f"{place}: {pod.full_name} has the uid of {first} ({pod.uid}); the last counts",
                )
            by_uid[pod.uid] = pod
        maps = [each for one in found for each in one.config_maps]
        self.shelf.put(source, place, maps, [each for one in found for each in one.secrets])
        pods = tuple(by_uid.values())
        self.see(PodsWanted(source, pods))
        return pods


# ---------------------------------------------------------------- directories


async def watch_directory(
    directory: Path, source: Source, listener: Listener, period_s: float = 20.0
) -> None:
    """Tell of the pods in a directory, or in one file, at once and whenever they change, until cancelled.

    Units:   period_s, after which it is looked at whether or not a change was seen.
    Follows: v1.36, pkg/kubelet/config/file.go and file_linux.go.
    Departs: a manifest that cannot be taken leaves the pods that it had; files that editors keep beside others
        (`web.yaml~`, `#web.yaml#`, `*.swp`, `*.tmp`) are no manifests.
    """
    watch = DirectoryWatch(directory)
    manifests = Manifests(directory, source, listener)
    try:
        while True:
            again_s = manifests.look(watch.being_written)
            await watch.wait(min(period_s, again_s))
    finally:
        watch.close()


class _Stamp(NamedTuple):
    inode: int
    size: int
    changed_ns: int


@dataclass(slots=True)
class _Known:
    """A file as it was read last."""

    stamp: _Stamp
    found: FromFile
    fault: str = ""
    is_told: bool = False
    read_at_ns: int = field(default_factory=time.time_ns, compare=False)
    missed_since_s: float | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it may have changed since without another stamp."""
        return self.read_at_ns - self.stamp.changed_ns < _FRESH_S * 10**9


@dataclass(slots=True)
class Manifests:
    """The files of a directory, each read when it changed."""

    path: Path
    source: Source
    listener: Listener
    _files: dict[str, _Known] = field(default_factory=dict)
    _had: list[FromFile] | None = None
    _trouble: str = ""

    def look(self, being_written: set[str] | frozenset[str] = frozenset()) -> float:
        """Look at the files and tell of pods if there are others than before.

        Units: seconds; when to look again at the latest.
        """
        again_s = float("inf")
        there = self._there()
        if there is None:
            return again_s
        for name in [one for one in self._files if one not in there]:
            again_s = min(again_s, self._missed(name))
        for name in there:
            if name not in being_written:
                again_s = min(again_s, self._read(name))
        found = [one.found for _, one in sorted(self._files.items()) if one.found != FromFile()]
        if found != self._had:
            self._had = found
            self.listener.take(self.source, str(self.path), found)
        return again_s

    def _missed(self, name: str) -> float:
        """A file is not there: it has gone if it does not come back at once."""
        known, now_s = self._files[name], time.monotonic()
        if known.missed_since_s is None:
            known.missed_since_s = now_s
        left_s = known.missed_since_s + _MISSED_S - now_s
        if left_s > 0:
            return left_s
        del self._files[name]
        return float("inf")

    def _there(self) -> list[str] | None:
        """The names of the manifests; None: it cannot be said."""
        try:
            names = (
                [self.path.name] if self.path.is_file() else sorted(one.name for one in self.path.iterdir())
            )
        except FileNotFoundError:
            # As with the kubelet: no directory, no pods.
            self._say(f"{self.path}: path does not exist, ignoring")
            return []
        except OSError as error:
            self._say(f"{self.path}: {error.strerror}")
            return None
        self._trouble = ""
        return [name for name in names if _is_manifest(name)]

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self.listener.warn("ManifestsNotRead", trouble)

    def _read(self, name: str) -> float:
        """Read a file if it is another one than last time; when to look at it again."""
        path = self.path if self.path.name == name and self.path.is_file() else self.path / name
        known = self._files.get(name)
        try:
            stamp = _stamp(path)
            if stamp is None:
                return self._missed(name) if known is not None else float("inf")
            if known is None or known.stamp != stamp or known.is_fresh:
                known = self._taken(name, path, stamp)
        except OSError as error:
            known = self._failed(name, stamp=_Stamp(0, 0, 0), fault=f"{path}: {error.strerror}")
        again_s = 2 * _FRESH_S if known.is_fresh else float("inf")
        return min(again_s, self._told(known)) if known.fault and not known.is_told else again_s

    def _taken(self, name: str, path: Path, stamp: _Stamp) -> _Known:
        if stamp.size > MAX_BYTES:
            return self._failed(name, stamp, f"{path}: {stamp.size} bytes, at most {MAX_BYTES}")
        content = path.read_bytes()
        try:
            found = read_manifest(content, self._place(path))
        except InputError as error:
            return self._failed(name, stamp, str(error))
        if not content.strip():
            return self._failed(name, stamp, f"{path}: there is nothing in it")
        before = self._files.get(name)
        for one in found.passed_over if before is None or before.found != found else ():
            self.listener.warn(
                "ManifestPassedOver", f"{path}: {one} is no Pod, ConfigMap, Secret or RuntimeClass"
            )
        self._files[name] = known = _Known(stamp, found)
        return known

    def _failed(self, name: str, stamp: _Stamp, fault: str) -> _Known:
        """A file that cannot be taken: what it gave before still holds."""
        before = self._files.get(name)
        is_told = before is not None and before.fault == fault and before.is_told
        found = before.found if before is not None else FromFile()
        self._files[name] = known = _Known(stamp, found, fault, is_told)
        return known

    def _told(self, known: _Known) -> float:
        """Tell what is wrong with a file, unless it is so new that it may still be written."""
        age_s = (time.time_ns() - known.stamp.changed_ns) / 10**9
        if 0 <= age_s < _UNFINISHED_S:
            return _UNFINISHED_S - age_s + 0.01
        known.is_told = True
        # Events and lines of logs are of one line each.
        self.listener.warn("ManifestNotTaken", known.fault.replace("\n", "; "))
        return float("inf")

    def _place(self, path: Path) -> ManifestPlace:
        return ManifestPlace(str(path), _ORIGINS[self.source], self.listener.node_name)


def _is_manifest(name: str) -> bool:
    return not name.startswith((".", "#")) and not name.endswith(_EDITORS)


def _stamp(path: Path) -> _Stamp | None:
    """What tells a file from another one of its name; None: it is none, or has gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return _Stamp(status.st_ino, status.st_size, status.st_mtime_ns) if path.is_file() else None


# ---------------------------------------------------------------- URLs


async def watch_url(url: str, headers: Mapping[str, str], listener: Listener, period_s: float = 20.0) -> None:
    """Tell of the pods that a URL has, at once and after each change, until cancelled.

    Units:   period_s between questions.
    Follows: v1.36, pkg/kubelet/config/http.go.
    """
    answers = Answers(url, headers, listener)
    while True:
        await answers.ask()
        await asyncio.sleep(period_s)


@dataclass(slots=True)
class Answers:
    """What a URL answered last."""

    url: str
    headers: Mapping[str, str]
    listener: Listener
    _content: bytes | None = None
    _fault: str = ""

    async def ask(self) -> None:
        """Ask once; tell of other pods than before, and of what is wrong, once."""
        fault = await self._asked()
        if fault and fault != self._fault:
            self.listener.warn("ManifestsNotRead", fault.replace("\n", "; "))
        elif self._fault and not fault:
            self.listener.tell(
                Tell(uid="", is_warning=False, reason="ManifestsRead", message=f"{self.url}: read again")
            )
        self._fault = fault

    async def _asked(self) -> str:
        """Ask; what is wrong with the answer."""
        request = _request(self.url, self.headers)
        if request is None:
            return f"{self.url}: a URL begins with http:// or https:// and names a host"
        found = await http_get(request, _HTTP_TIMEOUT_S, MAX_BYTES, ssl.create_default_context())
        if isinstance(found, HTTPFailure):
            return found.text(request)
        if found.status != HTTPStatus.OK:
            return f"{self.url}: {found.status} {_phrase(found.status)}".rstrip()
        if not found.body:
            self._content = None
            self.listener.take(Source.HTTP, self.url, [])
            return f"zero-length data received from {self.url}"
        if found.body == self._content:
            return self._fault
        self._content = found.body
        try:
            place = ManifestPlace(self.url, Origin.HTTP, self.listener.node_name)
            taken = read_manifest(found.body, place)
        except InputError as error:
            return str(error)
        self.listener.take(Source.HTTP, self.url, [taken])
        return ""


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else ""


def _request(url: str, headers: Mapping[str, str]) -> Request | None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Request(parts.scheme, parts.hostname, port, path, tuple(headers.items()))
