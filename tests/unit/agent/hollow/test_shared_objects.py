"""One reflector for many nodes: each sees its own objects, and of others hardly anything is kept."""

import asyncio
from typing import Any

from tests.support.fake_clock import FakeClock
from tests.support.memory_cluster import PODS_OF_ALL, MemoryCluster

from nodewright.agent.hollow.shared_objects import SharedObjects, node_of_pod
from nodewright.cluster.client.reflector import Reflector


def a_pod(name: str, node: str, version: int = 1) -> dict[str, Any]:
    meta = {"uid": name, "name": name, "namespace": "default", "resourceVersion": str(version)}
    return {"metadata": {**meta, "managedFields": [{}]}, "spec": {"nodeName": node}, "status": {}}


def shared(*pods: dict[str, Any]) -> tuple[Reflector, SharedObjects]:
    reflector = Reflector(MemoryCluster(FakeClock()), PODS_OF_ALL, "spec.nodeName!=", FakeClock())
    objects = SharedObjects(reflector, frozenset({"a", "b"}), node_of_pod)
    reflector.objects = {pod["metadata"]["uid"]: reflector.reduce(pod) for pod in pods}
    reflector.on_change("")
    return reflector, objects


def change(reflector: Reflector, pod: dict[str, Any]) -> None:
    reflector.objects[pod["metadata"]["uid"]] = reflector.reduce(pod)
    reflector.on_change(pod["metadata"]["uid"])


def test_a_list_is_divided_and_other_nodes_keep_no_pods() -> None:
    asyncio.run(divide_a_list())


async def divide_a_list() -> None:
    reflector, objects = shared(a_pod("p", "a"), a_pod("q", "b"), a_pod("r", "real"))
    assert [list(objects.of(name).objects) for name in ("a", "b")] == [["p"], ["q"]]
    assert all(objects.of(name).has_listed for name in ("a", "b"))
    assert "spec" not in reflector.objects["r"]
    assert "managedFields" not in reflector.objects["p"]["metadata"]


def test_changes_reach_their_node_alone_one_in_each_round_of_the_event_loop() -> None:
    asyncio.run(change_pods())


async def change_pods() -> None:
    reflector, objects = shared(a_pod("p", "a"))
    await asyncio.sleep(0.01)
    seen: list[tuple[str, str]] = []
    for name in ("a", "b"):
        objects.of(name).on_change = lambda uid, name=name: seen.append((name, uid))  # type: ignore[misc] # its default is the node
    change(reflector, a_pod("q", "b"))
    change(reflector, a_pod("p", "a", 2))
    change(reflector, a_pod("r", "real"))
    del reflector.objects["p"]
    reflector.on_change("p")
    reflector.on_change("unknown")
    assert not objects.of("a").objects
    assert not seen
    await asyncio.sleep(0)
    assert seen == [("b", "q")]
    await asyncio.sleep(0)
    assert seen == [("b", "q"), ("a", "p")], "a pod that changes twice is looked at once"
    await asyncio.sleep(0.01)
    assert len(seen) == 2


def test_the_node_of_a_pod_is_looked_up_by_its_name() -> None:
    asyncio.run(look_up_nodes())


async def look_up_nodes() -> None:
    reflector, objects = shared(a_pod("p", "a"), a_pod("r", "real"))
    assert [objects.node_with("default", name) for name in ("p", "r", "none")] == ["a", "", ""]
    assert not objects.node_with("shop", "p")
    again = a_pod("p", "b")
    again["metadata"]["uid"] = "another"
    change(reflector, again)
    assert objects.node_with("default", "p") == "b"
    del reflector.objects["p"]
    reflector.on_change("p")
    assert objects.node_with("default", "p") == "b", "the older pod of this name is gone, not the newer one"
    del reflector.objects["another"]
    reflector.on_change("another")
    assert not objects.node_with("default", "p")
    change(reflector, a_pod("q", "a"))
    assert objects.node_with("default", "q") == "a"
    reflector.objects.clear()
    reflector.on_change("")
    assert not objects.node_with("default", "q")


def test_the_answer_of_a_write_is_kept_once_beside_the_watch() -> None:
    asyncio.run(write_a_pod())


async def write_a_pod() -> None:
    reflector, objects = shared(a_pod("p", "a"))
    view = objects.of("a")
    view.put(a_pod("p", "a", 5))
    answer = view.objects["p"]
    assert answer["metadata"]["resourceVersion"] == "5"
    assert answer is reflector.objects["p"]
    view.put(a_pod("p", "a", 4))
    view.put(a_pod("unknown", "a", 4))
    assert view.objects == {"p": answer}
