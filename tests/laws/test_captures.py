"""What a simulated kubelet would leave on disk, captured, is what its pods hold."""

import json
import tempfile
from pathlib import Path

from hypothesis import assume, given
from msgspec.structs import replace
from tests.laws.test_nodes import Script, is_flagged, played, reported_allocations, scripts
from tests.support.pod_resource_files import resources_state_file

from nodewright.documents.profiles.allocations import pod_allocations
from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node
from nodewright.documents.profiles.capture.node_pods import NodePods
from nodewright.documents.profiles.kubelet_root import read_kubelet_root
from nodewright.documents.profiles.state_files.cpu_manager_state import cpu_state_file
from nodewright.documents.profiles.state_files.device_checkpoint import (
    device_checkpoint,
    device_checkpoint_bytes,
)
from nodewright.documents.profiles.state_files.memory_manager_state import memory_state_file
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.engine.node.pod_admission import placement_of
from nodewright.model.kubernetes.node_profile import NodePart, NodeProfile, PodAllocations
from nodewright.predict.node import Node


@given(scripts())
def test_capturing_a_simulated_nodes_directory_gives_what_its_pods_hold(script: Script) -> None:
    history = list(played(script))
    assume(not any(is_flagged(answer) for _, answer in history))
    node, spec = history[-1][0], script.profile.spec
    container_allocations = tuple(
        reported_allocation
        for each in node.pods
        for reported_allocation in reported_allocations(each, placement_of(node.state, each))
    )
    expected = pod_allocations(replace(spec, pods=node.pods, allocations=container_allocations))
    with tempfile.TemporaryDirectory() as directory:
        root = read_kubelet_root(write_kubelet_files(Path(directory), node, script.profile))
    known = captured_node(
        NodeSources(base=script.profile, kubelet_root=root, pods=NodePods(node="n", pods=tuple(node.pods)))
    )
    assert holding(pod_allocations(known.profile.spec)) == holding(expected)
    assert {unknown_node_part.part for unknown_node_part in known.profile.spec.not_judged} <= {
        NodePart.DEVICES
    }
    # Without the pods there are stand-ins, which hold the same.
    strangers = captured_node(NodeSources(base=script.profile, kubelet_root=root)).profile.spec
    assert holding(pod_allocations(strangers)) == holding(expected)
    assert {pod.uid for pod in strangers.pods} == {pod.uid for pod in node.pods}


def write_kubelet_files(directory: Path, node: Node, profile: NodeProfile) -> Path:
    """What the node's kubelet would have written."""
    config, held = node.config.parts.kubelet, node.state.held
    typed = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    pod_level = node.config.gates["PodLevelResourceManagers"]
    given = {pod.uid: resources(node, pod.uid) for pod in node.pods}
    files = {
        "config.yaml": json.dumps({**typed, **profile.spec.kubelet_configuration}).encode(),
        "cpu_manager_state": cpu_state_file(held.cpu, config.cpu_manager_policy, pod_level=pod_level),
        "memory_manager_state": memory_state_file(
            held.memory, config.memory_manager_policy, pod_level=pod_level
        ),
        "device-plugins/kubelet_internal_checkpoint": device_checkpoint_bytes(
            device_checkpoint(held.devices)
        ),
        "allocated_pods_state": resources_state_file(given),
    }
    (directory / "device-plugins").mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def resources(node: Node, uid: str) -> PodResourceInfo:
    spec = node.state.pods[uid].spec
    return PodResourceInfo(
        {container.name: container.resources for container in (*spec.init_containers, *spec.containers)},
        spec.resources,
    )


def holding(kept: PodAllocations) -> dict[str, object]:
    """Those who hold anything, and what."""
    return {
        "cpus": {uid: dict(held) for uid, held in kept.cpus.items()},
        "memory": {uid: dict(held) for uid, held in kept.memory.items()},
        "devices": {
            (uid, container, resource): ids
            for uid, containers in kept.devices.items()
            for container, by_resource in containers.items()
            for resource, ids in by_resource.items()
            if ids
        },
    }
