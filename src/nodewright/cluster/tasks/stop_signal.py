"""The end of a server: the signals that ask for it."""

import asyncio
import signal
import sys
from functools import partial


def stop_event() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; a second signal exits at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def request_stop(number: int) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(request_stop, number))
    return stop
