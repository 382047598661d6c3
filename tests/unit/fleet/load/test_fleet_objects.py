"""Dumps of a cluster hold pods and what makes them: no pod is made that is there already."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodewright.fleet.load.fleet_input import FleetFiles, FleetInput, load_fleet
from nodewright.fleet.load.fleet_objects import PodNames
from nodewright.fleet.workload import DisruptionBudget, FleetPod, IntOrPercent
from nodewright.model.errors import InputError

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "a", "image": "a"}]},
}


def owned(meta: dict[str, Any], owner: str) -> dict[str, Any]:
    kind, _, name = owner.partition("/")
    document = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": owner, "controller": True}
    return {**meta, "ownerReferences": [document]} if owner else meta


def a_node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": amounts},
    }


def a_pod(name: str, owner: str, node: str = "n0", phase: str = "Running") -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "labels": {"app": "web", "pod-template-hash": "5d9"}}
    spec = {**TEMPLATE["spec"], "nodeName": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": owned(meta, owner),
        "spec": spec,
        "status": {"phase": phase},
    }


def what_makes(kind: str, name: str, replicas: int = 2, owner: str = "", **labels: str) -> dict[str, Any]:
    wanted = {"app": "web", **labels}
    template = {**TEMPLATE, "metadata": {"labels": wanted}}
    spec: dict[str, Any] = {"selector": {"matchLabels": wanted}, "template": template}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    meta = owned({"name": name, "namespace": "default"}, owner)
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


DEPLOYMENT = what_makes("Deployment", "web", 3)
REPLICA_SET = what_makes("ReplicaSet", "web-5d9", 3, "Deployment/web", **{"pod-template-hash": "5d9"})
FORMER = what_makes("ReplicaSet", "web-old", 0, "Deployment/web")
TWO = [a_pod("web-5d9-a", "ReplicaSet/web-5d9"), a_pod("web-5d9-b", "ReplicaSet/web-5d9", "n1")]
STATEFUL = what_makes("StatefulSet", "db", 3)
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "once", "namespace": "default"},
    "spec": {"parallelism": 2, "template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
}
DAEMONS = what_makes("DaemonSet", "log")

DUMPS: list[tuple[Sequence[dict[str, Any]], list[str]]] = [
    (TWO, []),
    ([DEPLOYMENT], ["web-0", "web-1", "web-2"]),
    ([*TWO, DEPLOYMENT, REPLICA_SET, FORMER], ["web-2"]),
    ([FORMER, REPLICA_SET, DEPLOYMENT, *TWO], ["web-2"]),
    ([*TWO, DEPLOYMENT], ["web-2"]),
    ([*TWO, REPLICA_SET], ["web-5d9-2"]),
    ([DEPLOYMENT, REPLICA_SET], ["web-0", "web-1", "web-2"]),
    ([*TWO, what_makes("Deployment", "web", 1)], []),
    ([*TWO, what_makes("Deployment", "other", 1)], ["other-0"]),
    ([a_pod("db-0", "StatefulSet/db"), STATEFUL], ["db-1", "db-2"]),
    (
        [a_pod("db-0", "StatefulSet/db"), a_pod("old", "StatefulSet/db", phase="Failed"), STATEFUL],
        ["db-1", "db-2"],
    ),
    ([a_pod("once-x", "Job/once", phase="Succeeded"), JOB], ["once-1"]),
    ([a_pod("once-x", "Job/once", phase="Succeeded"), a_pod("once-y", "Job/once"), JOB], []),
    ([a_pod("log-x", "DaemonSet/log", "n1"), DAEMONS], ["log-0"]),
]


def pods_of(folder: Path, *dumps: Sequence[dict[str, Any]]) -> list[FleetPod]:
    paths = []
    for number, items in enumerate(dumps):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return list(load_fleet(FleetFiles(both=tuple(map(str, paths)))).pods())


@pytest.mark.parametrize(("items", "made"), DUMPS)
def test_controllers_create_the_pods_that_do_not_exist(
    tmp_path: Path, items: Sequence[dict[str, Any]], made: list[str]
) -> None:
    there = {"old", "once-x"} | {item["metadata"]["name"] for item in items if item["kind"] == "Pod"}
    pods = pods_of(tmp_path, [a_node("n0"), a_node("n1"), *items])
    assert [pod.name for pod in pods if pod.name not in there] == made
    assert all(pod.has_controller for pod in pods)


def test_it_does_not_matter_in_which_file_they_are(tmp_path: Path) -> None:
    made = pods_of(tmp_path, [a_node("n0"), a_node("n1"), *TWO], [DEPLOYMENT, REPLICA_SET])
    assert [fleet_pod.name for fleet_pod in made] == ["web-5d9-a", "web-5d9-b", "web-2"]
    path = tmp_path / "1.json"
    split = load_fleet(FleetFiles(both=(str(tmp_path / "0.json"),), pods=(str(path),)))
    assert [pod.name for pod in split.pods()] == ["web-5d9-a", "web-5d9-b", "web-2"]


def test_a_pod_has_the_selector_of_its_replica_set_or_otherwise_of_its_deployment(tmp_path: Path) -> None:
    with_set = pods_of(tmp_path, [a_node("n0"), a_node("n1"), *TWO, DEPLOYMENT, REPLICA_SET])[0]
    assert (with_set.selector or {})["matchLabels"] == {"app": "web", "pod-template-hash": "5d9"}
    without = pods_of(tmp_path, [a_node("n0"), a_node("n1"), *TWO, DEPLOYMENT])[0]
    assert (without.selector or {})["matchLabels"] == {"app": "web"}
    assert pods_of(tmp_path, [a_node("n0"), a_node("n1"), *TWO])[0].selector is None


def test_circular_owner_references_are_followed_once(tmp_path: Path) -> None:
    round_one = what_makes("ReplicaSet", "a", 1, "ReplicaSet/b")
    other = what_makes("ReplicaSet", "b", 1, "ReplicaSet/a")
    pods = pods_of(tmp_path, [a_node("n0"), round_one, other, a_pod("p", "ReplicaSet/a")])
    assert [pod.name for pod in pods] == ["p"]


NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
"""
BUDGET = "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b, namespace: shop}}, spec: {{{}}}}}\n"
SERVICE = (
    "{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: {selector: {tier: front}}}\n"
)


def loaded(folder: Path, *objects: str) -> FleetInput:
    path = folder / "all.yaml"
    path.write_text(NODE + "---\n".join(objects))
    return load_fleet(FleetFiles(both=(str(path),)))


def made_by(kind: str, selector: str = "matchLabels: {app: web}", namespace: str = "shop") -> str:
    group = "v1" if kind == "ReplicationController" else "batch/v1" if kind == "Job" else "apps/v1"
    template = "metadata: {labels: {app: web, tier: front}}, spec: {containers: [{name: a, image: a}], restartPolicy: %s}"
    policy = "Never" if kind == "Job" else "Always"
    head = f"{{apiVersion: {group}, kind: {kind}, metadata: {{name: web, namespace: {namespace}}}"
    wanted = f"selector: {{{selector}}}, " if selector else ""
    return f"{head}, spec: {{{wanted}template: {{{template % policy}}}}}}}\n"


SELECTORS = [
    (made_by("Deployment"), {"app": "web"}),
    (made_by("ReplicaSet"), {"app": "web"}),
    (made_by("StatefulSet") + "---\n" + SERVICE, {"app": "web", "tier": "front"}),
    (made_by("ReplicationController", "app: web"), {"app": "web"}),
    (made_by("Job", ""), None),
    (made_by("Job", "") + "---\n" + SERVICE, {"tier": "front"}),
    (made_by("DaemonSet") + "---\n" + SERVICE, {"tier": "front"}),
    (made_by("Deployment", namespace="other") + "---\n" + SERVICE, {"app": "web"}),
]


@pytest.mark.parametrize(("text", "labels"), SELECTORS)
def test_a_pod_is_selected_by_its_services_and_its_controller(
    tmp_path: Path, text: str, labels: dict[str, str] | None
) -> None:
    pods = list(loaded(tmp_path, text).pods())
    assert pods
    for pod in pods:
        assert pod.selector == (None if labels is None else {"matchLabels": labels, "matchExpressions": []})
        assert pod.selector is pods[0].selector


def test_budgets_are_read_and_not_reported_as_ignored(tmp_path: Path) -> None:
    bounds = ("minAvailable: 2, selector: {matchLabels: {app: db}}", "maxUnavailable: 25%")
    fleet_input = loaded(tmp_path, *map(BUDGET.format, bounds), SERVICE)
    assert fleet_input.budgets == (
        DisruptionBudget(
            name="b", namespace="shop", selector={"matchLabels": {"app": "db"}}, min_available=IntOrPercent(2)
        ),
        DisruptionBudget(
            name="b", namespace="shop", selector=None, max_unavailable=IntOrPercent(25, is_percent=True)
        ),
    )
    assert not fleet_input.objects.manifests.skipped


WRONG = [
    ("", "spec: must have exactly one of minAvailable and maxUnavailable"),
    ("minAvailable: 1, maxUnavailable: 1", "spec: must have exactly one of minAvailable and maxUnavailable"),
    (
        "minAvailable: half",
        'spec.minAvailable: Invalid value: "half": must be a whole number or a percentage',
    ),
    ('minAvailable: "2"', 'spec.minAvailable: Invalid value: "2": must be a whole number or a percentage'),
    (
        "maxUnavailable: -1",
        "spec.maxUnavailable: Invalid value: -1: must be a whole number or a percentage",
    ),
    (
        "maxUnavailable: true",
        "spec.maxUnavailable: Invalid value: true: must be a whole number or a percentage",
    ),
    ("maxUnavailable: 1, selector: web", 'spec.selector: Invalid value: "web": must be a mapping'),
    (
        "maxUnavailable: 1, selector: {matchLabels: 5}",
        "spec.selector.matchLabels: Invalid value: 5: must be a mapping",
    ),
    (
        "maxUnavailable: 1, selector: {matchExpressions: [{key: a, values: 7}]}",
        "spec.selector.matchExpressions[0].values: Invalid value: 7: must be a list",
    ),
]


@pytest.mark.parametrize(("spec", "rule"), WRONG)
def test_a_faulty_budget_is_reported_with_its_location(tmp_path: Path, spec: str, rule: str) -> None:
    with pytest.raises(InputError) as exception_info:
        loaded(tmp_path, BUDGET.format(spec))
    assert rule in str(exception_info.value)
    assert "all.yaml:6" in str(exception_info.value)


HEAD = "name,namespace,cpu,memory,arrives,runs\n"
NODES = "name,cpu,memory\nn0,8,32Gi\n"
ROWS = [
    ("a,d,1,1Gi,0,5\nb,d,1,1Gi,0,5\n", None),
    ("a,d,1,1Gi,0,5\na,e,1,1Gi,0,5\n", None),
    ("a,d,1,1Gi,0,5\na,d,1,1Gi,5,5\n", None),
    ("a,d,1,1Gi,0,5\na,d,2,1Gi,4,5\n", 3),
    ("a,d,1,1Gi,0,\nb,d,1,1Gi,1,1\na,d,1,1Gi,99,\n", 4),
]


@pytest.mark.parametrize(("rows", "line"), ROWS)
def test_two_pods_with_one_name_at_one_time_are_an_error(tmp_path: Path, rows: str, line: int | None) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES)
    pods.write_text(HEAD + rows)
    fleet = load_fleet(FleetFiles(nodes=(str(nodes),), pods=(str(pods),)))
    if line is None:
        assert len(list(fleet.pods())) == rows.count("\n")
        return
    with pytest.raises(InputError) as caught:
        list(fleet.pods())
    (fault,) = caught.value.faults
    assert (fault.source, fault.path, fault.value) == (f"{pods}:{line}", "name", "a")
    assert fault.rule == f"a pod of this name exists already ({pods}:2)"


def test_names_are_unique_across_tables(tmp_path: Path) -> None:
    nodes, one, other = (tmp_path / name for name in ("nodes.csv", "one.csv", "other.csv"))
    nodes.write_text(NODES)
    for path in (one, other):
        path.write_text(HEAD + "a,d,1,1Gi,0,5\n")
    with pytest.raises(InputError, match="a pod of this name exists already"):
        list(load_fleet(FleetFiles(nodes=(str(nodes),), pods=(str(one), str(other)))).pods())


def test_all_duplicate_names_of_manifests_are_reported_before_the_run(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.yaml"
    nodes.write_text(NODES)
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: m, image: m}]}\n---\n"
    pods.write_text("".join(pod % name for name in ("a", "b", "a", "b")))
    with pytest.raises(InputError) as caught:
        load_fleet(FleetFiles(nodes=(str(nodes),), pods=(str(pods),)))
    assert [(fault.source, fault.value) for fault in caught.value.faults] == [
        (f"{pods}:11", "a"),
        (f"{pods}:16", "b"),
    ]


def test_names_of_finished_pods_are_removed() -> None:
    names = PodNames()
    for number in range(100_000):
        assert names.add(f"d/{number}", number, 10, "") is None
    assert len(vars(names)["_sources"]) < 3000


def test_machines_have_their_instance_types_from_any_of_the_files(tmp_path: Path) -> None:
    example = Path("examples/other-systems/typed-machine.yaml").read_text(encoding="utf-8").split("---\n")
    machines, types = tmp_path / "machines.yaml", tmp_path / "types.yaml"
    machines.write_text("---\n".join(example[:2]), encoding="utf-8")
    types.write_text("---\n".join(example[2:]), encoding="utf-8")
    nodes = "examples/other-systems/machine-deployments.yaml"
    fleet = load_fleet(FleetFiles(nodes=(nodes,), pods=(str(machines), str(types))))
    assert [pod.name for pod in fleet.pods()] == ["build-0"]
