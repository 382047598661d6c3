"""The outcomes of a drain, and its text."""

import json
from pathlib import Path
from typing import Any

from nodewright.fleet.load.assembled_nodes import NodeDefaults
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.report.drain_report import DrainReport, drain_report
from nodewright.fleet.report.drain_text import drain_text

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
STRICT = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}


def a_node(name: str, cpu: int = 8) -> dict[str, Any]:
    capacity = {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}
    allocatable = capacity | {"cpu": str(cpu - 1), "memory": "31Gi"}
    status = {"capacity": capacity, "allocatable": allocatable}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def a_pod(name: str, node: str, cpu: str = "1", *, has_owner: bool = True, **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    meta: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name}
    if has_owner:
        meta["ownerReferences"] = [OWNER]
    spec = {"nodeName": node, "containers": [container], **spec}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def drained(
    folder: Path, *objects: dict[str, Any], configuration: dict[str, Any] | None = None
) -> DrainReport:
    path = folder / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    defaults = NodeDefaults(configuration={} if configuration is None else configuration)
    fleet = load_fleet(FleetFiles(both=(str(path),), node_defaults=defaults))
    return drain_report(fleet, fleet.nodes, ["n0"])


def test_a_replacement_that_the_kubelet_rejects_has_the_changes_that_let_it_in(tmp_path: Path) -> None:
    # A node of 64 CPUs has two NUMA nodes; no more than 31 or 32 of them are on one.
    report = drained(
        tmp_path, a_node("n0", 64), a_node("n1", 64), a_pod("big", "n0", "40"), configuration=STRICT
    )
    (pod,) = report.drains[0].pods
    assert pod.outcome == "rejected"
    assert pod.why[0] == "the scheduler chooses n1, whose kubelet rejects it"
    assert pod.why[1].startswith("TopologyAffinityError")
    assert isinstance(pod.changes, tuple)
    assert {change.node for change in pod.changes} == {"n1"}
    assert not report.is_clean
    text = drain_text(report, columns=80)
    assert "shop/big: its replacement is rejected, again and again" in text
    assert "  - node/n1: " in text


def test_a_preempted_pod_without_a_place_is_named(tmp_path: Path) -> None:
    vip = a_pod("vip", "n0", "6", priority=1000)
    report = drained(tmp_path, a_node("n0"), a_node("n1"), vip, a_pod("poor", "n1", "4", priority=0))
    (drain,) = report.drains
    assert [(pod.name, str(pod.outcome), pod.node) for pod in drain.pods] == [("vip", "moved", "n1")]
    assert drain.preempted == ("shop/poor",)
    assert not report.is_clean
    assert "shop/poor: preempted for a replacement, and no node for its own" in drain_text(report, columns=80)


def test_a_pod_that_tolerates_the_cordon_returns(tmp_path: Path) -> None:
    stubborn = a_pod("agent", "n0", tolerations=[{"operator": "Exists"}])
    report = drained(tmp_path, a_node("n0"), stubborn)
    assert [str(pod.outcome) for pod in report.drains[0].pods] == ["returned"]
    assert report.is_clean


def test_a_node_that_repels_the_pod_is_a_place_with_a_toleration(tmp_path: Path) -> None:
    tainted = a_node("n1") | {"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
    report = drained(tmp_path, a_node("n0"), tainted, a_pod("web-0", "n0"))
    (pod,) = report.drains[0].pods
    assert (str(pod.outcome), pod.why) == (
        "no place",
        ("NodeUnschedulable: 1 node", "TaintToleration (gpu): 1 node"),
    )
    assert isinstance(pod.changes, tuple)
    assert [(change.node, change.text) for change in pod.changes] == [
        ("n1", "tolerations of gpu=yes:NoSchedule in the pod")
    ]


def test_nodes_with_pods_in_the_way_get_no_changes(tmp_path: Path) -> None:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    nodes = [a_node(name) for name in ("n0", "n1")]
    for node in nodes:
        node["metadata"]["labels"] = {"kubernetes.io/hostname": node["metadata"]["name"]}
    report = drained(tmp_path, *nodes, a_pod("web-0", "n0", affinity=affinity), a_pod("web-1", "n1"))
    (pod,) = report.drains[0].pods
    assert (str(pod.outcome), pod.changes) == ("no place", ())
    assert "no single change among those tried gives it one" in drain_text(report, columns=80)


def test_shares_of_a_shutdown_are_in_the_text(tmp_path: Path) -> None:
    periods = [
        {"priority": 0, "shutdownGracePeriodSeconds": 20},
        {"priority": 100, "shutdownGracePeriodSeconds": 5},
    ]
    pods = [a_pod("late", "n0", priority=100), a_pod("soon", "n0", terminationGracePeriodSeconds=10)]
    configuration = {"shutdownGracePeriodByPodPriority": periods}
    text = drain_text(drained(tmp_path, a_node("n0"), *pods, configuration=configuration), columns=80)
    assert text.split("at shutdown of n0, ")[1].splitlines() == [
        "at most 25s:",
        "  after 0s at the latest: 1 pod",
        "  after 20s at the latest: 1 pod",
        "    shop/late asks for 30s and gets 5s",
    ]
