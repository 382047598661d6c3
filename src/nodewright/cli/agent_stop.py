"""How an agent is asked to end."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def stop_asked() -> asyncio.Event:
    """Is set when the agent is asked to end; asked once more, it ends at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def ask(number: int) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(ask, number))
    return stop


async def unless(stop: asyncio.Event, doing: Coroutine[Any, Any, T]) -> T | None:
    """What comes of something that is given up when the agent is asked to end; None: it was."""
    asked, task = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(doing)
    try:
        await asyncio.wait({asked, task}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        asked.cancel()
        task.cancel()
        await asyncio.wait({asked, task})
