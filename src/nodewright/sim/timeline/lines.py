"""Amounts that grow and shrink along straight lines, exactly: when do they reach what?"""

from bisect import bisect_right

NANO = 10**9


class Line:
    """Bytes over time, straight between the moments at which it changes.

    Units: nanoseconds; rates in bytes a second, so that whole numbers (of billionths of a byte) are exact.
    """

    __slots__ = ("_nanobytes", "_times", "_values", "at_ns", "rate", "version")

    def __init__(self, start_bytes: int = 0) -> None:
        self.at_ns = 0
        self._nanobytes = start_bytes * NANO
        self.rate = 0
        self.version = 0
        """Goes up with each change, so that what was foretold before can be told from what holds."""
        self._times = [0]
        self._values = [(self._nanobytes, 0)]

    def bytes_at(self, now_ns: int) -> int:
        """What it comes to, rounded down; also at moments that have passed."""
        if now_ns >= self.at_ns:
            return (self._nanobytes + self.rate * (now_ns - self.at_ns)) // NANO
        place = max(bisect_right(self._times, now_ns) - 1, 0)
        value, rate = self._values[place]
        return (value + rate * (now_ns - self._times[place])) // NANO

    def nanobytes_at(self, now_ns: int) -> int:
        """The same as billionths of a byte, now or later."""
        return self._nanobytes + self.rate * (now_ns - self.at_ns)

    def change(self, now_ns: int, *, by_nanobytes: int = 0, by_rate: int = 0) -> None:
        """From now on, more by so much, and growing faster by so much."""
        self._nanobytes = self.nanobytes_at(now_ns) + by_nanobytes
        self.at_ns, self.rate, self.version = now_ns, self.rate + by_rate, self.version + 1
        if self._times[-1] == now_ns:
            self._values[-1] = (self._nanobytes, self.rate)
        else:
            self._times.append(now_ns)
            self._values.append((self._nanobytes, self.rate))

    def reaches_ns(self, limit_bytes: int) -> int | None:
        """The first whole nanosecond at which it comes to so much or more; None: never, as things stand."""
        missing = limit_bytes * NANO - self._nanobytes
        if missing <= 0:
            return self.at_ns
        return self.at_ns - (-missing // self.rate) if self.rate > 0 else None

    def empties_ns(self) -> int | None:
        """When nothing is left; None: it does not shrink."""
        return self.at_ns - (self._nanobytes // self.rate) if self.rate < 0 else None

    def corners(self, until_ns: int) -> list[tuple[int, int]]:
        """The moments of change with the bytes then, and the last moment: what a plot joins; jumps come twice."""
        found: list[tuple[int, int]] = []
        for place, at_ns in enumerate(self._times):
            if at_ns > until_ns:
                break
            value, _ = self._values[place]
            if place:
                before, rate = self._values[place - 1]
                came_to = before + rate * (at_ns - self._times[place - 1])
                if came_to != value:
                    found.append((at_ns, came_to // NANO))
            found.append((at_ns, value // NANO))
        if found[-1][0] < until_ns:
            found.append((until_ns, self.bytes_at(until_ns)))
        return found
