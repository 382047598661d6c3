"""How many more pods fit: counted by asking the nodes, and by amounts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.profiles.machine_shapes import parse_shape_rules
from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.node.events import PodAdded, PodStarted
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import step
from nodewright.fleet import run
from nodewright.fleet.capacity import (
    UnschedulablePod,
    capacity_by_shape,
    report_unschedulable,
    total_capacity,
    uncounted_constraints,
)
from nodewright.fleet.fleet_summary import free_cpus_by_numa
from nodewright.fleet.load.assembled_nodes import NodeDefaults, NodeEntry, assembled_nodes
from nodewright.fleet.simulation.outcomes import NodeRecord, PodOutcome
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.objects import (
    Affinity,
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node import Node
from nodewright.predict.python_sources import load_pods
from nodewright.testing.fleets import some_pods

SPLIT = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}


def a_pod(cpus: str, name: str = "probe", **spec: Any) -> Pod:
    document = {"cpu": Quantity.parse(cpus), "memory": Quantity.parse("1Gi")}
    container = Container(
        name="main", image="main", resources=ResourceRequirements(requests=document, limits=document)
    )
    return Pod(ObjectMeta(name=name, namespace="default", uid=name), PodSpec(containers=(container,), **spec))


def a_node(
    configuration: dict[str, str], extra: Mapping[str, Quantity] = MappingProxyType({}), **more: Any
) -> FleetNode:
    fixed = (("cpu", "16"), ("memory", "64Gi"), ("pods", "110"))
    amounts = {name: Quantity.parse(text) for name, text in fixed} | dict(extra)
    read = NodeEntry(name="n1", capacity=amounts, allocatable=amounts, **more)
    return assembled_nodes(
        [read], NodeDefaults(rules=parse_shape_rules(["2x1x4x2"]), configuration=configuration)
    ).nodes[0]


def record(node: FleetNode, *pods: Pod) -> NodeRecord:
    state: NodeState = Node.from_profile(node.profile).state
    for pod in pods:
        taken = step(state, PodAdded(pod))
        state = step(taken.state, PodStarted(pod.uid)).state
    return NodeRecord(node=node, state=state, pods={}, placed_pods=0, refused_pods=0)


def test_resources_on_two_numa_nodes_are_stranded_for_pods_that_need_one() -> None:
    node = a_node(SPLIT)
    held = record(node, a_pod("2", "a"), a_pod("6", "b"), a_pod("4", "c"))
    assert free_cpus_by_numa(held.state) == (0, 4)
    (shape_capacity,) = capacity_by_shape([held], a_pod("3"))
    assert (
        shape_capacity.capacity.admitted,
        shape_capacity.capacity.by_free_amounts,
        shape_capacity.capacity.stranded,
    ) == (1, 1, 0)
    (wide,) = capacity_by_shape([record(node, a_pod("6", "a"), a_pod("6", "b"))], a_pod("4"))
    assert (wide.capacity.admitted, wide.capacity.by_free_amounts, wide.capacity.stranded) == (0, 1, 1)
    assert type(wide.capacity.because).__name__ == "NoCommonNUMA"


def test_equal_nodes_have_equal_capacity_and_all_are_counted() -> None:
    node = a_node({})
    remaining_capacity = total_capacity(
        capacity_by_shape([record(node), record(node), record(node, a_pod("10", "a"))], a_pod("4"))
    )
    assert (remaining_capacity.nodes, remaining_capacity.admitted, remaining_capacity.by_free_amounts) == (
        3,
        4 + 4 + 1,
        9,
    )


def test_infeasible_nodes_have_no_capacity() -> None:
    taint = Taint(key="gpu", effect="NoSchedule")
    node, cordoned = a_node({}, taints=(taint,), labels={"zone": "a"}), a_node({}, unschedulable=True)
    tolerant = (Toleration(key="gpu", operator="Exists"),)
    fits = [
        total_capacity(capacity_by_shape([record(one)], pod)).admitted
        for one, pod in (
            (node, a_pod("4")),
            (node, a_pod("4", tolerations=tolerant)),
            (node, a_pod("4", tolerations=tolerant, node_selector={"zone": "b"})),
            (cordoned, a_pod("4", tolerations=tolerant)),
        )
    ]
    assert fits == [0, 4, 0, 0]
    all_tolerant = (Toleration(operator="Exists"),)
    (counted,) = capacity_by_shape([record(cordoned)], a_pod("4", tolerations=all_tolerant))
    assert counted.capacity.admitted == 4


def test_a_pod_of_a_daemon_set_may_be_on_a_cordoned_node() -> None:
    cordoned = a_node({}, unschedulable=True)
    amounts = {"cpu": 16_000, "memory": 64 << 30, "pods": 110}
    reported: list[UnschedulablePod] = []
    pods = [
        FleetPod(name="p", pod=a_pod("4"), required_node=name, arrives_s=0) for name in (cordoned.name, "")
    ]
    assert list(report_unschedulable(pods, [(cordoned, amounts)], reported.append)) == pods
    assert [each.pod for each in reported] == pods[1:]


LIMITS_ONLY = ({"cpu": "3"}, {"cpu": "3", "example.com/gpu": 1}, {"example.com/gpu": 2}, {"memory": "20Gi"})


@pytest.mark.parametrize("limits", LIMITS_ONLY, ids=str)
def test_as_many_pods_with_limits_only_fit_as_a_run_places(limits: dict[str, Any]) -> None:
    with_gpus = {"example.com/gpu": Quantity.parse("4")}
    nodes = [
        a_node({}),
        replace(a_node({}, extra=with_gpus), name="n2"),
        replace(a_node({}, extra=with_gpus), name="n3", taints=(Taint(key="gpu", effect="NoSchedule"),)),
        replace(a_node({}), name="n4", unschedulable=True),
    ]
    container = {"name": "main", "image": "main", "resources": {"limits": limits}}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }
    (pod,) = load_pods(document)
    counted = total_capacity(capacity_by_shape([record(node) for node in nodes], pod)).admitted
    stored = pod_as_stored(pod, Node.from_profile(nodes[0].profile).config.gates)
    result = run(nodes, some_pods(300, stored))
    placed = [each for each in result.pods if each.outcome is PodOutcome.RUNNING]
    assert counted == len(placed) > 0


SPREAD = {"topology_spread_constraints": ({"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone"},)}
APART = {
    "affinity": Affinity(
        pod_anti_affinity={
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
        }
    )
}


@pytest.mark.parametrize(
    ("spec", "uncounted"),
    [
        ({}, ()),
        (
            {
                "topology_spread_constraints": (
                    {"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "zone"},
                )
            },
            (),
        ),
        ({"affinity": Affinity(pod_affinity={})}, ()),
        (SPREAD, ("topology spread",)),
        (SPREAD | APART, ("topology spread", "inter-pod affinity")),
    ],
)
def test_what_a_count_leaves_out_is_named(spec: dict[str, Any], uncounted: tuple[str, ...]) -> None:
    assert uncounted_constraints(a_pod("1", **spec)) == uncounted


@pytest.mark.parametrize(
    ("labels", "uncounted"), [({"app": "a"}, ("anti-affinity of other pods",)), ({}, ())]
)
def test_pods_on_the_nodes_may_repel_the_pod(labels: dict[str, str], uncounted: tuple[str, ...]) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    anti_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    held = record(a_node({}), a_pod("1", "a", affinity=Affinity(pod_anti_affinity=anti_affinity)))
    probe = a_pod("1")
    probe = replace(probe, metadata=replace(probe.metadata, labels=labels))
    assert uncounted_constraints(probe, [held]) == uncounted
