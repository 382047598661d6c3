"""The fake runtime keeps every promise of the port."""

import asyncio

import pytest
from tests.support.fake_clock import FakeClock, settle
from tests.support.runtime_port import RUNTIME_CHECKS, SCRIPTS, RuntimeBench, RuntimeCheck

from nodewright.agent.runtimes.simulated import FakeRuntime


@pytest.mark.parametrize("check", RUNTIME_CHECKS, ids=lambda check: check.__name__)
def test_fake_runtime(check: RuntimeCheck) -> None:
    async def run() -> None:
        clock = FakeClock()
        runtime = FakeRuntime(clock, SCRIPTS)

        async def reopened() -> FakeRuntime:
            return runtime

        async def pass_time(seconds: float) -> None:
            # Whoever has just been asked to do something begins before time goes by.
            await settle()
            await clock.advance(seconds)

        await asyncio.wait_for(
            check(RuntimeBench(runtime=runtime, restart_agent=reopened, pass_time=pass_time)), timeout=60
        )

    asyncio.run(run())
