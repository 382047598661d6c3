"""Where a decision hangs on what a description only assumes, it stays open; elsewhere it stands."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.model.objects import ResourceRequirements
from nodewright.model.profile import Device, NodeProfile, NodeProfileSpec, NotKnown, Part
from nodewright.node.step import Decision
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
    asked = amounts({"cpu": "1", "memory": "1Mi", "a.b/gpu": "1"})
    one = replace(
        container("app"), resources=ResourceRequirements(requests=asked, limits={"a.b/gpu": asked["a.b/gpu"]})
    )
    return pod(one, name="gpu", uid="gpu")


def a_node(*unknown: Part, numa: int = 2, policy: str = "restricted", **kubelet: Any) -> Node:
    spec = NodeProfileSpec(
        machine_info=regular_machine(numa, 4),
        root_fs_capacity=1 << 40,
        kubelet_configuration={**STATIC, "topologyManagerPolicy": policy, **kubelet},
        devices=GPUS if numa > 1 else {},
        not_judged=tuple(NotKnown(part=one, because="nobody said") for one in unknown),
    )
    return Node.of(NodeProfile(spec=spec))


@pytest.mark.parametrize(
    ("node", "asked", "decision"),
    [
        (a_node(), OWN, ADMITTED),
        (a_node(Part.CPUS), OWN, UNDECIDED),
        (a_node(Part.CPUS), SHARED, ADMITTED),
        (a_node(Part.CPUS, policy="best-effort"), OWN, ADMITTED),
        (a_node(Part.CPUS, cpuManagerPolicy="none"), OWN, ADMITTED),
        (a_node(Part.CPUS, numa=1), OWN, ADMITTED),
        (a_node(Part.NUMA_NODES, numa=1), OWN, UNDECIDED),
        (a_node(Part.CPU_LAYOUT), OWN, ADMITTED),
        (a_node(Part.CPU_LAYOUT, **WHOLE_CORES), OWN, UNDECIDED),
        (a_node(Part.MEMORY), OWN, ADMITTED),
        (a_node(Part.MEMORY, **MEMORY), OWN, UNDECIDED),
        (a_node(Part.MEMORY, policy="none", **MEMORY), OWN, UNDECIDED),
        (a_node(Part.MEMORY, **MEMORY), SHARED, ADMITTED),
        (a_node(Part.MEMORY, numa=1, **MEMORY), OWN, ADMITTED),
        (a_node(Part.DEVICES), gpu_pod(), UNDECIDED),
        (a_node(Part.DEVICES, policy="none"), gpu_pod(), ADMITTED),
        (a_node(Part.DEVICES), SHARED, ADMITTED),
        (a_node(Part.CONFIGURATION), OWN, UNDECIDED),
        (a_node(Part.CONFIGURATION), gpu_pod(), UNDECIDED),
        (a_node(Part.CONFIGURATION), SHARED, ADMITTED),
    ],
)
def test_an_assumption_opens_those_verdicts_that_hang_on_it(
    node: Node, asked: Any, decision: Decision
) -> None:
    assert node.admit(asked).decision is decision


def test_a_refusal_by_the_managers_is_open_too_where_places_are_assumed() -> None:
    wide = pod(container("app", "5/1Gi", "5/1Gi"), name="wide", uid="wide")
    assert a_node().admit(wide).decision is ADMITTED
    single = a_node(policy="single-numa-node")
    assert single.admit(wide).decision is REFUSED
    answer = a_node(Part.CPUS, policy="single-numa-node").admit(wide)
    assert answer.decision is UNDECIDED
    assert answer.why[0] == "not judged: CPU manager (which CPUs pods hold is assumed: nobody said)"


def test_what_is_too_much_for_the_whole_node_is_refused_all_the_same() -> None:
    huge = pod(container("app", "9/1Gi", "9/1Gi"), name="huge", uid="huge")
    answer = a_node(Part.CPUS, policy="single-numa-node").admit(huge)
    assert answer.decision is REFUSED
    assert len(answer.not_judged) == 1


def test_only_the_resources_named_are_open() -> None:
    node = a_node()
    spec = NodeProfileSpec(
        machine_info=node.config.parts.machine,
        root_fs_capacity=1 << 40,
        kubelet_configuration={**STATIC, "topologyManagerPolicy": "restricted"},
        devices=GPUS,
        not_judged=(NotKnown(part=Part.DEVICES, names=("a.b/nic",)),),
    )
    assert Node.of(NodeProfile(spec=spec)).admit(gpu_pod()).decision is ADMITTED


def test_a_verdict_that_hangs_on_a_stand_in_is_open() -> None:
    stranger = pod(container("app", "5/1Gi"), name="stranger", uid="stranger")
    spec = NodeProfileSpec(
        machine_info=regular_machine(2, 4),
        root_fs_capacity=1 << 40,
        kubelet_configuration=STATIC,
        pods=(stranger,),
        not_judged=(NotKnown(part=Part.PODS, names=("default/stranger",)),),
    )
    node = Node.of(NodeProfile(spec=spec))
    assert node.admit(SHARED).decision is ADMITTED
    hangs = node.admit(pod(container("app", "3/1Gi"), name="more", uid="more"))
    assert hangs.decision is UNDECIDED
    assert "default/stranger" in hangs.why[0]
