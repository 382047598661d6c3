"""Explanations where the kubelet ends, machines are large, and nothing is kept in books."""

from typing import Any

from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.model.memory_reasons import MemoryTypeMissing
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.node.changes import RequestsChanged
from nodewright.node.explanation import Explanation
from nodewright.node.memory_steps import memory_steps
from nodewright.render.explain import Told, explanation_text
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, container, pod

GIB = 1 << 30
ALIGNED: dict[str, Any] = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}


def explained(profile: NodeProfile, asking: Pod) -> Explanation:
    return Node.of(profile).explain(asking)


def test_a_kubelet_that_crashes_over_a_huge_page_size_is_flagged() -> None:
    """The machine has no pages of 1 GiB, and the memory manager does not ask before it looks."""
    profile = a_profile(**ALIGNED)
    nodes = tuple(replace(node, hugepages=()) for node in profile.spec.machine_info.topology)
    bare = replace(profile.spec.machine_info, topology=nodes)
    profile = replace(profile, spec=replace(profile.spec, machine_info=bare))
    found = explained(profile, a_guaranteed_pod("web", "cpu=1 memory=1Gi hugepages-1Gi=1Gi"))
    assert [type(one.reason) for one in found.defects] == [MemoryTypeMissing]
    assert found.rounds[0].hint is None
    text = explanation_text([Told(explained=found)])
    assert "refused (KubeletCrashes)" in text
    assert "    container main\n" in text


def test_many_odd_containers_go_up_or_down_together() -> None:
    config = {
        **STATIC_CPUS,
        "reservedSystemCPUs": "0,8",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    }
    profile = a_profile(**config)
    smt = Node.open("2s-1n-4c-smt2").config.parts.machine
    profile = replace(profile, spec=replace(profile.spec, machine_info=smt))
    seven = [container(f"c{at}", "1/64Mi", "1/64Mi") for at in range(7)]
    found = explained(profile, pod(*seven, name="web", uid="web"))
    (whole,) = [one for one in found.others.suggestions if one.kind == "whole cores"]
    assert isinstance(whole.change, RequestsChanged)
    assert {one.now for one in whole.change.amounts} == {2000}


def test_on_large_machines_single_nodes_groups_and_the_whole_give_the_sizes() -> None:
    config = {**ALIGNED, "topologyManagerPolicy": "none"}
    state = Node.of(a_profile(numa=9, cpus=1, **config)).state
    sizes = memory_steps(state, "memory", [], GIB)
    assert sizes[0] == 35 * GIB
    assert {3 * GIB, 4 * GIB} <= set(sizes)
    assert 8 * GIB not in sizes


def test_of_many_other_containers_each_and_all_together_are_taken_off() -> None:
    state = Node.of(a_profile(**ALIGNED)).state
    sizes = memory_steps(state, "memory", [1 << 20] * 5 + [1 << 21], 1 << 20)
    assert 4 * GIB - (7 << 20) in sizes
    assert 4 * GIB - (5 << 20) not in sizes
