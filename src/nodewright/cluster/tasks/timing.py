"""Time by a clock that may be a fake: the current time, the duration of operations, and their limits."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar


class HostClock:
    """Fulfils the port `Clock`."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970 by the wall clock, which may jump."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits for that long."""
        await asyncio.sleep(max(0.0, seconds))


class Clock(Protocol):
    """Wall clock and monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970 by the wall clock, which may jump."""

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""

    async def sleep(self, seconds: float) -> None:
        """Waits for that long."""


T = TypeVar("T")


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
