"""Which nodes are out of the question, and by which filter first."""

from typing import Any

import pytest

from nodewright.model.objects import Taint
from nodewright.sim.fleet.filters import Objection, has_room, repelling, room_objection, standing_objection
from nodewright.testing.fleets import a_board, a_seat, a_shape

TAINTED = Taint(key="gpu", value="yes", effect="NoSchedule")
TOLERATED: dict[str, Any] = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}


def required(key: str, operator: str, *values: str) -> dict[str, Any]:
    expressions = [{"key": key, "operator": operator, "values": list(values)}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("spec", "node", "filter_name"),
    [
        ({}, {}, None),
        ({}, {"cordoned": True}, "NodeUnschedulable"),
        ({"tolerations": [{"operator": "Exists"}]}, {"cordoned": True}, None),
        ({}, {"taints": [TAINTED]}, "TaintToleration"),
        (TOLERATED, {"taints": [TAINTED]}, None),
        (TOLERATED, {"taints": [TAINTED, Taint(key="old", effect="NoExecute")]}, "TaintToleration"),
        ({}, {"taints": [Taint(key="old", effect="PreferNoSchedule")]}, None),
        ({"nodeSelector": {"disk": "ssd"}}, {}, "NodeAffinity"),
        ({"nodeSelector": {"disk": "ssd"}}, {"labels": {"disk": "ssd"}}, None),
        (required("cores", "Gt", "8"), {"labels": {"cores": "16"}}, None),
        (required("cores", "Gt", "8"), {"labels": {"cores": "8"}}, "NodeAffinity"),
    ],
)
def test_what_stands_against_a_node_whoever_is_there(
    spec: dict[str, Any], node: dict[str, Any], filter_name: str | None
) -> None:
    found = standing_objection(a_shape(**spec), a_seat(0, **node))
    assert (found and found.filter) == filter_name


@pytest.mark.parametrize(
    ("requests", "what"),
    [
        ("cpu=1 memory=1", None),
        ("cpu=3 memory=1", "cpu"),
        ("cpu=1 memory=2k", "memory"),
        ("example.com/gpu=1", "example.com/gpu"),
        ("cpu=3 example.com/gpu=1", "cpu"),
    ],
)
def test_the_first_resource_that_is_short_is_named(requests: str, what: str | None) -> None:
    shape, seat = a_shape(1, requests), a_seat(0, cpu=4000, memory=1000)
    a_board([seat], [(a_shape(0, "cpu=2"), "0")])
    found = room_objection(shape, seat)
    assert (found and found.what) == what
    assert has_room(shape, seat) == (what is None)


def test_what_no_pod_that_leaves_can_change_is_marked() -> None:
    seat = a_seat(0, cpu=4000)
    assert room_objection(a_shape(0, "cpu=5"), seat) == Objection("NodeResourcesFit", "cpu", for_good=True)


def test_places_run_out_before_anything_else() -> None:
    seat = a_seat(0, pods=1)
    a_board([seat], [(a_shape(), "0")])
    assert room_objection(a_shape(1, "cpu=1"), seat) == Objection("NodeResourcesFit", "pods")


def ports(number: int, *wanted: dict[str, Any]) -> Any:
    containers = [{"name": "main", "ports": list(wanted)}]
    return a_shape(number, containers=containers)


@pytest.mark.parametrize(
    ("held", "wanted", "meet"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, True),
        ({"hostPort": 80}, {"hostPort": 81}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, True),
    ],
)
def test_a_port_of_the_node_has_one_holder(
    held: dict[str, Any], wanted: dict[str, Any], *, meet: bool
) -> None:
    seat, shape = a_seat(0), ports(1, wanted)
    board = a_board([seat], [(ports(0, held), "0")])
    assert (room_objection(shape, seat) == Objection("NodePorts")) is meet
    assert has_room(shape, seat) is not meet
    board.take(seat, "0000")
    assert has_room(shape, seat)


def test_taints_that_would_rather_not_are_counted() -> None:
    taints = [Taint(key=key, effect="PreferNoSchedule") for key in ("gpu", "old")]
    assert repelling(a_shape(**TOLERATED), a_seat(0, taints=taints)) == 1
