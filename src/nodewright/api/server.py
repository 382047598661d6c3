"""The agent's API on a unix socket: who may open the file may ask."""

import grp
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

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
from nodewright.api.listening import QuietServer, quiet_config
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
    try:
        async with QuietServer(quiet_config(application(agent, more))).running(listener):
            try:
                yield
            finally:
                # Whoever follows something is to leave.
                agent.board.close()
    finally:
        leave_place(path)


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
