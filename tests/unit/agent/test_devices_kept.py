"""Devices outlive the agent: who holds what, what plugins said, and journals that need no plugin."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from nodewright.agent.keeping import JOURNAL, Keeper, Setting
from nodewright.agent.plugins import GRACE_S
from nodewright.agent.values import Stage
from nodewright.ask import Node
from nodewright.model.profile import Device
from nodewright.model.verdict import Granted
from nodewright.node.state import NodeState
from nodewright.render.journals import JournalScribe
from nodewright.render.replay import action_documents
from nodewright.render.words import KubeletWords
from nodewright.sim.replay import replay
from nodewright.testing.disks import FakeDisk
from nodewright.testing.nodes import a_profile
from nodewright.testing.plugins import GPU, GPUS, PREFERS, DeviceBench, FakeLine, with_gpus
from nodewright.testing.runtime import FakeCgroups, FakeRuntime, settle
from nodewright.world.errors import WorldError
from nodewright.world.files import File
from nodewright.world.scenarios import node_of, scenario_from, this_release
from nodewright.world.state.devices import read_device_state

PROFILE = a_profile()
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"


class Home:
    """A directory and a machine on which agents follow one another."""

    def __init__(self) -> None:
        self.disk, self.boot = FakeDisk(), "first"
        self.left: tuple[FakeRuntime, FakeCgroups] | None = None

    def agent(self, line: FakeLine, live: Callable[[DeviceBench], Awaitable[None]]) -> None:
        """An agent that begins on what is there, and ends all of a sudden."""
        setting = Setting(JournalScribe(PROFILE, this_release()), KubeletWords(), self.boot, "/root-dir")
        found = Keeper.open(self.disk, Node.of(PROFILE).state, setting)
        assert isinstance(found, Granted), found

        async def run() -> None:
            bench = DeviceBench({GPU: line}, PROFILE)
            if self.left is not None:
                bench.use(*self.left)
            bench.begin(found.value.mind, found.value.keeper)
            async with bench:
                bench.plugins.expect(found.value.mind.node.held.devices.lists)
                await live(bench)
            await bench.plugins.close()
            self.left = bench.runtime, bench.cgroups

        asyncio.run(run())

    def replayed(self) -> NodeState:
        """The node after the journal, in which everything was decided as it was."""
        loaded = scenario_from(File(JOURNAL, self.disk.files[JOURNAL]))
        state = Node.of(node_of(loaded)).state
        for one in replay(state, loaded.scenario.spec.events, live=True):
            assert action_documents(one.actions) == list(one.event.actions or ()), one.event
            state = one.after
        return state


async def _train(bench: DeviceBench) -> None:
    await bench.register()
    await bench.want(with_gpus("train", 2))
    assert bench.phase("train") == "Running"


def test_the_checkpoint_is_the_kubelets_with_the_answers_of_plugins() -> None:
    async def live(bench: DeviceBench) -> None:
        bench.lines[GPU].says("allocate", b"\n\x08\n\x01A\x12\x03b,c")
        await _train(bench)

    home = Home()
    home.agent(FakeLine(), live)
    read = read_device_state(home.disk.files[CHECKPOINT], CHECKPOINT)
    assert isinstance(read, Granted)
    (entry,) = read.value.entries or ()
    assert (entry.pod, entry.container, entry.resource) == ("train", "main", GPU)
    assert (entry.devices, entry.response) == ({0: ("gpu-0", "gpu-1")}, b"\n\x08\n\x01A\x12\x03b,c")
    assert read.value.registered == {GPU: ("gpu-0", "gpu-1", "gpu-2", "gpu-3")}


def test_pods_keep_their_devices_before_the_plugin_is_back_and_new_ones_are_refused() -> None:
    home = Home()
    home.agent(FakeLine(), _train)

    async def again(bench: DeviceBench) -> None:
        await settle()
        assert bench.phase("train") == "Running"
        assert bench.held("train") == {GPU: {"gpu-0", "gpu-1"}}
        assert bench.counted() == ("0", "0")
        await bench.want(with_gpus("early", 1))
        assert "no healthy devices present" in bench.record("early").status.message
        await bench.register()
        await bench.clock.advance(1)
        assert bench.counted() == ("4", "4")
        await bench.want(with_gpus("late", 2))
        assert bench.held("late") == {GPU: {"gpu-2", "gpu-3"}}
        given = bench.loop.mind.node.held.devices.given_to("train", "main")[GPU]
        assert given.numa == {"gpu-0": (0,), "gpu-1": (0,)}

    home.agent(FakeLine(), again)
    assert home.replayed().held.devices.held.keys() == {"train", "late"}


def test_a_resource_whose_plugin_does_not_come_back_is_none_of_the_nodes() -> None:
    home = Home()
    home.agent(FakeLine(), _train)

    async def again(bench: DeviceBench) -> None:
        await settle()
        await bench.clock.advance(GRACE_S)
        assert bench.counted() == ("", "")
        assert bench.phase("train") == "Running"
        await bench.want(with_gpus("late", 1))
        assert "cannot allocate unregistered device" in bench.record("late").status.message

    home.agent(FakeLine(), again)


def test_after_a_start_of_the_machine_containers_wait_for_their_plugin() -> None:
    home = Home()
    home.agent(FakeLine(), _train)
    home.boot, home.left = "second", None

    async def again(bench: DeviceBench) -> None:
        await settle()
        (status,) = bench.record("train").status.container_statuses
        assert status.state.waiting is not None
        assert "endpoint not found in cache" in status.state.waiting.message
        await bench.register()
        await bench.clock.advance(11)
        (status,) = bench.record("train").status.container_statuses
        assert status.state.running is not None
        assert bench.held("train") == {GPU: {"gpu-0", "gpu-1"}}

    home.agent(FakeLine(), again)


def test_a_pod_that_waited_for_its_plugin_is_dealt_with_by_the_next_agent() -> None:
    async def cut_off(bench: DeviceBench) -> None:
        await bench.register()
        bench.lines[GPU].never("allocate")
        await bench.want(with_gpus("train", 2))
        assert bench.record("train").stage is Stage.ALLOCATING

    async def again(bench: DeviceBench) -> None:
        await settle()
        assert bench.record("train").stage is Stage.REFUSED
        assert "unknown Device Plugin" in bench.record("train").status.message

    home = Home()
    home.agent(FakeLine(), cut_off)
    home.agent(FakeLine(), again)


def test_journals_decide_the_same_without_any_plugin() -> None:
    async def live(bench: DeviceBench) -> None:
        line = bench.lines[GPU]
        await bench.register()
        line.says("preferred", ("gpu-3", "gpu-0"))
        await bench.want(with_gpus("train", 2))
        line.queue.put_nowait((replace(GPUS[1], healthy=False), GPUS[0], Device("gpu-2"), GPUS[3]))
        await settle()
        await bench.clock.advance(1)
        line.says("allocate", WorldError("Allocate", "socket", "rpc error: code = Unknown desc = no"))
        await bench.want(with_gpus("failed", 1))
        line.says("preferred", WorldError("GetPreferredAllocation", "socket", "rpc error: code = Unknown"))
        await bench.want(with_gpus("unsaid", 1, GPU))
        line.queue.put_nowait(None)
        await settle()
        await bench.clock.advance(GRACE_S)

    home = Home()
    home.agent(FakeLine(options=PREFERS), live)
    after = home.replayed()
    assert after.held.devices.held == {"train": {"main": {GPU: {"gpu-0", "gpu-3"}}}}
    assert set(after.pods) == {"train"}
    assert GPU not in after.config.facts.devices
    # And the journal of the next agent begins where the plugin has gone.
    home.agent(FakeLine(), lambda bench: bench.want(with_gpus("late", 1)))
    assert set(home.replayed().pods) == {"train"}
