"""The agent's API on a unix socket: who may open the file may ask."""

import asyncio
import contextlib
import grp
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from nodewright.api.agent import Agent
from nodewright.api.answers import (
    APIError,
    failure,
    on_api_error,
    on_input_error,
    on_world_error,
)
from nodewright.api.entries import Entry, routes_of
from nodewright.api.logs import LogRoutes
from nodewright.api.node import NodeRoutes
from nodewright.api.pods import PodRoutes
from nodewright.api.sockets import clear_place, leave_place
from nodewright.world.errors import InputError, WorldError

OWNERS, GROUPS = 0o600, 0o660


def application(agent: Agent, more: Sequence[Entry] = ()) -> Starlette:
    """All routes of the socket, and ``more`` of others."""
    own = [*PodRoutes(agent).routes(), *LogRoutes(agent).routes(), *NodeRoutes(agent).routes()]
    return Starlette(
        routes=[*own, *routes_of(more)],
        exception_handlers={
            APIError: on_api_error,
            InputError: on_input_error,
            WorldError: on_world_error,
            HTTPException: _on_http_error,
        },
    )


@asynccontextmanager
async def serving(
    agent: Agent, path: Path, *, group: str = "", more: Sequence[Entry] = ()
) -> AsyncIterator[None]:
    """The API answers while this is entered, with ``more`` routes; ``group`` may use it besides its owner.

    Errors: WorldError where another agent listens there, or the socket cannot be made.
    """
    listener = _listener(path, group)
    config = uvicorn.Config(
        application(agent, more),
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.is_up.wait()
        yield
    finally:
        agent.board.close()
        server.should_exit = True
        server.is_over.set()
        await task
        listener.close()
        leave_place(path)


class _Server(uvicorn.Server):
    """A server that leaves signals to the agent, and says when it is there."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up, self.is_over = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        """Wait for the end, where others look ten times a second whether it has come."""
        await self.is_over.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _listener(path: Path, group: str) -> socket.socket:
    """A socket that nobody else could open between its making and its permissions."""
    try:
        clear_place(path, "--socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(old)
        if group:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            path.chmod(GROUPS)
    except KeyError:
        raise WorldError("listen on", str(path), f"there is no group {group!r}") from None
    except OSError as error:
        raise WorldError("listen on", str(path), error.strerror or str(error)) from None
    return listener


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = "the server could not find the requested resource" if error.status_code == 404 else error.detail
    return failure(error.status_code, said)
