"""When the kubelet starts containers again that the kernel has ended."""

from nodewright.sim.timeline.agenda import Key
from nodewright.sim.timeline.setting import SECOND_NS

BACK_OFF_S = (0, 10, 20, 40, 80, 160, 300)
"""How long it waits before a container is started again for the first time, the second, and so on.

Follows: v1.36, pkg/kubelet/kubelet.go, initialCrashLoopBackOff and MaxCrashLoopBackOff.
"""
FORGIVEN_NS = 600 * SECOND_NS
"""After so long a run, it is as if the container had never ended."""


class Restarts:
    """What is remembered of containers that ended: when they last started, and how often they did."""

    def __init__(self) -> None:
        self.starts: dict[Key, int] = {}
        self._numbers: dict[Key, int] = {}

    def started(self, now_ns: int, key: Key) -> None:
        """The container runs again."""
        self.starts[key] = now_ns

    def next_ns(self, now_ns: int, key: Key) -> int:
        """When a container that ends now is started again."""
        if now_ns - self.starts.get(key, -FORGIVEN_NS) >= FORGIVEN_NS:
            self._numbers[key] = 0
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        return now_ns + BACK_OFF_S[min(number, len(BACK_OFF_S) - 1)] * SECOND_NS
