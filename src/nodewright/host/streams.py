"""Interactive streams of containers: the requests for them, and the server that a container runtime has for them."""

from typing import Protocol, TypeAlias

import msgspec


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
