"""Kills all processes of a cgroup, including those forked meanwhile. The shim uses it, too: standard library only."""

# The public module imports enum, which is larger than the whole shim.
import os
import time
from _signal import pidfd_send_signal  # type: ignore[import-not-found] # the types know its public name only
from collections.abc import Iterable, Iterator

_FREEZE_LIMIT_S = 0.1
_BATCH_SIZE = 256
_SIGKILL = 9
_READ_BYTES = 1 << 16


def kill_all(directories: Iterable[str], limit_s: float) -> int:
    """Kills a cgroup, given by its directory in each hierarchy, and its descendants; the number of processes left.

    Units: seconds.
    """
    paths = tuple(directories)
    deadline, pause = time.monotonic() + limit_s, 0.001
    while pids := cgroup_pids(paths):
        # Only version 2, which has one directory, has cgroup.kill.
        if not any(_kill_by_cgroup_file(directory) for directory in paths):
            _kill_frozen(paths)
        if time.monotonic() > deadline:
            return len(pids)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    return 0


def cgroup_pids(directories: Iterable[str]) -> set[int]:
    """The processes of a cgroup and its descendants."""
    return set[int]().union(*pids_by_group(directories))


def pids_by_group(directories: Iterable[str]) -> Iterator[set[int]]:
    """The processes of each directory of a cgroup and its descendants that has some, read one after the other."""
    for directory in directories:
        for group in _with_descendants(directory):
            pids = {int(word) for word in _text(f"{group}/cgroup.procs").split()}
            if pids:
                yield pids


def _kill_by_cgroup_file(directory: str) -> bool:
    """Kills all processes by `cgroup.kill` (version 2, Linux 5.14); whether the kernel supports it."""
    return _write(f"{directory}/cgroup.kill", "1")


def _kill_frozen(directories: tuple[str, ...]) -> None:
    """Kills while the cgroup is frozen: processes cannot fork or exit, so none is missed and no pid is reused."""
    for directory in directories:
        _write(f"{directory}/freezer.state", "FROZEN")
        _write(f"{directory}/cgroup.freeze", "1")
    try:
        deadline = time.monotonic() + _FREEZE_LIMIT_S
        while any(_is_freezing(directory) for directory in directories) and time.monotonic() < deadline:
            time.sleep(0.001)
        pids = sorted(cgroup_pids(directories))
        for first in range(0, len(pids), _BATCH_SIZE):
            _kill(pids[first : first + _BATCH_SIZE], directories)
    finally:
        thaw_all(directories)


def thaw_all(directories: Iterable[str]) -> None:
    """Thaws a cgroup and its descendants, which stay frozen where a process was killed before it thawed them itself."""
    for group in (group for directory in directories for group in _with_descendants(directory)):
        _write(f"{group}/freezer.state", "THAWED")
        _write(f"{group}/cgroup.freeze", "0")


def _is_freezing(directory: str) -> bool:
    state = _text(f"{directory}/freezer.state").strip()
    return state == "FREEZING" or "frozen 0" in _text(f"{directory}/cgroup.events")


def _kill(pids: list[int], directories: tuple[str, ...]) -> None:
    """Sends SIGKILL to the processes that are still in the cgroup after their pidfd is open: no pid is reused then."""
    pidfds = [(pid, pidfd) for pid in pids if (pidfd := _open_pidfd(pid)) is not None]
    try:
        remaining = cgroup_pids(directories)
        for pid, pidfd in pidfds:
            if pid in remaining:
                _signal(pidfd)
    finally:
        for _, pidfd in pidfds:
            os.close(pidfd)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _signal(pidfd: int) -> None:
    try:
        pidfd_send_signal(pidfd, _SIGKILL)
    except ProcessLookupError:
        return


def _with_descendants(directory: str) -> Iterator[str]:
    yield directory
    try:
        with os.scandir(directory) as entries:
            children = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for child in children:
        yield from _with_descendants(child)


def file_text(path: str) -> str | None:
    """The text of a file of the kernel; None: it cannot be read. Half the system calls of a file object."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    parts = []
    try:
        while part := os.read(descriptor, _READ_BYTES):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("ascii", "replace")


def _text(path: str) -> str:
    return file_text(path) or ""


def _write(path: str, text: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
