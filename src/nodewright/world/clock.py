"""Time as this machine has it."""

import asyncio
import time


class HostClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970; may jump."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Come back after so long."""
        await asyncio.sleep(max(0.0, seconds))
