"""A client for an agent's socket."""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from nodewright.model.errors import JSON_ERRORS, Fault, HostError, InputError

SOCKET_VARIABLE = "NODEWRIGHT_SOCKET"
"""The environment variable that names the socket."""
DEFAULT_SOCKET = Path("/run/nodewright/agent.sock")
PROFILE_ROUTE = "nodewright/v1/profile"
_UNPROCESSABLE = 422


class AgentStatusError(Exception):
    """The agent answered with an error Status, as an API server would."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"({reason}): {message}")
        self.code, self.reason, self.message = code, reason, message


MAX_ANSWER_BYTES, _MAX_ERROR_BYTES = 256 << 20, 1 << 20


class AgentClient:
    """A client for the agent behind a unix socket."""

    def __init__(self, path: Path = DEFAULT_SOCKET, timeout_s: float = 30.0) -> None:
        """``timeout_s`` limits each wait for an answer, not the length of a stream."""
        self.path, self._timeout_s = path, timeout_s

    def get(self, *route: str, **query: object) -> Any:
        """Gets a document.

        Errors: AgentStatusError; InputError; HostError where no agent answers.
        """
        return self._document("GET", route, query)

    def post(self, *route: str, body: Any) -> Any:
        """Sends a document; the agent's answer. Errors as `get`."""
        return self._document("POST", route, {}, body)

    def put(self, *route: str, body: Any) -> Any:
        """Sends a document that replaces another; the agent's answer. Errors as `get`."""
        return self._document("PUT", route, {}, body)

    def delete(self, *route: str, **query: object) -> Any:
        """Deletes an object; the object that is being deleted. Errors as `get`."""
        return self._document("DELETE", route, query)

    def stream_lines(self, *route: str, **query: object) -> Iterator[bytes]:
        """The lines of a stream as they arrive; errors as `get`."""
        connection, response = self._request("GET", route, query)
        connection.wait_forever()
        try:
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise HostError("talk to the agent at", str(self.path), str(error)) from None
        finally:
            connection.close()

    def _document(
        self, method: str, route: tuple[str, ...], query: dict[str, object], body: Any = None
    ) -> Any:
        connection, response = self._request(method, route, query, body)
        try:
            content = response.read(MAX_ANSWER_BYTES + 1)
            if len(content) > MAX_ANSWER_BYTES:
                raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            return json.loads(content)
        except (OSError, http.client.HTTPException, *JSON_ERRORS) as error:
            raise HostError("talk to the agent at", str(self.path), self._error_text(error)) from None
        finally:
            connection.close()

    def _request(
        self, method: str, route: tuple[str, ...], query: dict[str, object], body: Any = None
    ) -> tuple["_Connection", http.client.HTTPResponse]:
        """The response to a request, if it is a success."""
        target = "/" + "/".join((route[0], *map(_quoted_name, route[1:])))
        connection = _Connection(self.path, self._timeout_s)
        parameters = {
            key: _text(value) for key, value in query.items() if value is not None and value is not False
        }
        if parameters:
            target += "?" + urlencode(parameters, errors="surrogateescape")
        try:
            connection.request(method, target, None if body is None else json.dumps(body))
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                _raise_for_status(response.status, response.read(_MAX_ERROR_BYTES))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise HostError("talk to the agent at", str(self.path), self._error_text(error)) from None
        except (AgentStatusError, InputError):
            connection.close()
            raise
        return connection, response

    def _error_text(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s: the agent is stopped or overloaded"
        return _connection_error_text(error)


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost")
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)

    def connect(self) -> None:
        """Connects to the socket."""
        self.sock = self._socket
        self.sock.connect(os.fspath(self._path))

    def wait_forever(self) -> None:
        """Lifts the time limit: a stream may have nothing to send for long."""
        self._socket.settimeout(None)

    def close(self) -> None:
        """Closes the socket, also one that was never connected."""
        self._socket.close()
        super().close()


def _raise_for_status(code: int, body: bytes) -> None:
    """Raises the error that a response describes."""
    try:
        status = json.loads(body)
        causes = (status.get("details") or {}).get("causes") or ()
        faults = [Fault(rule=str(cause["message"])) for cause in causes]
    except (AttributeError, KeyError, TypeError, *JSON_ERRORS):
        raise AgentStatusError(code, str(code), body.decode(errors="replace")) from None
    if code == _UNPROCESSABLE and faults:
        raise InputError(faults)
    raise AgentStatusError(code, status.get("reason", str(code)), status.get("message", ""))


def _connection_error_text(error: Exception) -> str:
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return "no agent listens there; start one with `nodewright agent`, or name its socket with --socket"
    if isinstance(error, PermissionError):
        return "permission denied: run as root, or as a member of the agent's --socket-group"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _quoted_name(name: str) -> str:
    """A name in a path. Errors: InputError for one that would lead to another object."""
    if name in ("", ".", "..") or "/" in name:
        raise InputError([Fault(value=name, rule="is not a name")])
    return quote(name, safe="", errors="surrogateescape")


def _text(value: object) -> str:
    return "true" if value is True else str(value)
