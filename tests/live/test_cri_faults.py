"""What goes wrong with a runtime: it goes away, hangs, is cut off in the middle, lacks what it needs."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.live.containerd import Containerd, lacking
from tests.live.cri_bench import a_bench

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.ports import ExecResult, Mount
from nodewright.agent.runtimes.cri import CRIChannel, CRIRuntime
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import ContainerPhase

pytestmark = pytest.mark.live

Found = TypeVar("Found")


def test_pods_go_on_while_the_runtime_is_away(fragile: Containerd, cgroups: CgroupFS) -> None:
    async def run() -> None:
        async with a_bench(fragile, cgroups) as bench:
            id_ = await bench.run(bench.wish("sleep", "1000"))
            before = await bench.facts()
            fragile.stop(signal.SIGKILL)
            with pytest.raises(HostError):
                await bench.runtime.pod(bench.uid)
            fragile.start()
            assert await _once_it_answers(bench.facts) == before
            assert await bench.runtime.execute(id_, ("true",), 20) == ExecResult(0)

    asyncio.run(run())


def test_a_runtime_that_hangs_is_not_waited_for(fragile: Containerd, cgroups: CgroupFS) -> None:
    async def run() -> None:
        async with a_bench(fragile, cgroups) as bench:
            await bench.run(bench.wish("sleep", "1000"))
            hasty = CRIRuntime(CRIChannel(fragile.endpoint, timeout_factor=0.05))
            assert await _once_it_answers(lambda: hasty.pod(bench.uid)) == await bench.facts()
            with fragile.frozen():
                began = time.monotonic()
                with pytest.raises(HostError, match=r"no answer within 0\.5 s"):
                    await hasty.pod(bench.uid)
                assert time.monotonic() - began < 30
            assert await _once_it_answers(lambda: hasty.pod(bench.uid)) == await _once_it_answers(bench.facts)
            await hasty.close()

    asyncio.run(run())


def test_without_a_pause_image_no_pod_runs_and_it_is_told_why(cgroups: CgroupFS) -> None:
    if why := lacking():
        pytest.skip(why)
    with Containerd(pause="localhost:1/no/pause:1") as instance:

        async def run() -> None:
            async with a_bench(instance, cgroups) as bench:
                with pytest.raises(HostError, match="no/pause:1"):
                    await bench.sandbox()

        asyncio.run(run())


POINTS_S = (0.0, 0.01, 0.03, 0.06, 0.1, 0.15)
"""How long after its beginning the first try is cut off: in the sandbox, in the container, in the start."""


@pytest.mark.parametrize("after_s", POINTS_S)
def test_what_is_cut_off_is_done_once(
    after_s: float, containerd: Containerd, cgroups: CgroupFS, tmp_path: Path
) -> None:
    tally = tmp_path / "tally"
    tally.touch()

    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            mounts = (Mount(host_path=str(tally), container_path="/tally"),)
            container_config = bench.wish(
                "sh", "-c", "echo started >> /tally; exec sleep 1000", mounts=mounts
            )
            first = asyncio.create_task(bench.run(container_config))
            await asyncio.sleep(after_s)
            # As the kernel does for a process that dies: the line is cut, and nobody says good bye.
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await bench.runtime.close()
            bench.runtime = CRIRuntime(CRIChannel(containerd.endpoint))
            await _once_it_answers(lambda: bench.run(container_config))
            facts = await bench.facts()
            assert [sandbox.is_ready for sandbox in facts.sandboxes] == [True]
            (container,) = facts.containers
            if container.phase is ContainerPhase.EXITED:
                # A start that is cut off the runtime takes back: another attempt is due, and this one is over.
                assert container.reason == "StartError"
            else:
                assert container.phase is ContainerPhase.RUNNING
                while not tally.read_text():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                assert tally.read_text() == "started\n"

    asyncio.run(asyncio.wait_for(run(), 60))


async def _once_it_answers(ask: Callable[[], Awaitable[Found]]) -> Found:
    """What it says, after as many tries as an agent would make."""
    async with asyncio.timeout(40):
        while True:
            try:
                return await ask()
            except HostError:
                await asyncio.sleep(0.1)
