"""Returns free memory of this process to the system."""

import ctypes
from functools import cache


def return_free_memory() -> None:
    """Gives back what the C library has free; does nothing with libraries that cannot.

    The C library keeps what large buffers of connections have used, though rarely as much is needed again.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
