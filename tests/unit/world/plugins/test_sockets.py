"""Device plugins as processes of their own, on real sockets; the agent behind them is on a bench."""

import asyncio
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from nodewright.agent.handing import Handing
from nodewright.agent.plugin_registry import PluginRegistry
from nodewright.agent.plugins import Plugins
from nodewright.agent.values import PodWanted, Source, Stage
from nodewright.cli.agent_plugins import _line, _registry_line
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
        self.registry = PluginRegistry(
            directory.with_name("plugins_registry"), self.plugins, _registry_line, self.clock, bench.ears.tell
        )

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
            finding = asyncio.create_task(found.registry.run())
            try:
                yield found
            finally:
                finding.cancel()
                await asyncio.gather(finding, return_exceptions=True)
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


@pytest.mark.slow
@running
async def test_the_reference_plugin_is_found_in_the_registry_and_missed_when_its_socket_goes() -> None:
    async with home() as here:
        await here.until(here.registry.directory.is_dir)
        # Directories are looked into, too.
        place = here.registry.directory / "example.com"
        place.mkdir()
        words = [str(REFERENCE), "--registry", str(place), "--resource", GPU, "gpu-0@0", "gpu-1@1"]
        async with plugin(*words) as process:
            assert await line(process) == f"registered {GPU}"
            await here.until(lambda: here.capacity() == {GPU: ("2", "2")})
            here.want("train", 2)
            await here.until(lambda: here.bench.phase("train") == "Running")
            (place / "example_com_gpu-reg.sock").unlink()
            await here.until(lambda: here.capacity() == {GPU: ("2", "0")})
            assert here.tells("DevicePluginStopped") == f"{GPU}: its plugin has gone: its socket has gone"
        async with plugin(*words) as process:
            assert await line(process) == f"registered {GPU}"
            await here.until(lambda: here.capacity() == {GPU: ("2", "2")})


@running
async def test_a_plugin_in_the_registry_that_cannot_be_taken_is_told_why() -> None:
    async with home() as here:
        await here.until(here.registry.directory.is_dir)
        words = [str(REFERENCE), "--registry", str(here.registry.directory), "--resource", "nothing", "gpu-0"]
        async with plugin(*words) as process:
            said = (
                "RegisterPlugin error -- plugin validation failed with err: invalid name of device plugin socket: "
                'the ResourceName "nothing" is invalid'
            )
            assert await line(process) == f"not registered: {said}"
            await here.until(lambda: said in here.tells("DevicePluginRefused"))
            # It is asked again, and told of once.
            assert await line(process) == f"not registered: {said}"
            assert here.tells("DevicePluginRefused").count(said) == 1
        assert here.capacity() == {}


@pytest.mark.slow
@running
async def test_sockets_in_the_registry_that_talk_nonsense_or_nothing_keep_nobody_waiting() -> None:
    async with home() as here, AsyncExitStack() as stack:
        await here.until(here.registry.directory.is_dir)

        async def nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\xff" * 64)
            writer.close()

        server = await asyncio.start_unix_server(nonsense, here.registry.directory / "nonsense.sock")
        stack.callback(server.close)
        nothing = stack.enter_context(socket.socket(socket.AF_UNIX))
        nothing.bind(str(here.registry.directory / "nothing.sock"))
        nothing.listen()
        words = [str(REFERENCE), "--registry", str(here.registry.directory), "--resource", GPU, "gpu-0"]
        async with plugin(*words) as process:
            assert await line(process) == f"registered {GPU}"
            await here.until(lambda: here.capacity() == {GPU: ("1", "1")})
            await here.until(lambda: "nonsense.sock" in here.tells("DevicePluginRefused"))


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
