"""The memory that connections and the C library keep."""

import asyncio
import ssl
import tracemalloc
from asyncio import sslproto

import pytest

from nodewright.agent.runtimes.simulated import FakeClock
from nodewright.documents.files import process_tuning as free_memory


def test_a_tls_connection_keeps_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    free_memory.limit_tls_buffers()

    async def connection_bytes() -> int:
        loop, context = asyncio.get_running_loop(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        tracemalloc.start()
        try:
            protocol = sslproto.SSLProtocol(loop, asyncio.Protocol(), context, loop.create_future())
            protocol._app_transport._closed = True  # It was never opened.
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert asyncio.run(connection_bytes()) < 2 * free_memory.TLS_BUFFER_BYTES


def test_free_memory_is_returned_in_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = []
    monkeypatch.setattr(free_memory, "return_free_memory", lambda: returned.append(1))

    async def run() -> None:
        clock = FakeClock()
        task = asyncio.create_task(free_memory.return_memory_regularly(clock))
        await asyncio.sleep(0)
        for _ in range(3):
            await clock.advance(free_memory.RETURN_PERIOD_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert len(returned) == 3
