"""Nodes and pods as the API server shows them, and predictions of nodes without a fresh export."""

import asyncio
from typing import Any

import pytest
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import NODES, PODS
from tests.unit.scheduling.extender.test_extender_service import following, until
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile

from nodewright.scheduling.verdicts.tracked_cluster import Basis

BUDGETS_OF_NAMESPACE = "/apis/policy/v1/poddisruptionbudgets"


def test_nodes_without_an_export_are_predicted_from_the_api_server() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        bench.api.create_node("n1", labels={"a": "b"})
        pod = bench.api.create_free_pod("first", 1)
        async with following(bench):
            task = asyncio.ensure_future(bench.feed.predict())
            await until(lambda: bench.cluster.node("n1").basis is not Basis.EXACT)
            assert bench.filter(pod, "n1")["NodeNames"] == ["n1"]
            bench.put_export("n1", a_profile())
            assert bench.cluster.verdict("n1", bench_query(bench, "first")).basis is Basis.EXACT
            bench.feed.export_max_age_s = 30.0
            await clock.advance(31.0)
            await until(lambda: bench.cluster.node("n1").basis is Basis.PREDICTED)
            bench.api.delete_pod("first", is_forced=True)
            bench.api.remove("/api/v1/nodes/n1")
            await until(lambda: "n1" not in bench.cluster.nodes)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def bench_query(bench: ExtenderBench, name: str):  # type: ignore[no-untyped-def] # a shorthand
        from nodewright.scheduling.verdicts.pod_queries import pod_query

        pod = bench.feed.pod(f"uid-{name}")
        assert pod is not None
        return pod_query(pod)

    asyncio.run(scenario())


def test_a_node_whose_export_is_on_its_way_is_predicted_only_when_it_does_not_come() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        awaited = {"n1"}
        bench.feed.awaits_export = awaited.__contains__
        for name in ("n1", "n2"):
            bench.api.create_node(name)

        def is_predicted(name: str) -> bool:
            # Nothing is known of these nodes but their names, so that their predictions fail.
            return "number of cpus" in bench.cluster.nodes[name].note

        async with following(bench):
            task = asyncio.ensure_future(bench.feed.predict())
            await until(lambda: is_predicted("n2"))
            await clock.advance(5.0)
            assert not is_predicted("n1")
            awaited.clear()
            await clock.advance(5.0)
            await until(lambda: is_predicted("n1"))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


ODD: list[Any] = [5, "x", [], [5], {}, {"a": 5}]


@pytest.mark.parametrize("odd", ODD)
def test_objects_of_wrong_types_stop_nothing(odd: Any) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bench = ExtenderBench(BindingCluster(clock), clock)
        bench.api.create_node("n1")
        fields = (
            "metadata",
            "spec",
            "status",
            "labels",
            "annotations",
            "addresses",
            "capacity",
            "taints",
            "phase",
        )
        for number, field in enumerate(fields):
            meta = {"name": f"o{number}", "namespace": "default", "uid": f"o{number}"}
            inside = {"spec": {"nodeName": "n1"}, "status": {}}
            for place in inside.values():
                place.update({} if field in ("metadata", "spec", "status") else {field: odd})
            odd_object = {
                "metadata": meta | ({field: odd} if field in ("labels", "annotations") else {}),
                **inside,
            }
            odd_object |= {field: odd} if field in odd_object else {}
            for path in (NODES, PODS, BUDGETS_OF_NAMESPACE):
                bench.api.objects[f"{path}/o{number}"] = odd_object
        pod = bench.api.create_free_pod("first", 1)
        budgets = asyncio.ensure_future(bench.feed.budgets.run())
        async with following(bench):
            predictions = asyncio.ensure_future(bench.feed.predict())
            await settle()
            await clock.advance(3.0)
            assert "n1" in bench.cluster.nodes
            assert bench.feed.pod("uid-first") is not None
            bench.put_export("n1", a_profile())
            assert bench.filter(pod, "n1")["NodeNames"] == ["n1"]
            for task in (predictions, budgets):
                assert not task.done()
                task.cancel()
            assert "unreadable_objects_total" in bench.service.metrics_text()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", [None, "", 5])
def test_objects_without_a_name_stop_nothing(name: Any) -> None:
    clock = FakeClock()
    bench = ExtenderBench(BindingCluster(clock), clock)
    for reflector in bench.feed.reflectors:
        reflector._apply("ADDED", {"metadata": {"uid": "u", "name": name}, "spec": {"nodeName": "n1"}})
        reflector._apply("ADDED", {"metadata": {"uid": "u"}})
        assert (reflector.unreadable, reflector.objects) == (2, {})
