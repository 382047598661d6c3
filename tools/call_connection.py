"""A scheduler's connection to the extender, for loads: HTTP is read by hand, because that costs less than what it measures."""

import asyncio
import ssl

CALL_S = 60.0
"""How long an answer may take; then the load ends with an error."""


class CallConnection(asyncio.Protocol):
    """One connection to the extender: a call at a time."""

    def __init__(self) -> None:
        self._received, self._answer = b"", asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, port: int) -> "CallConnection":
        """A connection over TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, connection = await asyncio.get_running_loop().create_connection(
            cls, "127.0.0.1", port, ssl=context
        )
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the call."""
        self._end(f"the connection ended: {error}")

    def _end(self, text: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the extender did not answer: {text}"))

    def data_received(self, data: bytes) -> None:
        """Takes the answer when it is complete."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        if not separator:
            return
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), -1)
        if not lines[0].startswith(b"http/1.1 200 ") or length < 0:
            # Nothing that schedulers could go on from: the load ends.
            self._end(f"{lines[0].decode('ascii', 'replace')}: {body[:300]!r}")
            self._transport.close()
        elif len(body) >= length:
            self._received = b""
            self._answer.set_result(body)

    async def call(self, verb: str, body: bytes) -> bytes:
        """The answer to a call."""
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body)
        async with asyncio.timeout(CALL_S):
            answer: bytes = await self._answer
        return answer
