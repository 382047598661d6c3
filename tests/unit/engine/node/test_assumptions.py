"""Decisions that depend on assumed parts of a node are undecided; others are not."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.node_profile import (
    Device,
    NodePart,
    NodeProfile,
    NodeProfileSpec,
    UnknownNodePart,
)
from nodewright.model.kubernetes.objects import ResourceRequirements
from nodewright.predict.node import Node
from nodewright.testing.machines import regular_machine
from nodewright.testing.objects import amounts, container, pod

ADMITTED, REFUSED, UNDECIDED = Decision.ADMITTED, Decision.REFUSED, Decision.UNDECIDED
STATIC: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "systemReserved": {"cpu": "1", "memory": "64Mi"},
    "evictionHard": {},
}
MEMORY: dict[str, Any] = {
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "64Mi"}}],
}
WHOLE_CORES: dict[str, Any] = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
GPUS: dict[str, tuple[Device, ...]] = {"a.b/gpu": (Device("g0", (0,)), Device("g1", (1,)))}

OWN = pod(container("app", "2/1Gi", "2/1Gi"), name="own", uid="own")
SHARED = pod(container("app", "1/1Gi"), name="shared", uid="shared")


def gpu_pod() -> Any:
    result = amounts({"cpu": "1", "memory": "1Mi", "a.b/gpu": "1"})
    one = replace(
        container("app"),
        resources=ResourceRequirements(requests=result, limits={"a.b/gpu": result["a.b/gpu"]}),
    )
    return pod(one, name="gpu", uid="gpu")


def a_node(*unknown: NodePart, numa: int = 2, policy: str = "restricted", **kubelet: Any) -> Node:
    spec = NodeProfileSpec(
        machine_info=regular_machine(numa, 4),
        root_fs_capacity=1 << 40,
        kubelet_configuration={**STATIC, "topologyManagerPolicy": policy, **kubelet},
        devices=GPUS if numa > 1 else {},
        not_judged=tuple(UnknownNodePart(part=node_part, because="nobody said") for node_part in unknown),
    )
    return Node.from_profile(NodeProfile(spec=spec))


@pytest.mark.parametrize(
    ("node", "asked", "decision"),
    [
        (a_node(), OWN, ADMITTED),
        (a_node(NodePart.CPUS), OWN, UNDECIDED),
        (a_node(NodePart.CPUS), SHARED, ADMITTED),
        (a_node(NodePart.CPUS, policy="best-effort"), OWN, ADMITTED),
        (a_node(NodePart.CPUS, cpuManagerPolicy="none"), OWN, ADMITTED),
        (a_node(NodePart.CPUS, numa=1), OWN, ADMITTED),
        (a_node(NodePart.NUMA_NODES, numa=1), OWN, UNDECIDED),
        (a_node(NodePart.CPU_LAYOUT), OWN, ADMITTED),
        (a_node(NodePart.CPU_LAYOUT, **WHOLE_CORES), OWN, UNDECIDED),
        (a_node(NodePart.MEMORY), OWN, ADMITTED),
        (a_node(NodePart.MEMORY, **MEMORY), OWN, UNDECIDED),
        (a_node(NodePart.MEMORY, policy="none", **MEMORY), OWN, UNDECIDED),
        (a_node(NodePart.MEMORY, **MEMORY), SHARED, ADMITTED),
        (a_node(NodePart.MEMORY, numa=1, **MEMORY), OWN, ADMITTED),
        (a_node(NodePart.DEVICES), gpu_pod(), UNDECIDED),
        (a_node(NodePart.DEVICES, policy="none"), gpu_pod(), ADMITTED),
        (a_node(NodePart.DEVICES), SHARED, ADMITTED),
        (a_node(NodePart.CONFIGURATION), OWN, UNDECIDED),
        (a_node(NodePart.CONFIGURATION), gpu_pod(), UNDECIDED),
        (a_node(NodePart.CONFIGURATION), SHARED, ADMITTED),
    ],
)
def test_an_assumption_makes_dependent_decisions_undecided(
    node: Node, asked: Any, decision: Decision
) -> None:
    assert node.admit(asked).decision is decision


def test_a_refusal_by_the_managers_is_undecided_with_assumed_placements() -> None:
    wide = pod(container("app", "5/1Gi", "5/1Gi"), name="wide", uid="wide")
    assert a_node().admit(wide).decision is ADMITTED
    single = a_node(policy="single-numa-node")
    assert single.admit(wide).decision is REFUSED
    answer = a_node(NodePart.CPUS, policy="single-numa-node").admit(wide)
    assert answer.decision is UNDECIDED
    assert answer.sentences[0] == "not judged: CPU manager (the CPUs of the pods are assumed: nobody said)"


def test_a_request_above_allocatable_is_refused_despite_assumptions() -> None:
    huge = pod(container("app", "9/1Gi", "9/1Gi"), name="huge", uid="huge")
    answer = a_node(NodePart.CPUS, policy="single-numa-node").admit(huge)
    assert answer.decision is REFUSED
    assert len(answer.not_judged) == 1


def test_only_the_named_resources_are_undecided() -> None:
    node = a_node()
    spec = NodeProfileSpec(
        machine_info=node.config.parts.machine,
        root_fs_capacity=1 << 40,
        kubelet_configuration={**STATIC, "topologyManagerPolicy": "restricted"},
        devices=GPUS,
        not_judged=(UnknownNodePart(part=NodePart.DEVICES, names=("a.b/nic",)),),
    )
    assert Node.from_profile(NodeProfile(spec=spec)).admit(gpu_pod()).decision is ADMITTED


def test_a_decision_that_depends_on_a_placeholder_pod_is_undecided() -> None:
    stranger = pod(container("app", "5/1Gi"), name="stranger", uid="stranger")
    spec = NodeProfileSpec(
        machine_info=regular_machine(2, 4),
        root_fs_capacity=1 << 40,
        kubelet_configuration=STATIC,
        pods=(stranger,),
        not_judged=(UnknownNodePart(part=NodePart.PODS, names=("default/stranger",)),),
    )
    node = Node.from_profile(NodeProfile(spec=spec))
    assert node.admit(SHARED).decision is ADMITTED
    hangs = node.admit(pod(container("app", "3/1Gi"), name="more", uid="more"))
    assert hangs.decision is UNDECIDED
    assert "default/stranger" in hangs.sentences[0]
