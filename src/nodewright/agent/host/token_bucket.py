"""A limit on how often something is done."""


class TokenBucket:
    """Permits up to ``burst`` at once, and ``rate`` a second in the long run.

    Follows: v1.36, client-go/util/flowcontrol/throttle.go, tokenBucketRateLimiter; golang.org/x/time v0.9,
        rate/rate.go, Limiter.Allow.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at_s = float(burst), float("-inf")

    def delay_s(self, now_s: float) -> float:
        """How long until the next one is permitted; 0: now."""
        if now_s > self._at_s:
            gained = (now_s - self._at_s) * self._rate
            self._tokens, self._at_s = min(self._burst, self._tokens + gained), now_s
        # Sums of fractions may be slightly below a whole.
        return max(0.0, (1 - self._tokens) / self._rate) if self._tokens < 1 - 1e-9 else 0.0

    def take(self, now_s: float) -> bool:
        """Takes one, if one is permitted now."""
        is_permitted = self.delay_s(now_s) == 0
        if is_permitted:
            self._tokens -= 1
        return is_permitted
