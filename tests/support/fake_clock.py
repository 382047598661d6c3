"""A clock that a test advances."""

import asyncio


class FakeClock:
    """A clock that is advanced by hand."""

    def __init__(self, now_ns: int = 1_800_000_000 * 10**9) -> None:
        self._start_ns = now_ns
        self._elapsed_ns = 0
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        """Nanoseconds since 1970."""
        return self._start_ns + self._elapsed_ns

    def monotonic_s(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_ns / 10**9

    async def sleep(self, seconds: float) -> None:
        """Waits until the clock was advanced by so much."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waker = asyncio.get_running_loop().create_future()
        sleeper = (self._elapsed_ns + round(seconds * 10**9), waker)
        self._sleepers.append(sleeper)
        try:
            await waker
        except asyncio.CancelledError:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
            raise

    def jump(self, seconds: float) -> None:
        """Changes the time of day, not the monotonic clock."""
        self._start_ns += round(seconds * 10**9)

    async def advance(self, seconds: float) -> None:
        """Advances the clock; sleepers wake in the order of their times."""
        end_ns = self._elapsed_ns + round(seconds * 10**9)
        while due := sorted((at, n) for n, (at, _) in enumerate(self._sleepers) if at <= end_ns):
            at, number = due[0]
            self._elapsed_ns = max(self._elapsed_ns, at)
            _, waker = self._sleepers.pop(number)
            if not waker.done():
                waker.set_result(None)
            await settle()
        self._elapsed_ns = end_ns
        await settle()


async def settle(turns: int = 200) -> None:
    """Runs everything that can run now."""
    for _ in range(turns):
        await asyncio.sleep(0)
