"""A dry run of the agent: decisions as ever, deeds that are only told."""

import asyncio
import contextlib
import os
import platform
from importlib.metadata import version

import click

from nodewright.agent.board import Board
from nodewright.agent.loop import Loop
from nodewright.agent.outcome import Decided
from nodewright.agent.perform import Performer
from nodewright.agent.values import Mind, PodsWanted, Rules, Source, Stage
from nodewright.api.agent import Agent
from nodewright.api.server import serving
from nodewright.ask import Node
from nodewright.cli.agent_settings import Settings, static_path
from nodewright.cli.app import NO, YES
from nodewright.core.requests import with_defaults
from nodewright.model.objects import Pod
from nodewright.render.running import NodeSheet
from nodewright.render.words import KubeletWords
from nodewright.render.works import work_lines
from nodewright.testing.agents import FakeAsker, FakeComposer, FakeMemory
from nodewright.testing.runtime import FakeCgroups, FakeRuntime
from nodewright.world.captured.static import read_static_pods
from nodewright.world.clock import HostClock
from nodewright.world.manifests import load_workloads

_LOOK_S = 0.01


async def dry_run(told: Settings, node: Node) -> int:
    """Show what the agent would do.

    Exit code: 3 if a pod is refused.
    """
    clock = HostClock()
    runtime, cgroups = FakeRuntime(clock), FakeCgroups(node.config.facts.cgroup_version)
    performer = Performer(runtime, cgroups, FakeComposer(), FakeAsker(), clock)
    rules = Rules(words=KubeletWords(), started_ns=clock.now_ns())
    mind = Mind(node=node.state)
    board = Board(mind, clock)
    board.on_decided = _show
    loop = Loop(mind, performer, FakeMemory(), board, clock, rules)
    for source, pods in _pods(told, node).items():
        loop.see(PodsWanted(source, pods))
    async with contextlib.AsyncExitStack() as stack:
        running = asyncio.create_task(loop.run())
        stack.callback(running.cancel)
        if told.dry_run == "once":
            await _quiet(loop, running)
        else:
            agent = Agent(
                board=board,
                see=loop.see,
                runtime=runtime,
                clock=clock,
                sheet=sheet(clock.now_ns(), "dry-run://0"),
                log_root=told.root_dir / "logs",
            )
            await stack.enter_async_context(serving(agent, told.socket, group=told.socket_group))
            click.echo(f"dry run: nothing is done; asked at {told.socket}", err=True)
            await running
    refused = any(one.stage is Stage.REFUSED for one in loop.mind.pods.values())
    return NO if refused else YES


def sheet(started_ns: int, runtime: str) -> NodeSheet:
    """What this machine says of itself."""
    machine = os.uname()
    return NodeSheet(
        version=f"v1.36.0+nodewright-{version('nodewright')}",
        started_ns=started_ns,
        runtime=runtime,
        kernel=machine.release,
        os_image=_os_image(),
    )


def _show(decided: Decided) -> None:
    for work in decided.works:
        for line in work_lines(work, decided.mind.pods):
            click.echo(line)


def _pods(told: Settings, node: Node) -> dict[Source, tuple[Pod, ...]]:
    """The pods that the directories have now."""
    found: dict[Source, tuple[Pod, ...]] = {}
    static = static_path(told, node.config.parts.kubelet)
    if static is not None:
        read = read_static_pods(static, node.name)
        for name in read.passed_over:
            click.echo(f"warning: {static / name} is no sound manifest of a pod", err=True)
        found[Source.FILE] = read.pods
    if told.workload_dir is not None:
        loaded = load_workloads([str(told.workload_dir)])
        found[Source.WORKLOAD] = tuple(one.pod for one in loaded.workloads if one.kind == "Pod")
    return {source: tuple(map(with_defaults, pods)) for source, pods in found.items()}


async def _quiet(loop: Loop, running: "asyncio.Task[None]") -> None:
    """Come back when nothing is under way."""
    while not running.done():
        await asyncio.sleep(_LOOK_S)
        if loop.queue.empty() and not any(one.is_busy for one in loop.mind.pods.values()):
            return
    await running


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
