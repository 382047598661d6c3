"""The extender's routes: the verbs of the scheduler, `/v1/admit`, health and metrics."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.cluster.serving.middleware import App, Receive, Scope, Send
from nodewright.cluster.serving.routes import (
    FORBIDDEN,
    INTERNAL_ERROR,
    APIError,
    AuthorizedRoute,
    bare_routes,
    on_api_error,
    status_response,
)
from nodewright.documents.output.exposition import CONTENT_TYPE
from nodewright.model.errors import Fault, InputError
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.model.values.golang import is_number_of_digits
from nodewright.scheduling.extender.extender_service import ExtenderService, NotReadyError
from nodewright.scheduling.verdicts.admit_answer import (
    ADMIT_PATH,
    OPENAPI_PATH,
    AdmitRequest,
    openapi_document,
)

MAX_CALL_BYTES = 256 << 20
"""Thousands of Node objects, as sent to extenders without a cache of their own."""
MAX_CALLS_BYTES = 512 << 20
"""What all large calls that are read or answered at the same time may have together."""
_SMALL_CALL_BYTES = 1 << 20
"""So much of each call is not counted: calls with names of nodes are answered while others are large."""
NO_BINDING = "pods are bound for authenticated callers only: start with --client-ca-file or --token-auth-file"
_BAD_REQUEST, _TOO_LARGE, _INVALID, _UNAVAILABLE = 400, 413, 422, 503
_ADMIT = msgspec.json.Decoder(AdmitRequest)


class VerbRoute(Route):
    """The route of a verb of schedulers."""

    def __init__(self, path: str, answer: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(path, answer, methods=["POST"])
        self.answer = answer


class ExtenderRoutes:
    """Decodes requests, and encodes the service's answers."""

    def __init__(self, service: ExtenderService, *, binds: bool) -> None:
        """``binds``: callers are authenticated, may bind pods, and learn which pods to preempt."""
        self._service, self._binds = service, binds
        self._counted_bytes = 0
        """Of the calls that are being read or answered."""

    def call_routes(self) -> tuple[AuthorizedRoute, ...]:
        """The routes of schedulers and autoscalers."""
        service = self._service
        verbs: dict[str, Callable[[bytes], bytes | Awaitable[bytes]]] = {
            "filter": service.filter_after_exports,
            "prioritize": service.prioritize,
            "preempt": partial(service.preempt, names_pods=self._binds),
        }
        if self._binds:
            verbs["bind"] = service.bind
        return (
            *(
                AuthorizedRoute(VerbRoute(f"/{verb}", self._verb(verb, answer)))
                for verb, answer in verbs.items()
            ),
            *(() if self._binds else (AuthorizedRoute(VerbRoute("/bind", self.refused_binding)),)),
            AuthorizedRoute(Route(ADMIT_PATH, self.admit, methods=["POST"])),
            AuthorizedRoute(Route(OPENAPI_PATH, self.openapi)),
        )

    def health_routes(self) -> tuple[AuthorizedRoute, ...]:
        """`/healthz`: the process answers; `/readyz`: calls are answered from the cluster; `/metrics`."""
        return (
            AuthorizedRoute(Route("/healthz", self.health)),
            AuthorizedRoute(Route("/readyz", self.readiness)),
            AuthorizedRoute(Route("/metrics", self.metrics)),
        )

    def _verb(
        self, name: str, answer: Callable[[bytes], bytes | Awaitable[bytes]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                async with self._body(request) as body:
                    content = answer(body)
                    return _json(content if isinstance(content, bytes) else await content)
            except InputError as error:
                self._service.record_invalid(name)
                return status_response(_INVALID, str(error), error.faults)
            except NotReadyError as error:
                return status_response(_UNAVAILABLE, str(error))
            except CustomPolicyError as error:  # the scheduler goes on without the scores
                return status_response(INTERNAL_ERROR, str(error))

        return handle

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a call, which counts until the call is answered.

        Errors: APIError for one that is too large, or that is one large call too many.
        """
        length = request.headers.get("content-length", "")
        if is_number_of_digits(length) and int(length[:20]) > MAX_CALL_BYTES:
            raise APIError(_TOO_LARGE, f"the call has {length} bytes; at most {MAX_CALL_BYTES} are read")
        parts, size, counted = list[bytes](), 0, 0
        try:
            async for part in request.stream():
                size += len(part)
                added = max(0, size - _SMALL_CALL_BYTES) - counted
                counted, self._counted_bytes = counted + added, self._counted_bytes + added
                if self._counted_bytes > MAX_CALLS_BYTES:
                    raise APIError(_UNAVAILABLE, f"large calls at the same time have {MAX_CALLS_BYTES} bytes")
                parts.append(part)
            yield b"".join(parts)
        finally:
            self._counted_bytes -= counted

    async def admit(self, request: Request) -> Response:
        """The answers of nodes about a pod."""
        try:
            async with self._body(request) as body:
                return _json(msgspec.json.encode(self._service.admit(_ADMIT.decode(body))))
        except msgspec.ValidationError as error:
            text, _, where = str(error).partition(" - at `$")
            fault = Fault(path=where.lstrip(".").rstrip("`"), rule=text)
            return status_response(_INVALID, str(fault), (fault,))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return status_response(_BAD_REQUEST, f"not the expected JSON: {error}")
        except InputError as error:
            return status_response(_INVALID, str(error), error.faults)
        except NotReadyError as error:
            return status_response(_UNAVAILABLE, str(error))

    async def refused_binding(self, _request: Request) -> Response:
        """Refuses to bind for callers that are not authenticated."""
        return status_response(FORBIDDEN, NO_BINDING)

    async def openapi(self, _request: Request) -> Response:
        """The OpenAPI document."""
        return _json(msgspec.json.encode(openapi_document()))

    async def health(self, _request: Request) -> Response:
        """Reports that the process responds."""
        return Response("ok", media_type="text/plain")

    async def readiness(self, _request: Request) -> Response:
        """Whether calls are answered from what the cluster holds."""
        reason = self._service.not_ready_reason
        if not reason:
            return Response("ok", media_type="text/plain")
        return Response(f"{reason}\n", _UNAVAILABLE, media_type="text/plain")

    async def metrics(self, _request: Request) -> Response:
        """The metrics in the Prometheus text format."""
        return Response(self._service.metrics_text().encode(), media_type=CONTENT_TYPE)


def extender_application(entries: tuple[AuthorizedRoute, ...]) -> App:
    """The application with these routes.

    Calls of schedulers, hundreds a second, do not pass through the layers of Starlette: a quarter of their time.
    """
    others = Starlette(
        routes=bare_routes(entries),
        exception_handlers={APIError: on_api_error, HTTPException: _on_http_error},
    )
    verbs = {route.path: route for route in bare_routes(entries) if isinstance(route, VerbRoute)}

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        verb = verbs.get(scope["path"]) if scope["method"] == "POST" else None
        if verb is None:
            await others(scope, receive, send)
            return
        try:
            response = await verb.answer(Request(scope, receive, send))
        except APIError as error:
            response = status_response(error.code, error.message, error.faults)
        except HTTPException as error:
            response = status_response(error.status_code, error.detail)
        await response(scope, receive, send)

    return application


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return status_response(error.status_code, error.detail)
