"""The kubelet's HTTP API on its ports, with what is counted and read for it."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nodewright.agent.board import Board
from nodewright.agent.loop import Loop
from nodewright.agent.pressure import Pressure
from nodewright.agent.summary import Summaries
from nodewright.agent.tally import Tally
from nodewright.agent.values import Tell
from nodewright.api.access import Access
from nodewright.api.agent import Agent
from nodewright.api.entries import Entry
from nodewright.api.guard import Guard, Refusals, Requests
from nodewright.api.kubelet import KubeletRoutes, kubelet_application
from nodewright.api.listening import Context, Place, front
from nodewright.api.scrapes import AgentScrapes
from nodewright.api.tls import LiveTLS
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.render.node_metrics import Around, Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Who is to be answered, where, and how: found out before anything runs."""

    config: KubeletConfiguration
    access: Access
    tls: LiveTLS


class Counting:
    """What is counted from the first turn on, and asked for by scrapes."""

    def __init__(self, loop: Loop, pressure: Pressure, journal: Path) -> None:
        self.tally = Tally(loop.rules.started_ns)
        self.summaries = Summaries(loop, pressure)
        self._loop, self._pressure, self._journal = loop, pressure, journal
        loop.on_turn = self.tally.hear

    def around(self) -> Around:
        """What is told beside what the loop knows."""
        rooms = self._pressure.distance.rooms if self._pressure.distance is not None else {}
        try:
            size = self._journal.stat().st_size
        except OSError:
            size = None
        return Around(
            rooms=tuple(Room(one.signal, one.is_hard, room.left) for one, room in rooms.items()),
            queue_length=self._loop.waiting,
            journal_bytes=size,
        )

    def stuck_for_s(self) -> float:
        """How long the loop has not come to what it has seen."""
        if not self._loop.waiting:
            return 0.0
        return self._loop.clock.monotonic_s() - self.tally.last_turn_ns / 10**9


async def serve_kubelet_api(
    stack: AsyncExitStack, wished: Wishes, agent: Agent, counting: Counting, more: Sequence[Entry]
) -> tuple[Place, ...]:
    """Answer, for as long as the stack is entered; gives the places.

    Errors: WorldError where somebody else listens there.
    """
    config = wished.config
    refusals, requests = Refusals(partial(_refused, agent.board)), Requests()
    scrapes = AgentScrapes(agent.board, counting.tally, counting.around, (requests, refusals))
    routes = KubeletRoutes(agent, counting.summaries, scrapes, counting.stuck_for_s)
    is_fine = agent.board.mind.node.config.gates["KubeletFineGrainedAuthz"]

    def guarded(entries: list[Entry], access: Access | None) -> Guard:
        app = kubelet_application(entries)
        return Guard(app, entries, access, refusals=refusals, requests=requests, is_fine=is_fine)

    entries = [*routes.entries(has_debugging=config.enable_debugging_handlers), *more]
    context = partial(wished.tls.now, partial(_untaken, agent.board))
    wanted: list[tuple[list[Entry], Access | None, Place, Context | None]] = [
        (entries, wished.access, Place(config.address, config.port), context)
    ]
    if config.read_only_port:
        wanted.append((routes.bare_entries(), None, Place(config.address, config.read_only_port), None))
    if config.healthz_port:
        place = Place(config.healthz_bind_address, config.healthz_port)
        wanted.append((routes.health_entries(), None, place, None))
    found = []
    for shown, access, place, tls in wanted:
        app = guarded(shown, access)
        found.append(await stack.enter_async_context(front(app, place, tls, refusals)))
    return tuple(found)


def _untaken(board: Board, why: str) -> None:
    board.tell(Tell(uid="", is_warning=True, reason="CertificateNotTaken", message=why))


def _refused(board: Board, why: str) -> None:
    board.tell(Tell(uid="", is_warning=True, reason="RequestRefused", message=why))
