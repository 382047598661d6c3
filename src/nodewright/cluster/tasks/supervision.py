"""Isolates the tasks of a process that stays: one that fails is reported, and started again or given up alone."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import PurePath
from traceback import extract_tb
from typing import Any, NamedTuple

from nodewright.cluster.tasks.timing import Clock
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.runtime_status import RecordEvent

_MIN_DELAY_S, _MAX_DELAY_S = 1.0, 60.0
_MAX_TEXT, _MAX_TEXTS = 500, 100
STATE_NOT_SAVED = "StateNotKept"
"""The reason of the event while the state cannot be written."""
_EXPECTED = (HostError, InputError, TimeoutError)


class BackgroundTask(NamedTuple):
    """A task of the agent that runs until it is cancelled."""

    name: str
    """What it does, for messages: `watch the manifests in /etc/pods`."""
    run: Callable[[], Coroutine[Any, Any, None]]


def error_text(error: BaseException) -> str:
    """An error in one line: as it is, if operations on the host raise it; otherwise with its type and place.

    >>> error_text(KeyError("name"))
    "unexpected KeyError: 'name'"
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = "; ".join(str(error).splitlines())[:_MAX_TEXT]
    if isinstance(error, _EXPECTED):
        return text
    frames = extract_tb(error.__traceback__)
    place = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"unexpected {type(error).__name__}: {text}{place}"


async def run_supervised(
    task: BackgroundTask, record_event: Callable[[RecordEvent], None], clock: Clock
) -> None:
    """Runs a task until it ends or is cancelled; after an error it is run again, with a growing delay."""
    delay_s = _MIN_DELAY_S
    while True:
        started_s = clock.monotonic_s()
        try:
            await task.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other tasks go on
            if clock.monotonic_s() - started_s > _MAX_DELAY_S:
                delay_s = _MIN_DELAY_S
            message = f"{task.name}: {error_text(error)}; next attempt in {delay_s:g} s"
            record_event(RecordEvent(uid="", is_warning=True, reason="TaskFailed", message=message))
        else:
            return
        await clock.sleep(delay_s)
        delay_s = min(2 * delay_s, _MAX_DELAY_S)


class LoopErrors:
    """Records the errors that reach the event loop, each message once a minute: a callback may fail without end."""

    def __init__(self, record_event: Callable[[RecordEvent], None], clock: Clock) -> None:
        self._record_event, self._clock = record_event, clock
        self._recorded_at_s: dict[str, float] = {}

    def __call__(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Takes what `asyncio.loop.set_exception_handler` passes on."""
        error, now_s = context.get("exception"), self._clock.monotonic_s()
        text = f"{context.get('message', '')}: {error_text(error) if error is not None else ''}".rstrip(": ")
        if now_s - self._recorded_at_s.get(text, -_MAX_DELAY_S) < _MAX_DELAY_S:
            return
        if len(self._recorded_at_s) >= _MAX_TEXTS:
            self._recorded_at_s.clear()
        self._recorded_at_s[text] = now_s
        self._record_event(RecordEvent(uid="", is_warning=True, reason="TaskFailed", message=text))


def report_failure(task: "asyncio.Task[Any]", name: str, record_event: Callable[[RecordEvent], None]) -> None:
    """Records the error of a task, if it ends with one."""

    def on_end(ended: "asyncio.Task[Any]") -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            message = f"{name}: {error_text(error)}"
            record_event(RecordEvent(uid="", is_warning=True, reason="TaskFailed", message=message))

    task.add_done_callback(on_end)


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
