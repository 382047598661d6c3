"""Runs commands of nodewright as on Windows or macOS: `python tests/support/other_system.py win32|darwin COMMAND...`.

What Python has only on other systems is missing, and so are the files of Linux in /proc and /sys.
"""

# The standard library and click decide by them when they are imported, so they are imported first.
import asyncio
import contextlib
import errno
import http.client
import http.server
import io
import json
import multiprocessing.connection
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import urllib.request
import zipfile

import click.shell_completion
import uvicorn
import yaml

PRELOADED = (
    asyncio,
    click.shell_completion,
    http.client,
    http.server,
    multiprocessing.connection,
    selectors,
    subprocess,
    tempfile,
    urllib.request,
    uvicorn,
    yaml,
    zipfile,
)
OF_UNIX = {
    sys: ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty"),
    os: (
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fork", "geteuid", "getuid"),
        *("mkfifo", "openpty", "setsid", "statvfs", "uname", "waitid"),
    ),
    signal: ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"),
    socket: ("AF_UNIX",),
}  # fmt: skip
OF_LINUX = {
    os: (
        *("O_DIRECT", "O_PATH", "O_TMPFILE", "P_PIDFD", "eventfd", "fdatasync", "getxattr", "memfd_create", "pidfd_open"),
        *("posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "setns", "setxattr", "splice"),
        *("unshare", "copy_file_range"),
    ),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    socket: ("AF_NETLINK", "SO_PASSCRED", "SO_PEERCRED"),
}  # fmt: skip
MISSING = {"win32": (OF_UNIX, OF_LINUX), "darwin": (OF_LINUX,)}
FILES = ("/proc/", "/sys/", "/dev/kmsg", "/var/lib/kubelet/")


def hide(system: str) -> None:
    """Hides what the system does not have."""
    for missing in MISSING[system]:
        for module, names in missing.items():
            for name in names:
                if module is sys:
                    sys.modules[name] = None  # type: ignore[assignment] # importing it fails
                elif hasattr(module, name):
                    delattr(module, name)
    sys.addaudithook(_hide_files)
    sys.platform = system


def _hide_files(event: str, arguments: tuple[object, ...]) -> None:
    if event in {"open", "os.listdir", "os.scandir"} and str(arguments[0]).startswith(FILES):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])


def main(commands: list[str]) -> None:
    """Runs each command line, and prints its code and output as a line of JSON."""
    from nodewright.cli.app import run

    for command in commands:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = run(command.split())
            except Exception:  # noqa: BLE001 - the test shows it
                traceback.print_exc()
                code = -1
        print(json.dumps({"command": command, "code": code, "out": out.getvalue(), "err": err.getvalue()}))


if __name__ == "__main__":
    hide(sys.argv[1])
    main(sys.argv[2:])
