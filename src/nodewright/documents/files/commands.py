"""Runs commands of others: with a deadline for all their processes, and with bounded output."""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from nodewright.model.errors import HostError

_READ_BYTES = 64 << 10
_POLL_S = 0.2


class CommandLimits(NamedTuple):
    """What a command may take."""

    timeout_s: float
    max_bytes: int = 1 << 20
    """Of its output, and of its errors."""
    is_interactive: bool = False
    """It may ask at the terminal: it stays in our process group, and has no deadline while its first process runs."""


class CommandResult(NamedTuple):
    """What a command that has ended printed."""

    exit_code: int
    output: bytes
    errors: bytes


def run_command(
    command: Sequence[str],
    limits: CommandLimits,
    place: tuple[str, str],
    *,
    environment: Mapping[str, str] | None = None,
    shows_errors: bool = False,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> CommandResult:
    """Runs a command without a shell until all that hold its output have ended.

    ``place`` is that of the error: the operation and its object. ``shows_errors``: its stderr is ours.

    Errors: OSError, ValueError if it cannot be started; HostError at a limit, when its whole process group is killed.
    """
    process = subprocess.Popen(  # noqa: S603 - a tool of the user, without a shell
        command,
        stdin=None if limits.is_interactive else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if shows_errors else subprocess.PIPE,
        env=environment,
        process_group=None if limits.is_interactive else 0,
    )
    has_ended = False
    try:
        output, errors = _outputs(process, limits, is_cancelled)
        has_ended = True
    except _LimitError as error:
        raise HostError(*place, str(error)) from None
    finally:
        if not has_ended:
            _kill(process, is_group=not limits.is_interactive)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return CommandResult(process.returncode, output, errors)


async def run_command_beside(
    command: Sequence[str],
    limits: CommandLimits,
    place: tuple[str, str],
    *,
    environment: Mapping[str, str] | None = None,
    shows_errors: bool = False,
) -> CommandResult:
    """As `run_command`, beside the event loop; a call that is cancelled ends the command."""
    import asyncio  # noqa: PLC0415 - start-up time

    cancelled = threading.Event()
    try:
        return await asyncio.to_thread(
            run_command,
            command,
            limits,
            place,
            environment=environment,
            shows_errors=shows_errors,
            is_cancelled=cancelled.is_set,
        )
    finally:
        cancelled.set()


class _LimitError(Exception):
    """A command has reached a limit."""


def _kill(process: "subprocess.Popen[bytes]", *, is_group: bool) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if is_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _outputs(
    process: "subprocess.Popen[bytes]", limits: CommandLimits, is_cancelled: Callable[[], bool]
) -> tuple[bytes, bytes]:
    """What the command prints until it has ended.

    Errors: _LimitError.
    """
    received: dict[int, bytearray] = {}
    end_s = None if limits.is_interactive else time.monotonic() + limits.timeout_s
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                received[pipe.fileno()] = bytearray()
                selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() or process.poll() is None:
            if end_s is None and process.poll() is not None:
                end_s = time.monotonic() + limits.timeout_s  # Its children may still hold the output.
            if is_cancelled():
                raise _LimitError("cancelled")
            if end_s is not None and time.monotonic() > end_s:
                raise _LimitError(f"no answer within {limits.timeout_s:g} s")
            if not selector.get_map():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                continue
            for key, _ in selector.select(_POLL_S):
                content = os.read(key.fd, _READ_BYTES)
                if not content:
                    selector.unregister(key.fileobj)
                received[key.fd] += content
                if len(received[key.fd]) > limits.max_bytes:
                    raise _LimitError(f"it prints more than {limits.max_bytes} bytes, which is the limit")
    output, *errors = map(bytes, received.values())
    return output, b"".join(errors)
