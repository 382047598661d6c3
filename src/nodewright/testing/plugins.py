"""Device plugins without sockets: they answer as they are told, and an agent on a bench has them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from nodewright.agent.handing import Handing
from nodewright.agent.ledger import Memory
from nodewright.agent.plugins import Plugins
from nodewright.agent.values import Mind
from nodewright.model.device_reasons import PreferenceWanted
from nodewright.model.objects import Pod
from nodewright.model.profile import Device, NodeProfile
from nodewright.testing.agents import AgentBench
from nodewright.testing.objects import a_guaranteed_pod
from nodewright.testing.runtime import Script, settle
from nodewright.values.idset import NUMASet
from nodewright.world.errors import WorldError
from nodewright.world.plugins.port import PluginOptions, Registration

GPU, NIC = "example.com/gpu", "example.com/nic"
GPUS = tuple(Device(f"gpu-{number}", (number // 2,)) for number in range(4))
"""Two on each of two NUMA nodes."""
SIMPLE, PREFERS = PluginOptions(), PluginOptions(has_preference=True)


class FakeLine:
    """A plugin that lists these devices, and answers as it is told."""

    def __init__(self, devices: tuple[Device, ...] = GPUS, options: PluginOptions = SIMPLE) -> None:
        self.told = options
        self.queue: asyncio.Queue[tuple[Device, ...] | None] = asyncio.Queue()
        """What it lists next; None: it ends."""
        self.queue.put_nowait(devices)
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.answers: dict[str, asyncio.Future[object]] = {}
        """By call what it waits for before it answers."""
        self.is_closed = False

    async def options(self) -> PluginOptions:
        """As PluginLine."""
        await self._waited("options", ())
        return self.told

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        """As PluginLine."""
        while (devices := await self.queue.get()) is not None:
            yield devices
        raise WorldError("ListAndWatch", "socket", "rpc error: code = Unavailable desc = Socket closed")

    async def preferred(self, question: PreferenceWanted) -> tuple[str, ...]:
        """As PluginLine."""
        said = await self._waited("preferred", question.available)
        return said if isinstance(said, tuple) else ()

    async def allocate(self, devices: tuple[str, ...]) -> bytes:
        """As PluginLine."""
        said = await self._waited("allocate", devices)
        return said if isinstance(said, bytes) else b""

    async def before_start(self, devices: tuple[str, ...]) -> None:
        """As PluginLine."""
        await self._waited("before_start", devices)

    async def close(self) -> None:
        """As PluginLine."""
        self.is_closed = True

    def never(self, call: str) -> None:
        """It does not answer this call until its future is done."""
        self.answers[call] = asyncio.get_running_loop().create_future()

    def says(self, call: str, answer: object) -> None:
        """It answers this call so; an error is raised."""
        self.never(call)
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
        lines: Mapping[str, FakeLine],
        profile: NodeProfile | None = None,
        main: Script | None = None,
    ) -> None:
        super().__init__(profile, main=main or Script())
        self.lines = dict(lines)
        self._plug()

    def begin(self, mind: Mind, memory: Memory) -> None:
        """Have the agent begin with this, before it runs."""
        super().begin(mind, memory)
        self._plug()

    async def register(self, resource: str = GPU, version: str = "v1beta1") -> None:
        """The plugin of a resource registers."""
        await self.plugins.register(Registration(resource, (version,), Path("/plugins"), "a.sock"))
        await settle()

    def tells(self, reason: str) -> list[str]:
        """What was told for a reason."""
        return [one.message for one in self.ears.told if one.reason == reason]

    def held(self, uid: str, container: str = "main") -> Mapping[str, frozenset[str]]:
        """What a container holds, by resource."""
        return self.loop.mind.node.held.devices.of_container(uid, container)

    def counted(self, resource: str = GPU) -> tuple[str, str]:
        """The node's capacity, and what of it is allocatable; empty: it has no such resource."""
        found = self.loop.mind.node.config.resources
        return str(found.capacity.get(resource, "")), str(found.allocatable.get(resource, ""))

    def _plug(self) -> None:
        numa = NUMASet.from_ids(range(2))
        self.plugins = Plugins(
            lambda told: self.lines[told.resource], self.clock, self.loop.see, self.ears.tell, numa
        )
        self.loop.performer.handing = Handing(self.plugins)


def with_gpus(name: str, count: int, resource: str = GPU) -> Pod:
    """A pod whose container has so many devices of the resource."""
    return a_guaranteed_pod(name, f"{resource}={count}")
