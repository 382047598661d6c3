"""What the runtime has on the disk: `UID/pod.json`, and `UID/NAME/ATTEMPT/` with what a container is and how it ended.

Whatever is cut off while it is written, or torn when the machine loses its power, is as if it were not there.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from nodewright.world.atomic import write_atomically
from nodewright.world.errors import WorldError

T = TypeVar("T")

_GONE = ".gone"
_LOCK = "lock"
_FLOCK = "hhqqi"
"""struct flock."""


class ContainerId(NamedTuple):
    """Which attempt at which container of which pod."""

    uid: str
    name: str
    attempt: int

    @classmethod
    def parse(cls, text: str) -> "ContainerId":
        """The id that reads so; names of containers have no underscores, and one without a name is nobody's."""
        uid, _, rest = text.rpartition("_")[0].rpartition("_")
        attempt = text.rpartition("_")[2]
        if not (uid and rest and attempt.isdecimal()):
            return cls(text, "", 0)
        return cls(uid, rest, int(attempt))

    def __str__(self) -> str:
        return f"{self.uid}_{self.name}_{self.attempt}"


class PodRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a sandbox."""

    namespace: str
    name: str
    attempt: int
    cgroup: str
    logs: str
    created_ns: int
    boot: str
    """In which life of the machine it was made."""
    is_ready: bool = True


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a container from when it is created on; all that its shim needs."""

    sandbox_id: str
    hash: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log: str
    cgroup: str
    oom_score_adj: int | None
    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None
    """None: those of the agent."""
    termination_log: str
    created_ns: int
    keeps: tuple[int, ...] | None = None
    """The capabilities that it may have; None: those of the agent."""
    gains_nothing: bool = False
    stop_signal: int = 0
    """What it is asked to end with; 0: SIGTERM."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """What the shim says when it starts the container's process."""

    pid: int = 0
    started_ns: int = 0
    notes: str = ""
    """What could not be done and does not matter enough to fail."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What the shim says at the end, or we where it cannot."""

    code: int
    finished_ns: int
    error: str = ""
    """Why it could not be run, or what became of its shim."""
    oom_killed: int = 0
    message: str = ""


class Records:
    """The directory of a runtime; one agent at a time has it.

    Errors: WorldError when another one does.
    """

    def __init__(self, directory: Path) -> None:
        self._at = directory
        with obeyed("make", directory):
            directory.mkdir(parents=True, exist_ok=True)
            # Others may pass through, so that containers of other users reach their own files.
            directory.chmod(0o711)
            self._lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise WorldError("use", str(directory), "another agent has it") from None
        shutil.rmtree(directory / _GONE, ignore_errors=True)

    def close(self) -> None:
        """Others may have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ------------------------------------------------------------ pods

    def uids(self) -> list[str]:
        """The pods that there are."""
        return sorted(place.parent.name for place in self._at.glob("*/pod.json"))

    def pod(self, uid: str) -> PodRecord | None:
        """What is kept of a pod."""
        return _read(self._pod_place(uid) / "pod.json", PodRecord)

    def keep_pod(self, uid: str, record: PodRecord) -> None:
        """Keep it."""
        place = self._pod_place(uid)
        with obeyed("make", place):
            place.mkdir(mode=0o711, exist_ok=True)
        _write(place / "pod.json", record)

    def drop_pod(self, uid: str) -> None:
        """Nothing is kept of it any more."""
        self._drop(self._pod_place(uid))

    def _pod_place(self, uid: str) -> Path:
        if not uid or "/" in uid or uid.startswith("."):
            raise WorldError("keep pod", uid, "a directory cannot have this name")
        return self._at / uid

    # ------------------------------------------------------------ containers

    def ids(self, uid: str) -> list[ContainerId]:
        """The containers of a pod, by name, the newest attempt first."""
        places = (place.parent for place in self._pod_place(uid).glob("*/*/created.json"))
        found = [ContainerId(uid, one.parent.name, int(one.name)) for one in places if one.name.isdecimal()]
        return sorted(found, key=lambda one: (one.name, -one.attempt))

    def place(self, id_: ContainerId) -> Path:
        """The directory of a container."""
        return self._pod_place(id_.uid) / id_.name / str(id_.attempt)

    def last_words(self, id_: ContainerId) -> Path:
        """Where a container may leave its last words, whoever it runs as."""
        return self.place(id_) / "termination-log"

    def container(self, id_: ContainerId) -> ContainerRecord | None:
        """What is kept of a container."""
        return _read(self.place(id_) / "created.json", ContainerRecord)

    def started(self, id_: ContainerId) -> Started | None:
        """What its shim said at the start; where that is torn, that it did start."""
        place = self.place(id_) / "started"
        return _read(place, Started) or (Started() if place.exists() else None)

    def ended(self, id_: ContainerId) -> Ended | None:
        """What its shim said at the end."""
        return _read(self.place(id_) / "exit.json", Ended)

    def keep_container(self, id_: ContainerId, record: ContainerRecord) -> None:
        """Keep it; from now on it is created."""
        place = self.place(id_)
        with obeyed("make", place):
            place.mkdir(mode=0o711, parents=True, exist_ok=True)
            self.last_words(id_).touch()
            self.last_words(id_).chmod(0o666)
        _write(place / "created.json", record)

    def end_container(self, id_: ContainerId, ended: Ended) -> bool:
        """Whether it will not start any more, or run on: how it ended is written down, unless a shim holds it.

        A disk that takes nothing does not matter.
        """
        with self.locked(id_) as is_ours:
            if is_ours and self.ended(id_) is None:
                with contextlib.suppress(WorldError):
                    _write(self.place(id_) / "exit.json", ended, synced=True)
            return is_ours

    def drop_container(self, id_: ContainerId) -> None:
        """Nothing is kept of it any more, but its log."""
        with self.locked(id_) as is_ours:
            if not is_ours:
                raise WorldError("remove container", str(id_), "it runs")
            self._drop(self.place(id_))

    def _drop(self, place: Path) -> None:
        """It goes at once: cut off half-way, nothing looks like a container that has not started yet."""
        gone = self._at / _GONE
        with obeyed("remove", place), contextlib.suppress(FileNotFoundError):
            gone.mkdir(mode=0o700, exist_ok=True)
            shutil.rmtree(place.rename(gone / str(time.monotonic_ns())))

    # ------------------------------------------------------------ shims

    def holder(self, id_: ContainerId) -> int:
        """The process that is the shim of a container: it holds the lock for as long as it lives; 0: nobody does."""
        try:
            descriptor = os.open(self.place(id_) / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        finally:
            os.close(descriptor)
        return pid if kind != fcntl.F_UNLCK else 0

    @contextlib.contextmanager
    def locked(self, id_: ContainerId) -> Iterator[bool]:
        """Whether no shim holds the container, and none can begin with it while we are here."""
        place = self.place(id_) / _LOCK
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            yield True
            return
        except OSError as error:
            raise WorldError("lock", str(place), error.strerror or str(error)) from None
        is_ours = True
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            is_ours = False
        try:
            yield is_ours
        finally:
            os.close(descriptor)

    def tell(self, id_: ContainerId, word: str) -> bool:
        """Whether the shim of a container was told so; False: it is gone."""
        place = self.place(id_) / "ctl"
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                return False
            raise WorldError("tell", str(place), error.strerror or str(error)) from None
        try:
            os.write(descriptor, f"{word}\n".encode())
        except BlockingIOError:
            # It has been told more than it listens to; once it does listen this word makes no difference.
            return True
        except BrokenPipeError:
            return False
        finally:
            os.close(descriptor)
        return True


@contextlib.contextmanager
def obeyed(operation: str, place: Path) -> Iterator[None]:
    """Errors of the system become those of the port."""
    try:
        yield
    except OSError as error:
        raise WorldError(operation, str(place), error.strerror or str(error)) from None


def _read(place: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(place.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        # Written without being synced, it can be empty after a loss of power; then nothing of it runs either.
        return None
    except OSError as error:
        raise WorldError("read", str(place), error.strerror or str(error)) from None


def _write(place: Path, document: msgspec.Struct, *, synced: bool = False) -> None:
    write_atomically(place, msgspec.json.encode(document), synced=synced)
