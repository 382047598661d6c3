"""Routes with the roles that they require, JSON responses, and errors in the API server's format."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from nodewright.model.errors import Fault, HostError, InputError


class AccessRole(StrEnum):
    """The permission of a user."""

    READ = "read"
    WRITE = "write"
    """Permission to change what runs; includes read."""


class AuthorizedRoute(NamedTuple):
    """A route, and the role that it requires on servers with authentication."""

    route: BaseRoute
    role: AccessRole = AccessRole.READ


def bare_routes(entries: Iterable[AuthorizedRoute]) -> list[BaseRoute]:
    """The routes without roles, for servers without authentication."""
    return [entry.route for entry in entries]


NOT_FOUND, BAD_REQUEST, CONFLICT, FORBIDDEN, INVALID, INTERNAL_ERROR = 404, 400, 409, 403, 422, 500
_REASONS = {
    NOT_FOUND: "NotFound",
    BAD_REQUEST: "BadRequest",
    CONFLICT: "AlreadyExists",
    FORBIDDEN: "Forbidden",
    INVALID: "Invalid",
    INTERNAL_ERROR: "InternalError",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
}


class APIError(Exception):
    """The error response to a request."""

    def __init__(self, code: int, message: str, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.faults = code, message, faults


def json_response(value: Any, code: int = 200) -> JSONResponse:
    """A JSON response."""
    return JSONResponse(value, status_code=code)


def status_response(code: int, message: str, faults: tuple[Fault, ...] = ()) -> JSONResponse:
    """A Status object with the error and the faults of the request."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "Unknown"),
        "code": code,
    }
    if faults:
        status["details"] = {"causes": [_cause(fault) for fault in faults]}
    return JSONResponse(status, status_code=code)


async def on_api_error(_request: Request, error: Exception) -> Response:
    """Converts an API error."""
    assert isinstance(error, APIError)
    return status_response(error.code, error.message, error.faults)


async def on_input_error(_request: Request, error: Exception) -> Response:
    """Converts an error of the request's content."""
    assert isinstance(error, InputError)
    return status_response(INVALID, str(error), error.faults)


async def on_host_error(_request: Request, error: Exception) -> Response:
    """Converts a failed system operation."""
    assert isinstance(error, HostError)
    return status_response(INTERNAL_ERROR, str(error))


def integer_parameter(request: Request, name: str) -> int | None:
    """An integer parameter, 0 or more; None: not specified.

    Errors: APIError.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        fault = Fault(path=name, value=text, rule="must be a whole number from 0 to 999999999")
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    return int(text)


def boolean_parameter(request: Request, name: str) -> bool:
    """A boolean parameter.

    Errors: APIError.
    """
    text = request.query_params.get(name, "false")
    if text.lower() not in ("true", "false", "1", "0"):
        fault = Fault(path=name, value=text, rule="must be true or false")
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    return text.lower() in ("true", "1")


def _cause(fault: Fault) -> dict[str, Any]:
    return {
        "reason": fault.error or "FieldValueInvalid",
        "message": str(fault),
        "field": fault.path,
        "rule": fault.rule,
        **({"value": fault.value} if isinstance(fault.value, str | int | float | bool) else {}),
    }
