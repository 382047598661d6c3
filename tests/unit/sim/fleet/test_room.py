"""How many more pods fit: counted by asking the nodes, and by amounts."""

from typing import Any

from nodewright.ask import Node
from nodewright.model.fleet import FleetNode
from nodewright.model.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from nodewright.node.events import PodArrived, PodStarted
from nodewright.node.state import NodeState
from nodewright.node.step import step
from nodewright.sim.fleet.room import rooms, total
from nodewright.sim.fleet.summary import free_by_numa
from nodewright.sim.fleet.values import NodeRecord
from nodewright.values.quantity import Quantity
from nodewright.world.fleet.nodes import Furniture, ReadNode, furnished
from nodewright.world.fleet.shapes import parse_rules

SPLIT = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}


def a_pod(cpus: str, name: str = "probe", **spec: Any) -> Pod:
    asked = {"cpu": Quantity.parse(cpus), "memory": Quantity.parse("1Gi")}
    container = Container(
        name="main", image="main", resources=ResourceRequirements(requests=asked, limits=asked)
    )
    return Pod(ObjectMeta(name=name, namespace="default", uid=name), PodSpec(containers=(container,), **spec))


def a_node(configuration: dict[str, str], **more: Any) -> FleetNode:
    amounts = {
        name: Quantity.parse(text) for name, text in (("cpu", "16"), ("memory", "64Gi"), ("pods", "110"))
    }
    read = ReadNode(name="n1", capacity=amounts, allocatable=amounts, **more)
    return furnished([read], Furniture(rules=parse_rules(["2x1x4x2"]), configuration=configuration)).nodes[0]


def record(node: FleetNode, *pods: Pod) -> NodeRecord:
    state: NodeState = Node.of(node.profile).state
    for pod in pods:
        taken = step(state, PodArrived(pod))
        state = step(taken.state, PodStarted(pod.uid)).state
    return NodeRecord(node=node, state=state, pods={}, placed=0, refused=0)


def test_what_lies_on_two_numa_nodes_is_stranded_for_those_who_need_one() -> None:
    node = a_node(SPLIT)
    held = record(node, a_pod("2", "a"), a_pod("6", "b"), a_pod("4", "c"))
    assert free_by_numa(held.state) == (0, 4)
    (found,) = rooms([held], a_pod("3"))
    assert (found.room.fits, found.room.by_amounts, found.room.stranded) == (1, 1, 0)
    (wide,) = rooms([record(node, a_pod("6", "a"), a_pod("6", "b"))], a_pod("4"))
    assert (wide.room.fits, wide.room.by_amounts, wide.room.stranded) == (0, 1, 1)
    assert type(wide.room.because).__name__ == "NoCommonNUMA"


def test_equal_nodes_have_equal_room_and_all_are_counted() -> None:
    node = a_node({})
    found = total(rooms([record(node), record(node), record(node, a_pod("10", "a"))], a_pod("4")))
    assert (found.nodes, found.fits, found.by_amounts) == (3, 4 + 4 + 1, 9)


def test_nodes_that_do_not_suit_have_no_room() -> None:
    taint = Taint(key="gpu", effect="NoSchedule")
    node, cordoned = a_node({}, taints=(taint,), labels={"zone": "a"}), a_node({}, unschedulable=True)
    tolerant = (Toleration(key="gpu", operator="Exists"),)
    fits = [
        total(rooms([record(one)], pod)).fits
        for one, pod in (
            (node, a_pod("4")),
            (node, a_pod("4", tolerations=tolerant)),
            (node, a_pod("4", tolerations=tolerant, node_selector={"zone": "b"})),
            (cordoned, a_pod("4", tolerations=tolerant)),
        )
    ]
    assert fits == [0, 4, 0, 0]
