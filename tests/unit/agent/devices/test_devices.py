"""Pods with devices: plugins are asked before, told afterwards, and may refuse; nobody else waits."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import async_test
from tests.support.fake_clock import settle
from tests.support.fake_plugins import (
    GPU,
    GPUS,
    NIC,
    PREFERENCE_OPTIONS,
    DeviceBench,
    FakePluginClient,
    a_gpu_pod,
)

from nodewright.agent.devices.plugin_endpoints import ENDPOINT_STOP_GRACE_PERIOD_S
from nodewright.agent.devices.protocols import DevicePluginOptions, PluginRegistrationError
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodStage
from nodewright.agent.state.observations import PluginDevicesListed
from nodewright.engine.node.events import PodAdded
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import Device
from nodewright.testing.objects import a_guaranteed_pod, a_pod


@async_test
async def test_capacity_counts_all_devices_and_allocatable_the_healthy_ones() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        assert str(bench.loop.state.node.config.resources.capacity[GPU]) == "4"
        line.queue.put_nowait((replace(GPUS[0], healthy=False), *GPUS[1:]))
        await settle()
        await bench.clock.advance(1)
        resources = bench.loop.state.node.config.resources
        assert (str(resources.capacity[GPU]), str(resources.allocatable[GPU])) == ("4", "3")
        await bench.plugins.close()


@async_test
async def test_a_pod_runs_on_allocated_devices_and_frees_them_when_it_ends() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        await bench.add_pods(a_gpu_pod("train", 2))
        assert bench.phase("train") == "Running"
        assert bench.allocated_devices("train") == {GPU: {"gpu-0", "gpu-1"}}
        assert ("allocate", ("gpu-0", "gpu-1")) in line.calls
        await bench.remove_pod("train")
        assert bench.allocated_devices("train") == {}
        await bench.plugins.close()


@async_test
async def test_devices_stay_reserved_and_other_pods_are_decided_on_during_an_allocate_call() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        line.block("allocate")
        await bench.add_pods(a_gpu_pod("first", 3), a_gpu_pod("second", 2), a_pod("web"))
        assert bench.record("first").stage is PodStage.ALLOCATING
        assert bench.record("second").status.reason == "UnexpectedAdmissionError"
        assert bench.phase("web") == "Running"
        line.answers["allocate"].set_result(b"")
        await settle()
        assert bench.phase("first") == "Running"
        await bench.plugins.close()


@async_test
async def test_an_allocate_call_that_never_returns_rejects_only_its_own_pod() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        line.block("allocate")
        await bench.add_pods(a_gpu_pod("train", 4))
        await bench.clock.advance(30)
        record = bench.record("train")
        assert (record.stage, record.status.phase) == (PodStage.REJECTED, "Failed")
        assert record.status.reason == "UnexpectedAdmissionError"
        assert "code = DeadlineExceeded desc = context deadline exceeded" in record.status.message
        assert "train" not in bench.loop.state.node.pods
        del line.answers["allocate"]
        await bench.add_pods(a_gpu_pod("again", 4))
        assert bench.phase("again") == "Running"
        assert not [each for each in bench.runtime_operations() if "train" in each]
        await bench.plugins.close()


@async_test
async def test_a_plugin_that_dies_while_it_hands_out_has_its_error_in_the_status() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        error = "rpc error: code = Unavailable desc = Socket closed"
        line.set_answer("allocate", HostError("Allocate", "socket", error))
        await bench.add_pods(a_gpu_pod("train", 1))
        message = bench.record("train").status.message
        assert message == f"Pod was rejected: Allocate failed due to {error}, which is unexpected"
        await bench.plugins.close()


@async_test
async def test_a_deleted_pod_does_not_wait_for_its_plugin() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        line.block("allocate")
        await bench.add_pods(a_gpu_pod("train", 4))
        await bench.remove_pod("train")
        assert bench.loop.state.pods == {}
        assert bench.loop.state.node.held.devices.free(GPU) == {device.id for device in GPUS}
        await bench.plugins.close()


@async_test
async def test_a_plugins_preferred_devices_are_queried_and_journalled() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient(options=PREFERENCE_OPTIONS))}) as bench:
        await bench.register()
        line.block("preferred")
        await bench.add_pods(a_gpu_pod("train", 2), a_pod("web"))
        assert "train" not in bench.loop.state.pods
        assert bench.phase("web") == "Running"
        line.answers["preferred"].set_result(("gpu-3", "gpu-1", "elsewhere"))
        await settle()
        assert bench.allocated_devices("train") == {GPU: {"gpu-1", "gpu-3"}}
        assert bench.phase("train") == "Running"
        (arrived,) = [
            node_step.event
            for node_step in bench.fake_store.stepped
            if isinstance(node_step.event, PodAdded) and node_step.event.pod.uid == "train"
        ]
        assert arrived.preferred_devices == {("main", GPU): ("gpu-3", "gpu-1", "elsewhere")}
        assert bench.loop.state.preference_queries == {}
        await bench.plugins.close()


@async_test
async def test_preferred_devices_are_queried_for_one_container_after_the_other() -> None:
    two = {
        GPU: FakePluginClient(options=PREFERENCE_OPTIONS),
        NIC: FakePluginClient((Device("nic-0"), Device("nic-1")), PREFERENCE_OPTIONS),
    }
    async with DeviceBench(two) as bench:
        await bench.register(GPU)
        await bench.register(NIC)
        two[GPU].set_answer("preferred", ("gpu-2",))
        two[NIC].set_answer("preferred", ("nic-1",))
        await bench.add_pods(a_guaranteed_pod("train", f"{GPU}=1 {NIC}=1"))
        assert bench.allocated_devices("train") == {GPU: {"gpu-2"}, NIC: {"nic-1"}}
        await bench.plugins.close()


@async_test
async def test_a_plugin_that_does_not_say_what_it_prefers_costs_the_pod_its_place() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient(options=PREFERENCE_OPTIONS))}) as bench:
        await bench.register()
        line.block("preferred")
        await bench.add_pods(a_gpu_pod("train", 2))
        await bench.clock.advance(10)
        message = bench.record("train").status.message
        assert "device plugin GetPreferredAllocation rpc failed with err: rpc error" in message
        assert bench.loop.state.deferred == ()
        await bench.plugins.close()


@async_test
async def test_a_pod_that_is_deleted_during_a_preference_query_is_forgotten() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient(options=PREFERENCE_OPTIONS))}) as bench:
        await bench.register()
        line.block("preferred")
        await bench.set_source_pods(a_gpu_pod("train", 2))
        await bench.set_source_pods()
        line.answers["preferred"].set_result(("gpu-3",))
        await settle()
        assert (bench.loop.state.pods, bench.loop.state.deferred, bench.loop.state.preference_queries) == (
            {},
            (),
            {},
        )
        await bench.plugins.close()


@async_test
async def test_pre_start_container_is_called_before_each_start_if_required() -> None:
    device_plugin_options = DevicePluginOptions(pre_start_required=True)
    async with DeviceBench(
        {GPU: (line := FakePluginClient(options=device_plugin_options))}, main=ContainerScript(runs_for_s=1)
    ) as bench:
        await bench.register()
        await bench.add_pods(a_gpu_pod("train", 1))
        await bench.clock.advance(1)
        assert [call for call in line.calls if call[0] == "before_start"] == [
            ("before_start", ("gpu-0",))
        ] * 2
        line.set_answer(
            "before_start", HostError("PreStartContainer", "s", "rpc error: code = Unknown desc = no")
        )
        await bench.clock.advance(1)
        await bench.clock.advance(10)
        (status,) = bench.record("train").status.container_statuses
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "CreateContainerConfigError"
        wanted = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = no"
        assert status.state.waiting.message == wanted
        await bench.plugins.close()


# ---------------------------------------------------------------- plugins come and go


@async_test
async def test_a_stopped_plugin_leaves_unhealthy_devices_and_after_the_grace_period_none() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        await bench.add_pods(a_gpu_pod("train", 2))
        line.queue.put_nowait(None)
        await settle()
        resources = bench.loop.state.node.config.resources
        assert (str(resources.capacity[GPU]), str(resources.allocatable[GPU])) == ("4", "0")
        assert "code = Unavailable" in bench.event_messages("DevicePluginStopped")[0]
        await bench.add_pods(a_gpu_pod("late", 1))
        assert "no healthy devices present" in bench.record("late").status.message
        await bench.clock.advance(ENDPOINT_STOP_GRACE_PERIOD_S)
        assert bench.node_device_counts() == ("0", "0")
        assert bench.phase("train") == "Running"
        assert bench.allocated_devices("train") == {GPU: {"gpu-0", "gpu-1"}}
        await bench.plugins.close()


@async_test
async def test_a_plugin_that_fails_before_its_first_list_leaves_a_resource_without_devices() -> None:
    line = FakePluginClient()
    line.queue.get_nowait()
    line.queue.put_nowait(None)
    async with DeviceBench({GPU: line}) as bench:
        await bench.register()
        assert bench.node_device_counts() == ("0", "0")
        await bench.plugins.close()


@async_test
async def test_a_plugin_that_registers_again_in_time_keeps_its_devices() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        await bench.add_pods(a_gpu_pod("train", 3))
        line.queue.put_nowait(None)
        await settle()
        bench.lines[GPU] = FakePluginClient()
        await bench.register()
        await bench.clock.advance(ENDPOINT_STOP_GRACE_PERIOD_S)
        assert str(bench.loop.state.node.config.resources.allocatable[GPU]) == "4"
        assert bench.loop.state.node.held.devices.free(GPU) == {"gpu-3"}
        await bench.plugins.close()


@async_test
async def test_a_second_plugin_of_a_resource_replaces_the_first() -> None:
    async with DeviceBench({GPU: (first := FakePluginClient())}) as bench:
        await bench.register()
        bench.lines[GPU] = second = FakePluginClient(GPUS[:1])
        await bench.register()
        await bench.clock.advance(1)
        assert first.is_closed
        assert str(bench.loop.state.node.config.resources.capacity[GPU]) == "1"
        first.queue.put_nowait(None)
        await settle()
        await bench.add_pods(a_gpu_pod("train", 1))
        assert ("allocate", ("gpu-0",)) in second.calls
        await bench.plugins.close()


@async_test
async def test_a_replacing_plugin_that_ends_without_a_list_leaves_unhealthy_devices() -> None:
    async with DeviceBench({GPU: FakePluginClient()}) as bench:
        await bench.register()
        bench.lines[GPU] = second = FakePluginClient()
        second.queue.get_nowait()
        await bench.register()
        await bench.clock.advance(ENDPOINT_STOP_GRACE_PERIOD_S)
        assert bench.node_device_counts() == ("4", "4")
        second.queue.put_nowait(None)
        await settle()
        assert bench.node_device_counts() == ("4", "0")
        await bench.plugins.close()


REFUSED = {
    ("example.com/gpu", "v1alpha1"): 'requested API version "v1alpha1" is not supported by kubelet. '
    'Supported version is ["v1beta1"]',
    ("gpu", "v1beta1"): 'the ResourceName "gpu" is invalid',
    ("kubernetes.io/gpu", "v1beta1"): 'the ResourceName "kubernetes.io/gpu" is invalid',
    ("a/b/c", "v1beta1"): 'the ResourceName "a/b/c" is invalid',
    ("", "v1beta1"): 'the ResourceName "" is invalid',
}


@pytest.mark.parametrize(("told", "text"), REFUSED.items())
def test_invalid_registrations_are_rejected_and_reported(told: tuple[str, str], text: str) -> None:
    @async_test
    async def trial() -> None:
        async with DeviceBench({GPU: FakePluginClient()}) as bench:
            with pytest.raises(PluginRegistrationError) as error:
                await bench.register(*told)
            assert str(error.value) == text
            assert text in bench.event_messages("DevicePluginRefused")[0]

    trial()


@async_test
async def test_a_plugin_that_registers_and_does_not_answer_is_refused() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        line.block("options")
        registering = asyncio.ensure_future(bench.register())
        await settle()
        await bench.clock.advance(10)
        with pytest.raises(
            PluginRegistrationError, match="failed to dial device plugin: context deadline exceeded"
        ):
            await registering
        assert line.is_closed


@async_test
async def test_many_that_register_at_once_are_turned_away_but_for_some() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        line.block("options")
        tasks = [asyncio.ensure_future(bench.register()) for _ in range(50)]
        await settle()
        refused = [task for task in tasks if task.done() and task.exception() is not None]
        assert len(refused) == 50 - 16
        await bench.add_pods(a_pod("web"))
        assert bench.phase("web") == "Running"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@async_test
async def test_a_list_that_names_a_device_twice_changes_nothing() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        line.queue.put_nowait((GPUS[0], replace(GPUS[0], healthy=False)))
        await settle()
        await bench.clock.advance(1)
        assert str(bench.loop.state.node.config.resources.allocatable[GPU]) == "4"
        assert bench.event_messages("DeviceListRefused") == [
            f'{GPU}: its plugin lists the device "gpu-0" twice; the devices stay as they were'
        ]
        await bench.plugins.close()


@async_test
async def test_unknown_numa_nodes_are_ignored_and_reported() -> None:
    odd = (Device("a", (1, 7)), Device("b", (-1,)), Device("c", (1 << 40,)))
    async with DeviceBench({GPU: FakePluginClient(odd)}) as bench:
        await bench.register()
        assert bench.loop.state.node.config.facts.devices[GPU] == (
            Device("a", (1,)),
            Device("b"),
            Device("c"),
        )
        assert len(bench.event_messages("DeviceListRefused")) == 3
        await bench.plugins.close()


@async_test
async def test_a_plugin_that_changes_its_mind_all_the_time_is_listened_to_now_and_then() -> None:
    async with DeviceBench({GPU: (line := FakePluginClient())}) as bench:
        await bench.register()
        before = len(bench.fake_store.stepped)
        for number in range(1000):
            line.queue.put_nowait((replace(GPUS[0], healthy=number % 2 == 1), *GPUS[1:]))
        line.queue.put_nowait(GPUS[:2])
        await settle()
        await bench.clock.advance(1)
        assert str(bench.loop.state.node.config.resources.capacity[GPU]) == "2"
        assert len(bench.fake_store.stepped) - before < 5
        await bench.plugins.close()


@async_test
async def test_devices_that_are_as_they_were_are_no_event() -> None:
    async with DeviceBench({GPU: FakePluginClient()}) as bench:
        await bench.register()
        before = len(bench.fake_store.stepped)
        bench.loop.observe(PluginDevicesListed(resource=GPU, devices=GPUS))
        await settle()
        assert len(bench.fake_store.stepped) == before
        await bench.plugins.close()
