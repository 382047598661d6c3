"""What an agent counts: every decision and deed once, by what the kubelet tells them apart."""

from collections.abc import Mapping
from typing import Any, Self

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test

from nodewright.agent.observe.metric_names import CounterMetric, HistogramMetric
from nodewright.agent.observe.metrics import AgentMetrics
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodSource
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod


class Counting:
    """An agent with a tally of its turns, for `async with`."""

    def __init__(self, profile: NodeProfile | None = None, **scripts: ContainerScript) -> None:
        self.bench = AgentBench(profile, (), None, **scripts)
        self.tally = AgentMetrics(self.bench.clock.now_ns())
        self.bench.loop.on_iteration = self.tally.record_iteration

    async def __aenter__(self) -> Self:
        await self.bench.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bench.__aexit__(None, None, None)

    def counts(self, what: CounterMetric) -> Mapping[tuple[str, ...], int]:
        return {labels: count for labels, count in self.tally.counts[what].items() if count}

    def count(self, what: CounterMetric) -> int:
        return sum(self.tally.counts[what].values())

    def measures(self, what: HistogramMetric) -> dict[tuple[str, ...], int]:
        return {labels: sum(one.counts) for labels, one in self.tally.histograms_of(what)}


def with_init(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, init_containers=(Container(name="init"),)))


@async_test
async def test_a_pod_from_its_start_to_its_end() -> None:
    async with Counting(
        init=ContainerScript(runs_for_s=1), main=ContainerScript(runs_for_s=5, exit_code=3)
    ) as node:
        await node.bench.add_pods(with_init(a_pod("job", restartPolicy="Never")))
        for _ in range(10):
            await node.bench.clock.advance(1)
        assert node.counts(CounterMetric.PODS_STARTED) == {(): 1}
        assert node.counts(CounterMetric.CONTAINERS_STARTED) == {("init_container",): 1, ("container",): 1}
        assert node.counts(CounterMetric.CONTAINERS_ENDED) == {
            ("init_container", "0", "Completed"): 1,
            ("container", "3", "Error"): 1,
        }
        assert node.measures(HistogramMetric.POD_START_DURATION) == {(): 1}
        assert node.measures(HistogramMetric.WORKER_START_DURATION) == {(): 1}
        ((_, containers),) = node.tally.histograms_of(HistogramMetric.CONTAINERS_PER_POD)
        assert (containers.total, sum(containers.counts)) == (1, 1)
        assert node.measures(HistogramMetric.POD_WORKER_DURATION).keys() >= {("create",), ("kill",)}
        assert set(node.measures(HistogramMetric.ITERATION_DURATION)) >= {
            ("PodApplied",),
            ("PodEffectCompleted",),
        }


@async_test
async def test_what_fails_to_start_is_counted_by_its_error() -> None:
    async with Counting() as node:
        node.bench.runtime.fail("run_sandbox", "no room")
        node.bench.runtime.fail("start_container", "no such command")
        await node.bench.add_pods(a_pod())
        await node.bench.clock.advance(11)
        assert node.counts(CounterMetric.PODS_NOT_STARTED) == {(): 1}
        assert node.counts(CounterMetric.CONTAINERS_NOT_STARTED) == {("container", "RunContainerError"): 1}


@async_test
async def test_pins_are_counted_by_container_and_so_are_those_that_fail() -> None:
    async with Counting(a_profile(**STATIC_CPUS, **STATIC_MEMORY)) as node:
        await node.bench.add_pods(a_guaranteed_pod("db", "2/64Mi"), a_pod("web", "100m/64Mi"))
        assert node.count(CounterMetric.CPU_PINS) == 1
        assert node.count(CounterMetric.MEMORY_PINS) == 1
        await node.bench.add_pods(a_guaranteed_pod("huge", "20/64Mi"))
        assert (node.count(CounterMetric.CPU_PINS), node.count(CounterMetric.CPU_PIN_ERRORS)) == (2, 1)
        await node.bench.add_pods(a_guaranteed_pod("fat", "100m/99Gi"))
        assert (node.count(CounterMetric.MEMORY_PINS), node.count(CounterMetric.MEMORY_PIN_ERRORS)) == (2, 1)
        assert node.count(CounterMetric.ALIGNMENTS) == 4
        # Without a topology manager nothing can fail to be aligned.
        assert node.count(CounterMetric.ALIGNMENT_ERRORS) == 0
        assert node.counts(CounterMetric.REJECTED) == {("UnexpectedAdmissionError",): 2}
        assert node.measures(HistogramMetric.ALIGNMENT_DURATION) == {(): 4}


@async_test
async def test_alignment_is_counted_where_it_is_guaranteed() -> None:
    for scope, kept in (("container", "container"), ("pod", "pod")):
        single: dict[str, Any] = {
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerScope": scope,
        }
        async with Counting(a_profile(**STATIC_CPUS, **single)) as node:
            await node.bench.add_pods(a_guaranteed_pod("db", "2/64Mi"))
            assert node.counts(CounterMetric.ALIGNED)[kept, "numa_node"] == 1
            await node.bench.add_pods(a_guaranteed_pod("wide", "5/64Mi"))
            assert node.counts(CounterMetric.UNALIGNED) == {(kept, "numa_node"): 1}
            assert node.count(CounterMetric.ALIGNMENT_ERRORS) == 1
            assert node.counts(CounterMetric.REJECTED) == {("TopologyAffinityError",): 1}
            assert node.counts(CounterMetric.ALIGNED)[kept, "numa_node"] == 1


@async_test
async def test_whole_cores_and_caches_are_counted() -> None:
    async with Counting(
        a_profile(cpuManagerPolicyOptions={"full-pcpus-only": "true"}, **STATIC_CPUS)
    ) as node:
        await node.bench.add_pods(a_guaranteed_pod("db", "2/64Mi"))
        counts = node.counts(CounterMetric.ALIGNED)
        assert counts["container", "physical_cpu"] == 1
        await node.bench.add_pods(a_guaranteed_pod("huge", "20/64Mi"))
        assert node.counts(CounterMetric.UNALIGNED) == {("container", "physical_cpu"): 1}


@async_test
async def test_who_makes_way_is_counted_by_what_was_missing() -> None:
    async with Counting(a_profile()) as node:
        await node.bench.add_pods(a_pod("big", "7/1Gi"))
        await node.bench.set_source_pods(a_static_pod("critical", "6/1Gi"), source=PodSource.FILE)
        assert node.counts(CounterMetric.PREEMPTED) == {("cpu",): 1}


@async_test
async def test_evictions_are_counted_by_signal_with_the_age_of_the_reading() -> None:
    async with Counting(a_profile(evictionHard={"memory.available": "1Gi"})) as node:
        await node.bench.add_pods(a_pod("web", "100m/64Mi"))
        node.bench.memory_readings.set_readings(memory="512Mi/16Gi")
        await node.bench.watch_pressure()
        for _ in range(15):
            await node.bench.clock.advance(1)
        assert node.counts(CounterMetric.EVICTED) == {("memory.available",): 1}


@async_test
async def test_answers_of_probes_are_forgotten_with_their_pod() -> None:
    probed = Container(name="main", liveness_probe={"exec": {"command": ["check"]}, "periodSeconds": 1})
    async with Counting() as node:
        pod = a_pod()
        await node.bench.add_pods(replace(pod, spec=replace(pod.spec, containers=(probed,))))
        await node.bench.clock.advance(1)
        (labels,) = node.counts(CounterMetric.PROBED)
        assert labels == ("Liveness", "successful", "main", "web", "default", "web")
        ((timed, spread),) = node.tally.histograms_of(HistogramMetric.PROBE_DURATION)
        assert (timed, sum(spread.counts)) == (
            ("Liveness", "main", "web", "default"),
            node.counts(CounterMetric.PROBED)[labels],
        )
        await node.bench.remove_pod("web", 0)
        await node.bench.clock.advance(1)
        assert node.counts(CounterMetric.PROBED) == {}
        assert [*node.tally.histograms_of(HistogramMetric.PROBE_DURATION)] == []


@async_test
async def test_an_unchanged_static_pod_that_returns_counts_as_restarted() -> None:
    async with Counting() as node:
        pod = a_static_pod("proxy")
        for pods in ((pod,), (), (pod,)):
            await node.bench.set_source_pods(*pods, source=PodSource.FILE)
            await node.bench.clock.advance(1)
        assert node.counts(CounterMetric.PODS_RESTARTED) == {("true",): 1}


@async_test
async def test_what_ran_before_is_not_counted_again() -> None:
    async with Counting() as first:
        await first.bench.add_pods(a_pod())
        runtime, cgroups = first.bench.runtime, first.bench.cgroups
        mind, memory = first.bench.loop.state, first.bench.fake_store
    bench = AgentBench(clock=first.bench.clock)
    await bench.clock.advance(5)
    bench.adopt(runtime, cgroups)
    bench.replace_state(mind, memory)
    tally = AgentMetrics(bench.clock.now_ns())
    bench.loop.on_iteration = tally.record_iteration
    async with bench:
        await bench.clock.advance(1)
        assert bench.phase("web") == "Running"
        assert not tally.counts[CounterMetric.CONTAINERS_STARTED]
        assert not tally.counts[CounterMetric.PODS_STARTED]
