"""The extender over an API server in memory: bindings, races, broken connections, restarts, comparisons."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.support.deciding_nodes import DecidingNodes
from tests.support.fake_clock import FakeClock
from tests.support.memory_cluster import NODES, PODS
from tests.support.small_nodes import a_numa_pod
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile, holds_nothing, with_pods

from nodewright.scheduling.extender.cluster_feed import BUDGETS_PATH
from nodewright.scheduling.extender.extender_service import BIND_WAIT_S
from nodewright.scheduling.verdicts.admit_answer import AdmitRequest
from nodewright.scheduling.verdicts.tracked_cluster import Basis
from nodewright.scheduling.verdicts.verdict_ledger import ComparedVerdict, VerdictOutcome


@asynccontextmanager
async def following(bench: ExtenderBench) -> AsyncIterator[None]:
    """The reflectors run."""
    tasks = [asyncio.ensure_future(reflector.run()) for reflector in (bench.feed.nodes, bench.feed.pods)]
    try:
        await until(lambda: bench.feed.has_listed)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not become so")


def test_a_pod_is_bound_where_it_is_admitted_and_takes_its_place() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        first, second = bench.api.create_free_pod("first", 4), bench.api.create_free_pod("second", 4)
        bench.put_export("n1", a_profile())
        async with following(bench):
            assert bench.filter(first, "n1")["NodeNames"] == ["n1"]
            assert await bench.bind(first, "n1") == ""
            assert bench.api.pods()["first"]["spec"]["nodeName"] == "n1"
            assert "TopologyAffinityError" in bench.filter(second, "n1")["FailedAndUnresolvableNodes"]["n1"]
            assert (await bench.bind(second, "n1")).startswith("node n1: TopologyAffinityError: ")
            assert "nodeName" not in bench.api.pods()["second"]["spec"]

    asyncio.run(scenario())


def test_two_calls_of_bind_at_once_do_not_share_a_place() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        pods = [bench.api.create_free_pod(name, 4) for name in ("first", "second")]
        bench.put_export("n1", a_profile())
        async with following(bench):
            errors = await asyncio.gather(*[bench.bind(pod, "n1") for pod in pods])
            assert sorted(map(bool, errors)) == [False, True]

    asyncio.run(scenario())


def test_a_binding_whose_answer_is_lost_is_found_in_the_cluster() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        pod = bench.api.create_free_pod("first", 1)
        bench.put_export("n1", a_profile())
        async with following(bench):
            assert await bench.bind(pod, "n1") == ""
            # The scheduler has not got the answer, and tries again.
            assert await bench.bind(pod, "n1") == ""
            assert (await bench.bind(pod, "elsewhere")).endswith("already assigned to node n1")
            assert [each.node for each in bench.cluster.reservations()] == ["n1"]

    asyncio.run(scenario())


def test_a_binding_that_may_still_happen_keeps_its_place() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        pod = bench.api.create_free_pod("first", 4)
        bench.put_export("n1", a_profile())
        async with following(bench):
            bench.api.partition(is_reachable=False)
            assert await bench.bind(pod, "n1") != ""
            assert [each.is_bound for each in bench.cluster.reservations()] == [False]
            bench.api.partition(is_reachable=True)
            assert bench.cluster.expire_reservations(now_s=clock.monotonic_s() + 60.0)

    asyncio.run(scenario())


@pytest.mark.parametrize("strict", [False, True])
def test_a_node_that_is_not_in_the_cluster_is_a_guess(strict: bool) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock, strict=strict)
        pod = bench.api.create_free_pod("p", 4)
        async with following(bench):
            bench.put_export("n1", a_profile())
            answer = bench.filter(pod, "elsewhere", "n1")
            assert answer["NodeNames"] == (["n1"] if strict else ["elsewhere", "n1"])
            refusals = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
            assert list(refusals) == (["elsewhere"] if strict else [])
            assert all("the cluster has no such node" in text for text in refusals.values())
            answers = bench.service.admit(AdmitRequest(pod=pod, nodes=("elsewhere", "n1"), strict=strict))
            assert [node.basis for node in answers.nodes] == [Basis.UNKNOWN, Basis.EXACT]
            assert [node.possible for node in answers.nodes] == [not strict, True]
            # The API server has the last word about a guess.
            assert ("no such node" in await bench.bind(pod, "elsewhere")) == strict

    asyncio.run(scenario())


def test_a_pod_that_is_another_is_not_bound() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        pod = bench.api.create_free_pod("first", 1)
        bench.put_export("n1", a_profile())
        async with following(bench):
            pod["metadata"]["uid"] = "another"
            assert (await bench.bind(pod, "n1")).endswith("does not exist")

    asyncio.run(scenario())


def test_a_restarted_extender_finds_its_reservations_in_the_cluster() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        api = BindingCluster(clock)
        before, after = ExtenderBench(api, clock), ExtenderBench(api, clock)
        first, second = api.create_free_pod("first", 4), api.create_free_pod("second", 4)
        before.put_export("n1", a_profile())
        async with following(before):
            assert await before.bind(first, "n1") == ""
        after.put_export("n1", a_profile())
        assert after.filter(second, "n1")["Error"] == "the extender has not read the cluster yet"
        async with following(after):
            assert list(after.filter(second, "n1")["FailedAndUnresolvableNodes"]) == ["n1"]

    asyncio.run(scenario())


def test_before_the_cluster_is_read_calls_pass_or_fail_as_configured() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock, fails_open=True)
        pod = bench.api.create_free_pod("first", 99)
        assert bench.filter(pod, "n1", "n2")["NodeNames"] == ["n1", "n2"]
        assert await bench.bind(pod, "n1") == ""

    asyncio.run(scenario())


def test_each_verdict_is_compared_with_what_the_kubelet_did() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        compared: list[ComparedVerdict] = []
        bench.feed.on_compared = compared.append
        pods = {name: bench.api.create_free_pod(name, 4) for name in ("right", "wrong")}
        bench.put_export("n1", a_profile())
        bench.put_export("n2", a_profile())
        async with following(bench):
            assert [await bench.bind(pods["right"], "n1"), await bench.bind(pods["wrong"], "n2")] == ["", ""]
            path = "/api/v1/namespaces/default/pods"
            await bench.api.patch(f"{path}/right/status", {"status": {"phase": "Running"}})
            failed = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "cannot be"}
            await bench.api.patch(f"{path}/wrong/status", {"status": failed})
            await until(lambda: len(compared) == 2)
        assert [each.outcome for each in compared] == [
            VerdictOutcome.ADMITTED_AND_RAN,
            VerdictOutcome.ADMITTED_BUT_REJECTED,
        ]
        assert "default/wrong: admitted but rejected" in compared[1].sentence
        assert 'wrong_verdicts_total{basis="exact"} 1' in bench.service.metrics_text()

    asyncio.run(scenario())


def test_pods_of_other_schedulers_are_reserved_and_compared() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        second = bench.api.create_free_pod("second", 4)
        bench.put_export("n1", a_profile())
        async with following(bench):
            bench.api.create_free_pod("other", 4, nodeName="n1")
            await until(lambda: bool(list(bench.cluster.reservations())))
            assert list(bench.filter(second, "n1")["FailedAndUnresolvableNodes"]) == ["n1"]
            assert bench.feed.ledger.awaits("uid-other")

    asyncio.run(scenario())


def test_disruption_budgets_are_followed() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        path = f"{BUDGETS_PATH}/b"
        metadata = {"name": "b", "namespace": "default", "uid": "uid-b"}
        bench.api.put(path, {"metadata": metadata, "status": {"disruptionsAllowed": 3}})
        task = asyncio.ensure_future(bench.feed.budgets.run())
        await until(lambda: bool(bench.cluster.budgets))
        assert bench.cluster.budgets["uid-b"].disruptions_allowed == 3
        bench.api.remove(path)
        await until(lambda: not bench.cluster.budgets)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_exported", [True, False])
def test_filter_waits_for_the_export_after_the_end_of_a_pod(is_exported: bool) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        bench.api.create_free_pod("ends", 4, nodeName="n1")
        waiting = bench.api.create_free_pod("waiting", 4)
        async with following(bench):
            bench.put_export("n1", with_pods(a_profile(), a_numa_pod("ends", {"cpu": 4000, "memory": 16})))
            body = msgspec.json.encode({"Pod": waiting, "NodeNames": ["n1"]})
            # The pod has not ended yet: the answer does not wait.
            first = msgspec.json.decode(await bench.service.filter_after_exports(body))
            assert list(first["FailedAndUnresolvableNodes"]) == ["n1"]
            bench.api.delete_pod("ends", is_forced=True)
            await until(lambda: bool(bench.cluster.nodes["n1"].departing))
            call = asyncio.ensure_future(bench.service.filter_after_exports(body))
            await clock.advance(0.1)
            assert not call.done()
            if is_exported:
                bench.put_export("n1", a_profile(), generation=2)
            await clock.advance(0.3)
            assert msgspec.json.decode(await call)["NodeNames"] == ["n1"]
            binding = asyncio.ensure_future(bench.bind(waiting, "n1"))
            await clock.advance(0.1)
            if not is_exported:
                # A scheduler binds beside other pods: this answer waits longer, and then refuses.
                assert not binding.done()
                await clock.advance(BIND_WAIT_S)
            assert ("n1" in await binding) != is_exported
            # Another pod would not fit either way.
            huge = bench.api.create_free_pod("huge", 7)
            body = msgspec.json.encode({"Pod": huge, "NodeNames": ["n1"]})
            assert not msgspec.json.decode(await bench.service.filter_after_exports(body))["NodeNames"]

    asyncio.run(scenario())


NAMES = ("n0", "n1", "n2", "n3")


@pytest.mark.parametrize("recurs", [True, False])
def test_nodes_are_judged_ahead_about_pods_that_recur(recurs: bool) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        pods = [bench.api.create_free_pod(name, cpus) for name, cpus in (("a", 2), ("b", 2 if recurs else 3))]
        async with following(bench):
            for number, name in enumerate(NAMES):
                held = a_numa_pod(f"held-{name}", {"cpu": 1000, "memory": 16 + number})
                bench.put_export(name, with_pods(a_profile(), held))
            task = asyncio.ensure_future(bench.service.judge_ahead())
            for pod, name in zip(pods, NAMES, strict=False):
                assert bench.filter(pod, name)["NodeNames"] == [name]
            await clock.advance(1)
            counts = bench.cluster.pool.counts
            computed = counts.computed
            assert bench.filter(pods[1], *NAMES)["NodeNames"] == list(NAMES)
            assert counts.computed - computed == (0 if recurs else 3)
            # What has changed since is judged again.
            full = [a_numa_pod(f"held-{number}", {"cpu": 3000, "memory": 16}) for number in range(2)]
            bench.put_export("n3", with_pods(a_profile(), *full), generation=2)
            assert "n3" not in bench.filter(pods[1], *NAMES)["NodeNames"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


async def pass_time(clock: FakeClock) -> None:
    while True:
        await clock.advance(0.1)


async def export_nodes(bench: ExtenderBench, nodes: DecidingNodes, draw: random.Random) -> None:
    while True:
        for name, deciding in nodes.nodes.items():
            bench.put_export(name, deciding.profile_now(), deciding.generation)
        for _ in range(draw.randrange(40)):
            await asyncio.sleep(0)


async def schedule_pods(bench: ExtenderBench, pods: list[dict[str, Any]], draw: random.Random) -> None:
    """Binds pods as a scheduler does: several attempts, each on any node that passes."""
    for _ in range(4):
        for pod in list(pods):
            passed = bench.filter(pod, *NAMES)["NodeNames"]
            if passed and not await bench.bind(pod, draw.choice(passed)):
                pods.remove(pod)
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(4))
def test_no_pod_is_rejected_with_racing_schedulers_faults_and_restarts(seed: int) -> None:
    """Nodes that decide as kubelets, schedulers that race, an API server that breaks, an extender that restarts."""

    async def scenario() -> None:
        draw, clock = random.Random(seed), FakeClock()
        api = BindingCluster(clock, seed)
        nodes = DecidingNodes(api, dict.fromkeys(NAMES, a_profile()), clock)
        for name in NAMES:
            api.create_node(name)
        waiting = [api.create_free_pod(f"p{at}", draw.randint(1, 4)) for at in range(24)]
        tasks = [asyncio.ensure_future(nodes.run()), asyncio.ensure_future(pass_time(clock))]
        for _ in range(2):
            # The second extender knows what the first has done from the cluster only.
            bench = ExtenderBench(api, clock)
            exporting = asyncio.ensure_future(export_nodes(bench, nodes, draw))
            async with following(bench):
                api.failure_rate = 0.2
                halves = (waiting[:12], waiting[12:])
                await asyncio.gather(*[schedule_pods(bench, half, draw) for half in halves])
                api.failure_rate = 0.0
            exporting.cancel()
            tasks.append(exporting)
        bound = sum("nodeName" in pod["spec"] for pod in api.pods().values())
        await until(lambda: len(nodes.admitted) + len(nodes.rejected) >= bound)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert nodes.rejected == []
        assert len(nodes.admitted) > 6

    asyncio.run(scenario())


def test_a_refused_binding_to_an_unknown_node_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        first = bench.api.create_free_pod("first", 1, nodeName="n1")
        second = bench.api.create_free_pod("second", 1)
        async with following(bench):
            assert "already assigned to node n1" in await bench.bind(first, "n2")
            assert await bench.bind(second, "n2") == ""
            assert not bench.cluster.nodes
            for name in ("first", "second"):
                bench.api.remove(f"{PODS}/{name}")
            await until(lambda: not bench.feed.pods.objects)
            assert holds_nothing(bench.cluster)

    asyncio.run(scenario())


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
ON_ZONE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
        }
    }
}


@pytest.mark.parametrize("is_exported", [True, False])
@pytest.mark.parametrize(
    ("spec", "node", "error"),
    [
        ({"nodeSelector": {"zone": "b"}}, {}, "zone"),
        ({"affinity": ON_ZONE}, {}, "zone"),
        ({}, {"taints": [TAINT]}, "gpu=yes:NoSchedule"),
        ({}, {"taints": [{**TAINT, "effect": "NoExecute"}]}, "gpu=yes:NoExecute"),
        ({}, {"unschedulable": True}, "node.kubernetes.io/unschedulable"),
        ({"schedulingGates": [{"name": "a"}]}, {}, "scheduling gates"),
        ({}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, ""),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, {"taints": [TAINT]}, ""),
        ({"nodeSelector": {"zone": "a"}}, {}, ""),
    ],
)
def test_no_pod_is_bound_to_a_node_that_its_spec_does_not_admit(
    spec: dict[str, Any], node: dict[str, Any], error: str, *, is_exported: bool
) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        metadata = {"name": "n1", "uid": "uid-of-n1", "labels": {"zone": "a"}}
        bench.api.put(f"{NODES}/n1", {"metadata": metadata, "spec": node})
        pod = bench.api.create_free_pod("first", 1, **spec)
        if is_exported:
            bench.put_export("n1", a_profile())
        async with following(bench):
            answer = await bench.bind(pod, "n1")
            assert error in answer
            assert bool(error) == bool(answer)
            assert bench.api.pods()["first"]["spec"].get("nodeName", "") == ("" if error else "n1")

    asyncio.run(scenario())


@pytest.mark.parametrize(("spec", "error"), [({"schedulerName": "mine"}, ""), ({}, "default-scheduler")])
def test_only_pods_of_the_named_schedulers_are_bound(spec: dict[str, Any], error: str) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock, scheduler_names=("mine",))
        pod = bench.api.create_free_pod("first", 1, **spec)
        bench.put_export("n1", a_profile())
        async with following(bench):
            answer = await bench.bind(pod, "n1")
            assert error in answer
            assert bool(error) == bool(answer)

    asyncio.run(scenario())
