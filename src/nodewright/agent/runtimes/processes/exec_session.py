"""Streams of plain processes: a command of a client in a container's cgroup, and the output of a container."""

import asyncio
import contextlib
import fcntl
import itertools
import os
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from nodewright.agent.host.container_logs import follow_streams
from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.ports import (
    STDERR,
    STDOUT,
    AttachStreamRequest,
    ExecStreamRequest,
    ProcessSession,
    StandardStreams,
)
from nodewright.agent.runtimes.processes import children
from nodewright.agent.runtimes.processes.process_runtime import ProcessRuntime
from nodewright.agent.runtimes.processes.records import shim_spec

_CHUNK_BYTES = 1 << 15
_DRAIN_S = 0.5
"""How long output is waited for after the end of a process: its children may hold the stream open."""
_NUMBERS = itertools.count()
Send = Callable[[int, bytes], Awaitable[None]]


class ExecSession:
    """A process with the streams of a client."""

    def __init__(
        self,
        code: asyncio.Future[int],
        outputs: dict[int, asyncio.StreamReader],
        stdin: asyncio.StreamWriter | None,
        terminal: int | None,
    ) -> None:
        self._code, self._outputs, self._stdin, self._terminal = code, outputs, stdin, terminal

    async def write(self, data: bytes) -> None:
        """Writes to the standard input, as fast as the process reads; nothing once the process has closed it."""
        if self._stdin is not None:
            with contextlib.suppress(OSError):
                self._stdin.write(data)
                await self._stdin.drain()

    def close_stdin(self) -> None:
        """Ends the standard input; a terminal stays open."""
        if self._stdin is not None and self._terminal is None:
            self._stdin.close()

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the terminal."""
        if self._terminal is not None:
            size = struct.pack("HHHH", height, width, 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    async def copy_output(self, send: Send) -> int:
        """Sends the output by stream until the process ends; returns the exit code. Errors are those of ``send``."""
        copying = [
            asyncio.ensure_future(_copy(number, reader, send, self._code))
            for number, reader in self._outputs.items()
        ]
        try:
            await asyncio.gather(*copying)
        finally:
            for task in copying:
                task.cancel()
        code = await asyncio.shield(self._code)
        return code if code >= 0 else 128 - code


async def _copy(number: int, reader: asyncio.StreamReader, send: Send, code: asyncio.Future[int]) -> None:
    while True:
        reading = asyncio.ensure_future(reader.read(_CHUNK_BYTES))
        try:
            await asyncio.wait((reading, code), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait((reading,), timeout=_DRAIN_S)
            if not reading.done():
                return
            # A terminal without processes ends with an error.
            chunk = b"" if reading.exception() is not None else reading.result()
        finally:
            reading.cancel()
        if not chunk:
            return
        await send(number, chunk)


class AttachSession:
    """The output of a container from now on, by its log; plain processes have no standard input."""

    def __init__(self, log: Path, has_ended: Callable[[], bool], streams: StandardStreams) -> None:
        self._log, self._has_ended = log, has_ended
        self._numbers = {STDOUT: streams.stdout, STDERR: streams.stderr}

    async def write(self, data: bytes) -> None:
        """Drops the data."""

    def close_stdin(self) -> None:
        """Does nothing."""

    def resize(self, width: int, height: int) -> None:
        """Does nothing."""

    async def copy_output(self, send: Send) -> int:
        """Sends the output by stream until the container ends."""
        async for number, text in follow_streams(self._log, self._has_ended):
            if self._numbers.get(number):
                await send(number, text)
        return 0


class PlainProcessStreams:
    """The streams of the containers of a runtime of plain processes."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime

    @asynccontextmanager
    async def open(self, request: ExecStreamRequest | AttachStreamRequest) -> AsyncIterator[ProcessSession]:
        """The streams inside this context; a command that has not ended at its end is killed with all its children.

        Errors: HostError.
        """
        container_id = request.container_id
        record = self._runtime.running_record("open streams of", container_id)
        if isinstance(request, AttachStreamRequest):
            has_ended = lambda: self._runtime.has_ended(container_id)  # noqa: E731 - a test of one line
            yield AttachSession(Path(record.log), has_ended, request.streams)
            return
        name = f"exec-{os.getpid()}-s{next(_NUMBERS)}"
        with self._runtime.cgroups.exec_cgroup(record.cgroup, name) as exec_cgroup:
            spec = {
                **shim_spec(record, self._runtime.cgroups),
                "argv": list(request.command),
                "procs_files": list(exec_cgroup.procs_files),
                "is_terminal": request.streams.tty,
                "env": {**({"TERM": "xterm"} if request.streams.tty else {}), **record.env},
            }
            async with _session(spec, request.streams, container_id) as (session, child):
                try:
                    yield session
                finally:
                    if not child.code.done():
                        child.kill()
                        await asyncio.to_thread(exec_cgroup.kill)


@asynccontextmanager
async def _session(
    spec: dict[str, Any], streams: StandardStreams, container_id: str
) -> AsyncIterator[tuple[ExecSession, children.ReapedChild]]:
    """A session and its process.

    Errors: HostError.
    """
    async with AsyncExitStack() as stack:
        with host_errors("execute in container", container_id):
            with ExitStack() as process_ends:
                ends = _terminal(stack, process_ends) if streams.tty else _pipes(streams, stack, process_ends)
                child = children.start_command(spec, ends.process)
            outputs = {number: await _reader(stack, file) for number, file in ends.outputs.items()}
            stdin = await _writer(stack, ends.stdin) if streams.stdin else None
        yield ExecSession(child.code, outputs, stdin, ends.terminal), child


class _StreamEnds(NamedTuple):
    """Both ends of the streams of a process."""

    process: tuple[int, int, int]
    outputs: dict[int, BinaryIO]
    stdin: BinaryIO
    terminal: int | None = None


def _terminal(stack: AsyncExitStack, process_ends: ExitStack) -> _StreamEnds:
    """A terminal. Errors: OSError."""
    master, slave = os.openpty()
    stack.callback(os.close, master)
    process_ends.callback(os.close, slave)
    output, stdin = _file(stack, os.dup(master), "rb"), _file(stack, os.dup(master), "wb")
    return _StreamEnds((slave, slave, slave), {STDOUT: output}, stdin, master)


def _pipes(streams: StandardStreams, stack: AsyncExitStack, process_ends: ExitStack) -> _StreamEnds:
    """A pipe for each stream; what the client does not read is dropped. Errors: OSError."""
    stdin_read, stdin_write = os.pipe()
    process_ends.callback(os.close, stdin_read)
    stdin = _file(stack, stdin_write, "wb")
    if not streams.stdin:
        stdin.close()
    process, outputs = [stdin_read], dict[int, BinaryIO]()
    for number, is_read in ((STDOUT, streams.stdout), (STDERR, streams.stderr)):
        if is_read:
            read_end, write_end = os.pipe()
            outputs[number] = _file(stack, read_end, "rb")
        else:
            write_end = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        process_ends.callback(os.close, write_end)
        process.append(write_end)
    return _StreamEnds((process[0], process[1], process[2]), outputs, stdin)


def _file(stack: AsyncExitStack, descriptor: int, mode: str) -> BinaryIO:
    file = cast("BinaryIO", os.fdopen(descriptor, mode, 0))
    stack.callback(file.close)
    return file


async def _reader(stack: AsyncExitStack, file: BinaryIO) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(_CHUNK_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    stack.callback(transport.close)
    return reader


async def _writer(stack: AsyncExitStack, file: BinaryIO) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    # Its reader is not used: a pipe of this kind is only written to.
    reader = asyncio.StreamReader()
    transport, protocol = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)

    def abort() -> None:
        if not transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()

    stack.callback(abort)
    return asyncio.StreamWriter(transport, protocol, reader, loop)
