"""Device plugins as processes of their own, on real sockets; the agent behind them is on a bench."""

import asyncio
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from tests.support.agent_bench import AgentBench, async_test

from nodewright.agent.assembly.runtime_setup import _plugin_client, _registration_client
from nodewright.agent.devices.device_allocation import DeviceAllocator
from nodewright.agent.devices.plugin_endpoints import PluginEndpoints
from nodewright.agent.devices.plugin_watcher import PluginWatcher
from nodewright.agent.devices.protocols import MAX_DEVICES, PluginRegistration
from nodewright.agent.devices.registration import PLUGIN_TYPE, RegistrationServer, remove_sockets
from nodewright.agent.state.agent_state import PodSource, PodStage
from nodewright.agent.state.observations import PodApplied
from nodewright.cluster.tasks.timing import HostClock
from nodewright.model.errors import HostError
from nodewright.model.values.idset import NUMASet
from nodewright.testing.objects import a_guaranteed_pod

GPU = "example.com/gpu"
REFERENCE = Path(__file__).parents[4] / "examples" / "device-plugin" / "plugin.py"


class Home:
    """An agent whose plugins register in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.bench, self.clock = directory, AgentBench(), HostClock()
        bench = self.bench
        self.plugins = PluginEndpoints(
            _plugin_client,
            self.clock,
            bench.loop.observe,
            bench.event_recorder.record,
            NUMASet.from_ids(range(2)),
        )
        bench.loop.effect_runner.device_allocator = DeviceAllocator(self.plugins)
        self.door = RegistrationServer(directory, self.plugins.register)
        self.registry = PluginWatcher(
            directory.with_name("plugins_registry"),
            {PLUGIN_TYPE: self.plugins},
            _registration_client,
            self.clock,
            bench.event_recorder.record,
        )

    def capacity(self) -> dict[str, tuple[str, str]]:
        resources = self.bench.loop.state.node.config.resources
        return {
            name: (str(amount), str(resources.allocatable[name]))
            for name, amount in resources.capacity.items()
            if "/" in name
        }

    def tells(self, reason: str) -> str:
        return "\n".join(
            event.message for event in self.bench.event_recorder.events if event.reason == reason
        )

    def want(self, name: str, count: int) -> None:
        self.bench.loop.observe(PodApplied(PodSource.API, a_guaranteed_pod(name, f"{GPU}={count}")))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 - processes change, and tell nobody
                await asyncio.sleep(0.01)


@asynccontextmanager
async def home() -> AsyncIterator[Home]:
    # Paths of sockets are short: those that pytest makes are not.
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place) / "plugins")
        async with home.bench:
            await home.door.start()
            finding = asyncio.create_task(home.registry.run())
            try:
                yield home
            finally:
                finding.cancel()
                await asyncio.gather(finding, return_exceptions=True)
                await home.door.stop()
                await home.plugins.close()


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
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


@pytest.mark.slow
@async_test
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
            assert here.bench.loop.state.node.held.devices.container_devices("train", "main") == {
                GPU: {"gpu-2", "gpu-3"}
            }
            assert await line(process) == "allocate gpu-2 gpu-3"
            (held,) = here.bench.runtime.containers.values()
            assert held.config.env["EXAMPLE_COM_GPU"] == "gpu-2,gpu-3"
            ill.write_text("gpu-0\n")
            await here.until(lambda: here.capacity() == {GPU: ("4", "3")})
            ill.unlink()
            # The agent begins anew: its socket is another one.
            await here.door.stop()
            await here.door.start()
            assert await line(process) == f"registered {GPU}"
            await here.until(lambda: here.capacity() == {GPU: ("4", "4")})
        await here.until(lambda: here.capacity() == {GPU: ("4", "0")})


@pytest.mark.slow
@async_test
async def test_an_independent_plugin_is_served_byte_by_byte() -> None:
    async with home() as here, plugin(*rude(here.directory, "well")) as process:
        assert await line(process) == "registered"
        await here.until(lambda: here.capacity() == {GPU: ("2", "2")})
        here.want("train", 1)
        assert await line(process) == "allocate dev-1"
        await here.until(lambda: here.bench.phase("train") == "Running")
        (held,) = here.bench.runtime.containers.values()
        assert held.config.env == {"DEVICES": "dev-1"}
        assert here.bench.loop.state.node.held.devices.responses_of("train", "main")[GPU].numa_nodes == {
            "dev-1": (0,)
        }


@pytest.mark.slow
@async_test
async def test_a_plugin_that_dies_while_it_hands_out_costs_a_pod_its_place() -> None:
    async with home() as here, plugin(*rude(here.directory, "dies")) as process:
        assert await line(process) == "registered"
        await here.until(lambda: here.capacity() == {GPU: ("2", "2")})
        here.want("train", 1)
        await here.until(lambda: here.bench.phase("train") == "Failed")
        assert here.bench.record("train").stage is PodStage.REJECTED
        assert "code = Unavailable" in here.bench.record("train").status.message
        await here.until(lambda: here.capacity() == {GPU: ("2", "0")})
        assert here.tells("DevicePluginStopped")


BAD = {
    "version": 'refused: requested API version "v1alpha1" is not supported by kubelet.',
    "elsewhere": 'refused: the endpoint "../rude.sock" is not the name of a socket in /',
}


@pytest.mark.parametrize(("how", "said"), BAD.items())
def test_a_rejected_plugin_gets_the_error(how: str, said: str) -> None:
    @async_test
    async def trial() -> None:
        async with home() as here, plugin(*rude(here.directory, how)) as process:
            assert (await line(process)).startswith(said)
            assert here.tells("DevicePluginRefused")

    trial()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reason", "capacity"),
    [
        ("twice", "DeviceListRefused", {}),
        ("garbage", "DevicePluginStopped", {"example.com/gpu": ("0", "0")}),
        ("large", "DevicePluginStopped", {"example.com/gpu": ("0", "0")}),
    ],
)
def test_a_plugin_that_lists_nonsense_gives_the_node_nothing(
    how: str, reason: str, capacity: dict[str, tuple[str, str]]
) -> None:
    @async_test
    async def trial() -> None:
        async with home() as here, plugin(*rude(here.directory, how)) as process:
            assert await line(process) == "registered"
            await here.until(lambda: bool(here.tells(reason)))
            await here.until(lambda: here.capacity() == capacity)

    trial()


@pytest.mark.slow
@async_test
async def test_devices_beyond_the_limit_are_not_even_made_into_values() -> None:
    async with home() as here, plugin(*rude(here.directory, "many")) as process:
        assert await line(process) == "registered"
        client = _plugin_client(PluginRegistration(GPU, ("v1beta1",), here.directory, "rude.sock"))
        async with aclosing(client.list_and_watch()) as lists:  # type: ignore[type-var] # it is a generator
            assert len(await anext(lists)) == MAX_DEVICES + 1
        await client.close()
        await here.until(lambda: 'lists a device with the id ""' in here.tells("DeviceListRefused"))


def test_a_malformed_registration_is_answered_as_by_go(caplog: pytest.LogCaptureFixture) -> None:
    @async_test
    async def trial() -> None:
        async with (
            home() as here,
            grpc.aio.insecure_channel(f"unix:{here.directory}/kubelet.sock") as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="grpc: error unmarshalling request") as caught:
                await channel.unary_unary("/v1beta1.Registration/Register", bytes, bytes)(b"\xff")
            assert caught.value.code() is grpc.StatusCode.INTERNAL

    trial()
    assert not caplog.records


@pytest.mark.slow
@async_test
async def test_the_reference_plugin_is_registered_and_removed_with_its_registry_socket() -> None:
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
            assert (
                here.tells("DevicePluginStopped") == f"{GPU}: its plugin has stopped: its socket was removed"
            )
        async with plugin(*words) as process:
            assert await line(process) == f"registered {GPU}"
            await here.until(lambda: here.capacity() == {GPU: ("2", "2")})


@pytest.mark.slow
@async_test
async def test_a_rejected_plugin_in_the_registry_gets_the_reason() -> None:
    async with home() as here:
        await here.until(here.registry.directory.is_dir)
        words = [str(REFERENCE), "--registry", str(here.registry.directory), "--resource", "nothing", "gpu-0"]
        async with plugin(*words) as process:
            text = (
                "RegisterPlugin error -- plugin validation failed with err: invalid name of device plugin socket: "
                'the ResourceName "nothing" is invalid'
            )
            assert await line(process) == f"not registered: {text}"
            await here.until(lambda: text in here.tells("DevicePluginRefused"))
            # It is asked again, and told of once.
            assert await line(process) == f"not registered: {text}"
            assert here.tells("DevicePluginRefused").count(text) == 1
        assert here.capacity() == {}


@pytest.mark.slow
@async_test
async def test_invalid_or_silent_registry_sockets_delay_no_other_plugin() -> None:
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


@async_test
async def test_callers_that_talk_nonsense_are_hung_up_on_and_others_heard() -> None:
    async with home() as here:
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b""):
            reader, writer = await asyncio.open_unix_connection(here.directory / "kubelet.sock")
            writer.write(content)
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
            writer.close()
        async with plugin(*rude(here.directory, "well")) as process:
            assert await line(process) == "registered"


@async_test
async def test_a_directory_with_a_listening_server_is_not_changed() -> None:
    async with home() as here:
        with pytest.raises(HostError, match="a kubelet or another agent listens there"):
            await RegistrationServer(here.directory, here.plugins.register).start()
        assert (here.directory / "kubelet.sock").exists()


def test_only_sockets_are_removed_from_the_directory(tmp_path: Path) -> None:
    (tmp_path / "kubelet_internal_checkpoint").write_text("{}")
    (tmp_path / "folder").mkdir()
    remove_sockets(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"kubelet_internal_checkpoint", "folder"}


async def _nobody(_told: PluginRegistration) -> None:
    raise AssertionError


@async_test
async def test_a_path_too_long_for_a_socket_is_an_error() -> None:
    with pytest.raises(HostError, match="too long for a socket"):
        await RegistrationServer(Path("/") / ("x" * 100), _nobody).start()
