"""The machine's clocks."""

import asyncio
import time
from typing import Protocol


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
