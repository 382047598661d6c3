"""The fleet's scheduler and a real kube-scheduler: the same feasible nodes, the same best nodes, the same messages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.odd_clusters import OddClusters
from tests.support.real_api_server import ASSETS
from tests.support.real_scheduler import RealScheduler, real_scheduler

from nodewright.fleet.load.fleet_input import FleetFiles, FleetInput, load_fleet
from nodewright.fleet.runner import Options, simulation_setup
from nodewright.fleet.simulation.fleet_simulation import FleetSimulation
from nodewright.fleet.simulation.image_locality import ImageLocality
from nodewright.fleet.simulation.inter_pod import InterPodView
from nodewright.fleet.simulation.outcomes import FilterRejections
from nodewright.fleet.simulation.scheduler import filter_rejections, filter_status, total_scores
from nodewright.fleet.simulation.scores import default_score

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not ASSETS or not Path(ASSETS, "kube-scheduler").exists(),
        reason="KUBEBUILDER_ASSETS does not name a directory with kube-apiserver, etcd and kube-scheduler",
    ),
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


def best_nodes(
    objects: list[dict[str, Any]], pod: dict[str, Any], folder: Path
) -> tuple[set[str], tuple[FilterRejections, ...]]:
    """The nodes with the best score for the pod, or why there are none."""
    fleet = fleet_of([*objects, pod], folder)
    simulation = FleetSimulation(fleet.nodes, simulation_setup(Options()))
    *existing, waiting = sorted(fleet.pods(), key=lambda each: each.name == pod["metadata"]["name"])
    simulation.run(iter(existing))
    shape = simulation.shapes.shape_of(waiting)
    view = InterPodView(shape, simulation.cluster)
    slots = [slot for slot in simulation.cluster.nodes if filter_status(shape, slot, view) is None]
    if not slots:
        return set(), filter_rejections(shape, simulation.cluster)
    score = ImageLocality(fleet.nodes).with_locality(default_score)
    totals = total_scores(shape, slots, view, score)
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
