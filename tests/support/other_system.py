"""Runs commands of nodewright as on a system without Unix: `python tests/support/other_system.py COMMAND...`.

The modules, functions and constants that Python has only on Unix are missing, as on Windows.
"""

# The standard library and click decide by them when they are imported, so they are imported first.
import asyncio
import contextlib
import http.client
import http.server
import io
import json
import multiprocessing.connection
import os
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
MODULES = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty")
OF_OS = (
    "O_CLOEXEC",
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "chown",
    "fchmod",
    "fork",
    "geteuid",
    "getuid",
    "mkfifo",
    "sched_getaffinity",
    "statvfs",
    "uname",
)
SIGNALS = ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "pidfd_send_signal")


def hide() -> None:
    """Hides what only Unix has."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment] # importing it fails
    for module, names in ((os, OF_OS), (signal, SIGNALS), (socket, ("AF_UNIX",))):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "win32"


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
    hide()
    main(sys.argv[1:])
