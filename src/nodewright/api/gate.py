"""A gate before pages for a browser on this machine: who has the link may look, and nobody whom a stranger's page sent."""

import hmac
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nodewright.api.dashboard import ROOT, SECURITY

_USED = """This link has been used, or is another one's: each opens the dashboard once, in one browser.
The terminal has the next one.
"""


class Gate:
    """Lets through whoever came by a link with a token; from then on a cookie speaks for the browser.

    A token opens once. Hosts are addresses and ``names`` alone, so that no other name can be made to point here
    (DNS rebinding); pages of other origins are turned away; only what reads is let through.
    """

    def __init__(self, inside: ASGIApp, port: int, names: tuple[str, ...] = ("localhost",)) -> None:
        self._inside, self._port, self._names = inside, port, names
        self._session, self._token = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
        # Cookies do not know ports: two dashboards of one machine must not take each other's.
        self._cookie = f"nodewright-{port}"
        self.on_entered: Callable[[], None] = lambda: None
        """Is called when a token has been used: there is a new one."""

    def link(self, host: str) -> str:
        """What opens the dashboard next."""
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self._port}{ROOT}/?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or say why not."""
        if scope["type"] != "http":
            return
        answer = self._refusal(scope)
        await (self._inside if answer is None else answer)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        """What is answered instead; None: nothing speaks against it."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            return _no(f"{host!r} is not the name of this server\n", 421)
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return _no("pages of other origins may not ask\n", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return _no("here everything only reads\n", 405)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and hmac.compare_digest(given.encode(), self._token.encode()):
            return self._entered()
        if self._has_cookie(headers.get("cookie", "")):
            return _onward() if given else None
        return _no(_USED, 403)

    def _entered(self) -> Response:
        """The browser gets its cookie, and the token is not in its address any more."""
        self._token = secrets.token_urlsafe(24)
        answer = _onward()
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        self.on_entered()
        return answer

    def _has_cookie(self, text: str) -> bool:
        try:
            found = SimpleCookie(text).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._session.encode())

    def _is_ours(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if port != str(self._port):
            return False
        try:
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return name in self._names
        return True


def _onward() -> Response:
    return RedirectResponse(f"{ROOT}/", 303, headers={**SECURITY, "Cache-Control": "no-store"})


def _no(text: str, code: int) -> Response:
    return PlainTextResponse(text, code, headers={**SECURITY, "Cache-Control": "no-store"})
