"""Ends all processes of a cgroup, those too that are forked meanwhile. For the shim as well: the standard library only."""

# The public module would import enum, which is larger than all of the shim.
import os
import time
from _signal import pidfd_send_signal  # type: ignore[import-not-found] # the types know its public name only
from collections.abc import Iterable, Iterator

_FREEZE_LIMIT_S = 0.1
_AT_ONCE = 256
_SIGKILL = 9


def kill_all(directories: Iterable[str], limit_s: float) -> int:
    """How many processes are left of a group, given by its directory in each hierarchy, and of those below it.

    Units: seconds.
    """
    places = tuple(directories)
    deadline, pause = time.monotonic() + limit_s, 0.001
    while pids := members(places):
        # In version 2 there is one directory; version 1 cannot do it in any.
        if not any(_killed_at_once(place) for place in places):
            _killed_in_ice(places)
        if time.monotonic() > deadline:
            return len(pids)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    return 0


def members(directories: Iterable[str]) -> set[int]:
    """The processes of a group and of those below it."""
    found: set[int] = set()
    for directory in directories:
        for place in _with_all_below(directory):
            found.update(int(word) for word in _text(f"{place}/cgroup.procs").split())
    return found


def _killed_at_once(directory: str) -> bool:
    """Whether the kernel killed all of them in one stroke (version 2, Linux 5.14)."""
    return _written(f"{directory}/cgroup.kill", "1")


def _killed_in_ice(directories: tuple[str, ...]) -> None:
    """Nobody forks or ends while frozen, so that none is missed, and no number is another's by now."""
    for place in directories:
        _written(f"{place}/freezer.state", "FROZEN")
        _written(f"{place}/cgroup.freeze", "1")
    try:
        deadline = time.monotonic() + _FREEZE_LIMIT_S
        while any(_is_freezing(place) for place in directories) and time.monotonic() < deadline:
            time.sleep(0.001)
        pids = sorted(members(directories))
        for first in range(0, len(pids), _AT_ONCE):
            _kill(pids[first : first + _AT_ONCE], directories)
    finally:
        for place in directories:
            _written(f"{place}/freezer.state", "THAWED")
            _written(f"{place}/cgroup.freeze", "0")


def _is_freezing(directory: str) -> bool:
    state = _text(f"{directory}/freezer.state").strip()
    return state == "FREEZING" or "frozen 0" in _text(f"{directory}/cgroup.events")


def _kill(pids: list[int], directories: tuple[str, ...]) -> None:
    """SIGKILL for those who are still in the group once we hold them: before that a number may be another's."""
    held = [(pid, descriptor) for pid in pids if (descriptor := _held(pid)) is not None]
    try:
        still = members(directories)
        for pid, descriptor in held:
            if pid in still:
                _signal(descriptor)
    finally:
        for _, descriptor in held:
            os.close(descriptor)


def _held(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _signal(descriptor: int) -> None:
    try:
        pidfd_send_signal(descriptor, _SIGKILL)
    except ProcessLookupError:
        return


def _with_all_below(directory: str) -> Iterator[str]:
    yield directory
    try:
        with os.scandir(directory) as entries:
            below = [each.path for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for each in below:
        yield from _with_all_below(each)


def _text(place: str) -> str:
    try:
        with open(place, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _written(place: str, text: str) -> bool:
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
