"""The agent as a process: its notifications to systemd, the files that it may have open, and what it frees for others."""

import contextlib
import ctypes
import errno
import os
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from nodewright.agent.host.host_errors import host_errors
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.commands import CommandLimits, run_command
from nodewright.model.errors import HostError

_SYSTEMD_DIRECTORY = Path("/run/systemd/system")
_SYSTEMCTL_TIMEOUT_S = 5.0


def notify(state: str) -> bool:
    """Sends a notification such as `READY=1` to systemd; False if systemd expects none."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify_socket:
        notify_socket.sendto(state.encode(), address)
        return True
    return False


async def notify_watchdog(clock: Clock) -> None:
    """Notifies systemd's watchdog periodically, if it is enabled (`WatchdogSec=`), until cancelled.

    An agent that hangs in an operation sends no notifications, so that systemd restarts it.
    """
    period_s = _watchdog_period_s()
    while period_s is not None:
        notify("WATCHDOG=1")
        await clock.sleep(period_s)


def _watchdog_period_s() -> float | None:
    """Half of systemd's watchdog timeout, as sd_watchdog_enabled(3) recommends; None if it is not enabled."""
    limit_us, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not limit_us.isdecimal() or int(limit_us) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(limit_us) / 2_000_000


def is_shutting_down() -> bool:
    """Whether systemd reports that the machine is shutting down; False without systemd."""
    if not _SYSTEMD_DIRECTORY.is_dir():
        return False
    try:
        command, place = ("systemctl", "is-system-running"), ("ask", "systemd")
        result = run_command(command, CommandLimits(_SYSTEMCTL_TIMEOUT_S), place)
    except (OSError, HostError):
        return False
    return result.output.strip() == b"stopping"


# ---------------------------------------------------------------- open files


RESERVED_DESCRIPTORS = 24
"""For the agent's own files, sockets and pipes, besides those that are open while nothing happens."""
_DESCRIPTORS_OF_START = 8
_MAX_LIMIT = 1 << 20


@cache
def initial_limit() -> tuple[int, int]:
    """The soft and hard limit of open files that the process was started with."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files as far as the hard limit permits; the limit then."""
    soft, hard = initial_limit()
    target = _MAX_LIMIT if hard == resource.RLIM_INFINITY else min(hard, _MAX_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def restore_initial_limit(pid: int) -> None:
    """Gives a child process the limit that the agent was started with: programs may count on a low one."""
    if resource.getrlimit(resource.RLIMIT_NOFILE) != initial_limit():
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, initial_limit())


class DescriptorBudget:
    """What containers may use of the files that the agent can open, those that start at the same time included."""

    def __init__(self) -> None:
        self._starting = 0

    def require(self, operation: str, place: str) -> None:
        """Checks that another container leaves the agent enough files to open.

        Errors: HostError, with the remedy.
        """
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY:
            return
        with host_errors(operation, place):
            used = sum(1 for _ in Path("/proc/self/fd").iterdir())
        if used + RESERVED_DESCRIPTORS + (self._starting + 1) * _DESCRIPTORS_OF_START > limit:
            raise HostError(
                operation,
                place,
                f"the agent has {used} of at most {limit} files open: the container waits until others have "
                "started or ended; raise the limit (ulimit -n, LimitNOFILE=) and restart the agent",
            )

    @contextlib.contextmanager
    def start(self, operation: str, place: str) -> Iterator[None]:
        """Counts what the start of a container needs until it is over; errors as of `require`."""
        self.require(operation, place)
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1


CONTAINER_BUDGET = DescriptorBudget()
"""One for the process, as is the limit."""


_SYS_PROCESS_MRELEASE = 448
"""The same number on every architecture."""


def release_memory(pids: Iterable[int], is_over: Callable[[], bool]) -> None:
    """Frees the memory of processes as soon as they are being killed, on CPU time of this one, until it is over.

    A process frees its memory itself when it ends. A BestEffort process beside busy ones gets CPU time for that late.

    Follows: Linux 5.15, mm/oom_kill.c, process_mrelease; an older kernel refuses it.
    """
    pidfds = set[int]()
    for pid in pids:
        with contextlib.suppress(OSError):
            pidfds.add(os.pidfd_open(pid))
    waiting = set(pidfds)
    try:
        while waiting and not is_over():
            # An error is expected while a process is not being killed, and once it has no memory any more.
            waiting -= {
                pidfd
                for pidfd in waiting
                if _LIBC.syscall(_SYS_PROCESS_MRELEASE, pidfd, 0) == 0 or ctypes.get_errno() in _NOT_NEEDED
            }
            time.sleep(_RELEASE_PERIOD_S)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


_RELEASE_PERIOD_S = 0.001
_NOT_NEEDED = (errno.ESRCH, errno.ENOSYS)
_LIBC = ctypes.CDLL(None, use_errno=True)
