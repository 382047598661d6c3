"""Pods end by priority when the agent or the machine does; and what people are told of containers."""

import asyncio

from tests.unit.agent.test_loop import CHECK, with_main

from nodewright.agent.board import FORGOTTEN_AFTER_NS, MOST_HAPPENINGS, Board
from nodewright.agent.draining import drain
from nodewright.agent.values import Stage, Tell
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod
from nodewright.testing.runtime import Script, settle

STUBBORN = Script(ignores_sigterm=True)
CRITICAL = 2_000_000_000


def with_board(bench: AgentBench) -> Board:
    board = Board(bench.loop.mind, bench.clock)
    bench.loop.ears = board
    return board


@running
async def test_groups_end_one_after_the_other() -> None:
    profile = a_profile(shutdownGracePeriod="30s", shutdownGracePeriodCriticalPods="10s")
    async with AgentBench(profile, main=STUBBORN) as bench:
        board = with_board(bench)
        await bench.want(a_pod("web"), a_pod("dns", priority=CRITICAL))
        draining = asyncio.create_task(drain(board, bench.loop.see, bench.clock))
        await settle()
        assert (bench.record("web").stage, bench.record("dns").stage) == (Stage.ENDING, Stage.ACTIVE)
        await bench.want(a_pod("late"))
        assert bench.record("late").status.message == (
            "Pod was rejected: Pod was rejected as the node is shutting down."
        )
        await bench.clock.advance(20)
        assert (bench.phase("web"), bench.record("dns").stage) == ("Failed", Stage.ENDING)
        await bench.clock.advance(10)
        assert await draining
        status = bench.record("dns").status
        assert (status.phase, status.reason) == ("Failed", "Terminated")
        assert status.message == "Pod was terminated in response to imminent node shutdown."


@running
async def test_a_pod_that_does_not_end_is_not_waited_for_for_ever() -> None:
    async with AgentBench(main=STUBBORN) as bench:
        board = with_board(bench)
        await bench.want(a_pod(terminationGracePeriodSeconds=1))
        for _ in range(10):
            bench.runtime.fail("stop_container", "it does not")
        draining = asyncio.create_task(drain(board, bench.loop.see, bench.clock))
        await settle()
        await bench.clock.advance(6)
        assert draining.done()
        assert not draining.result()


@running
async def test_containers_that_start_and_end_are_told() -> None:
    async with AgentBench(main=Script(runs_for_s=1, exit_code=1)) as bench:
        board = with_board(bench)
        await bench.want(a_pod())
        await bench.clock.advance(1)
        await bench.clock.advance(1)
        assert [(one.reason, one.count) for one in board.happenings()] == [
            ("Created", 2),
            ("Started", 2),
            ("BackOff", 1),
        ]
        await bench.clock.advance(10)
        await bench.drop("web")
        told = [(one.reason, one.message) for one in board.happenings()]
        assert ("Killing", "Stopping container main") in told


@running
async def test_a_probe_that_fails_is_told_with_the_end_that_it_brings() -> None:
    async with AgentBench() as bench:
        board = with_board(bench)
        await bench.want(with_main(a_pod(), liveness_probe={**CHECK, "periodSeconds": 1}))
        bench.asker.bad.add("main")
        await bench.clock.advance(4)
        messages = [one.message for one in board.happenings() if one.reason == "Killing"]
        assert messages == ["Container main failed liveness probe, will be restarted"]


@running
async def test_what_happened_is_forgotten_after_a_while_and_never_too_much() -> None:
    async with AgentBench() as bench:
        board = with_board(bench)
        for number in range(MOST_HAPPENINGS + 5):
            board.tell(Tell(uid="", is_warning=False, reason="Test", message=str(number)))
        assert len(board.happenings()) == MOST_HAPPENINGS
        assert board.happenings()[0].message == "5"
        await bench.clock.advance(FORGOTTEN_AFTER_NS / 10**9 + 1)
        board.tell(Tell(uid="", is_warning=False, reason="Test", message="new"))
        assert [one.message for one in board.happenings()] == ["new"]
