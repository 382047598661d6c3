"""Explanations as text: the cases that the golden files do not cover."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.node.what_if.changes import Label, LabelsChanged, PodLeaves, Setting, SettingsChanged
from nodewright.model.hardware import MachineShape, machine_from_shape
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import NUMASet
from nodewright.predict.explain.alignment import numa_sets_text
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.explanation_report import (
    MergeStall,
    explained_pod,
    explanation_text,
)
from nodewright.predict.explain.reason_tree import duration_text
from nodewright.predict.explain.suggestion_text import change_text
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

ALIGNED = {**STATIC_CPUS, "topologyManagerPolicy": "best-effort"}


def explained(profile: NodeProfile, pod: Pod, *before: Pod) -> Explanation:
    node = Node.from_profile(profile)
    for other in before:
        node = node.admit(other).node
    return replace(node.explain(pod), origin="Deployment web")


def text(profile: NodeProfile, pod: Pod, *before: Pod, wide: bool = False) -> str:
    return explanation_text([explained(profile, pod, *before)], width=200, wide=wide)


def on(shape: MachineShape, **kubelet: Any) -> NodeProfile:
    profile = a_profile(**{**STATIC_CPUS, **kubelet})
    return replace(profile, spec=replace(profile.spec, machine_info=machine_from_shape(shape)))


def test_the_origin_of_a_pod_is_shown() -> None:
    assert text(a_profile(), a_pod("web", "1/1Gi")) == (
        "default/web (Deployment web): admitted\n\n"
        "  The requests fit and every check passes; no resource needs NUMA placement\n"
    )


def test_an_undecided_verdict_has_its_reason_and_no_suggestions() -> None:
    web = a_pod("web", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    lines = text(a_profile(), web).splitlines()
    assert lines[0] == "default/web (Deployment web): undecided"
    assert lines[2:] == [
        "  Why it is undecided",
        "    not judged: AppArmor (the pod has an AppArmor profile)",
    ]


def test_a_shortage_of_cpus_shows_their_holders() -> None:
    output = text(
        a_profile(**STATIC_CPUS), a_guaranteed_pod("web", "4/1Gi"), a_guaranteed_pod("old", "4/1Gi")
    )
    assert (
        "    4 CPUs requested, 3 available\n"
        "      NUMA node 0: CPUs 1-3 free; 0 reserved\n"
        "      NUMA node 1: no CPU free; default/old (main) has 4-7\n"
    ) in output


def test_a_shortage_of_devices_shows_their_holders() -> None:
    gpus = {"example.com/gpu": "g0@0 g1@0,1 g2"}
    old, web = (a_guaranteed_pod(name, "cpu=1 memory=1Gi example.com/gpu=2") for name in ("old", "web"))
    assert (
        "    example.com/gpu: 2 requested, 1 of 3 free\n"
        "      no NUMA node: 1 of 1 free\n"
        "      NUMA node 0: 0 of 1 free\n"
        "      NUMA nodes 0-1: 0 of 1 free\n"
        "      default/old (main) has g0, g1\n"
    ) in text(a_profile(devices=gpus), web, old)


def test_best_effort_admits_a_hint_that_is_not_preferred() -> None:
    crossed = a_profile(devices={"example.com/gpu": "g0@0", "example.com/nic": "n0@1"}, **ALIGNED)
    output = text(
        crossed, a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=1 example.com/nic=1"), wide=True
    )
    assert (
        "merged: {0-1}, not preferred, because no set of NUMA nodes is preferred by all: example.com/gpu prefers {0}, "
        "example.com/nic prefers {1}, cpu prefers {0} or {1}; best-effort admits it nevertheless"
    ) in " ".join(output.split())


def test_memory_shared_by_numa_nodes_is_shown_with_its_holders() -> None:
    config = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "best-effort"}
    output = text(
        a_profile(**config), a_guaranteed_pod("web", "1/1Gi"), a_guaranteed_pod("old", "1/5Gi"), wide=True
    )
    assert "NUMA node 0: 0 of 3Gi free; used together as {0-1}; default/old (main) has 5Gi on {0-1}" in output


def test_pod_level_allocations_are_shown() -> None:
    config = {
        **STATIC_CPUS,
        **STATIC_MEMORY,
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "featureGates": {"PodLevelResourceManagers": True},
    }
    web = pod(container("app", "1/1Gi", "1/1Gi"), container("log"), name="web", uid="web", whole="3/2Gi")
    output = text(a_profile(**config), web)
    assert "the pod as a whole: CPUs 1-3, 2Gi memory on NUMA node 0\n    container app: CPU 1" in output


def test_known_defects_are_shown_with_the_result_without_them() -> None:
    hybrid = on(MachineShape(cores=2, threads=2, small_cores=4))
    output = text(hybrid, a_guaranteed_pod("web", "2/64Mi"), a_guaranteed_pod("old", "1/64Mi"))
    assert (
        "  Known defects of the kubelet\n"
        "    CPUs 0 are allocated though they are not free (a known defect on irregular machines)\n"
        "      CPU 0: reserved for the system\n"
        "    without these defects: admitted\n"
        "    container main would have CPUs 5-6\n"
    ) in output


def test_cpus_assigned_twice_are_shown_with_their_first_holder() -> None:
    """The defect assigns a whole core of which `c` holds one thread."""
    node = Node.from_profile(on(MachineShape(cores=2, threads=2, small_cores=4)))
    for name, cpus in (("a", 1), ("b", 3), ("c", 3)):
        node = node.admit(a_guaranteed_pod(name, f"{cpus}/64Mi")).node
    result = node.without_pod("a").explain(a_guaranteed_pod("web", "2/64Mi"))
    assert "      CPU 1: already assigned to default/c (main)\n" in explanation_text([result])


def test_a_hang_is_shown_with_the_result_without_it() -> None:
    options = {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
    shape = MachineShape(numa_per_socket=4, cores=3, threads=2)
    profile = on(shape, reservedSystemCPUs="3,8,14,16,23", cpuManagerPolicyOptions=options)
    output = text(profile, a_guaranteed_pod("web", "14/64Mi"))
    assert output.startswith("default/web (Deployment web): refused (KubeletHangs)\n")
    assert "    without these defects: admitted\n" in output


def test_a_stall_is_shown_with_its_duration() -> None:
    """255 sets of 8 NUMA nodes for each of three resources took a real kubelet 5.5 s."""
    template = " ".join(f"%s{at}@{at}" for at in range(8))
    devices = {f"example.com/{name}": template.replace("%s", name) for name in ("gpu", "nic")}
    web = a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=1 example.com/nic=1")
    stalled = explained(a_profile(numa=8, cpus=2, devices=devices, **ALIGNED), web)
    output = explanation_text([stalled], width=200)
    assert (
        "  A real kubelet would merge hints for 4.6 s to 6.8 s: it tries 16,581,375 combinations of hints\n"
        in output
    )
    pod = explained_pod(stalled)
    assert pod.stall == MergeStall(least_seconds=4.643, most_seconds=6.798, warned=True)
    assert pod.origin == "Deployment web"


def test_more_than_four_sets_are_cut_short() -> None:
    assert numa_sets_text([NUMASet.of(at) for at in range(4)]) == "{0} or {1} or {2} or {3}"
    assert numa_sets_text([NUMASet.of(at) for at in range(5)]).endswith("{3} or others")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.25, "0.2 s"), (119, "119.0 s"), (120, "2 min"), (3600, "1.0 h"), (86_400 * 1500, "1,500.0 days")],
)
def test_durations_have_a_fitting_unit(seconds: float, expected: str) -> None:
    assert duration_text(seconds) == expected


def test_changes_are_shown_with_the_value_that_they_replace() -> None:
    label = Label(key="zone", was="a", now="b")
    assert change_text(LabelsChanged(labels=(label,))) == "the node with the label zone=b instead of a"
    option = Setting(name="cpuManagerPolicyOptions", option="align-by-socket", was=None, now="true")
    assert change_text(SettingsChanged(settings=(option,))) == "cpuManagerPolicyOptions: with align-by-socket"
    leaving = PodLeaves(pod=a_pod("old"), requests={"cpu": 0})
    assert change_text(leaving) == "without the pod default/old (nothing requested)"
