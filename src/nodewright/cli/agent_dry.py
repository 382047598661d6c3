"""A dry run of the agent: decisions as ever, deeds that are only told."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import click

from nodewright.agent.board import Board
from nodewright.agent.loop import Loop
from nodewright.agent.outcome import Decided, Keeping
from nodewright.agent.perform import Performer
from nodewright.agent.pressure import pods_group
from nodewright.agent.shelf import Shelf
from nodewright.agent.sources import Listener
from nodewright.agent.values import Mind, Rules, Stage, Tell
from nodewright.api.agent import Agent
from nodewright.api.dashboard import DashboardRoutes
from nodewright.api.dashboard_agent import AgentView
from nodewright.api.server import serving
from nodewright.ask import Node
from nodewright.cli.agent_node import sheet
from nodewright.cli.agent_settings import Settings
from nodewright.cli.agent_sources import WATCHED, sources
from nodewright.cli.agent_stop import stop_asked
from nodewright.cli.app import NO, YES
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.core.lifecycle import spec_hash
from nodewright.model.objects import Container, Pod
from nodewright.model.running import PodFacts
from nodewright.render.words import KubeletWords
from nodewright.render.works import tell_line, work_lines
from nodewright.testing.runtime import FakeCgroups, FakeRuntime
from nodewright.world.clock import HostClock
from nodewright.world.gauges import MachineGauges
from nodewright.world.ports import ContainerWish, SandboxWish

_LOOK_S = 0.01


async def dry_run(told: Settings, node: Node) -> int:
    """Show what the agent would do.

    Exit code: 3 if a pod is refused.
    """
    clock = HostClock()
    runtime, cgroups = FakeRuntime(clock), FakeCgroups(node.config.facts.cgroup_version)
    performer = Performer(runtime, cgroups, _Composer(), _Content(), clock)
    rules = Rules(words=KubeletWords(), started_ns=clock.now_ns())
    mind = Mind(node=node.state, unheard=WATCHED)
    board = Board(mind, clock)
    board.on_decided = _show
    board.on_tell = _say
    loop = Loop(mind, performer, _Forgetful(), board, clock, rules)
    listener = Listener(node_name=node.name, see=loop.see, tell=board.tell, shelf=Shelf())
    async with contextlib.AsyncExitStack() as stack:
        running = asyncio.create_task(loop.run())
        for each in (running, *map(asyncio.create_task, sources(told, node.config.parts.kubelet, listener))):
            stack.callback(each.cancel)
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
            gauges = None if told.node else MachineGauges(pods_group(node.config), nodefs=told.root_dir)
            entries = DashboardRoutes(AgentView(agent, gauges)).entries()
            await stack.enter_async_context(
                serving(agent, told.socket, group=told.socket_group, more=entries)
            )
            click.echo(f"dry run: nothing is done; asked at {told.socket}", err=True)
            await stop_asked().wait()
            return YES
    refused = any(one.stage is Stage.REFUSED for one in loop.mind.pods.values())
    return NO if refused else YES


def _show(decided: Decided) -> None:
    """What is told is said once it is heard."""
    for work in decided.works:
        for line in () if isinstance(work, Tell) else work_lines(work, decided.mind.pods):
            click.echo(line)


def _say(told: Tell, name: str) -> None:
    click.echo(tell_line(told, name))


async def _quiet(loop: Loop, running: "asyncio.Task[None]") -> None:
    """Come back when nothing is under way."""
    while not running.done():
        await asyncio.sleep(_LOOK_S)
        if loop.mind.unheard or not loop.is_quiet:
            continue
        if not any(one.is_busy for one in loop.mind.pods.values()):
            return
    await running


class _Forgetful:
    """Keeps nothing."""

    def keep(self, keeping: Keeping) -> None:
        """What is only told does not outlive us."""


class _Content:
    """Finds everything as it should be: nothing runs that could be asked."""

    async def ask(
        self, _handler: Mapping[str, Any], _container_id: str, _address: str, _timeout_s: float
    ) -> tuple[bool, str]:
        """Well."""
        return True, ""

    async def hook(
        self, _handler: Mapping[str, Any], _container_id: str, _address: str, _timeout_s: float, _who: str
    ) -> tuple[bool, str]:
        """Done."""
        return True, ""


class _Composer:
    """Wishes without volumes, variables and logs: these would have to be made."""

    async def sandbox(self, pod: Pod, attempt: int, cgroup: str) -> SandboxWish:
        """What holds the pod's containers together."""
        return SandboxWish(pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory="")

    async def container(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[File, ...]],
        _facts: PodFacts,
    ) -> ContainerWish:
        """What a container is to be."""
        return ContainerWish(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=spec_hash(container),
            log_path=f"{container.name}/{attempt}.log",
            settings=settings[0],
            files=settings[1],
        )

    async def forget(self, pod: Pod) -> None:
        """There is nothing."""
