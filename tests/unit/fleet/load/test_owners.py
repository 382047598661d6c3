"""Dumps of a cluster hold pods and what makes them: no pod is made that is there already."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.workload import FleetPod

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
