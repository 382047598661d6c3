"""The agent sees in time that something runs short, and ends one pod after the other until it does not."""

from typing import Any

import pytest
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle

from nodewright.agent.decide.termination import KILL_TIMEOUT_S
from nodewright.agent.host.ports import Credentials, ImageFsStats, StoredImage
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodStage
from nodewright.engine.core.eviction.eviction_policy import KUBELET
from nodewright.engine.core.eviction.eviction_state import NodeReclaim
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod, a_static_pod
from nodewright.testing.usage import a_pod_usage

GIB = 1 << 30
LOW, ENOUGH = "900Mi/16Gi", "2Gi/16Gi"


def hard(**kubelet: Any) -> NodeProfile:
    """A node that ends pods at once when less than 1 GiB is left."""
    return a_profile(evictionHard={"memory.available": "1Gi"}, **kubelet)


def uses(bench: AgentBench, **memory: int) -> None:
    """Pods of no class use so much."""
    for uid, amount in memory.items():
        group = bench.cgroups.groups[f"/kubepods/besteffort/pod{uid}"]
        group |= {"memory.current": str(amount), "memory.stat": "anon 0\ninactive_file 0"}


def evicted(bench: AgentBench) -> list[str]:
    return [uid for uid, record in bench.loop.state.pods.items() if record.status.reason == "Evicted"]


@async_test
async def test_a_pod_is_evicted_within_fifty_milliseconds_of_the_crossing() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod("small"), a_pod("large"))
        uses(bench, small=GIB, large=3 * GIB)
        bench.memory_readings.set_readings(memory="1100Mi/16Gi")
        await bench.watch_pressure()
        await bench.clock.advance(3)
        assert evicted(bench) == []
        bench.memory_readings.set_readings(memory=LOW)
        await bench.clock.advance(0.05)
        assert evicted(bench) == ["large"]
        record = bench.record("large")
        assert (record.stage, record.status.phase, record.grace_period_s) == (
            PodStage.TERMINATED,
            "Failed",
            1,
        )
        assert record.status.message.startswith(
            "The node was low on resource: memory. Threshold quantity: 1Gi, available: 900Mi. "
        )
        (condition,) = [
            condition for condition in record.status.conditions if condition.type == "DisruptionTarget"
        ]
        assert (condition.status, condition.reason) == ("True", "TerminationByKubelet")


@async_test
async def test_events_tell_of_the_attempt_the_pod_and_the_node() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        bench.memory_readings.set_readings(memory=LOW)
        await bench.watch_pressure()
        rows = [(event.uid, event.reason, event.is_warning) for event in bench.event_recorder.events]
        assert ("", "EvictionThresholdMet", True) in rows
        assert ("web", "Evicted", True) in rows
        assert ("", "NodeHasInsufficientMemory", False) in rows


@async_test
async def test_the_next_pod_is_evicted_only_after_the_previous_one_has_ended() -> None:
    async with AgentBench(hard(), main=ContainerScript(ignores_sigterm=True)) as bench:
        await bench.add_pods(a_pod("first"), a_pod("second"))
        uses(bench, first=3 * GIB, second=2 * GIB)
        bench.memory_readings.set_readings(memory=LOW)
        await bench.watch_pressure()
        await bench.clock.advance(1.9)
        assert evicted(bench) == ["first"]
        assert bench.record("first").stage is PodStage.TERMINATING
        # A container has two seconds at least, whatever it is told.
        await bench.clock.advance(0.2)
        assert bench.record("first").stage is PodStage.TERMINATED
        assert evicted(bench) == ["first", "second"]


@pytest.mark.slow
@async_test
async def test_a_pod_that_does_not_end_holds_up_the_others_only_for_a_while() -> None:
    async with AgentBench(hard(), main=ContainerScript(ignores_sigterm=True)) as bench:
        await bench.add_pods(a_pod("stuck"), a_pod("other"))
        uses(bench, stuck=3 * GIB, other=GIB)
        for _ in range(10):
            bench.runtime.fail("stop_container", "device or resource busy")
        bench.memory_readings.set_readings(memory=LOW)
        await bench.watch_pressure()
        await bench.clock.advance(KILL_TIMEOUT_S + 20)
        assert evicted(bench) == ["stuck"]
        await bench.clock.advance(25)
        assert evicted(bench) == ["stuck", "other"]


@async_test
async def test_minimum_reclaim_evicts_more_pods() -> None:
    async with AgentBench(hard(evictionMinimumReclaim={"memory.available": "2Gi"})) as bench:
        await bench.add_pods(a_pod("first"), a_pod("second"))
        uses(bench, first=3 * GIB, second=2 * GIB)
        bench.memory_readings.set_readings(memory=LOW)
        await bench.watch_pressure()
        bench.memory_readings.set_readings(memory=ENOUGH)
        await bench.clock.advance(0.1)
        assert evicted(bench) == ["first", "second"]


@async_test
async def test_static_pods_stay() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_static_pod())
        bench.memory_readings.set_readings(memory=LOW)
        pressure = await bench.watch_pressure()
        await bench.clock.advance(60)
        assert evicted(bench) == []
        assert bench.loop.state.node.conditions == (NodeCondition.MEMORY_PRESSURE,)
        # Where nobody can go it is enough to try as often as the kubelet does.
        assert pressure.passes < 10


@async_test
async def test_a_soft_threshold_waits_for_its_grace_period() -> None:
    profile = a_profile(
        evictionSoft={"memory.available": "1Gi"},
        evictionSoftGracePeriod={"memory.available": "30s"},
        evictionMaxPodGracePeriod=7,
    )
    async with AgentBench(profile) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        bench.memory_readings.set_readings(memory=LOW)
        await bench.watch_pressure()
        await bench.clock.advance(29.9)
        assert evicted(bench) == []
        await bench.clock.advance(0.2)
        assert evicted(bench) == ["web"]
        assert bench.record("web").grace_period_s == 7


@pytest.mark.slow
@async_test
async def test_an_evicted_pod_that_does_not_end_in_time_is_reported_once() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        for _ in range(9):
            bench.runtime.fail("stop_container", "device or resource busy")
        bench.memory_readings.set_readings(memory=LOW)
        await bench.watch_pressure()
        await bench.clock.advance(KILL_TIMEOUT_S - 0.5)

        def late() -> list[str]:
            return [
                event.uid for event in bench.event_recorder.events if event.reason == "ExceededGracePeriod"
            ]

        assert late() == []
        await bench.clock.advance(1)
        assert late() == ["web"]
        await bench.clock.advance(30)
        assert late() == ["web"]


@async_test
async def test_a_condition_keeps_pods_out_until_its_time_is_over() -> None:
    async with AgentBench(hard(evictionPressureTransitionPeriod="60s")) as bench:
        bench.memory_readings.set_readings(memory=LOW)
        await bench.watch_pressure()
        bench.memory_readings.set_readings(memory=ENOUGH)
        await bench.clock.advance(30)
        await bench.add_pods(a_pod("early"))
        assert bench.record("early").status.reason == "Evicted"
        assert "had condition: [MemoryPressure]" in bench.record("early").status.message
        await bench.clock.advance(50)
        await bench.add_pods(a_pod("late"))
        assert bench.phase("late") == "Running"
        assert bench.event_recorder.events[-1].reason == "NodeHasSufficientMemory"


@async_test
async def test_all_pods_have_a_threshold_of_their_own() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        bench.memory_readings.set_readings(memory="8Gi/16Gi", allocatable="900Mi/4Gi")
        await bench.watch_pressure()
        assert evicted(bench) == ["web"]


@async_test
async def test_looks_are_seldom_far_from_thresholds_and_often_near() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        bench.memory_readings.set_readings(memory="15Gi/16Gi", allocatable="15Gi/16Gi")
        pressure = await bench.watch_pressure()
        before = pressure.reads
        await bench.clock.advance(70)
        # Once every seven seconds, and after each look at the disks.
        assert pressure.reads - before < 20
        bench.memory_readings.set_readings(memory="1050Mi/16Gi", allocatable="15Gi/16Gi")
        await bench.clock.advance(10)
        before = pressure.reads
        await bench.clock.advance(1)
        assert pressure.reads - before == 20
        # A look is not a pass: those are made when they could change something.
        assert pressure.passes < 12


@async_test
async def test_an_alarm_makes_it_look_at_once() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        bench.memory_readings.set_readings(memory="8Gi/16Gi", allocatable="3Gi/4Gi")
        await bench.watch_pressure()
        # Pods use 1 GiB; at 3 GiB no more than the threshold is left of their 4.
        assert bench.pressure_events.threshold_bytes == 3 * GIB
        bench.memory_readings.set_readings(memory="8Gi/16Gi", allocatable="900Mi/4Gi")
        bench.pressure_events.trigger()
        await settle()
        assert evicted(bench) == ["web"]


@async_test
async def test_by_the_kubelets_policy_it_looks_every_ten_seconds() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        await bench.watch_pressure(KUBELET)
        await bench.clock.advance(1)
        bench.memory_readings.set_readings(memory=LOW)
        bench.pressure_events.trigger()
        await bench.clock.advance(8.9)
        assert evicted(bench) == []
        await bench.clock.advance(0.2)
        assert evicted(bench) == ["web"]


@async_test
async def test_the_kubelets_policy_uses_threshold_notifications_if_configured() -> None:
    async with AgentBench(hard(kernelMemcgNotification=True)) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        await bench.watch_pressure(KUBELET)
        await bench.clock.advance(1)
        bench.memory_readings.set_readings(memory=LOW)
        bench.pressure_events.trigger("stalls of the machine")
        await bench.clock.advance(1)
        assert evicted(bench) == []
        bench.pressure_events.trigger()
        await bench.clock.advance(1)
        assert evicted(bench) == ["web"]


class Images:
    """Images of a runtime, of which containers are made of `app`."""

    def __init__(self, *names: str) -> None:
        self.there = tuple(StoredImage(id=name, size_bytes=1, is_pinned=name == "pause") for name in names)

    async def image_id(self, image: str) -> str | None:
        return image

    async def pull(self, image: str, credentials: Credentials | None = None) -> str:
        del credentials
        return image

    async def image_size(self, image: str) -> int:
        return sum(stored.size_bytes for stored in self.there if stored.id == image)

    async def image_fs_path(self) -> str:
        return "/"

    async def images(self) -> tuple[StoredImage, ...]:
        return self.there

    async def in_use(self) -> frozenset[str]:
        return frozenset({"app"})

    async def image_fs_stats(self) -> ImageFsStats:
        return ImageFsStats(capacity_bytes=1, available_bytes=1)

    async def remove(self, image_id: str) -> None:
        self.there = tuple(stored_image for stored_image in self.there if stored_image.id != image_id)


@async_test
async def test_the_node_gives_back_images_and_dead_containers_before_a_pod_has_to_go() -> None:
    profile = a_profile(evictionHard={"nodefs.available": "10%"})
    async with AgentBench(profile, main=ContainerScript(runs_for_s=5, exit_code=1)) as bench:
        await bench.add_pods(a_pod(restartPolicy="Never"), a_pod("failing"))
        await bench.clock.advance(200)
        bench.memory_readings.set_readings(nodefs="1Gi/100Gi")
        images = Images("app", "pause", "old")
        await bench.watch_pressure(images=images)
        (work,) = bench.event_recorder.reclaims
        assert work.targets == (NodeReclaim.CONTAINERS, NodeReclaim.IMAGES)
        assert [stored_image.id for stored_image in images.there] == ["app", "pause"]
        assert "remove_container main-web-0" in bench.runtime_operations()
        assert evicted(bench) == ["failing"]


@async_test
async def test_no_pod_is_evicted_if_node_reclaim_is_enough() -> None:
    async with AgentBench(a_profile(evictionHard={"nodefs.available": "10%"})) as bench:

        class Helpful(Images):
            async def remove(self, image_id: str) -> None:
                await super().remove(image_id)
                bench.memory_readings.set_readings(nodefs="50Gi/100Gi")

        await bench.add_pods(a_pod())
        bench.memory_readings.set_readings(nodefs="1Gi/100Gi")
        await bench.watch_pressure(images=Helpful("old"))
        await bench.clock.advance(30)
        assert bench.phase("web") == "Running"
        assert bench.loop.state.node.conditions == (NodeCondition.DISK_PRESSURE,)


@async_test
async def test_a_pod_above_its_local_storage_limit_is_evicted() -> None:
    async with AgentBench() as bench:
        pod = a_pod(volumes=[{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}])
        await bench.add_pods(pod)
        bench.storage.uses["web"] = a_pod_usage("web", cache="2Gi")
        await bench.watch_pressure()
        await bench.clock.advance(15)
        assert (
            bench.record("web").status.message == 'Usage of EmptyDir volume "cache" exceeds the limit "1Gi". '
        )


@async_test
async def test_the_clock_may_jump() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        await bench.watch_pressure()
        await bench.clock.advance(30)
        bench.clock.jump(-86_400)
        bench.memory_readings.set_readings(memory=LOW)
        await bench.clock.advance(10)
        assert evicted(bench) == ["web"]


@async_test
async def test_unreadable_stats_are_reported_once_and_read_again() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        uses(bench, web=GIB)
        bench.memory_readings.error = "too many open files"
        await bench.watch_pressure()
        await bench.clock.advance(60)
        texts = [event.message for event in bench.event_recorder.events if event.reason == "PressureNotSeen"]
        assert texts == ["read /proc/meminfo: too many open files"]
        bench.memory_readings.error = ""
        bench.memory_readings.set_readings(memory=LOW)
        await bench.clock.advance(10)
        assert evicted(bench) == ["web"]
