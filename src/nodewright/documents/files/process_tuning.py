"""What tunes a process: when Python searches for garbage, and what the C library gives back. docs/decisions/0043 has the figures.

Python's collector walks through what is kept to find cycles that nothing uses. Most of our processes keep what they
make and hardly make cycles, so each of them collects in its own way. A command collects nothing until its module is
loaded (`pause_collections`, `resume_collections`), and rarely while it reads many objects (`rare_collections`). Agent
and extender set aside what has survived, so that no collection stops them for long (`ShortCollections`). An exporter
frees closed connections every few seconds (`collect_connections`).
"""

import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

COMMAND_THRESHOLDS = (100_000, 20, 100)
"""What a command reads and decides stays until it ends, so it is rarely searched for garbage."""
_READING_THRESHOLDS = (1_000_000, 20, 100)
_EXPORTER_THRESHOLDS = (200, 5, 5)
_EXPORTER_PERIOD_S = 5.0
RETURN_PERIOD_S = 30.0
_OLDEST_GENERATION = 2


def pause_collections() -> None:
    """Ends collections until `resume_collections`: what imports create is rarely garbage."""
    gc.disable()


def resume_collections() -> None:
    """Sets aside what a command has imported, and collects rarely; nothing where collections are not paused."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*COMMAND_THRESHOLDS)
        gc.enable()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Within this context garbage collections are rarer: there are many new objects and hardly any cycles.

    >>> with rare_collections():
    ...     gc.get_threshold()
    (1000000, 20, 100)
    """
    previous = gc.get_threshold()
    gc.set_threshold(*_READING_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*previous)


class ShortCollections:
    """Keeps Python's garbage collections short: what survives a full one is not examined again for a period.

    With 10,000 pods, a full collection takes a third of a second, in which nothing else runs.
    """

    PERIOD_S, LATENCY_PERIOD_S = 3600.0, 86_400.0
    """Of 2,000 nodes and their exports an extender keeps 900,000 objects: to examine all of them stops it for 0.4 s."""
    THRESHOLDS = (700, 10, 10)
    """Python's own: many collections, each of few objects, where a command makes few collections of many."""
    LATENCY_THRESHOLDS = (700, 2, 10)

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, generation: int = _OLDEST_GENERATION
    ) -> None:
        """``generation``: that of the collections whose survivors are set aside.

        With 1 no collection examines more than some thousand objects, once in a period excepted. This is for processes
        that keep what they make and end few connections: one that is open at such a collection leaves 7 objects, and
        with HTTP served on it 35, until the end of the period, which is then a day.
        """
        self._clock, self._generation = clock, generation
        self._period_s = self.PERIOD_S if generation == _OLDEST_GENERATION else self.LATENCY_PERIOD_S
        self._since_s = clock()
        self._examines_all = False

    def install(self) -> None:
        """Follows the collections of this process."""
        is_oldest = self._generation == _OLDEST_GENERATION
        gc.set_threshold(*(self.THRESHOLDS if is_oldest else self.LATENCY_THRESHOLDS))
        gc.callbacks.append(self.on_collection)

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Sets the survivors of a collection aside; once in a period, all of them take part in the next full one again."""
        is_full = info["generation"] == _OLDEST_GENERATION
        if phase != "stop" or info["generation"] < self._generation or (self._examines_all and not is_full):
            return
        self._examines_all = not self._examines_all and self._clock() - self._since_s >= self._period_s
        if self._examines_all:
            gc.unfreeze()
            self._since_s = self._clock()
        else:
            gc.freeze()


async def collect_connections(sleep: Callable[[float], Awaitable[None]]) -> None:
    """Frees the closed connections of an exporter, until it is cancelled.

    What was loaded before stays and is not searched. Each closed connection leaves a cycle with buffers of 256 KiB; few
    other objects are searched, so a collection takes a millisecond.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_EXPORTER_THRESHOLDS)
    while True:
        await sleep(_EXPORTER_PERIOD_S)
        gc.collect()
        return_free_memory()


async def return_memory_regularly(sleep: Callable[[float], Awaitable[None]]) -> None:
    """Gives back what the C library has free, until it is cancelled: starts of many pods free more than is used later."""
    while True:
        await sleep(RETURN_PERIOD_S)
        return_free_memory()


def return_free_memory() -> None:
    """Gives back what the C library has free; does nothing with libraries that cannot.

    The C library keeps what large buffers of connections have used, though rarely as much is needed again.
    `malloc_trim` is documented by the GNU C library, malloc(3).
    """
    import ctypes  # noqa: PLC0415 - commands need none of it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
