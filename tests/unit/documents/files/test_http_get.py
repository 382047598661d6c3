"""GET requests whose time runs out, at a moment that the test chooses."""

import asyncio

import pytest

from nodewright.cluster.client.http_get import HTTPFailure, HTTPRequest, http_get

REQUEST = HTTPRequest.from_url("http://127.0.0.1/health", {})
HEADERS = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"


class NoWriter:
    """A connection that takes all that is written to it."""

    def __init__(self) -> None:
        self.transport = self

    def write(self, _: bytes) -> None: ...

    async def drain(self) -> None: ...

    def abort(self) -> None: ...


@pytest.mark.parametrize(
    ("received", "is_in_body", "doing"),
    [
        (b"", False, "(Client.Timeout exceeded while awaiting headers)"),
        (HEADERS[:20], False, "(Client.Timeout exceeded while awaiting headers)"),
        (HEADERS, True, "(Client.Timeout or context cancellation while reading body)"),
        (HEADERS + b"abc", True, "(Client.Timeout or context cancellation while reading body)"),
    ],
)
def test_the_error_says_what_took_too_long(
    monkeypatch: pytest.MonkeyPatch, received: bytes, is_in_body: bool, doing: str
) -> None:
    async def connected(*_: object, **__: object) -> tuple[asyncio.StreamReader, NoWriter]:
        # What is received is there at once, however loaded the machine is; the rest never comes.
        reader = asyncio.StreamReader()
        reader.feed_data(received)
        return reader, NoWriter()

    monkeypatch.setattr(asyncio, "open_connection", connected)
    failure = asyncio.run(http_get(REQUEST, 0.01))
    assert failure == HTTPFailure(f"context deadline exceeded {doing}", is_in_body=is_in_body)
