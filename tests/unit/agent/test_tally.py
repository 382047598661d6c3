"""What an agent counts: every decision and deed once, by what the kubelet tells them apart."""

from collections.abc import Mapping
from typing import Any, Self

from msgspec.structs import replace

from nodewright.agent.counted import Counted, Timed
from nodewright.agent.tally import Tally
from nodewright.agent.values import Source
from nodewright.model.objects import Container, Pod
from nodewright.model.profile import NodeProfile
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod
from nodewright.testing.runtime import Script


class Counting:
    """An agent with a tally of its turns, for `async with`."""

    def __init__(self, profile: NodeProfile | None = None, **scripts: Script) -> None:
        self.bench = AgentBench(profile, (), None, **scripts)
        self.tally = Tally(self.bench.clock.now_ns())
        self.bench.loop.on_turn = self.tally.hear

    async def __aenter__(self) -> Self:
        await self.bench.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bench.__aexit__(None, None, None)

    def counts(self, what: Counted) -> Mapping[tuple[str, ...], int]:
        return {labels: count for labels, count in self.tally.counts[what].items() if count}

    def count(self, what: Counted) -> int:
        return sum(self.tally.counts[what].values())

    def measures(self, what: Timed) -> dict[tuple[str, ...], int]:
        return {labels: sum(one.counts) for labels, one in self.tally.of(what)}


def with_init(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, init_containers=(Container(name="init"),)))


@running
async def test_a_pod_from_its_start_to_its_end() -> None:
    async with Counting(init=Script(runs_for_s=1), main=Script(runs_for_s=5, exit_code=3)) as node:
        await node.bench.want(with_init(a_pod("job", restartPolicy="Never")))
        for _ in range(10):
            await node.bench.clock.advance(1)
        assert node.counts(Counted.PODS_STARTED) == {(): 1}
        assert node.counts(Counted.CONTAINERS_STARTED) == {("init_container",): 1, ("container",): 1}
        assert node.counts(Counted.CONTAINERS_ENDED) == {
            ("init_container", "0", "Completed"): 1,
            ("container", "3", "Error"): 1,
        }
        assert node.measures(Timed.STARTING) == {(): 1}
        assert node.measures(Timed.WORKING).keys() >= {("create",), ("kill",)}
        assert set(node.measures(Timed.DECIDING)) >= {("PodWanted",), ("PodDone",)}


@running
async def test_what_fails_to_start_is_counted_by_its_error() -> None:
    async with Counting() as node:
        node.bench.runtime.fail("run_sandbox", "no room")
        node.bench.runtime.fail("start_container", "no such command")
        await node.bench.want(a_pod())
        await node.bench.clock.advance(11)
        assert node.counts(Counted.PODS_NOT_STARTED) == {(): 1}
        assert node.counts(Counted.CONTAINERS_NOT_STARTED) == {("container", "RunContainerError"): 1}


@running
async def test_pins_are_counted_by_container_and_so_are_those_that_fail() -> None:
    async with Counting(a_profile(**STATIC_CPUS, **STATIC_MEMORY)) as node:
        await node.bench.want(a_guaranteed_pod("db", "2/64Mi"), a_pod("web", "100m/64Mi"))
        assert node.count(Counted.CPU_PINS) == 1
        assert node.count(Counted.MEMORY_PINS) == 1
        await node.bench.want(a_guaranteed_pod("huge", "20/64Mi"))
        assert (node.count(Counted.CPU_PINS), node.count(Counted.CPU_PIN_ERRORS)) == (2, 1)
        await node.bench.want(a_guaranteed_pod("fat", "100m/99Gi"))
        assert (node.count(Counted.MEMORY_PINS), node.count(Counted.MEMORY_PIN_ERRORS)) == (2, 1)
        assert node.count(Counted.ALIGNMENTS) == 4
        # Without a topology manager nothing can fail to be aligned.
        assert node.count(Counted.ALIGNMENT_ERRORS) == 0
        assert node.counts(Counted.REJECTED) == {("UnexpectedAdmissionError",): 2}
        assert node.measures(Timed.ALIGNING) == {(): 4}


@running
async def test_alignment_is_counted_where_it_is_guaranteed() -> None:
    for scope, kept in (("container", "container"), ("pod", "pod")):
        single: dict[str, Any] = {
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerScope": scope,
        }
        async with Counting(a_profile(**STATIC_CPUS, **single)) as node:
            await node.bench.want(a_guaranteed_pod("db", "2/64Mi"))
            assert node.counts(Counted.ALIGNED)[kept, "numa_node"] == 1
            await node.bench.want(a_guaranteed_pod("wide", "5/64Mi"))
            assert node.counts(Counted.UNALIGNED) == {(kept, "numa_node"): 1}
            assert node.count(Counted.ALIGNMENT_ERRORS) == 1
            assert node.counts(Counted.REJECTED) == {("TopologyAffinityError",): 1}
            assert node.counts(Counted.ALIGNED)[kept, "numa_node"] == 1


@running
async def test_whole_cores_and_caches_are_counted() -> None:
    async with Counting(
        a_profile(cpuManagerPolicyOptions={"full-pcpus-only": "true"}, **STATIC_CPUS)
    ) as node:
        await node.bench.want(a_guaranteed_pod("db", "2/64Mi"))
        found = node.counts(Counted.ALIGNED)
        assert found["container", "physical_cpu"] == 1
        await node.bench.want(a_guaranteed_pod("huge", "20/64Mi"))
        assert node.counts(Counted.UNALIGNED) == {("container", "physical_cpu"): 1}


@running
async def test_who_makes_way_is_counted_by_what_was_missing() -> None:
    async with Counting(a_profile()) as node:
        await node.bench.want(a_pod("big", "7/1Gi"))
        await node.bench.have(a_static_pod("critical", "6/1Gi"), source=Source.FILE)
        assert node.counts(Counted.PREEMPTED) == {("cpu",): 1}


@running
async def test_evictions_are_counted_by_signal_with_the_age_of_the_reading() -> None:
    async with Counting(a_profile(evictionHard={"memory.available": "1Gi"})) as node:
        await node.bench.want(a_pod("web", "100m/64Mi"))
        node.bench.gauges.show(memory="512Mi/16Gi")
        await node.bench.watch()
        for _ in range(15):
            await node.bench.clock.advance(1)
        assert node.counts(Counted.EVICTED) == {("memory.available",): 1}


@running
async def test_answers_of_probes_are_forgotten_with_their_pod() -> None:
    probed = Container(name="main", liveness_probe={"exec": {"command": ["check"]}, "periodSeconds": 1})
    async with Counting() as node:
        pod = a_pod()
        await node.bench.want(replace(pod, spec=replace(pod.spec, containers=(probed,))))
        await node.bench.clock.advance(1)
        (labels,) = node.counts(Counted.PROBED)
        assert labels == ("Liveness", "successful", "main", "web", "default", "web")
        ((timed, spread),) = node.tally.of(Timed.PROBING)
        assert (timed, sum(spread.counts)) == (
            ("Liveness", "main", "web", "default"),
            node.counts(Counted.PROBED)[labels],
        )
        await node.bench.drop("web", 0)
        await node.bench.clock.advance(1)
        assert node.counts(Counted.PROBED) == {}
        assert [*node.tally.of(Timed.PROBING)] == []


@running
async def test_a_static_pod_that_comes_back_as_it_was_is_restarted() -> None:
    async with Counting() as node:
        pod = a_static_pod("proxy")
        for pods in ((pod,), (), (pod,)):
            await node.bench.have(*pods, source=Source.FILE)
            await node.bench.clock.advance(1)
        assert node.counts(Counted.PODS_RESTARTED) == {("true",): 1}


@running
async def test_what_ran_before_is_not_counted_again() -> None:
    async with Counting() as first:
        await first.bench.want(a_pod())
        runtime, cgroups = first.bench.runtime, first.bench.cgroups
        mind, memory = first.bench.loop.mind, first.bench.memory
    bench = AgentBench(clock=first.bench.clock)
    await bench.clock.advance(5)
    bench.use(runtime, cgroups)
    bench.begin(mind, memory)
    tally = Tally(bench.clock.now_ns())
    bench.loop.on_turn = tally.hear
    async with bench:
        await bench.clock.advance(1)
        assert bench.phase("web") == "Running"
        assert not tally.counts[Counted.CONTAINERS_STARTED]
        assert not tally.counts[Counted.PODS_STARTED]
