"""The evidence of an explanation: rounds, hints, missing hints, defects."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.node.resource_holders import DeviceSite, MemorySite
from nodewright.engine.node.step import Decision
from nodewright.engine.node.what_if.candidate_changes import memory_breakpoints
from nodewright.engine.node.what_if.changes import RequestsChanged
from nodewright.model.hardware import MachineShape, machine_from_shape
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import CPUsNotFree, KubeletHangs
from nodewright.model.reasons.memory import MemoryTypeMissing
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.topology_hints import Hint
from nodewright.predict.explain.explained_decision import ResourceView
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

GPUS = {"example.com/gpu": "g0@0 g1@1", "example.com/any": "x"}
ALIGNED = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "single-numa-node"}


def explained(profile: NodeProfile, asking: Pod, *before: Pod) -> Explanation:
    node = Node.from_profile(profile)
    for each in before:
        node = node.admit(each).node
    return node.explain(asking)


def on(shape: MachineShape, **kubelet: Any) -> NodeProfile:
    profile = a_profile(**{**STATIC_CPUS, **kubelet})
    return replace(profile, spec=replace(profile.spec, machine_info=machine_from_shape(shape)))


def views(found: Explanation) -> dict[str, ResourceView]:
    (only,) = found.rounds
    return {resource.hints.resource or resource.hints.provider: resource for resource in only.resources}


def test_an_explanation_has_the_decision_of_the_step() -> None:
    node = Node.from_profile(a_profile(devices=GPUS, **ALIGNED))
    for asking in (a_guaranteed_pod("web", "2/1Gi"), a_guaranteed_pod("web", "5/1Gi"), a_pod("web")):
        answer, explanation = node.admit(asking), node.explain(asking)
        assert (explanation.step.decision, explanation.step.because) == (answer.decision, answer.because)


def test_each_managers_hints_and_holders_are_shown() -> None:
    old = a_guaranteed_pod("old", "cpu=2 memory=1Gi example.com/gpu=1")
    web = a_guaranteed_pod("web", "cpu=2 memory=1Gi example.com/gpu=1 example.com/any=1")
    explanation = explained(a_profile(devices=GPUS, **ALIGNED), web, old)
    seen = views(explanation)
    assert explanation.rounds[0].hint == Hint(NUMASet.of(1), preferred=True)
    assert {name: one.requested for name, one in seen.items()} == {
        "example.com/any": 1,
        "example.com/gpu": 1,
        "cpu": 2,
        "memory": 1 << 30,
    }
    assert seen["example.com/gpu"].hints.preferred == (NUMASet.of(1),)
    gpu = seen["example.com/gpu"].sites
    assert gpu is not None
    assert isinstance(gpu[0], DeviceSite)
    assert [(holder.pod, holder.devices) for holder in gpu[0].holders] == [("default/old", ("g0",))]
    memory = seen["memory"].sites
    assert memory is not None
    assert isinstance(memory[0], MemorySite)
    assert [(holder.pod, holder.size) for holder in memory[0].holders] == [("default/old", 1 << 30)]
    assert seen["example.com/any"].no_hint_reason == "nowhere"
    assert seen["cpu"].enough_if_empty == 1
    assert explanation.combinations == 2, "memory alone leaves a choice between two single NUMA nodes"


SILENT: list[tuple[dict[str, Any], Pod, dict[str, str]]] = [
    (
        {"topologyManagerPolicy": "restricted"},
        a_guaranteed_pod("web", "1/1Gi"),
        {"cpu": "policy", "memory": "policy"},
    ),
    (ALIGNED, a_pod("web", "1/1Gi"), {"cpu": "class", "memory": "class"}),
    (ALIGNED, a_guaranteed_pod("web", "1500m/1Gi"), {"cpu": "not whole"}),
    (ALIGNED, a_guaranteed_pod("web", "1/1.5Gi"), {"memory": "inexact"}),
    (ALIGNED, a_guaranteed_pod("web", "1/7Gi"), {}),
    (ALIGNED, a_guaranteed_pod("web", "1/8Gi"), {"memory": "nothing fits"}),
    (
        {**ALIGNED, "topologyManagerScope": "pod"},
        pod(container("app"), name="web", uid="web", whole="1/1Gi"),
        {"cpu": "pod-level resources", "memory": "pod-level resources"},
    ),
]


@pytest.mark.parametrize(("config", "asking", "silent"), SILENT)
def test_a_missing_hint_has_its_reason(config: dict[str, Any], asking: Pod, silent: dict[str, str]) -> None:
    seen = views(explained(a_profile(**config), asking))
    document = {name: one.no_hint_reason for name, one in seen.items() if one.no_hint_reason is not None}
    assert document == {"devices": "nothing asked", **silent}


def test_under_policy_none_no_hints_are_generated() -> None:
    explanation = explained(a_profile(**STATIC_CPUS), a_guaranteed_pod("web", "2/1Gi"))
    assert explanation.rounds == ()
    assert explanation.placement is not None
    assert explanation.placement.containers[0].cpus == CPUSet.of(1, 2)


def test_a_forbidden_sysctl_precedes_the_managers() -> None:
    sysctls = {"sysctls": [{"name": "vm.swappiness", "value": "1"}]}
    explanation = explained(a_profile(**ALIGNED), a_pod("web", securityContext=sysctls))
    assert (explanation.rounds, explanation.choices, explanation.placement) == ((), (), None)


def test_pod_scope_has_one_round_for_all_containers() -> None:
    asking = pod(*(container(name, "2/1Gi", "2/1Gi") for name in ("a", "b")), name="web", uid="web")
    explanation = explained(a_profile(**ALIGNED, topologyManagerScope="pod"), asking)
    assert [(numa_round.container, numa_round.hint) for numa_round in explanation.rounds] == [
        ("", Hint(NUMASet.of(1), preferred=True))
    ]
    assert views(explanation)["cpu"].requested == 4
    assert [container for container, _ in explanation.choices] == ["a", "b"]


def test_cpus_assigned_twice_are_a_defect_with_their_holders() -> None:
    """Two threads on some cores, one on others: the kubelet reckons one thread a core and takes the whole core."""
    hybrid = on(MachineShape(cores=2, threads=2, small_cores=4))
    explanation = explained(hybrid, a_guaranteed_pod("web", "2/64Mi"), a_guaranteed_pod("old", "1/64Mi"))
    (defect,) = explanation.defects
    assert defect.reason == CPUsNotFree(cpus=CPUSet.of(0))
    assert defect.reserved == CPUSet.of(0)
    other = explanation.without_defects
    assert other is not None
    assert other.placement is not None
    assert other.placement.containers[0].cpus == CPUSet.of(5, 6)


def test_a_hang_is_a_defect_with_the_result_without_it() -> None:
    options = {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
    profile = on(
        MachineShape(numa_per_socket=4, cores=3, threads=2),
        reservedSystemCPUs="3,8,14,16,23",
        cpuManagerPolicyOptions=options,
    )
    explanation = explained(profile, a_guaranteed_pod("web", "14/64Mi"))
    assert explanation.step.decision is Decision.REFUSED
    assert isinstance(explanation.defects[0].reason, KubeletHangs)
    assert explanation.without_defects is not None
    assert explanation.without_defects.decision is Decision.ADMITTED
    assert "fewer CPUs" in {suggestion.kind for suggestion in explanation.counterfactuals.suggestions}


def test_avoided_defects_are_not_reported() -> None:
    hybrid = on(MachineShape(cores=2, threads=2, small_cores=4))
    avoiding = replace(hybrid, spec=replace(hybrid.spec, kubelet_defects="avoid"))
    explanation = explained(avoiding, a_guaranteed_pod("web", "2/64Mi"), a_guaranteed_pod("old", "1/64Mi"))
    assert (explanation.defects, explanation.without_defects) == ((), None)


GIB = 1 << 30
RESTRICTED: dict[str, Any] = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}


def explained_on(profile: NodeProfile, asking: Pod) -> Explanation:
    return Node.from_profile(profile).explain(asking)


def test_a_crash_over_a_huge_page_size_is_a_defect() -> None:
    """The machine has no pages of 1 GiB, and the memory manager does not ask before it looks."""
    profile = a_profile(**RESTRICTED)
    nodes = tuple(replace(node, hugepages=()) for node in profile.spec.machine_info.topology)
    bare = replace(profile.spec.machine_info, topology=nodes)
    profile = replace(profile, spec=replace(profile.spec, machine_info=bare))
    explanation = explained_on(profile, a_guaranteed_pod("web", "cpu=1 memory=1Gi hugepages-1Gi=1Gi"))
    assert [type(defect.reason) for defect in explanation.defects] == [MemoryTypeMissing]
    assert explanation.rounds[0].hint is None
    text = explanation.text(wide=True)
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
    explanation = explained_on(profile, pod(*seven, name="web", uid="web"))
    (whole,) = [
        suggestion
        for suggestion in explanation.counterfactuals.suggestions
        if suggestion.kind == "whole cores"
    ]
    assert isinstance(whole.change, RequestsChanged)
    assert {amount.now for amount in whole.change.amounts} == {2000}


def test_on_large_machines_single_nodes_groups_and_the_machine_give_the_sizes() -> None:
    config = {**RESTRICTED, "topologyManagerPolicy": "none"}
    state = Node.from_profile(a_profile(numa=9, cpus=1, **config)).state
    sizes = memory_breakpoints(state, "memory", [], GIB)
    assert sizes[0] == 35 * GIB
    assert {3 * GIB, 4 * GIB} <= set(sizes)
    assert 8 * GIB not in sizes


def test_of_many_other_containers_each_and_all_are_subtracted() -> None:
    state = Node.from_profile(a_profile(**RESTRICTED)).state
    sizes = memory_breakpoints(state, "memory", [1 << 20] * 5 + [1 << 21], 1 << 20)
    assert 4 * GIB - (7 << 20) in sizes
    assert 4 * GIB - (5 << 20) not in sizes
