"""Time by a clock that may be a fake: when it is, and how long something takes."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from nodewright.world.ports import Clock


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
