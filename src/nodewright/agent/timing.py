"""Time by a clock that may be a fake: when it is, and how long something takes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from nodewright.world.ports import Clock

T = TypeVar("T")


class Beside(Protocol):
    """A way to do something without holding up the loop."""

    async def __call__(self, doing: Callable[[], T], /) -> T:
        """What came of it."""


def steady_ns(clock: Clock) -> int:
    """The time on the clock that never goes backwards.

    Units: nanoseconds.
    """
    return round(clock.monotonic_s() * 10**9)


async def timed(clock: Clock, doing: Coroutine[Any, Any, Any], limit_s: float) -> float:
    """How long something took; it is cut off at the limit."""
    began = clock.monotonic_s()
    task = asyncio.ensure_future(doing)
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (task, timer):
            each.cancel()
    return clock.monotonic_s() - began


async def within(clock: Clock, what: str, doing: Coroutine[Any, Any, T], limit_s: float) -> T:
    """What comes of something that has so much time.

    Errors: TimeoutError, naming what took longer.
    """
    task = asyncio.ensure_future(doing)
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError(f"{what}: no answer within {limit_s:g} s")
        return task.result()
    finally:
        for each in (task, timer):
            each.cancel()


async def all_done(doing: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them, to the end; then the first error, if there was one."""
    tasks = [asyncio.ensure_future(one) for one in doing]
    try:
        found = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    for one in found:
        if isinstance(one, BaseException):
            raise one
