"""How often somebody may ask."""

from nodewright.world.ports import Clock


class RateLimit:
    """Lets so many through each second, and a few more at once after a rest.

    Follows: golang.org/x/time v0.9, rate/rate.go, Limiter.Allow.
    """

    def __init__(self, clock: Clock, per_second: float, at_once: int) -> None:
        self._clock, self._per_second, self._at_once = clock, per_second, at_once
        self._left, self._asked_s = float(at_once), clock.monotonic_s()

    def allows(self) -> bool:
        """Whether one more may come through now."""
        now_s = self._clock.monotonic_s()
        self._left = min(self._at_once, self._left + (now_s - self._asked_s) * self._per_second)
        self._asked_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
