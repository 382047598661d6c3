"""The agent's loop: it takes what is seen, decides, writes it down, and gives out works. It never waits while deciding."""

import asyncio
import contextlib
from typing import Protocol

from nodewright.agent.decide import decide, wake_at_ns
from nodewright.agent.outcome import Decided, Keeping
from nodewright.agent.perform import Performer
from nodewright.agent.timing import steady_ns
from nodewright.agent.values import (
    AskProbe,
    CancelWork,
    CleanPod,
    EndPod,
    Failure,
    Mind,
    Now,
    PodDone,
    PodSeen,
    ReclaimNode,
    Rules,
    RuntimeSeen,
    Seen,
    SyncPod,
    Tell,
    Ticked,
    TuneContainer,
    Work,
    WriteGroups,
)
from nodewright.world.errors import WorldError
from nodewright.world.ports import Clock


class Memory(Protocol):
    """What outlives the agent."""

    def keep(self, keeping: Keeping) -> None:
        """All of it is on the disk when this returns, or nothing.

        Errors: WorldError.
        """


class Ears(Protocol):
    """Those who want to know."""

    def tell(self, told: Tell) -> None:
        """Something that happened."""

    def decided(self, decided: Decided) -> None:
        """The mind has changed."""

    def reclaim(self, work: ReclaimNode) -> None:
        """The node is to give back what it can."""


_TURNS_TO_SIGNAL = 10
"""So often others have a turn before the disk is written to: enough for a signal to be sent."""


class Loop:
    """Decides, one observation after the other."""

    def __init__(
        self, mind: Mind, performer: Performer, memory: Memory, ears: Ears, clock: Clock, rules: Rules
    ) -> None:
        self.mind, self.performer, self.memory, self.ears = mind, performer, memory, ears
        self.clock, self.rules = clock, rules
        self.queue: asyncio.Queue[Seen] = asyncio.Queue()
        self._owed: Keeping | None = None
        """What the disk has not taken yet."""
        self._rest: tuple[Decided, tuple[Work, ...]] | None = None
        """What was decided and is neither kept nor given out yet."""
        self._unkept = ""
        """Why the disk does not take what has to be kept; while it does not, nothing new is started."""
        performer.report, performer.tell = self.see, ears.tell

    def see(self, seen: Seen) -> None:
        """Take an observation; it is looked at when its turn comes."""
        self.queue.put_nowait(seen)

    async def run(self) -> None:
        """Decide until it is cancelled."""
        watcher = asyncio.create_task(self._watch())
        try:
            # Nothing is decided before it is known what runs.
            self.turn(await self._everything())
            while True:
                self.turn(await self._next())
                if self._rest is not None:
                    for _ in range(_TURNS_TO_SIGNAL):
                        await asyncio.sleep(0)
                    self._finish()
        finally:
            self._finish()
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await self.performer.close()

    def turn(self, seen: Seen) -> None:
        """One observation: decide, write down, give out."""
        self._finish()
        now = Now(self.clock.now_ns(), steady_ns(self.clock))
        decided = decide(self.mind, seen, now, self.rules)
        self.mind = decided.mind
        urgent = [
            work for work in decided.works if isinstance(work, EndPod) and work.uid in self.mind.leaving
        ]
        # Who is evicted does not wait for the disk, which may be busy for the very same reason.
        for work in urgent:
            self._give(work)
        self._rest = decided, tuple(work for work in decided.works if work not in urgent)
        if not urgent:
            self._finish()

    def _finish(self) -> None:
        """Write down what was decided, and give out what is left of it."""
        if self._rest is None:
            return
        (decided, works), self._rest = self._rest, None
        self._keep(decided.keeping)
        # First of all: what is told in a moment may concern a pod that has just come.
        self.ears.decided(decided)
        for work in works:
            self._give(work)

    async def _next(self) -> Seen:
        """What is seen next; when nothing is, the tick at which something is due."""
        moment = wake_at_ns(self.mind)
        if moment is None or not self.queue.empty():
            return await self.queue.get()
        left_s = moment / 10**9 - self.clock.monotonic_s()
        getting = asyncio.ensure_future(self.queue.get())
        timer = asyncio.ensure_future(self.clock.sleep(max(left_s, 0.001)))
        try:
            await asyncio.wait({getting, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            if not getting.done():
                getting.cancel()
        return getting.result() if getting.done() and not getting.cancelled() else Ticked()

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
        told = Tell(uid="", is_warning=True, reason="RuntimeUnavailable", message=str(error))
        self.ears.tell(told)

    async def _look(self, uid: str) -> None:
        asked_ns = steady_ns(self.clock)
        if uid:
            self.see(PodSeen(uid, await self.performer.runtime.pod(uid), asked_ns))
        else:
            self.see(RuntimeSeen(await self.performer.runtime.pods(), asked_ns))

    def _give(self, work: Work) -> None:
        match work:
            case WriteGroups():
                for failure in self.performer.write_groups(work):
                    told = Tell(uid="", is_warning=True, reason=failure.reason, message=failure.message)
                    self.ears.tell(told)
            case SyncPod() if self._unkept:
                # Nothing starts that would be forgotten if we died now.
                failure = Failure(reason="StateNotKept", message=self._unkept)
                known = self.mind.pods[work.uid]
                done = PodDone(
                    uid=work.uid, work=work, facts=known.facts, asked_ns=known.asked_ns, failures=(failure,)
                )
                self.see(done)
            case SyncPod() | EndPod() | CleanPod() | CancelWork() | TuneContainer() | AskProbe():
                self.performer.give(work)
            case ReclaimNode():
                self.ears.reclaim(work)
            case Tell():
                self.ears.tell(work)

    def _keep(self, keeping: Keeping) -> None:
        """Keep what has changed, with all that could not be kept before."""
        owed = keeping if self._owed is None else self._owed.then(keeping)
        if owed.is_nothing:
            return
        try:
            self.memory.keep(owed)
        except WorldError as error:
            if not self._unkept:
                self.ears.tell(Tell(uid="", is_warning=True, reason="StateNotKept", message=str(error)))
            self._owed, self._unkept = owed, str(error)
        else:
            self._owed, self._unkept = None, ""
