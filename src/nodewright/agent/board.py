"""What people can look at: what the agent knows now, and what happened lately."""

import asyncio
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from nodewright.agent.happenings import Happening
from nodewright.agent.news import news
from nodewright.agent.outcome import Decided
from nodewright.agent.values import Mind, PodRecord, ReclaimNode, Tell
from nodewright.world.ports import Clock

MOST_HAPPENINGS = 1000
FORGOTTEN_AFTER_NS = 3600 * 10**9
"""As long as the API server keeps events."""


class Board:
    """Fulfils the loop's Ears, and passes on what it hears to those who have to act on it."""

    def __init__(self, mind: Mind, clock: Clock) -> None:
        self.mind = mind
        self.on_reclaim: Callable[[ReclaimNode], None] = lambda _: None
        self.on_tell: Callable[[Tell, str], None] = lambda _told, _name: None
        """Gets what happened, and to whom: `namespace/name`, or empty for the node."""
        self.on_decided: Callable[[Decided], None] = lambda _: None
        self._clock = clock
        self._since_ns = clock.now_ns()
        self._before: Mapping[str, PodRecord] = {}
        self._happenings: dict[tuple[str, str, str], Happening] = {}
        self._count = 0
        self._turned = asyncio.Event()
        self.is_closed = False
        """Whether nothing will be told any more: whoever follows is to leave."""

    def tell(self, told: Tell) -> None:
        """Something happened."""
        record = self.mind.pods.get(told.uid) or self._before.get(told.uid)
        metadata = record.pod.metadata if record is not None else None
        now_ns, key = self._clock.now_ns(), (told.uid, told.reason, told.message)
        old = self._happenings.pop(key, None)
        if old is not None:
            new = replace(old, count=old.count + 1, last_ns=now_ns)
        else:
            self._count += 1
            new = Happening(
                number=self._count,
                uid=told.uid,
                namespace=(metadata.namespace or "default") if metadata is not None else "default",
                name=metadata.name if metadata is not None else "",
                is_warning=told.is_warning,
                reason=told.reason,
                message=told.message,
                first_ns=now_ns,
                last_ns=now_ns,
            )
        # What was told last stands last: the first is always the oldest.
        self._happenings[key] = new
        self._tidy(now_ns)
        self.on_tell(told, f"{new.namespace}/{new.name}" if new.name else "")
        self._wake()

    def decided(self, decided: Decided) -> None:
        """The mind has changed."""
        self._before, self.mind = self.mind.pods, decided.mind
        self.on_decided(decided)
        for told in news(self._before, self.mind.pods, decided.works, self._since_ns):
            self.tell(told)
        self._wake()

    def reclaim(self, work: ReclaimNode) -> None:
        """The node is to give something back."""
        self.on_reclaim(work)

    def happenings(self) -> tuple[Happening, ...]:
        """What happened lately, the oldest first."""
        return tuple(self._happenings.values())

    def turn(self) -> asyncio.Event:
        """Is set as soon as something has changed after this call."""
        return self._turned

    def close(self) -> None:
        """Nothing will be told any more."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._turned.set()
        self._turned = asyncio.Event()

    def _tidy(self, now_ns: int) -> None:
        while self._happenings:
            oldest = next(iter(self._happenings))
            is_old = self._happenings[oldest].last_ns < now_ns - FORGOTTEN_AFTER_NS
            if not is_old and len(self._happenings) <= MOST_HAPPENINGS:
                return
            del self._happenings[oldest]
