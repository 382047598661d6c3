"""Dashboards to be looked at: of an agent whose machine is a fake, in a thread of their own."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.applications import Starlette

from nodewright.agent.board import Board
from nodewright.api.agent import Agent
from nodewright.api.answers import APIError, on_api_error
from nodewright.api.dashboard import DashboardRoutes, View
from nodewright.api.dashboard_agent import AgentView
from nodewright.api.dashboard_plan import Plan
from nodewright.api.gate import Gate
from nodewright.api.local import Address, shown
from nodewright.ask import Node
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.render.admission import Entry
from nodewright.render.running import NodeSheet
from nodewright.testing.agents import AgentBench
from nodewright.testing.runtime import FakeClock, Script

T = TypeVar("T")


def planned(node: Node, pods: Iterable[Pod]) -> Plan:
    """What the node says to the pods, one after the other."""
    entries, states = [], [node.state]
    for answer in node.admit_all(pods):
        states.append(answer.node.state)
        entries.append(
            Entry(
                pod=answer.pod,
                decision=answer.decision,
                because=answer.because,
                victims=answer.victims,
                placement=answer.placement,
            )
        )
    return Plan(entries=entries, states=states)


class AgentStand:
    """An agent whose machine is a fake, and a view of it; for `async with`."""

    def __init__(self, profile: NodeProfile | None = None, **scripts: Script) -> None:
        self.bench = AgentBench(profile, (), FakeClock(time.time_ns()), **scripts)
        self.board = Board(self.bench.loop.mind, self.bench.clock)
        self.bench.loop.ears = self.board
        self.agent = Agent(
            board=self.board,
            see=self.bench.loop.see,
            runtime=self.bench.runtime,
            clock=self.bench.clock,
            sheet=NodeSheet(version="v1.36", started_ns=self.bench.clock.now_ns(), runtime="fake://0"),
            log_root=Path("/logs"),
        )
        self.view = AgentView(self.agent, self.bench.gauges, self.bench.cgroups)

    async def __aenter__(self) -> Self:
        await self.bench.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.board.close()
        await self.bench.__aexit__(kind, error, traceback)


class Served:
    """A view served on this machine by a thread of its own, for `with`."""

    def __init__(
        self,
        making: Callable[[], AbstractAsyncContextManager[Any]],
        view: Callable[[Any], View],
        leave: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """``making`` makes what ``view`` shows; ``leave`` has it say that there is no more."""
        self._making, self._view = making, view
        self._leave = lambda: leave(self.made)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()
        self._gate: Gate | None = None
        self.made: Any = None

    @property
    def link(self) -> str:
        """What opens it next."""
        assert self._gate is not None
        return self._gate.link("127.0.0.1")

    def do(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something where the view is."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(30)

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _begin(self) -> None:
        self.made = await self._stack.enter_async_context(self._making())
        inside = Starlette(
            routes=DashboardRoutes(self._view(self.made)).routes(),
            exception_handlers={APIError: on_api_error},
        )
        self._gate, _ = await self._stack.enter_async_context(shown(inside, Address(), self._leave))
