"""The agent on this machine: all its parts, put together, from its start to its end."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from nodewright.agent.board import Board
from nodewright.agent.draining import drain
from nodewright.agent.keeping import JOURNAL, Opened, open_directory
from nodewright.agent.loop import Loop
from nodewright.agent.perform import Performer
from nodewright.agent.plugins import Plugins
from nodewright.agent.pressure import Pressure, Watched
from nodewright.agent.reconcile import reassert
from nodewright.agent.rotate import RotateRule, rotate_logs
from nodewright.agent.shelf import Shelf
from nodewright.agent.sources import Listener
from nodewright.agent.values import Rules, Stage, Tell
from nodewright.api.agent import Agent
from nodewright.api.dashboard import DashboardRoutes
from nodewright.api.dashboard_agent import AgentView
from nodewright.api.entries import Entry
from nodewright.api.on_demand import Begin, serving_on_demand
from nodewright.api.profile import ProfileRoutes
from nodewright.api.server import serving
from nodewright.cli.agent_node import AgentNode, host_address, sheet
from nodewright.cli.agent_plugins import plugins_of, registering
from nodewright.cli.agent_runtime import Machinery, answering, log_root, machinery
from nodewright.cli.agent_settings import Settings, pod_resources_socket
from nodewright.cli.agent_sources import WATCHED, sources
from nodewright.cli.agent_stop import stop_asked, unless
from nodewright.cli.app import ERROR, YES
from nodewright.core.eviction import POLICIES
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.verdict import Refused
from nodewright.render.journals import JournalScribe
from nodewright.render.messages import start_error
from nodewright.render.words import KubeletWords
from nodewright.render.works import tell_line
from nodewright.values.quantity import QuantityError
from nodewright.world.asking import HostAsker
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.clock import HostClock
from nodewright.world.errors import Fault, InputError, WorldError
from nodewright.world.scenarios import this_release
from nodewright.world.systemd import machine_stops, notify, tell_alive

if TYPE_CHECKING:
    from nodewright.api.kubelet_serving import Wishes

PRIORITY = -10
"""Of the agent, where it may have one (nice value)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """The parts of an agent that runs."""

    told: Settings
    loop: Loop
    board: Board
    pressure: Pressure
    shelf: Shelf
    agent: Agent
    parts: Machinery
    rotation: RotateRule
    profile: NodeProfile
    """The node without pods."""
    plugins: Plugins


async def run_agent(told: Settings, here: AgentNode) -> int:
    """Run pods until somebody says that it is enough."""
    with suppress(OSError):
        # Whose pod takes all CPUs must not keep us from ending it.
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    wished = _kubelet_api(told, here)
    opened = _opened(told, here)
    if opened is None:
        return ERROR
    stop = stop_asked()
    wired = await unless(stop, _wired(told, here, opened))
    if wired is None:
        return YES
    wired.board.tell(Tell(uid="", is_warning=False, reason="Starting", message="Starting nodewright agent."))
    for each in opened.tells:
        wired.board.tell(each)
    # Where nobody can listen, nothing is begun.
    async with _servers(wired, wished), asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in _parts(wired)]
        notify("READY=1\nSTATUS=takes pods")
        click.echo(f"node {here.node.name} takes pods; asked at {told.socket}", err=True)
        await stop.wait()
        notify("STOPPING=1")
        if told.drain_on_exit or await asyncio.to_thread(machine_stops):
            click.echo("pods end, by priority", err=True)
            await drain(wired.board, wired.loop.see, wired.loop.clock)
        for task in tasks:
            task.cancel()
    await wired.loop.performer.runtime.close()
    return YES


@asynccontextmanager
async def _servers(wired: Wired, wished: "Wishes | None") -> AsyncIterator[None]:
    """All that listens, while this is entered; enter it before the first turn of the loop, to have that counted."""
    told, agent, more = wired.told, wired.agent, _entries(wired)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registering(told, wired.plugins, wired.board))
        if wished is not None:
            await _serve_kubelet_api(stack, wired, wished, more)
        await stack.enter_async_context(serving(agent, told.socket, group=told.socket_group, more=more))
        await _serve_pod_resources(stack, wired)
        # Before servers end: whoever follows something is to leave first.
        stack.callback(wired.board.close)
        yield


def _kubelet_api(told: Settings, here: AgentNode) -> "Wishes | None":
    """What is wanted of the kubelet's HTTP API; None: nothing.

    Errors: InputError, WorldError.
    """
    if not told.kubelet_api:
        return None
    from nodewright.cli.agent_serving import wishes  # noqa: PLC0415 - 3 MiB, if it is not used

    document = here.profile.spec.kubelet_configuration
    return wishes(told, document, here.node.config.parts.kubelet, (here.node.name, host_address()))


async def _serve_kubelet_api(
    stack: AsyncExitStack, wired: Wired, wished: "Wishes", more: Sequence[Entry]
) -> None:
    from nodewright.api.kubelet_serving import Counting, serve_kubelet_api  # noqa: PLC0415 - as above

    counting = Counting(wired.loop, wired.pressure, wired.told.root_dir / JOURNAL)
    places = await serve_kubelet_api(stack, wished, wired.agent, counting, more)
    click.echo(f"the kubelet's API at {', '.join(map(str, places))}", err=True)


async def _serve_pod_resources(stack: AsyncExitStack, wired: Wired) -> None:
    """Tell others who has what, if they are to know and we are able to."""
    path = pod_resources_socket(wired.told)
    if path is None:
        return
    if find_spec("grpc") is None:
        _warn(wired.board, "PodResourcesNotServed", "no module named 'grpc': pip install 'nodewright[agent]'")
        return
    door = serving_on_demand(path, "--pod-resources-socket", partial(_pod_resources, wired.agent))
    try:
        await stack.enter_async_context(door)
    except WorldError as error:
        if wired.told.pod_resources_socket is not None:
            raise
        # Nobody has asked for it by name: all else goes on.
        _warn(wired.board, "PodResourcesNotServed", str(error))


def _pod_resources(agent: Agent) -> Begin:
    from nodewright.api.pod_resources import serving_pod_resources  # noqa: PLC0415 - 16 MiB, if nobody asks

    return partial(serving_pod_resources, agent)


def _entries(wired: Wired) -> tuple[Entry, ...]:
    """What every server has besides its own routes."""
    view = AgentView(wired.agent, wired.pressure.gauges, wired.loop.performer.cgroups)
    return (*ProfileRoutes(wired.agent, wired.profile).entries(), *DashboardRoutes(view).entries())


def _opened(told: Settings, here: AgentNode) -> Opened | None:
    """What was kept; None, with the reasons told, where a kubelet would not start on it either."""
    scribe = JournalScribe(here.profile, this_release())
    found = open_directory(told.root_dir, here.node.state, scribe, KubeletWords(), WATCHED)
    if isinstance(found, Refused):
        for reason in found.because:
            click.echo(f"error: {told.root_dir}: {start_error(reason)}", err=True)
        return None
    return found.value


async def _wired(told: Settings, here: AgentNode, opened: Opened) -> Wired:
    clock, config = HostClock(), here.node.config
    board, shelf, cgroups = Board(opened.mind, clock), Shelf(), CgroupFS(here.cgroup_root)
    board.on_tell = _say
    parts = machinery(told, config, shelf, (cgroups, clock, board.tell))
    runtime, started_ns = parts.runtime, clock.now_ns()
    facts, place = await answering(parts, clock, partial(_waits, board))
    performer = Performer(runtime, cgroups, parts.composer, HostAsker(runtime, clock), clock)
    described = sheet(started_ns, f"{facts.name}://{facts.version}")
    rules = Rules(words=KubeletWords(), started_ns=started_ns, host_ip=described.host_ip)
    loop = Loop(opened.mind, performer, opened.keeper, board, clock, rules)
    plugins = plugins_of(told, loop, board)
    watched = Watched.here(config, told.root_dir, parts.composer.places, place, parts.image_keeper)
    pressure = Pressure(loop, watched, POLICIES[told.eviction_policy])
    board.on_reclaim = pressure.reclaim
    agent = Agent(
        board=board,
        see=loop.see,
        runtime=runtime,
        clock=clock,
        sheet=described,
        log_root=log_root(told),
        runtimes=shelf.runtimes,
    )
    for one in facts.lacks:
        message = f"this machine or its runtime lacks {one}"
        board.tell(Tell(uid="", is_warning=True, reason="RuntimeLacks", message=message))
    return Wired(
        told=told,
        loop=loop,
        board=board,
        pressure=pressure,
        shelf=shelf,
        agent=agent,
        parts=parts,
        rotation=_rotation(config.parts.kubelet),
        profile=here.profile,
        plugins=plugins,
    )


def _parts(wired: Wired) -> Iterator[Coroutine[Any, Any, None]]:
    """All that goes on beside one another."""
    loop, board, kubelet = wired.loop, wired.board, wired.loop.mind.node.config.parts.kubelet
    runtime, cgroups, clock = loop.performer.runtime, loop.performer.cgroups, loop.clock
    yield loop.run()
    yield wired.pressure.run()
    yield tell_alive(clock)
    yield reassert(lambda: loop.mind, cgroups, board.tell, clock)
    yield rotate_logs(
        runtime, log_root(wired.told), wired.rotation, clock, partial(_warn, board, "LogNotRotated")
    )
    if wired.parts.image_keeper is not None:
        yield wired.parts.image_keeper.run()
    yield wired.parts.composer.keep_fresh(partial(_active, loop), partial(_warn, board, "VolumeNotWritten"))
    listener = Listener(node_name=wired.agent.node_name, see=loop.see, tell=board.tell, shelf=wired.shelf)
    yield from sources(wired.told, kubelet, listener)


def _rotation(kubelet: KubeletConfiguration) -> RotateRule:
    """Errors: InputError for a size that is none: a kubelet would not start with it, though it takes it at first."""
    try:
        return RotateRule.of(kubelet)
    except QuantityError as error:
        value = kubelet.container_log_max_size
        raise InputError([Fault(path="containerLogMaxSize", value=value, rule=str(error))]) from None


def _active(loop: Loop) -> list[Pod]:
    return [one.pod for one in loop.mind.pods.values() if one.stage is Stage.ACTIVE]


def _warn(board: Board, reason: str, message: str) -> None:
    board.tell(Tell(uid="", is_warning=True, reason=reason, message=message))


def _waits(board: Board, said: str) -> None:
    """The runtime is waited for: those who look at the service see it, too."""
    notify(f"STATUS=waits for the container runtime: {said}")
    _warn(board, "RuntimeUnavailable", said)


def _say(told: Tell, name: str) -> None:
    # Where messages go may be full, or gone; pods are run all the same, and `get events` has it.
    with suppress(OSError):
        click.echo(tell_line(told, name), err=True)
