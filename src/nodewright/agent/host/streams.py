"""Interactive streams of containers: the requests for them, and the server that a container runtime has for them."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import msgspec

STDOUT, STDERR = 1, 2
"""The numbers of output streams."""


class StandardStreams(msgspec.Struct, frozen=True, kw_only=True):
    """Which standard streams of a process a client uses; with a terminal, the errors are part of the output."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class ExecStreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Streams of a new process in a container."""

    container_id: str
    command: tuple[str, ...]
    streams: StandardStreams


class AttachStreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Streams of a container's first process."""

    container_id: str
    streams: StandardStreams


class PortForwardStreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Connections to ports of a sandbox."""

    sandbox_id: str
    ports: tuple[int, ...] = ()
    """Empty: each stream names its port."""


StreamRequest: TypeAlias = ExecStreamRequest | AttachStreamRequest | PortForwardStreamRequest


class StreamingServer(Protocol):
    """The server of a container runtime that joins clients with processes and ports of its containers."""

    async def streaming_url(self, request: StreamRequest) -> str:
        """The URL that serves these streams, to the one client that asks there soon.

        Errors: HostError.
        """


class ProcessSession(Protocol):
    """The streams of a process, for a runtime without a streaming server."""

    async def write(self, data: bytes) -> None:
        """Writes to the standard input, as fast as the process reads."""

    def close_stdin(self) -> None:
        """Ends the standard input."""

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the terminal."""

    async def copy_output(self, send: Callable[[int, bytes], Awaitable[None]]) -> int:
        """Sends the output, by the number of its stream, until the process ends; returns the exit code."""


class ProcessStreams(Protocol):
    """The streams of the processes of a runtime without a streaming server."""

    def open(
        self, request: ExecStreamRequest | AttachStreamRequest
    ) -> AbstractAsyncContextManager[ProcessSession]:
        """The streams inside this context; a command that has not ended at its end is killed with all its children.

        Errors: HostError.
        """
