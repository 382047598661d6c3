"""Commands that talk to an agent whose machine is a fake: `run`, `get`, `describe`, `logs`, `top`, `delete`, `resize`."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Self

import pytest
from tests.support.agent_bench import AgentBench
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.agent_server import serve_agent_api
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.serving.pod_routes import ProfileRoutes
from nodewright.cli.app import run
from nodewright.documents.output.terminal import YES
from nodewright.testing.nodes import STATIC_CPUS, a_profile

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
    - {name: main, image: i, resources: {requests: {cpu: 500m, memory: 64Mi}}}
"""
PINNED = """
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  containers:
    - {name: main, image: i, resources: {limits: {cpu: 2, memory: 64Mi}}}
"""


class CommandBench:
    """An agent with its API, and people who talk to it from a thread of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], **scripts: ContainerScript) -> None:
        self.folder, self.path, self._capsys = folder, folder / "run" / "agent.sock", capsys
        self.bench = AgentBench(a_profile(**STATIC_CPUS), (), FakeClock(time.time_ns()), **scripts)
        self.bench.loop.subscriber = EventRecorder(self.bench.loop.state, self.bench.clock)
        self.logs = folder / "logs"
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.bench)
        board = self.bench.loop.subscriber
        assert isinstance(board, EventRecorder)
        self.agent = AgentInterface(
            event_recorder=board,
            observe=self.bench.loop.observe,
            runtime=self.bench.runtime,
            clock=self.bench.clock,
            system_info=NodeSystemInfo(
                kubelet_version="v1.36",
                started_ns=self.bench.clock.now_ns(),
                container_runtime_version="fake://0",
            ),
            log_root=self.logs,
        )
        profile = ProfileRoutes(self.agent, a_profile(**STATIC_CPUS))
        await self._stack.enter_async_context(
            serve_agent_api(self.agent, self.path, additional_routes=profile.authorized_routes())
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def says(self, *words: str) -> tuple[int, str]:
        """The exit code of a command and what it printed, errors after answers."""
        code = await asyncio.to_thread(run, [*words, "--socket", str(self.path)])
        await settle()
        output = self._capsys.readouterr()
        return code, output.out + output.err

    async def prints(self, *texts: str) -> str:
        """What a command that runs prints until it has printed these texts, one after another."""
        printed = ""
        async with asyncio.timeout(30):
            while not re.search(".*".join(map(re.escape, texts)), printed, re.DOTALL):
                await asyncio.sleep(0.02)
                printed += self._capsys.readouterr().out
        return printed

    async def rows(self, *words: str) -> list[list[str]]:
        """The cells of a table, headers left out; columns are three spaces apart."""
        code, text = await self.says(*words)
        assert code == YES, text
        return [
            [cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()[1:]
        ]

    def file(self, text: str) -> str:
        path = self.folder / "pod.yaml"
        path.write_text(text, "utf-8")
        return str(path)

    def write_log(self, uid: str, text: str, attempt: int = 0) -> None:
        record = self.bench.record(uid)
        path = self.logs / f"default_{record.pod.metadata.name}_{uid}" / "main" / f"{attempt}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"2026-01-31T12:00:0{n}Z stdout F {line}\n" for n, line in enumerate(text.split()))
        path.write_text(lines, "utf-8")


def with_agent(
    **scripts: ContainerScript,
) -> Callable[[Callable[[CommandBench], Coroutine[Any, Any, None]]], Callable[..., None]]:
    """The test with an agent whose containers do so."""

    def decorate(test: Callable[[CommandBench], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @wraps(test)
        def run_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
            async def run_with_bench() -> None:
                async with CommandBench(tmp_path, capsys, **scripts) as commands:
                    await test(commands)

            asyncio.run(run_with_bench())

        del run_test.__wrapped__
        return run_test

    return decorate
