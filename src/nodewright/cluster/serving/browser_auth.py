"""Pages for a browser on this machine, without certificates: authenticated by a link printed in the terminal.

Requests from pages of other origins are refused. There is no cookie: browsers send cookies to the servers of all ports of
a host, which are other users' as well.
"""

import hmac
import ipaddress
import logging
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response

from nodewright.cluster.serving.http_server import ListenAddress, serve_network
from nodewright.cluster.serving.middleware import App, Message, Receive, RefusalLog, Scope, Send, run_bounded
from nodewright.model.values.golang import is_number_of_digits

_INVALID_LINK = """This link is invalid or has been used: each link works once, in one tab of a browser.
Use the latest link in the terminal.
"""


class BrowserAuth:
    """Passes requests with a session, which the script of a page got for the token in its link.

    The script keeps the session where scripts of other origins cannot read it, and sends it in a header. The page and its
    static files are the same for everyone, and need none. A token is valid once. The host must be an address or one of
    ``names``, against DNS rebinding; requests from pages of other origins are refused; only GET and HEAD are allowed.
    """

    def __init__(self, app: App, port: int, names: tuple[str, ...] = ("localhost",)) -> None:
        self._app, self.port, self._names = app, port, names
        self._session, self._token = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
        self.on_login: Callable[[], None] = lambda: None
        """Called when a token has been used, and a new one exists."""

    def login_url(self, host: str) -> str:
        """The next link to the dashboard; browsers do not send what follows `#`."""
        url_host = f"[{host}]" if ":" in host else host
        return f"http://{url_host}:{self.port}{DASHBOARD_ROOT}/#token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            return
        answer = _Answer(send)
        try:
            if not await run_bounded(self._login_response(scope) or self._app, scope, receive, answer.send):
                return
        except Exception:
            logging.getLogger("nodewright.http").exception("a request failed")
        if not answer.has_started:
            await _text("internal error\n", 500)(scope, receive, answer.send)

    def _login_response(self, scope: Scope) -> Response | None:
        """The refusal of a request, or the session after a login; None: the request is passed on."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own_host(host):
            return _text(f"{host!r} is not the name of this server\n", 421)
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return _text("requests from other origins are refused\n", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return _text("this server is read-only\n", 405)
        path, credential = scope["path"], headers.get("authorization", "").removeprefix("Bearer ").encode()
        if _PUBLIC_PATH.fullmatch(path):
            return None
        if path == SESSION_PATH and hmac.compare_digest(credential, self._token.encode()):
            return self._log_in()
        if path != SESSION_PATH and hmac.compare_digest(credential, self._session.encode()):
            return None
        return _text(_INVALID_LINK, 403)

    def _log_in(self) -> Response:
        """Replaces the token; the answer is the session."""
        self._token = secrets.token_urlsafe(24)
        self.on_login()
        return _text(self._session, 200)

    def _is_own_host(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        try:
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return name in self._names
        return True


class _Answer:
    """An answer, which has the security headers whichever part of the application writes it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def send(self, message: Message) -> None:
        """Sends a part of the answer."""
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        await self._send(message)


def _text(text: str, code: int) -> Response:
    return PlainTextResponse(text, code, headers={**SECURITY_HEADERS, "Cache-Control": "no-store"})


LOOPBACK = "127.0.0.1"


class PageAddress(NamedTuple):
    """An address to listen on; port 0 is any free port."""

    host: str = LOOPBACK
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "PageAddress":
        """`ADDRESS:PORT`, `PORT` or `ADDRESS`.

        >>> PageAddress.parse("8080"), PageAddress.parse("[::1]:80").host, PageAddress.parse("127.0.0.2").port
        (PageAddress(host='127.0.0.1', port=8080), '::1', 0)

        Errors: ValueError.
        """
        host, port = ("", text) if is_number_of_digits(text) else (text, "")
        if text.count(":") == 1 or "]:" in text:
            host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or LOOPBACK
        if port and not (is_number_of_digits(port) and int(port) < 1 << 16):
            raise ValueError(f"{text!r}: {port!r} is not a port")
        try:
            ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
        except ValueError:
            raise ValueError(f"{text!r}: {host!r} is not an IP address") from None
        return cls(LOOPBACK if host == "localhost" else host, int(port or 0))

    @property
    def is_loopback(self) -> bool:
        """Whether it is reachable from this machine only."""
        return ipaddress.ip_address(self.host).is_loopback


@asynccontextmanager
async def serve_local_pages(
    app: App, address: PageAddress, on_exit: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[BrowserAuth, str]]:
    """Serves the application with browser authentication inside this context; yields it and the host for its links.

    ``on_exit`` is called before the server stops, to end open event streams.

    Errors: HostError if the address is in use.
    """
    browser_auth = BrowserAuth(app, address.port, ("localhost", socket.gethostname()))
    is_any = ipaddress.ip_address(address.host).is_unspecified
    # A page has no log of clients: its terminal belongs to the user.
    refusals = RefusalLog(lambda _text: None)
    listen_address = ListenAddress(address.host, address.port)
    async with serve_network(browser_auth, listen_address, None, refusals, SECURITY_HEADERS) as bound:
        browser_auth.port = bound.port
        try:
            yield browser_auth, socket.gethostname() if is_any else address.host
        finally:
            on_exit()


DASHBOARD_ROOT = "/dashboard"
SESSION_PATH = f"{DASHBOARD_ROOT}/session"
_PUBLIC_PATH = re.compile(rf"{DASHBOARD_ROOT}(/(static/\w[\w.-]*)?)?", re.ASCII)


SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
