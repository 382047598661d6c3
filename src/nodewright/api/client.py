"""Those who talk to an agent: requests over its socket, with what the engine has anyway."""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from nodewright.world.errors import Fault, InputError, WorldError

DEFAULT_SOCKET = Path("/run/nodewright/agent.sock")
PROFILE_ROUTE = "nodewright/v1/profile"
_UNPROCESSABLE = 422


class RefusedError(Exception):
    """The agent says no, in the words of an API server."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"({reason}): {message}")
        self.code, self.reason, self.message = code, reason, message


class Client:
    """An agent behind a socket."""

    def __init__(self, path: Path = DEFAULT_SOCKET) -> None:
        self.path = path

    def get(self, *route: str, **query: object) -> Any:
        """A document.

        Errors: RefusedError; InputError; WorldError where nobody answers.
        """
        return self._document("GET", route, query)

    def post(self, *route: str, body: Any) -> Any:
        """What came of a document that was sent; errors as `get`."""
        return self._document("POST", route, {}, body)

    def put(self, *route: str, body: Any) -> Any:
        """What came of a document that was sent in place of another; errors as `get`."""
        return self._document("PUT", route, {}, body)

    def delete(self, *route: str, **query: object) -> Any:
        """What is being taken away; errors as `get`."""
        return self._document("DELETE", route, query)

    def lines(self, *route: str, **query: object) -> Iterator[bytes]:
        """What is said, line by line as it comes; errors as `get`."""
        connection, answer = self._asked("GET", route, query)
        try:
            while line := answer.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise WorldError("talk to the agent at", str(self.path), str(error)) from None
        finally:
            connection.close()

    def _document(
        self, method: str, route: tuple[str, ...], query: dict[str, object], body: Any = None
    ) -> Any:
        connection, answer = self._asked(method, route, query, body)
        try:
            return json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise WorldError("talk to the agent at", str(self.path), str(error)) from None
        finally:
            connection.close()

    def _asked(
        self, method: str, route: tuple[str, ...], query: dict[str, object], body: Any = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The answer to a request, if it is a good one."""
        connection = _Connection(self.path)
        target = "/" + "/".join(quote(part, safe="/") for part in route)
        given = {
            key: _text(value) for key, value in query.items() if value is not None and value is not False
        }
        if given:
            target += "?" + urlencode(given)
        try:
            connection.request(method, target, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            if answer.status >= http.client.BAD_REQUEST:
                _refuse(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise WorldError("talk to the agent at", str(self.path), _why(error)) from None
        except (RefusedError, InputError):
            connection.close()
            raise
        return connection, answer


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.fspath(self._path))


def _refuse(code: int, body: bytes) -> None:
    """Say what an answer says that is none."""
    try:
        status = json.loads(body)
        causes = (status.get("details") or {}).get("causes", ())
    except (ValueError, AttributeError):
        raise RefusedError(code, str(code), body.decode(errors="replace")) from None
    if code == _UNPROCESSABLE and causes:
        raise InputError([Fault(rule=one["message"]) for one in causes])
    raise RefusedError(code, status.get("reason", str(code)), status.get("message", ""))


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return "no agent listens there; `nodewright agent` starts one, --socket names another place"
    if isinstance(error, PermissionError):
        return "permission denied: it takes root, or the group of the agent's --socket-group"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _text(value: object) -> str:
    return "true" if value is True else str(value)
