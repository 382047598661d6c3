"""Keeps the memory of this process small."""

import ctypes
from asyncio import sslproto
from functools import cache

from nodewright.cluster.tasks.timing import Clock

RETURN_PERIOD_S = 30.0
TLS_BUFFER_BYTES = 32 << 10
"""Room for two records of TLS."""


def limit_tls_buffers() -> None:
    """Lets each TLS connection that is opened from now on keep a read buffer of two records.

    Python's own has 256 KiB, which an agent with many watches would hold for each of them; longer answers are read in
    more parts.
    """
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def return_free_memory() -> None:
    """Gives back what the C library has free; does nothing with libraries that cannot.

    The C library keeps what large buffers of connections have used, though rarely as much is needed again.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


async def return_memory_regularly(clock: Clock) -> None:
    """Gives back what the C library has free, until it is cancelled: starts of many pods free more than is used later."""
    while True:
        await clock.sleep(RETURN_PERIOD_S)
        return_free_memory()


@cache
def _trim() -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
