"""The fake runtime keeps every promise of the port."""

import asyncio

import pytest

from nodewright.testing.runtime import FakeClock, FakeRuntime, settle
from nodewright.testing.runtime_port import CHECKS, SCRIPTS, Check, RuntimeBench


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_fake_runtime(check: Check) -> None:
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
            check(RuntimeBench(runtime=runtime, reopened=reopened, pass_time=pass_time)), timeout=60
        )

    asyncio.run(run())
