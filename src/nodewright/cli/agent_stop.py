"""How an agent is asked to end."""

import asyncio
import signal
import sys
from functools import partial


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
