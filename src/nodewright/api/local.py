"""Pages for a browser on this machine, without certificates: by a link that is told in the terminal."""

import ipaddress
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from starlette.types import ASGIApp

from nodewright.api.gate import Gate
from nodewright.api.listening import QuietServer, quiet_config
from nodewright.world.errors import WorldError

LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """Where to listen; port 0 is any that is free."""

    host: str = LOOPBACK
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`ADDRESS:PORT`, `PORT` or `ADDRESS`.

        >>> Address.parse("8080"), Address.parse("[::1]:80").host, Address.parse("127.0.0.2").port
        (Address(host='127.0.0.1', port=8080), '::1', 0)

        Errors: ValueError.
        """
        host, port = ("", text) if text.isascii() and text.isdigit() else (text, "")
        if text.count(":") == 1 or "]:" in text:
            host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or LOOPBACK
        if port and not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise ValueError(f"{text!r}: {port!r} is no port")
        try:
            ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
        except ValueError:
            raise ValueError(f"{text!r}: {host!r} is no address of this machine") from None
        return cls(LOOPBACK if host == "localhost" else host, int(port or 0))

    @property
    def is_loopback(self) -> bool:
        """Whether nobody reaches it but from this machine."""
        return ipaddress.ip_address(self.host).is_loopback


@asynccontextmanager
async def shown(
    inside: ASGIApp, address: Address, leave: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Gate, str]]:
    """The application, behind a gate, while this is entered; with what the links of the gate name as host.

    ``leave`` is called before the end: whoever follows something is to be told that there is no more.

    Errors: WorldError where somebody else listens there.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        place = f"{address.host}:{address.port}"
        raise WorldError("listen on", place, error.strerror or str(error)) from None
    gate = Gate(inside, listener.getsockname()[1], ("localhost", socket.gethostname()))
    is_any = ipaddress.ip_address(address.host).is_unspecified
    async with QuietServer(quiet_config(gate)).running(listener):
        try:
            yield gate, socket.gethostname() if is_any else address.host
        finally:
            leave()
