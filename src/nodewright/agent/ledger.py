"""What was decided and is not on the disk yet: turns wait for it in their order, and most of their works with them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from nodewright.agent.outcome import Decided, Keeping
from nodewright.agent.timing import Beside
from nodewright.agent.values import (
    AskProbe,
    CancelWork,
    CleanPod,
    EndPod,
    Mind,
    PodWork,
    ReclaimNode,
    SyncPod,
    Work,
    WriteGroups,
)
from nodewright.world.errors import WorldError


class Memory(Protocol):
    """What outlives the agent."""

    def keep(self, keeping: Keeping) -> None:
        """All of it is on the disk when this returns, or nothing; it may take long.

        Errors: WorldError.
        """


class Held(NamedTuple):
    """A turn, and those of its works that wait until it is kept."""

    decided: Decided
    works: tuple[Work, ...]


def may_go_first(work: Work, mind: Mind) -> bool:
    """Whether a work is given out before what led to it is kept.

    Who is evicted does not wait for the disk, which may be busy for the very same reason: if we died now, the next
    agent would see the same pressure. Questions to containers change nothing, what the node gives back nobody uses,
    and the groups above those of pods are written anew by every agent that begins: until they are there, nobody sees
    what all pods use together. All else waits, for it is only right as long as it is known why it was done: whatever starts, ends, is set
    or cleared away for a pod, and what people are told.
    """
    match work:
        case EndPod(uid=uid) | CancelWork(uid=uid):
            return uid in mind.leaving
        case AskProbe() | ReclaimNode() | WriteGroups():
            return True
        case _:
            return False


class Ledger:
    """Has turns kept, one after the other or several at once, and passes them on in their order.

    One write is under way at a time, beside the loop; what is decided meanwhile goes with the next one.
    """

    def __init__(self, memory: Memory, pass_on: Callable[[Held], None], written: Callable[[], None]) -> None:
        """``written`` is called when it is time to `look`."""
        self._memory, self._pass_on, self._has_written = memory, pass_on, written
        self.beside: Beside = asyncio.to_thread
        """How the memory does its work without holding up the loop."""
        self._writing: asyncio.Future[None] | None = None
        self.error = ""
        """Why the disk does not take what has to be kept; empty: it does."""
        self.on_error: Callable[[str], None] = lambda _: None
        """Is told when the disk begins to fail."""
        self._owed: Keeping | None = None
        """What the disk has not taken yet of the turns that are written or were passed on."""
        self._written: list[Held] = []
        self._held: list[Held] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self._held or self._written)

    def add(self, held: Held) -> None:
        """The next turn; it is passed on at once if nothing of it, and nothing before it, has to be kept."""
        if self.is_empty and self._owed is None and held.decided.keeping.is_nothing:
            self._pass_on(held)
            return
        self._held.append(held)
        self._begin()

    def withdraw(self, uid: str) -> PodWork | None:
        """The work for a pod that waits here, which it does no more; None: there is none."""
        for turns in (self._written, self._held):
            for place, held in enumerate(turns):
                for work in held.works:
                    if isinstance(work, SyncPod | EndPod | CleanPod) and work.uid == uid:
                        works = tuple(one for one in held.works if one is not work)
                        turns[place] = held._replace(works=works)
                        return work
        return None

    def look(self) -> None:
        """Pass on what was kept meanwhile, and have the rest written."""
        if self._writing is None or not self._writing.done():
            return
        writing, self._writing = self._writing, None
        try:
            writing.result()
        except WorldError as error:
            self._failed(str(error))
        else:
            self._owed, self.error = None, ""
        self._pass_all_on()
        self._begin()

    async def close(self) -> None:
        """Come back when nothing waits any more; what could not be kept is passed on nevertheless."""
        while self._writing is not None:
            await asyncio.wait((self._writing,))
            self.look()

    def _begin(self) -> None:
        if self._writing is not None or not self._held:
            return
        self._written, self._held = self._held, []
        for held in self._written:
            keeping = held.decided.keeping
            self._owed = keeping if self._owed is None else self._owed.then(keeping)
        assert self._owed is not None
        if self._owed.is_nothing:
            self._owed = None
            self._pass_all_on()
        else:
            self._writing = asyncio.ensure_future(self.beside(partial(self._memory.keep, self._owed)))
            self._writing.add_done_callback(lambda _: self._has_written())

    def _pass_all_on(self) -> None:
        written, self._written = self._written, []
        for held in written:
            self._pass_on(held)

    def _failed(self, error: str) -> None:
        if not self.error:
            self.on_error(error)
        self.error = error
