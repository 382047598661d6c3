"""Devices outlive the agent: who holds what, what plugins said, and journals that need no plugin."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from tests.support.disks import FakeDisk
from tests.support.fake_clock import settle
from tests.support.fake_plugins import GPU, GPUS, PREFERENCE_OPTIONS, DeviceBench, FakePluginClient, a_gpu_pod

from nodewright.agent.devices.plugin_endpoints import ENDPOINT_STOP_GRACE_PERIOD_S
from nodewright.agent.runtimes.simulated import FakeCgroups, FakeRuntime
from nodewright.agent.state.agent_state import PodStage
from nodewright.agent.store.agent_store import AgentStore, StoreSettings
from nodewright.agent.store.store_files import JOURNAL
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.scenario_files import journal_header, scenario_from_file, scenario_node
from nodewright.documents.profiles.state_files.device_checkpoint import read_device_checkpoint
from nodewright.engine.node.node_state import NodeState
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.reasons.verdict import Granted
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import JournalEncoder, action_documents
from nodewright.predict.replay.scenario_run import replay
from nodewright.testing.nodes import a_profile

PROFILE = a_profile()
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"


class Home:
    """A directory and a machine on which agents follow one another."""

    def __init__(self) -> None:
        self.disk, self.boot = FakeDisk(), "first"
        self.left: tuple[FakeRuntime, FakeCgroups] | None = None

    def agent(self, line: FakePluginClient, live: Callable[[DeviceBench], Awaitable[None]]) -> None:
        """An agent that begins on what is there, and ends all of a sudden."""
        setting = StoreSettings(JournalEncoder(PROFILE, journal_header()), self.boot, "/root-dir")
        result = AgentStore.open(self.disk, Node.from_profile(PROFILE).state, setting)
        assert isinstance(result, Granted), result

        async def run() -> None:
            bench = DeviceBench({GPU: line}, PROFILE)
            if self.left is not None:
                bench.adopt(*self.left)
            bench.begin(result.value.state, result.value.store)
            async with bench:
                bench.plugins.expect_reregistration(result.value.state.node.held.devices.device_lists)
                await live(bench)
            await bench.plugins.close()
            self.left = bench.runtime, bench.cgroups

        asyncio.run(run())

    def replayed(self) -> NodeState:
        """The node after the journal, in which everything was decided as it was."""
        loaded = scenario_from_file(InputFile(JOURNAL, self.disk.files[JOURNAL]))
        state = Node.from_profile(scenario_node(loaded)).state
        for event_outcome in replay(state, loaded.scenario.spec.events, live=True):
            assert action_documents(event_outcome.actions) == list(event_outcome.event.actions or ()), (
                event_outcome.event
            )
            state = event_outcome.final_state
        return state


async def _train(bench: DeviceBench) -> None:
    await bench.register()
    await bench.add_pods(a_gpu_pod("train", 2))
    assert bench.phase("train") == "Running"


def test_the_checkpoint_is_the_kubelets_with_the_answers_of_plugins() -> None:
    async def live(bench: DeviceBench) -> None:
        bench.lines[GPU].set_answer("allocate", b"\n\x08\n\x01A\x12\x03b,c")
        await _train(bench)

    home = Home()
    home.agent(FakePluginClient(), live)
    read = read_device_checkpoint(home.disk.files[CHECKPOINT], CHECKPOINT)
    assert isinstance(read, Granted)
    (entry,) = read.value.entries or ()
    assert (entry.pod, entry.container, entry.resource) == ("train", "main", GPU)
    assert (entry.devices, entry.response) == ({0: ("gpu-0", "gpu-1")}, b"\n\x08\n\x01A\x12\x03b,c")
    assert read.value.registered == {GPU: ("gpu-0", "gpu-1", "gpu-2", "gpu-3")}


def test_pods_keep_their_devices_before_the_plugin_is_back_and_new_ones_are_refused() -> None:
    home = Home()
    home.agent(FakePluginClient(), _train)

    async def again(bench: DeviceBench) -> None:
        await settle()
        assert bench.phase("train") == "Running"
        assert bench.allocated_devices("train") == {GPU: {"gpu-0", "gpu-1"}}
        assert bench.node_device_counts() == ("0", "0")
        await bench.add_pods(a_gpu_pod("early", 1))
        assert "no healthy devices present" in bench.record("early").status.message
        await bench.register()
        await bench.clock.advance(1)
        assert bench.node_device_counts() == ("4", "4")
        await bench.add_pods(a_gpu_pod("late", 2))
        assert bench.allocated_devices("late") == {GPU: {"gpu-2", "gpu-3"}}
        given = bench.loop.state.node.held.devices.responses_of("train", "main")[GPU]
        assert given.numa_nodes == {"gpu-0": (0,), "gpu-1": (0,)}

    home.agent(FakePluginClient(), again)
    assert home.replayed().held.devices.pod_devices.keys() == {"train", "late"}


@pytest.mark.slow
def test_a_resource_without_a_plugin_counts_as_0_after_the_grace_period() -> None:
    home = Home()
    home.agent(FakePluginClient(), _train)

    async def again(bench: DeviceBench) -> None:
        await settle()
        await bench.clock.advance(ENDPOINT_STOP_GRACE_PERIOD_S)
        assert bench.node_device_counts() == ("0", "0")
        assert bench.phase("train") == "Running"
        await bench.add_pods(a_gpu_pod("late", 1))
        assert "cannot allocate unregistered device" in bench.record("late").status.message

    home.agent(FakePluginClient(), again)


def test_after_a_start_of_the_machine_containers_wait_for_their_plugin() -> None:
    home = Home()
    home.agent(FakePluginClient(), _train)
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
        assert bench.allocated_devices("train") == {GPU: {"gpu-0", "gpu-1"}}

    home.agent(FakePluginClient(), again)


def test_a_pod_that_waited_for_its_plugin_is_dealt_with_by_the_next_agent() -> None:
    async def cut_off(bench: DeviceBench) -> None:
        await bench.register()
        bench.lines[GPU].block("allocate")
        await bench.add_pods(a_gpu_pod("train", 2))
        assert bench.record("train").stage is PodStage.ALLOCATING

    async def again(bench: DeviceBench) -> None:
        await settle()
        assert bench.record("train").stage is PodStage.REJECTED
        assert "unknown Device Plugin" in bench.record("train").status.message

    home = Home()
    home.agent(FakePluginClient(), cut_off)
    home.agent(FakePluginClient(), again)


def test_journals_decide_the_same_without_any_plugin() -> None:
    async def live(bench: DeviceBench) -> None:
        line = bench.lines[GPU]
        await bench.register()
        line.set_answer("preferred", ("gpu-3", "gpu-0"))
        await bench.add_pods(a_gpu_pod("train", 2))
        line.queue.put_nowait((replace(GPUS[1], healthy=False), GPUS[0], Device("gpu-2"), GPUS[3]))
        await settle()
        await bench.clock.advance(1)
        line.set_answer("allocate", HostError("Allocate", "socket", "rpc error: code = Unknown desc = no"))
        await bench.add_pods(a_gpu_pod("failed", 1))
        line.set_answer(
            "preferred", HostError("GetPreferredAllocation", "socket", "rpc error: code = Unknown")
        )
        await bench.add_pods(a_gpu_pod("unsaid", 1, GPU))
        line.queue.put_nowait(None)
        await settle()
        await bench.clock.advance(ENDPOINT_STOP_GRACE_PERIOD_S)

    home = Home()
    home.agent(FakePluginClient(options=PREFERENCE_OPTIONS), live)
    after = home.replayed()
    assert after.held.devices.pod_devices == {"train": {"main": {GPU: {"gpu-0", "gpu-3"}}}}
    assert set(after.pods) == {"train"}
    assert after.config.facts.devices[GPU] == ()
    # And the journal of the next agent begins where the plugin has gone.
    home.agent(FakePluginClient(), lambda bench: bench.add_pods(a_gpu_pod("late", 1)))
    assert set(home.replayed().pods) == {"train"}
