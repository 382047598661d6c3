"""Fake device plugins without sockets, with configured answers, for an agent on a bench."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.support.agent_bench import AgentBench
from tests.support.fake_clock import settle

from nodewright.agent.devices.device_allocation import DeviceAllocator
from nodewright.agent.devices.plugin_endpoints import PluginEndpoints
from nodewright.agent.devices.protocols import DevicePluginOptions, PluginRegistration
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import AgentState
from nodewright.agent.store.write_queue import StateWriter
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import Device, NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.devices import PreferenceWanted
from nodewright.model.values.idset import NUMASet
from nodewright.testing.objects import a_guaranteed_pod

GPU, NIC = "example.com/gpu", "example.com/nic"
GPUS = tuple(Device(f"gpu-{number}", (number // 2,)) for number in range(4))
"""Two on each of two NUMA nodes."""
NO_OPTIONS, PREFERENCE_OPTIONS = (
    DevicePluginOptions(),
    DevicePluginOptions(preferred_allocation_available=True),
)


class FakePluginClient:
    """A plugin with these devices and configured answers."""

    def __init__(self, devices: tuple[Device, ...] = GPUS, options: DevicePluginOptions = NO_OPTIONS) -> None:
        self.told = options
        self.queue: asyncio.Queue[tuple[Device, ...] | None] = asyncio.Queue()
        """What it lists next; None: it ends."""
        self.queue.put_nowait(devices)
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.answers: dict[str, asyncio.Future[object]] = {}
        """By call what it waits for before it answers."""
        self.is_closed = False

    async def options(self) -> DevicePluginOptions:
        """As DevicePluginClient."""
        await self._waited("options", ())
        return self.told

    async def list_and_watch(self) -> AsyncIterator[tuple[Device, ...]]:
        """As DevicePluginClient."""
        while (devices := await self.queue.get()) is not None:
            yield devices
        raise HostError("ListAndWatch", "socket", "rpc error: code = Unavailable desc = Socket closed")

    async def preferred_allocation(self, question: PreferenceWanted) -> tuple[str, ...]:
        """As DevicePluginClient."""
        value = await self._waited("preferred", question.available)
        return value if isinstance(value, tuple) else ()

    async def allocate(self, devices: tuple[str, ...]) -> bytes:
        """As DevicePluginClient."""
        value = await self._waited("allocate", devices)
        return value if isinstance(value, bytes) else b""

    async def pre_start_container(self, devices: tuple[str, ...]) -> None:
        """As DevicePluginClient."""
        await self._waited("before_start", devices)

    async def close(self) -> None:
        """As DevicePluginClient."""
        self.is_closed = True

    def block(self, call: str) -> None:
        """It does not answer this call until its future is done."""
        self.answers[call] = asyncio.get_running_loop().create_future()

    def set_answer(self, call: str, answer: object) -> None:
        """It answers this call so; an error is raised."""
        self.block(call)
        if isinstance(answer, Exception):
            self.answers[call].set_exception(answer)
        else:
            self.answers[call].set_result(answer)

    async def _waited(self, call: str, devices: tuple[str, ...]) -> object:
        self.calls.append((call, devices))
        return await asyncio.shield(self.answers[call]) if call in self.answers else None


class DeviceBench(AgentBench):
    """An agent with plugins by resource, on a machine with two NUMA nodes."""

    def __init__(
        self,
        lines: Mapping[str, FakePluginClient],
        profile: NodeProfile | None = None,
        main: ContainerScript | None = None,
    ) -> None:
        super().__init__(profile, main=main or ContainerScript())
        self.lines = dict(lines)
        self._plug()

    def begin(self, state: AgentState, store: StateWriter) -> None:
        """Have the agent begin with this, before it runs."""
        super().replace_state(state, store)
        self._plug()

    async def register(self, resource: str = GPU, version: str = "v1beta1") -> None:
        """The plugin of a resource registers."""
        await self.plugins.register(PluginRegistration(resource, (version,), Path("/plugins"), "a.sock"))
        await settle()

    def event_messages(self, reason: str) -> list[str]:
        """The messages of the events with a reason."""
        return [event.message for event in self.event_recorder.events if event.reason == reason]

    def allocated_devices(self, uid: str, container: str = "main") -> Mapping[str, frozenset[str]]:
        """What a container holds, by resource."""
        return self.loop.state.node.held.devices.container_devices(uid, container)

    def node_device_counts(self, resource: str = GPU) -> tuple[str, str]:
        """The node's capacity, and what of it is allocatable; empty: it has no such resource."""
        node_resources = self.loop.state.node.config.resources
        return str(node_resources.capacity.get(resource, "")), str(
            node_resources.allocatable.get(resource, "")
        )

    def _plug(self) -> None:
        numa = NUMASet.from_ids(range(2))
        self.plugins = PluginEndpoints(
            lambda plugin_registration: self.lines[plugin_registration.resource],
            self.clock,
            self.loop.observe,
            self.event_recorder.record,
            numa,
        )
        self.loop.effect_runner.device_allocator = DeviceAllocator(self.plugins)


def a_gpu_pod(name: str, count: int, resource: str = GPU) -> Pod:
    """A pod whose container requests this number of devices of the resource."""
    return a_guaranteed_pod(name, f"{resource}={count}")
