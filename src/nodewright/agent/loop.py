"""The agent's loop: it takes what is seen, decides, has it written down, and gives out works. It never waits while deciding."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol

from nodewright.agent.decide import decide, wake_at_ns
from nodewright.agent.ledger import Held, Ledger, Memory, may_go_first
from nodewright.agent.outcome import Decided
from nodewright.agent.perform import Performer
from nodewright.agent.timing import steady_ns
from nodewright.agent.values import (
    CancelWork,
    EndPod,
    Failure,
    Mind,
    Now,
    PodDone,
    PodSeen,
    PodWork,
    ReclaimNode,
    Rules,
    RuntimeSeen,
    Seen,
    SyncPod,
    Tell,
    Ticked,
    UsageSeen,
    Work,
    WriteGroups,
)
from nodewright.world.errors import WorldError
from nodewright.world.ports import Clock


class Ears(Protocol):
    """Those who want to know."""

    def tell(self, told: Tell) -> None:
        """Something that happened."""

    def decided(self, decided: Decided) -> None:
        """The mind has changed; what is to be told among the works is heard by this."""

    def reclaim(self, work: ReclaimNode) -> None:
        """The node is to give back what it can."""


class Turned(NamedTuple):
    """A turn, for those who count: what was seen, and what came of it.

    Units: nanoseconds.
    """

    before: Mind
    seen: Seen
    decided: Decided
    at_ns: int
    """When, on the steady clock."""
    took_ns: int
    """How long deciding took."""


NOT_KEPT = "StateNotKept"
_TURNS_TO_SIGNAL = 10
"""So often others have a turn before the next decision when somebody is evicted: enough for a signal to be sent."""


class Loop:
    """Decides, one observation after the other."""

    def __init__(
        self, mind: Mind, performer: Performer, memory: Memory, ears: Ears, clock: Clock, rules: Rules
    ) -> None:
        self.mind, self.performer, self.ears = mind, performer, ears
        self.clock, self.rules = clock, rules
        self._seen: list[tuple[int, int, Seen]] = []
        self._numbers, self._wake = count(), asyncio.Event()
        self.ledger = Ledger(memory, self._pass_on, self._wake.set)
        self.ledger.on_error = partial(self._warn, NOT_KEPT)
        self.has_begun = False
        """Whether it is known what runs, and the groups of all pods are there."""
        self._is_closing = False
        self.on_turn: Callable[[Turned], None] = lambda _: None
        """Hears of every turn when it has been decided."""
        performer.report, performer.tell = self.see, ears.tell

    @property
    def is_quiet(self) -> bool:
        """Whether all that was seen has been decided on, kept and passed on."""
        return not self._seen and self.ledger.is_empty

    @property
    def waiting(self) -> int:
        """How much was seen and is not decided on yet."""
        return len(self._seen)

    def see(self, seen: Seen) -> None:
        """Take an observation; it is looked at when its turn comes."""
        # Whoever takes the node's memory does not wait for pods that come and go.
        rank = 0 if isinstance(seen, UsageSeen) else 1
        heappush(self._seen, (rank, next(self._numbers), seen))
        self._wake.set()

    async def run(self) -> None:
        """Decide until it is cancelled."""
        watcher = asyncio.create_task(self._watch())
        try:
            # Nothing is decided before it is known what runs.
            self.turn(await self._everything())
            while True:
                is_urgent = self.turn(await self._next())
                for _ in range(_TURNS_TO_SIGNAL if is_urgent else 1):
                    await asyncio.sleep(0)
        finally:
            await self._close(watcher)

    def turn(self, seen: Seen) -> bool:
        """One observation: decide, have it kept, give out; whether something was given out before all else."""
        now = Now(self.clock.now_ns(), steady_ns(self.clock))
        before, began_s = self.mind, self.clock.monotonic_s()
        decided = decide(before, seen, now, self.rules)
        took_ns = round((self.clock.monotonic_s() - began_s) * 10**9)
        self.mind = decided.mind
        first = tuple(work for work in decided.works if may_go_first(work, self.mind))
        for work in first:
            self._give_first(work)
        self.ledger.add(Held(decided, tuple(work for work in decided.works if work not in first)))
        self.has_begun = True
        self.on_turn(Turned(before, seen, decided, now.steady_ns, took_ns))
        return any(isinstance(work, EndPod | CancelWork) for work in first)

    async def _next(self) -> Seen:
        """What is seen next; when nothing is, the tick at which something is due."""
        while True:
            self._wake.clear()
            self.ledger.look()
            if self._seen:
                return heappop(self._seen)[-1]
            if await self._is_due():
                return Ticked()

    async def _is_due(self) -> bool:
        """Wait until there is something to look at; whether it is only that time has passed."""
        moment = wake_at_ns(self.mind)
        if moment is None:
            await self._wake.wait()
            return False
        left_s = moment / 10**9 - self.clock.monotonic_s()
        woken = asyncio.ensure_future(self._wake.wait())
        timer = asyncio.ensure_future(self.clock.sleep(max(left_s, 0.001)))
        try:
            await asyncio.wait({woken, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            timer.cancel()
        return not self._wake.is_set()

    async def _close(self, watcher: "asyncio.Task[None]") -> None:
        """What was decided is kept, and nothing more is given out."""
        self._is_closing = True
        try:
            await self.ledger.close()
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await self.performer.close()

    async def _everything(self) -> RuntimeSeen:
        """All that the runtime holds, as soon as it says so."""
        while True:
            asked_ns = steady_ns(self.clock)
            try:
                return RuntimeSeen(await self.performer.runtime.pods(), asked_ns)
            except (WorldError, TimeoutError) as error:
                self._unavailable(error)
            await self.clock.sleep(1)

    async def _watch(self) -> None:
        """Look at every pod in which the runtime saw something change."""
        while True:
            try:
                async for uid in self.performer.runtime.changes():
                    await self._look(uid)
            except (WorldError, TimeoutError) as error:
                self._unavailable(error)
            await self.clock.sleep(1)
            # Whatever changed meanwhile, nobody has told.
            self.see(await self._everything())

    def _unavailable(self, error: Exception) -> None:
        self._warn("RuntimeUnavailable", str(error))

    async def _look(self, uid: str) -> None:
        asked_ns = steady_ns(self.clock)
        if uid:
            self.see(PodSeen(uid, await self.performer.runtime.pod(uid), asked_ns))
        else:
            self.see(RuntimeSeen(await self.performer.runtime.pods(), asked_ns))

    # ------------------------------------------------------------ works

    def _pass_on(self, held: Held) -> None:
        """What is kept, or need not be, is told and given out."""
        # First of all: what is told in a moment may concern a pod that has just come.
        self.ears.decided(held.decided)
        for work in held.works:
            if not self._is_closing:
                self._give(work)

    def _give_first(self, work: Work) -> None:
        """Give out what does not wait; it may end what waits."""
        withdrawn = self.ledger.withdraw(work.uid) if isinstance(work, CancelWork) else None
        if withdrawn is None:
            self._give(work)
        else:
            self._undone(withdrawn, is_cancelled=True)

    def _give(self, work: Work) -> None:
        match work:
            case WriteGroups():
                for failure in self.performer.write_groups(work):
                    self._warn(failure.reason, failure.message)
            case SyncPod() if self.ledger.error:
                # Nothing starts that would be forgotten if we died now.
                self._undone(work, Failure(reason=NOT_KEPT, message=self.ledger.error))
            case ReclaimNode():
                self.ears.reclaim(work)
            case Tell():
                # Whoever heard what was decided has told it, with all that follows from the rest.
                pass
            case _:
                self.performer.give(work)

    def _undone(self, work: PodWork, *failures: Failure, is_cancelled: bool = False) -> None:
        """Work for a pod that was not even begun with."""
        known = self.mind.pods[work.uid]
        self.see(
            PodDone(
                uid=work.uid,
                work=work,
                facts=known.facts,
                asked_ns=known.asked_ns,
                failures=failures,
                is_cancelled=is_cancelled,
            )
        )

    def _warn(self, reason: str, message: str) -> None:
        self.ears.tell(Tell(uid="", is_warning=True, reason=reason, message=message))
