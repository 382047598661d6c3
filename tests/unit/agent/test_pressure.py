"""The agent sees in time that something runs short, and ends one pod after the other until it does not."""

from typing import Any

from nodewright.agent.relief import KILL_TIMEOUT_S
from nodewright.agent.values import Stage
from nodewright.core.eviction import KUBELET, NodeReclaim
from nodewright.model.pressure import NodeCondition
from nodewright.model.profile import NodeProfile
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod, a_static_pod
from nodewright.testing.runtime import Script, settle
from nodewright.testing.usage import a_use
from nodewright.world.ports import Credentials, ImageRoom, StoredImage

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
    return [uid for uid, record in bench.loop.mind.pods.items() if record.status.reason == "Evicted"]


@running
async def test_a_pod_is_evicted_within_fifty_milliseconds_of_the_crossing() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod("small"), a_pod("large"))
        uses(bench, small=GIB, large=3 * GIB)
        bench.gauges.show(memory="1100Mi/16Gi")
        await bench.watch()
        await bench.clock.advance(3)
        assert evicted(bench) == []
        bench.gauges.show(memory=LOW)
        await bench.clock.advance(0.05)
        assert evicted(bench) == ["large"]
        record = bench.record("large")
        assert (record.stage, record.status.phase, record.grace_period_s) == (Stage.ENDED, "Failed", 1)
        assert record.status.message.startswith(
            "The node was low on resource: memory. Threshold quantity: 1Gi, available: 900Mi. "
        )
        (condition,) = [one for one in record.status.conditions if one.type == "DisruptionTarget"]
        assert (condition.status, condition.reason) == ("True", "TerminationByKubelet")


@running
async def test_events_tell_of_the_attempt_the_pod_and_the_node() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        bench.gauges.show(memory=LOW)
        await bench.watch()
        told = [(one.uid, one.reason, one.is_warning) for one in bench.ears.told]
        assert ("", "EvictionThresholdMet", True) in told
        assert ("web", "Evicted", True) in told
        assert ("", "NodeHasInsufficientMemory", False) in told


@running
async def test_the_next_pod_goes_only_when_the_one_before_is_gone() -> None:
    async with AgentBench(hard(), main=Script(ignores_sigterm=True)) as bench:
        await bench.want(a_pod("first"), a_pod("second"))
        uses(bench, first=3 * GIB, second=2 * GIB)
        bench.gauges.show(memory=LOW)
        await bench.watch()
        await bench.clock.advance(1.9)
        assert evicted(bench) == ["first"]
        assert bench.record("first").stage is Stage.ENDING
        # A container has two seconds at least, whatever it is told.
        await bench.clock.advance(0.2)
        assert bench.record("first").stage is Stage.ENDED
        assert evicted(bench) == ["first", "second"]


@running
async def test_a_pod_that_does_not_end_holds_up_the_others_only_for_a_while() -> None:
    async with AgentBench(hard(), main=Script(ignores_sigterm=True)) as bench:
        await bench.want(a_pod("stuck"), a_pod("other"))
        uses(bench, stuck=3 * GIB, other=GIB)
        for _ in range(10):
            bench.runtime.fail("stop_container", "device or resource busy")
        bench.gauges.show(memory=LOW)
        await bench.watch()
        await bench.clock.advance(KILL_TIMEOUT_S + 20)
        assert evicted(bench) == ["stuck"]
        await bench.clock.advance(25)
        assert evicted(bench) == ["stuck", "other"]


@running
async def test_minimum_reclaim_takes_more_pods() -> None:
    async with AgentBench(hard(evictionMinimumReclaim={"memory.available": "2Gi"})) as bench:
        await bench.want(a_pod("first"), a_pod("second"))
        uses(bench, first=3 * GIB, second=2 * GIB)
        bench.gauges.show(memory=LOW)
        await bench.watch()
        bench.gauges.show(memory=ENOUGH)
        await bench.clock.advance(0.1)
        assert evicted(bench) == ["first", "second"]


@running
async def test_static_pods_stay() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_static_pod())
        bench.gauges.show(memory=LOW)
        pressure = await bench.watch()
        await bench.clock.advance(60)
        assert evicted(bench) == []
        assert bench.loop.mind.node.conditions == (NodeCondition.MEMORY_PRESSURE,)
        # Where nobody can go it is enough to try as often as the kubelet does.
        assert pressure.passes < 10


@running
async def test_a_soft_threshold_waits_for_its_grace_period() -> None:
    profile = a_profile(
        evictionSoft={"memory.available": "1Gi"},
        evictionSoftGracePeriod={"memory.available": "30s"},
        evictionMaxPodGracePeriod=7,
    )
    async with AgentBench(profile) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        bench.gauges.show(memory=LOW)
        await bench.watch()
        await bench.clock.advance(29.9)
        assert evicted(bench) == []
        await bench.clock.advance(0.2)
        assert evicted(bench) == ["web"]
        assert bench.record("web").grace_period_s == 7


@running
async def test_an_evicted_pod_that_does_not_end_in_time_is_told_of_once() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        for _ in range(9):
            bench.runtime.fail("stop_container", "device or resource busy")
        bench.gauges.show(memory=LOW)
        await bench.watch()
        await bench.clock.advance(KILL_TIMEOUT_S - 0.5)

        def late() -> list[str]:
            return [one.uid for one in bench.ears.told if one.reason == "ExceededGracePeriod"]

        assert late() == []
        await bench.clock.advance(1)
        assert late() == ["web"]
        await bench.clock.advance(30)
        assert late() == ["web"]


@running
async def test_a_condition_keeps_pods_out_until_its_time_is_over() -> None:
    async with AgentBench(hard(evictionPressureTransitionPeriod="60s")) as bench:
        bench.gauges.show(memory=LOW)
        await bench.watch()
        bench.gauges.show(memory=ENOUGH)
        await bench.clock.advance(30)
        await bench.want(a_pod("early"))
        assert bench.record("early").status.reason == "Evicted"
        assert "had condition: [MemoryPressure]" in bench.record("early").status.message
        await bench.clock.advance(50)
        await bench.want(a_pod("late"))
        assert bench.phase("late") == "Running"
        assert bench.ears.told[-1].reason == "NodeHasSufficientMemory"


@running
async def test_all_pods_have_a_threshold_of_their_own() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        bench.gauges.show(memory="8Gi/16Gi", allocatable="900Mi/4Gi")
        await bench.watch()
        assert evicted(bench) == ["web"]


@running
async def test_looks_are_seldom_far_from_thresholds_and_often_near() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        bench.gauges.show(memory="15Gi/16Gi", allocatable="15Gi/16Gi")
        pressure = await bench.watch()
        before = pressure.looks
        await bench.clock.advance(70)
        # Once every seven seconds, and after each look at the disks.
        assert pressure.looks - before < 20
        bench.gauges.show(memory="1050Mi/16Gi", allocatable="15Gi/16Gi")
        await bench.clock.advance(10)
        before = pressure.looks
        await bench.clock.advance(1)
        assert pressure.looks - before == 20
        # A look is not a pass: those are made when they could change something.
        assert pressure.passes < 12


@running
async def test_an_alarm_makes_it_look_at_once() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        bench.gauges.show(memory="8Gi/16Gi", allocatable="3Gi/4Gi")
        await bench.watch()
        # Pods use 1 GiB; at 3 GiB no more than the threshold is left of their 4.
        assert bench.alarms.threshold_bytes == 3 * GIB
        bench.gauges.show(memory="8Gi/16Gi", allocatable="900Mi/4Gi")
        bench.alarms.rings()
        await settle()
        assert evicted(bench) == ["web"]


@running
async def test_by_the_kubelets_policy_it_looks_every_ten_seconds() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        await bench.watch(KUBELET)
        await bench.clock.advance(1)
        bench.gauges.show(memory=LOW)
        bench.alarms.rings()
        await bench.clock.advance(8.9)
        assert evicted(bench) == []
        await bench.clock.advance(0.2)
        assert evicted(bench) == ["web"]


@running
async def test_the_kubelets_policy_hears_thresholds_where_it_is_told_to() -> None:
    async with AgentBench(hard(kernelMemcgNotification=True)) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        await bench.watch(KUBELET)
        await bench.clock.advance(1)
        bench.gauges.show(memory=LOW)
        bench.alarms.rings("stalls of the machine")
        await bench.clock.advance(1)
        assert evicted(bench) == []
        bench.alarms.rings()
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

    async def place(self) -> str:
        return "/"

    async def images(self) -> tuple[StoredImage, ...]:
        return self.there

    async def in_use(self) -> frozenset[str]:
        return frozenset({"app"})

    async def room(self) -> ImageRoom:
        return ImageRoom(capacity_bytes=1, available_bytes=1)

    async def remove(self, image_id: str) -> None:
        self.there = tuple(one for one in self.there if one.id != image_id)


@running
async def test_the_node_gives_back_images_and_dead_containers_before_a_pod_has_to_go() -> None:
    profile = a_profile(evictionHard={"nodefs.available": "10%"})
    async with AgentBench(profile, main=Script(runs_for_s=5, exit_code=1)) as bench:
        await bench.want(a_pod(restartPolicy="Never"), a_pod("failing"))
        await bench.clock.advance(200)
        bench.gauges.show(nodefs="1Gi/100Gi")
        images = Images("app", "pause", "old")
        await bench.watch(images=images)
        (work,) = bench.ears.reclaims
        assert work.what == (NodeReclaim.CONTAINERS, NodeReclaim.IMAGES)
        assert [one.id for one in images.there] == ["app", "pause"]
        assert "remove_container main-web-0" in bench.operations()
        assert evicted(bench) == ["failing"]


@running
async def test_no_pod_goes_if_what_the_node_gives_back_is_enough() -> None:
    async with AgentBench(a_profile(evictionHard={"nodefs.available": "10%"})) as bench:

        class Helpful(Images):
            async def remove(self, image_id: str) -> None:
                await super().remove(image_id)
                bench.gauges.show(nodefs="50Gi/100Gi")

        await bench.want(a_pod())
        bench.gauges.show(nodefs="1Gi/100Gi")
        await bench.watch(images=Helpful("old"))
        await bench.clock.advance(30)
        assert bench.phase("web") == "Running"
        assert bench.loop.mind.node.conditions == (NodeCondition.DISK_PRESSURE,)


@running
async def test_a_pod_above_its_limit_on_local_storage_goes() -> None:
    async with AgentBench() as bench:
        pod = a_pod(volumes=[{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}])
        await bench.want(pod)
        bench.storage.uses["web"] = a_use("web", cache="2Gi")
        await bench.watch()
        await bench.clock.advance(15)
        assert (
            bench.record("web").status.message == 'Usage of EmptyDir volume "cache" exceeds the limit "1Gi". '
        )


@running
async def test_the_clock_may_jump() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        await bench.watch()
        await bench.clock.advance(30)
        bench.clock.jump(-86_400)
        bench.gauges.show(memory=LOW)
        await bench.clock.advance(10)
        assert evicted(bench) == ["web"]


@running
async def test_what_cannot_be_read_is_told_once_and_tried_again() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        uses(bench, web=GIB)
        bench.gauges.error = "too many open files"
        await bench.watch()
        await bench.clock.advance(60)
        told = [one.message for one in bench.ears.told if one.reason == "PressureNotSeen"]
        assert told == ["read /proc/meminfo: too many open files"]
        bench.gauges.error = ""
        bench.gauges.show(memory=LOW)
        await bench.clock.advance(10)
        assert evicted(bench) == ["web"]
