"""The agent's API on a Unix socket, authorized by the file's permissions; sockets that start their server on demand."""

import asyncio
import grp
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.on_demand_server import OnDemandServer, ServerFactory
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.container_routes import LogRoutes
from nodewright.agent.serving.pod_routes import NodeRoutes, PodRoutes
from nodewright.cluster.serving.http_server import LISTEN_BACKLOG, serve_unix_socket
from nodewright.cluster.serving.middleware import RefusalLog
from nodewright.cluster.serving.routes import (
    APIError,
    AuthorizedRoute,
    bare_routes,
    on_api_error,
    on_host_error,
    on_input_error,
    status_response,
)
from nodewright.model.errors import HostError, InputError

GROUP_MODE = 0o660


def agent_application(agent: AgentInterface, additional_routes: Sequence[AuthorizedRoute] = ()) -> Starlette:
    """The application with all routes of the socket, and additional ones."""
    routes = [*PodRoutes(agent).routes(), *LogRoutes(agent).routes(), *NodeRoutes(agent).routes()]
    return Starlette(
        routes=[*routes, *bare_routes(additional_routes)],
        exception_handlers={
            APIError: on_api_error,
            InputError: on_input_error,
            HostError: on_host_error,
            HTTPException: _on_http_error,
        },
    )


@asynccontextmanager
async def serve_agent_api(
    agent: AgentInterface, path: Path, *, group: str = "", additional_routes: Sequence[AuthorizedRoute] = ()
) -> AsyncIterator[None]:
    """Serves the API inside this context; ``group`` may use it as well as the owner.

    Errors: HostError if another agent listens there, or the socket cannot be created.
    """
    listener = _listener(path, group)
    app = agent_application(agent, additional_routes)
    refusals = RefusalLog(partial(agent.event_recorder.record_warning, "RequestRefused"))
    try:
        async with serve_unix_socket(app, listener, refusals):
            try:
                yield
            finally:
                # Ends open watches and event streams.
                agent.event_recorder.close()
    finally:
        remove_socket(path)


def _listener(path: Path, group: str) -> socket.socket:
    """A socket that is inaccessible to other users until its permissions are set."""
    try:
        prepare_socket_path(path, "--socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(old)
        if group:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            path.chmod(GROUP_MODE)
        # At once: a client that sees the socket is not refused.
        listener.listen(LISTEN_BACKLOG)
    except KeyError:
        raise HostError("listen on", str(path), f"there is no group {group!r}") from None
    except OSError as error:
        raise HostError("listen on", str(path), error.strerror or str(error)) from None
    return listener


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "the server could not find the requested resource" if error.status_code == 404 else error.detail
    return status_response(error.status_code, text)


# ---------------------------------------------------------------- sockets


_MAX_PATH_BYTES = 107


def prepare_socket_path(path: Path, option: str) -> None:
    """Creates the directory of a socket, and removes the stale socket of a killed agent.

    ``option`` is the command line option for the path.
    Errors: HostError if another process listens there, the path is too long, or the path is not accessible.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise HostError("listen on", str(path), f"socket paths have at most {_MAX_PATH_BYTES} bytes")
    with host_errors("listen on", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_socket():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                return
    raise HostError(
        "listen on", str(path), f"another agent listens there; specify another path with {option}"
    )


def remove_socket(path: Path) -> None:
    """Removes a socket, if it exists."""
    path.unlink(missing_ok=True)


MAX_CONNECTIONS = 100
"""Each takes three descriptors of the agent."""


@asynccontextmanager
async def serve_on_demand(path: Path, option: str, load: Callable[[], ServerFactory]) -> AsyncIterator[None]:
    """Forwards connections to a server that is started by the first one, on a socket in the same directory.

    Errors: HostError if another process listens there, or the socket cannot be created; ``option`` is the command
        line option for the path.
    """
    inner = path.with_name(f".{path.name}")
    prepare_socket_path(path, option)
    prepare_socket_path(inner, option)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        raise HostError("listen on", str(path), error.strerror or str(error)) from None
    finally:
        os.umask(old)
    async with AsyncExitStack() as stack:
        forwarder = OnDemandServer(inner, load, stack, MAX_CONNECTIONS)
        server = await asyncio.start_unix_server(forwarder.accept_connection, sock=listener)
        try:
            yield
        finally:
            # asyncio forgets connections that arrive while a server closes: stop accepting, end the connections,
            # then close the server.
            asyncio.get_running_loop().remove_reader(listener)
            await forwarder.close()
            server.close()
            remove_socket(path)
