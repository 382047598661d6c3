"""Pods with resource claims in a fleet."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from
from msgspec.structs import replace
from tests.support.claims import DRIVER, a_class, a_slice

from nodewright.documents.formats.manifests import workloads_from
from nodewright.engine.core.claims.allocator_rules import DEFAULT_RULES
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.fleet.capacity import (
    UnschedulablePod,
    capacity_by_shape,
    report_unschedulable,
    total_capacity,
    uncounted_constraints,
)
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.runner import Options, run
from nodewright.fleet.simulation.outcomes import FleetResult
from nodewright.fleet.sweep_runs import nodes_with_allocatable
from nodewright.fleet.workload import FleetPod
from nodewright.model.kubernetes.claims import Device
from nodewright.predict.node import Node
from nodewright.predict.verdict import scheduler_answer
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile

CLAIMS = [{"name": "g", "resourceClaimTemplateName": "t"}]
TEMPLATE = b"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]}}}
"""


def claims(*devices: int) -> ClaimCluster:
    """Nodes with so many devices each, and a template that asks for two."""
    loaded = workloads_from(TEMPLATE, "t.yaml").claims
    assert loaded is not None
    slices = tuple(
        a_slice(
            [Device(name=f"d{at}") for at in range(count)],
            name=f"s{node}",
            pool=f"n{node}",
            node_name=f"n{node}",
        )
        for node, count in enumerate(devices)
    )
    return replace(loaded, slices=slices, classes=(a_class("gpu", f'device.driver == "{DRIVER}"'),))


def serving(*devices: int) -> ClaimCluster:
    """As `claims`, with a class that serves an extended resource."""
    cluster = claims(*devices)
    spec = replace(cluster.classes[0].spec, extended_resource_name="example.com/gpu")
    return replace(cluster, classes=(replace(cluster.classes[0], spec=spec),))


def placed(result: FleetResult) -> list[int]:
    """The node of each pod; -1: none."""
    return [record.node for record in result.pods]


def test_pods_are_placed_where_devices_suffice() -> None:
    pods = some_pods(4, a_template("cpu=1", resourceClaims=CLAIMS))
    for exhaustive in (False, True):
        result = run(some_nodes(3), pods, Options(claims=claims(1, 4, 2), exhaustive=exhaustive))
        assert sorted(placed(result)) == [-1, 1, 1, 2]
        rejections = result.pods[3].filter_rejections
        assert {each.plugin for each in rejections} == {"DynamicResources"}
        assert sum(each.nodes for each in rejections) == 3
        assert rejections[0].detail.startswith("cannot allocate all claims")


def test_a_pod_that_ends_gives_its_devices_back() -> None:
    template = a_template("cpu=1", resourceClaims=CLAIMS)
    result = run(some_nodes(1), some_pods(3, template, runs_s=10.0), Options(claims=claims(2)))
    assert [record.placed_s for record in result.pods] == [0, 10, 20]


def test_pods_without_claims_need_no_devices() -> None:
    assert placed(run(some_nodes(2), some_pods(2, a_template("cpu=1")), Options(claims=claims(0, 0)))) == [
        0,
        1,
    ]


def test_an_extended_resource_that_a_class_serves_is_allocated() -> None:
    cluster = serving(1, 2)
    pods = some_pods(4, a_template("cpu=1 example.com/gpu=1"))
    result = run(some_nodes(2, a_profile()), pods, Options(claims=cluster))
    assert sorted(placed(result)) == [-1, 0, 1, 1]
    assert "example.com/gpu" not in result.allocatable


@given(
    devices=lists(integers(0, 5), min_size=1, max_size=4),
    kinds=lists(sampled_from(["with", "without"]), max_size=8),
)
def test_a_fleet_places_what_a_loop_over_its_nodes_places(devices: list[int], kinds: list[str]) -> None:
    cluster, node = claims(*devices), Node.from_profile(a_profile())
    templates = {"with": a_template("cpu=1", resourceClaims=CLAIMS), "without": a_template("cpu=1")}
    pods = [FleetPod(name=f"p{at}", pod=templates[kind]) for at, kind in enumerate(kinds)]
    result = run(some_nodes(len(devices)), pods, Options(claims=cluster))
    for pod, record in zip(pods, result.pods, strict=True):
        meta = replace(pod.pod.metadata, name=pod.name, uid=pod.name)
        own, answers = replace(pod.pod, metadata=meta), []
        for number in range(len(devices)):
            view = replace(node.config.view, name=f"n{number}")
            config = replace(node.config, view=view)
            answer = scheduler_answer(config, replace(cluster, is_whole=True), own)
            answers.append(answer)
        feasible = [number for number, answer in enumerate(answers) if not answer.obstacles]
        assert (record.node in feasible) if feasible else record.node == -1
        if feasible:
            after = answers[record.node].claims
            assert after is not None
            cluster = after
    in_use = cluster.in_use(DEFAULT_RULES).exclusive
    assert all(len(holders) == 1 for holders in in_use.values())


def test_capacity_counts_the_devices_of_claims() -> None:
    pod, cluster = a_template("cpu=1", resourceClaims=CLAIMS), claims(5, 0, 2)
    before = run(some_nodes(3), some_pods(1, pod), Options(claims=cluster))
    counted = total_capacity(capacity_by_shape(before.nodes, pod, before.claims))
    assert (counted.admitted, counted.stranded) == (2, 0)
    assert "needs 2 devices of class `gpu`" in str(counted.because)
    assert uncounted_constraints(pod, before.nodes, before.claims) == ()
    after = run(some_nodes(3), some_pods(5, pod), Options(claims=cluster))
    assert sum(node >= 0 for node in placed(after)) == 1 + counted.admitted


def test_capacity_counts_the_devices_of_a_class_that_serves_an_extended_resource() -> None:
    pod, cluster = a_template("cpu=1 example.com/gpu=1"), serving(3, 1)
    nodes = run(some_nodes(2, a_profile()), [], Options(claims=cluster)).nodes
    assert total_capacity(capacity_by_shape(nodes, pod, cluster)).admitted == 4
    assert total_capacity(capacity_by_shape(nodes, pod)).admitted == 0


def a_dump(*, is_of_nodes: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A node with two devices, and two pods, of which one runs with a device; the claims are in the files of nodes or of pods."""
    group = {"apiVersion": "resource.k8s.io/v1"}
    wanted = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "d0"}
    user = {"resource": "pods", "name": "old", "uid": "u-old"}
    objects = [
        {
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "driver": DRIVER,
                "nodeName": "n0",
                "pool": pool,
                "devices": [{"name": "d0"}, {"name": "d1"}],
            },
        },
        {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        *(
            {"kind": "ResourceClaim", "metadata": {"name": name, "namespace": "ml"}, "spec": wanted}
            for name in ("new", "third")
        ),
        {
            "kind": "ResourceClaim",
            "metadata": {"name": "old", "namespace": "ml", "uid": "u-claim"},
            "spec": wanted,
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]},
        },
    ]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ml", "uid": f"u-{name}"},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "resourceClaims": [{"name": "g", "resourceClaimName": name}],
                **({"nodeName": "n0"} if name == "old" else {}),
            },
            "status": {"phase": "Running" if name == "old" else "Pending"},
        }
        for name in ("old", "new", "third")
    ]
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {"allocatable": amounts},
    }
    claims = [group | each for each in objects]
    return ([node, *claims], pods) if is_of_nodes else ([node], [*claims, *pods])


@pytest.mark.parametrize("is_of_nodes", [True, False])
def test_the_pods_of_a_dump_hold_the_devices_of_their_claims(is_of_nodes: bool, tmp_path: Path) -> None:
    names = []
    for name, items in zip(("nodes", "pods"), a_dump(is_of_nodes=is_of_nodes), strict=True):
        names.append(str(tmp_path / f"{name}.json"))
        Path(names[-1]).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    fleet = load_fleet(FleetFiles(nodes=(names[0],), pods=(names[1],)))
    result = run(fleet.nodes, fleet.pods(), Options(claims=fleet.claims))
    assert sorted(placed(result)) == [-1, 0, 0]
    assert result.claims is not None
    holders = result.claims.in_use(DEFAULT_RULES).exclusive
    assert holders[DRIVER, "n0", "d0"] == ("ml/old",)
    assert len(holders) == 2


def test_a_pod_is_not_called_unschedulable_where_a_class_serves_its_extended_resource() -> None:
    reported: list[UnschedulablePod] = []
    pods = some_pods(1, a_template("cpu=1 example.com/gpu=1"))
    for cluster in (None, serving(3)):
        nodes = nodes_with_allocatable(some_nodes(1, a_profile()), cluster)
        list(report_unschedulable(pods, nodes, reported.append))
    assert [each.resource for each in reported] == ["example.com/gpu"]


def test_capacity_without_the_objects_of_claims_says_that_it_does_not_count_them() -> None:
    assert uncounted_constraints(a_template("cpu=1", resourceClaims=CLAIMS)) == ("resource claims",)


def test_nodes_where_the_same_is_missing_count_together() -> None:
    pods = some_pods(1, a_template("cpu=1", resourceClaims=CLAIMS))
    (pod,) = run(some_nodes(4), pods, Options(claims=claims(1, 0, 1, 1))).pods
    (rejection,) = pod.filter_rejections
    assert rejection.nodes == 4
    assert "for example" in rejection.detail
    assert "on node n0" in rejection.detail or "node n0 has" in rejection.detail
