"""How often Python searches for garbage in cycles while very many objects are made that stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (1_000_000, 20, 100)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Within this context garbage collections are rarer: there are many new objects and hardly any cycles.

    A collection goes through what is kept again and again, and finds nothing to free.

    >>> with rare_collections():
    ...     gc.get_threshold()
    (1000000, 20, 100)
    """
    previous = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*previous)
