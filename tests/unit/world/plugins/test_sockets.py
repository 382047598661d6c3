"""Device plugins as processes of their own, on real sockets; the agent behind them is on a bench."""

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodewright.agent.handing import Handing
from nodewright.agent.plugins import Plugins
from nodewright.agent.values import PodWanted, Source, Stage
from nodewright.cli.agent_plugins import _line
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.objects import a_guaranteed_pod
from nodewright.values.idset import NUMASet
from nodewright.world.clock import HostClock
from nodewright.world.errors import WorldError
from nodewright.world.plugins.door import Door, remove_sockets
from nodewright.world.plugins.port import Registration

GPU = "example.com/gpu"
REFERENCE = Path(__file__).parents[4] / "examples" / "device-plugin" / "plugin.py"


class Home:
    """An agent whose plugins register in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.bench, self.clock = directory, AgentBench(), HostClock()
        bench = self.bench
        self.plugins = Plugins(_line, self.clock, bench.loop.see, bench.ears.tell, NUMASet.from_ids(range(2)))
        bench.loop.performer.handing = Handing(self.plugins)
        self.door = Door(directory, self.plugins.register)

    def capacity(self) -> dict[str, tuple[str, str]]:
        resources = self.bench.loop.mind.node.config.resources
        return {
            name: (str(amount), str(resources.allocatable[name]))
            for name, amount in resources.capacity.items()
            if "/" in name
        }

    def tells(self, reason: str) -> str:
        return "\n".join(one.message for one in self.bench.ears.told if one.reason == reason)

    def want(self, name: str, count: int) -> None:
        self.bench.loop.see(PodWanted(Source.API, a_guaranteed_pod(name, f"{GPU}={count}")))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(15):
            while not holds():  # noqa: ASYNC110 - processes change, and tell nobody
                await asyncio.sleep(0.01)


@asynccontextmanager
async def home() -> AsyncIterator[Home]:
    # Paths of sockets are short: those that pytest makes are not.
    with tempfile.TemporaryDirectory() as place:
        found = Home(Path(place) / "plugins")
        async with found.bench:
            await found.door.open()
            try:
                yield found
            finally:
                await found.door.close()
                await found.plugins.close()


@asynccontextmanager
async def plugin(*words: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def rude(directory: Path, how: str) -> tuple[str, ...]:
    return (str(Path(__file__).with_name("rude_plugin.py")), str(directory), GPU, how)


async def line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(15):
        return (await process.stdout.readline()).decode().strip()


@running
async def test_the_reference_plugin_registers_prefers_hands_out_and_is_switched() -> None:
    async with home() as here:
        ill = here.directory.with_suffix(".ill")
        words = [str(REFERENCE), "--directory", str(here.directory), "--resource", GPU, "--ill", str(ill)]
        async with plugin(
            *words, "--prefers", "highest", "gpu-0@0", "gpu-1@0", "gpu-2@1", "gpu-3@1"
        ) as process:
            assert await line(process) == f"registered {GPU}"
            await here.until(lambda: here.capacity() == {GPU: ("4", "4")})
            here.want("train", 2)
            await here.until(lambda: here.bench.phase("train") == "Running")
            assert here.bench.loop.mind.node.held.devices.of_container("train", "main") == {
                GPU: {"gpu-2", "gpu-3"}
            }
            assert await line(process) == "allocate gpu-2 gpu-3"
            (held,) = here.bench.runtime.containers.values()
            assert held.wish.env["EXAMPLE_COM_GPU"] == "gpu-2,gpu-3"
            ill.write_text("gpu-0\n")
            await here.until(lambda: here.capacity() == {GPU: ("4", "3")})
            ill.unlink()
            # The agent begins anew: its socket is another one.
            await here.door.close()
            await here.door.open()
            assert await line(process) == f"registered {GPU}"
            await here.until(lambda: here.capacity() == {GPU: ("4", "4")})
        await here.until(lambda: here.capacity() == {GPU: ("4", "0")})


@running
async def test_an_independent_plugin_is_served_byte_by_byte() -> None:
    async with home() as here, plugin(*rude(here.directory, "well")) as process:
        assert await line(process) == "registered"
        await here.until(lambda: here.capacity() == {GPU: ("2", "2")})
        here.want("train", 1)
        assert await line(process) == "allocate dev-1"
        await here.until(lambda: here.bench.phase("train") == "Running")
        (held,) = here.bench.runtime.containers.values()
        assert held.wish.env == {"DEVICES": "dev-1"}
        assert here.bench.loop.mind.node.held.devices.given_to("train", "main")[GPU].numa == {"dev-1": (0,)}


@running
async def test_a_plugin_that_dies_while_it_hands_out_costs_a_pod_its_place() -> None:
    async with home() as here, plugin(*rude(here.directory, "dies")) as process:
        assert await line(process) == "registered"
        await here.until(lambda: here.capacity() == {GPU: ("2", "2")})
        here.want("train", 1)
        await here.until(lambda: here.bench.phase("train") == "Failed")
        assert here.bench.record("train").stage is Stage.REFUSED
        assert "code = Unavailable" in here.bench.record("train").status.message
        await here.until(lambda: here.capacity() == {GPU: ("2", "0")})
        assert here.tells("DevicePluginStopped")


BAD = {
    "version": 'refused: requested API version "v1alpha1" is not supported by kubelet.',
    "elsewhere": 'refused: the endpoint "../rude.sock" is not the name of a socket in /',
}


@pytest.mark.parametrize(("how", "said"), BAD.items())
def test_a_plugin_that_cannot_be_taken_is_told_so(how: str, said: str) -> None:
    @running
    async def trial() -> None:
        async with home() as here, plugin(*rude(here.directory, how)) as process:
            assert (await line(process)).startswith(said)
            assert here.tells("DevicePluginRefused")

    trial()


@pytest.mark.parametrize(
    ("how", "reason"), [("twice", "DeviceListRefused"), ("garbage", "DevicePluginStopped")]
)
def test_a_plugin_that_lists_nonsense_gives_the_node_nothing(how: str, reason: str) -> None:
    @running
    async def trial() -> None:
        async with home() as here, plugin(*rude(here.directory, how)) as process:
            assert await line(process) == "registered"
            await here.until(lambda: bool(here.tells(reason)))
            assert here.capacity() == {}

    trial()


@running
async def test_callers_that_talk_nonsense_are_hung_up_on_and_others_heard() -> None:
    async with home() as here:
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b""):
            reader, writer = await asyncio.open_unix_connection(here.directory / "kubelet.sock")
            writer.write(said)
            writer.write_eof()
            async with asyncio.timeout(15):
                await reader.read()
            writer.close()
        async with plugin(*rude(here.directory, "well")) as process:
            assert await line(process) == "registered"


@running
async def test_the_directory_of_somebody_who_listens_is_left_alone() -> None:
    async with home() as here:
        with pytest.raises(WorldError, match="a kubelet or another agent listens there"):
            await Door(here.directory, here.plugins.register).open()
        assert (here.directory / "kubelet.sock").exists()


def test_only_sockets_are_removed_from_the_directory(tmp_path: Path) -> None:
    (tmp_path / "kubelet_internal_checkpoint").write_text("{}")
    (tmp_path / "folder").mkdir()
    remove_sockets(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"kubelet_internal_checkpoint", "folder"}


async def _nobody(_told: Registration) -> None:
    raise AssertionError


@running
async def test_a_path_too_long_for_a_socket_is_said() -> None:
    with pytest.raises(WorldError, match="too long for a socket"):
        await Door(Path("/") / ("x" * 100), _nobody).open()
