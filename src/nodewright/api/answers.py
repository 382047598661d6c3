"""Answers over HTTP: documents, and errors as the API server words them."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nodewright.world.errors import Fault, InputError, WorldError

NOT_FOUND, BAD_REQUEST, CONFLICT, FORBIDDEN, INVALID, FAILED = 404, 400, 409, 403, 422, 500
_REASONS = {
    NOT_FOUND: "NotFound",
    BAD_REQUEST: "BadRequest",
    CONFLICT: "AlreadyExists",
    FORBIDDEN: "Forbidden",
    INVALID: "Invalid",
    FAILED: "InternalError",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
}


class APIError(Exception):
    """A request that cannot be fulfilled: what it is answered with."""

    def __init__(self, code: int, message: str, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.faults = code, message, faults


def document(value: Any, code: int = 200) -> JSONResponse:
    """A document as an answer."""
    return JSONResponse(value, status_code=code)


def failure(code: int, message: str, faults: tuple[Fault, ...] = ()) -> JSONResponse:
    """A Status object: what went wrong, and where in what was sent."""
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
        status["details"] = {"causes": [_cause(one) for one in faults]}
    return JSONResponse(status, status_code=code)


async def on_api_error(_request: Request, error: Exception) -> Response:
    """A request that cannot be fulfilled."""
    assert isinstance(error, APIError)
    return failure(error.code, error.message, error.faults)


async def on_input_error(_request: Request, error: Exception) -> Response:
    """Something was sent that cannot be taken."""
    assert isinstance(error, InputError)
    return failure(INVALID, str(error), error.faults)


async def on_world_error(_request: Request, error: Exception) -> Response:
    """The machine did not obey."""
    assert isinstance(error, WorldError)
    return failure(FAILED, str(error))


def number(request: Request, name: str) -> int | None:
    """A parameter that is a whole number, 0 or more; None: it is not given.

    Errors: APIError.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        fault = Fault(path=name, value=text, rule="a whole number is wanted, 0 or more")
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    return int(text)


def flag(request: Request, name: str) -> bool:
    """A parameter that is yes or no.

    Errors: APIError.
    """
    text = request.query_params.get(name, "false")
    if text.lower() not in ("true", "false", "1", "0"):
        fault = Fault(path=name, value=text, rule="true or false is wanted")
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
