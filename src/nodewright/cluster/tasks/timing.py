"""Time by a clock that may be a fake: the current time, the duration of operations, and of garbage collections."""

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from nodewright.cluster.tasks.timing import Clock

T = TypeVar("T")
_OLDEST_GENERATION = 2


class ThreadRunner(Protocol):
    """Runs a blocking function without blocking the event loop."""

    async def __call__(self, operation: Callable[[], T], /) -> T:
        """The function's result."""


def monotonic_ns(clock: Clock) -> int:
    """The monotonic clock's time.

    Units: nanoseconds.
    """
    return round(clock.monotonic_s() * 10**9)


async def elapsed_s(clock: Clock, operation: Coroutine[Any, Any, Any], limit_s: float) -> float:
    """The duration of an operation, which is cancelled at the limit."""
    started_s = clock.monotonic_s()
    task = asyncio.ensure_future(operation)
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pending in (task, timer):
            pending.cancel()
    return clock.monotonic_s() - started_s


async def with_timeout(clock: Clock, name: str, operation: Coroutine[Any, Any, T], limit_s: float) -> T:
    """The result of an operation with a time limit.

    Errors: TimeoutError, which names the operation.
    """
    task = asyncio.ensure_future(operation)
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError(f"{name}: no answer within {limit_s:g} s")
        return task.result()
    finally:
        for pending in (task, timer):
            pending.cancel()


async def gather_all(operations: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all operations to their end, then raises the first error, if any."""
    tasks = [asyncio.ensure_future(operation) for operation in operations]
    try:
        results = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    for result in results:
        if isinstance(result, BaseException):
            raise result


class ShortCollections:
    """Keeps Python's garbage collections short: what survives a full one is not examined again for an hour.

    With 10,000 pods, a full collection takes a third of a second, in which nothing else runs.
    """

    PERIOD_S = 3600.0
    THRESHOLDS = (700, 10, 10)
    """Python's own: many collections, each of few objects, where a command makes few collections of many."""
    LATENCY_THRESHOLDS = (700, 2, 10)

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, generation: int = _OLDEST_GENERATION
    ) -> None:
        """``generation``: that of the collections whose survivors are set aside.

        With 1 no collection examines more than some thousand objects, once in a period excepted. This is for processes
        that keep what they make and have few connections, because one that is open at such a collection is freed only
        at the end of the period after it has ended.
        """
        self._clock, self._generation = clock, generation
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
        self._examines_all = not self._examines_all and self._clock() - self._since_s >= self.PERIOD_S
        if self._examines_all:
            gc.unfreeze()
            self._since_s = self._clock()
        else:
            gc.freeze()
