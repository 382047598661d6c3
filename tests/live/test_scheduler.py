"""The fleet's scheduler and a real kube-scheduler: the same feasible nodes, the same best nodes, the same messages."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.odd_clusters import OddClusters
from tests.support.real_api_server import needs_real
from tests.support.real_scheduler import RealScheduler, real_scheduler

from nodewright.fleet.load.fleet_input import FleetFiles, FleetInput, load_fleet
from nodewright.fleet.runner import Options, simulation_setup
from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.fleet_simulation import FleetSimulation
from nodewright.fleet.simulation.inter_pod import InterPodView
from nodewright.fleet.simulation.outcomes import FilterRejections
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.fleet.simulation.scheduler import filter_rejections, filter_status, total_scores
from nodewright.fleet.simulation.scheduler_preemption import preemption_plan
from nodewright.fleet.simulation.scores import ImageLocality, default_score
from nodewright.fleet.workload import FleetPod

pytestmark = [
    pytest.mark.live,
    needs_real("kube-scheduler"),
]
PODS_OF_A_CLUSTER = 12
_NO_AFFINITY = "didn't match Pod's node affinity/selector"
_MESSAGES = {
    "NodeUnschedulable": "node(s) were unschedulable",
    "NodePorts": "node(s) didn't have free ports for the requested pod ports",
    "NodeAffinity": f"node(s) {_NO_AFFINITY}",
    "InterPodAffinity affinity": "node(s) didn't match pod affinity rules",
    "InterPodAffinity anti-affinity": "node(s) didn't match pod anti-affinity rules",
    "InterPodAffinity anti-affinity of existing pods": "node(s) didn't satisfy existing pods anti-affinity rules",
}


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealScheduler]:
    with real_scheduler(Path(tmp_path_factory.mktemp("scheduler"))) as running:
        yield running


def fleet_of(objects: list[dict[str, Any]], folder: Path) -> FleetInput:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), "utf-8")
    return load_fleet(FleetFiles(both=(str(path),)))


class Simulated(NamedTuple):
    """The fleet with the pods that have a node, and the shape of the one that waits."""

    fleet: FleetInput
    simulation: FleetSimulation
    pods: Sequence[FleetPod]
    shape: PodShape

    def feasible(self) -> list[NodeSlot]:
        view = self.view()
        return [
            slot for slot in self.simulation.cluster.nodes if filter_status(self.shape, slot, view) is None
        ]

    def view(self) -> InterPodView:
        return InterPodView(self.shape, self.simulation.cluster)


def simulated(objects: list[dict[str, Any]], pod: dict[str, Any], folder: Path) -> Simulated:
    fleet = fleet_of([*objects, pod], folder)
    simulation = FleetSimulation(fleet.nodes, simulation_setup(Options()))
    *existing, waiting = sorted(fleet.pods(), key=lambda each: each.name == pod["metadata"]["name"])
    simulation.run(iter(existing))
    return Simulated(fleet, simulation, existing, simulation.shapes.shape_of(waiting))


def best_nodes(
    objects: list[dict[str, Any]], pod: dict[str, Any], folder: Path
) -> tuple[set[str], tuple[FilterRejections, ...]]:
    """The nodes with the best score for the pod, or why there are none."""
    cluster = simulated(objects, pod, folder)
    slots = cluster.feasible()
    if not slots:
        return set(), filter_rejections(cluster.shape, cluster.simulation.cluster)
    score = ImageLocality(cluster.fleet.nodes).with_locality(default_score)
    totals = total_scores(cluster.shape, slots, cluster.view(), score)
    return {slot.name for slot, total in zip(slots, totals, strict=True) if total == max(totals)}, ()


def message_parts(message: str) -> set[str]:
    """The counts and reasons of `0/3 nodes are available: 1 …, 2 …. preemption: …`."""
    counts: dict[str, int] = {}
    for reason in message.partition(": ")[2].partition(". ")[0].removesuffix(".").split(", "):
        count, _, text = reason.partition(" ")
        # Nodes that `matchFields` exclude are not filtered one by one, and have a text of their own.
        text = text.replace("didn't satisfy plugin(s) [NodeAffinity]", _NO_AFFINITY)
        counts[text] = counts.get(text, 0) + int(count)
    return {f"{count} {text}" for text, count in counts.items()}


def rejection_parts(rejections: tuple[FilterRejections, ...]) -> set[str]:
    counts: dict[str, int] = {}
    for rejection in rejections:
        text = _rejection_text(rejection)
        counts[text] = counts.get(text, 0) + rejection.nodes
    return {f"{count} {text}" for text, count in counts.items()}


def _rejection_text(rejection: FilterRejections) -> str:
    plugin, detail = rejection.plugin, rejection.detail
    if plugin == "NodeResourcesFit":
        return "Too many pods" if detail == "pods" else f"Insufficient {detail}"
    if plugin == "TaintToleration":
        return "node(s) had untolerated taint(s)"
    if plugin == "PodTopologySpread":
        note = " (missing required label)" if detail.endswith(" (missing required label)") else ""
        return f"node(s) didn't match pod topology spread constraints{note}"
    return _MESSAGES.get(plugin) or _MESSAGES[f"{plugin} {detail}"]


@pytest.mark.parametrize("seed", range(6))
def test_pods_go_to_one_of_the_best_nodes(seed: int, scheduler: RealScheduler, tmp_path: Path) -> None:
    clusters, differences = OddClusters(seed), []
    scheduler.set_nodes(clusters.nodes())
    for number in range(PODS_OF_A_CLUSTER):
        pod, objects = clusters.pod(f"p{number}"), scheduler.objects()
        real_node, message = scheduler.add_pod(pod)
        best, rejections = best_nodes(objects, pod, tmp_path)
        if real_node:
            is_equal = real_node in best
        else:
            is_equal = message_parts(message) == rejection_parts(rejections)
            scheduler.remove_pod(pod["metadata"]["name"])
        if not is_equal:
            differences.append((pod, real_node, message, best, rejections))
    assert not differences


CLASSES = {"low": 1, "middle": 5, "high": 10, "top": 100}


def class_objects() -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in CLASSES.items()
    ]


def plain_pod(name: str, requests: dict[str, str], **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "a", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [main], **spec},
    }


def crowded_cluster(scheduler: RealScheduler, seed: int) -> None:
    """Nodes without taints, and pods of three priorities on them that started one after the other."""
    clusters = OddClusters(seed)
    draw, nodes = clusters.random, [{**node, "spec": {}} for node in clusters.nodes()]
    scheduler.set_nodes(nodes)
    for item in class_objects():
        scheduler.add_priority_class(item)
    minutes = list(range(60))
    draw.shuffle(minutes)
    for number in range(4 * len(nodes)):
        amounts = {"cpu": draw.choice(("250m", "500m", "1")), "memory": draw.choice(("256Mi", "512Mi"))}
        class_name, node = (
            draw.choice(("low", "middle", "high")),
            nodes[number % len(nodes)]["metadata"]["name"],
        )
        pod = plain_pod(f"r{number}", amounts, priorityClassName=class_name, nodeName=node)
        scheduler.add_running_pod(pod, f"2026-01-01T00:{minutes[number]:02}:00Z")


@pytest.mark.parametrize("seed", range(4))
def test_preemption_takes_the_same_victims(seed: int, scheduler: RealScheduler, tmp_path: Path) -> None:
    crowded_cluster(scheduler, seed)
    pod = plain_pod("preemptor", {"cpu": "1900m", "memory": "1Gi"}, priorityClassName="top")
    objects = [*class_objects(), *scheduler.objects()]
    real_node, _ = scheduler.add_pod(pod)
    cluster = simulated(objects, pod, tmp_path)
    assert bool(real_node) == bool(cluster.feasible())
    if real_node:
        return
    plan = preemption_plan(cluster.shape, cluster.simulation.cluster)
    if plan is None:
        assert scheduler.preemption("preemptor") == ("", set())
        return
    slot = cluster.simulation.cluster.nodes[plan.node]
    victims = {cluster.pods[slot.pods[uid].pod_number].name for uid in plan.uids}
    assert scheduler.preemption("preemptor") == (slot.name, victims)
