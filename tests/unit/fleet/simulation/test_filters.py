"""Which nodes are out of the question, and by which filter first."""

from typing import Any

import pytest

from nodewright.engine.core.predicates.scheduler_filters import BoundVolume
from nodewright.fleet.simulation.filters import (
    FilterStatus,
    fits_resources,
    intolerable_taint_count,
    resource_filter_status,
    static_filter_status,
)
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.model.kubernetes.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
)
from nodewright.testing.fleets import a_cluster_view, a_node_slot, a_pod_template, a_template

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
def test_static_filters_reject_a_node_regardless_of_its_pods(
    spec: dict[str, Any], node: dict[str, Any], filter_name: str | None
) -> None:
    filter_status = static_filter_status(a_pod_template(**spec), a_node_slot(0, **node))
    assert (filter_status and filter_status.plugin) == filter_name


@pytest.mark.parametrize(
    ("requests", "missing"),
    [
        ("cpu=1 memory=1", None),
        ("cpu=3 memory=1", ("cpu",)),
        ("cpu=1 memory=2k", ("memory",)),
        ("example.com/gpu=1", ("example.com/gpu",)),
        ("memory=2k cpu=3 example.com/gpu=1", ("cpu", "memory", "example.com/gpu")),
    ],
)
def test_all_insufficient_resources_are_named(requests: str, missing: tuple[str, ...] | None) -> None:
    template, seat = a_pod_template(1, requests), a_node_slot(0, cpu=4000, memory=1000)
    a_cluster_view([seat], [(a_pod_template(0, "cpu=2"), "0")])
    status = resource_filter_status(template, seat)
    assert (status and status.details) == missing
    assert fits_resources(template, seat) == (missing is None)


def test_unresolvable_rejections_are_marked() -> None:
    seat = a_node_slot(0, cpu=4000)
    assert resource_filter_status(a_pod_template(0, "cpu=5"), seat) == FilterStatus(
        "NodeResourcesFit", ("cpu",), is_unresolvable=True
    )


def test_the_number_of_pods_is_named_before_resources() -> None:
    seat = a_node_slot(0, pods=1, cpu=1000)
    a_cluster_view([seat], [(a_pod_template(), "0")])
    assert resource_filter_status(a_pod_template(1, "cpu=1"), seat) == FilterStatus(
        "NodeResourcesFit", ("pods",)
    )
    more = resource_filter_status(a_pod_template(2, "cpu=2"), seat)
    assert more == FilterStatus("NodeResourcesFit", ("pods", "cpu"), is_unresolvable=True)


def on_nodes(*terms: list[tuple[str, list[str]]]) -> dict[str, Any]:
    """Required node affinity with these match fields in each term."""
    selector_terms = [
        {
            "matchFields": [
                {"key": "metadata.name", "operator": operator, "values": names} for operator, names in term
            ]
        }
        for term in terms
    ]
    required = {"nodeSelectorTerms": selector_terms}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("affinity", "plugin"),
    [
        (on_nodes([("In", ["other"])]), "NodeAffinity"),
        (on_nodes([("In", ["n0", "other"]), ("In", ["other"])]), "NodeAffinity"),
        (on_nodes([("In", ["n0"])], [("In", ["other"])]), "NodeUnschedulable"),
        (on_nodes([("In", ["other"])], [("NotIn", ["n0"])]), "NodeUnschedulable"),
    ],
)
def test_nodes_that_match_fields_exclude_are_rejected_before_other_filters(
    affinity: dict[str, Any], plugin: str
) -> None:
    status = static_filter_status(a_pod_template(**affinity), a_node_slot(0, cordoned=True))
    assert status is not None
    assert status.plugin == plugin


def ports(number: int, *wanted: dict[str, Any]) -> Any:
    containers = [{"name": "main", "ports": list(wanted)}]
    return a_pod_template(number, containers=containers)


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
    seat, template = a_node_slot(0), ports(1, wanted)
    board = a_cluster_view([seat], [(ports(0, held), "0")])
    assert (resource_filter_status(template, seat) == FilterStatus("NodePorts")) is meet
    assert fits_resources(template, seat) is not meet
    board.remove_pod(seat, "0000")
    assert fits_resources(template, seat)


def test_prefer_no_schedule_taints_are_counted() -> None:
    taints = [Taint(key=key, effect="PreferNoSchedule") for key in ("gpu", "old")]
    assert intolerable_taint_count(a_pod_template(**TOLERATED), a_node_slot(0, taints=taints)) == 1


def test_a_bound_volume_ties_a_pod_to_the_nodes_that_it_is_accessible_from() -> None:
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement("zone", "In", ("a",)),))
    volume = BoundVolume(claim="data", name="pv-1", required=NodeSelector((term,)))
    template = PodTemplate(0, a_template(), "default", volumes=(volume,))
    assert static_filter_status(template, a_node_slot(0, {"zone": "a"})) is None
    status = static_filter_status(template, a_node_slot(0, {"zone": "b"}))
    assert status is not None
    assert (status.plugin, status.details) == ("VolumeBinding", ("data",))
