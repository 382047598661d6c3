"""Pods with devices: plugins are asked before, told afterwards, and may refuse; nobody else waits."""

import asyncio

import pytest
from msgspec.structs import replace

from nodewright.agent.device_values import DevicesSeen
from nodewright.agent.plugins import GRACE_S
from nodewright.agent.values import Stage
from nodewright.model.profile import Device
from nodewright.node.events import PodArrived
from nodewright.testing.agents import running
from nodewright.testing.objects import a_guaranteed_pod, a_pod
from nodewright.testing.plugins import GPU, GPUS, NIC, PREFERS, DeviceBench, FakeLine, with_gpus
from nodewright.testing.runtime import Script, settle
from nodewright.world.errors import WorldError
from nodewright.world.plugins.port import PluginOptions, RegistrationError


@running
async def test_capacity_counts_all_devices_and_allocatable_the_healthy_ones() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        assert str(bench.loop.mind.node.config.resources.capacity[GPU]) == "4"
        line.queue.put_nowait((replace(GPUS[0], healthy=False), *GPUS[1:]))
        await settle()
        await bench.clock.advance(1)
        resources = bench.loop.mind.node.config.resources
        assert (str(resources.capacity[GPU]), str(resources.allocatable[GPU])) == ("4", "3")
        await bench.plugins.close()


@running
async def test_a_pod_runs_on_devices_that_were_handed_out_and_frees_them_when_it_goes() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        await bench.want(with_gpus("train", 2))
        assert bench.phase("train") == "Running"
        assert bench.held("train") == {GPU: {"gpu-0", "gpu-1"}}
        assert ("allocate", ("gpu-0", "gpu-1")) in line.calls
        await bench.drop("train")
        assert bench.held("train") == {}
        await bench.plugins.close()


@running
async def test_while_a_plugin_hands_out_its_devices_are_held_and_others_are_decided_on() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        line.never("allocate")
        await bench.want(with_gpus("first", 3), with_gpus("second", 2), a_pod("web"))
        assert bench.record("first").stage is Stage.ALLOCATING
        assert bench.record("second").status.reason == "UnexpectedAdmissionError"
        assert bench.phase("web") == "Running"
        line.answers["allocate"].set_result(b"")
        await settle()
        assert bench.phase("first") == "Running"
        await bench.plugins.close()


@running
async def test_a_plugin_that_never_hands_out_costs_the_pod_its_place_and_nobody_else() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        line.never("allocate")
        await bench.want(with_gpus("train", 4))
        await bench.clock.advance(30)
        record = bench.record("train")
        assert (record.stage, record.status.phase) == (Stage.REFUSED, "Failed")
        assert record.status.reason == "UnexpectedAdmissionError"
        assert "code = DeadlineExceeded desc = context deadline exceeded" in record.status.message
        assert "train" not in bench.loop.mind.node.pods
        del line.answers["allocate"]
        await bench.want(with_gpus("again", 4))
        assert bench.phase("again") == "Running"
        assert not [each for each in bench.operations() if "train" in each]
        await bench.plugins.close()


@running
async def test_a_plugin_that_dies_while_it_hands_out_has_its_error_in_the_status() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        error = "rpc error: code = Unavailable desc = Socket closed"
        line.says("allocate", WorldError("Allocate", "socket", error))
        await bench.want(with_gpus("train", 1))
        message = bench.record("train").status.message
        assert message == f"Pod was rejected: Allocate failed due to {error}, which is unexpected"
        await bench.plugins.close()


@running
async def test_a_pod_that_nobody_wants_any_more_does_not_wait_for_its_plugin() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        line.never("allocate")
        await bench.want(with_gpus("train", 4))
        await bench.drop("train")
        assert bench.loop.mind.pods == {}
        assert bench.loop.mind.node.held.devices.free(GPU) == {one.id for one in GPUS}
        await bench.plugins.close()


@running
async def test_a_plugin_is_asked_which_devices_it_prefers_and_the_answer_is_journalled() -> None:
    async with DeviceBench({GPU: (line := FakeLine(options=PREFERS))}) as bench:
        await bench.register()
        line.never("preferred")
        await bench.want(with_gpus("train", 2), a_pod("web"))
        assert "train" not in bench.loop.mind.pods
        assert bench.phase("web") == "Running"
        line.answers["preferred"].set_result(("gpu-3", "gpu-1", "elsewhere"))
        await settle()
        assert bench.held("train") == {GPU: {"gpu-1", "gpu-3"}}
        assert bench.phase("train") == "Running"
        (arrived,) = [
            one.event
            for one in bench.memory.stepped
            if isinstance(one.event, PodArrived) and one.event.pod.uid == "train"
        ]
        assert arrived.preferred == {("main", GPU): ("gpu-3", "gpu-1", "elsewhere")}
        assert bench.loop.mind.asked == {}
        await bench.plugins.close()


@running
async def test_each_container_is_asked_about_in_its_turn() -> None:
    two = {GPU: FakeLine(options=PREFERS), NIC: FakeLine((Device("nic-0"), Device("nic-1")), PREFERS)}
    async with DeviceBench(two) as bench:
        await bench.register(GPU)
        await bench.register(NIC)
        two[GPU].says("preferred", ("gpu-2",))
        two[NIC].says("preferred", ("nic-1",))
        await bench.want(a_guaranteed_pod("train", f"{GPU}=1 {NIC}=1"))
        assert bench.held("train") == {GPU: {"gpu-2"}, NIC: {"nic-1"}}
        await bench.plugins.close()


@running
async def test_a_plugin_that_does_not_say_what_it_prefers_costs_the_pod_its_place() -> None:
    async with DeviceBench({GPU: (line := FakeLine(options=PREFERS))}) as bench:
        await bench.register()
        line.never("preferred")
        await bench.want(with_gpus("train", 2))
        await bench.clock.advance(10)
        message = bench.record("train").status.message
        assert "device plugin GetPreferredAllocation rpc failed with err: rpc error" in message
        assert bench.loop.mind.deferred == ()
        await bench.plugins.close()


@running
async def test_a_pod_that_goes_while_its_plugin_is_asked_is_forgotten() -> None:
    async with DeviceBench({GPU: (line := FakeLine(options=PREFERS))}) as bench:
        await bench.register()
        line.never("preferred")
        await bench.have(with_gpus("train", 2))
        await bench.have()
        line.answers["preferred"].set_result(("gpu-3",))
        await settle()
        assert (bench.loop.mind.pods, bench.loop.mind.deferred, bench.loop.mind.asked) == ({}, (), {})
        await bench.plugins.close()


@running
async def test_a_plugin_that_wants_to_is_told_before_each_start() -> None:
    told = PluginOptions(starts_containers=True)
    async with DeviceBench({GPU: (line := FakeLine(options=told))}, main=Script(runs_for_s=1)) as bench:
        await bench.register()
        await bench.want(with_gpus("train", 1))
        await bench.clock.advance(1)
        assert [call for call in line.calls if call[0] == "before_start"] == [
            ("before_start", ("gpu-0",))
        ] * 2
        line.says("before_start", WorldError("PreStartContainer", "s", "rpc error: code = Unknown desc = no"))
        await bench.clock.advance(1)
        await bench.clock.advance(10)
        (status,) = bench.record("train").status.container_statuses
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "CreateContainerConfigError"
        wanted = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = no"
        assert status.state.waiting.message == wanted
        await bench.plugins.close()


# ---------------------------------------------------------------- plugins come and go


@running
async def test_a_plugin_that_goes_leaves_its_devices_ill_and_after_a_while_none() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        await bench.want(with_gpus("train", 2))
        line.queue.put_nowait(None)
        await settle()
        resources = bench.loop.mind.node.config.resources
        assert (str(resources.capacity[GPU]), str(resources.allocatable[GPU])) == ("4", "0")
        assert "code = Unavailable" in bench.tells("DevicePluginStopped")[0]
        await bench.want(with_gpus("late", 1))
        assert "no healthy devices present" in bench.record("late").status.message
        await bench.clock.advance(GRACE_S)
        assert GPU not in bench.loop.mind.node.config.resources.capacity
        assert bench.phase("train") == "Running"
        assert bench.held("train") == {GPU: {"gpu-0", "gpu-1"}}
        await bench.plugins.close()


@running
async def test_a_plugin_that_comes_back_in_time_has_its_devices_again() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        await bench.want(with_gpus("train", 3))
        line.queue.put_nowait(None)
        await settle()
        bench.lines[GPU] = FakeLine()
        await bench.register()
        await bench.clock.advance(GRACE_S)
        assert str(bench.loop.mind.node.config.resources.allocatable[GPU]) == "4"
        assert bench.loop.mind.node.held.devices.free(GPU) == {"gpu-3"}
        await bench.plugins.close()


@running
async def test_a_second_plugin_of_a_resource_takes_the_place_of_the_first() -> None:
    async with DeviceBench({GPU: (first := FakeLine())}) as bench:
        await bench.register()
        bench.lines[GPU] = second = FakeLine(GPUS[:1])
        await bench.register()
        await bench.clock.advance(1)
        assert first.is_closed
        assert str(bench.loop.mind.node.config.resources.capacity[GPU]) == "1"
        first.queue.put_nowait(None)
        await settle()
        await bench.want(with_gpus("train", 1))
        assert ("allocate", ("gpu-0",)) in second.calls
        await bench.plugins.close()


@running
async def test_a_plugin_that_takes_anothers_place_and_ends_without_a_word_leaves_its_devices_ill() -> None:
    async with DeviceBench({GPU: FakeLine()}) as bench:
        await bench.register()
        bench.lines[GPU] = second = FakeLine()
        second.queue.get_nowait()
        await bench.register()
        await bench.clock.advance(GRACE_S)
        assert bench.counted() == ("4", "4")
        second.queue.put_nowait(None)
        await settle()
        assert bench.counted() == ("4", "0")
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
def test_registrations_that_cannot_be_are_refused_and_told(told: tuple[str, str], text: str) -> None:
    @running
    async def trial() -> None:
        async with DeviceBench({GPU: FakeLine()}) as bench:
            with pytest.raises(RegistrationError) as error:
                await bench.register(*told)
            assert str(error.value) == text
            assert text in bench.tells("DevicePluginRefused")[0]

    trial()


@running
async def test_a_plugin_that_registers_and_does_not_answer_is_refused() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        line.never("options")
        registering = asyncio.ensure_future(bench.register())
        await settle()
        await bench.clock.advance(10)
        with pytest.raises(
            RegistrationError, match="failed to dial device plugin: context deadline exceeded"
        ):
            await registering
        assert line.is_closed


@running
async def test_many_that_register_at_once_are_turned_away_but_for_some() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        line.never("options")
        tasks = [asyncio.ensure_future(bench.register()) for _ in range(50)]
        await settle()
        refused = [task for task in tasks if task.done() and task.exception() is not None]
        assert len(refused) == 50 - 16
        await bench.want(a_pod("web"))
        assert bench.phase("web") == "Running"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@running
async def test_a_list_that_names_a_device_twice_changes_nothing() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        line.queue.put_nowait((GPUS[0], replace(GPUS[0], healthy=False)))
        await settle()
        await bench.clock.advance(1)
        assert str(bench.loop.mind.node.config.resources.allocatable[GPU]) == "4"
        assert bench.tells("DeviceListRefused") == [
            f'{GPU}: its plugin lists the device "gpu-0" twice; the devices stay as they were'
        ]
        await bench.plugins.close()


@running
async def test_numa_nodes_that_there_are_not_are_passed_over_and_told() -> None:
    odd = (Device("a", (1, 7)), Device("b", (-1,)), Device("c", (1 << 40,)))
    async with DeviceBench({GPU: FakeLine(odd)}) as bench:
        await bench.register()
        assert bench.loop.mind.node.config.facts.devices[GPU] == (Device("a", (1,)), Device("b"), Device("c"))
        assert len(bench.tells("DeviceListRefused")) == 3
        await bench.plugins.close()


@running
async def test_a_plugin_that_changes_its_mind_all_the_time_is_listened_to_now_and_then() -> None:
    async with DeviceBench({GPU: (line := FakeLine())}) as bench:
        await bench.register()
        before = len(bench.memory.stepped)
        for number in range(1000):
            line.queue.put_nowait((replace(GPUS[0], healthy=number % 2 == 1), *GPUS[1:]))
        line.queue.put_nowait(GPUS[:2])
        await settle()
        await bench.clock.advance(1)
        assert str(bench.loop.mind.node.config.resources.capacity[GPU]) == "2"
        assert len(bench.memory.stepped) - before < 5
        await bench.plugins.close()


@running
async def test_devices_that_are_as_they_were_are_no_event() -> None:
    async with DeviceBench({GPU: FakeLine()}) as bench:
        await bench.register()
        before = len(bench.memory.stepped)
        bench.loop.see(DevicesSeen(resource=GPU, devices=GPUS))
        await settle()
        assert len(bench.memory.stepped) == before
        await bench.plugins.close()
