"""Answers in HTTP: what is read beside h11 is what h11 reads."""

import asyncio

import h11
from hypothesis import given
from hypothesis import strategies as st

from nodewright.cluster.client.http_connections import ClientConnection, HTTPError, WireRequest, whole_body

HEADERS = st.sampled_from(
    [
        b"Content-Type: application/json",
        b"content-length: 3",
        b"Content-Length: 3",
        b"Content-Length:0",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"X-A:",
        b"X-A: \ta b \t",
        b"Connection: close",
        b"Bad Name: x",
    ]
)
BODIES = st.sampled_from([b"", b"abc", b"abcdef", b"3\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n"])
STATUS = st.sampled_from([b"200 OK", b"404 Not Found", b"204 No Content", b"304 ", b"503 Busy now", b"99 x"])
Answer = tuple[int, dict[str, str], bytes] | str


class _Sink:
    """A writer whose bytes nobody needs."""

    def write(self, content: bytes) -> None:
        """Does nothing."""


async def _read(content: bytes, parts: list[int]) -> Answer:
    """What a connection makes of the bytes, which arrive in parts."""
    reader = asyncio.StreamReader()
    connection = ClientConnection(reader, _Sink())  # type: ignore[arg-type] # a writer only writes here
    feeding = asyncio.create_task(_feed(reader, content, parts))
    try:
        head = await connection.head(WireRequest(target="/", headers=[("Host", "a")]))
        body = await whole_body(connection.body(), 1000)
    except HTTPError:
        return "error"
    finally:
        await feeding
    return head.status, dict(head.headers), body


async def _feed(reader: asyncio.StreamReader, content: bytes, parts: list[int]) -> None:
    begin = 0
    for end in (*sorted(parts), len(content)):
        if end > begin:
            reader.feed_data(content[begin:end])
            begin = end
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    reader.feed_eof()


def _h11_reads(content: bytes) -> Answer:
    protocol = h11.Connection(h11.CLIENT)
    protocol.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    protocol.send(h11.EndOfMessage())
    protocol.receive_data(content)
    protocol.receive_data(b"")
    body, head = b"", None
    try:
        while not isinstance(event := protocol.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
    except h11.RemoteProtocolError:
        return "error"
    if head is None:
        return "error"
    headers: dict[str, str] = {}
    for name, value in head.headers:
        headers.setdefault(name.decode(), value.decode())
    return head.status_code, headers, body


@given(STATUS, st.lists(HEADERS, max_size=4), BODIES, st.lists(st.integers(0, 200), max_size=3))
def test_an_answer_is_read_as_h11_reads_it_however_it_arrives(
    status: bytes, headers: list[bytes], body: bytes, parts: list[int]
) -> None:
    content = b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"", body])
    assert asyncio.run(_read(content, parts)) == _h11_reads(content)
