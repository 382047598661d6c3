"""Child processes of the agent, and watched processes: by pidfd, so that a reused pid is never confused."""

import asyncio
import contextlib
import marshal
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nodewright.agent.host import process_kill
from nodewright.agent.host.agent_process import CONTAINER_BUDGET, restore_initial_limit
from nodewright.agent.host.ports import ExecResult
from nodewright.agent.runtimes.processes import shim

OUTPUT_LIMIT_BYTES = 64 * 1024
"""How much of a command's output is kept."""

_MODULE_DIRECTORIES = ":".join(
    str(Path(path).parent) for path in (shim.__file__, process_kill.__file__) if path
)
_BOOTSTRAP = "import sys; sys.path.extend(sys.argv[1].split(':')); import shim; "
_CHUNK_BYTES, _PIPE_CHUNKS = 65536, 16


async def start_shim(spec: Mapping[str, Any], directory: Path) -> str:
    """Starts a shim; its answer when the command runs, or could not.

    Errors: OSError; HostError where too few descriptors are left.
    """
    with CONTAINER_BUDGET.start("start shim in", str(directory)):
        return await _start_shim(spec, directory)


async def _start_shim(spec: Mapping[str, Any], directory: Path) -> str:
    read_end, write_end = os.pipe()
    try:
        ReapedChild(_spawn(spec, ["shim.main(sys.argv[2])", str(directory)], (write_end, write_end)))
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb")
    )
    try:
        lines = (await reader.read()).decode(errors="replace").splitlines()
    finally:
        transport.close()
    return lines[-1] if lines else ""


async def execute(spec: Mapping[str, Any], timeout_s: float) -> ExecResult:
    """Runs a command in a container's cgroups; the result. Its background processes go on.

    Errors: OSError; TimeoutError: the command is killed, and its children should be.
    """
    out, err = _Output(), _Output()
    try:
        pid = _spawn(spec, ["shim.execute()"], (out.write_end, err.write_end))
        child = ReapedChild(pid)
        try:
            async with asyncio.timeout(timeout_s):
                code = await asyncio.shield(child.code)
        finally:
            child.kill()
        return ExecResult(code if code >= 0 else 128 - code, out.text(), err.text())
    finally:
        out.close()
        err.close()


def start_command(spec: Mapping[str, Any], stream_fds: tuple[int, int, int]) -> "ReapedChild":
    """Starts a command in a container's cgroups with these standard streams.

    Errors: OSError.
    """
    stdin_fd, *output_fds = stream_fds
    pid = _spawn({**spec, "has_stdin": True}, ["shim.execute()"], (output_fds[0], output_fds[1]), stdin_fd)
    return ReapedChild(pid)


def _spawn(
    spec: Mapping[str, Any], arguments: list[str], output_fds: tuple[int, int], stdin_fd: int | None = None
) -> int:
    """Starts an interpreter with the shim's module and the spec as standard input; its pid.

    ``stdin_fd`` is the command's own standard input, which the shim puts in the place of the spec.
    """
    spec_fd = os.memfd_create("spec")
    try:
        os.write(spec_fd, marshal.dumps(dict(spec)))
        os.lseek(spec_fd, 0, os.SEEK_SET)
        statement, *args = arguments
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _BOOTSTRAP + statement, _MODULE_DIRECTORIES, *args],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, spec_fd, 0),
                (os.POSIX_SPAWN_DUP2, output_fds[0], 1),
                (os.POSIX_SPAWN_DUP2, output_fds[1], 2),
                *([] if stdin_fd is None else [(os.POSIX_SPAWN_DUP2, stdin_fd, shim.STDIN_FD)]),
            ],
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP),
        )
        # The interpreter has only begun to start: the command is executed with this limit.
        restore_initial_limit(pid)
        return pid
    finally:
        os.close(spec_fd)


class _Output:
    """A command's output, up to a limit; reading it blocks neither the command nor the agent."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._content = bytearray()
        asyncio.get_running_loop().add_reader(self._read_end, self._read)

    def text(self) -> bytes:
        """The output so far."""
        # A background process may write for ever: only a full pipe is read.
        for _ in range(_PIPE_CHUNKS):
            if not self._read():
                break
        return bytes(self._content)

    def close(self) -> None:
        """Stops reading."""
        asyncio.get_running_loop().remove_reader(self._read_end)
        os.close(self._read_end)
        os.close(self.write_end)

    def _read(self) -> bool:
        """Reads a chunk; whether there was one."""
        try:
            chunk = os.read(self._read_end, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._content += chunk[: OUTPUT_LIMIT_BYTES - len(self._content)]
        return bool(chunk)


class ReapedChild:
    """A child process that is always reaped; ``code`` is its exit code once it has ended."""

    def __init__(self, pid: int) -> None:
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pid = pid
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended)

    def kill(self) -> None:
        """Sends SIGKILL, if it has not ended: a command that has just started is in no cgroup yet, where it would be found."""
        if not self.code.done():
            os.kill(self._pid, signal.SIGKILL)

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        _, status = os.waitpid(self._pid, 0)
        if not self.code.done():
            self.code.set_result(os.waitstatus_to_exitcode(status))


class ProcessWatch:
    """Watches processes, by a name for each, and reports their end."""

    def __init__(self, on_exit: Callable[[str], None]) -> None:
        self._on_exit = on_exit
        self._watched: dict[str, tuple[int, asyncio.Event]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether it is watched and has not ended."""
        return name in self._watched

    def add(self, name: str, pid: int, is_alive: Callable[[], bool]) -> bool:
        """Watches a process; False: it is gone. ``is_alive`` checks that the pidfd refers to the intended process."""
        if name in self._watched:
            return True
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        if not is_alive():
            os.close(descriptor)
            return False
        self._watched[name] = (descriptor, asyncio.Event())
        asyncio.get_running_loop().add_reader(descriptor, self._ended, name)
        return True

    async def wait_for_exit(self, name: str, limit_s: float) -> bool:
        """Waits for the end of a process; whether it came in time. A process that is not watched has ended."""
        watched = self._watched.get(name)
        if watched is None:
            return True
        try:
            async with asyncio.timeout(limit_s):
                await watched[1].wait()
        except TimeoutError:
            return False
        return True

    def kill(self, name: str) -> None:
        """Sends SIGKILL."""
        watched = self._watched.get(name)
        if watched is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched[0], signal.SIGKILL)

    def close(self) -> None:
        """Stops watching."""
        for name in tuple(self._watched):
            self._unwatch(name)

    def _ended(self, name: str) -> None:
        self._unwatch(name)
        self._on_exit(name)

    def _unwatch(self, name: str) -> None:
        descriptor, event = self._watched.pop(name)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        event.set()
