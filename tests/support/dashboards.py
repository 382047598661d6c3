"""Dashboards of an agent with a fake machine, served in a separate thread."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.applications import Starlette
from tests.support.agent_bench import AgentBench
from tests.support.fake_clock import FakeClock

from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.serving.dashboard.agent_view import AgentView
from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes, DashboardView
from nodewright.agent.serving.dashboard.plan_view import AdmissionPlan
from nodewright.cluster.serving.browser_auth import BrowserAuth, PageAddress, serve_local_pages
from nodewright.cluster.serving.routes import APIError, on_api_error
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.admission_report import AdmissionEntry
from nodewright.predict.node import Node

T = TypeVar("T")


def admission_plan(node: Node, pods: Iterable[Pod]) -> AdmissionPlan:
    """What the node says to the pods, one after the other."""
    entries, states = [], [node.state]
    for answer in node.admit_all(pods):
        states.append(answer.node.state)
        entries.append(
            AdmissionEntry(
                pod=answer.pod,
                decision=answer.decision,
                because=answer.because,
                victims=answer.victims,
                placement=answer.placement,
            )
        )
    return AdmissionPlan(entries=entries, states=states)


class DashboardAgent:
    """An agent with a fake machine, and its view; for `async with`."""

    def __init__(self, profile: NodeProfile | None = None, **scripts: ContainerScript) -> None:
        self.bench = AgentBench(profile, (), FakeClock(time.time_ns()), **scripts)
        self.board = EventRecorder(self.bench.loop.state, self.bench.clock)
        self.bench.loop.subscriber = self.board
        self.agent = AgentInterface(
            event_recorder=self.board,
            observe=self.bench.loop.observe,
            runtime=self.bench.runtime,
            clock=self.bench.clock,
            system_info=NodeSystemInfo(
                kubelet_version="v1.36",
                started_ns=self.bench.clock.now_ns(),
                container_runtime_version="fake://0",
            ),
            log_root=Path("/logs"),
        )
        self.view = AgentView(self.agent, self.bench.memory_readings, self.bench.cgroups)

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


class ServedView:
    """A view served on this machine by a thread of its own, for `with`."""

    def __init__(
        self,
        making: Callable[[], AbstractAsyncContextManager[Any]],
        view: Callable[[Any], DashboardView],
        leave: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """``making`` makes what ``view`` shows; ``leave`` has it say that there is no more."""
        self._making, self._view = making, view
        self._leave = lambda: leave(self.made)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()
        self._gate: BrowserAuth | None = None
        self.made: Any = None

    @property
    def link(self) -> str:
        """What opens it next."""
        assert self._gate is not None
        return self._gate.login_url("127.0.0.1")

    def run_in_server(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something where the view is."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(30)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run_in_server(self._begin())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.run_in_server(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _begin(self) -> None:
        self.made = await self._stack.enter_async_context(self._making())
        inside = Starlette(
            routes=DashboardRoutes(self._view(self.made)).routes(),
            exception_handlers={APIError: on_api_error},
        )
        self._gate, _ = await self._stack.enter_async_context(
            serve_local_pages(inside, PageAddress(), self._leave)
        )
