"""Explanations with kubelet crashes, large machines and managers without state."""

from typing import Any

from msgspec.structs import replace

from nodewright.engine.node.what_if.changes import RequestsChanged
from nodewright.engine.node.what_if.pod_request_changes import memory_breakpoints
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.memory import MemoryTypeMissing
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.explanation_report import PodExplanation, explanation_text
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, container, pod

GIB = 1 << 30
ALIGNED: dict[str, Any] = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}


def explained(profile: NodeProfile, asking: Pod) -> Explanation:
    return Node.from_profile(profile).explain(asking)


def test_a_crash_over_a_huge_page_size_is_a_defect() -> None:
    """The machine has no pages of 1 GiB, and the memory manager does not ask before it looks."""
    profile = a_profile(**ALIGNED)
    nodes = tuple(replace(node, hugepages=()) for node in profile.spec.machine_info.topology)
    bare = replace(profile.spec.machine_info, topology=nodes)
    profile = replace(profile, spec=replace(profile.spec, machine_info=bare))
    explanation = explained(profile, a_guaranteed_pod("web", "cpu=1 memory=1Gi hugepages-1Gi=1Gi"))
    assert [type(defect.reason) for defect in explanation.defects] == [MemoryTypeMissing]
    assert explanation.rounds[0].hint is None
    text = explanation_text([PodExplanation(explanation=explanation)])
    assert "refused (KubeletCrashes)" in text
    assert "    container main\n" in text


def test_many_fractional_containers_are_rounded_in_one_direction() -> None:
    config = {
        **STATIC_CPUS,
        "reservedSystemCPUs": "0,8",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    }
    profile = a_profile(**config)
    smt = Node.open("2s-1n-4c-smt2").config.parts.machine
    profile = replace(profile, spec=replace(profile.spec, machine_info=smt))
    seven = [container(f"c{at}", "1/64Mi", "1/64Mi") for at in range(7)]
    explanation = explained(profile, pod(*seven, name="web", uid="web"))
    (whole,) = [
        suggestion
        for suggestion in explanation.counterfactuals.suggestions
        if suggestion.kind == "whole cores"
    ]
    assert isinstance(whole.change, RequestsChanged)
    assert {amount.now for amount in whole.change.amounts} == {2000}


def test_on_large_machines_single_nodes_groups_and_the_machine_give_the_sizes() -> None:
    config = {**ALIGNED, "topologyManagerPolicy": "none"}
    state = Node.from_profile(a_profile(numa=9, cpus=1, **config)).state
    sizes = memory_breakpoints(state, "memory", [], GIB)
    assert sizes[0] == 35 * GIB
    assert {3 * GIB, 4 * GIB} <= set(sizes)
    assert 8 * GIB not in sizes


def test_of_many_other_containers_each_and_all_are_subtracted() -> None:
    state = Node.from_profile(a_profile(**ALIGNED)).state
    sizes = memory_breakpoints(state, "memory", [1 << 20] * 5 + [1 << 21], 1 << 20)
    assert 4 * GIB - (7 << 20) in sizes
    assert 4 * GIB - (5 << 20) not in sizes
