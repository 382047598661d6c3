"""The agent's loop: it takes what is seen, decides, writes it down, and gives out works. It never waits while deciding."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from nodewright.agent.decide import decide, wake_at_ns
from nodewright.agent.perform import Performer
from nodewright.agent.values import (
    AskProbe,
    CancelWork,
    CleanPod,
    Decided,
    EndPod,
    Failure,
    ForgetPod,
    KeepHoldings,
    KeepPod,
    Mind,
    Now,
    PodDone,
    PodRecord,
    PodSeen,
    ReclaimNode,
    Rules,
    Seen,
    Stepped,
    SyncPod,
    Tell,
    Ticked,
    TuneContainer,
    Work,
    WriteGroups,
)
from nodewright.node.state import NodeState
from nodewright.world.errors import WorldError
from nodewright.world.ports import Clock


class Memory(Protocol):
    """What outlives the agent. Each operation is done, to the disk, when it returns.

    Errors: WorldError.
    """

    def journal(self, stepped: tuple[Stepped, ...]) -> None:
        """Write down what went into `step`."""

    def keep(self, record: PodRecord) -> None:
        """Keep a pod and what is known of it."""

    def forget(self, uid: str) -> None:
        """A pod is gone for good."""

    def keep_holdings(self, node: NodeState) -> None:
        """Keep who holds what, in the kubelet's files."""


class Ears(Protocol):
    """Those who want to know."""

    def tell(self, told: Tell) -> None:
        """Something that happened."""

    def decided(self, decided: Decided) -> None:
        """The mind has changed."""

    def reclaim(self, work: ReclaimNode) -> None:
        """The node is to give back what it can."""


class Loop:
    """Decides, one observation after the other."""

    def __init__(
        self, mind: Mind, performer: Performer, memory: Memory, ears: Ears, clock: Clock, rules: Rules
    ) -> None:
        self.mind, self.performer, self.memory, self.ears = mind, performer, memory, ears
        self.clock, self.rules = clock, rules
        self.queue: asyncio.Queue[Seen] = asyncio.Queue()
        self._owed: list[Callable[[], None]] = []
        self._unkept = ""
        """Why the disk does not take what has to be kept; while it does not, nothing new is started."""
        performer.report = self.see

    def see(self, seen: Seen) -> None:
        """Take an observation; it is looked at when its turn comes."""
        self.queue.put_nowait(seen)

    async def run(self) -> None:
        """Decide until it is cancelled."""
        watcher = asyncio.create_task(self._watch())
        try:
            while True:
                self.turn(await self._next())
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await self.performer.close()

    def turn(self, seen: Seen) -> None:
        """One observation: decide, write down, give out."""
        now = Now(self.clock.now_ns(), round(self.clock.monotonic_s() * 10**9))
        decided = decide(self.mind, seen, now, self.rules)
        self.mind = decided.mind
        self._kept(lambda: self.memory.journal(decided.stepped))
        for work in decided.works:
            self._give(work)
        self.ears.decided(decided)

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

    async def _watch(self) -> None:
        """Look at every pod in which the runtime saw something change."""
        while True:
            try:
                async for uid in self.performer.runtime.changes():
                    await self._look(uid)
            except (WorldError, TimeoutError) as error:
                message = str(error)
                self.ears.tell(Tell(uid="", is_warning=True, reason="RuntimeUnavailable", message=message))
            await self.clock.sleep(1)

    async def _look(self, uid: str) -> None:
        runtime = self.performer.runtime
        uids = [uid] if uid else list(self.mind.pods)
        for each in uids:
            self.see(PodSeen(each, await runtime.pod(each)))

    def _give(self, work: Work) -> None:
        match work:
            case KeepPod(record):
                self._kept(lambda: self.memory.keep(record))
            case ForgetPod(uid):
                self._kept(lambda: self.memory.forget(uid))
            case KeepHoldings(node):
                self._kept(lambda: self.memory.keep_holdings(node))
            case WriteGroups():
                for failure in self.performer.write_groups(work):
                    told = Tell(uid="", is_warning=True, reason=failure.reason, message=failure.message)
                    self.ears.tell(told)
            case SyncPod() if self._unkept:
                # Nothing starts that would be forgotten if we died now.
                failure = Failure(reason="StateNotKept", message=self._unkept)
                done = PodDone(
                    uid=work.uid, work=work, facts=self.mind.pods[work.uid].facts, failures=(failure,)
                )
                self.see(done)
            case SyncPod() | EndPod() | CleanPod() | CancelWork() | TuneContainer() | AskProbe():
                self.performer.give(work)
            case ReclaimNode():
                self.ears.reclaim(work)
            case Tell():
                self.ears.tell(work)

    def _kept(self, act: Callable[[], None]) -> None:
        """Do something that has to reach the disk, after all that did not reach it yet."""
        self._owed.append(act)
        try:
            while self._owed:
                self._owed[0]()
                del self._owed[0]
        except WorldError as error:
            if not self._unkept:
                self.ears.tell(Tell(uid="", is_warning=True, reason="StateNotKept", message=str(error)))
            self._unkept = str(error)
        else:
            self._unkept = ""
